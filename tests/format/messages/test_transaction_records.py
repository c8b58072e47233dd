"""The records of ``__transaction_state`` are Kafka's, byte for byte.

``transaction_records.txt`` is what the classes of Kafka 4.4 print: ``tests/interop/TransactionRecords.java``,
which an interop test runs again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.transaction_records import (
    TRANSACTION_LOG_VALUE,
    TransactionLogValue,
    TransactionPartitions,
    by_topic,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
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
