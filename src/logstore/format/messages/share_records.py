"""The records of ``__share_group_state``: how far the delivery of each share-partition has come (KIP-932).

A share-partition is a partition as one share group consumes it. A snapshot says all of its state, an update
what has changed since the record before. A key begins with a number of two bytes that says which of the two
it is: 0 or 1. A value begins with the version of its own message. A null value for a snapshot's key is a
tombstone.

Kafka 4.0 wrote other values under the same versions; its share groups were an early access, and 4.1 does not
read them either. Kafka 4.2 has added a tagged field (KIP-1226), which 4.1 passes over. The time of
``ShareBatch.available_at_ms`` is logstore's own: in a tagged field that Kafka passes over.

Source: Kafka's ``share-coordinator/src/main/resources/common/message``, 4.1 to 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

from logstore.errors import CorruptionError
from logstore.format.messages.fields import NO_UUID, OWN_TAG, Int8, Int16, Int32, Int64, String, Uuid, tagged
from logstore.format.messages.message import Message, version_of
from logstore.model import Bytes

NO_TIME: Final = -1
UNCHANGED: Final = -1
"""The start offset or leader epoch of an update that leaves it as it is."""
UNKNOWN_COUNT: Final = -1


class ShareKey(NamedTuple):
    """A share-partition."""

    group_id: String = ""
    topic_id: Uuid = NO_UUID
    partition: Int32 = 0

    def __str__(self) -> str:
        return f"share group {self.group_id!r}, topic {self.topic_id}, partition {self.partition}"


class ShareBatch(NamedTuple):
    """Offsets that are side by side and in the same state."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    state: Int8 = 0
    """A :class:`~logstore.broker.share.states.RecordState`."""
    delivery_count: Int16 = 0
    available_at_ms: Annotated[Int64, tagged(OWN_TAG)] = NO_TIME
    """When they may be delivered again, in milliseconds since the epoch; -1 if at once. Not Kafka's: a broker
    delivers them at once."""


class ShareSnapshot(NamedTuple):
    """All of a share-partition's state."""

    snapshot_epoch: Int32 = 0
    """Counts the snapshots."""
    state_epoch: Int32 = 0
    """Counts how often the start offset was set from outside. Writers of an earlier epoch are fenced."""
    leader_epoch: Int32 = 0
    """Of the partition that is consumed."""
    start_offset: Int64 = 0
    """Everything below it is done with."""
    delivery_complete_count: Annotated[Int32, tagged(0)] = UNKNOWN_COUNT
    """How many offsets from the start offset on are done with (KIP-1226); -1 if it is not known."""
    create_timestamp_ms: Int64 = 0
    """When the state was last changed, in milliseconds since the epoch."""
    write_timestamp_ms: Int64 = 0
    """When this snapshot of it was written: later, if the state was only written again."""
    batches: tuple[ShareBatch, ...] = ()
    """By offset. Those that are not in them, from the start offset on, were never delivered."""


class ShareUpdate(NamedTuple):
    """What has changed since the record before."""

    snapshot_epoch: Int32 = 0
    """Of the last snapshot."""
    leader_epoch: Int32 = UNCHANGED
    start_offset: Int64 = UNCHANGED
    delivery_complete_count: Annotated[Int32, tagged(0)] = UNKNOWN_COUNT
    batches: tuple[ShareBatch, ...] = ()
    """The offsets that have a new state."""


SHARE_KEY: Final = Message(ShareKey, 0, 1)
"""Version 0 is a snapshot's key, 1 an update's. Their fields are the same."""
SHARE_SNAPSHOT: Final = Message(ShareSnapshot, 0, 0, flexible=0)
SHARE_UPDATE: Final = Message(ShareUpdate, 0, 0, flexible=0)

SNAPSHOT_KEY_VERSION: Final = 0
UPDATE_KEY_VERSION: Final = 1
VALUE_VERSION: Final = 0


class DecodedShareKey(NamedTuple):
    """What a record is about."""

    key: ShareKey
    is_snapshot: bool


def encode_share_key(key: ShareKey, *, is_snapshot: bool) -> bytes:
    """The key of a share-partition's snapshots, or of its updates.

    Raises:
        UsageError: the group has more than 32,767 bytes, or is no text; or the partition does not fit.
    """
    return SHARE_KEY.encode_versioned(key, SNAPSHOT_KEY_VERSION if is_snapshot else UPDATE_KEY_VERSION)


def decode_share_key(data: Bytes) -> DecodedShareKey | None:
    """What a record is about; None if it is of a kind that is not known here, and is to be left alone.

    Raises:
        CorruptionError: it is cut short, or has text that is not UTF-8.
    """
    version = version_of(data)
    if version not in (SNAPSHOT_KEY_VERSION, UPDATE_KEY_VERSION):
        return None
    return DecodedShareKey(SHARE_KEY.decode_versioned(data), version == SNAPSHOT_KEY_VERSION)


def encode_share_snapshot(value: ShareSnapshot) -> bytes:
    """The value, as Kafka 4.4 writes it; Kafka 4.1 and later read it.

    Raises:
        UsageError: a number does not fit.
    """
    return SHARE_SNAPSHOT.encode_versioned(value, VALUE_VERSION)


def decode_share_snapshot(data: Bytes) -> ShareSnapshot:
    """A snapshot of Kafka 4.1 or later.

    Raises:
        UnsupportedVersionError: of a later version.
        CorruptionError: it is cut short, or a batch ends before it begins.
    """
    value = SHARE_SNAPSHOT.decode_versioned(data)
    _check_batches(value.batches, SHARE_SNAPSHOT.name)
    return value


def encode_share_update(value: ShareUpdate) -> bytes:
    """The value, as Kafka 4.4 writes it; Kafka 4.1 and later read it.

    Raises:
        UsageError: a number does not fit.
    """
    return SHARE_UPDATE.encode_versioned(value, VALUE_VERSION)


def decode_share_update(data: Bytes) -> ShareUpdate:
    """An update of Kafka 4.1 or later.

    Raises:
        UnsupportedVersionError: of a later version.
        CorruptionError: it is cut short, or a batch ends before it begins.
    """
    value = SHARE_UPDATE.decode_versioned(data)
    _check_batches(value.batches, SHARE_UPDATE.name)
    return value


def _check_batches(batches: Iterable[ShareBatch], what: str) -> None:
    for batch in batches:
        if not 0 <= batch.first_offset <= batch.last_offset:
            raise CorruptionError(
                f"{what} has a batch of offsets {batch.first_offset} to {batch.last_offset}"
            )
