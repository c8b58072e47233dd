"""The records of ``__transaction_state`` are Kafka's, byte for byte.

``transaction_records.txt`` is what the classes of Kafka 4.4 print: ``tests/interop/TransactionRecords.java``,
which an interop test runs again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.messages.transaction_records import (
    TRANSACTION_LOG_VALUE,
    TransactionLogValue,
    TransactionPartitions,
    by_topic,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_state,
    encode_transaction_value,
)
from logstore.model import TopicPartition

VALUE = TransactionLogValue(
    producer_id=1234567890123,
    producer_epoch=7,
    timeout_ms=60_000,
    status=2,
    partitions=(TransactionPartitions("a", (0, 3)), TransactionPartitions("bé", (1,))),
    last_update_ms=1_700_000_000_001,
    start_ms=1_700_000_000_000,
)
TAGGED = VALUE._replace(previous_producer_id=5, next_producer_id=6, client_version=2)
EMPTY = TransactionLogValue(producer_id=9, producer_epoch=0, timeout_ms=1, partitions=None, last_update_ms=0)

_LINES = (Path(__file__).parent / "transaction_records.txt").read_text().splitlines()
GOLDEN = {name: bytes.fromhex(shown) for name, shown in (line.split("\t") for line in _LINES)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value 0", VALUE),
        ("value 1", VALUE),
        ("tagged value 1", TAGGED),
        ("empty value 0", EMPTY),
        ("empty value 1", EMPTY),
    ],
)
def test_a_value_is_encoded_as_kafka_does(name, value):
    version = int(name[-1])
    assert TRANSACTION_LOG_VALUE.encode_versioned(value, version) == GOLDEN[name]
    assert decode_transaction_value(GOLDEN[name]) == value


def test_the_version_that_is_written():
    assert encode_transaction_value(TAGGED) == GOLDEN["tagged value 1"]


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.tuples(INT64, st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 6)),
    st.none()
    | st.frozensets(st.builds(TopicPartition, st.text(max_size=3), st.integers(0, 99)), max_size=40),
    st.tuples(INT64, INT64),
    st.tuples(*[st.just(-1) | INT64] * 2, st.integers(0, 2)),
)
def test_the_quick_way_gives_the_same_bytes(begin, partitions, times, tagged):
    producer_id, producer_epoch, timeout_ms, status = begin
    value = TransactionLogValue(
        producer_id=producer_id,
        previous_producer_id=tagged[0],
        next_producer_id=tagged[1],
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        status=status,
        partitions=None if partitions is None else by_topic(partitions),
        last_update_ms=times[0],
        start_ms=times[1],
        client_version=tagged[2],
    )
    assert encode_transaction_state(*begin, partitions, *times, tagged) == encode_transaction_value(value)


def test_what_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="cannot be encoded"):
        encode_transaction_state(2**63, 0, 0, 0, None, 0, 0, (-1, -1, 0))


def test_the_key():
    assert encode_transaction_key("grüße") == GOLDEN["key"]
    assert decode_transaction_key(GOLDEN["key"]) == "grüße"
    assert decode_transaction_key(b"\0\7" + GOLDEN["key"][2:]) is None


@given(st.sets(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 5))))
def test_partitions_by_topic(partitions):
    listed = by_topic(partitions)
    assert {TopicPartition(each.topic, number) for each in listed for number in each.partitions} == partitions
    assert [each.topic for each in listed] == sorted({each.topic for each in partitions})


@pytest.mark.parametrize("length", range(len(GOLDEN["value 1"])))
def test_what_is_cut_short_is_refused(length):
    with pytest.raises(CorruptionError):
        decode_transaction_value(GOLDEN["value 1"][:length])


def test_a_later_version_is_refused():
    with pytest.raises(UnsupportedVersionError, match="TransactionLogValue has version 2"):
        decode_transaction_value(b"\0\2" + GOLDEN["value 1"][2:])
