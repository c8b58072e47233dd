"""A producer asked for a topic's partitions and settings once. After ``add_partitions()`` it sent keys to
other partitions than ``append`` does, and refused the new ones; a larger ``max_message_bytes``, which its own
message advised, had no effect. It looks again, at once if it would refuse a record."""

from __future__ import annotations

import pytest
from tests.broker.rig import Rig

from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.config import TopicConfig
from logstore.errors import InvalidRecordError, RecordTooLargeError, UnknownPartitionError, UnknownTopicError
from logstore.format.partitioner import partition_for_key

KEYS = [b"key %d" % number for number in range(60)]


@pytest.fixture
def rig():
    return Rig()


def producer_of(rig, **settings):
    return Producer(rig.broker, config=ProducerConfig(acks=1, linger_ms=0, **settings), clock=rig.clock)


def place_of(producer, key):
    sent = producer.send("t", b"v", key=key)
    producer.flush()
    return sent.result().partition


def test_keys_go_where_they_go_with_more_partitions(rig):
    producer = producer_of(rig)
    before = [place_of(producer, key) for key in KEYS]
    rig.directory.add_partitions("t", 8)
    assert [place_of(producer, key) for key in KEYS] == before  # it has looked less than a second ago
    rig.clock.advance(producer.config.metadata_max_age_ms)
    assert [place_of(producer, key) for key in KEYS] == [partition_for_key(key, 8) for key in KEYS]


def test_a_new_partition_is_found_at_once(rig):
    producer = producer_of(rig)
    with pytest.raises(UnknownPartitionError, match="it has 2, from 0 on"):
        producer.send("t", b"v", partition=7)
    rig.directory.add_partitions("t", 8)
    sent = producer.send("t", b"v", partition=7)
    producer.flush()
    assert sent.result().partition == 7


def test_a_partitioner_is_told_of_new_partitions(rig):
    told = []

    def last(topic, key, value, count):
        told.append(count)
        return count - 1

    producer = Producer(
        rig.broker,
        config=ProducerConfig(acks=1, metadata_max_age_ms=0),
        clock=rig.clock,
        partitioner=last,
    )
    producer.send("t", b"v")
    rig.directory.add_partitions("t", 3)
    sent = producer.send("t", b"v")
    producer.flush()
    assert sent.result().partition == 1  # in the batch that was open
    sent = producer.send("t", b"v")
    producer.flush()
    assert sent.result().partition == 2
    assert told == [2, 2, 2, 3]


def test_settings_that_have_changed_count_for_what_they_refused(rig):
    producer = producer_of(rig)
    large = bytes(2_000_000)
    with pytest.raises(RecordTooLargeError, match=r"which topic\.configure\(\) changes"):
        producer.send("t", large)
    rig.directory.configure("t", TopicConfig(max_message_bytes=4_000_000))
    sent = producer.send("t", large)
    producer.flush()
    assert sent.result().offset == 0


def test_a_setting_that_refuses_more_is_seen_after_a_while(rig):
    producer = producer_of(rig)
    place_of(producer, b"k")
    rig.directory.configure("t", TopicConfig(cleanup_policy="compact"))
    rig.clock.advance(producer.config.metadata_max_age_ms)
    with pytest.raises(InvalidRecordError, match="a compacted topic needs a key"):
        producer.send("t", b"v")


def test_a_topic_that_is_gone_and_one_that_came_again_with_fewer_partitions(rig):
    producer = producer_of(rig)
    producer.send("t", b"v", partition=1)
    producer.flush()
    rig.directory.delete_topic("t")
    rig.clock.advance(producer.config.metadata_max_age_ms)
    with pytest.raises(UnknownTopicError, match="there is no topic 't'"):
        producer.send("t", b"v")
    rig.directory.create_topic("t", 1, None)
    assert {place_of(producer, key) for key in KEYS} == {0}


def test_records_without_a_key_go_on_where_they_were(rig):
    """What has not changed leaves no trace: each partition gets its batch's worth, one after the other."""
    producer = producer_of(rig, batch_size=200, metadata_max_age_ms=0)
    places = []
    for _ in range(40):
        sent = producer.send("t", bytes(100))
        producer.flush()
        places.append(sent.result().partition)
    assert 15 <= places.count(0) <= 25
