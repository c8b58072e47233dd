"""The records about topics in a KRaft cluster's metadata log.

Knows their layouts, declared as data, and decodes them (KIP-746). Does not know where the log is, or what
state the records add up to. Does not encode: only a cluster's controllers write its metadata.

A record's value is ``frame version, type, version`` as unsigned varints, then the message in Kafka's flexible
encoding: fields in order, then tagged fields, each with its tag and size.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.varint import decode_unsigned_varint
from logstore.model import Bytes

FRAME_VERSION = 1
MAX_STRING_BYTES = 1024 * 1024
MAX_ARRAY_LENGTH = 1_000_000


class MessageField(NamedTuple):
    """One field of a message."""

    name: str
    type: str
    """A key of the decoders below; with ``?`` at the end the field may be null."""
    since: int = 0
    """The first version that has it."""
    tag: int | None = None
    """A tagged field is left out if it has its default."""
    default: Any = None


class MessageLayout:
    """A message: its type, the highest known version, and its fields in order."""

    def __init__(self, name: str, key: int, max_version: int, *fields: MessageField) -> None:
        self.name = name
        self.key = key
        self.max_version = max_version
        self.fields = fields

    def describe(self) -> str:
        """The layout as a Markdown table: type, field, first version, tag."""
        lines = ["| Type | Field | Since version | Tag |", "|---|---|---|---|"]
        for field in self.fields:
            tag = "" if field.tag is None else str(field.tag)
            lines.append(f"| {field.type} | {field.name.replace('_', ' ')} | {field.since} | {tag} |")
        return "\n".join(lines)


_F = MessageField

TOPIC_RECORD = MessageLayout("TopicRecord", 2, 0, _F("name", "string"), _F("topic_id", "uuid"))

PARTITION_RECORD = MessageLayout(
    "PartitionRecord",
    3,
    2,
    _F("partition", "int32"),
    _F("topic_id", "uuid"),
    _F("replicas", "int32s"),
    _F("isr", "int32s"),
    _F("removing_replicas", "int32s"),
    _F("adding_replicas", "int32s"),
    _F("leader", "int32"),
    _F("leader_recovery_state", "int8", tag=0, default=0),
    _F("leader_epoch", "int32"),
    _F("partition_epoch", "int32"),
    _F("directories", "uuids", since=1),
    _F("eligible_leader_replicas", "int32s?", since=2, tag=1),
    _F("last_known_elr", "int32s?", since=2, tag=2),
)

PARTITION_CHANGE_RECORD = MessageLayout(
    "PartitionChangeRecord",
    5,
    2,
    _F("partition", "int32"),
    _F("topic_id", "uuid"),
    _F("isr", "int32s?", tag=0),
    _F("leader", "int32", tag=1, default=-2),
    _F("replicas", "int32s?", tag=2),
    _F("removing_replicas", "int32s?", tag=3),
    _F("adding_replicas", "int32s?", tag=4),
    _F("leader_recovery_state", "int8", tag=5, default=-1),
    _F("eligible_leader_replicas", "int32s?", since=2, tag=6),
    _F("last_known_elr", "int32s?", since=2, tag=7),
    _F("directories", "uuids?", since=1, tag=8),
)

CONFIG_RECORD = MessageLayout(
    "ConfigRecord",
    4,
    0,
    _F("resource_type", "int8"),
    _F("resource_name", "string"),
    _F("name", "string"),
    _F("value", "string?"),
)

REMOVE_TOPIC_RECORD = MessageLayout("RemoveTopicRecord", 9, 0, _F("topic_id", "uuid"))
BEGIN_TRANSACTION_RECORD = MessageLayout("BeginTransactionRecord", 23, 0, _F("name", "string?", tag=0))
END_TRANSACTION_RECORD = MessageLayout("EndTransactionRecord", 24, 0)
ABORT_TRANSACTION_RECORD = MessageLayout("AbortTransactionRecord", 25, 0, _F("reason", "string?", tag=0))

CLUSTER_LAYOUTS = (
    TOPIC_RECORD,
    PARTITION_RECORD,
    PARTITION_CHANGE_RECORD,
    CONFIG_RECORD,
    REMOVE_TOPIC_RECORD,
    BEGIN_TRANSACTION_RECORD,
    END_TRANSACTION_RECORD,
    ABORT_TRANSACTION_RECORD,
)

TOPIC_RESOURCE = 2
"""The resource type of a ConfigRecord about a topic."""

_LAYOUT_OF = {layout.key: layout for layout in CLUSTER_LAYOUTS}


class ClusterRecord(NamedTuple):
    """A decoded record: its layout, and its fields by name."""

    layout: MessageLayout
    fields: dict[str, Any]


def decode_cluster_record(value: Bytes) -> ClusterRecord | None:
    """Decode the value of a record of the metadata log; None for types that are not about topics.

    Raises:
        CorruptionError: the bytes end early, or a length is out of bounds.
        UnsupportedVersionError: the version of the frame, or of a record about topics, is unknown: a newer
            Kafka wrote it.
    """
    buffer = memoryview(value)
    frame_version, at = decode_unsigned_varint(buffer, 0)
    if frame_version != FRAME_VERSION:
        raise UnsupportedVersionError(
            f"metadata record has frame version {frame_version}; only {FRAME_VERSION} is known"
        )
    key, at = decode_unsigned_varint(buffer, at)
    version, at = decode_unsigned_varint(buffer, at)
    layout = _LAYOUT_OF.get(key)
    if layout is None:
        return None
    if version > layout.max_version:
        raise UnsupportedVersionError(
            f"{layout.name} has version {version}; up to {layout.max_version} is known"
        )
    try:
        return ClusterRecord(layout, _decode_fields(layout, version, buffer, at))
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise CorruptionError(f"{layout.name} does not decode: {error}") from None


def _decode_fields(layout: MessageLayout, version: int, buffer: memoryview, at: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    tagged: dict[int, MessageField] = {}
    for field in layout.fields:
        if field.tag is not None:
            tagged[field.tag] = field
            fields[field.name] = field.default
        elif version >= field.since:
            fields[field.name], at = _read_field(field.type, buffer, at)
    count, at = decode_unsigned_varint(buffer, at)
    for _ in range(count):
        tag, at = decode_unsigned_varint(buffer, at)
        size, at = decode_unsigned_varint(buffer, at)
        if at + size > len(buffer):
            raise CorruptionError(f"{layout.name}: tagged field {tag} ends after the record's end")
        known = tagged.get(tag)
        if known is not None:
            fields[known.name], _ = _read_field(known.type, buffer[: at + size], at)
        at += size
    if at != len(buffer):
        raise CorruptionError(f"{layout.name} is followed by {len(buffer) - at} bytes")
    return fields


def _read_field(type_name: str, buffer: memoryview, at: int) -> tuple[Any, int]:
    value, at = _READERS[type_name.removesuffix("?")](buffer, at)
    if value is None and not type_name.endswith("?"):
        raise CorruptionError(f"a {type_name} is null")
    return value, at


def _read_int8(buffer: memoryview, at: int) -> tuple[int, int]:
    return struct.unpack_from(">b", buffer, at)[0], at + 1


def _read_int32(buffer: memoryview, at: int) -> tuple[int, int]:
    return struct.unpack_from(">i", buffer, at)[0], at + 4


def _read_uuid(buffer: memoryview, at: int) -> tuple[uuid.UUID, int]:
    return uuid.UUID(bytes=bytes(buffer[at : at + 16])), at + 16


def _read_string(buffer: memoryview, at: int) -> tuple[str | None, int]:
    size, at = _read_length(buffer, at, MAX_STRING_BYTES)
    if size is None:
        return None, at
    if at + size > len(buffer):
        raise CorruptionError(f"a string of {size} bytes ends after its record's end")
    return bytes(buffer[at : at + size]).decode(), at + size


def _read_length(buffer: memoryview, at: int, limit: int) -> tuple[int | None, int]:
    """A compact length: stored as one more than the length, 0 for null."""
    length, at = decode_unsigned_varint(buffer, at)
    if length > limit:
        raise CorruptionError(f"a length of {length - 1} is above the limit of {limit}")
    return (length - 1 if length else None), at


def _array_of(read_one: Callable[[memoryview, int], tuple[Any, int]]) -> Callable[[memoryview, int], Any]:
    def read(buffer: memoryview, at: int) -> tuple[list[Any] | None, int]:
        count, at = _read_length(buffer, at, MAX_ARRAY_LENGTH)
        if count is None:
            return None, at
        if count > len(buffer) - at:  # each takes at least a byte
            raise CorruptionError(f"{count} elements do not fit into {len(buffer) - at} bytes")
        values = []
        for _ in range(count):
            value, at = read_one(buffer, at)
            values.append(value)
        return values, at

    return read


_READERS: dict[str, Callable[[memoryview, int], tuple[Any, int]]] = {
    "int8": _read_int8,
    "int32": _read_int32,
    "uuid": _read_uuid,
    "string": _read_string,
    "int32s": _array_of(_read_int32),
    "uuids": _array_of(_read_uuid),
}
