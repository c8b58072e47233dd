"""The measurements of every contender, each in the calling process.

A measurement checks its results: counts, sizes and checksums of appended records, every field of records that
were read singly. These checks, and making rows, are not timed. A directory that :func:`measure_append` has
filled has a note of its contents (:class:`Contents`), for the processes that read it afterwards.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from threading import Barrier, Thread
from time import perf_counter
from typing import Any, NamedTuple, NoReturn

from benchmarks.contenders import contender_class
from benchmarks.contenders.base import Contender
from benchmarks.process import peak_memory_bytes, resident_memory_bytes
from benchmarks.records import (
    BASE_TIMESTAMP_MS,
    NOTHING,
    SMALL,
    Digest,
    Row,
    WrongDataError,
    batches_of,
    check_record,
    chunk_records,
    digest_values,
    row_at,
)

APPEND = "append"
DURABLE = "durable"
ONE_THREAD = "one-thread"
THREADS = "sixteen-threads"
SEQUENTIAL = "sequential"
LARGE_SEQUENTIAL = "large-sequential"
"""The same for a log that is larger than a processor's caches."""
RANDOM = "random"
TIME = "time"
OPEN = "open"
RECOVERY = "recovery"
CRASH = "crash"
"""Not a figure: fills a directory and dies, for :data:`RECOVERY`."""

FIGURES = (
    APPEND,
    DURABLE,
    ONE_THREAD,
    THREADS,
    SEQUENTIAL,
    LARGE_SEQUENTIAL,
    RANDOM,
    TIME,
    OPEN,
    RECOVERY,
)
THREAD_COUNTS = {ONE_THREAD: 1, THREADS: 16}

_CONTENTS_NAME = "contents.json"
_STORE_NAME = "store"
_CHECKED_RECORDS = 1_000
"""How many of the appended records are compared field by field; the others are compared by their values."""
_LEAST_SECONDS = 0.15
_MOST_PASSES = 9


class Case(NamedTuple):
    """One thing to measure."""

    figure: str
    contender: str
    batch_records: int
    data: str = SMALL
    """The kind of records, as in :data:`benchmarks.records.DATA`; codecs have their own shapes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One measurement by one process."""

    figure: str
    contender: str
    batch_records: int
    data: str
    count: int
    """Records appended or read, or 1 for an open; bytes for a scan, keys for a map."""
    seconds: float
    """For all of them."""
    stored_bytes: int
    """The sizes of all files after a clean stop; for codecs, the encoded bytes."""
    idle_memory_bytes: int
    """Resident with everything imported, before the store is opened."""
    peak_memory_bytes: int

    @property
    def case(self) -> Case:
        return Case(self.figure, self.contender, self.batch_records, self.data)


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a directory."""

    digest: list[int]
    data: str

    @property
    def count(self) -> int:
        return self.digest[0]


# Appending --------------------------------------------------------------------------------------------------


def measure_append(case: Case, directory: str, count: int, *, is_checked: bool = True) -> Measurement:
    """Append ``count`` records in batches to an empty store, then read them all back if ``is_checked``.
    Flushes each batch if the figure is :data:`DURABLE`."""
    kind, idle = begin(case.contender)
    store = _store_directory(directory)
    contender = kind(store, is_durable=case.figure == DURABLE)
    seconds, expected = _append_timed(contender, case, count)
    peak = peak_memory_bytes()
    contender.close()
    stored = stored_bytes(store)
    if is_checked:
        _check_stored(kind, store, expected, case.data)
    _write_contents(directory, Contents(list(expected), case.data))
    return measurement(case, count, seconds, stored, idle, peak)


def _append_timed(contender: Contender, case: Case, count: int) -> tuple[float, Digest]:
    seconds = 0.0
    expected = NOTHING
    for batches in _chunks(case, count):
        expected += digest_values(row[1] for rows in batches for row in rows)
        prepared = [contender.prepare(rows) for rows in batches]
        gc.freeze()  # the contender's collector should not walk the prepared rows
        started = perf_counter()
        for batch in prepared:
            contender.append(batch)
        seconds += perf_counter() - started
    started = perf_counter()
    contender.settle()
    return seconds + perf_counter() - started, expected


def _chunks(case: Case, count: int) -> Iterator[list[list[Row]]]:
    size = max(chunk_records(case.data) // case.batch_records, 1) * case.batch_records
    for first in range(0, count, size):
        yield list(batches_of(first, min(first + size, count), case.batch_records, case.data))


def measure_threads(case: Case, directory: str, count: int) -> Measurement:
    """Threads append single records, and each waits for the flush of its own."""
    kind, idle = begin(case.contender)
    store = _store_directory(directory)
    contender = kind(store, is_durable=True)
    thread_count = THREAD_COUNTS[case.figure]
    rows = [row_at(number, case.data) for number in range(count)]
    barrier = Barrier(thread_count + 1)
    failures: list[BaseException] = []

    def work(connection: Contender, own: list[Row]) -> None:
        barrier.wait()
        try:
            for row in own:
                connection.append_one(row)
        except BaseException as error:
            failures.append(error)

    connections = [contender.connect() for _ in range(thread_count)]
    threads = [
        Thread(target=work, args=(connection, rows[number::thread_count]))
        for number, connection in enumerate(connections)
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = perf_counter()
    for thread in threads:
        thread.join()
    seconds = perf_counter() - started
    if failures:
        raise failures[0]
    peak = peak_memory_bytes()
    for connection in {*connections, contender}:
        connection.close()
    contender = kind(store)
    _check(digest_values(record[3] for record in contender.read_all()), digest_values(row[1] for row in rows))
    contender.close()
    return measurement(case, count, seconds, stored_bytes(store), idle, peak)


def fill_and_crash(case: Case, directory: str, count: int) -> NoReturn:
    """Append ``count`` records without a flush, then die by SIGKILL with the store open."""
    contender = contender_class(case.contender)(_store_directory(directory))
    _, expected = _append_timed(contender, case, count)
    _write_contents(directory, Contents(list(expected), case.data))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


# Reading ----------------------------------------------------------------------------------------------------


def measure_sequential(case: Case, directory: str) -> Measurement:
    """Read every record in order, with its value; the median of several passes if one is short."""
    kind, idle = begin(case.contender)
    contents, store = _contents(directory), _store_directory(directory)
    contender = kind(store)
    passes: list[float] = []
    while not passes or (sum(passes) < _LEAST_SECONDS and len(passes) < _MOST_PASSES):
        started = perf_counter()
        count, value_bytes = contender.sum_values()
        passes.append(perf_counter() - started)
        _check_sum(kind, contents, count, value_bytes)
    peak = peak_memory_bytes()
    contender.close()
    return measurement(case, count, median(passes), stored_bytes(store), idle, peak)


def _check_sum(kind: type[Contender], contents: Contents, count: int, value_bytes: int) -> None:
    expected_count, expected_bytes, _ = contents.digest
    is_right = count and count % expected_count == 0
    if kind.looks_at_values:
        is_right = (count, value_bytes) == (expected_count, expected_bytes)
    if not is_right:
        raise WrongDataError(f"read {count} records with {value_bytes} bytes, wrote {contents}")


def measure_random(case: Case, directory: str, reads: int) -> Measurement:
    """Read single records, by offset or by time, at random; the same ones for every contender."""
    kind, idle = begin(case.contender)
    contents, store = _contents(directory), _store_directory(directory)
    offsets = random.Random(11).choices(range(contents.count), k=reads)
    contender = kind(store)
    read: Callable[[int], Any] = contender.read_one
    keys = offsets
    if case.figure == TIME:
        read, keys = contender.read_at_time, [BASE_TIMESTAMP_MS + offset for offset in offsets]
    read(keys[0])
    started = perf_counter()
    records = [read(key) for key in keys]
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    for record, offset in zip(records, offsets, strict=True):
        check_record(contender.as_stored(record), offset, contents.data)
    contender.close()
    return measurement(case, reads, seconds, stored_bytes(store), idle, peak)


def measure_open(case: Case, directory: str, *, is_checked: bool = True) -> Measurement:
    """Open the store and read its last record: after a clean stop, or for recovery after a crash."""
    kind, idle = begin(case.contender)
    contents, store = _contents(directory), _store_directory(directory)
    started = perf_counter()
    contender = kind(store)
    record = contender.read_one(contents.count - 1)
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    check_record(contender.as_stored(record), contents.count - 1, contents.data)
    contender.close()
    if is_checked:
        _check_stored(kind, store, Digest(*contents.digest), contents.data)
    return measurement(case, 1, seconds, stored_bytes(store), idle, peak)


# What they share --------------------------------------------------------------------------------------------


def begin(contender: str) -> tuple[type[Contender], int]:
    """Import, measure the memory of the idle process, and freeze the present objects for the collector."""
    kind = contender_class(contender)
    kind.version()
    return kind, idle_memory_bytes()


def idle_memory_bytes() -> int:
    gc.collect()
    gc.freeze()
    return resident_memory_bytes()


def measurement(
    case: Case, count: int, seconds: float, stored: int, idle: int, peak: int | None = None
) -> Measurement:
    return Measurement(
        **case._asdict(),
        count=count,
        seconds=seconds,
        stored_bytes=stored,
        idle_memory_bytes=idle,
        peak_memory_bytes=peak_memory_bytes() if peak is None else peak,
    )


def _store_directory(directory: str) -> str:
    path = f"{directory}/{_STORE_NAME}"
    os.makedirs(path, exist_ok=True)
    return path


def _contents(directory: str) -> Contents:
    return Contents(**json.loads(Path(directory, _CONTENTS_NAME).read_text()))


def _write_contents(directory: str, contents: Contents) -> None:
    Path(directory, _CONTENTS_NAME).write_text(json.dumps(asdict(contents)))


def stored_bytes(directory: str) -> int:
    """The sizes of all files below a directory, without holes."""
    found = [path.stat() for path in Path(directory).rglob("*") if path.is_file()]
    return sum(min(status.st_size, status.st_blocks * 512) for status in found)


def _check_stored(kind: type[Contender], store: str, expected: Digest, data: str) -> None:
    """Read everything: some records field by field, the others by their values."""
    contender = kind(store)
    try:
        records = contender.read_all()
        checked = list(islice(records, _CHECKED_RECORDS))
        for number, record in enumerate(checked):
            check_record(record, number, data)
        _check(_digest(checked) + _digest(records), expected)
    finally:
        contender.close()


def _digest(records: Any) -> Digest:
    return digest_values(record[3] for record in records)


def _check(digest: Digest, expected: Digest) -> None:
    """
    Raises:
        WrongDataError: records are missing, or their values differ.
    """
    if digest != expected:
        raise WrongDataError(f"read {digest}, wrote {expected}")
