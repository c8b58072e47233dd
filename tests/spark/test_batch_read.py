"""``spark.read``: the rows are those that logstore's own reader gives."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException

import logstore
from logstore.config import TopicConfig

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as opened:
        yield opened


def read(spark, store, **options):
    return spark.read.format("logstore").options(path=store.path, **options).load()


@pytest.mark.every_turn
def test_every_record_comes_once_and_as_it_is(spark, store):
    topic = store.require_topic("orders", partitions=2, config=TopicConfig(retention_ms=-1))
    topic[0].extend([(b"k%d" % i, b"v" * i, 1000 + i, [("h", b"x")] * (i % 2)) for i in range(10)])
    topic[1].extend([(None, None, 7, [("é", None)])])
    rows = read(spark, store, subscribe="orders", includeHeaders="true").collect()
    found = sorted((row.partition, row.offset, row.key, row.value, row.headers) for row in rows)
    assert found == [
        (number, record.offset, record.key, record.value, list(record.headers) or None)
        for number, log in enumerate(topic)
        for record in log
    ]


def test_spark_finds_the_source_by_itself(spark, store):
    """Through ``pyspark_logstore``: in a session of its own, where nobody has registered it."""
    topic = store.create_topic("t", partitions=2)
    topic[1].extend([b"x"] * 7)
    session = spark.newSession()
    assert session.read.format("logstore").option("subscribe", "t").load(store.path).count() == 7


def test_a_frame_that_is_used_twice_is_filtered_each_time_by_itself(spark, store):
    """With a source that takes filters Spark 4.3.0 gives the first use's rows to the second use as well."""
    topic = store.create_topic("t", partitions=2)
    for number in range(2):
        topic[number].extend([b"%d" % number] * 5)
    frame = read(spark, store, subscribe="t")
    assert frame.where("partition = 1").count() == 5
    assert frame.count() == 10
    both = frame.where("partition = 0").union(frame.where("partition = 1"))
    assert sorted(row.value for row in both.collect()) == [b"0"] * 5 + [b"1"] * 5
    frame.createOrReplaceTempView("twice")
    joined = spark.sql(
        "SELECT count(*) FROM twice a JOIN twice b USING (offset) WHERE a.partition < b.partition"
    )
    assert joined.first()[0] == 5


def test_a_frame_is_what_the_log_held_when_it_was_first_used(spark, store):
    log = store.create_topic("t")[0]
    log.extend([b"x"] * 10)
    frame = read(spark, store, subscribe="t")
    assert frame.count() == 10
    log.extend([b"y"] * 10)
    assert frame.count() == 10
    assert read(spark, store, subscribe="t").count() == 20


def test_a_schema_names_the_columns_that_are_read(spark, store):
    store.create_topic("t")[0].extend([b"abc"] * 10)
    reader = spark.read.format("logstore").options(path=store.path, subscribe="t")
    frame = reader.schema("offset long, value binary, topic string").load()
    assert frame.selectExpr("sum(offset)", "sum(length(value))", "max(topic)").first()[:] == (45, 30, "t")


def test_a_topic_without_records_is_an_empty_frame(spark, store):
    store.create_topic("t")
    assert read(spark, store, subscribe="t").collect() == []


def test_times_and_headers_are_those_of_the_records(spark, store):
    log = store.create_topic("t", config=TopicConfig(retention_ms=-1))[0]
    log.extend([(None, b"v", 1_700_000_000_123, [("a", b"1"), ("b", None)])])
    frame = read(spark, store, subscribe="t", includeHeaders="true")
    row = frame.selectExpr(
        "unix_millis(timestamp)", "timestampType", "headers[1].key", "size(headers)"
    ).first()
    assert row[:] == (1_700_000_000_123, 0, "b", 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t", "colour": "red"}, "option colour: there is no option of this name"),
        ({"subscribe": "gone"}, "there is no topic 'gone'"),
        ({"subscribe": "t", "startingOffsets": "{"}, "option startingOffsets is '{': it is not JSON"),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": 9}}'},
            "startingOffsets: offset 9 of t-0 does not exist",
        ),
    ],
)
def test_what_is_wrong_is_said_on_the_driver(spark, store, options, message):
    store.create_topic("t")
    with pytest.raises(AnalysisException) as caught:
        read(spark, store, **options).count()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"subscrible": "t"},
            "option subscrible: there is no option of this name; did you mean 'subscribe'?",
        ),
        (
            {"subscribe": "t", "failOnDataLoss": "no"},
            "option failOnDataLoss is 'no': it must be true or false",
        ),
        (
            {"subscribe": "t", "assign": "{}"},
            "give exactly one of the options subscribe, subscribePattern and assign; "
            "there is subscribe and assign",
        ),
    ],
)
def test_a_wrong_option_is_all_that_is_said(spark, store, options, sentence):
    """No traceback of a process that the user did not write stands in front of it."""
    store.create_topic("t")
    with pytest.raises(AnalysisException) as caught:
        read(spark, store, **options).count()
    said = (
        rf"\[PYTHON_DATA_SOURCE_ERROR\] [\w ]+: logstore\.errors\.InvalidConfigError: {re.escape(sentence)}"
    )
    assert re.fullmatch(rf"{said}\s+SQLSTATE: \d+", str(caught.value).strip())


@pytest.mark.damaged
def test_a_damaged_batch_fails_the_job_or_is_left_out(spark, store):
    log = store.create_topic("t")[0]
    for number in range(20):
        log.extend([b"value %d" % number] * 5)
    with open(f"{store.path}/t-0/{0:020}.log", "r+b") as file:
        file.seek(file.read().index(b"value 13"))
        file.write(b"?")
    store.close()
    with pytest.raises(
        AnalysisException, match="data up to offset 100 was durable"
    ):  # the log's only segment
        read(spark, store, subscribe="t").count()
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        assert read(spark, store, subscribe="t", onCorruptBatch="skip").count() == 95
        logged = spark.tvf.python_worker_logs().where("logger like 'logstore%'").collect()
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert any("t-0 is damaged; offsets 65 to 69 are left out" in row.msg for row in logged)
    assert any("1 places were left out, up to 5 records in all" in row.msg for row in logged)
