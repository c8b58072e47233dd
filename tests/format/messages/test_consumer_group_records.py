"""The records of groups of the newer protocol are Kafka's, byte for byte.

``consumer_group_records.txt`` is what the classes of Kafka 4.4 print in
``tests/interop/ConsumerGroupRecords.java``, which an interop test runs again.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages import consumer_group_records as records
from logstore.format.messages.consumer_group_records import (
    AboutConsumerGroup,
    decode_consumer_group_key,
    encode_consumer_group_key,
)

_LINES = Path(__file__).with_name("consumer_group_records.txt").read_text().splitlines()
GOLDEN = {name: bytes.fromhex(shown) for name, shown in (line.split("\t") for line in _LINES)}
ORDERS = uuid.UUID("01234567-89ab-cdef-1122-334455667788")

KEYS = {
    "group key": AboutConsumerGroup(records.GROUP_KIND, "grüße"),
    "topics key": AboutConsumerGroup(records.TOPICS_KIND, "grüße"),
    "member key": AboutConsumerGroup(records.MEMBER_KIND, "g", "m-1"),
    "target key": AboutConsumerGroup(records.TARGET_KIND, "g"),
    "target of member key": AboutConsumerGroup(records.TARGET_OF_MEMBER_KIND, "g", "m-1"),
    "current of member key": AboutConsumerGroup(records.CURRENT_OF_MEMBER_KIND, "g", "m-1"),
    "pattern key": AboutConsumerGroup(records.PATTERN_KIND, "g", "o.*"),
}
MEMBER = records.ConsumerGroupMemberMetadataValue(
    "i-1", "r", "c", "/10.0.0.1", ("bills", "orders"), "o.*", 300_000, "uniform", None
)
CLASSIC = records.ClassicMemberMetadata(45_000, (records.ClassicProtocol("range", b"\0\1\2"),))
VALUES = {
    "group value": (records.GROUP_VALUE, records.ConsumerGroupMetadataValue(7, 1234567890123)),
    "group value without hash": (records.GROUP_VALUE, records.ConsumerGroupMetadataValue(7)),
    "member value": (records.MEMBER_VALUE, MEMBER),
    "classic member value": (records.MEMBER_VALUE, MEMBER._replace(classic_member_metadata=CLASSIC)),
    "bare member value": (
        records.MEMBER_VALUE,
        records.ConsumerGroupMemberMetadataValue(classic_member_metadata=None),
    ),
    "target value": (
        records.TARGET_VALUE,
        records.ConsumerGroupTargetAssignmentMetadataValue(7, 1700000000000),
    ),
    "target of member value": (
        records.TARGET_OF_MEMBER_VALUE,
        records.ConsumerGroupTargetAssignmentMemberValue((records.TargetPartitions(ORDERS, (0, 2)),)),
    ),
    "current of member value": (
        records.CURRENT_OF_MEMBER_VALUE,
        records.ConsumerGroupCurrentMemberAssignmentValue(
            7,
            6,
            1,
            (records.CurrentPartitions(ORDERS, (0, 2), (5, 7)),),
            (records.CurrentPartitions(ORDERS, (1,), None),),
        ),
    ),
    "pattern value": (
        records.PATTERN_VALUE,
        records.ConsumerGroupRegularExpressionValue(("orders",), 11, 1700000000000),
    ),
}


def test_every_record_is_told_of():
    assert KEYS.keys() | VALUES.keys() == GOLDEN.keys()


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_encoded_as_kafka_does(name):
    assert encode_consumer_group_key(KEYS[name]) == GOLDEN[name]
    assert decode_consumer_group_key(GOLDEN[name]) == KEYS[name]


@pytest.mark.parametrize("name", VALUES)
def test_values_are_encoded_as_kafka_does(name):
    message, value = VALUES[name]
    assert message.encode_versioned(value, records.VALUE_VERSION) == GOLDEN[name]
    assert message.decode_versioned(GOLDEN[name]) == value


@pytest.mark.parametrize("kind", [-1, 0, 2, 9, 10, 15, 17, 32_767])
def test_other_kinds_of_records_are_passed_over(kind):
    assert decode_consumer_group_key(kind.to_bytes(2, "big", signed=True) + b"anything") is None


def test_a_value_of_a_later_version_is_refused():
    for message, _ in VALUES.values():
        with pytest.raises(UnsupportedVersionError, match="has version 1; 0 to 0 are known"):
            message.decode_versioned(b"\0\1" + b"\0" * 100)


@given(st.binary(max_size=60), st.sampled_from([message for message, _ in VALUES.values()]))
def test_no_bytes_raise_anything_but_our_error(rest, message):
    for decode in (decode_consumer_group_key, message.decode_versioned):
        for data in (rest, b"\0\0" + rest, b"\0\5" + rest):
            try:
                decode(data)
            except (CorruptionError, UnsupportedVersionError):
                continue
