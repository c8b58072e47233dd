"""The time that ``import logstore`` adds to the start of Python, and how much it is with a first use:
processes in turn, with the compiled module and without."""

from __future__ import annotations

import os
import subprocess
import sys
from time import perf_counter

_USE = "import logstore; logstore.open({store!r}).close()"
_PROGRAMS = {
    "bare": ("pass", ""),
    "compiled": ("import logstore", ""),
    "plain": ("import logstore", "plain"),
    "use": (_USE, ""),
    "plain_use": (_USE, "plain"),
}

Figures = dict[str, float]


def measure_imports(directory: str, rounds: int) -> list[Figures]:
    """Seconds over the bare process, for each round. Bytecode is cached before, in ``directory``."""
    for name in _PROGRAMS:
        _start(name, directory)
    found = []
    for _ in range(rounds):
        seconds = {name: _start(name, directory) for name in _PROGRAMS}
        bare = seconds.pop("bare")
        found.append({f"{name}_seconds": taken - bare for name, taken in seconds.items()})
    return found


def _start(name: str, directory: str) -> float:
    program, loops = _PROGRAMS[name]
    program = program.format(store=f"{directory}/store")
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{directory}/bytecode", "LOGSTORE_LOOPS": loops}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return perf_counter() - started
