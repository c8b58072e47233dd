"""Runs the figures of only logstore (:mod:`benchmarks.large`): prepare, measure, remove, one by one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from benchmarks.large import Figures
from benchmarks.measure import Report, bring_to_disk, run_one, run_until_killed, scratch_directory
from benchmarks.sizes import FREE_BYTES_PER_LARGE_BYTE, Sizes

REOPEN = "reopen"
REOPEN_IDLE = "reopen-idle"
REOPEN_BEHIND = "reopen-behind"
LARGE = "large"
SMALL = "small"
"""Not a figure by itself: :data:`LARGE` is compared with it."""
LARGE_RECOVERY = "large-recovery"
LAG = "lag"
IMPORT = "import"
FIRST_USE = "first-use"

ALONE = (REOPEN, REOPEN_IDLE, REOPEN_BEHIND, LARGE, LARGE_RECOVERY, LAG, IMPORT, FIRST_USE)

Found = dict[str, list[Figures]]
"""One set of figures for each round, by name."""


class SkippedError(Exception):
    """A figure cannot be measured here; the message says why."""


def measure_alone(
    sizes: Sizes, wanted: set[str], directory: str, report: Report
) -> tuple[Found, dict[str, str]]:
    """The wanted figures, and the reasons for those that were left out."""
    found: Found = {}
    skipped: dict[str, str] = {}
    for name, measure in _MEASURES.items():
        if name not in wanted:
            continue
        report(f"logstore alone: {name}")
        try:
            with scratch_directory(directory) as place:
                found |= measure(sizes, place)
        except SkippedError as reason:
            skipped[name] = str(reason)
    return found, skipped


def _reopens(name: str) -> Callable[[Sizes, str], Found]:
    def reopen(sizes: Sizes, directory: str) -> Found:
        shape = ["--partitions", str(sizes.partitions), "--segments", str(sizes.segments)]
        place = ["--directory", directory, *shape]
        run_one(["prepare-reopen", *place])
        bring_to_disk()
        return {name: [run_one([name, *place]) for _ in range(sizes.rounds)]}

    return reopen


def _large(sizes: Sizes, directory: str) -> Found:
    """The small log and the large one in turn."""
    free = shutil.disk_usage(directory).free
    needed = int(sizes.large_bytes * FREE_BYTES_PER_LARGE_BYTE)
    if free < needed:
        raise SkippedError(f"{free / 1e9:.0f} GB of disk are free, {needed / 1e9:.0f} GB are needed")
    logs = {SMALL: sizes.small_bytes, LARGE: sizes.large_bytes}
    for name, size_bytes in logs.items():
        run_one(["prepare-large", "--directory", f"{directory}/{name}", "--bytes", str(size_bytes)])
    reads = ["--reads", str(sizes.large_reads), "--least-records", str(sizes.large_least_records)]
    found: Found = {name: [] for name in logs}
    bring_to_disk()
    for _ in range(sizes.large_rounds):
        for name in logs:
            found[name].append(run_one([LARGE, "--directory", f"{directory}/{name}", *reads]))
    return found


def _large_recovery(sizes: Sizes, directory: str) -> Found:
    found = []
    for number in range(sizes.large_rounds):
        place = f"{directory}/{number}"
        run_until_killed(
            ["prepare-large-recovery", "--directory", place, "--bytes", str(sizes.recovered_bytes)]
        )
        found.append(run_one([LARGE_RECOVERY, "--directory", place]))
        shutil.rmtree(place)
    return {LARGE_RECOVERY: found}


def _lag(sizes: Sizes, directory: str) -> Found:
    lags: Any = run_one([LAG, "--directory", directory, "--reads", str(sizes.lags)])
    return {LAG: [{"lag_seconds": lag} for lag in lags]}


def _starts(name: str) -> Callable[[Sizes, str], Found]:
    return lambda sizes, directory: {
        name: run_one([name, "--directory", directory, "--reads", str(sizes.imports)])
    }


_MEASURES: dict[str, Callable[[Sizes, str], Found]] = {
    REOPEN: _reopens(REOPEN),
    REOPEN_IDLE: _reopens(REOPEN_IDLE),
    REOPEN_BEHIND: _reopens(REOPEN_BEHIND),
    LARGE: _large,
    LARGE_RECOVERY: _large_recovery,
    LAG: _lag,
    IMPORT: _starts(IMPORT),
    FIRST_USE: _starts(FIRST_USE),
}
