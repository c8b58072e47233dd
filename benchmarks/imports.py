"""The time that ``import logstore`` adds to the start of Python: processes in turn, with the module and
without."""

from __future__ import annotations

import os
import subprocess
import sys
from time import perf_counter

_PROGRAMS = {
    "bare": ("pass", ""),
    "compiled": ("import logstore", ""),
    "plain": ("import logstore", "plain"),
}

Figures = dict[str, float]


def measure_imports(directory: str, rounds: int) -> list[Figures]:
    """Seconds over the bare process, for each round. Bytecode is cached before, in ``directory``."""
    for name in _PROGRAMS:
        _start(name, directory)
    found = []
    for _ in range(rounds):
        seconds = {name: _start(name, directory) for name in _PROGRAMS}
        found.append(
            {
                "compiled_seconds": seconds["compiled"] - seconds["bare"],
                "plain_seconds": seconds["plain"] - seconds["bare"],
            }
        )
    return found


def _start(name: str, directory: str) -> float:
    program, loops = _PROGRAMS[name]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{directory}/bytecode", "LOGSTORE_LOOPS": loops}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return perf_counter() - started
