"""The mistakes that people make first, each with its whole message: it names the thing and the value, what
there is, and what to do next."""

from __future__ import annotations

from datetime import datetime

import pytest

import logstore
from logstore import Log, NewRecord, StoreConfig, TopicConfig


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def store(path):
    with logstore.open(path) as store:
        store.create_topic("orders", partitions=2)[0].extend([b"1", b"2", b"3"])
        yield store


MISTAKES = [
    # Topics
    (
        lambda store: store["ordres"],
        "UnknownTopicError: there is no topic 'ordres' in PATH; did you mean 'orders'?",
    ),
    (
        lambda store: store["bills"],
        "UnknownTopicError: there is no topic 'bills' in PATH; there are 'orders'",
    ),
    (
        lambda store: store.delete_topic("order"),
        "UnknownTopicError: there is no topic 'order' in PATH; did you mean 'orders'?",
    ),
    (
        lambda store: store.create_topic("orders"),
        "TopicExistsError: topic 'orders' exists already; require_topic() returns it",
    ),
    (
        lambda store: store.require_topic("orders", partitions=4),
        "UsageError: topic 'orders' has 2 partitions, not 4; add_partitions() gives it more",
    ),
    (
        lambda store: store.require_topic("orders", config=TopicConfig(retention_ms=5, flush_ms=7)),
        "UsageError: topic 'orders' has other settings: retention_ms is -1 and not 5, flush_ms is 1000 "
        "and not 7; topic.configure() changes them",
    ),
    (
        lambda store: store.create_topic("my orders"),
        "InvalidTopicError: topic name 'my orders': use letters, digits, '.', '_' and '-', at least one",
    ),
    (
        lambda store: store["orders"][2],
        "UnknownPartitionError: topic 'orders' has 2 partitions, numbered from 0; there is no 2",
    ),
    # Opening
    (
        lambda store: logstore.open(store.path),
        "LockedError: PATH/.lock is held by this process: the directory is already open for writing; use "
        "what is open, close it first, or wait for it: open(timeout=30)",
    ),
    (
        lambda store: logstore.open(f"{store.path}/elsewhere", read_only=True),
        "UsageError: PATH/elsewhere does not exist; logstore.open() creates it when opening for "
        "writing with create=True",
    ),
    (
        lambda store: logstore.open(f"{store.path}/orders-0", create=False),
        "UsageError: PATH/orders-0 is the directory of one partition; open its parent, or use Log.open()",
    ),
    (
        lambda store: Log.open(f"{store.path}/orders-0"),
        "UsageError: PATH/orders-0 belongs to the store around it; open that with logstore.open()",
    ),
    (
        lambda store: logstore.open(store.path, read_only=True).create_topic("t"),
        "ReadOnlyError: PATH was opened read-only; open it without read_only to change it",
    ),
    # Records
    (
        lambda store: store["orders"].append("paid"),
        "InvalidRecordError: value is a str; it must be bytes or None; .encode() makes bytes of it, or "
        'topic.serialized(value="text") of every value',
    ),
    (
        lambda store: store["orders"].append({"status": "paid"}),
        "InvalidRecordError: value is a dict; it must be bytes or None; "
        'topic.serialized(value="json") stores every value as JSON',
    ),
    (
        lambda store: store["orders"].append(b"paid", key="alice"),
        "InvalidRecordError: key is a str; it must be bytes or None; .encode() makes bytes of it, or "
        'topic.serialized(key="text") of every key',
    ),
    (
        lambda store: store["orders"][0].extend(b"paid"),
        "UsageError: records is a single bytes; extend takes an iterable, append one",
    ),
    (
        lambda store: store["orders"][0].extend({b"alice": b"paid"}),
        "UsageError: records is a dict; give its items(): pairs of key and value",
    ),
    (
        lambda store: store["orders"][0].extend([NewRecord(b"v"), NewRecord("v")]),
        "InvalidRecordError: value of record 1 is a str; it must be bytes or None; .encode() makes bytes of "
        'it, or topic.serialized(value="text") of every value',
    ),
    (
        lambda store: store["orders"].append(b"v", headers={"a": "b"}),
        "InvalidRecordError: header 'a' is a str; it must be bytes or None; .encode() makes bytes of it",
    ),
    (
        lambda store: store["orders"][0].append(bytes(3_000_000)),
        "RecordTooLargeError: a batch of 3000074 bytes is larger than max_message_bytes (1048588), which "
        "topic.configure() changes",
    ),
    # Times
    (
        lambda store: store["orders"][0].append(b"v", timestamp_ms=1_700_000_000),
        "InvalidTimestampError: timestamp_ms 1700000000 of record 0 looks like seconds (2023-11-14 22:13:20 "
        "UTC); it must be milliseconds: 1700000000000. "
        "(message_timestamp_unit_check=False takes it as it is)",
    ),
    (
        lambda store: store["orders"][0].append(b"v", timestamp_ms=datetime(2026, 1, 1)),
        "InvalidTimestampError: timestamp_ms is datetime.datetime(2026, 1, 1, 0, 0), a datetime without a "
        "time zone; when.astimezone() makes it local time, when.replace(tzinfo=timezone.utc) UTC",
    ),
    # Reading
    (
        lambda store: store["orders"][0].read(99),
        "OffsetOutOfRangeError: offset 99 is outside the log, which holds 0 to 3 (PATH/orders-0); follow(3) "
        "waits for new records",
    ),
    (
        lambda store: (store["orders"][0].delete_before(2), store["orders"][0].read(0)),
        "OffsetOutOfRangeError: offset 0 is outside the log, which holds 2 to 3 (PATH/orders-0); the records "
        "before that were deleted: begin at log_start_offset",
    ),
    (
        lambda store: store["orders"].read(5),
        "UsageError: start is 5; it must be 'earliest', 'latest', a datetime, or a mapping from partition to "
        "offset (in one partition offsets are numbers: topic[0].read(5))",
    ),
    (
        lambda store: store["orders"][0].read(isolation="committed"),
        "UsageError: isolation is 'committed'; it must be one of Isolation.LOG_END, "
        "Isolation.HIGH_WATERMARK, Isolation.COMMITTED, Isolation.DURABLE",
    ),
    # Settings
    (
        lambda store: TopicConfig(retention=5),
        "InvalidConfigError: unknown setting 'retention'; did you mean 'retention_ms'?",
    ),
    (
        lambda store: store["orders"].configure(**{"retention.bytes": 5}),
        "InvalidConfigError: unknown setting 'retention.bytes'; did you mean 'retention_bytes'?",
    ),
    (
        lambda store: TopicConfig(compression_type="zst"),
        "InvalidConfigError: compression_type is 'zst'; did you mean 'zstd'?",
    ),
    (
        lambda store: StoreConfig(linger=5),
        "InvalidConfigError: unknown setting 'linger'; did you mean 'linger_ms'?",
    ),
    (
        lambda store: store["orders"].compact(),
        "UsageError: topic 'orders' is not compacted; topic.configure(cleanup_policy='compact') makes it so",
    ),
    # The end
    (
        lambda store: (store.close(), store["orders"]),
        "ClosedError: PATH is closed; open it again",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[words.split(":")[0] for _, words in MISTAKES])
def test_the_message_says_what_to_do(store, mistake, message):
    with pytest.raises(logstore.LogstoreError) as caught:
        mistake(store)
    error = caught.value
    assert type(error).__module__ == "logstore.errors"
    assert f"{type(error).__name__}: {error}".replace(store.path, "PATH") == message


def test_there_are_enough():
    assert len(MISTAKES) >= 25


@pytest.mark.parametrize("opened", [logstore.open, logstore.open_or_connect])
def test_the_address_of_a_broker_is_no_directory(tmp_path, monkeypatch, opened):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(logstore.UsageError) as raised:
        opened("127.0.0.1:9092")
    assert str(raised.value) == (
        "'127.0.0.1:9092' looks like the address of a broker, and there is no directory of this name: "
        "logstore.connect('127.0.0.1:9092') asks a broker; give './127.0.0.1:9092' to make such a directory"
    )
    assert list(tmp_path.iterdir()) == []
    opened("./127.0.0.1:9092").close()
    opened("127.0.0.1:9092").close()
