import pytest

import logstore
from logstore.model import ProducerIdentity

pytestmark = pytest.mark.slow
COMPACTED = logstore.TopicConfig(cleanup_policy="compact", segment_bytes=4096)


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store


def table_of(frame):
    return {bytes(row.key): bytes(row.value) for row in frame.collect()}


# A topic as its current table -------------------------------------------------------------------------------


def test_the_table_is_that_of_the_topic(spark, store):
    from logstore.spark import current_table

    topic = store.create_topic("t", partitions=3, config=COMPACTED)
    topic.extend([(b"%d" % (number % 50), b"v%d" % number) for number in range(1000)])
    topic.extend([(b"3", None), (b"999", None)])
    expected = {record.key: record for view in topic.latest() for record in view}
    frame = current_table(spark, store.path, "t")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp"]
    found = {bytes(row.key): row for row in frame.collect()}
    assert found.keys() == expected.keys()
    assert len(found) == 49
    for key, row in found.items():
        assert (bytes(row.value), row.offset) == (expected[key].value, expected[key].offset)
        assert row.partition == topic.partition_for(key)
        assert row.timestamp.timestamp() * 1000 == pytest.approx(expected[key].timestamp_ms)


def test_each_job_sees_the_table_as_it_is_then(spark, store):
    from logstore.spark import current_table

    topic = store.create_topic("t", config=COMPACTED)
    topic.extend([(b"a", b"1"), (b"b", b"1")])
    frame = current_table(spark, store.path, "t")
    assert table_of(frame) == {b"a": b"1", b"b": b"1"}
    topic.extend([(b"a", b"2"), (b"b", None)])
    topic.compact(now=True)
    assert table_of(frame) == {b"a": b"2"}


def test_aborted_records_are_not_in_the_table(spark, store):
    from logstore.spark import current_table

    log = store.create_topic("t", config=COMPACTED)[0]
    log.extend([(b"a", b"1")])
    log.extend([(b"a", b"2")], producer=ProducerIdentity(7, 0, 0, transactional=True))
    log.append_end_marker(7, 0, committed=False)
    assert table_of(current_table(spark, store.path, "t")) == {b"a": b"1"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets.*a table"),
        ({"minPartitions": "4"}, "option minPartitions.*a table"),
    ],
)
def test_what_makes_no_sense_for_a_table_is_refused(spark, store, options, reason):
    store.create_topic("t")
    read = spark.read.format("logstore").options(path=store.path, subscribe="t", latestByKey="true")
    with pytest.raises(Exception, match=reason):
        read.options(**options).load().collect()


def test_a_table_has_no_type_of_timestamps(spark, store):
    store.create_topic("t")
    read = spark.read.format("logstore").options(path=store.path, subscribe="t", latestByKey="true")
    with pytest.raises(Exception, match="has no column 'timestampType'"):
        read.schema("value binary, timestampType int").load().collect()


# What is new ------------------------------------------------------------------------------------------------


def test_each_record_is_new_once(spark, store, tmp_path):
    from logstore.spark import ParquetOutput, new_records

    topic = store.create_topic("t", partitions=2)
    output = ParquetOutput(tmp_path / "out")

    def step():
        new = new_records(spark, output, path=store.path, topics=["t"])
        if not new.is_empty:
            output.commit(new.records.select("value"), new.offsets, after=new.after)

    step()
    assert output.last() is None
    values = []
    for number in range(3):
        more = [b"%d" % (10 * number + each) for each in range(10)]
        topic.extend([(value, value) for value in more])
        values += more
        step()
        step()
    assert output.last().number == 2
    assert sorted(bytes(row.value) for row in spark.read.parquet(output.path).collect()) == sorted(values)
    assert output.offsets == {"t": {log.partition.partition: log.log_end_offset for log in topic}}


def test_what_comes_behind_the_end_waits_for_the_next(spark, store, tmp_path):
    from logstore.spark import ParquetOutput, new_records

    topic = store.create_topic("t")
    topic.extend([b"a"])
    new = new_records(spark, ParquetOutput(tmp_path / "out"), path=store.path, topics=["t"])
    topic.extend([b"b"])
    assert [bytes(row.value) for row in new.records.collect()] == [b"a"]
    assert new.offsets == {"t": {0: 1}}
    assert new.after == -1


def test_the_offsets_of_other_topics_stay(spark, store, tmp_path):
    from logstore.spark import ParquetOutput, new_records

    output = ParquetOutput(tmp_path / "out")
    for name in ("a", "b"):
        store.create_topic(name).extend([b"x"])
        new = new_records(spark, output, path=store.path, topics=[name])
        output.commit(new.records.select("topic"), new.offsets, after=new.after)
    assert output.offsets == {"a": {0: 1}, "b": {0: 1}}
    assert new_records(spark, output, path=store.path, topics=["a", "b"]).is_empty
