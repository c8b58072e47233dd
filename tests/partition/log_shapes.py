"""Small logs of every shape that a reader may meet, and the readers that are compared on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logstore import build
from logstore.format import lookup as plain
from logstore.format.batch import decode_batch, decode_header, encode_batch, encode_records_batch
from logstore.format.compression import Codec
from logstore.format.names import segment_file_name
from logstore.model import Isolation, NewRecord, Record, TimestampType
from logstore.partition.log import Log
from logstore.partition.reading import lookup
from logstore.partition.reading import records as reading
from logstore.partition.segments import batch_cache, indexes
from tests.format.legacy_writer import encode_entry, encode_wrapper
from tests.partition.helpers_rules import START_MS, batch, identity, open_log

Shape = Callable[[Path], Log]

SHAPES: dict[str, Shape] = {}


def shape(make: Shape) -> Shape:
    SHAPES[make.__name__.replace("_", " ")] = make
    return make


def rows(first: int, count: int, *, size_bytes: int = 30) -> list[NewRecord]:
    """Records whose fields follow from their offset."""
    return [
        NewRecord(
            b"value of %d " % offset + b"." * size_bytes if offset % 5 else None,
            b"key %d" % offset if offset % 3 else None,
            (("n", b"%d" % offset), ("", None)) if offset % 7 == 0 else (),
            START_MS + 10 * offset,
        )
        for offset in range(first, first + count)
    ]


def add_rows(log: Log, *counts: int, size_bytes: int = 30, **options: Any) -> None:
    """A batch for each count."""
    for count in counts:
        log.extend(rows(log.log_end_offset, count, size_bytes=size_bytes), **options)


def encoded(base_offset: int, count: int, **fields: Any) -> bytearray:
    values, keys, headers, timestamps = zip(*rows(base_offset, count), strict=True)
    return encode_batch(keys, values, timestamps, headers, base_offset=base_offset, **fields)


def thinned(base_offset: int, count: int, *, keep: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch as compaction leaves it: its offsets, and every ``keep``-th record."""
    full = encoded(base_offset, count)
    header = decode_header(full)
    return encode_records_batch(decode_batch(full, 0, header)[::keep], like=header, codec=codec)


@shape
def one_record_a_batch(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=400)
    add_rows(log, *[1] * 90)
    return log


@shape
def small_batches(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=600)
    add_rows(log, *[1, 4, 2, 9] * 12)
    return log


@shape
def every_batch_is_indexed(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=0)
    add_rows(log, *[20, 3] * 8)
    return log


@shape
def large_batches(path: Path) -> Log:
    log = open_log(path)
    add_rows(log, 40, 300, 2, 300, 40, size_bytes=200)
    return log


@shape
def segments(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=500)
    for counts in ((5, 5), (30,), (1, 1, 1), ()):
        add_rows(log, *counts)
        log.roll()
    add_rows(log, 7, 2)
    return log


@shape
def compressed(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=300)
    for codec in Codec:
        log.append_replicated(encoded(log.log_end_offset, 25, codec=codec))
        log.append_replicated(encoded(log.log_end_offset, 1, codec=codec))
    log.append_replicated(encoded(log.log_end_offset, 400, codec=Codec.LZ4))
    return log


@shape
def gaps(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=300)
    for base, count in ((3, 2), (9, 20), (40, 1), (41, 1), (70, 5), (90, 300)):
        log.append_replicated(encoded(base, count))
    log.roll()
    log.append_replicated(encoded(400, 3))
    return log


@shape
def compacted(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=300)
    for keep, codec in ((2, Codec.NONE), (7, Codec.GZIP), (40, Codec.NONE), (1, Codec.NONE), (3, Codec.NONE)):
        log.append_replicated(thinned(log.log_end_offset, 33, keep=keep, codec=codec))
    empty = decode_header(encoded(log.log_end_offset, 10))
    log.append_replicated(encode_records_batch([], like=empty))
    log.append_replicated(thinned(log.log_end_offset, 2000, keep=2))
    log.append_replicated(thinned(log.log_end_offset, 2000, keep=3, codec=Codec.ZSTD))
    return log


@shape
def transactions(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=300)
    sequences = {1: 0, 2: 0, 3: 0}
    chance = random.Random(4)
    for step in range(40):
        producer = chance.choice((1, 2, 3, None))
        count = chance.choice((1, 3, 12))
        if producer is None:
            add_rows(log, count)
            continue
        by = identity(sequences[producer], producer=producer, transactional=True)
        add_rows(log, count, producer=by)
        sequences[producer] += count
        if step % 3 == 0:
            log.append_end_marker(producer, 0, committed=step % 2 == 0)
        if step == 20:
            log.roll()
    for producer in sequences:
        if log.last_stable_offset < log.log_end_offset:
            try_to_end(log, producer)
    add_rows(log, 2)
    return log


def try_to_end(log: Log, producer: int) -> None:
    log.append_end_marker(producer, 0, committed=producer == 1)


@shape
def legacy(path: Path) -> Log:
    """Entries of magic 0 and 1, plain and compressed, and batches behind them."""
    log = open_log(path, index_interval_bytes=300)
    log.close()
    old = [Record(o, -1, b"k%d" % o, b"old %d" % o) for o in range(30)]
    newer = [Record(o, START_MS + o, None, b"newer %d" % o) for o in range(30, 60)]
    data = b"".join(encode_entry(0, record) for record in old[:10])
    data += encode_wrapper(0, Codec.GZIP, old[10:20]) + encode_wrapper(0, Codec.SNAPPY, old[20:])
    data += b"".join(encode_entry(1, record) for record in newer[:20])
    inner = [record._replace(offset=number) for number, record in enumerate(newer[20:])]
    data += encode_wrapper(1, Codec.LZ4, inner, offset=59)
    data += encoded(60, 9) + encoded(69, 3)
    Path(path, segment_file_name(0, ".log")).write_bytes(data)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        Path(path, name).unlink(missing_ok=True)
    for suffix in (".index", ".timeindex"):
        Path(path, segment_file_name(0, suffix)).unlink(missing_ok=True)
    return open_log(path, index_interval_bytes=300)


@shape
def a_log_start_inside_a_batch(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=300)
    add_rows(log, 4, 25, 6)
    log.roll()
    add_rows(log, 5)
    log.delete_before(11)
    return log


@shape
def append_times(path: Path) -> Log:
    log = open_log(path, message_timestamp_type="LogAppendTime", index_interval_bytes=0)
    add_rows(log, 3, 40, 2)
    return log


@shape
def leader_epochs(path: Path) -> Log:
    """A new one with every few batches, from none on; some of the batches compressed, some of append time."""
    log = open_log(path, index_interval_bytes=300)
    for epoch in (-1, 0, 3, 2**31 - 1):
        for count, codec in ((1, Codec.NONE), (30, Codec.NONE), (2, Codec.GZIP), (1, Codec.NONE)):
            for kind in TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME:
                log.append_replicated(
                    encoded(
                        *(log.log_end_offset, count),
                        codec=codec,
                        timestamp_type=kind,
                        append_time_ms=START_MS if kind else None,
                        partition_leader_epoch=epoch,
                    )
                )
        log.roll()
    return log


@shape
def truncated_inside_a_batch(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=200)
    add_rows(log, 10, 10, 10)
    log.truncate_to(15)
    add_rows(log, 10, 2)
    return log


def batch_of_zeros(base_offset: int) -> bytearray:
    """A batch whose values are batches' beginnings: what a reader that lost its way would take for some."""
    return batch(bytes(encoded(base_offset, 3)), b"\0" * 100, base_offset=base_offset)


@shape
def batches_inside_values(path: Path) -> Log:
    log = open_log(path, index_interval_bytes=200)
    for _ in range(20):
        log.append_replicated(batch_of_zeros(log.log_end_offset))
    return log


# Readers ----------------------------------------------------------------------------------------------------


def carefully(log: Log, start: int | None = None, stop: int | None = None, **options: Any) -> list[Record]:
    """What the careful reader reads: batch by batch, each decoded whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_run", None)
        view = log._current_view()
        isolation = options.get("isolation", Isolation.HIGH_WATERMARK)
        start = view.log_start_offset if start is None else start
        stop = view.limit_of(isolation) if stop is None else min(stop, view.limit_of(isolation))
        return [
            record for records in reading.record_lists(view, start, stop, isolation) for record in records
        ]


@contextmanager
def plain_lookups() -> Iterator[None]:
    """Reads by the plain twins of what lookup.c does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_run", None)
        patch.setattr(lookup, "find_record", plain.find_record)
        patch.setattr(batch_cache, "find_in_section", plain.find_in_section)
        patch.setattr(batch_cache, "mark_records", plain.mark_records)
        patch.setattr(indexes, "find_interval", plain.find_interval)
        yield


LOOPS = ["plain"] if build.compiled is None else ["plain", "compiled"]


@contextmanager
def loops_named(name: str) -> Iterator[None]:
    if name == "compiled":
        yield
        return
    with plain_lookups():
        yield
