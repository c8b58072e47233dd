"""Mutants of the Python core, by mutmut: it writes all mutants of a module into one file that chooses at each
call, learns which tests reach which function, and forks a process for each mutant that runs only these."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.mutants.rooms import FAST, tests_of_module

_AT_ONCE = 200
"""Mutants of one module in one go, in front of which its tests are run once as they are."""


def _settings(module: Path) -> str:
    return "\n".join(
        [
            "",
            "[tool.mutmut]",
            'source_paths = ["src/logstore"]',
            f'only_mutate = ["{module}"]',
            'also_copy = ["src", "tests", "pyproject.toml", "README.md", "setup.py"]',
            f"pytest_add_cli_args_test_selection = {json.dumps(tests_of_module(module))}",
            f"pytest_add_cli_args = {json.dumps(['-p', 'no:cacheprovider', *FAST])}",
            "",
        ]
    )


class Mutmut:
    """mutmut in a copy of the checkout, for one module at a time."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self._plain = (copy / "pyproject.toml").read_text()
        self._environment = {**os.environ, "PYTHONPATH": str(copy / "mutants/src")}

    def _run(self, *arguments: str, seconds: float) -> str:
        command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
        with subprocess.Popen(
            command,
            cwd=self.copy,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                return process.communicate(timeout=max(seconds, 1))[0]
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                try:
                    return process.communicate(timeout=20)[0]
                except subprocess.TimeoutExpired:
                    process.kill()
                    return process.communicate()[0]

    def names(self, module: Path, seconds: float) -> list[str]:
        """Write the mutants of a module and run its tests once; the mutants that any of them reaches."""
        (self.copy / "pyproject.toml").write_text(self._plain + _settings(module))
        for stale in (self.copy / "mutants").glob("mutmut-stats.json"):
            stale.unlink()
        self._run("run", "logstore.no.such", seconds=seconds)
        said = self._run("print-time-estimates", seconds=60)
        return re.findall(r"^\d+ms (\S+__mutmut_\d+)$", said, re.MULTILINE)

    def try_names(self, module: Path, names: list[str], seconds: float) -> dict[str, int | None]:
        """The exit code of the tests by mutant; None where it did not come to that."""
        self._run("run", "--max-children", "1", *names, seconds=seconds)
        meta = json.loads((self.copy / "mutants" / f"{module}.meta").read_text())
        return {name: meta["exit_code_by_key"].get(name) for name in names}

    def diff(self, name: str) -> str:
        return self._run("show", name, seconds=60)


def _is_of_text(diff: str) -> bool:
    """Whether only words were changed, as of an error's message."""
    changed = [line for line in diff.splitlines() if re.match(r"[-+](?![-+])", line)]
    plain = [re.sub(r"""(['"]).*?\1""", "''", line[1:]).replace(" ", "") for line in changed]
    return len(plain) == 2 and plain[0] == plain[1]


def try_python(
    copy: Path, modules: list[Path], rng: random.Random, until: float
) -> tuple[int, int, list[str]]:
    """Try mutants of one module after the other until it is that late. Returns how many were noticed, how
    many change only words, and the differences of those that survived."""
    mutmut = Mutmut(copy)
    noticed, senseless, survivors = 0, 0, []
    for module in modules:
        left = until - time.monotonic()
        if left < 30:
            break
        names = mutmut.names(module, left)
        rng.shuffle(names)
        print(f"{module}: {len(names)} mutants, tests: {' '.join(tests_of_module(module))}", flush=True)
        for at in range(0, len(names), _AT_ONCE):
            left = until - time.monotonic()
            if left < 5:
                break
            codes = mutmut.try_names(module, names[at : at + _AT_ONCE], left)
            noticed += sum(code is not None and code not in (0, 33) for code in codes.values())
            for name in [name for name, code in codes.items() if code == 0]:
                diff = mutmut.diff(name)
                if _is_of_text(diff):
                    senseless += 1
                else:
                    survivors.append(diff)
                    print(f"survived: {diff}", flush=True)
    return noticed, senseless, survivors
