"""Serializers and interceptors of producers and consumers."""

from __future__ import annotations

import random

import pytest

from logstore.clients.consumer import Consumer
from logstore.clients.producer import Producer
from logstore.errors import ClosedError, InvalidRecordError, UsageError
from tests.broker.rig import T0, T1, Rig


@pytest.fixture
def rig():
    return Rig()


def producer_of(rig, **options):
    return Producer(rig.broker, clock=rig.clock, **options)


def consumer_of(rig, *partitions, **options):
    return Consumer(rig.broker, partitions=partitions or [T0], clock=rig.clock, **options)


def number_of(data):
    return int(data)


def values(records):
    return [record.value for record in records]


def raising(*_):
    raise RuntimeError("no")


def test_keys_and_values_go_there_and_back(rig):
    with producer_of(rig, key_serializer="text", value_serializer="json") as producer:
        producer.send("t", {"n": 1}, key="alice", partition=0)
        producer.send("t", None, key="bob", partition=0)
    assert [(r.key, r.value) for r in rig.directory.log(T0).read()] == [
        (b"alice", b'{"n":1}'),
        (b"bob", None),
    ]
    consumer = consumer_of(rig, key_deserializer=bytes.decode, value_deserializer="json", group="g")
    found = consumer.poll(timeout=0)
    assert [(r.topic, r.partition, r.offset, r.key, r.value) for r in found] == [
        ("t", 0, 0, "alice", {"n": 1}),
        ("t", 0, 1, "bob", None),
    ]
    consumer.commit(found[0])
    assert consumer.committed()[T0].offset == 1


def test_the_partitioner_sees_bytes(rig):
    seen = []
    producer = producer_of(
        rig,
        key_serializer=lambda number: b"%d" % number,
        partitioner=lambda topic, key, value, count: seen.append(key) or 1,
    )
    producer.send("t", b"v", key=7)
    assert seen == [b"7"]
    producer.close()


def test_a_serializer_that_refuses_names_the_topic_and_nothing_is_sent(rig):
    producer = producer_of(rig, value_serializer="text")
    with pytest.raises(InvalidRecordError, match="the value of a record for topic 't' is 7, which its"):
        producer.send("t", 7)
    producer.close()
    assert rig.directory.log(T0).log_end_offset == rig.directory.log(T1).log_end_offset == 0
    with pytest.raises(ClosedError):
        producer.send("t", 7)


@pytest.mark.parametrize("wrong", [7, "xml", (int,), b"text"])
def test_what_is_no_serializer_is_refused(rig, wrong):
    with pytest.raises(UsageError, match="key_serializer is"):
        producer_of(rig, key_serializer=wrong)
    with pytest.raises(UsageError, match="value_deserializer is"):
        consumer_of(rig, value_deserializer=wrong)


@pytest.mark.parametrize("wrong", [print, 7, [7]])
def test_what_is_no_list_of_functions_is_refused(rig, wrong):
    for make in (producer_of, consumer_of):
        with pytest.raises(UsageError, match="it must be a list of functions"):
            make(rig, interceptors=wrong)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_cannot_be_decoded_all_other_records_come_in_order(rig, seed):
    """By polls and by iterations that are left; each record that is refused is refused until it is passed."""
    chance = random.Random(seed)
    logs = {each: rig.directory.log(each) for each in (T0, T1)}
    written = {
        each: [b"%d" % n if chance.random() < 0.8 else b"bad" for n in range(chance.randint(0, 60))]
        for each in logs
    }
    for each, log in logs.items():
        for value in written[each]:
            log.extend([value])
    consumer = consumer_of(rig, T0, T1, value_deserializer=number_of)
    at = {T0: 0, T1: 0}

    def note(record):
        place = T0._replace(partition=record.partition)
        assert (record.offset, record.value) == (at[place], int(written[place][at[place]]))
        at[place] += 1

    while any(at[each] < len(written[each]) for each in at):
        refused = None
        try:
            if chance.random() < 0.5:
                for record in consumer.poll(timeout=0, max_records=chance.randint(1, 9)):
                    note(record)
            else:
                for record in consumer.drain():
                    note(record)
                    if chance.random() < 0.2:
                        break
        except InvalidRecordError as error:
            refused = error
        if refused is not None:
            place = T0._replace(partition=refused.partition[1])
            assert (refused.offset, written[place][refused.offset]) == (at[place], b"bad")
            assert f"offset {refused.offset} of {place}" in str(refused)
            assert consumer.position(place) == refused.offset
            if chance.random() < 0.7:
                consumer.seek(refused.partition, refused.offset + 1)
                at[place] += 1
        assert {each: consumer.position(each) for each in at} == at
    assert consumer.poll(timeout=0) == []


def test_interceptors_of_a_producer_change_what_is_sent(rig):
    def stamp(record):
        return record._replace(headers=(*record.headers, ("by", b"me")), partition=1)

    def wrap(record):
        return record._replace(value=[record.value])

    with producer_of(rig, value_serializer="json", interceptors=[stamp, wrap]) as producer:
        producer.send("t", "a")
    (record,) = rig.directory.log(T1).read()
    assert (record.value, record.headers) == (b'["a"]', (("by", b"me"),))


def test_what_an_interceptor_of_a_producer_raises_is_raised_and_nothing_is_sent(rig):
    producer = producer_of(rig, interceptors=[raising])
    with pytest.raises(RuntimeError, match="no"):
        producer.send("t", b"a")
    producer.close()
    for wrong in (lambda _: None, lambda record: tuple(record)):
        producer = producer_of(rig, interceptors=[wrong])
        with pytest.raises(UsageError, match="the interceptor <lambda> returned"):
            producer.send("t", b"a")
        producer.close()
    assert rig.directory.log(T0).log_end_offset == 0


def test_interceptors_of_a_consumer_change_what_is_given(rig):
    rig.directory.log(T0).extend([b"%d" % n for n in range(6)])

    def even(records):
        return [record for record in records if record.value % 2 == 0]

    def negative(records):
        return [record._replace(value=-record.value) for record in records]

    options = {"value_deserializer": number_of, "interceptors": [even, negative]}
    consumer = consumer_of(rig, **options)
    assert values(consumer.poll(timeout=0, max_records=3)) == [0, -2]
    assert consumer.position(T0) == 3
    assert values(consumer.poll(timeout=0, max_records=1)) == [-4]
    assert values(consumer.poll(timeout=0)) == []
    assert consumer.position(T0) == 6
    consumer.seek_to_beginning()
    for record in consumer.drain():
        if record.offset == 2:
            break
    assert consumer.position(T0) == 3
    assert values(consumer.drain()) == [-4]


def test_what_an_interceptor_of_a_consumer_raises_is_raised_and_the_records_come_again(rig):
    rig.directory.log(T0).extend([b"%d" % n for n in range(3)])
    rig.directory.log(T1).extend([b"7"])
    errors = [RuntimeError("no")]

    def fail_once(records):
        if errors and records[0].partition == 0:
            raise errors.pop()
        return records

    consumer = consumer_of(rig, T0, T1, interceptors=[fail_once])
    with pytest.raises(RuntimeError, match="no"):
        consumer.poll(timeout=0)
    assert consumer.position(T0) == 0
    assert values(consumer.poll(timeout=0)) == [b"7"]
    assert values(consumer.poll(timeout=0)) == [b"0", b"1", b"2"]
    forgetful = consumer_of(rig, interceptors=[lambda records: None])
    with pytest.raises(UsageError, match="the list of records to give"):
        forgetful.poll(timeout=0)
