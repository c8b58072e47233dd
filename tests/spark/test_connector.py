"""What Spark's own Kafka connector reads from a stock broker is what ``format("logstore")`` reads from the
broker's directory, while the broker runs on it, and from the broker itself: the same columns, types and rows,
for the same options."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.interop.fixtures import DATA, case_names
from tests.interop.kafka import OLD, KafkaBroker
from tests.spark import connector
from tests.spark.conftest import missing

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TIME_MS = 1_700_000_000_000
"""Of the first records of most topics, which are a millisecond apart."""

LEGACY = [name for name in case_names("legacy-") if name != "legacy-mixed"]
ONE_PARTITION = [
    *case_names("codec-"),
    *LEGACY,
    "append-time",
    "compacted",
    "compacted-transactional",
    "idempotent",
    "segments",
    "transactional",
    "transactional-open",
    "transactional-segments",
]
MANY, SEG = "many", "segments"
MANY_PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    reason = missing() or connector.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    sources = {name: [DATA / name / f"{name}-0"] for name in ONE_PARTITION}
    sources[MANY] = [DATA / "log-dir" / f"{MANY}-{number}" for number in range(MANY_PARTITIONS)]
    # Its cleaner is to leave the compacted topics as they are, while they are compared.
    home = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(home, config={"log.cleaner.enable": "false"}, version=OLD) as running:
        running.serve_partitions(sources)
        yield running


@pytest.fixture(scope="module")
def all_three(spark, broker):
    """A function that reads the same three times: from the broker with the connector, then with ours from its
    directory, and from the broker."""
    for jar in connector.jars().split(","):
        spark.sql(f"ADD JAR '{jar}'")

    def read(**options):
        named = {name.replace("__", "."): str(value) for name, value in options.items()}
        options = {"includeHeaders": "true", **named}
        theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        files = spark.read.format("logstore").option("path", str(broker.log_dir))
        fetched = spark.read.format("logstore").option("kafka.bootstrap.servers", broker.bootstrap)
        return [each.options(**options).load() for each in (theirs, files, fetched)]

    return read


def at(topic, **places):
    """The JSON of an option: offsets or times of the partitions p0, p1, ..."""
    return json.dumps({topic: {name[1:]: place for name, place in places.items()}})


def rows_of(frame):
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=place_of)


def place_of(row):
    return row["topic"], row["partition"], row["offset"]


def check_same(theirs, *ours, at_least=1):
    expected = rows_of(theirs)
    assert len(expected) >= at_least
    for each in ours:
        assert each.schema == theirs.schema
        assert rows_of(each) == expected
    return expected


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_rows_of_every_kind_of_topic_are_the_same(all_three, isolation):
    frames = all_three(subscribe=",".join(ONE_PARTITION), kafka__isolation__level=isolation)
    rows = check_same(*frames, at_least=500)
    assert {row["topic"] for row in rows} == set(ONE_PARTITION)
    assert {row["timestampType"] for row in rows} >= {0, 1}
    assert any(row["key"] is None for row in rows)
    assert any(row["value"] is None for row in rows)
    assert any(row["headers"] for row in rows)


def test_the_columns_are_the_same_without_headers(all_three):
    frames = all_three(subscribe="codec-none", includeHeaders="false")
    assert "headers" not in frames[0].columns
    check_same(*frames)


def test_isolation_makes_a_difference(all_three):
    committed, all_of_them = (
        check_same(*all_three(subscribe="transactional", kafka__isolation__level=level))
        for level in ("read_committed", "read_uncommitted")
    )
    assert len(committed) < len(all_of_them)


@pytest.mark.parametrize(
    "options",
    [
        {"subscribePattern": "codec-.*"},
        {"subscribePattern": "many"},
        {"assign": json.dumps({MANY: [0, 2], "segments": [0]})},
        {"subscribe": MANY, "startingOffsets": at(MANY, p0=2, p1=-2, p2=0)},
        {"subscribe": MANY, "endingOffsets": at(MANY, p0=2, p1=60, p2=-1)},
        {"subscribe": SEG, "startingOffsets": at(SEG, p0=7), "endingOffsets": at(SEG, p0=33)},
        {"subscribe": SEG, "startingTimestamp": TIME_MS + 12},
        {"subscribe": SEG, "startingTimestamp": TIME_MS + 12, "endingTimestamp": TIME_MS + 40},
        {"subscribe": SEG, "startingOffsetsByTimestamp": at(SEG, p0=TIME_MS + 30)},
        {"subscribe": SEG, "endingOffsetsByTimestamp": at(SEG, p0=TIME_MS + 30)},
        {"subscribe": SEG, "endingTimestamp": 9_999_999_999_999},
        {"subscribe": SEG, "startingTimestamp": TIME_MS + 20, "startingOffsets": "latest"},
        {"subscribe": SEG, "minPartitions": 4},
        {"subscribe": MANY, "maxRecordsPerPartition": 30},
    ],
    ids=lambda options: " ".join(name for name in options if name != "subscribe"),
)
def test_options_choose_the_same_rows(all_three, options):
    check_same(*all_three(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": SEG, "startingTimestamp": 9_999_999_999_999},
        {"subscribe": SEG, "startingOffsets": "latest"},
        {"subscribe": SEG, "endingOffsets": "earliest"},
        {"subscribe": SEG, "startingOffsets": at(SEG, p0=-1)},
        {"subscribe": SEG, "endingOffsets": at(SEG, p0=-2)},
        {"subscribe": MANY, "startingOffsets": at(MANY, p0=0)},
        {"subscribe": SEG, "startingOffsets": at(SEG, p0=10_000_000)},
        {"subscribe": "absent"},
        {"subscribe": SEG, "startingOffsets": "{"},
        {"subscribe": SEG, "assign": json.dumps({MANY: [0]})},
        {},
    ],
    ids=lambda options: " ".join(f"{name}={str(value)[:20]}" for name, value in options.items()) or "nothing",
)
def test_all_refuse_the_same(all_three, options):
    for number in range(3):
        with pytest.raises((PySparkException, Py4JJavaError)):
            all_three(**options)[number].collect()


def test_all_skip_a_time_that_nobody_has_when_told_to(all_three):
    frames = all_three(
        subscribe="segments",
        startingTimestamp=9_999_999_999_999,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert check_same(*frames, at_least=0) == []
