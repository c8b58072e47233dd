"""Runs the driver: watches the topics that it writes, and stops or kills it when they are long enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import logstore
from flights_demo import Sample
from layout import Layout

_LOOK_SECONDS = 0.02
_STOP_SECONDS = 120
_SHOWN_LINES = 20


class Batches(NamedTuple):
    """How far a query's checkpoint goes."""

    begun: int
    committed: int

    def __str__(self) -> str:
        underway = self.begun - self.committed
        return f"{self.committed}" + (f" + {underway}" if underway else "")


class Run(NamedTuple):
    """One run of the driver."""

    ended: str
    """How: ``stopped``, ``killed`` or ``finished``."""
    enriched: list[Sample]
    """How many records the topic had."""
    weekly: list[Sample]
    """How many were appended to it."""
    batches: dict[str, Batches]
    """Of each query, since the beginning."""
    staged_count: int
    """Files that were on their way into the topics when it ended."""
    said: str
    """The driver's last words."""

    @property
    def seconds(self) -> float:
        return self.enriched[-1].seconds - self.enriched[0].seconds


def run_driver(
    layout: Layout,
    most_records: int,
    show: Callable[[int], None],
    *,
    stop_at: float | None = None,
    kill_at: float | None = None,
) -> Run:
    """Run the driver until it is done; or ask it to stop, or kill it, as soon as ``enriched`` has so many
    records. This process looks on by reading the directory."""
    command = [sys.executable, str(Path(__file__).with_name("driver.py"))]
    command += [str(layout.directory), str(most_records)]
    enriched: list[Sample] = []
    weekly: list[Sample] = []
    ended = "finished"

    with (
        layout.log.open("a") as log,
        logstore.open(layout.store, read_only=True) as store,
        # A session of its own: whatever the driver starts belongs to it, and can be killed with it.
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        ) as driver,
    ):

        def look() -> int:
            now = time.monotonic()
            enriched.append(Sample(now, _count(store["enriched"])))
            weekly.append(Sample(now, _count(store["weekly"])))
            show(enriched[-1].records)
            return enriched[-1].records

        try:
            while driver.poll() is None:
                count = look()
                if kill_at is not None and count >= kill_at:
                    ended = "killed"
                    _kill_session(driver.pid)
                    break
                if stop_at is not None and count >= stop_at:
                    ended = "stopped"
                    driver.terminate()
                    break
                time.sleep(_LOOK_SECONDS)
            said, _ = driver.communicate(timeout=_STOP_SECONDS)
        finally:
            _kill_session(driver.pid)  # nothing of it is left behind, whatever happened here
        look()
    if driver.returncode != (-signal.SIGKILL if ended == "killed" else 0):
        last = "\n".join(layout.log.read_text().splitlines()[-_SHOWN_LINES:])
        raise SystemExit(f"{last}\nthe driver failed with exit code {driver.returncode}; see {layout.log}")
    batches = {query: _batches(layout, query) for query in ("enrich", "summarise")}
    staged = list(Path(layout.store).glob("*.staged"))
    return Run(ended, enriched, weekly, batches, len(staged), said.strip())


def _count(topic: logstore.Topic) -> int:
    return sum(log.log_end_offset for log in topic)


def _batches(layout: Layout, query: str) -> Batches:
    """As the names of the files say that Spark keeps for each batch."""
    checkpoint = Path(layout.checkpoint(query))
    begun, committed = (
        max((int(path.name) for path in (checkpoint / name).glob("[0-9]*")), default=-1) + 1
        for name in ("offsets", "commits")
    )
    return Batches(begun, committed)


def _kill_session(session: int) -> None:
    """SIGKILL to the driver, its Java and all workers: what a machine does that loses its power."""
    for entry in Path("/proc").glob("[0-9]*"):
        process = int(entry.name)
        try:
            if os.getsid(process) == session:
                os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
