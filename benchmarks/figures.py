"""What is measured of every contender, each inside the process that it is called in.

A measurement checks what it measured: counts, and a checksum or every field of what was read. What serves
only that check, and making rows, is off the clock. A directory that :func:`measure_append` has filled carries
a note of what is in it (:class:`Contents`), for the processes that read it afterwards.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, NoReturn

from benchmarks.contenders import contender_class
from benchmarks.contenders.base import Contender
from benchmarks.process import peak_memory_bytes, resident_memory_bytes
from benchmarks.records import (
    CHUNK_RECORDS,
    Digest,
    WrongDataError,
    batches_of,
    check_record,
    digest_expected,
    digest_stored,
)

APPEND = "append"
SEQUENTIAL = "sequential"
RANDOM = "random"
OPEN = "open"
RECOVERY = "recovery"
CRASH = "crash"
"""Not a figure: fills a directory and dies, for :data:`RECOVERY`."""

FIGURES = (APPEND, SEQUENTIAL, RANDOM, OPEN, RECOVERY)

_CONTENTS_NAME = "contents.json"
_STORE_NAME = "store"


class Case(NamedTuple):
    """One thing to measure."""

    figure: str
    contender: str
    batch_records: int
    is_durable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One measurement by one process."""

    figure: str
    contender: str
    batch_records: int
    is_durable: bool
    count: int
    """Records appended or read, or 1 for an open."""
    seconds: float
    """For all of them."""
    stored_bytes: int
    """Sizes of all files, after a clean stop."""
    idle_memory_bytes: int
    """Resident with everything imported, before the store is opened."""
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What a directory holds."""

    count: int
    crc: int


def measure_append(case: Case, directory: str, count: int) -> Measurement:
    """Append ``count`` records in batches to an empty store, then read them all back."""
    kind, idle = _begin(case)
    store = _store_directory(directory)
    contender = kind(store, is_durable=case.is_durable)
    seconds = _append_timed(contender, case.batch_records, count)
    peak = peak_memory_bytes()
    contender.close()
    stored = stored_bytes(store)
    expected = digest_expected(count)
    _check_digest(kind, store, expected)
    Path(directory, _CONTENTS_NAME).write_text(json.dumps(asdict(Contents(*expected))))
    return _measurement(case, count, seconds, stored, idle, peak)


def measure_sequential(case: Case, directory: str) -> Measurement:
    """Read every record in order and touch its value (a running CRC-32)."""
    kind, idle = _begin(case)
    contents, store = _contents(directory), _store_directory(directory)
    contender = kind(store)
    started = perf_counter()
    digest = digest_stored(contender.read_all())
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    contender.close()
    _check(digest, Digest(contents.count, contents.crc))
    return _measurement(case, digest.record_count, seconds, stored_bytes(store), idle, peak)


def measure_random(case: Case, directory: str, reads: int) -> Measurement:
    """Read single records at random offsets, the same for every contender."""
    kind, idle = _begin(case)
    contents, store = _contents(directory), _store_directory(directory)
    offsets = random.Random(11).choices(range(contents.count), k=reads)
    contender = kind(store)
    contender.read_one(0)
    started = perf_counter()
    records = [contender.read_one(offset) for offset in offsets]
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    contender.close()
    for record, offset in zip(records, offsets, strict=True):
        check_record(record, offset)
    return _measurement(case, reads, seconds, stored_bytes(store), idle, peak)


def measure_open(case: Case, directory: str) -> Measurement:
    """Open the store and read its last record. After a clean stop, or, for recovery, after a crash."""
    kind, idle = _begin(case)
    contents, store = _contents(directory), _store_directory(directory)
    started = perf_counter()
    contender = kind(store)
    record = contender.read_one(contents.count - 1)
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    check_record(record, contents.count - 1)
    _check(digest_stored(contender.read_all()), Digest(contents.count, contents.crc))
    contender.close()
    return _measurement(case, 1, seconds, stored_bytes(store), idle, peak)


def fill_and_crash(case: Case, directory: str, count: int) -> NoReturn:
    """Append ``count`` records without a flush, then die by SIGKILL with the store open."""
    Path(directory, _CONTENTS_NAME).write_text(json.dumps(asdict(Contents(*digest_expected(count)))))
    contender = contender_class(case.contender)(_store_directory(directory))
    for rows in batches_of(0, count, case.batch_records):
        contender.append(rows)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


def _begin(case: Case) -> tuple[type[Contender], int]:
    """Import, take the memory of the idle process, and keep the collector from walking what is there now."""
    kind = contender_class(case.contender)
    kind.version()
    gc.collect()
    gc.freeze()
    return kind, resident_memory_bytes()


def _append_timed(contender: Contender, batch_records: int, count: int) -> float:
    seconds = 0.0
    for batches in _chunks(batch_records, count):
        started = perf_counter()
        for rows in batches:
            contender.append(rows)
        seconds += perf_counter() - started
    started = perf_counter()
    contender.settle()
    return seconds + perf_counter() - started


def _chunks(batch_records: int, count: int) -> Iterator[list[list[tuple[bytes, bytes, int]]]]:
    size = max(CHUNK_RECORDS // batch_records, 1) * batch_records
    for first in range(0, count, size):
        yield list(batches_of(first, min(first + size, count), batch_records))


def _store_directory(directory: str) -> str:
    path = f"{directory}/{_STORE_NAME}"
    os.makedirs(path, exist_ok=True)
    return path


def _contents(directory: str) -> Contents:
    return Contents(**json.loads(Path(directory, _CONTENTS_NAME).read_text()))


def stored_bytes(directory: str) -> int:
    """The sizes of all files below a directory."""
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


def _check_digest(kind: type[Contender], store: str, expected: Digest) -> None:
    contender = kind(store)
    try:
        _check(digest_stored(contender.read_all()), expected)
    finally:
        contender.close()


def _check(digest: Digest, expected: Digest) -> None:
    """
    Raises:
        WrongDataError: records are missing, or their values differ.
    """
    if digest != expected:
        raise WrongDataError(f"read {digest}, wrote {expected}")


def _measurement(case: Case, count: int, seconds: float, stored: int, idle: int, peak: int) -> Measurement:
    return Measurement(
        figure=case.figure,
        contender=case.contender,
        batch_records=case.batch_records,
        is_durable=case.is_durable,
        count=count,
        seconds=seconds,
        stored_bytes=stored,
        idle_memory_bytes=idle,
        peak_memory_bytes=peak,
    )
