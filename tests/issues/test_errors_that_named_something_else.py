"""Errors that led away from their cause: a bare TypeError, a whole number that was to be a whole number, a
serializer blamed for what a dictionary refuses, a bound in the distant past for a timestamp in the
future, a read-only store instead of a missing topic. And Arrow's timestamps without a time zone, of
which nothing said that they are UTC.
"""

from datetime import UTC, datetime

import pytest

import logstore
from logstore import TopicConfig
from logstore.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidTimestampError,
    ReadOnlyError,
    UsageError,
)


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")
        yield store


@pytest.mark.parametrize("records", [None, 5, b"bytes", "text", {"key": "value"}])
def test_what_is_no_list_of_records_is_refused_with_serializers_too(store, records):
    for topic in (store["t"], store["t"].serialized(value="json")):
        with pytest.raises(UsageError, match=r"^records is a "):
            topic.extend(records)


@pytest.mark.parametrize("value", [5, True, None, 0.5, b"5"])
@pytest.mark.parametrize("key", ["retention.ms", "cleanup.policy", "min.cleanable.dirty.ratio"])
def test_a_setting_that_is_not_text_says_so(key, value):
    with pytest.raises(InvalidConfigError, match=f"{key} is .*, of type {type(value).__name__}; .* is text"):
        TopicConfig.from_properties({key: value})


def test_a_key_that_no_dictionary_takes_is_not_the_serializers_fault(store):
    topic = store["t"].serialized(key="json", value="json")
    topic.append(1, key={"id": 1})
    with pytest.raises(
        InvalidRecordError, match=r"decodes to \{'id': 1\}, a dict, which a dictionary cannot"
    ):
        topic.latest()


def test_only_the_bound_that_is_broken_is_named(store):
    log = store.create_topic("u", config=TopicConfig(message_timestamp_after_max_ms=1000))[0]
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    with pytest.raises(InvalidTimestampError, match=r"message_timestamp_after_max_ms allows none above \d+$"):
        log.extend([(None, b"v", now_ms + 3_600_000)])


def test_a_missing_topic_of_a_read_only_store_is_missing(store):
    with (
        logstore.open(store.path, read_only=True) as reader,
        pytest.raises(ReadOnlyError, match=r"there is no topic 'nope' .*opened read-only"),
    ):
        reader.require_topic("nope")


def test_arrows_timestamps_without_a_time_zone_are_utc(store):
    pa = pytest.importorskip("pyarrow")
    log = store["t"][0]
    when = datetime(2024, 2, 29, 12, tzinfo=UTC)
    for kind, value in ((pa.timestamp("us"), when.replace(tzinfo=None)), (pa.timestamp("us", "UTC"), when)):
        log.extend_arrow(pa.table({"value": [b"v"], "timestamp_ms": pa.array([value], kind)}))
    table = log.read_arrow()
    naive = table["timestamp_ms"].cast(pa.timestamp("ms"))
    log.extend_arrow(pa.table({"value": table["value"], "timestamp_ms": naive}))
    assert [record.timestamp for record in log.read()] == [when] * 4
