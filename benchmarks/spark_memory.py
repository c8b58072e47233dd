"""How much memory Spark's Python workers, the processes below the JVM, hold while something runs. Only on
Linux."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_PAUSE_SECONDS = 0.02


class WorkerMemory:
    """Checks 50 times a second while the block runs; ``peak_bytes`` is the most that one worker held.

    Only anonymous memory: pages of mapped files belong to the system, which can take them back.
    """

    def __init__(self, jvm: int) -> None:
        self.peak_bytes = 0
        self._jvm = jvm
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_PAUSE_SECONDS):
            for process in _descendants(self._jvm):
                self.peak_bytes = max(self.peak_bytes, _anonymous_bytes(process))


def _descendants(process: int) -> set[int]:
    """Those that live below a process now."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = Path(entry, "stat").read_text()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {process}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {process}
        found |= more


def _anonymous_bytes(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
