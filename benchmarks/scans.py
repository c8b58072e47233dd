"""Checking every batch of a large segment, as recovery does, beside ``cat`` of the same file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.contenders import AIOKAFKA, KAFKA_PYTHON, LIMIT, LOGSTORE, PLAIN
from benchmarks.figures import Case, Measurement, idle_memory_bytes, measurement
from benchmarks.plan import SCAN
from benchmarks.records import SMALL, WrongDataError, batches_of

SEGMENT_NAME = "00000000000000000000.log"
BATCH_RECORDS = 500
"""Of 100 bytes: batches of 62 KiB."""
_READ_BYTES = 1 << 20


def prepare_scan(directory: str, size_bytes: int) -> None:
    """A segment of one batch again and again, at rising offsets, of at most ``size_bytes``."""
    from logstore.format.batch import encode_batch, rebase_batch

    (rows,) = batches_of(0, BATCH_RECORDS, BATCH_RECORDS)
    keys, values, timestamps = zip(*rows, strict=True)
    batch = encode_batch(keys, values, timestamps)
    with Path(directory, SEGMENT_NAME).open("wb") as file:
        for number in range(size_bytes // len(batch)):
            rebase_batch(batch, 0, number * BATCH_RECORDS, 0)
            file.write(batch)


def measure_scan(contender: str, directory: str, most_bytes: int) -> Measurement:
    """Scan the segment, or its first part of at most ``most_bytes``; counts bytes."""
    path = f"{directory}/{SEGMENT_NAME}"
    scan = _SCANS[contender]()
    idle = idle_memory_bytes()
    started = perf_counter()
    size_bytes, batches = scan(path, most_bytes)
    seconds = perf_counter() - started
    if batches is not None and size_bytes != batches * _bytes_per_batch(path):
        raise WrongDataError(f"{batches} batches in {size_bytes} bytes")
    case = Case(SCAN, contender, BATCH_RECORDS, SMALL)
    return measurement(case, size_bytes, seconds, size_bytes, idle)


def _bytes_per_batch(path: str) -> int:
    with Path(path).open("rb") as file:
        return int.from_bytes(file.read(12)[8:], "big") + 12


Scan = Callable[[str, int], tuple[int, int | None]]
"""Of a path, and of at most so many bytes: bytes, and batches if it counts them."""


def _logstore() -> Scan:
    from logstore.config import TopicConfig
    from logstore.files import OsFiles
    from logstore.partition.recovery.tail import Tail
    from logstore.partition.segments.active import ActiveSegment
    from logstore.partition.segments.segment import OpenSegments
    from logstore.partition.state.leader_epochs import LeaderEpochs

    def scan(path: str, most_bytes: int) -> tuple[int, int | None]:
        """What an open does with a segment after a crash, without writing the indexes."""
        directory, cache = os.path.dirname(path), OpenSegments(1)
        segment = ActiveSegment(OsFiles(), directory, 0, cache, config=TopicConfig(), created_ms=0)
        tail = Tail(segment, LeaderEpochs(), 0, is_dense=True, is_closed=False)
        tail.scan(0)
        if tail.fault is not None:
            raise tail.fault
        return tail.scanned_bytes, tail.end_offset // BATCH_RECORDS

    return scan


def _cat() -> Scan:
    from benchmarks.contenders.ready_bytes import cat_file

    def scan(path: str, most_bytes: int) -> tuple[int, int | None]:
        cat_file(path, 1)
        return os.stat(path).st_size, None

    return scan


def _kafka(records_class: Any) -> Scan:
    def scan(path: str, most_bytes: int) -> tuple[int, int | None]:
        size_bytes = _bytes_per_batch(path)
        piece_bytes = _READ_BYTES // size_bytes * size_bytes
        position = batches = 0
        descriptor = os.open(path, os.O_RDONLY)
        while wanted := min(piece_bytes, (most_bytes - position) // size_bytes * size_bytes):
            data = os.pread(descriptor, wanted, position)
            if not data:
                break
            records = records_class(data)
            while (batch := records.next_batch()) is not None:
                if not batch.validate_crc():
                    raise WrongDataError(f"batch {batches} is damaged")
                batches += 1
            position += len(data)
        os.close(descriptor)
        return position, batches

    return scan


def _aiokafka() -> Scan:
    from aiokafka.record.memory_records import MemoryRecords

    return _kafka(MemoryRecords)


def _kafka_python() -> Scan:
    from kafka.record.memory_records import MemoryRecords

    return _kafka(MemoryRecords)


_SCANS: dict[str, Callable[[], Scan]] = {
    LOGSTORE: _logstore,
    PLAIN: _logstore,
    AIOKAFKA: _aiokafka,
    KAFKA_PYTHON: _kafka_python,
    LIMIT: _cat,
}
"""Each imports what it needs when it is called."""
