"""Mutants of the compiled module: a few changes of its text, each built into a copy of the package."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutants.rooms import FAST, ROOT, tests_of_c_file

_FLAGS = ["-O1", "-std=c11", "-fPIC", "-fvisibility=hidden", "-w"]
_PATIENCE = 4
"""The tests of a mutant may take so many times as long as they do without one. One that makes them hang is
found out like this."""

_SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
}
_OPERATOR = re.compile(r"(?<=\s)(<=|>=|<|>|==|!=|&&|\|\|)(?=\s)")
_ONE = re.compile(r" [+-] 1(?=[;,)\]])")
_IF = re.compile(r"\bif \(")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|^#.*?$", re.DOTALL | re.MULTILINE)


class Mutant(NamedTuple):
    """One change of one file."""

    path: Path
    start: int
    stop: int
    text: str
    """What takes the place of ``[start, stop)``."""

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.stop :]

    def diff(self, source: str) -> str:
        number = source.count("\n", 0, self.start) + 1
        begin = source.rfind("\n", 0, self.start) + 1
        end = source.find("\n", self.stop)
        changed = source[begin : self.start] + self.text + source[self.stop : end]
        return f"{self.path}:{number}\n-{source[begin:end]}\n+{changed}"


def mutants_of(path: Path, source: str) -> Iterator[Mutant]:
    """All of a file: a comparison or a junction turned, a boundary moved, a check removed or always true."""
    code = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    for found in _OPERATOR.finditer(code):
        yield Mutant(path, found.start(), found.end(), _SWAPS[found[0]])
    for found in _ONE.finditer(code):
        yield Mutant(path, found.start(), found.end(), "")
    for found in _IF.finditer(code):
        stop = _closing(code, found.end() - 1)
        if stop is not None:
            yield Mutant(path, found.end(), stop, "0")
            yield Mutant(path, found.end(), stop, "1")


def _closing(code: str, opening: int) -> int | None:
    """Where the parenthesis is closed."""
    depth = 0
    for at in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if not depth:
            return at
    return None


class Build:
    """The objects of the module in a copy, of which one is made anew for each mutant."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self.sources = sorted((copy / "src/compiled").glob("*.c"))
        self._objects = copy / "objects"
        self._objects.mkdir()
        self._target = next((copy / "src/logstore").glob("_compiled.*so"))
        for source in self.sources:
            if not self._compile(source, self._objects / f"{source.stem}.o"):
                raise RuntimeError(f"{source} does not compile")

    def _compile(self, source: Path, into: Path) -> bool:
        include = sysconfig.get_path("include")
        command = ["cc", *_FLAGS, "-DPy_LIMITED_API=0x030B0000", f"-I{include}", "-c", str(source), "-o"]
        return not subprocess.run([*command, str(into)], capture_output=True).returncode

    def link(self, changed: dict[str, Path]) -> bool:
        """Put the module in place, with some objects instead of the plain ones."""
        objects = [changed.get(source.stem, self._objects / f"{source.stem}.o") for source in self.sources]
        new = self._target.with_suffix(".new")
        command = ["cc", "-shared", *map(str, objects), "-o", str(new)]
        if subprocess.run(command, capture_output=True).returncode:
            return False
        new.replace(self._target)
        return True

    def build(self, mutant: Mutant, source: str) -> bool:
        """Whether the mutant compiles. One in a header makes everything anew."""
        place = self.copy / mutant.path
        place.write_text(mutant.apply(source))
        try:
            changed = {}
            for each in self.sources if place.suffix == ".h" else [place]:
                into = self._objects / f"{each.stem}.mutant.o"
                if not self._compile(each, into):
                    return False
                changed[each.stem] = into
            return self.link(changed)
        finally:
            place.write_text(source)


def is_noticed(copy: Path, tests: list[str], seconds: float | None) -> bool:
    """Whether any test fails, or the interpreter dies, or nothing ends within so many seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *FAST, *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "LOGSTORE_LOOPS": "compiled"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def try_c(
    copy: Path, rng: random.Random, until: float, only: str | None = None
) -> tuple[int, int, list[str]]:
    """Try mutants until it is that late. Returns how many were noticed, how many do not compile, and the
    differences of those that survived."""
    build = Build(copy)
    started = time.monotonic()
    if not build.link({}) or is_noticed(copy, tests_of_c_file(Path("scan.c")), None):
        raise RuntimeError("the tests fail without any mutant")
    seconds = 10 + _PATIENCE * (time.monotonic() - started)
    files = sorted((ROOT / "src/compiled").glob("*.[ch]"))
    files = [
        path
        for path in files
        if (only or "") in path.name and "x86" not in path.name and "arm" not in path.name
    ]
    sources = {path.relative_to(ROOT): path.read_text() for path in files}
    wanted = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    rng.shuffle(wanted)
    noticed, senseless, survivors = 0, 0, []
    for mutant in wanted:
        if time.monotonic() > until:
            break
        source = sources[mutant.path]
        if not build.build(mutant, source):
            senseless += 1
        elif is_noticed(copy, tests_of_c_file(mutant.path), seconds):
            noticed += 1
        else:
            survivors.append(mutant.diff(source))
            print(f"survived: {survivors[-1]}", flush=True)
    return noticed, senseless, survivors
