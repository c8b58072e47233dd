"""What clients may not append. Costs 0.3 s."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

import logstore
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.errors import InvalidRecordError, InvalidTimestampError, InvalidTopicError
from logstore.wire.apis import ApiKey
from logstore.wire.messages.records import produce
from tests.broker.rig import batch_of
from tests.wire.raw_client import RawClient


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_only_coordinators_write_internal_topics(tmp_path, topic):
    """A record of a client there would be taken for what a coordinator has decided."""
    with logstore.open(tmp_path / "store") as store, store.listen() as listener:
        store.create_topic("t")
        store.offsets("g").commit({("t", 0): 0})
        if topic not in store:
            store.create_topic(topic)
        before = [log.log_end_offset for log in store[topic]]
        with logstore.connect(listener.address) as connected, connected.producer() as producer:
            with pytest.raises(InvalidTopicError):
                producer.send(topic, b"v", key=b"k", partition=0).result()
            producer.send("t", b"v").result()
        assert [log.log_end_offset for log in store[topic]] == before


def test_who_sends_a_batch_is_told_which_records_are_refused(tmp_path):
    """It was checked before it was sent, by settings that have changed since."""
    now_ms = time.time_ns() // 1_000_000
    rules = {
        "table": (InvalidRecordError, (1, 3), {"cleanup_policy": "compact"}),
        "recent": (InvalidTimestampError, (2,), {"message_timestamp_before_max_ms": 60_000}),
    }
    with logstore.open(tmp_path / "store") as store, store.listen() as listener:
        for name in rules:
            store.create_topic(name)
        with (
            logstore.connect(listener.address) as connected,
            connected.producer(linger_ms=10_000) as producer,
        ):
            sent = {
                "table": [producer.send("table", b"v", key=key) for key in (b"k", None, b"k", None)],
                "recent": [
                    producer.send("recent", b"v", key=b"k", timestamp_ms=now_ms - ago_ms)
                    for ago_ms in (0, 0, 10**9, 0)
                ],
            }
            for name, (_, _, changes) in rules.items():
                store[name].configure(**changes)
            with pytest.raises(InvalidRecordError):
                producer.flush()
            with suppress(InvalidRecordError):  # of the other batch, if they were not sent together
                producer.flush()
        for name, (kind, records, _) in rules.items():
            for each in sent[name]:
                with pytest.raises(kind) as refused:
                    each.result()
                assert refused.value.records == records


@pytest.mark.parametrize("version", [3, 12, 13])
def test_of_two_batches_for_a_partition_the_last_counts(tmp_path, version):
    """As with Kafka, and one answer for both. Also if its topic is named twice."""
    first, last = (bytes(batch_of([value], 0)) for value in (b"first", b"last"))
    with logstore.open(tmp_path / "store") as store, store.listen() as listener:
        topic = store.create_topic("t", partitions=2)
        by = {"topic_id": store.directory.topic("t").topic_id} if version > 12 else {"name": "t"}
        sent = [produce.Partition(0, first), produce.Partition(1, first), produce.Partition(0, last)]
        with RawClient(listener.address) as client:
            for topics in (
                [produce.Topic(**by, partitions=tuple(sent))],
                [produce.Topic(**by, partitions=(each,)) for each in sent],
            ):
                request = produce.ProduceRequest(None, 1, 5_000, tuple(topics))
                (answer,) = client.ask(ApiKey.PRODUCE, request, version).topics
                assert [(each.partition, each.error_code) for each in answer.partitions] == [(0, 0), (1, 0)]
        assert [record.value for record in topic[0].read()] == [b"last"] * 2
        assert [record.value for record in topic[1].read()] == [b"first"] * 2
