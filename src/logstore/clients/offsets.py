"""The committed offsets of one group, for those who need no group protocol: ``store.offsets("billing")``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, overload

from logstore.arguments import check_flag, plain_text, shown
from logstore.broker.committing import as_committed
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.errors import LogstoreError, OffsetOutOfRangeError, UnknownPartitionError, UsageError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import BoundToProcess, OffsetAndMetadata, TopicPartition, how_to_make_int
from logstore.partition.log import Log

T = TypeVar("T")

_MAX_NAME_BYTES: Final = 32_767
_MAX_INT32: Final = 2**31 - 1
_MOST_SHOWN: Final = 4

PartitionName = TopicPartition | tuple[str, int]
"""A partition: a :class:`~logstore.model.TopicPartition`, or a plain pair of the topic's name and the
partition's number."""

Committable = int | OffsetAndMetadata
"""What is committed for a partition: the offset of the next record to read, alone or with a note."""


class OffsetsOfGroup(BoundToProcess, Mapping[TopicPartition, OffsetAndMetadata]):
    """The committed offsets of one group, in a store or elsewhere: a mapping from partition to
    :class:`~logstore.model.OffsetAndMetadata`."""

    def __init__(self, group: str) -> None:
        self._group = check_group(group)

    @abstractmethod
    def _fetch(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What the group has committed for these, or for all."""

    @property
    def group(self) -> str:
        """The group's name."""
        return self._group

    # Looking

    def __getitem__(self, partition: PartitionName) -> OffsetAndMetadata:
        """
        Raises:
            KeyError: the group has committed nothing for it.
            UsageError: it is no name of a partition.
        """
        name = check_partition(partition)
        value = self._fetch([name]).get(name)
        if value is None:
            raise KeyError(f"group {self._group!r} has committed no offset for {name}")
        return value

    @overload
    def get(self, partition: PartitionName, default: None = None, /) -> OffsetAndMetadata | None: ...
    @overload
    def get(self, partition: PartitionName, default: T, /) -> OffsetAndMetadata | T: ...
    def get(self, partition: PartitionName, default: T | None = None, /) -> OffsetAndMetadata | T | None:
        """What the group has committed for a partition; ``default`` if that is nothing.

        Raises:
            UsageError: it is no name of a partition.
        """
        return super().get(check_partition(partition), default)

    def __iter__(self) -> Iterator[TopicPartition]:
        """In the order of their names, as of now."""
        return iter(sorted(self._fetch()))

    def __len__(self) -> int:
        return len(self._fetch())

    def __repr__(self) -> str:
        try:
            found = self._fetch()
        except LogstoreError as error:  # closed, for one
            return f"<Offsets of group {self._group!r}: {type(error).__name__}>"
        listed = [f"{name}: {found[name].offset}" for name in sorted(found)[:_MOST_SHOWN]]
        if len(found) > _MOST_SHOWN:
            listed.append(f"... {len(found)} partitions")
        return f"<Offsets of group {self._group!r}: {', '.join(listed) or 'none'}>"


class Offsets(OffsetsOfGroup):
    """The committed offsets of one group: a mapping from partition to
    :class:`~logstore.model.OffsetAndMetadata`. Made by :meth:`.Store.offsets`.

    A committed offset is the next one to read: ``orders[0].read(offsets["orders", 0].offset)`` goes on where
    the group stopped. The name of a group is all there is to it. It begins with its first commit, and keeps
    its offsets until they are deleted, or expire (``offsets_retention_minutes``).

    Each call looks at what is committed now, also by other processes if the store is read-only. All methods
    may be called from many threads.
    """

    def __init__(
        self, directory: LogDirectory | WatchedDirectory, committed: CommittedOffsets, group: str
    ) -> None:
        super().__init__(group)
        self._directory = directory
        self._committed = committed

    def _fetch(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._committed.fetch(self._group, partitions)
        return {name: as_committed(value) for name, value in found.items()}

    # Changing

    def commit(self, offsets: Mapping[Any, Committable], *, flush: bool = False) -> None:
        """Commit an offset for each of some partitions: all of them, or none, whatever happens. Other
        partitions keep theirs. An offset may also go back.

        When the call returns, the offsets survive the death of the process. With ``flush`` they survive a
        power cut; the records below them are made durable first. Cost: 30 µs, and 8 µs for each further
        partition; with ``flush`` an fsync of each log that is not durable up to its offset, and one of the
        commit. The first commit of a store makes the topic ``__consumer_offsets``.

        Args:
            offsets: partition -> the next offset to read, an int or an
                :class:`~logstore.model.OffsetAndMetadata`. A plain pair ``("orders", 0)`` is a partition too.
            flush: wait until a power cut cannot take them.

        Raises:
            UnknownTopicError, UnknownPartitionError: there is no such topic or partition.
            OffsetOutOfRangeError: an offset is below 0, or above the end of its log.
            UsageError: a partition, an offset or its metadata is of another type; or the metadata is longer
                than ``offset_metadata_max_bytes``.
            RecordTooLargeError: they are too many for one batch: tens of thousands.
            ReadOnlyError: the store was opened read-only.
            StorageError: the disk refused. Nothing was committed; or the flush failed.
        """
        directory = self._committed.writable()
        flush = check_flag(flush, "flush")
        checked = check_values(offsets)
        logs = check_commit(directory, checked)
        if flush:
            directory.flush([log for name, log in logs.items() if log.durable_offset < checked[name].offset])
        self._committed.commit(self._group, checked, flush=flush)

    def delete(
        self, partitions: Iterable[PartitionName] | None = None, *, flush: bool = False
    ) -> tuple[TopicPartition, ...]:
        """Remove the offsets of some partitions, or of all, and what open transactions have committed for
        them. Returns the partitions that had one. Topics that are gone may be named. The group may have
        members; :meth:`.Groups.delete_offsets` looks at them.

        Raises:
            UsageError: ``partitions`` is not a list of partitions.
            ReadOnlyError: the store was opened read-only.
            StorageError: the disk refused.
        """
        self._committed.writable()
        flush = check_flag(flush, "flush")
        wanted = None if partitions is None else check_partitions(partitions)
        return self._committed.delete(self._group, wanted, flush=flush)


def check_group(group: object) -> str:
    """
    Raises:
        UsageError: it is not text of 1 to 32,767 bytes.
    """
    name = plain_text(group)
    if type(name) is not str or not name:
        raise UsageError(f"group is {shown(group)}; it must be the name of a group, such as 'billing'")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise UsageError(f"group is {shown(name)}, which UTF-8 cannot encode") from None
    if size > _MAX_NAME_BYTES:
        raise UsageError(f"group has {size} bytes; {_MAX_NAME_BYTES} are allowed")
    return name


def check_partition(partition: object) -> TopicPartition:
    """
    Raises:
        UsageError: it is no pair of a topic's name and a partition's number.
    """
    if isinstance(partition, tuple) and tuple.__len__(partition) == 2:
        topic, number = tuple.__iter__(partition)
        topic = plain_text(topic)
        if type(topic) is str and type(number) is int:
            if not 0 <= number <= _MAX_INT32:
                raise UsageError(f"partition {shown(number)} of topic {topic!r} is not 0 to {_MAX_INT32}")
            return TopicPartition(topic, number)
        if type(topic) is str:
            raise UsageError(
                f"partition {shown(number)} of topic {topic!r} must be a number{how_to_make_int(number)}"
            )
    raise UsageError(f"{shown(partition)} is no partition; give a pair such as ('orders', 0)")


def check_partitions(partitions: Any) -> list[TopicPartition]:
    """
    Raises:
        UsageError: it is no list of partitions.
    """
    return [check_partition(each) for each in _listed(partitions)]


def _listed(partitions: Any) -> list[Any]:
    """
    Raises:
        UsageError: it is no list, but text or a single pair.
    """
    try:
        found = list(partitions)
    except (TypeError, ValueError):  # a released memoryview's
        found = []
        is_list = False
    else:
        is_list = not any(isinstance(each, str) for each in found)
    if not is_list:
        raise UsageError(f"partitions is {shown(partitions)}; give a list of pairs such as [('orders', 0)]")
    return found


def _check_value(value: Any) -> OffsetAndMetadata:
    """
    Raises:
        UsageError: it is neither an offset nor an OffsetAndMetadata, or a field of it is of another type.
    """
    if type(value) is int:
        return OffsetAndMetadata(value)
    if not isinstance(value, OffsetAndMetadata):
        raise UsageError(
            f"offset is {shown(value)}; it must be a whole number or an OffsetAndMetadata"
            + how_to_make_int(value)
        )
    offset, metadata, leader_epoch = value
    metadata = plain_text(metadata)
    if type(offset) is not int:
        raise UsageError(f"offset is {shown(offset)}; it must be a whole number{how_to_make_int(offset)}")
    if type(metadata) is not str:
        raise UsageError(f"metadata is {shown(metadata)}; it must be text")
    if leader_epoch is not None and (type(leader_epoch) is not int or not 0 <= leader_epoch <= _MAX_INT32):
        raise UsageError(f"leader_epoch is {shown(leader_epoch)}; it must be None or 0 to {_MAX_INT32}")
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def check_values(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed, as plain values.

    Raises:
        UsageError: it is no mapping from partitions to offsets.
    """
    if not isinstance(offsets, Mapping):
        raise UsageError(f"offsets is {shown(offsets)}; give a mapping from (topic, partition) to offset")
    return {check_partition(each): _check_value(value) for each, value in offsets.items()}


def check_commit(
    directory: LogDirectory, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, Log]:
    """The logs of the partitions, if each log has the offset.

    Raises:
        UnknownTopicError, UnknownPartitionError: there is no such topic or partition.
        OffsetOutOfRangeError: an offset is below 0, or above the end of its log.
    """
    for name in offsets:
        check_known(directory, name)
    logs = {name: directory.log(name) for name in offsets}
    for name, value in offsets.items():
        _check_reached(logs[name], value.offset)
    return logs


def check_known(directory: LogDirectory | WatchedDirectory, name: TopicPartition) -> None:
    """
    Raises:
        UnknownTopicError, UnknownPartitionError: there is no such topic or partition, in no directory.
    """
    count = directory.topic(name.topic).partition_count
    if name.partition >= count:
        raise UnknownPartitionError(
            f"topic {name.topic!r} has {count} partitions, numbered from 0; there is no {name.partition}"
        )


def _check_reached(log: Log, offset: int) -> None:
    """What still gathers in memory is written before it is committed: else a kill would leave an offset above
    the end of the log.

    Raises:
        OffsetOutOfRangeError: the offset is below 0, or above the log end.
    """
    writer = log.writer
    end = writer.published_view().log_end_offset
    if offset > end:
        end = writer.current_view().log_end_offset
    if not 0 <= offset <= end:
        raise OffsetOutOfRangeError(
            f"offset {shown(offset)} cannot be committed for {log.partition}: its log ends at {end}, and the "
            "next offset to read is between 0 and that"
        ).of_log(log.log_start_offset, end)


_NAMES: Final = "give names, one after the other: 'orders', 'bills'"


def check_topics(topics: Iterable[str], advice: str = _NAMES) -> tuple[str, ...]:
    """The names of topics, each once. ``advice`` ends the error.

    Raises:
        UsageError: these are no names of topics.
    """
    if isinstance(topics, str):
        topics = (topics,)
    names = tuple(plain_text(each) for each in topics)
    for name in names:
        if type(name) is not str:
            raise UsageError(f"{shown(name)} is no name of a topic; {advice}")
    return tuple(dict.fromkeys(names))
