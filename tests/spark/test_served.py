"""Spark and a store that is served: Spark's own Kafka connector reads and writes it as it does a broker's
topics, and ``format("logstore")`` with ``kafka.bootstrap.servers`` reads what it reads in the directory.

The store is listened to in this process, or served by ``logstore serve`` in another. What a read through
brokers answers in each case is tested without a session in ``test_broker_reads`` and ``test_stream_reader``.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

import logstore
from tests.pages import python_of, run_blocks
from tests.rotation import rotating
from tests.spark import connector

pytestmark = pytest.mark.slow

SERVERS = "kafka.bootstrap.servers"
COUNT = 500


@contextlib.contextmanager
def listening(path):
    with logstore.open(path) as store, store.listen() as listener:
        yield listener.address


@contextlib.contextmanager
def serving(path):
    command = [sys.executable, "-m", "logstore", "serve", str(path), "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        try:
            yield json.loads(served.stdout.readline())["address"]
        finally:
            served.send_signal(signal.SIGTERM)
            assert served.wait(30) == 0


def fill(address, topic, numbers):
    """Records with keys, headers and tombstones, spread over three partitions."""
    with logstore.connect(address) as store:
        store.require_topic(topic, partitions=3)
        with store.producer() as producer:
            for number in numbers:
                value = None if number % 50 == 7 else b"value %d" % number
                headers = [("number", b"%d" % number), ("none", None)] if number % 3 == 0 else []
                producer.send(topic, value, key=b"key %d" % (number % 20), headers=headers)


def rows_of(frame):
    rows = (row.asDict(recursive=True) for row in frame.collect())
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def run_to_the_end(stream, sink):
    """One run of a query; returns when it has read what is there."""
    query = sink(stream.writeStream).trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
        assert query.exception() is None
    finally:
        query.stop()


# Our source -------------------------------------------------------------------------------------------------


def test_rows_of_another_process_are_those_of_its_directory(spark, tmp_path):
    """6 s."""
    path = tmp_path / "store"
    with serving(path) as address:
        fill(address, "t", range(COUNT))
        options = {"subscribe": "t", "includeHeaders": "true", "minPartitions": "5"}
        reader = spark.read.format("logstore").options(**options)
        there = reader.option(SERVERS, address).load()
        reader = spark.read.format("logstore").options(**options)
        here = reader.option("path", str(path)).load()
        assert there.schema == here.schema
        assert there.rdd.getNumPartitions() >= 5
        found = rows_of(there)
        assert len(found) == COUNT
        assert found == rows_of(here)


def test_a_stream_goes_on_where_it_was_whatever_it_reads_from(spark, tmp_path):
    """The same checkpoint, first of the directory, then of the process that serves it, and back. 8 s."""
    path, batches = tmp_path / "store", []

    def run(place):
        stream = spark.readStream.format("logstore").options(
            subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="150", **place
        )
        run_to_the_end(
            stream.load(),
            lambda sink: sink.foreachBatch(
                lambda batch, number: batches.append((number, rows_of(batch)))
            ).option("checkpointLocation", str(tmp_path / "checkpoint")),
        )

    with serving(path) as address:
        for number, place in enumerate(({"path": str(path)}, {SERVERS: address}, {"path": str(path)})):
            fill(address, "t", range(200 * number, 200 * (number + 1)))
            run(place)
        with logstore.open(path, read_only=True) as store:
            expected = [record.offset for log in store["t"] for record in log]
    assert [number for number, _ in batches] == list(range(6))
    found = [row for _, rows in batches for row in rows]
    assert sorted(row["offset"] for row in found) == sorted(expected)
    assert len({(row["partition"], row["offset"]) for row in found}) == len(found) == 600


# Spark's own connector --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_connector(spark):
    reason = connector.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    for jar in connector.jars().split(","):
        spark.sql(f"ADD JAR '{jar}'")
    return spark


@pytest.mark.interop
@pytest.mark.parametrize("served", rotating([listening, serving], 2))
def test_the_connector_reads_and_writes_in_batches_and_streams(with_connector, tmp_path, served):
    """A batch write, a batch read; then a stream that copies one topic into another, in two runs with one
    checkpoint. 15 s."""
    spark, path = with_connector, tmp_path / "store"
    with served(path) as address:
        with logstore.connect(address) as store:
            for topic in ("t", "copy"):
                store.create_topic(topic, partitions=3)
        written = [(f"key {n % 20}", f"value {n}", [("number", str(n).encode())]) for n in range(COUNT)]
        schema = "key string, value string, headers array<struct<key: string, value: binary>>"
        frame = spark.createDataFrame(written, schema)
        kafka = {SERVERS: address, "includeHeaders": "true"}
        frame.write.format("kafka").options(**kafka, topic="t").save()
        theirs = rows_of(spark.read.format("kafka").options(**kafka, subscribe="t").load())
        ours = rows_of(spark.read.format("logstore").options(**kafka, subscribe="t").load())
        assert theirs == ours
        assert sorted((row["key"].decode(), row["value"].decode()) for row in theirs) == sorted(
            (key, value) for key, value, _ in written
        )

        def copy():
            stream = spark.readStream.format("kafka").options(
                **kafka, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="200"
            )
            run_to_the_end(
                stream.load().select("key", "value", "headers"),
                lambda sink: (
                    sink.format("kafka")
                    .options(**kafka, topic="copy")
                    .option("checkpointLocation", str(tmp_path / "checkpoint"))
                ),
            )

        copy()
        fill(address, "t", range(100))
        copy()
    with logstore.open(path) as store:
        records = {name: [record[2:] for log in store[name] for record in log] for name in ("t", "copy")}
        assert len(records["t"]) == COUNT + 100
        assert sorted(map(repr, records["copy"])) == sorted(map(repr, records["t"]))


@pytest.mark.interop
def test_the_page_reads_and_writes_through_brokers(with_connector, tmp_path):
    """The package of the example is in the session already. 6 s."""
    blocks = python_of("docs/spark.md", "Brokers")
    assert connector.CONNECTOR_VERSION in blocks[1]
    with listening(tmp_path / "store") as address:
        fill(address, "orders", range(COUNT))
        with logstore.connect(address) as store:
            store.create_topic("copy")
        names = {"spark": with_connector}
        printed = run_blocks([block.replace("127.0.0.1:9092", address) for block in blocks], names)
        assert printed == f"{COUNT}\n"
        with logstore.connect(address) as store, store.consumer("copy") as consumer:
            assert len(list(consumer.drain())) == COUNT
