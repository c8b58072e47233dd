"""The figures of only logstore: many partitions, a large log, recovery, wake-up of followers.

Each ``prepare_`` fills a directory, and each ``measure_`` takes such a directory; all check what they find.
Large logs are made quickly: one batch is encoded, and its bytes appended again and again.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import benchmarks.contenders.logstore_log  # noqa: F401 - imports what logstore puts off
import logstore
from benchmarks.figures import idle_memory_bytes
from benchmarks.measure import run_until_killed
from benchmarks.process import peak_memory_bytes
from benchmarks.records import WrongDataError
from logstore.format.checkpoint import encode_offset_checkpoint

_TOPIC = "records"
_KEPT = logstore.TopicConfig(retention_ms=-1)

LARGE_VALUE_BYTES = 1024
LARGE_BATCH_RECORDS = 240
"""Of 1 KiB: just under the default ``batch_bytes``, so that batches are as ``extend`` makes them."""

_SMALL_RECORDS = 20
"""Per segment of the many partitions."""

_NEVER_MS = 10**12
_MAX_SEGMENT_BYTES = 2**31 - 1
_SAMPLE_PAUSE_MS = (5, 25)
"""The random pause between two records for the follower, so that they are not in step with its polling."""
_FOLLOWER_START_SECONDS = 30.0
_CATALOGUE = "topics.json"
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")

Figures = dict[str, float]
"""What a measurement found, by name; the unit is in the name."""


def _check(is_right: bool, what: str) -> None:
    """
    Raises:
        WrongDataError: it is not.
    """
    if not is_right:
        raise WrongDataError(what)


# Many partitions --------------------------------------------------------------------------------------------


def prepare_partitions(directory: str, partitions: int, segments: int) -> None:
    """A cleanly closed store of ``partitions`` partitions with ``segments`` segments each: one is written,
    its directory copied, and the catalogue removed: without it a store has the partitions that it finds."""
    with logstore.open(directory) as store:
        log = store.create_topic(_TOPIC)[0]
        for number in range(segments):
            if number:
                log.roll()
            log.extend([(b"key", b"value") for _ in range(_SMALL_RECORDS)])
    for number in range(1, partitions):
        shutil.copytree(f"{directory}/{_TOPIC}-0", f"{directory}/{_TOPIC}-{number}")
    ends = {logstore.TopicPartition(_TOPIC, n): segments * _SMALL_RECORDS for n in range(partitions)}
    for name in _CHECKPOINTS:
        Path(directory, name).write_bytes(encode_offset_checkpoint(ends))
    Path(directory, _CATALOGUE).unlink()


def measure_reopen(directory: str, partitions: int, segments: int) -> Figures:
    """Open the store until every partition can be read and written."""
    idle = idle_memory_bytes()
    started = perf_counter()
    store = logstore.open(directory)
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    _check(store.was_clean and not store.damaged, "the store was not closed cleanly")
    topic = store[_TOPIC]
    found = {(log.segment_count, log.log_end_offset) for log in topic}
    _check(len(topic) == partitions, f"{len(topic)} partitions")
    _check(found == {(segments, segments * _SMALL_RECORDS)}, f"segments and log end offsets are {found}")
    started = perf_counter()
    store.close()
    return {
        "partitions": partitions,
        "segments": segments,
        "open_seconds": seconds,
        "close_seconds": perf_counter() - started,
        "memory_over_idle_bytes": peak - idle,
    }


def leave_partitions(directory: str, records: int) -> NoReturn:
    """Open the store, append so many records to each partition, and die by SIGKILL."""
    config = logstore.StoreConfig(log_flush_offset_checkpoint_interval_ms=_NEVER_MS)
    store = logstore.open(directory, config=config)
    for log in store[_TOPIC]:
        if records:
            log.extend([(b"key", b"value")] * records)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


def measure_reopen_killed(directory: str, partitions: int, records: int) -> Figures:
    """The same as :func:`measure_reopen` after a kill: with nothing new since the last checkpoint, or with
    ``records`` in each partition that are behind it."""
    run_until_killed(["leave-partitions", "--directory", directory, "--records", str(records)])
    idle = idle_memory_bytes()
    started = perf_counter()
    store = logstore.open(directory)
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    _check(not store.was_clean and not store.damaged, "the store was closed cleanly")
    topic = store[_TOPIC]
    ends = {log.log_end_offset for log in topic}
    _check(len(topic) == partitions and len(ends) == 1, f"{len(topic)} partitions, ends are {ends}")
    (end,) = ends
    _check(all(log.durable_offset == end for log in topic), "what was found is not durable")
    _check(end % _SMALL_RECORDS == 0 or records > 0, f"the logs end at {end}")
    store.close()
    return {"partitions": partitions, "open_seconds": seconds, "memory_over_idle_bytes": peak - idle}


# A large log ------------------------------------------------------------------------------------------------


def _large_rows() -> list[tuple[bytes, bytes]]:
    source = random.Random(5)
    return [(b"%016d" % number, source.randbytes(LARGE_VALUE_BYTES)) for number in range(LARGE_BATCH_RECORDS)]


def _value_sum() -> int:
    """Sum of the CRC-32s of one batch's values."""
    return sum(zlib.crc32(value) for _, value in _large_rows())


def fill_log(log: logstore.Log, size_bytes: int) -> int:
    """Append one batch again and again until the log has ``size_bytes``; returns the number of records."""
    log.extend(_large_rows())
    batch = log.fetch(0).data
    while log.size_bytes + len(batch) <= size_bytes:
        log.append_batch(batch)
    return log.log_end_offset


def prepare_large(directory: str, size_bytes: int) -> None:
    with logstore.open(directory) as store:
        fill_log(store.create_topic(_TOPIC, config=_KEPT)[0], size_bytes)


def measure_large(directory: str, reads: int, least_records: int) -> Figures:
    """Read the whole log in order, as often as makes ``least_records``, and then ``reads`` single records."""
    expected_sum = _value_sum()
    idle = idle_memory_bytes()
    with logstore.open(directory) as store:
        log = store[_TOPIC][0]
        count = log.log_end_offset
        passes = -(-least_records // count)
        seconds = sum(_read_whole(log, expected_sum) for _ in range(passes))
        peak = peak_memory_bytes()
        random_seconds = _read_random(log, reads)
        return {
            "size_bytes": log.size_bytes,
            "records": count,
            "sequential_seconds_per_record": seconds / count / passes,
            "random_seconds_per_read": random_seconds / reads,
            "memory_over_idle_bytes": peak - idle,
        }


def _read_whole(log: logstore.Log, expected_sum: int) -> float:
    total = count = 0
    crc32 = zlib.crc32
    started = perf_counter()
    for record in log.read():
        total += crc32(record.value)  # type: ignore[arg-type]  # no value is null here
        count += 1
    seconds = perf_counter() - started
    _check(count == log.log_end_offset, f"{count} records of {log.log_end_offset}")
    _check(total == expected_sum * (count // LARGE_BATCH_RECORDS), "values differ from what was written")
    return seconds


def _read_random(log: logstore.Log, reads: int) -> float:
    rows = _large_rows()
    offsets = random.Random(3).choices(range(log.log_end_offset), k=reads)
    started = perf_counter()
    find: Any = getattr(log, "record_at", lambda offset: next(log.read(offset, offset + 1)))
    records = [find(offset) for offset in offsets]
    seconds = perf_counter() - started
    for record, offset in zip(records, offsets, strict=True):
        wanted = (offset, *rows[offset % LARGE_BATCH_RECORDS])
        _check((record.offset, record.key, record.value) == wanted, f"offset {offset} came back wrong")
    return seconds


# Recovery ---------------------------------------------------------------------------------------------------


def fill_large_and_crash(directory: str, size_bytes: int) -> NoReturn:
    """Write one active segment of ``size_bytes``, none of it checkpointed, then die by SIGKILL."""
    config = logstore.StoreConfig(
        log_flush_offset_checkpoint_interval_ms=_NEVER_MS,
        topic=logstore.TopicConfig(retention_ms=-1, segment_bytes=_MAX_SEGMENT_BYTES),
    )
    store = logstore.open(directory, config=config)
    fill_log(store.create_topic(_TOPIC)[0], size_bytes)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


def measure_recovery(directory: str) -> Figures:
    """Open the store after :func:`fill_large_and_crash`."""
    idle = idle_memory_bytes()
    started = perf_counter()
    store = logstore.open(directory)
    seconds = perf_counter() - started
    peak = peak_memory_bytes()
    log = store[_TOPIC][0]
    report = log.recovery
    _check(not report.was_clean and log.segment_count == 1, "there was nothing to recover")
    _check(report.scanned_bytes == log.size_bytes and not report.cut_bytes, f"recovery says {report}")
    _check(log.log_end_offset * LARGE_VALUE_BYTES < log.size_bytes, "records are missing")
    found: Figures = {
        "open_seconds": seconds,
        "scanned_bytes": report.scanned_bytes,
        "memory_over_idle_bytes": peak - idle,
    }
    store.close()
    return found


# Followers --------------------------------------------------------------------------------------------------


def measure_lags(directory: str, samples: int) -> list[float]:
    """Seconds from before a record's append in this process to its arrival at a follower in another one. Each
    record carries the time; the monotonic clock is one for all processes of a machine."""
    pauses = random.Random(2)
    with logstore.open(directory) as store:
        log = store.create_topic(_TOPIC, config=_KEPT)[0]
        log.extend([(None, b"before")])  # the first append of a process builds the encoder's tables, 20 ms
        command = [sys.executable, "-m", "benchmarks.one", "follower", "--directory", directory]
        with subprocess.Popen(
            [*command, "--reads", str(samples)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as follower:
            assert follower.stdout is not None
            _check(follower.stdout.readline() == "ready\n", "the follower did not start")
            for _ in range(samples):
                time.sleep(pauses.uniform(*_SAMPLE_PAUSE_MS) / 1000)
                log.extend([(None, time.monotonic_ns().to_bytes(8, "big"))])
            lags = [int(line) / 1e9 for line in follower.stdout]
    _check(len(lags) == samples, f"{len(lags)} of {samples} records arrived")
    return lags


def follow(directory: str, samples: int) -> None:
    """The follower: prints each record's lag in nanoseconds once all have come."""
    with logstore.open(directory, read_only=True) as store:
        records = store[_TOPIC][0].follow(timeout=_FOLLOWER_START_SECONDS)
        print("ready", flush=True)
        lags = []
        for record in records:
            lags.append(time.monotonic_ns() - int.from_bytes(record.value or b"", "big"))
            if len(lags) == samples:
                break
    print("\n".join(map(str, lags)))
