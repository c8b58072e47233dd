"""What a partition of ``__consumer_offsets`` says, in memory: group -> partition -> committed offset.

Values are kept as the bytes that the log has, and decoded when they are asked for: loading then decodes only
keys, and an offset takes some 100 bytes of memory with its place in the table.

What a transaction commits is pending until its marker comes. When it does, the record that stands later in
the log wins over an earlier one, as it does in Kafka and in a compaction. No I/O and no lock: the owner has
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.consumer_group_records import AboutConsumerGroup, decode_consumer_group_key
from logstore.format.messages.group_records import (
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_VALUE,
    OffsetCommitKey,
    decode_key,
)
from logstore.format.messages.message import Message, version_of
from logstore.model import Record, TopicPartition

_NOTHING: Final[Mapping[TopicPartition, bytes]] = {}

Row = tuple[bytes, bytes | None]
"""Key and value of a record."""


class _Pending(NamedTuple):
    """A record of an open transaction."""

    offset: int
    row: Row


class OffsetTable:
    """Of one partition of the topic."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[TopicPartition, bytes]] = {}
        self._groups: dict[str, bytes] = {}
        self._consumer_groups: dict[str, dict[AboutConsumerGroup, bytes]] = {}
        """Of groups of the newer protocol, all their records."""
        self._names: dict[TopicPartition, TopicPartition] = {}
        """Each partition once, however many groups have offsets of it."""
        self._pending: dict[int, list[_Pending]] = {}
        """By producer id."""
        self._applied: dict[bytes, int] = {}
        """Since a transaction is open: key -> the offset of its last record that counts."""

    # Looking

    def offsets_of(self, group: str) -> Mapping[TopicPartition, bytes]:
        """The values of a group's offsets, as :func:`.decode_offset_value` takes them."""
        return self._offsets.get(group, _NOTHING)

    def groups_with_offsets(self) -> Iterable[str]:
        return self._offsets.keys()

    def pending(self) -> Mapping[str, frozenset[TopicPartition]]:
        """Of each group the partitions for which an open transaction has offsets that would count if it was
        committed now: nothing of them stands later in the log."""
        found: dict[str, set[TopicPartition]] = {}
        for records in self._pending.values():
            for offset, (data, _) in records:
                key = decode_key(data)
                if isinstance(key, OffsetCommitKey) and self._applied.get(data, -1) < offset:
                    found.setdefault(key.group, set()).add(TopicPartition(key.topic, key.partition))
        return {group: frozenset(partitions) for group, partitions in found.items()}

    def group_values(self) -> Mapping[str, bytes]:
        """The metadata of each group that has any, as :func:`.decode_group_value` takes them."""
        return self._groups

    def consumer_groups(self) -> Mapping[str, Mapping[AboutConsumerGroup, bytes]]:
        """The records of each group of the newer protocol (KIP-848)."""
        return self._consumer_groups

    def pending_of(self, group: str) -> frozenset[TopicPartition]:
        """The partitions for which an open transaction has offsets of the group."""
        found = set()
        for records in self._pending.values():
            for record in records:
                key = decode_key(record.row[0])
                if isinstance(key, OffsetCommitKey) and key.group == group:
                    found.add(TopicPartition(key.topic, key.partition))
        return frozenset(found)

    # Changing

    def apply(self, rows: Iterable[Row], base_offset: int) -> None:
        """Take over what was appended from ``base_offset`` on, outside of any transaction.

        Raises:
            CorruptionError: a key or value is damaged.
            UnsupportedVersionError: a value is of a later version.
        """
        for offset, (key, value) in enumerate(rows, base_offset):
            self._apply(offset, key, value)

    def apply_records(self, records: Iterable[Record], producer_id: int | None) -> None:
        """Take over records that were read: those of an open transaction, if a producer is given.

        Raises:
            CorruptionError: a key or value is damaged.
            UnsupportedVersionError: a value is of a later version.
        """
        apply = self._apply
        if producer_id is None:
            for record in records:
                offset, _, key, value, _ = record
                if key is None:
                    raise CorruptionError("a record of __consumer_offsets without a key", base_offset=offset)
                apply(offset, key, value)
            return
        found = [_Pending(record.offset, (record.key or b"", record.value)) for record in records]
        if found:  # compaction empties batches, and then takes the marker
            self._pending.setdefault(producer_id, []).extend(found)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A marker of the producer has come."""
        for offset, (key, value) in self._pending.pop(producer_id, ()):
            if committed and self._applied.get(key, -1) < offset:
                self._apply(offset, key, value)
        if not self._pending:
            self._applied.clear()

    def _apply(self, offset: int, key: bytes, value: bytes | None) -> None:
        about = decode_key(key)
        if about is None:
            self._apply_newer(key, value)
            return
        if self._pending:
            self._applied[key] = offset
        if isinstance(about, OffsetCommitKey):
            self._set_offset(about, value)
        elif value is None:
            self._groups.pop(about.group, None)
        else:
            if value[:2] not in _GROUP_PREFIXES:
                _refuse(GROUP_METADATA_VALUE, value)
            self._groups[about.group] = value

    def _apply_newer(self, key: bytes, value: bytes | None) -> None:
        about = decode_consumer_group_key(key)
        if about is None:
            return
        if value is not None:
            self._consumer_groups.setdefault(about.group, {})[about] = value
            return
        records = self._consumer_groups.get(about.group, {})
        records.pop(about, None)
        if not records:
            self._consumer_groups.pop(about.group, None)

    def _set_offset(self, about: OffsetCommitKey, value: bytes | None) -> None:
        group, partition = about.group, TopicPartition(about.topic, about.partition)
        offsets = self._offsets.get(group)
        if value is not None:
            if value[:2] not in _OFFSET_PREFIXES:
                _refuse(OFFSET_COMMIT_VALUE, value)
            if offsets is None:
                offsets = self._offsets[group] = {}
            offsets[self._names.setdefault(partition, partition)] = value
        elif offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._offsets[group]


def _prefixes_of(message: Message[Any]) -> frozenset[bytes]:
    """How the values of the versions that are known begin."""
    return frozenset(version.to_bytes(2) for version in range(message.first, message.last + 1))


_OFFSET_PREFIXES: Final = _prefixes_of(OFFSET_COMMIT_VALUE)
_GROUP_PREFIXES: Final = _prefixes_of(GROUP_METADATA_VALUE)


def _refuse(message: Message[Any], value: bytes) -> NoReturn:
    """
    Raises:
        CorruptionError: the value is too short to have a version.
        UnsupportedVersionError: its version is not known: a newer Kafka or logstore has written it.
    """
    raise UnsupportedVersionError(
        f"a record of __consumer_offsets has a {message.name} of version {version_of(value)}; "
        f"{message.first} to {message.last} are known. Upgrade logstore"
    )
