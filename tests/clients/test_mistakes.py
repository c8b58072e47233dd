"""The mistakes that people make first with producers, consumers and metrics, each with its whole message."""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import LogstoreError, UsageError
from logstore.model import OffsetAndMetadata


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with logstore.open(tmp_path_factory.mktemp("data")) as store:
        store.create_topic("orders", partitions=2)[0].extend([b"1", b"2", b"3"])
        yield store


@pytest.fixture(scope="module")
def producer(store):
    with store.producer() as producer:
        yield producer


def consumer(store, **settings):
    """One without a group: its partitions are there at once."""
    return store.consumer("orders", **settings)


def committing(store):
    return store.consumer(partitions=[("orders", 0)], group="billing")


TIMEOUT = "UsageError: timeout is 'x'; it must be a number of seconds, 0 or above"

OF_PRODUCERS = [
    (
        lambda p: p.send("orders", "paid"),
        "InvalidRecordError: value is a str; it must be bytes or None; .encode() makes bytes of it, or "
        'store.producer(value_serializer="text") of every value',
    ),
    (
        lambda p: p.send("orders", b"paid", key={"id": 7}),
        "InvalidRecordError: key is a dict; it must be bytes or None; "
        'store.producer(key_serializer="json") stores every key as JSON',
    ),
    (
        lambda p: p.send("orders", b"paid", on_delivery=3),
        "UsageError: on_delivery is 3; it must be a function, or None",
    ),
    (
        lambda p: p.send("orders", b"paid", partition=1).add_callback("print"),
        "UsageError: callback is 'print'; it must be callable",
    ),
    (
        lambda p: p.send("orders", b"paid", partition=2),
        "UnknownPartitionError: topic 'orders' has no partition 2 here; it has 2, from 0 on",
    ),
    (lambda p: p.send("orders", b"paid", partition=1).result("x"), TIMEOUT),
    (lambda p: p.flush("x"), TIMEOUT),
    (lambda p: p.close("x"), TIMEOUT),
    (
        lambda p: p.flush(float("nan")),
        "UsageError: timeout is nan; it must be a number of seconds, 0 or above",
    ),
]

OF_CONSUMERS = [
    (
        lambda s: consumer(s, group_id="billing"),
        "InvalidConfigError: unknown setting 'group_id'; did you mean 'group'?",
    ),
    (
        lambda s: consumer(s, isolation_level="read_committed"),
        "InvalidConfigError: unknown setting 'isolation_level'; did you mean 'isolation'?",
    ),
    (
        lambda s: consumer(s, config={"max_poll_records": 5}),
        "InvalidConfigError: config is a dict; it must be a ConsumerConfig, or give settings by name",
    ),
    (
        lambda s: consumer(s, enable_auto_commit=True),
        "InvalidConfigError: enable_auto_commit is True, and there is no group to commit for; "
        "group='billing' names one",
    ),
    (
        lambda s: consumer(s, group="billing", group_instance_id=""),
        "InvalidConfigError: group_instance_id is ''; it must be text, and not empty",
    ),
    (
        lambda s: consumer(s, group="billing", group_instance_id="\ud800"),
        "InvalidConfigError: group_instance_id is '\\ud800'; it must be text, and not empty",
    ),
    (
        lambda s: s.consumer(["orders"]),
        "UsageError: ['orders'] is no name of a topic; give names, one after the other: 'orders', 'bills'",
    ),
    (
        lambda s: s.consumer().poll(timeout=0),
        "UsageError: the consumer has no topics and no partitions to read: store.consumer('orders'), or "
        "assign([('orders', 0)])",
    ),
    (
        lambda s: list(s.consumer().drain()),
        "UsageError: the consumer has no topics and no partitions to read: store.consumer('orders'), or "
        "assign([('orders', 0)])",
    ),
    (
        lambda s: consumer(s, group="new").seek(("orders", 0), 1),
        "UsageError: the consumer does not read orders-0; it reads none (poll() joins its group and gets "
        "some)",
    ),
    (
        lambda s: read_beyond(s),
        "OffsetOutOfRangeError: orders-0: offset 9 is outside of the log, which holds 0 to 3, and "
        "auto_offset_reset is 'none'; seek(), seek_to_beginning() or seek_to_end() goes on",
    ),
    (
        lambda s: committing(s).commit(17),
        "UsageError: offsets is 17; give a record, or a mapping such as {('orders', 0): 17}",
    ),
    (
        lambda s: committing(s).commit([("orders", 0)]),
        "UsageError: offsets is [('orders', 0)]; give a record, or a mapping such as {('orders', 0): 17}",
    ),
    (
        lambda s: committing(s).commit({("orders", 0): OffsetAndMetadata(-5)}),
        "OffsetOutOfRangeError: offset is -5; offsets are from 0 to 2^63 - 1",
    ),
    (
        lambda s: committing(s).commit({("orders", 0): OffsetAndMetadata(1, metadata=b"note")}),
        "UsageError: metadata is b'note'; it must be text",
    ),
    (
        lambda s: committing(s).commit({("orders", 0): OffsetAndMetadata(1, metadata="x" * 5000)}),
        "UsageError: group 'billing': no offset was committed for orders-0: the metadata for orders-0 has "
        "5000 characters; offset_metadata_max_bytes allows 4096 bytes",
    ),
    (
        lambda s: commit_beside_members(s),
        "UsageError: group 'shared' has members, which commit for it; a consumer of partitions that you name "
        "needs a group of its own",
    ),
    (
        lambda s: consumer(s, interceptors=[lambda records: [1, 2]]).poll(timeout=0),
        "UsageError: the interceptor <lambda> returned [1, 2]; it must return the list of records to give",
    ),
    (
        lambda s: (c := committing(s), c.close(), c.committed()),
        "ClosedError: the consumer is closed; open it again",
    ),
    (
        lambda s: (c := committing(s), c.close(), c.pause()),
        "ClosedError: the consumer is closed; open it again",
    ),
]

OF_METRICS = [
    (
        lambda m: m.total("logstore_log_end_offset", topic="orders", partition="0"),
        "UsageError: label partition is '0'; it must be a number",
    ),
    (
        lambda m: m.total("logstore_log_end_offset", topic=b"orders"),
        "UsageError: label topic is b'orders'; it must be text",
    ),
    (
        lambda m: m.histogram("logstore_flush_seconds").quantile(99),
        "UsageError: share is 99; it must be a number from 0 to 1, such as 0.99",
    ),
]


def commit_beside_members(store):
    with consumer(store, group="shared") as member:
        member.poll(timeout=5)
        store.consumer(partitions=[("orders", 0)], group="shared").commit({("orders", 0): 1})


def read_beyond(store):
    reader = store.consumer(partitions=[("orders", 0)], auto_offset_reset="none")
    reader.seek(("orders", 0), 9)
    reader.poll(timeout=0)


def check(mistake, of, message):
    with pytest.raises(LogstoreError) as caught:
        mistake(of)
    assert f"{type(caught.value).__name__}: {caught.value}" == message


def named(mistakes):
    return pytest.mark.parametrize(("mistake", "message"), mistakes, ids=[said for _, said in mistakes])


@named(OF_PRODUCERS)
def test_producers_say_what_to_do(producer, mistake, message):
    check(mistake, producer, message)


@named(OF_CONSUMERS)
def test_consumers_say_what_to_do(store, mistake, message):
    check(mistake, store, message)


@named(OF_METRICS)
def test_metrics_say_what_to_do(store, mistake, message):
    check(mistake, store.metrics(), message)


@pytest.mark.parametrize("topic", [["t"], {"t": 1}, bytearray(b"t"), memoryview(b"abcd").cast("I")])
def test_a_topic_of_a_type_without_a_hash_is_refused_as_any_other(store, topic):
    """It was a TypeError of a table of the producer's."""
    with store.producer() as producer, pytest.raises(UsageError, match="it must be a name"):
        producer.send(topic, b"v")
