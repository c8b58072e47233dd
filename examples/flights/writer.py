"""Runs the writer process: it is watched through the log itself, and killed when it has come far enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import logstore

_LOOK_SECONDS = 0.01
_TORN_BYTES = 100


class Sample(NamedTuple):
    """How many records could be read at a time."""

    seconds: float
    """On Python's monotonic clock."""
    records: int


class Run(NamedTuple):
    """One run of the writer."""

    samples: Sequence[Sample] = ()
    was_killed: bool = False
    appended: int = 0
    """By its own account, as is the time; nothing if it was killed."""
    seconds: float = 0


def run_writer(
    directory: str, rows: int | None, show: Callable[[int], None], *, kill_at: int | None = None
) -> Run:
    """Load until the writer is done, or kill it (SIGKILL) as soon as ``kill_at`` records can be read.

    This process looks on by reading the same directory: that needs neither the writer's help nor its lock.
    """
    command = [sys.executable, str(Path(__file__).with_name("load.py")), directory, str(rows or 0)]
    samples: list[Sample] = []
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer,
        logstore.open(directory, read_only=True) as store,
    ):
        logs = list(store["flights"])
        is_running = True
        while is_running:
            is_running = writer.poll() is None
            count = sum(log.log_end_offset for log in logs)
            samples.append(Sample(time.monotonic(), count))
            show(count)
            if kill_at is not None and count >= kill_at:
                writer.kill()
                break
            time.sleep(_LOOK_SECONDS)
        said, _ = writer.communicate()
    if writer.returncode == -signal.SIGKILL:
        return Run(samples, was_killed=True)
    if writer.returncode:
        raise SystemExit(f"the writer failed with exit code {writer.returncode}")
    appended, seconds = said.split()
    return Run(samples, appended=int(appended), seconds=float(seconds))


def tear_last_batch(directory: str) -> str:
    """Cut the end off the largest of the files that were being written, in the middle of its last batch.

    A killed process leaves whole writes behind, since the kernel has them. A power cut may leave half of one.
    Returns the file's name.
    """
    growing = [max(partition.glob("*.log")) for partition in Path(directory).glob("flights-*")]
    torn = max(growing, key=lambda path: path.stat().st_size)
    os.truncate(torn, torn.stat().st_size - _TORN_BYTES)
    return f"{torn.parent.name}/{torn.name}"
