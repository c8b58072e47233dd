"""Running measurements: each in a process of its own, contenders in turn, several rounds.

Knows the order in which things are measured and where their files lie, not what a measurement does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contenders import GATHERING, LOGSTORE, PEERS, is_available
from benchmarks.figures import APPEND, CRASH, OPEN, RANDOM, RECOVERY, SEQUENTIAL, Case, Measurement
from benchmarks.sizes import OPENED_BATCH_RECORDS, Sizes

ROOT = Path(__file__).parent.parent
"""Where ``python -m benchmarks.one`` is run from."""

Report = Callable[[str], None]
"""Told what is being measured."""


class MeasurementError(Exception):
    """A measuring process failed; with what it wrote."""


@contextmanager
def scratch_directory(parent: str | None) -> Iterator[str]:
    """A directory that is gone afterwards; below ``parent``, or in the repository's cache directory, because
    the system's temporary directory may be kept in memory."""
    parent = parent or str(ROOT / ".cache")
    os.makedirs(parent, exist_ok=True)
    path = tempfile.mkdtemp(prefix="benchmarks-", dir=parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run_one(arguments: Sequence[str]) -> Any:
    """Run ``python -m benchmarks.one`` with the arguments; returns the JSON that it prints. What earlier
    processes wrote is brought to disk before, so that the kernel is not busy with it meanwhile.

    Raises:
        MeasurementError: the process failed.
    """
    result = _run(arguments)
    if result.returncode:
        raise MeasurementError(f"benchmarks.one {' '.join(arguments)}:\n{result.stderr}")
    return json.loads(result.stdout)


def run_until_killed(arguments: Sequence[str]) -> None:
    """Run a process that kills itself.

    Raises:
        MeasurementError: it did not get that far.
    """
    result = _run(arguments)
    if result.returncode != -signal.SIGKILL:
        raise MeasurementError(f"benchmarks.one {' '.join(arguments)} was to be killed:\n{result.stderr}")


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    os.sync()
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.one", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def run_case(case: Case, directory: str, sizes: Sizes) -> Measurement:
    """Measure one case in its own process."""
    return Measurement(**run_one(_arguments_of(case, directory, sizes)))


def _arguments_of(case: Case, directory: str, sizes: Sizes) -> list[str]:
    count = sizes.flushed_records if case.is_durable else sizes.records
    return [
        case.figure,
        *("--contender", case.contender, "--batch", str(case.batch_records), "--directory", directory),
        *("--records", str(count[case.batch_records])),
        *("--reads", str(sizes.random_reads[case.batch_records])),
        *(["--flush"] if case.is_durable else []),
    ]


# Rounds -----------------------------------------------------------------------------------------------------


def contenders_for(batch_records: int) -> list[str]:
    """Those that are installed, for a batch size."""
    variants = [GATHERING] if batch_records == 1 else []
    return [name for name in (LOGSTORE, *variants, *PEERS) if is_available(name)]


def measure_contenders(sizes: Sizes, wanted: set[str], directory: str, report: Report) -> list[Measurement]:
    """All rounds of the wanted figures. In each round every contender has its turn at a figure before the
    next figure, and another one begins: what disturbs the machine for a while disturbs them all."""
    found: list[Measurement] = []
    for number in range(sizes.rounds):
        for stage in (_stage_reading, _stage_durable, _stage_recovery):
            report(f"round {number + 1} of {sizes.rounds}: {stage.__name__.removeprefix('_stage_')}")
            found += stage(sizes, wanted, directory, number)
    return found


def _turns(batch_records: int, number: int) -> list[str]:
    names = contenders_for(batch_records)
    first = number % len(names)
    return names[first:] + names[:first]


def _stage_reading(sizes: Sizes, wanted: set[str], directory: str, number: int) -> list[Measurement]:
    """Append without flushes, and read what was appended."""
    found: list[Measurement] = []
    for batch_records in sizes.records:
        figures = [figure for figure in (SEQUENTIAL, RANDOM) if figure in wanted]
        if OPEN in wanted and batch_records == OPENED_BATCH_RECORDS:
            figures.append(OPEN)
        if not figures and APPEND not in wanted:
            continue
        for figure in (APPEND, *figures):
            cases = [Case(figure, name, batch_records) for name in _turns(batch_records, number)]
            measured = [
                run_case(case, _directory_of(directory, case.contender), sizes)
                for case in cases
                if figure == APPEND or case.contender != GATHERING  # it differs in appending only
            ]
            found += measured if figure in wanted else []
        _remove(directory, batch_records)
    return found


def _stage_durable(sizes: Sizes, wanted: set[str], directory: str, number: int) -> list[Measurement]:
    """Append with a flush for each batch."""
    if APPEND not in wanted:
        return []
    found = []
    for batch_records in sizes.flushed_records:
        for name in _turns(batch_records, number):
            if name != GATHERING:  # a flush for each record leaves nothing to gather
                case = Case(APPEND, name, batch_records, is_durable=True)
                found.append(run_case(case, _directory_of(directory, name), sizes))
        _remove(directory, batch_records)
    return found


def _stage_recovery(sizes: Sizes, wanted: set[str], directory: str, number: int) -> list[Measurement]:
    """Die with the store open, and open it again."""
    if RECOVERY not in wanted:
        return []
    found = []
    for name in _turns(OPENED_BATCH_RECORDS, number):
        place = _directory_of(directory, name)
        crash = Case(CRASH, name, OPENED_BATCH_RECORDS)
        run_until_killed(_arguments_of(crash, place, sizes))
        found.append(run_case(crash._replace(figure=RECOVERY), place, sizes))
    _remove(directory, OPENED_BATCH_RECORDS)
    return found


def _directory_of(directory: str, contender: str) -> str:
    path = f"{directory}/{contender}"
    os.makedirs(path, exist_ok=True)
    return path


def _remove(directory: str, batch_records: int) -> None:
    for name in contenders_for(batch_records):
        shutil.rmtree(f"{directory}/{name}", ignore_errors=True)
