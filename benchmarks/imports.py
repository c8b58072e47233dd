"""The time that ``import logstore`` adds to the start of Python, and that a first use adds with it: processes
in turn, with the compiled module and without."""

from __future__ import annotations

import os
import subprocess
import sys
from time import perf_counter

_IMPORT = "import logstore"
_USE = "import logstore; logstore.open({store!r}).close()"

Figures = dict[str, float]


def measure_imports(directory: str, rounds: int) -> list[Figures]:
    """Seconds over the bare process, for each round. Bytecode is cached before, in ``directory``."""
    return _over_bare(_IMPORT, directory, rounds)


def measure_first_uses(directory: str, rounds: int) -> list[Figures]:
    """The same of a program that also opens a store, and closes it."""
    return _over_bare(_USE.format(store=f"{directory}/store"), directory, rounds)


def _over_bare(program: str, directory: str, rounds: int) -> list[Figures]:
    programs = {"bare": ("pass", ""), "compiled": (program, ""), "plain": (program, "plain")}
    for each in programs.values():
        _start(*each, directory)
    found = []
    for _ in range(rounds):
        seconds = {name: _start(*each, directory) for name, each in programs.items()}
        found.append(
            {
                "compiled_seconds": seconds["compiled"] - seconds["bare"],
                "plain_seconds": seconds["plain"] - seconds["bare"],
            }
        )
    return found


def _start(program: str, loops: str, directory: str) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{directory}/bytecode", "LOGSTORE_LOOPS": loops}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return perf_counter() - started
