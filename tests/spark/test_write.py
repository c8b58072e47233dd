"""Jobs and streams of Spark into topics, and what they are told when that cannot be."""

import json
import os

import pytest

import logstore
from logstore.spark.ledger import COMMITS_TOPIC, Ledger
from logstore.spark.staging import is_staged_name

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=3)
    return str(tmp_path / "store")


def write(frame, path, mode="append", **options):
    frame.write.format("logstore").mode(mode).options(path=path, **options).save()


def values_of(path, topic="t"):
    with logstore.open(path, read_only=True) as store:
        return sorted(bytes(record.value) for log in store[topic] for record in log)


def staged_left(path):
    return [name for name in os.listdir(path) if is_staged_name(name)]


def test_a_job_writes_all_rows_with_all_fields(spark, path):
    frame = spark.sql(
        "select cast(id as string) key, cast(concat('v', id) as binary) value, "
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers, "
        "timestamp_millis(1700000000000 + id) timestamp from range(0, 1000, 1, 4)"
    )
    write(frame, path, topic="t")
    with logstore.open(path, read_only=True) as store:
        topic = store["t"]
        found = {bytes(r.value): (n, r) for n, log in enumerate(topic) for r in log}
        assert len(found) == 1000
        number, record = found[b"v7"]
        assert record[1:] == (1700000000007, b"7", b"v7", (("h", b"x"),))
        assert number == topic.partition_for(b"7")
    assert staged_left(path) == []


def test_what_was_read_can_be_written(spark, path):
    write(spark.sql("select cast(id as string) value from range(100)"), path, topic="t")
    read = spark.read.format("logstore").options(path=path, subscribe="t", includeHeaders="true").load()
    write(read, path, topic="copy", partitions="3")
    assert values_of(path, "copy") == values_of(path)


def test_a_job_that_is_run_again_with_its_id_writes_nothing(spark, path):
    frame = spark.sql("select cast(id as string) value from range(100)")
    for _ in range(2):
        write(frame, path, topic="t", writeId="the job of monday")
    assert len(values_of(path)) == 100
    write(frame, path, topic="t")
    assert len(values_of(path)) == 200


def test_a_stream_goes_on_where_its_checkpoint_ends(spark, path, tmp_path):
    for count in (1, 2):
        query = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 50)
            .option("numPartitions", count)
            .load()
            .selectExpr("cast(value as string) value")
            .writeStream.format("logstore")
            .options(path=path, topic="t", checkpointLocation=str(tmp_path / "checkpoint"))
            .start()
        )
        wait_for_batches(query, path, 2 * count)
        query.stop()
    found = sorted(map(int, values_of(path)))
    assert len(found) >= 200
    assert found == list(range(len(found)))


def wait_for_batches(query, path, count):
    import time

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if query.exception() is not None:
            raise query.exception()
        with logstore.open(path, read_only=True) as store:
            done = [state.batch_id + 1 for state in Ledger(store).states.values()]
        if done and max(done) >= count:
            return
        time.sleep(0.05)
    pytest.fail("the query makes no progress")


def test_foreach_batch_is_exact_with_an_id_for_each_batch(spark, path, tmp_path):
    def twice(frame, batch_id):
        for _ in range(2):
            write(frame, path, topic="t", writeId=f"query/{batch_id}")

    source = tmp_path / "source"
    source.mkdir()
    (source / "a.json").write_text(json.dumps({"value": "v"}) + "\n")
    stream = spark.readStream.schema("value string").json(str(source))
    query = stream.writeStream.foreachBatch(twice).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert values_of(path) == [b"v"]


@pytest.mark.parametrize(
    ("columns", "mode", "options", "named"),
    [
        ("id value", "append", {"topic": "t"}, "column 'value' is bigint; it must be binary or string"),
        ("'v' value, id partition", "append", {"topic": "t"}, "column 'partition' is bigint; it must be int"),
        ("'v' value", "append", {}, "option topic is missing"),
        ("'v' value", "append", {"topic": "none"}, "there is no topic 'none'"),
        ("'v' value", "append", {"topic": "t", "tpoic": "t"}, "option tpoic"),
        ("'v' value", "overwrite", {"topic": "t"}, "cannot be overwritten"),
        ("'v' value, cast(null as string) topic", "append", {}, "column 'topic' is null in row 0"),
        ("'v' value, 7 partition", "append", {"topic": "t"}, "column 'partition' is 7 in row 0"),
    ],
)
def test_what_cannot_be_written_is_said(spark, path, columns, mode, options, named):
    frame = spark.sql(f"select {columns} from range(2)")
    with pytest.raises(Exception, match=named):
        write(frame, path, mode, **options)
    assert values_of(path) == []
    assert staged_left(path) == []


def test_complete_mode_is_refused(spark, path, tmp_path):
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    counted = stream.groupBy().count().selectExpr("cast(count as string) value")
    writer = counted.writeStream.format("logstore").outputMode("complete")
    query = writer.options(path=path, topic="t", checkpointLocation=str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="complete"):
        query.awaitTermination(60)
    query.stop()


def test_the_holder_of_the_store_is_named(spark, path):
    frame = spark.sql("select 'v' value")
    with logstore.open(path), pytest.raises(Exception, match=f"held by process {os.getpid()}"):
        write(frame, path, topic="t", lockTimeoutMs="100")
    assert staged_left(path) == []
    assert COMMITS_TOPIC not in logstore.open(path, read_only=True)
