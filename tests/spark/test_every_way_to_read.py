"""Batches and streams of Spark beside the model of ``tests/differential``: histories of one log, read in this
process with no JVM in between."""

from __future__ import annotations

import json
import os
import time

import pytest

from logstore.model import Isolation, Record
from tests.differential.history import History
from tests.differential.store import PARTITIONS, Store
from tests.figures import report
from tests.rotation import seed_of_turn
from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

from logstore.spark.columns import full_schema
from logstore.spark.options import Options, Use
from logstore.spark.stream_reader import StreamReader
from tests.spark.reading import plan

LEVELS = {"read_uncommitted": Isolation.HIGH_WATERMARK, "read_committed": Isolation.COMMITTED}
SCHEMA = full_schema(with_headers=True)


def record_of(row):
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    return Record(row["offset"], row["timestamp"] // 1000, row["key"], row["value"], headers)


def check_batch(history, level):
    model, isolation = history.model, LEVELS[level]
    expected = model.records(model.start, model.limit(isolation), isolation)
    for tasks in (1, 4):
        options = {"kafka.isolation.level": level, "minPartitions": tasks, "includeHeaders": "true"}
        read = plan(history.path, SCHEMA, subscribe="t", **options)
        assert [record_of(row) for row in read.rows()] == expected, (level, tasks)


class Stream:
    """A query that goes on batch by batch while the log changes."""

    def __init__(self, history, level):
        given = {"path": str(history.path), "subscribe": "t", "kafka.isolation.level": level}
        options = Options({**given, "startingOffsets": "earliest", "includeHeaders": "true"}, Use.STREAM_READ)
        self._history, self._isolation = history, LEVELS[level]
        self._reader = StreamReader(options, SCHEMA)
        self._offset = self._reader.initialOffset()
        self._position = history.model.start

    def batch(self):
        """What is new is what the model says of these offsets."""
        limit = self._reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self._reader.latestOffset(self._offset, limit)))
        if end == self._offset:
            return
        found = []
        for part in self._reader.partitions(self._offset, end):
            for batch in self._reader.read(part):
                table = batch.set_column(
                    batch.schema.get_field_index("timestamp"), "timestamp", batch["timestamp"].cast("int64")
                )
                found += [record_of(row) for row in table.to_pylist()]
        last, model = end["topics"]["t"]["end"]["0"], self._history.model
        assert last == model.limit(self._isolation)
        assert found == model.records(self._position, last, self._isolation), self._isolation
        self._offset, self._position = end, last


def run(seed, path, steps=40):
    history = History(seed, path)
    streams = []
    for number in range(steps):
        before = history.model.start
        name = history.step()
        if name in ("truncate", "restart", "kill") or history.model.start > before:
            streams = []  # what a query has not read yet may be gone: it would say so
        elif number % 4 == 0:
            streams = streams or [Stream(history, level) for level in LEVELS]
            for stream in streams:
                stream.batch()
        if number % 16 == 15 or number == steps - 1:
            for level in LEVELS:
                check_batch(history, level)
    history.close()


def run_many(first, count, tmp_path):
    began = time.monotonic()
    for seed in range(first, first + count):
        try:
            run(seed, tmp_path / str(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    report(
        "differential/spark",
        count=count,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"from {first}",
    )


def test_transactions_over_topics_that_are_open_aborted_committed_and_shut_out(tmp_path):
    store = Store(tmp_path / "store", 1)
    for turn in range(3):
        for name in ("x", "y", "z"):
            for partition in PARTITIONS:
                store.send(name, partition, b"k%d" % turn, 50)
        store.send_plain(PARTITIONS[turn], b"k", 0)
        store.finish("x", committed=True)
        store.start("y")
        if turn == 1:
            store.compact()
            store.time_out()
            store.delete_before(PARTITIONS[0], 3)
            store.reopen(killed=True)
    for level, isolation in LEVELS.items():
        for tasks in (1, 6):
            read = plan(
                store.path, subscribe="a,b", **{"kafka.isolation.level": level, "minPartitions": tasks}
            )
            for topic in ("a", "b"):
                rows = sorted(
                    (row["partition"], row["offset"], row["value"])
                    for row in read.rows()
                    if row["topic"] == topic
                )
                assert rows == store.expected(topic, isolation), level
    store.end()


def test_some_histories(tmp_path):
    run_many(1, 1, tmp_path)


@pytest.mark.slow
def test_more_histories(tmp_path):
    run_many(100 + 4 * seed_of_turn(), 4, tmp_path)


@pytest.mark.soak
def test_histories_at_random(tmp_path):
    run_many(
        int.from_bytes(os.urandom(4), "big"), int(os.environ.get("LOGSTORE_HISTORIES", "1000")), tmp_path
    )
