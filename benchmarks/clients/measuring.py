"""What one measurement is: a case, in a process of its own, and the line of figures that it gives.

Knows nothing of what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.measure import ROOT, MeasurementError

VALUE = b"x" * 100
GROUP_RECORDS = 2_000
"""How many records one flush or commit covers, where that is a setting: about a full batch of ours."""

OURS = "logstore"
OURS_FLUSHED = "logstore, flushed"
CONFLUENT = "confluent-kafka"
SQLITE = "sqlite3"
SQLITE_FLUSHED = "sqlite3, flushed"
QUEUE = "persist-queue"
QUEUE_FLUSHED = "persist-queue, flushed"

Found = dict[str, float]
"""The figures of one measurement."""

Line = dict[str, Any]
"""The same with part, case and round, as it is stored."""


class Sizes(NamedTuple):
    """How much of everything."""

    rounds: int
    records: int
    flushed_records: int
    slow_records: int
    """For a contender that commits record by record."""
    slow_flushes: int
    mock_records: int
    """As many as the mock broker keeps, even if all go to one partition: it has 5 MiB for each."""
    delays: int
    commits: int
    flushed_commits: int
    groups: int
    idle: int
    """Consumers that wait."""
    idle_seconds: float
    partitions: tuple[int, ...]
    partition_rounds: int
    transactions: int
    flushed_transactions: int
    open_transactions: int


FULL = Sizes(
    rounds=3,
    records=400_000,
    flushed_records=200_000,
    slow_records=20_000,
    slow_flushes=500,
    mock_records=40_000,
    delays=3_000,
    commits=5_000,
    flushed_commits=300,
    groups=10_000,
    idle=1_000,
    idle_seconds=3.0,
    partitions=(1, 100, 5_000),
    partition_rounds=2,
    transactions=200,
    flushed_transactions=50,
    open_transactions=10_000,
)
QUICK = Sizes(
    rounds=1,
    records=20_000,
    flushed_records=10_000,
    slow_records=300,
    slow_flushes=20,
    mock_records=5_000,
    delays=50,
    commits=50,
    flushed_commits=10,
    groups=50,
    idle=20,
    idle_seconds=0.1,
    partitions=(1, 10),
    partition_rounds=1,
    transactions=5,
    flushed_transactions=3,
    open_transactions=20,
)
SIZES = {"full": FULL, "quick": QUICK}

Measure = Callable[[str, Sizes], Found]
"""Measures in this process, in an empty directory."""


class Part(NamedTuple):
    """Cases that are compared with each other, and so take turns."""

    cases: dict[str, Measure]
    rounds: Callable[[Sizes], int]


def measure_elsewhere(part: str, case: str, directory: str, size: str) -> Found:
    """Run one case in another process.

    Raises:
        MeasurementError: the process failed.
    """
    command = [sys.executable, "-m", "benchmarks.clients", "--directory", directory, "--size", size]
    done = subprocess.run(
        [*command, "--case", part, case],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")},
    )
    if done.returncode:
        raise MeasurementError(f"{part}: {case}:\n{done.stderr}")
    found: Found = json.loads(done.stdout)
    return found


def percentile(sorted_values: list[float], share: float) -> float:
    """The value that so large a share does not exceed."""
    return sorted_values[min(int(len(sorted_values) * share), len(sorted_values) - 1)]
