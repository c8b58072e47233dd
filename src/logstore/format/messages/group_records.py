"""The records of ``__consumer_offsets``: committed offsets, and what the members of a group have agreed on.

A key begins with a number of two bytes that says what the record is: an offset (0 and 1), or a group (2).
Others are Kafka's newer kinds of group (KIP-848: 3 and up), which are not read here. A value begins with the
version of its own message. A null value is a tombstone.

Source: Kafka's ``group-coordinator/src/main/resources/common/message``, 3.9 and 4.x.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from logstore.format.messages.fields import NO_UUID, Data, Int32, Int64, String, Uuid, since, tagged, until
from logstore.format.messages.message import Message, version_of
from logstore.model import Bytes, TopicPartition


class OffsetCommitKey(NamedTuple):
    """Whose offset, and of which partition."""

    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(NamedTuple):
    """A committed offset."""

    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(3)] = -1
    """Of the last record that was read; -1 if it is not known."""
    metadata: String = ""
    commit_timestamp_ms: Int64 = -1
    expire_timestamp_ms: Annotated[Int64, since(1), until(1)] = -1
    """When it expires, where the consumer chose a time of its own; -1 if the broker's setting decides."""
    topic_id: Annotated[Uuid, since(4), tagged(0)] = NO_UUID
    """Of the topic, so that one that was made again under the same name does not inherit it."""


class GroupMetadataKey(NamedTuple):
    """Which group."""

    group: String = ""


class MemberMetadata(NamedTuple):
    """One member of a group."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    session_timeout_ms: Int32 = -1
    subscription: Data = b""
    assignment: Data = b""


class GroupMetadataValue(NamedTuple):
    """A group: its generation, and its members with what each was assigned."""

    protocol_type: String = ""
    generation: Int32 = -1
    protocol: String | None = None
    leader: String | None = None
    current_state_timestamp_ms: Annotated[Int64, since(2)] = -1
    """Since when the group has been in its state: without members, if it has none. -1 if it is not known."""
    members: tuple[MemberMetadata, ...] = ()


OFFSET_COMMIT_KEY: Final = Message(OffsetCommitKey, 0, 1)
OFFSET_COMMIT_VALUE: Final = Message(OffsetCommitValue, 0, 4, flexible=4)
GROUP_METADATA_KEY: Final = Message(GroupMetadataKey, 2, 2)
GROUP_METADATA_VALUE: Final = Message(GroupMetadataValue, 0, 4, flexible=4)

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
"""The only version that has the time of expiry."""
GROUP_VALUE_VERSION: Final = 3

Key = OffsetCommitKey | GroupMetadataKey
"""What a record may be about."""


def encode_offset_key(group: str, partition: TopicPartition) -> bytes:
    """The key of a group's offset for a partition (version 1).

    Raises:
        UsageError: the group or the topic has more than 32,767 bytes, or is no text.
    """
    return OFFSET_COMMIT_KEY.encode_versioned(OffsetCommitKey(group, *partition), OFFSET_KEY_VERSION)


def encode_offset_value(value: OffsetCommitValue) -> bytes:
    """The value, as Kafka 3.9 writes it: version 3, or 1 if it has a time of expiry. Later brokers read it;
    4.4 itself adds the topic's id (version 4).

    Raises:
        UsageError: a number does not fit, or the metadata is too long or no text.
    """
    version = OFFSET_VALUE_VERSION if value.expire_timestamp_ms < 0 else OFFSET_VALUE_VERSION_WITH_EXPIRY
    return OFFSET_COMMIT_VALUE.encode_versioned(value, version)


def encode_group_key(group: str) -> bytes:
    """The key of a group's metadata (version 2).

    Raises:
        UsageError: the group has more than 32,767 bytes, or is no text.
    """
    return GROUP_METADATA_KEY.encode_versioned(GroupMetadataKey(group), GROUP_KEY_VERSION)


def encode_group_value(value: GroupMetadataValue) -> bytes:
    """The value, as Kafka 3.9 and 4.4 write it (version 3).

    Raises:
        UsageError: a number or a text does not fit.
    """
    return GROUP_METADATA_VALUE.encode_versioned(value, GROUP_VALUE_VERSION)


def decode_key(data: Bytes) -> Key | None:
    """What a record is about; None if it is of a kind that is not known here, and is to be left alone.

    Raises:
        CorruptionError: it is cut short, or has text that is not UTF-8.
    """
    version = version_of(data)
    if version in (0, OFFSET_KEY_VERSION):
        return OFFSET_COMMIT_KEY.decode_versioned(data)
    if version == GROUP_KEY_VERSION:
        return GROUP_METADATA_KEY.decode_versioned(data)
    return None


def decode_offset_value(data: Bytes) -> OffsetCommitValue:
    """A committed offset, of any version that is known.

    Raises:
        UnsupportedVersionError: of a later version.
        CorruptionError: it is cut short, or has text that is not UTF-8.
    """
    return OFFSET_COMMIT_VALUE.decode_versioned(data)


def decode_group_value(data: Bytes) -> GroupMetadataValue:
    """A group's metadata, of any version that is known.

    Raises:
        UnsupportedVersionError: of a later version.
        CorruptionError: it is cut short, or has text that is not UTF-8.
    """
    return GROUP_METADATA_VALUE.decode_versioned(data)
