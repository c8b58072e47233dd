"""Runs measurements: each in a process of its own, contenders in turn, several rounds.

Knows the order of the measurements and where their files are, not what a measurement does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contenders import LIMIT, LOGSTORE, NAMES, entry_of, is_available
from benchmarks.figures import (
    APPEND,
    CRASH,
    DURABLE,
    LARGE_SEQUENTIAL,
    OPEN,
    RANDOM,
    RECOVERY,
    SEQUENTIAL,
    THREAD_COUNTS,
    TIME,
    Case,
    Measurement,
)
from benchmarks.plan import (
    APPENDERS,
    CODECS_COMPARED,
    DICT,
    FLUSHERS,
    LARGE_BATCH_RECORDS,
    LARGE_READERS,
    MAP,
    MAPPED,
    RECOVERED,
    RECOVERED_BATCH_RECORDS,
    SCAN,
    SCANNERS,
    STORED_FIGURES,
    THREADED,
    readers,
)
from benchmarks.records import SMALL
from benchmarks.sizes import Sizes

ROOT = Path(__file__).parent.parent
"""Where ``python -m benchmarks.one`` is run from."""

Report = Callable[[str], None]
"""Told what is being measured."""


class MeasurementError(Exception):
    """A measuring process failed; has its output."""


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


def run_one(arguments: Sequence[str], contender: str = "") -> Any:
    """Run ``python -m benchmarks.one`` with the arguments; returns the JSON that it prints.

    Raises:
        MeasurementError: the process failed.
    """
    result = _run(arguments, contender)
    if result.returncode:
        raise MeasurementError(f"benchmarks.one {' '.join(arguments)}:\n{result.stderr}")
    return json.loads(result.stdout)


def run_until_killed(arguments: Sequence[str], contender: str = "") -> None:
    """Run a process that kills itself.

    Raises:
        MeasurementError: it did not get that far.
    """
    result = _run(arguments, contender)
    if result.returncode != -signal.SIGKILL:
        raise MeasurementError(f"benchmarks.one {' '.join(arguments)} was to be killed:\n{result.stderr}")


def _run(arguments: Sequence[str], contender: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **(entry_of(contender).environment if contender in NAMES else {})}
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):  # hundreds of processes would compile everything
        environment.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "bytecode"))
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.one", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
    )


def bring_to_disk() -> None:
    """Flush everything written so far, so that the kernel is not busy with it during the next measurement."""
    os.sync()


def run_case(case: Case, directory: str, sizes: Sizes, *, is_checked: bool = True) -> Measurement:
    """Measure one case of a store in its own process."""
    unchecked = [] if is_checked else ["--unchecked"]
    return Measurement(**run_one([*arguments_of(case, directory, sizes), *unchecked], case.contender))


def arguments_of(case: Case, directory: str, sizes: Sizes) -> list[str]:
    return [
        case.figure,
        *("--contender", case.contender, "--batch", str(case.batch_records), "--data", case.data),
        *("--directory", directory, "--records", str(_count_of(case, sizes))),
        *("--reads", str(_reads_of(case, sizes))),
    ]


def _count_of(case: Case, sizes: Sizes) -> int:
    if case.figure in THREAD_COUNTS:
        return sizes.thread_flushes
    if case.figure == DURABLE:
        return sizes.flushes.get(case.batch_records, 100) * case.batch_records
    if case.figure == CRASH:
        return sizes.recovered_records
    if case.figure == LARGE_SEQUENTIAL:
        return sizes.large_sequential_records
    count = sizes.records.get((case.data, case.batch_records), 100_000)
    return count // sizes.slow_divisor.get(case.contender, 1)


def _reads_of(case: Case, sizes: Sizes) -> int:
    return sizes.time_reads if case.figure == TIME else sizes.random_reads.get(case.batch_records, 1_000)


# Rounds -----------------------------------------------------------------------------------------------------


class Rounds:
    """All rounds of the wanted figures. In each round every contender has its turn at a figure before the
    next figure begins, and another contender is first: a disturbance of the machine then affects all of
    them."""

    def __init__(self, sizes: Sizes, wanted: Iterable[str], directory: str, report: Report) -> None:
        self.sizes = sizes
        self.found: list[Measurement] = []
        """In the order in which they were made."""
        self._wanted = set(wanted)
        self._directory = directory
        self._report = report
        self._number = 0
        self._available = {name for name in NAMES if is_available(name)}
        self._available.add(DICT)

    def run(self) -> list[Measurement]:
        if SCAN in self._wanted:
            self._prepare_scan()
        if LARGE_SEQUENTIAL in self._wanted:
            self._prepare_large_read()
        stages = (
            self._store_stages,
            self._read_large,
            self._flush,
            self._recover,
            self._codecs,
            self._scan,
            self._map,
        )
        for number in range(self.sizes.rounds):
            self._number = number
            for stage in stages:
                stage()
        return self.found

    def _turns(self, names: Iterable[str]) -> list[str]:
        """The available contenders, a different one first in each round."""
        here = [name for name in names if name in self._available]
        first = self._number % len(here) if here else 0
        return here[first:] + here[:first]

    def _tell(self, what: str) -> None:
        self._report(f"round {self._number + 1} of {self.sizes.rounds}: {what}")

    def _measure(self, figure: str, names: Iterable[str], batch_records: int, data: str) -> None:
        for name in self._turns(names):
            case = Case(figure, name, batch_records, data)
            place = self._place(entry_of(name).reads or name)
            found = run_case(case, place, self.sizes, is_checked=self._number == 0)
            if figure in self._wanted:
                self.found.append(found)

    def _place(self, contender: str) -> str:
        path = f"{self._directory}/{contender}"
        os.makedirs(path, exist_ok=True)
        return path

    def _clear(self) -> None:
        for name in NAMES:
            shutil.rmtree(f"{self._directory}/{name}", ignore_errors=True)

    def _store_stages(self) -> None:
        """Append without flushes, and read what was appended; each kind of data and batch by itself."""
        if not self._wanted.intersection(STORED_FIGURES):
            return
        for data, batch_records in self.sizes.records:
            figures = [
                figure
                for figure in (SEQUENTIAL, RANDOM, TIME, OPEN)
                if figure in self._wanted and readers(figure, data, batch_records)
            ]
            if not figures and APPEND not in self._wanted:
                continue
            self._tell(f"{data}, batches of {batch_records}")
            appenders = APPENDERS[data, batch_records]
            if APPEND not in self._wanted:
                wanted = {entry_of(n).reads or n for f in figures for n in readers(f, data, batch_records)}
                appenders = tuple(name for name in appenders if name in wanted)
            bring_to_disk()
            self._measure(APPEND, appenders, batch_records, data)
            for figure in figures:
                self._measure(figure, readers(figure, data, batch_records), batch_records, data)
            self._clear()

    def _large_place(self, writer: str) -> str:
        """Beside the places that are cleared."""
        return self._place(f"{LARGE_SEQUENTIAL}/{writer}")

    def _prepare_large_read(self) -> None:
        """Write the large log, once for all rounds."""
        self._report("writing the large log")
        for writer in dict.fromkeys(LARGE_READERS[name] for name in self._turns(LARGE_READERS)):
            case = Case(LARGE_SEQUENTIAL, writer, LARGE_BATCH_RECORDS)
            options = arguments_of(case, self._large_place(writer), self.sizes)[1:]
            run_one([APPEND, *options, "--unchecked"], writer)
        bring_to_disk()

    def _read_large(self) -> None:
        if LARGE_SEQUENTIAL not in self._wanted:
            return
        self._tell(LARGE_SEQUENTIAL)
        for name in self._turns(LARGE_READERS):
            case = Case(LARGE_SEQUENTIAL, name, LARGE_BATCH_RECORDS)
            self.found.append(run_case(case, self._large_place(LARGE_READERS[name]), self.sizes))

    def _flush(self) -> None:
        """Append with a flush for each batch, and for each record of several threads."""
        if DURABLE in self._wanted:
            self._tell(DURABLE)
            for batch_records in self.sizes.flushes:
                bring_to_disk()
                self._measure(DURABLE, FLUSHERS, batch_records, SMALL)
                self._clear()
        for figure in THREAD_COUNTS:
            if figure in self._wanted:
                bring_to_disk()
                self._measure(figure, THREADED, 1, SMALL)
                self._clear()

    def _recover(self) -> None:
        """Die with the store open, and open it again."""
        if RECOVERY not in self._wanted:
            return
        self._tell(RECOVERY)
        for name in self._turns(RECOVERED):
            crash = Case(CRASH, name, RECOVERED_BATCH_RECORDS)
            run_until_killed(arguments_of(crash, self._place(name), self.sizes), name)
        self._measure(RECOVERY, RECOVERED, RECOVERED_BATCH_RECORDS, SMALL)
        self._clear()

    def _codecs(self) -> None:
        for figure, names in CODECS_COMPARED.items():
            if figure in self._wanted:
                self._tell(figure)
                for name in self._turns(names):
                    seconds = ["--seconds", str(self.sizes.codec_seconds)]
                    rows = run_one([figure, "--contender", name, "--directory", ".", *seconds], name)
                    self.found += [Measurement(**row) for row in rows]

    def _prepare_scan(self) -> None:
        place = self._place(SCAN)
        run_one(["prepare-scan", "--directory", place, "--bytes", str(self.sizes.scanned_bytes)])
        bring_to_disk()

    def _scan(self) -> None:
        if SCAN not in self._wanted:
            return
        self._tell(SCAN)
        whole, piece = self.sizes.scanned_bytes, self.sizes.scanned_piece_bytes
        for name in self._turns(SCANNERS):
            most = whole if name in (LOGSTORE, LIMIT) else piece
            place = ["--directory", self._place(SCAN), "--bytes", str(most)]
            self.found.append(Measurement(**run_one([SCAN, "--contender", name, *place], name)))

    def _map(self) -> None:
        if MAP not in self._wanted:
            return
        self._tell(MAP)
        for name in self._turns(MAPPED):
            keys = ["--directory", ".", "--records", str(self.sizes.map_keys)]
            self.found.append(Measurement(**run_one([MAP, "--contender", name, *keys], name)))
