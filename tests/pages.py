"""Runs pages: their blocks run from top to bottom in one directory, and must print what the page shows.

* A block of Python runs in the page's namespace. If its first line is ``# name.py``, it becomes that file.
* A block without a language right after it is its output. ``...`` in it stands for anything.
* In a console block, ``$ python name.py`` runs; the lines below are its output. Other commands are not run.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import logstore

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str


def blocks_of(page: str, under: str = "") -> list[Block]:
    """All of a page's, or those ``under`` one of its second headings."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if under:
        text = text.split(f"\n## {under}\n")[1].split("\n## ")[0]
    return [Block(*found) for found in _BLOCK.findall(text)]


def python_of(page: str, under: str = "") -> list[str]:
    return [block.text for block in blocks_of(page, under) if block.language == "python"]


def promised_by(page: str) -> list[str]:
    """What the comments behind calls of ``print`` say, line by line."""
    lines = "".join(python_of(page)).splitlines()
    return [line.rpartition("# ")[2] for line in lines if "print(" in line and "# " in line]


def run_blocks(blocks: Iterable[str], names: dict[str, Any]) -> str:
    """Run blocks of Python in one namespace; returns what they print."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "page", "exec"), names)
    return printed.getvalue()


class Ran(NamedTuple):
    names: dict[str, Any]
    """The variables afterwards."""
    printed: str

    @property
    def lines(self) -> list[str]:
        return self.printed.splitlines()


def has_its_packages(block: str) -> bool:
    """Whether the packages are installed that a block needs."""
    packages = re.findall(r"^import (\w+)$", block, re.MULTILINE)
    packages += ["pandas"] if "to_pandas" in block else []
    return all(find_spec(package) is not None for package in packages)


@contextlib.contextmanager
def page_names() -> Iterator[dict[str, Any]]:
    """A namespace for the blocks of a page. The stores that they leave open are closed at the end: their
    threads would go on, beside the tests that come next."""
    names: dict[str, Any] = {"__name__": "page"}
    try:
        yield names
    finally:
        for value in names.values():
            if isinstance(value, logstore.Store):
                value.close()


@contextlib.contextmanager
def typed_out(page: str, runs: Callable[[str], bool] = lambda block: True) -> Iterator[Ran]:
    """Run a page's Python, or the blocks that ``runs`` says, as one program in the present directory. The
    stores that it leaves open are closed at the end."""
    with page_names() as names:
        yield Ran(names, run_blocks(filter(runs, python_of(page)), names))


def check_output(shown: str, printed: str) -> None:
    pattern = ".*".join(map(re.escape, shown.split("...")))
    assert re.fullmatch(pattern, printed, re.DOTALL), f"printed:\n{printed}\nthe page shows:\n{shown}"


def run_page(page: str, directory: Path, *, skips: tuple[str, ...] = ()) -> None:
    """``skips``: blocks that contain one of these are not run. Call it in ``directory``."""
    with page_names() as names:
        _run_in_turn(page, directory, skips, names)


def _run_in_turn(page: str, directory: Path, skips: tuple[str, ...], names: dict[str, Any]) -> None:
    blocks = blocks_of(page)
    count = 0
    for block, behind in zip(blocks, [*blocks[1:], Block("end", "")], strict=True):
        if any(word in block.text for word in skips):
            continue
        if block.language == "python":
            count += 1
            name = re.match(r"# (\w+\.py)\n", block.text)
            if name:
                text = block.text.replace("timeout=60", "timeout=1")  # nobody is typing meanwhile
                (directory / name[1]).write_text(text, encoding="utf-8")
                continue
            printed = run_blocks([block.text], names)
            if behind.language == "":
                check_output(behind.text, printed)
        elif block.language == "console":
            run_console(block.text, directory)
    assert count, f"{page} has no Python"


def run_console(text: str, directory: Path) -> None:
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        words = command.split()
        if words[0] == "python" and words[1].endswith(".py") and len(words) == 2:
            done = subprocess.run(
                [sys.executable, words[1]], cwd=directory, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            check_output(shown, done.stdout)
