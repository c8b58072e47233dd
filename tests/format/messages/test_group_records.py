"""The records of ``__consumer_offsets`` are Kafka's, byte for byte.

``group_records.txt`` is what the classes of Kafka 4.4 print: ``tests/interop/GroupRecords.java``, which an
interop test runs again.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.messages.fields import NO_UUID
from logstore.format.messages.group_records import (
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from logstore.model import TopicPartition

VALUE = OffsetCommitValue(
    offset=1234567890123,
    leader_epoch=7,
    metadata="mé",
    commit_timestamp_ms=1700000000000,
    expire_timestamp_ms=1700000086400,
    topic_id=uuid.UUID("01234567-89ab-cdef-1122-334455667788"),
)
MEMBER = MemberMetadata(
    member_id="m-1",
    group_instance_id="i-1",
    client_id="c",
    client_host="/10.0.0.1",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"\0\1\2",
    assignment=b"\3",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=5,
    protocol="range",
    leader="m-1",
    current_state_timestamp_ms=1700000000001,
    members=(MEMBER,),
)
EMPTY = GroupMetadataValue(protocol_type="consumer", generation=6, protocol="", leader="")

_LINES = (Path(__file__).parent / "group_records.txt").read_text().splitlines()
GOLDEN = {name: bytes.fromhex(shown) for name, shown in (x.split("\t") for x in _LINES if " of " not in x)}


def offset_of(version: int) -> OffsetCommitValue:
    """What a version keeps of VALUE."""
    return VALUE._replace(
        leader_epoch=7 if version >= 3 else -1,
        expire_timestamp_ms=VALUE.expire_timestamp_ms if version == 1 else -1,
        topic_id=VALUE.topic_id if version == 4 else NO_UUID,
    )


def group_of(version: int) -> GroupMetadataValue:
    member = MEMBER
    if version < 1:
        member = member._replace(rebalance_timeout_ms=-1)
    if version < 3:
        member = member._replace(group_instance_id=None)
    group = GROUP._replace(members=(member,))
    return group if version >= 2 else group._replace(current_state_timestamp_ms=-1)


@pytest.mark.parametrize("version", range(5))
def test_an_offset_is_encoded_as_kafka_does(version):
    encoded = GOLDEN[f"offset value {version}"]
    assert b"\0" + bytes([version]) + OFFSET_COMMIT_VALUE.encode(VALUE, version) == encoded
    assert decode_offset_value(encoded) == offset_of(version)


@pytest.mark.parametrize("version", range(5))
def test_a_group_is_encoded_as_kafka_does(version):
    for name, group in (("group value", group_of(version)), ("empty group value", EMPTY)):
        encoded = GOLDEN[f"{name} {version}"]
        assert b"\0" + bytes([version]) + GROUP_METADATA_VALUE.encode(group, version) == encoded
        assert decode_group_value(encoded) == group


def test_keys_are_encoded_as_kafka_does():
    offset_key, group_key = GOLDEN["offset key"], GOLDEN["group key"]
    assert encode_offset_key("billing", TopicPartition("orders", 3)) == offset_key
    assert encode_group_key("grüße") == group_key
    assert decode_key(offset_key) == OffsetCommitKey("billing", "orders", 3)
    assert decode_key(b"\0\0" + offset_key[2:]) == OffsetCommitKey("billing", "orders", 3)
    assert decode_key(group_key) == GroupMetadataKey("grüße")


def test_what_is_written_are_the_versions_of_a_stock_broker():
    assert encode_offset_value(offset_of(3)) == GOLDEN["offset value 3"]
    assert encode_offset_value(offset_of(1)) == GOLDEN["offset value 1"]
    assert encode_group_value(GROUP) == GOLDEN["group value 3"]


@pytest.mark.parametrize("kind", [-1, 3, 8, 32_767])
def test_other_kinds_of_records_are_passed_over(kind):
    assert decode_key(kind.to_bytes(2, "big", signed=True) + b"anything") is None


@pytest.mark.parametrize("decode", [decode_offset_value, decode_group_value])
def test_a_value_of_a_later_version_is_refused(decode):
    with pytest.raises(UnsupportedVersionError, match="has version 5; 0 to 4 are known"):
        decode(b"\0\5" + b"\0" * 100)


@pytest.mark.parametrize("decode", [decode_key, decode_offset_value, decode_group_value])
@given(st.binary(max_size=60), st.integers(0, 4))
def test_no_bytes_raise_anything_but_our_error(decode, rest, version):
    for data in (rest, bytes([0, version]) + rest):
        try:
            decode(data)
        except (CorruptionError, UnsupportedVersionError):
            continue


_int64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.tuples(_int64, st.integers(-(2**31), 2**31 - 1), st.text(max_size=50), _int64),
    st.text(max_size=50),
)
def test_offsets_and_keys_come_back(fields, text):
    value = OffsetCommitValue(*fields)
    assert decode_offset_value(encode_offset_value(value)) == value
    assert decode_key(encode_offset_key(text, TopicPartition(text[:3], 5))) == OffsetCommitKey(
        text, text[:3], 5
    )
    assert decode_key(encode_group_key(text)) == GroupMetadataKey(text)


@pytest.mark.parametrize("group", ["x" * 32_768, "\ud800", 5, None])
def test_what_is_no_group_is_refused(group):
    with pytest.raises(UsageError):
        encode_offset_key(group, TopicPartition("orders", 0))
    with pytest.raises(UsageError):
        encode_group_key(group)
