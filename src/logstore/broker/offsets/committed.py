"""Committed offsets of all groups: what a coordinator, and users without one, commit, fetch and delete.

Puts the rooms of this folder together, and knows no members and no generations: whether a commit is allowed
is decided above. Offsets are not held against the logs that they are of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.offsets.expiry import (
    CHECK_INTERVAL_MS,
    EmptySince,
    empty_since_stored,
    find_expired,
)
from logstore.broker.offsets.partition import OffsetsPartition
from logstore.broker.offsets.table import OffsetTable, Row
from logstore.broker.offsets.topic import offsets_topic, partition_of
from logstore.errors import LogstoreError, RetriableError, UsageError
from logstore.format.messages.consumer_group_records import (
    MEMBER_KIND,
    AboutConsumerGroup,
    encode_consumer_group_key,
    in_order_of_removal,
)
from logstore.format.messages.group_records import (
    GroupMetadataValue,
    OffsetCommitValue,
    decode_group_value,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import OffsetAndMetadata, ProducerIdentity, TopicPartition
from logstore.partition.state.context import LogContext
from logstore.schedule import Task
from logstore.warning import inform

_MS_PER_MINUTE: Final = 60_000
_NO_EPOCH: Final = -1


class CommittedOffsets:
    """Of one directory. All methods may be called from many threads.

    A directory that is open for reading only can be looked at, beside its writer; changes raise
    ``ReadOnlyError``.
    """

    def __init__(
        self, directory: LogDirectory | WatchedDirectory, *, empty_since: EmptySince | None = None
    ) -> None:
        """``empty_since``: says of a group whether it has members. By default the metadata that are stored
        for it do."""
        self._config = directory.config
        self._context = directory.context
        self._topic = offsets_topic(directory)
        self._empty_since = empty_since
        self._lock = threading.Lock()
        """Guards the list of partitions, and which of them are being loaded, or could not be."""
        self._partitions: list[OffsetsPartition] = []
        self._loading: set[OffsetsPartition] = set()
        self._failed: set[OffsetsPartition] = set()
        self._setting_back = threading.Lock()
        self._end_of: Callable[[TopicPartition], int | None] | None = None
        """By what offsets are still to be set back; None if they were, or need not be."""
        self._expiry: Task | None = None
        if isinstance(directory, LogDirectory):
            self._expiry = self._context.scheduler.every(CHECK_INTERVAL_MS, "expire offsets", self.expire)

    def retire(self) -> None:
        """Another object looks after the offsets from now on, here or at another node."""
        if self._expiry is not None:
            self._expiry.cancel()

    @property
    def context(self) -> LogContext:
        """What the logs of the directory share: its scheduler and its clock."""
        return self._context

    # Where

    def partition_of(self, group: str) -> int:
        """The partition of ``__consumer_offsets`` that has the group's records."""
        return partition_of(group, self._topic.partition_count)

    def partition_for(self, group: str) -> TopicPartition:
        """The same as a partition of the topic, for a transaction that is to have it."""
        return TopicPartition(self._topic.name, self.partition_of(group))

    def _all(self) -> list[OffsetsPartition]:
        """Those of the topic, with no offset that is still to be set back; none if it is not there.

        Raises:
            LogstoreError: offsets cannot be set back.
        """
        if self._end_of is not None:
            self.finish_setting_back()
        return self._all_as_they_are()

    def _all_as_they_are(self) -> list[OffsetsPartition]:
        count = self._topic.find_count() or 0
        partitions = self._partitions
        if len(partitions) < count:
            with self._lock:
                for number in range(len(partitions), count):
                    partitions.append(OffsetsPartition(self._topic, number, self._context.clock))
        return partitions[:count]

    def _of(self, group: str) -> OffsetsPartition | None:
        """The one that has the group's records; None if nothing was ever committed here."""
        partitions = self._all()
        return partitions[partition_of(group, len(partitions))] if partitions else None

    def _require(self, group: str) -> OffsetsPartition:
        found = self._of(group)
        if found is None:
            self._topic.require()
            found = self._of(group)
            assert found is not None
        else:
            self._topic.writable()
        return found

    def writable(self) -> LogDirectory:
        """The directory, to change something.

        Raises:
            ReadOnlyError: it is open for reading only.
            ClosedError, ForkedError: it cannot be used.
        """
        directory = self._topic.writable()
        directory.check_open()
        return directory

    # Loading

    def load_state(self, group: str) -> ErrorCode:
        """Whether a look at the group's offsets would wait for them to be read from disk, for callers that do
        not: ``NONE`` if not. Else they are being read in the background from now on, and the caller asks
        again: ``COORDINATOR_LOAD_IN_PROGRESS``; or ``COORDINATOR_NOT_AVAILABLE`` if the last try has failed.
        """
        try:
            partition = self._of(group)
            if partition is None or partition.is_loaded:
                return ErrorCode.NONE
        except LogstoreError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        with self._lock:
            if partition in self._loading:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            self._loading.add(partition)
            has_failed = partition in self._failed
        self._load_soon(partition)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if has_failed else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _load_soon(self, partition: OffsetsPartition) -> None:
        def load() -> None:
            self._failed.add(partition)
            try:
                partition.load()
                self._failed.discard(partition)
            finally:
                self._loading.discard(partition)

        try:
            self._context.scheduler.after(0, "load committed offsets", load, is_waiting=True)
        except RetriableError:  # there is no thread for it
            self._loading.discard(partition)

    # Looking

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetCommitValue]:
        """The group's committed offsets, of these partitions or of all; those that have none are left out.
        What an open transaction has committed does not count: see :meth:`unstable`.

        Cost: 5 µs, and 1.5 µs for each offset; once the whole log of the group's partition.

        Raises:
            UnknownTopicError: this directory does not hold the partition that has the group.
            CorruptionError, UnsupportedVersionError: the offsets cannot be read.
        """
        found = self._of(group)
        if found is None:
            return {}

        def choose(table: OffsetTable) -> dict[TopicPartition, bytes]:
            known = table.offsets_of(group)
            return {
                each: known[each] for each in (known if partitions is None else partitions) if each in known
            }

        return {partition: decode_offset_value(value) for partition, value in found.look(choose).items()}

    def fetch_many(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, OffsetCommitValue]]:
        """All that several groups have committed, with one look at each partition of the topic. Raises as
        :meth:`fetch`."""
        by_partition: dict[OffsetsPartition | None, list[str]] = {}
        for group in groups:
            by_partition.setdefault(self._of(group), []).append(group)
        found: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        for partition, names in by_partition.items():
            values = {} if partition is None else partition.look(partial(_copy_offsets, names))
            for name in names:
                encoded = values.get(name, {})
                found[name] = {each: decode_offset_value(value) for each, value in encoded.items()}
        return found

    def unstable(self, group: str) -> frozenset[TopicPartition]:
        """The partitions for which a transaction that is still open has offsets of the group
        (``UNSTABLE_OFFSET_COMMIT``, KIP-447)."""
        found = self._of(group)
        return frozenset() if found is None else found.look(lambda table: table.pending_of(group))

    def groups(self) -> frozenset[str]:
        """The groups that have committed offsets."""
        found: set[str] = set()
        for partition in self._all():
            found.update(partition.look(lambda table: list(table.groups_with_offsets())))
        return frozenset(found)

    def all_groups(self) -> frozenset[str]:
        """The same, and those for which an open transaction has offsets."""
        found: set[str] = set()
        for partition in self._all():
            found.update(partition.look(lambda table: {*table.groups_with_offsets(), *table.pending()}))
        return frozenset(found)

    def has_any(self, group: str) -> bool:
        """Whether a group is one of :meth:`all_groups`. Cost: 5 µs."""
        found = self._of(group)
        return found is not None and found.look(
            lambda table: bool(table.offsets_of(group)) or group in table.pending()
        )

    # Committing

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        producer: ProducerIdentity | None = None,
        flush: bool = False,
    ) -> None:
        """Store offsets, all of them or none: they are one batch. When the call returns they survive the
        death of the process; with ``flush`` also a power cut.

        Args:
            producer: they are part of this producer's transaction, and count once its marker is in the
                group's partition.

        Cost: 25 µs, and 5 µs for each further partition. The first commit of all makes the topic.

        Raises:
            UsageError: metadata is longer than ``offset_metadata_max_bytes``; or a name or number does not
                fit.
            RecordTooLargeError: they do not fit into one batch.
            ReadOnlyError: the directory is open for reading only.
            StorageError: the disk refused. Nothing was stored; or the flush failed.
        """
        now_ms = self._context.clock.now_ms()
        rows: list[Row] = []
        for partition, (offset, metadata, leader_epoch) in offsets.items():
            self.check_metadata(partition, metadata)
            epoch = _NO_EPOCH if leader_epoch is None else leader_epoch
            value = OffsetCommitValue(offset, epoch, metadata, now_ms)
            rows.append((encode_offset_key(group, partition), encode_offset_value(value)))
        if rows:
            what = f"{len(rows)} offsets of group {group!r}"
            self._require(group).append(rows, what, producer=producer, flush=flush)

    def is_metadata_too_large(self, metadata: str) -> bool:
        """Whether a commit with it would be refused (``OFFSET_METADATA_TOO_LARGE``)."""
        return len(metadata.encode("utf-8", "surrogatepass")) > self._config.offset_metadata_max_bytes

    def check_metadata(self, partition: TopicPartition, metadata: str) -> None:
        """
        Raises:
            UsageError: it is too large.
        """
        if self.is_metadata_too_large(metadata):
            raise UsageError(
                f"the metadata for {partition} has {len(metadata)} characters; offset_metadata_max_bytes "
                f"allows {self._config.offset_metadata_max_bytes} bytes"
            )

    # Removing

    def delete(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, flush: bool = False
    ) -> tuple[TopicPartition, ...]:
        """Remove the group's offsets of these partitions, or all of them, and what open transactions have
        committed for them. Returns those that it had.

        Raises:
            ReadOnlyError: the directory is open for reading only.
            CorruptionError, UnsupportedVersionError: the offsets cannot be read.
            StorageError: the disk refused.
        """
        self.writable()
        found = self._of(group)
        if found is None:
            return ()
        wanted = None if partitions is None else frozenset(partitions)
        removed: list[TopicPartition] = []

        def choose(table: OffsetTable) -> list[Row]:
            removed.extend(each for each in table.offsets_of(group) if wanted is None or each in wanted)
            found = [each for each in _all_of(table, group) if wanted is None or each in wanted]
            return [(encode_offset_key(group, partition), None) for partition in found]

        found.change(choose, flush=flush)
        if removed:
            inform("group %r: removed %d committed offsets", group, len(removed))
        return tuple(removed)

    def delete_group(self, group: str) -> None:
        """Remove a group's offsets, those in open transactions too, and its metadata, in one batch unless
        there are thousands. Raises as :meth:`delete`."""
        self.writable()
        found = self._of(group)
        if found is None:
            return

        offset_count = 0

        def choose(table: OffsetTable) -> list[Row]:
            nonlocal offset_count
            offset_count = len(table.offsets_of(group))
            rows: list[Row] = [(encode_offset_key(group, each), None) for each in _all_of(table, group)]
            return rows + _without_classic_group(table, group) + _without_consumer_group(table, group)

        found.change(choose)
        inform("group %r: deleted, with %d committed offsets", group, offset_count)

    def forget_group(self, group: str) -> None:
        """Remove a group's metadata, but not its offsets. Raises as :meth:`delete`."""
        self.writable()
        found = self._of(group)
        if found is not None:
            found.change(lambda table: _without_classic_group(table, group))

    def forget_topic(self, name: str) -> None:
        """Remove all groups' offsets of a topic that was deleted, those in open transactions too: one that is
        made again under its name begins at offset 0. Durably: after a power cut they would count for that
        one. Cost: an fsync, if there are any. Raises as :meth:`delete`."""
        self.writable()
        self._remove_where(
            lambda table, group: [each for each in _all_of(table, group) if each.topic == name],
            f"topic {name!r} was deleted",
            flush=True,
        )

    def expire(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Remove the offsets that have expired (``offsets_retention_minutes``): see
        :mod:`~logstore.broker.offsets.expiry`. Returns those of each group. Runs in the background every ten
        minutes, once this object is made. Raises as :meth:`delete`."""
        if self._config.offsets_retention_minutes < 0:
            return {}
        now_ms = self._context.clock.now_ms()
        retention_ms = self._config.offsets_retention_minutes * _MS_PER_MINUTE

        def find(table: OffsetTable, group: str) -> list[TopicPartition]:
            return find_expired(
                table.offsets_of(group),
                self._since(table, group),
                table.pending_of(group),
                now_ms=now_ms,
                retention_ms=retention_ms,
            )

        return self._remove_where(find, "offsets_retention_minutes")

    def _since(self, table: OffsetTable, group: str) -> int | None:
        if self._empty_since is not None:
            return self._empty_since(group)
        if any(about.kind == MEMBER_KIND for about in table.consumer_groups().get(group, ())):
            return None
        return empty_since_stored(table.group_values().get(group))

    def _remove_where(
        self, find: Callable[[OffsetTable, str], list[TopicPartition]], why: str, *, flush: bool = False
    ) -> dict[str, tuple[TopicPartition, ...]]:
        removed: dict[str, tuple[TopicPartition, ...]] = {}

        def choose(table: OffsetTable) -> list[Row]:
            rows: list[Row] = []
            for group in {*table.groups_with_offsets(), *table.pending()}:
                partitions = find(table, group)
                if partitions:
                    removed[group] = tuple(partitions)
                    rows += [(encode_offset_key(group, partition), None) for partition in partitions]
            return rows

        for partition in self._all():
            partition.change(choose, flush=flush)
        if removed:
            count = sum(map(len, removed.values()))
            inform("removed %d committed offsets of %d groups: %s", count, len(removed), why)
        return removed

    # After a crash

    def set_back(self, end_of: Callable[[TopicPartition], int | None]) -> None:
        """Set offsets back that are above the ends of their logs, durably. A power cut may take records that
        were not flushed and leave the offset behind them, and so may who cuts a log. Other records would then
        come below it, and the group would never read them. So after a crash it is called before anything is
        appended. What cannot be done now, as on a full disk, is done before anything is asked of offsets;
        until then they raise why.

        Args:
            end_of: the log end offset of a partition; None if it is not known, or not to be looked at.

        Cost: reads what is committed, 6 µs for each offset; an fsync if an offset is set back.

        Raises:
            CorruptionError, UnsupportedVersionError: the offsets cannot be read.
            StorageError: the disk refused.
        """
        with self._setting_back:
            before = self._end_of  # what could not be done yet
            self._end_of = end_of if before is None else partial(_lower_end, before, end_of)
        self.finish_setting_back()

    @property
    def is_to_be_set_back(self) -> bool:
        """Whether :meth:`set_back` could not do all."""
        return self._end_of is not None

    def finish_setting_back(self) -> None:
        """Do what :meth:`set_back` could not. Raises as that."""
        with self._setting_back:
            if self._end_of is not None:
                self._set_back_by(self._end_of)
                self._end_of = None

    def _set_back_by(self, end_of: Callable[[TopicPartition], int | None]) -> None:
        def choose(table: OffsetTable) -> list[Row]:
            rows: list[Row] = []
            for group in table.groups_with_offsets():
                for partition, data in table.offsets_of(group).items():
                    value, end = decode_offset_value(data), end_of(partition)
                    if end is not None and value.offset > end:
                        inform(
                            "group %r: set back from %d to %d, the end of %s",
                            group,
                            value.offset,
                            end,
                            partition,
                        )
                        # with its epoch, by which consumers find where else the log has parted
                        back = value._replace(offset=end)
                        rows.append((encode_offset_key(group, partition), encode_offset_value(back)))
            return rows

        for partition in self._all_as_they_are():
            partition.change(choose, flush=True)

    # Groups

    def load_groups(self) -> dict[str, GroupMetadataValue]:
        """The metadata that are stored of each group.

        Raises:
            CorruptionError, UnsupportedVersionError: a record cannot be read.
        """
        found: dict[str, bytes] = {}
        for partition in self._all():
            found.update(partition.look(lambda table: dict(table.group_values())))
        return {group: decode_group_value(value) for group, value in found.items()}

    def load_group(self, group: str) -> GroupMetadataValue | None:
        """The metadata that are stored of one group; None if there are none."""
        found = self._of(group)
        value = None if found is None else found.look(lambda table: table.group_values().get(group))
        return None if value is None else decode_group_value(value)

    def store_group(self, group: str, value: GroupMetadataValue | None, *, flush: bool = False) -> None:
        """Store a group's metadata; None removes them. Survives the death of the process; with ``flush`` also
        a power cut. Of a group that has changed over to the newer protocol nothing is stored: it comes late.

        Raises:
            UsageError: a name or number does not fit.
            RecordTooLargeError: the metadata do not fit into one batch.
            ReadOnlyError, StorageError: as :meth:`commit`.
        """
        row = encode_group_key(group), None if value is None else encode_group_value(value)

        def choose(table: OffsetTable) -> list[Row]:
            return [] if group in table.consumer_groups() else [row]

        self._require(group).change(choose, what=f"the metadata of group {group!r}", flush=flush)

    # Groups of the newer protocol

    def load_consumer_groups(self) -> dict[str, dict[AboutConsumerGroup, bytes]]:
        """The records of each group of the newer protocol (KIP-848). Raises as :meth:`load_groups`."""
        found: dict[str, dict[AboutConsumerGroup, bytes]] = {}
        for partition in self._all():
            found.update(partition.look(_copy_consumer_groups))
        return found

    def load_consumer_group(self, group: str) -> dict[AboutConsumerGroup, bytes]:
        """The records of one such group; none if it is not there."""
        found = self._of(group)
        return {} if found is None else found.look(lambda table: dict(table.consumer_groups().get(group, {})))

    def store_consumer_group(self, group: str, rows: Sequence[Row]) -> None:
        """Store records of such a group, in one batch unless they take more than 256 KiB. If it was of the
        classic protocol until now, that goes with the first one. Raises as :meth:`store_group`."""

        def choose(table: OffsetTable) -> list[Row]:
            classic: list[Row] = [(encode_group_key(group), None)] if group in table.group_values() else []
            return classic + list(rows)

        self._require(group).change(choose, what=f"the metadata of group {group!r}")

    def store_as_classic(self, group: str, value: GroupMetadataValue) -> None:
        """Store the metadata of a group that had the newer protocol until now, in place of its records, in
        one batch unless they take more than 256 KiB. Raises as :meth:`store_group`."""
        row = encode_group_key(group), encode_group_value(value)
        what = f"the metadata of group {group!r}"
        self._require(group).change(lambda table: [*_without_consumer_group(table, group), row], what=what)

    def forget_consumer_group(self, group: str) -> None:
        """Remove the records of such a group, but not its offsets. Raises as :meth:`delete`."""
        self.writable()
        found = self._of(group)
        if found is not None:
            found.change(lambda table: _without_consumer_group(table, group))


def _lower_end(
    one: Callable[[TopicPartition], int | None],
    other: Callable[[TopicPartition], int | None],
    partition: TopicPartition,
) -> int | None:
    return min((end for end in (one(partition), other(partition)) if end is not None), default=None)


def _without_classic_group(table: OffsetTable, group: str) -> list[Row]:
    """What removes the metadata of a group of the classic protocol."""
    return [(encode_group_key(group), None)] if group in table.group_values() else []


def _without_consumer_group(table: OffsetTable, group: str) -> list[Row]:
    """What removes the records of a group of the newer protocol."""
    known = in_order_of_removal(table.consumer_groups().get(group, ()))
    return [(encode_consumer_group_key(about), None) for about in known]


def _copy_consumer_groups(table: OffsetTable) -> dict[str, dict[AboutConsumerGroup, bytes]]:
    return {group: dict(records) for group, records in table.consumer_groups().items()}


def _all_of(table: OffsetTable, group: str) -> list[TopicPartition]:
    """The partitions of which a group has offsets, also in open transactions."""
    return list({**table.offsets_of(group), **dict.fromkeys(table.pending().get(group, ()), b"")})


def _copy_offsets(groups: Iterable[str], table: OffsetTable) -> dict[str, dict[TopicPartition, bytes]]:
    return {group: dict(table.offsets_of(group)) for group in groups}
