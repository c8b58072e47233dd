"""``python -m benchmarks.compaction``: how fast compaction is, and how much it slows down appends.

Half of each log was compacted before, and the other half updates its keys, anywhere or one key in ten: so
about every batch must be rewritten, or most are kept as they are. Each measurement is a process of its own on
a fresh copy of the log. For comparison, the time to copy the log's files and flush them is measured too.
Rewrites the tables of ``docs/compaction.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import logstore
from benchmarks.figures import idle_memory_bytes
from benchmarks.measure import ROOT, scratch_directory
from benchmarks.process import describe_machine, peak_memory_bytes
from benchmarks.records import JSON, LARGE, SMALL, Row, WrongDataError, row_at
from benchmarks.report import rewrite_region
from benchmarks.text import format_bytes, format_rate, format_ratio, format_table

DOCUMENT = ROOT / "docs" / "compaction.md"

_TOPIC = "records"
_OTHER_TOPIC = "appended"
_BATCH_RECORDS = 1_000
_MIB = 1024 * 1024
_RECORD_BYTES = {SMALL: 127, LARGE: 1052, JSON: 330}
"""What a record takes in the log, about."""

Found = dict[str, float]


class Shape(NamedTuple):
    """One log."""

    data: str
    codec: str
    updated_share: float
    """The share of keys that are updated; they are adjacent."""
    size_bytes: int

    @property
    def title(self) -> str:
        updates = "anywhere" if self.updated_share == 1 else f"one key in {1 / self.updated_share:.0f}"
        return f"{self.data}, {self.codec}, updates {updates}"


class Plan(NamedTuple):
    """The logs to measure."""

    shapes: tuple[Shape, ...]
    sizes: tuple[Shape, ...]
    """The same log in several sizes."""
    appends: Shape
    """The log that is compacted during appends."""
    rounds: int
    append_seconds: float


_FULL = Plan(
    tuple(
        Shape(data, codec, share, 500_000_000)
        for data, codec in ((LARGE, "uncompressed"), (SMALL, "uncompressed"), (JSON, "zstd"))
        for share in (1.0, 0.1)
    ),
    tuple(Shape(LARGE, "uncompressed", 1.0, size * _MIB) for size in (100, 1024, 10 * 1024)),
    Shape(LARGE, "uncompressed", 1.0, 500_000_000),
    3,
    4.0,
)
_QUICK = Plan(
    tuple(shape._replace(size_bytes=4_000_000) for shape in _FULL.shapes[:1]),
    tuple(Shape(LARGE, "uncompressed", 1.0, size * _MIB) for size in (1, 4)),
    Shape(LARGE, "uncompressed", 1.0, 40_000_000),
    1,
    0.2,
)


# Logs -------------------------------------------------------------------------------------------------------


def _config(shape: Shape) -> logstore.TopicConfig:
    return logstore.TopicConfig(
        cleanup_policy="compact",
        compression_type=shape.codec,
        min_cleanable_dirty_ratio=0.1,
        segment_bytes=min(max(shape.size_bytes // 8, _MIB), 128 * _MIB),
    )


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH_RECORDS:
            yield batch
            batch = []
    if batch:
        yield batch


def _rows(shape: Shape, first: int, count: int) -> Iterator[Row]:
    """The rows from ``first`` on; the second half of the log with keys of the first half."""
    key_count = shape.size_bytes // _RECORD_BYTES[shape.data] // 2
    chance = random.Random(29)
    for number in range(first, first + count):
        key, value, timestamp_ms = row_at(number, shape.data)
        if first:
            key = row_at(chance.randrange(int(key_count * shape.updated_share)), shape.data)[0]
        yield key, value, timestamp_ms


def prepare(directory: str, shape: Shape) -> None:
    """A closed store with one log, half of it clean."""
    half = shape.size_bytes // _RECORD_BYTES[shape.data] // 2
    with logstore.open(directory, config=_by_hand()) as store:
        log = store.create_topic(_TOPIC, config=_config(shape))[0]
        for batch in _batches(_rows(shape, 0, half)):
            log.extend(batch)
        log.compact(now=True)
        for batch in _batches(_rows(shape, half, half)):
            log.extend(batch)


def _by_hand() -> logstore.StoreConfig:
    return logstore.StoreConfig(log_cleaner_enable=False)


# Measurements -----------------------------------------------------------------------------------------------


def compact(directory: str) -> Found:
    """Compact in this process.

    Raises:
        WrongDataError: the result is not one record for each key.
    """
    with logstore.open(directory, config=_by_hand()) as store:
        log = store[_TOPIC][0]
        idle = idle_memory_bytes()
        started, cpu = perf_counter(), time.process_time()
        report = log.compact(now=True)
        seconds, cpu = perf_counter() - started, time.process_time() - cpu
        memory_bytes = peak_memory_bytes() - idle
        left = sum(1 for _ in log.read())
        if left != sum(1 for _ in log.latest()):
            raise WrongDataError(f"{left} records are left")
        return {
            "bytes": report.size_bytes_before,
            "kept_bytes": report.size_bytes_after,
            "rounds": report.round_count,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "memory_bytes": memory_bytes,
        }


def copy(directory: str) -> Found:
    """Copy the log's files, one after the other, and flush each."""
    started = perf_counter()
    for source in sorted(Path(directory, f"{_TOPIC}-0").glob("*.log")):
        target = source.with_suffix(".copy")
        shutil.copyfile(source, target)
        descriptor = os.open(target, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return {"seconds": perf_counter() - started}


def append(directory: str, *, cleans: bool, seconds: float) -> Found:
    """Append to a second topic for some seconds, as fast as it goes, while the first is compacted or not.

    Raises:
        WrongDataError: compaction finished too early, so that its cost cannot be measured.
    """
    config = logstore.StoreConfig(log_cleaner_enable=cleans, log_cleaner_backoff_ms=1)
    with logstore.open(directory, config=config) as store:
        if _OTHER_TOPIC not in store:
            store.create_topic(_OTHER_TOPIC)
        log = store[_OTHER_TOPIC][0]
        batch = [row_at(number, LARGE) for number in range(_BATCH_RECORDS)]
        time.sleep(0.05)
        count, started = 0, perf_counter()
        while perf_counter() - started < seconds:
            count += len(log.extend(batch))
        taken = perf_counter() - started
        if cleans and store.cleaner.status()[store[_TOPIC][0].partition].progress is None:
            raise WrongDataError("compaction did not last as long")
        return {"records": count, "seconds": taken}


_WAYS = ("compact", "copy", "append", "append and compact")


def _measure(directory: str, way: str, seconds: float) -> Found:
    if way == "compact":
        return compact(directory)
    if way == "copy":
        return copy(directory)
    return append(directory, cleans=way != "append", seconds=seconds)


def _measure_elsewhere(base: str, way: str, seconds: float = 0) -> Found:
    """Measure in another process, on a copy."""
    directory = f"{base}-copy"
    shutil.copytree(base, directory)
    os.sync()
    arguments = ["--directory", directory, "--way", way, "--seconds", str(seconds)]
    command = [sys.executable, "-m", "benchmarks.compaction", *arguments]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    finally:
        shutil.rmtree(directory)
    found: Found = json.loads(done.stdout)
    return found


# Tables -----------------------------------------------------------------------------------------------------


def _measure_shape(directory: str, shape: Shape, rounds: int) -> list[str]:
    base = f"{directory}/base"
    prepare(base, shape)
    pairs = [(_measure_elsewhere(base, "copy"), _measure_elsewhere(base, "compact")) for _ in range(rounds)]
    shutil.rmtree(base)
    compacted = [found for _, found in pairs]
    size = compacted[0]["bytes"]
    return [
        shape.title,
        format_bytes(size),
        format_bytes(compacted[0]["kept_bytes"]),
        format_rate(size / median(found["seconds"] for found in compacted)) + "B",
        format_rate(size / median(found["cpu_seconds"] for found in compacted)) + "B",
        format_ratio(median(copied["seconds"] / found["seconds"] for copied, found in pairs)),
        f"{compacted[0]['rounds']:.0f}",
        format_bytes(median(found["memory_bytes"] for found in compacted)),
    ]


_TITLES = [
    "Log",
    "Before",
    "After",
    "Log/s",
    "Log per second of CPU",
    "Compared with a copy",
    "Rounds",
    "Memory",
]


def _measure_appends(directory: str, shape: Shape, rounds: int, seconds: float) -> str:
    base = f"{directory}/base"
    prepare(base, shape)
    pairs = [
        tuple(_measure_elsewhere(base, way, seconds) for way in ("append", "append and compact"))
        for _ in range(rounds)
    ]
    shutil.rmtree(base)
    rates = [[found["records"] / found["seconds"] for found in pair] for pair in pairs]
    loss = median(1 - beside / alone for alone, beside in rates)
    alone, beside = (median(rate) for rate in zip(*rates, strict=True))
    return (
        f"Appending {_BATCH_RECORDS:,} records of 1 KiB at a time at full speed: {format_rate(alone)} "
        f"records/s alone, and {format_rate(beside)} while another topic is compacted in the background at "
        f"the default rate, {max(loss, 0):.0%} fewer."
    )


def measure_all(directory: str, plan: Plan) -> str:
    """All tables, as text."""
    shapes = [_measure_shape(directory, shape, plan.rounds) for shape in plan.shapes]
    sizes = [_measure_shape(directory, shape, 1) for shape in plan.sizes]
    appends = _measure_appends(directory, plan.appends, plan.rounds, plan.append_seconds)
    machine = describe_machine(directory)
    facts = ", ".join(machine[name] for name in ("cpu", "python", "crc32c") if name in machine)
    return (
        f"{format_table(_TITLES, shapes)}\n"
        f"One of them in several sizes:\n\n{format_table(_TITLES, sizes)}\n"
        f"{appends}\n\n"
        f"Measured by `python -m benchmarks.compaction` on {facts}: batches of {_BATCH_RECORDS:,}, one "
        f"thread, files in the page cache, medians of {plan.rounds} (the sizes: once). Log/s is the size "
        "before, divided by the time of the whole call with every flush. Memory is what the peak adds to the "
        "idle process."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small logs, once; prints and writes nothing")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    parser.add_argument("--way", choices=_WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(_measure(arguments.directory, arguments.way, arguments.seconds)))
        return
    with scratch_directory(arguments.directory) as directory:
        text = measure_all(directory, _QUICK if arguments.quick else _FULL)
    if arguments.quick:
        print(text)
        return
    rewrite_region(DOCUMENT, text)


if __name__ == "__main__":
    main()
