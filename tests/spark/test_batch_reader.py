"""What a batch read gives, asked in this process: every record once, as logstore's own reader and as
Kafka's own consumer saw it, whatever wrote it."""

from __future__ import annotations

import logging
import os
import shutil

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    InvalidConfigError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UsageError,
)
from logstore.model import Isolation, ProducerIdentity
from tests.interop.fixtures import case_names, load_case
from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from logstore.spark import ranges
from logstore.spark.columns import COLUMNS
from tests.spark.reading import offsets, plan

KAFKAS_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
"""As Kafka's tools call them."""
SMALL = TopicConfig(segment_bytes=2_000, index_interval_bytes=300, file_delete_delay_ms=0, retention_ms=-1)


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def log(store):
    """100 records in 20 batches, in some segments."""
    made = store.create_topic("t", config=SMALL)[0]
    for first in range(0, 100, 5):
        made.extend([(b"k%d" % i, b"v%d" % i * 10, 1_000 + i) for i in range(first, first + 5)])
    return made


def row_of(topic, partition, record):
    """A record as a row: of ours, or as Kafka's consumer saw it."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms * 1000,
        "timestampType": KAFKAS_TYPES.get(record.timestamp_type, record.timestamp_type),
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


# What is read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", case_names())
def test_what_a_broker_wrote_is_read_as_its_own_consumer_saw_it(tmp_path, name, level):
    case = load_case(name)
    path = tmp_path / "log-dir"
    shutil.copytree(case.directory, path)
    topics = ",".join({each.topic for each in case.partitions})
    read = plan(path, subscribe=topics, includeHeaders="true", **{"kafka.isolation.level": level})
    expected = [
        row_of(each.topic, each.partition, record)
        for each in sorted(case.partitions, key=lambda each: (each.topic, each.partition))
        for record in (each.committed if level == "read_committed" else each.records)
    ]
    assert read.rows() == expected
    if name != "internal-topics":
        assert expected


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_comes_once_whatever_its_codec(store, codec):
    config = TopicConfig(
        compression_type=codec, segment_bytes=4_000_000, max_message_bytes=4_000_000, retention_ms=-1
    )
    topic = store.create_topic("t", partitions=2, config=config)
    for number in range(30):
        topic[0].extend([(None, b"x" * (i * number), 5, [("h", None)] * (i % 3)) for i in range(40)])
    topic[1].extend([(b"", None, 7), (b"big", b"y" * 3_000_000, 7)])
    expected = [row_of("t", number, record) for number in range(2) for record in topic[number]]
    assert plan(store.path, subscribe="t", includeHeaders="true").rows() == expected
    split = plan(store.path, subscribe="t", includeHeaders="true", minPartitions=9)
    assert len(split.tasks) > 2
    assert split.rows() == expected


def test_overlapping_aborted_transactions_are_left_out_where_the_first_to_begin_ends_last(store):
    log = store.create_topic("t", config=SMALL)[0]
    for producer, sequence in ((1, 0), (2, 0), (None, 0), (1, 1)):
        if producer is None:
            log.append_end_marker(2, 0, committed=False)
        else:
            log.extend([b"aborted"], producer=ProducerIdentity(producer, 0, sequence, transactional=True))
    log.extend([b"kept"])
    log.append_end_marker(1, 0, committed=False)
    for tasks in (1, 3):
        level = {"kafka.isolation.level": "read_committed", "minPartitions": tasks}
        assert [row["value"] for row in plan(store.path, subscribe="t", **level).rows()] == [b"kept"]


def test_transactions_are_left_out_where_they_were_aborted_or_are_open(store):
    log = store.create_topic("t", config=SMALL)[0]
    for producer, committed in ((1, True), (2, False), (3, True), (4, None)):
        log.extend([b"%d" % producer] * 50, producer=ProducerIdentity(producer, 0, 0, transactional=True))
        if committed is not None:
            log.append_end_marker(producer, 0, committed=committed)
    uncommitted = plan(store.path, subscribe="t")
    committed = plan(
        store.path, subscribe="t", minPartitions=3, **{"kafka.isolation.level": "read_committed"}
    )
    assert [row["value"] for row in uncommitted.rows()] == [b"1"] * 50 + [b"2"] * 50 + [b"3"] * 50 + [
        b"4"
    ] * 50
    assert [row["value"] for row in committed.rows()] == [b"1"] * 50 + [b"3"] * 50
    assert len(committed.tasks) == 3
    expected = [record.offset for record in log.read(isolation=Isolation.COMMITTED)]
    assert [row["offset"] for row in committed.rows()] == expected


def test_what_compaction_left_is_read(store):
    log = store.create_topic("t", config=TopicConfig(cleanup_policy="compact", segment_bytes=2_000))[0]
    log.extend([(b"%d" % (i % 7), b"%d" % i if i % 3 else None) for i in range(500)])
    log.roll()
    log.compact(now=True)
    assert offsets(store.path, subscribe="t") == [record.offset for record in log]


def test_topics_that_are_empty_have_no_task(store, log):
    store.create_topic("empty", partitions=3)
    read = plan(store.path, subscribe="empty,t")
    assert read.spans() == [("t", 0, 0, 100)]
    assert plan(store.path, subscribe="empty").tasks == []
    reader = plan(store.path, subscribe="t").tasks[0].reader
    assert list(reader.read(None)) == []  # Spark asks once all the same


def test_the_columns_are_those_that_the_schema_names_in_its_order(store, log):
    for names in (
        ["value"],
        ["headers", "timestampType"],
        ["topic"],
        ["partition", "key", "offset"],
        list(COLUMNS),
    ):
        schema = StructType([StructField(name, COLUMNS[name]) for name in names])
        rows = plan(store.path, schema, subscribe="t").rows()
        expected = [row_of("t", 0, record) for record in log]
        assert rows == [{name: row[name] for name in names} for row in expected]


def test_columns_that_are_never_null_may_be_asked_for_as_such(store, log):
    schema = StructType([StructField("offset", LongType(), nullable=False)])
    assert plan(store.path, schema, subscribe="t").table().schema.field("offset").nullable is False
    with pytest.raises(UsageError, match="'key' is declared as not null"):
        plan(store.path, StructType([StructField("key", COLUMNS["key"], nullable=False)]), subscribe="t")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([("colour", LongType())], "there is no column 'colour'; the columns are key, value, topic"),
        ([("value", StringType())], "'value' is declared as string; it is binary"),
        ([("offset", LongType()), ("offset", LongType())], "'offset' is named twice"),
        ([], "has no columns"),
    ],
)
def test_other_columns_are_refused(store, log, schema, message):
    with pytest.raises(UsageError, match=message):
        plan(store.path, StructType([StructField(*field) for field in schema]), subscribe="t")


def test_headers_come_where_they_are_asked_for(store, log):
    assert "headers" not in plan(store.path, subscribe="t").schema.fieldNames()
    assert "headers" in plan(store.path, subscribe="t", includeheaders="TRUE").schema.fieldNames()


def test_a_timestamp_that_spark_cannot_hold_is_an_error(store):
    log = store.create_topic("t", config=TopicConfig(message_timestamp_after_max_ms=2**63 - 1))[0]
    log.append(b"v", timestamp_ms=2**62)
    log.flush()
    assert (
        offsets(store.path, subscribe="t", endingOffsets='{"t": {"0": 0}}', startingOffsets='{"t": {"0": 0}}')
        == []
    )
    with pytest.raises(
        UsageError, match=r"^offset 0 of t-0 has a timestamp of 4611686018427387904 ms.*outside"
    ):
        plan(store.path, subscribe="t").rows()


def test_which_record_has_a_timestamp_that_spark_cannot_hold(store):
    """Nanoseconds taken for milliseconds: the one record is named, and the others can be read without it."""
    log = store.create_topic(
        "t", config=TopicConfig(message_timestamp_after_max_ms=2**63 - 1, message_timestamp_unit_check=False)
    )[0]
    log.append(b"a", timestamp_ms=5)
    log.append(b"b", timestamp_ms=1_700_000_000_000_000_000)
    log.flush()
    with pytest.raises(UsageError, match=r"^offset 1 of t-0 .*schema"):
        plan(store.path, subscribe="t").rows()
    only_time = StructType([StructField("timestamp", TimestampType())])
    with pytest.raises(UsageError, match=r"^t-0 has a timestamp of 1700000000000000000 ms"):
        plan(store.path, only_time, subscribe="t").rows()
    only_values = StructType([StructField("value", BinaryType())])
    assert plan(store.path, only_values, subscribe="t").rows() == [{"value": b"a"}, {"value": b"b"}]


# Which partitions -------------------------------------------------------------------------------------------


def test_topics_are_named_or_fit_a_pattern_or_partitions_are_assigned(store):
    for name in ("a", "ab", "b"):
        topic = store.create_topic(name, partitions=2)
        topic[0].extend([b"0"])
        topic[1].extend([b"1"])
    found = {
        "subscribe": ("a, b", [("a", 0), ("a", 1), ("b", 0), ("b", 1)]),
        "subscribePattern": ("a.?", [("a", 0), ("a", 1), ("ab", 0), ("ab", 1)]),
        "assign": ('{"b": [1], "a": [0]}', [("a", 0), ("b", 1)]),
    }
    for option, (value, expected) in found.items():
        assert [span[:2] for span in plan(store.path, **{option: value}).spans()] == expected
    assert plan(store.path, subscribePattern="nothing").tasks == []


def test_a_pattern_does_not_fit_what_others_keep_for_themselves(store):
    store.create_topic("__spark_commits").extend([b"x"])
    store.create_topic("__share_group_state").extend([b"x"])
    assert plan(store.path, subscribePattern="__.*").tasks == []
    assert len(plan(store.path, subscribe="__spark_commits").tasks) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t,gone"}, "there is no topic 'gone' in /"),
        ({"assign": '{"t": [0, 3]}'}, "has 1 partitions; there is no 3"),
    ],
)
def test_a_topic_that_is_not_there_is_refused(store, log, options, message):
    with pytest.raises(UnknownTopicError, match=message):
        plan(store.path, **options)


# Which offsets ----------------------------------------------------------------------------------------------

AT = '{"t": {"0": %d}}'


@pytest.mark.parametrize(
    ("options", "start", "stop"),
    [
        ({}, 0, 100),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 0, 100),
        ({"startingOffsets": AT % 10, "endingOffsets": AT % 90}, 10, 90),
        ({"startingOffsets": AT % -2, "endingOffsets": AT % -1}, 0, 100),
        ({"startingOffsets": AT % 33, "endingOffsets": AT % 33}, 33, 33),
        ({"startingTimestamp": "1010", "endingTimestamp": "1090"}, 10, 90),
        ({"startingOffsetsByTimestamp": AT % 1010, "endingOffsetsByTimestamp": AT % 1090}, 10, 90),
        ({"startingOffsetsByTimestamp": AT % 0, "endingTimestamp": "99999"}, 0, 100),
        (
            {"startingTimestamp": "1050", "startingOffsetsByTimestamp": AT % 1, "startingOffsets": AT % 2},
            50,
            100,
        ),
        ({"startingOffsetsByTimestamp": AT % 1050, "startingOffsets": AT % 2}, 50, 100),
        ({"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}, 100, 100),
    ],
)
def test_a_read_begins_and_ends_where_the_options_say(store, log, options, start, stop):
    assert offsets(store.path, subscribe="t", **options) == list(range(start, stop))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": AT % 101},
            "startingOffsets: offset 101 of t-0 does not exist: .* has 20 to 100",
        ),
        ({"startingOffsets": AT % 19}, "startingOffsets: offset 19 of t-0 does not exist"),
        ({"endingOffsets": AT % 200}, "endingOffsets: offset 200 of t-0 does not exist"),
        (
            {"startingOffsets": AT % 50, "endingOffsets": AT % 49},
            "begins at offset 50 and ends before it, at 49",
        ),
        ({"startingTimestamp": "5000"}, "t-0 has no record at or after 5000 ms"),
    ],
)
def test_an_offset_out_of_range_is_refused(store, log, options, message):
    log.delete_before(20)
    store.checkpoint()
    with pytest.raises(OffsetOutOfRangeError, match=message):
        plan(store.path, subscribe="t", **options)


def test_without_fail_on_data_loss_what_is_there_is_read(store, log):
    log.delete_before(20)
    store.checkpoint()
    found = offsets(
        store.path, subscribe="t", failOnDataLoss="false", startingOffsets=AT % 3, endingOffsets=AT % 500
    )
    assert found == list(range(20, 100))


@pytest.mark.parametrize("ends", [{}, {"endingOffsets": AT % 100}, {"endingOffsets": AT % 600}])
def test_without_fail_on_data_loss_a_start_behind_the_end_gives_nothing(store, log, ends, caplog):
    assert offsets(store.path, subscribe="t", failOnDataLoss="false", startingOffsets=AT % 500, **ends) == []
    assert "startingOffsets: offset 500 of t-0 does not exist" in caplog.text


# Options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribes": "t"}, "option subscribes: there is no option of this name"),
        (
            {"subscribe": "t", "maxOffsetsPerTrigger": "5"},
            "maxOffsetsPerTrigger is '5': it is for spark.readStream",
        ),
        ({}, "give exactly one of the options subscribe, subscribePattern and assign; there is none"),
        ({"subscribe": "t", "assign": "{}"}, "there is subscribe and assign"),
        ({"subscribe": "t,,u"}, "option subscribe is 't,,u': it must be topic names"),
        ({"subscribePattern": "("}, "option subscribePattern is '\\(': it is not a regular expression"),
        ({"assign": "[1]"}, "option assign is '\\[1\\]': it must be JSON like"),
        ({"assign": '{"t": ["0"]}'}, "it must be JSON like"),
        ({"subscribe": "t", "startingOffsets": "{oops"}, "option startingOffsets is '{oops': it is not JSON"),
        ({"subscribe": "t", "startingOffsets": "5"}, "it must be earliest, latest or JSON like"),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'},
            "it must be earliest, latest or JSON like",
        ),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": 1.5}}'},
            "it must be earliest, latest or JSON like",
        ),
        ({"subscribe": "t", "startingOffsets": '{"t": {"1": 0}}'}, "partition t-1 is not read"),
        (
            {"subscribe": "t", "startingOffsets": "{}"},
            "partition t-0 is missing; name all partitions that are read",
        ),
        ({"subscribe": "t", "startingOffsets": "latest"}, "option startingOffsets is 'latest': a batch read"),
        ({"subscribe": "t", "startingOffsets": AT % -1}, "a batch read of t-0, which has -1, would be empty"),
        ({"assign": '{"t": [0], "t": [1]}'}, "'t' comes twice in it"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "option endingOffsets is 'earliest': a batch read"),
        (
            {"subscribe": "t", "startingTimestamp": "noon"},
            "startingTimestamp is 'noon': it must be a whole number",
        ),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "x"}, "it must be one of error, latest"),
        (
            {"subscribe": "t", "failOnDataLoss": "no"},
            "option failOnDataLoss is 'no': it must be true or false",
        ),
        ({"subscribe": "t", "includeHeaders": "1"}, "option includeHeaders is '1': it must be true or false"),
        ({"subscribe": "t", "minPartitions": "0"}, "option minPartitions is '0': it must be a whole number"),
        ({"subscribe": "t", "maxRecordsPerPartition": "x"}, "option maxRecordsPerPartition is 'x'"),
        (
            {"subscribe": "t", "kafka.isolation.level": "high"},
            "kafka.isolation.level is 'high': it must be one of",
        ),
        (
            {"subscribe": "t", "onCorruptBatch": "ignore"},
            "option onCorruptBatch is 'ignore': it must be one of",
        ),
        ({"subscribe": "t", "kafka.bootstrap.servers": "x:1"}, "give one of the options path and kafka.boot"),
        ({"subscribe": "t", "kafka.client.id": "x"}, "kafka.client.id is 'x': it is for reads from brokers"),
        ({"subscribe": "t", "kafka.acks": "all"}, "option kafka.acks: there is no option of this name"),
        ({"subscribe": "t", "paths": '["a"]'}, "option paths is .*: a store is one directory"),
        ({"subscribe": "t", "path": ""}, "option path is missing"),
        ({"subscribe": "t", "path": "hdfs://x/y"}, "option path is 'hdfs://x/y': a store is a directory"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(store, log, options, message):
    with pytest.raises(InvalidConfigError, match=message):
        plan(**{"path": store.path, **options})
    assert "SPARK_HIDE_TRACEBACK" not in os.environ  # only a process of Spark's, which ends with the error


def test_a_path_that_is_no_store_is_refused(tmp_path):
    with pytest.raises(UsageError, match=str(tmp_path / "nothing")):
        plan(tmp_path / "nothing", subscribe="t")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=str(tmp_path / "file")):
        plan(tmp_path / "file", subscribe="t")


def test_a_path_may_be_a_file_url_and_relative(store, log, monkeypatch):
    assert offsets(f"file://{store.path}", subscribe="t") == list(range(100))
    monkeypatch.chdir(os.path.dirname(store.path))
    task = plan("store", subscribe="t").tasks[0]
    monkeypatch.chdir("/")  # as an executor's working directory is another one
    assert sum(batch.num_rows for batch in task.run()) == 100


# How it is divided ------------------------------------------------------------------------------------------


def test_one_task_for_each_partition_unless_more_are_wanted(store, log):
    assert plan(store.path, subscribe="t").spans() == [("t", 0, 0, 100)]
    wanted = plan(store.path, subscribe="t", minPartitions=5)
    assert len(wanted.tasks) == 5
    assert [row["offset"] for row in wanted.rows()] == list(range(100))
    most = plan(store.path, subscribe="t", maxRecordsPerPartition=7)
    assert all(stop - start <= 7 for *_, start, stop in most.spans())
    assert [row["offset"] for row in most.rows()] == list(range(100))


def test_of_very_many_partitions_small_neighbours_share_tasks(store, monkeypatch):
    """1 s."""
    monkeypatch.setattr(ranges, "_SMALL", 400)
    topic = store.create_topic("t", partitions=200)
    for number, log in enumerate(topic):
        log.extend([b"%d" % number] * (150 if number % 10 else 1_000))
    by_itself = plan(store.path, subscribe="t", minPartitions=1)
    assert [len(task.partition.ranges) for task in by_itself.tasks] == [1] * 200
    shared = plan(store.path, subscribe="t")
    assert (shared.spans(), shared.rows()) == (by_itself.spans(), by_itself.rows())
    held = [[span.stop - span.start for span, _ in task.partition.ranges] for task in shared.tasks]
    assert held == [[1_000], *[[150, 150]] * 4, [150]] * 20
    limited = plan(store.path, subscribe="t", maxRecordsPerPartition=300)
    counts = [[span.stop - span.start for span, _ in task.partition.ranges] for task in limited.tasks]
    assert max(map(sum, counts)) == max(map(len, counts)) * 150 == 300
    assert limited.rows() == by_itself.rows()
    monkeypatch.undo()
    assert [len(task.partition.ranges) for task in plan(store.path, subscribe="t").tasks] == [3] * 66 + [2]


def test_so_do_the_tables_of_very_many(store):
    """1 s."""
    topic = store.create_topic("t", partitions=130)
    for number, log in enumerate(topic):
        log.extend([(b"k", b"before"), (b"k", b"%d" % number)])
    table = plan(store.path, subscribe="t", latestByKey="true")
    assert [len(task.partition.partitions) for task in table.tasks] == [2] * 65
    assert [(row["partition"], row["value"]) for row in table.rows()] == [(n, b"%d" % n) for n in range(130)]


def test_tasks_are_divided_among_partitions_by_their_records(store):
    topic = store.create_topic("t", partitions=3, config=SMALL)
    for number, count in enumerate((20, 0, 60)):
        for _ in range(count):
            topic[number].extend([b"x" * 50] * 5)
    spans = plan(store.path, subscribe="t", minPartitions=8).spans()
    assert [span[1] for span in spans] == [0, 0, 2, 2, 2, 2, 2, 2]


# Meanwhile --------------------------------------------------------------------------------------------------


def test_a_read_is_of_what_was_there_when_it_was_planned(store, log):
    read = plan(store.path, subscribe="t")
    log.extend([b"more"] * 100)
    assert [row["offset"] for row in read.rows()] == list(range(100))
    assert [row["offset"] for row in read.rows()] == list(range(100))
    assert offsets(store.path, subscribe="t") == list(range(200))


def test_what_retention_takes_after_planning_fails_the_task_or_is_left_out(store, log, caplog):
    failing = plan(store.path, subscribe="t")
    lenient = plan(store.path, subscribe="t", failOnDataLoss="false")
    log.delete_before(50)
    store.checkpoint()
    store.enforce_retention()
    with pytest.raises(
        OffsetOutOfRangeError, match=r"t-0 in .*: offsets 0 to 99 existed when the read was planned"
    ):
        failing.rows()
    with caplog.at_level(logging.WARNING, "logstore"):
        assert [row["offset"] for row in lenient.rows()] == list(range(50, 100))
    assert "offsets 0 to 99 existed when the read was planned" in caplog.text


def test_a_topic_that_is_deleted_after_planning_fails_the_task_or_is_left_out(store, log, caplog):
    failing = plan(store.path, subscribe="t")
    lenient = plan(store.path, subscribe="t", failOnDataLoss="false")
    store.delete_topic("t")
    store.run_background()
    with pytest.raises(UnknownTopicError, match=r"t-0 in .*: offsets 0 to 99 existed"):
        failing.rows()
    with caplog.at_level(logging.WARNING, "logstore"):
        assert lenient.rows() == []
    assert "offsets 0 to 99 existed when the read was planned" in caplog.text


def test_a_log_that_is_cut_after_planning_fails_the_task_or_what_is_left_is_read(store, log):
    failing = plan(store.path, subscribe="t")
    lenient = plan(store.path, subscribe="t", failOnDataLoss="false")
    log.truncate_to(95)
    store.checkpoint()
    with pytest.raises(OffsetOutOfRangeError, match="existed when the read was planned"):
        failing.rows()
    assert [row["offset"] for row in lenient.rows()] == list(range(log.log_end_offset))


# Damage -----------------------------------------------------------------------------------------------------


def damage(path, offset):
    """Change a byte of the value of the record at an offset; returns the file's path."""
    for name in sorted(os.listdir(f"{path}/t-0"), reverse=True):
        if name.endswith(".log") and int(name[:-4]) <= offset:
            with open(f"{path}/t-0/{name}", "r+b") as file:
                position = file.read().index(b"v%d" % offset * 10)
                file.seek(position)
                file.write(b"?")
            return f"{path}/t-0/{name}"
    raise AssertionError(offset)


@pytest.mark.damaged
def test_a_damaged_batch_fails_the_task_and_is_named(store, log):
    path = damage(store.path, 42)
    with pytest.raises(CorruptionError) as caught:
        plan(store.path, subscribe="t").rows()
    text = str(caught.value)
    assert "topic 't', partition 0, offset 40: checksum" in text
    assert path in text
    assert "onCorruptBatch=skip" in text


@pytest.mark.damaged
def test_damaged_batches_are_counted_and_left_out_where_that_is_asked_for(store, log, caplog):
    for offset in (0, 42, 99):
        damage(store.path, offset)
    store.close()  # so that the checkpoints know that the end was longer
    with caplog.at_level(logging.WARNING, "logstore"):
        found = offsets(store.path, subscribe="t", onCorruptBatch="skip")
    assert found == [*range(5, 40), *range(45, 95)]
    lines = [record.getMessage() for record in caplog.records]
    assert any("t-0 is damaged; offsets 0 to 4 are left out: checksum" in line for line in lines)
    assert any("t-0 is damaged; offsets 40 to 44 are left out: checksum" in line for line in lines)
    assert any(
        "t-0: data up to offset 100 was durable; 95 is the last that can be read" in line for line in lines
    )
    assert any("2 places were left out, up to 10 records in all" in line for line in lines)


@pytest.mark.damaged
def test_what_is_not_read_may_be_damaged(store, log):
    damage(store.path, 42)
    assert offsets(store.path, subscribe="t", startingOffsets=AT % 45) == list(range(45, 100))


# Bounded ----------------------------------------------------------------------------------------------------


def test_batches_are_of_some_megabytes_whatever_the_size_of_the_log(store):
    log = store.create_topic("t")[0]
    for _ in range(300):
        log.extend([b"x" * 100] * 1_000)
    batches = plan(store.path, subscribe="t").tasks[0].run()
    assert sum(batch.num_rows for batch in batches) == 300_000
    sizes = [batch.nbytes for batch in batches[:-1]]
    assert max(sizes) <= 8 << 20
    assert min(sizes) >= 1 << 20
