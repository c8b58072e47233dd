"""Streams through Spark itself: its checkpoint, its triggers, its errors. What the reader answers in each
case is tested without a session in ``test_stream_reader.py``."""

import json

import pytest

import logstore

pytestmark = pytest.mark.slow


class Query:
    """Runs of one query to the end of what is there; each batch goes to a list."""

    def __init__(self, spark, path, store):
        self.spark, self.store = spark, store
        self.checkpoint = path / "checkpoint"
        self.batches = []
        self.progress = []

    def run(self, **options):
        """The values of each batch that the run put out."""
        given = {"path": self.store.path, "subscribe": "a", "startingOffsets": "earliest", **options}
        frame = self.spark.readStream.format("logstore").options(**given).schema("value binary").load()
        batches = {}

        def take(batch, number):
            batches[number] = sorted(bytes(row.value).decode() for row in batch.collect())

        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(120)
            self.progress = query.recentProgress
        finally:
            query.stop()
        return list(batches.values())

    def offset_file(self, number):
        return self.checkpoint / "offsets" / str(number)


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store


@pytest.fixture
def query(spark, tmp_path, store):
    return Query(spark, tmp_path, store)


def fill(topic, *values, partition=0):
    topic[partition].extend([value.encode() for value in values], flush=True)


def test_stream_goes_on_over_runs_with_limits_new_partitions_and_other_topics(store, query):
    fill(store.create_topic("a", partitions=2), *"abcdef")
    fill(store["a"], *"xyz", partition=1)
    assert query.run(maxOffsetsPerTrigger="3") == [["a", "b", "x"], ["c", "d", "y"], ["e", "f", "z"]]
    ends = query.progress[-1]["sources"][0]
    assert json.loads(ends["latestOffset"])["topics"]["a"]["end"] == {"0": 6, "1": 3}
    store["a"].add_partitions(3)
    fill(store["a"], "new partition", partition=2)
    fill(store.create_topic("b"), "new topic")
    assert query.run(subscribe="a,b") == [["new partition", "new topic"]]
    assert query.run(subscribe="a,b") == []


def test_stream_fails_on_lost_records_or_goes_on(store, query):
    fill(store.create_topic("a"), "read")
    assert query.run() == [["read"]]
    fill(store["a"], *"abc")
    store["a"][0].delete_before(3)
    with pytest.raises(
        Exception, match="a-0: the records at offsets 1 to 2 were deleted before they were read"
    ):
        query.run()
    assert query.run(failOnDataLoss="false") == [["c"]]


def test_checkpoint_that_is_damaged_is_an_error_that_says_so(store, query):
    fill(store.create_topic("a"), "read")
    query.run()
    lines = query.offset_file(0).read_text().splitlines()
    lines[-1] = '{"a": {"0": 17}}'
    query.offset_file(0).write_text("\n".join(lines))
    query.offset_file(0).with_name(".0.crc").unlink()
    with pytest.raises(Exception, match="was the checkpoint made by another source"):
        query.run()


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}, {"processingTime": "1 second"}])
def test_a_bad_value_of_an_option_is_named(spark, store, tmp_path, trigger):
    """Spark 4.3.0 said that the variable "reader" had no value."""
    options = {"path": store.path, "subscribe": "a", "maxOffsetsPerTrigger": "0"}
    stream = spark.readStream.format("logstore").options(**options).load().writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger).start()
    try:
        with pytest.raises(Exception, match="option maxOffsetsPerTrigger is '0': it must be a whole number"):
            query.awaitTermination(60)
    finally:
        query.stop()
