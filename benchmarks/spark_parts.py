"""The measurements of the Spark benchmark, part by part. Each yields lines (:data:`Line`); none knows
pages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import logstore
from benchmarks.records import WrongDataError
from benchmarks.spark_memory import WorkerMemory
from benchmarks.spark_places import (
    PARTITIONS,
    Shape,
    directory_bytes,
    make_parquet,
    make_topic,
    parquet_place,
    remove,
    serve,
    topic_config,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.interop.kafka import KafkaBroker

OURS, PARQUET, KAFKA, RATE = "logstore", "Parquet", "Kafka connector", "rate source"
ALL_COLUMNS, VALUES, KEY_AND_VALUE, ONE_RECORD = "all columns", "values alone", "key and value", "one record"

Line = dict[str, Any]
"""What :func:`_line` has, and what else a part has to say."""

SHAPES = tuple(Shape(size, codec) for size in (100, 1024) for codec in ("uncompressed", "zstd"))
SMALL = SHAPES[0]

_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
_AGGREGATES = (
    "count(*)",
    "sum(length(key))",
    "sum(length(value))",
    "max(topic)",
    "sum(partition)",
    "sum(offset)",
    "max(timestamp)",
    "sum(timestampType)",
)


class Sizes(NamedTuple):
    """How many records, by the size of their values, and how often."""

    scanned: dict[int, int]
    written: dict[int, int]
    growing: tuple[int, ...]
    """Records of 100 bytes, for the cost of one as a log grows."""
    triggers: int
    """With something to do."""
    rounds: int


FULL = Sizes({100: 4_000_000, 1024: 400_000}, {100: 1_000_000, 1024: 150_000}, (1_000_000, 10_000_000), 12, 3)
QUICK = Sizes({100: 20_000, 1024: 2_000}, {100: 10_000, 1024: 1_000}, (10_000, 20_000), 2, 1)
LARGE = 100_000_000
"""What ``--large`` adds to those that grow."""


class Bench:
    """What all parts share: the session, a place for files, how much is measured."""

    def __init__(
        self,
        spark: SparkSession,
        broker: KafkaBroker | None,
        directory: Path,
        sizes: Sizes,
        report: Callable[[str], None],
    ) -> None:
        self.spark = spark
        self.broker = broker
        """None if the connector or a broker is not available: then there are no lines of the connector."""
        self.directory = directory
        self.sizes = sizes
        self.report = report

    @property
    def jvm(self) -> int:
        return int(jvm_of(self.spark).ProcessHandle.current().pid())

    def memory(self) -> WorkerMemory:
        return WorkerMemory(self.jvm)

    def logstore(self, path: Path, topic: str, columns: str = "", **options: Any) -> DataFrame:
        reader = self.spark.read.format("logstore").options(path=str(path), subscribe=topic, **options)
        return (reader.schema(columns) if columns else reader).load()

    def kafka(self, topic: str) -> DataFrame:
        assert self.broker is not None
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": topic}
        return self.spark.read.format("kafka").options(**options).load()


def _line(
    part: str, source: str, shape: Shape, query: str, number: int, records: int, seconds: float
) -> Line:
    return {
        "part": part,
        "source": source,
        "shape": shape.title,
        "query": query,
        "round": number,
        "records": records,
        "seconds": seconds,
    }


def jvm_of(spark: SparkSession) -> Any:
    """Java's classes by their names."""
    return spark._jvm


def _all_columns(frame: DataFrame) -> list[Any]:
    return list(frame.selectExpr(*_AGGREGATES).first() or ())


def _values(frame: DataFrame) -> list[Any]:
    return list(frame.selectExpr("count(value)", "sum(length(value))").first() or ())


def _timed(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = perf_counter()
    found = call(*arguments)
    return perf_counter() - started, found


def _in_turn(ways: dict[str, Callable[..., Any]], number: int) -> Iterator[tuple[str, Callable[..., Any]]]:
    """All ways, a different one first in every round."""
    names = list(ways)
    for at in range(len(names)):
        name = names[(at + number) % len(names)]
        yield name, ways[name]


# Reading ----------------------------------------------------------------------------------------------------


def scan(bench: Bench) -> Iterator[Line]:
    """Whole topics, with all columns and with values alone, beside the same rows in Parquet and beside the
    connector that reads from a broker."""
    place = bench.directory / "scan"
    with logstore.open(place / "store") as store:
        for shape in SHAPES:
            bench.report(f"making {shape.title}")
            make_topic(store, shape, bench.sizes.scanned[shape.value_bytes])
        parquet = {shape: make_parquet(store, shape, place, columns=_COLUMNS) for shape in SHAPES}
    if bench.broker is not None:
        serve(bench.broker, place / "store", SHAPES)
    for shape in SHAPES:
        yield from _scan_shape(bench, shape, place / "store", parquet[shape])
    remove(place)


def _scan_shape(bench: Bench, shape: Shape, store: Path, parquet: Path) -> Iterator[Line]:
    reads: dict[str, dict[str, Callable[[], Any]]] = {
        ALL_COLUMNS: {
            OURS: lambda: _all_columns(bench.logstore(store, shape.topic)),
            PARQUET: lambda: _all_columns(bench.spark.read.parquet(str(parquet))),
            KAFKA: lambda: _all_columns(bench.kafka(shape.topic)),
        },
        VALUES: {
            OURS: lambda: _values(bench.logstore(store, shape.topic, "value binary")),
            PARQUET: lambda: _values(bench.spark.read.parquet(str(parquet))),
            KAFKA: lambda: _values(bench.kafka(shape.topic)),
        },
    }
    count = bench.sizes.scanned[shape.value_bytes]
    stored = directory_bytes(store / f"{shape.topic}-0", ".log") + directory_bytes(
        store / f"{shape.topic}-1", ".log"
    )
    for query, ways in reads.items():
        if bench.broker is None:
            del ways[KAFKA]
        wanted = ways[PARQUET]()  # and the file is in memory
        for number in range(bench.sizes.rounds + 1):  # the first to warm up
            for source, read in _in_turn(ways, number):
                bench.report(f"scan {shape.title}, {query}, {source}, round {number}")
                with bench.memory() as memory:
                    seconds, found = _timed(read)
                if found != wanted or found[0] != count:
                    raise WrongDataError(f"{source} gave {found}, and {PARQUET} {wanted}")
                if number:
                    line = _line("scan", source, shape, query, number, count, seconds)
                    yield line | {"bytes": stored, "worker_bytes": memory.peak_bytes if source == OURS else 0}


# Writing ----------------------------------------------------------------------------------------------------


def write(bench: Bench) -> Iterator[Line]:
    """Write keys and values of Parquet files into a new topic, beside the connector's sink into a broker."""
    place = bench.directory / "write"
    for shape in SHAPES:
        yield from _write_shape(bench, shape, place)
    remove(place)


def _write_shape(bench: Bench, shape: Shape, place: Path) -> Iterator[Line]:
    count = bench.sizes.written[shape.value_bytes]
    rows = _rows_to_write(bench, place, shape._replace(codec="uncompressed"), count)
    ways: dict[str, Callable[..., Any]] = {OURS: lambda topic: _write_ours(bench, rows, place, topic)}
    if bench.broker is not None:
        ways[KAFKA] = lambda topic: _write_kafka(bench, rows, shape, topic)
    for number in range(bench.sizes.rounds + 1):
        topic = f"written-{shape.topic}-{number}"
        with logstore.open(place / "store") as store:
            store.create_topic(topic, partitions=PARTITIONS, config=topic_config(shape))
        if bench.broker is not None:
            bench.broker.create_topic(topic, partitions=PARTITIONS)
        for source, way in _in_turn(ways, number):
            bench.report(f"write {shape.title}, {source}, round {number}")
            with bench.memory() as memory:
                seconds, _ = _timed(way, topic)
            if number:
                line = _line("write", source, shape, KEY_AND_VALUE, number, count, seconds)
                yield line | {"worker_bytes": memory.peak_bytes if source == OURS else 0}
        _check_written(bench, place / "store", topic, count)


def _rows_to_write(bench: Bench, place: Path, shape: Shape, count: int) -> Path:
    """The same for every codec of the topic."""
    with logstore.open(place / "rows") as store:
        if shape.topic not in store:
            bench.report(f"making {shape.title}")
            make_topic(store, shape, count)
            make_parquet(store, shape, place, columns=["key", "value"])
    return parquet_place(place, shape, columns=["key", "value"])


def _write_ours(bench: Bench, rows: Path, place: Path, topic: str) -> None:
    writer = bench.spark.read.parquet(str(rows)).write.format("logstore").mode("append")
    writer.options(path=str(place / "store"), topic=topic).save()


KAFKA_SINK = {
    "kafka.linger.ms": "20",
    "kafka.batch.size": str(256 * 1024),
    "kafka.buffer.memory": str(64 << 20),
}
"""Faster than its defaults, which send each record as soon as they can."""


def _write_kafka(bench: Bench, rows: Path, shape: Shape, topic: str) -> None:
    assert bench.broker is not None
    codec = "none" if shape.codec == "uncompressed" else shape.codec
    options = {
        "kafka.bootstrap.servers": bench.broker.bootstrap,
        "topic": topic,
        "kafka.compression.type": codec,
    }
    bench.spark.read.parquet(str(rows)).write.format("kafka").options(**options, **KAFKA_SINK).save()


def _check_written(bench: Bench, store: Path, topic: str, count: int) -> None:
    with logstore.open(store) as opened:
        found = sum(log.log_end_offset for log in opened[topic])
    if found != count:
        raise WrongDataError(f"{found} records were written instead of {count}")
    if bench.broker is not None and bench.kafka(topic).count() != count:
        raise WrongDataError("the broker has another number of records")


# Streams ----------------------------------------------------------------------------------------------------


def trigger(bench: Bench) -> Iterator[Line]:
    """The cost of a micro-batch of one record, beside Spark's own rate source; both write to no output."""
    place = bench.directory / "trigger"
    with logstore.open(place / "store") as store:
        topic = store.create_topic("ticks")
        topic[0].append(b"0")
        for number in range(bench.sizes.rounds):
            rate = bench.spark.readStream.format("rate").options(rowsPerSecond=1, numPartitions=1).load()
            ours = (
                bench.spark.readStream.format("logstore")
                .options(path=str(place / "store"), subscribe="ticks")
                .load()
            )
            for source, frame in ((RATE, rate), (OURS, ours)):
                bench.report(f"trigger, {source}, round {number + 1}")
                with _Ticks(topic[0]):
                    found = _run_stream(
                        bench, frame, place / f"checkpoint-{source}-{number}".replace(" ", "-")
                    )
                yield _line("trigger", source, SMALL, ONE_RECORD, number + 1, 1, median(found))
    remove(place)


class _Ticks:
    """A record each second, while the block runs."""

    def __init__(self, log: logstore.Log) -> None:
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._append, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _append(self) -> None:
        while not self._stop.wait(1):
            self._log.append(b"tick")


_FIRST_BATCHES = 2
"""They start workers, and read what was there before."""
_PATIENCE_SECONDS = 120.0


def _run_stream(bench: Bench, frame: DataFrame, checkpoint: Path) -> list[float]:
    """Seconds of each trigger that had something to do."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    found: list[float] = []
    while len(found) < _FIRST_BATCHES + bench.sizes.triggers and time.monotonic() < deadline:
        time.sleep(0.2)
        busy = (progress for progress in query.recentProgress if progress["numInputRows"])
        found = [progress["durationMs"]["triggerExecution"] / 1000 for progress in busy]
    error = query.exception()
    query.stop()
    if error is not None or len(found) <= _FIRST_BATCHES:
        raise WrongDataError(f"the stream had {len(found)} batches: {error}")
    return found[_FIRST_BATCHES:]


# Tasks and sizes --------------------------------------------------------------------------------------------


def tasks(bench: Bench) -> Iterator[Line]:
    """One partition read by one task and by two."""
    place = bench.directory / "tasks"
    count = bench.sizes.scanned[SMALL.value_bytes]
    for shape in SHAPES[:2]:
        with logstore.open(place / "store") as store:
            make_topic(store, shape, count, partitions=1)
        for number in range(bench.sizes.rounds + 1):
            for parts in (1, 2):
                bench.report(f"{parts} tasks, {shape.title}, round {number}")
                frame = bench.logstore(place / "store", shape.topic, minPartitions=parts)
                seconds, found = _timed(_all_columns, frame)
                if found[0] != count:
                    raise WrongDataError(f"{parts} tasks read {found[0]} of {count} records")
                if number:
                    yield _line("tasks", OURS, shape, str(parts), number, count, seconds)
    remove(place)


def sizes(bench: Bench) -> Iterator[Line]:
    """The cost of a record, and the memory of a worker, as a topic grows."""
    for count in bench.sizes.growing:
        place = bench.directory / "sizes"
        bench.report(f"making {count:,} records")
        with logstore.open(place / "store") as store:
            make_topic(store, SMALL, count)
        for number in range(bench.sizes.rounds + 1):
            bench.report(f"{count:,} records, round {number}")
            with bench.memory() as memory:
                frame = bench.logstore(place / "store", SMALL.topic)
                seconds, found = _timed(_all_columns, frame)
            if found[0] != count:
                raise WrongDataError(f"{found[0]} of {count} records were read")
            if number:
                line = _line("sizes", OURS, SMALL, str(count), number, count, seconds)
                yield line | {"worker_bytes": memory.peak_bytes}
        remove(place)


PARTS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "scan": scan,
    "write": write,
    "trigger": trigger,
    "tasks": tasks,
    "sizes": sizes,
}
