"""What all who look after consumer groups can ask: in a store, and over the network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import Any, Final, TypeVar

from logstore.arguments import check_flag, did_you_mean, plain_text, shown
from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from logstore.broker.pending import Pending
from logstore.broker.requests import OffsetDeleteRequest
from logstore.clients.groups.resetting import Logs, OffsetReset, ResetTo, plan_reset
from logstore.clients.groups.status import Described, GroupMember, GroupStatus, status_of
from logstore.clients.offsets import PartitionName, check_partitions
from logstore.errors import LogstoreError, RetriableError, UnknownGroupError, UsageError
from logstore.model import BoundToProcess, OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_DEAD: Final = "Dead"
"""What a coordinator says of a group that is not there."""
_UNKNOWN: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""Of a group that is not of the newer protocol, or at a broker that does not have that protocol."""
_MOST_SHOWN: Final = 4
_MOST_NAMES: Final = 10


class AdministeredGroups(BoundToProcess, Mapping[str, GroupStatus]):
    """The consumer groups of a broker: a mapping from name to
    :class:`~logstore.clients.groups.status.GroupStatus`."""

    # Where they are

    @abstractmethod
    def _coordinator(self) -> Broker:
        """Who is asked."""

    def _writable(self) -> Broker:
        """Who is asked for a change.

        Raises:
            ReadOnlyError: the store was opened read-only.
        """
        return self._coordinator()

    @abstractmethod
    def _ask(self, pending: Pending[T], what: str) -> T:
        """
        Raises:
            RetriableError: there is no answer in time; ``what`` was not done.
        """

    @abstractmethod
    def _place(self) -> str | None:
        """The path of the store."""

    @abstractmethod
    def _statuses(self, described: Sequence[Described]) -> list[GroupStatus]:
        """With what each has committed, and the lag."""

    @abstractmethod
    def _committed_of(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What a group has committed for these partitions, or for all."""

    @abstractmethod
    def _deletable(
        self, wanted: tuple[TopicPartition, ...], known: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> tuple[TopicPartition, ...]:
        """The partitions whose offsets the broker is asked to delete; ``known`` have one.

        Raises:
            UnknownTopicError, UnknownPartitionError: another is not there.
        """

    @abstractmethod
    def _logs(self) -> Logs:
        """Where a group can go on."""

    @abstractmethod
    def _commit(self, group: str, planned: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """As one who is no member."""

    def _in_the_way(self, members: tuple[GroupMember, ...]) -> tuple[GroupMember, ...]:
        """Those that keep a group from being reset."""
        return members

    # Looking

    def __getitem__(self, name: str) -> GroupStatus:
        """
        Raises:
            UnknownGroupError: there is no such group. It is a KeyError, too.
        """
        return self._statuses([self._describe_known(name)])[0]

    def __contains__(self, name: object) -> bool:
        return self._describe(name) is not None

    def __iter__(self) -> Iterator[str]:
        """In the order of their names, as of now."""
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def items(self) -> ItemsView[str, GroupStatus]:
        """All names, each with its status, as of one look."""
        return self._all().items()

    def values(self) -> ValuesView[GroupStatus]:
        """The status of each group, in the order of their names, as of one look."""
        return self._all().values()

    def _all(self) -> dict[str, GroupStatus]:
        described = [each for each in self._described(self._names()) if each.state != _DEAD]
        return {each.name: each for each in self._statuses(described)}

    def _names(self) -> list[str]:
        listed = self._ask(self._coordinator().list_groups(), "list its groups")
        if listed.error is not ErrorCode.NONE:
            raise error_of(listed.error, listed.message or listed.error.name)
        return sorted(each.group_id for each in listed.groups if each.state != _DEAD)

    def _described(self, names: Sequence[str]) -> Sequence[Described]:
        """By the classic protocol, and those that are not of it by the newer one."""
        broker = self._coordinator()
        found = self._ask(broker.describe_groups(tuple(names)), "describe its groups")
        others = tuple(each.group_id for each in found if each.state == _DEAD)
        newer = self._ask(broker.describe_consumer_groups(others), "describe its groups")
        known = {each.group_id: each for each in newer if each.error not in _UNKNOWN}
        described = [known.get(each.group_id, each) for each in found]
        for each in described:
            if each.error is not ErrorCode.NONE:
                raise error_of(each.error, f"group {each.group_id!r}: {each.message or each.error.name}")
        return described

    def _describe(self, name: object) -> Described | None:
        name = plain_text(name)
        (found,) = self._described([name]) if isinstance(name, str) else [None]
        return None if found is None or found.state == _DEAD else found

    def _describe_known(self, name: object) -> Described:
        found = self._describe(name)
        if found is None:
            place = self._place()
            where = "" if place is None else f" in {place}"
            raise UnknownGroupError(
                f"there is no group {shown(name)}{where}{did_you_mean(name, self._names())}"
            )
        return found

    # Deleting

    def delete(self, name: str) -> None:
        """Delete a group that has no members, with its committed offsets, those in open transactions too.

        When the call returns, the group stays deleted although the process of the store dies;
        ``store.flush()`` makes that safe from a power cut, too.

        Raises:
            UnknownGroupError: there is no such group.
            RetriableError: it has members (Kafka's NON_EMPTY_GROUP); says which.
            ReadOnlyError: the store was opened read-only.
            StorageError: the disk refused; the group is as it was.
        """
        broker = self._writable()
        group = self._describe_known(name).group_id
        codes = self._ask(broker.delete_groups((group,)), f"delete group {group!r}")
        self._check(codes[group], group, "it was not deleted")

    def delete_offsets(self, name: str, partitions: Iterable[PartitionName]) -> tuple[TopicPartition, ...]:
        """Delete committed offsets of a group, with or without members, but not those of topics that its
        members subscribe to (KIP-496). A group without members that has none left is deleted, too. Topics
        that are gone may be named, if there are offsets of them. Returns the partitions that had one.

        Unlike this, ``store.offsets(name).delete()`` does not look at members, and keeps the group.

        Raises:
            UnknownGroupError: there is no such group.
            UnknownTopicError, UnknownPartitionError: there is no such partition, and no offset of it. Nothing
                was deleted.
            RetriableError: members subscribe to a topic, or did so before a rebalance that goes on. The
                offsets of other topics were deleted, as in Kafka.
            UsageError: ``partitions`` is not a list of partitions.
            ReadOnlyError: the store was opened read-only.
            StorageError: the disk refused.
        """
        broker = self._writable()
        wanted = tuple(dict.fromkeys(check_partitions(partitions)))
        group = self._describe_known(name).group_id
        known = self._committed_of(group, wanted)
        deletable = self._deletable(wanted, known)
        if not deletable:
            return ()
        request = OffsetDeleteRequest(group, deletable)
        result = self._ask(broker.offset_delete(request), f"delete offsets of group {group!r}")
        self._check(result.error, group, result.message or "no offset was deleted")
        refused = sorted(each for each, code in result.errors.items() if code is not ErrorCode.NONE)
        if refused:
            names = f"offsets of {listed_shortly(list(map(str, refused)))} were not deleted"
            self._check(result.errors[refused[0]], group, names)
        return tuple(sorted(known))

    def remove_members(self, name: str, instance_ids: Iterable[str]) -> None:
        """Remove static members, whose programs are gone, without waiting for their session timeouts
        (KIP-345). The others divide their partitions. One that still runs gets an error, and joins again.

        Raises:
            UnknownGroupError: there is no such group.
            UsageError: it has no static member of that instance id; says which it has. The others were
                removed.
            ReadOnlyError: the store was opened read-only.
        """
        broker = self._writable()
        wanted = check_instance_ids(instance_ids)
        described = self._describe_known(name)
        group = described.group_id
        leaving = tuple(LeavingMember(instance_id=each) for each in dict.fromkeys(wanted))
        result = self._ask(broker.leave_group(LeaveGroup(group, leaving)), f"remove members of {group!r}")
        self._check(result.error, group, "no member was removed")
        for each in result.members:
            if each.error is ErrorCode.UNKNOWN_MEMBER_ID:
                known = [member.instance_id for member in described.members if member.instance_id is not None]
                hint = did_you_mean(each.instance_id, set(known) - set(wanted))
                raise UsageError(f"group {group!r} has no static member {shown(each.instance_id)}{hint}")
            self._check(each.error, group, f"static member {each.instance_id!r} was not removed")

    # Resetting

    def reset(
        self,
        name: str,
        to: ResetTo,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[PartitionName] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetReset]:
        """Let a group without members go on somewhere else, as ``kafka-consumer-groups --reset-offsets``
        does: commit other offsets for it, in a store all of them or none. Returns each partition's offset
        before and after. Metadata that were committed with the offsets before are gone.

        Args:
            name: the group. One that is not there yet begins with ``offsets(name).commit(...)``.
            to: ``"earliest"``, the log start; ``"latest"``, the high watermark; a datetime with its time zone
                or a timedelta (so long ago), the first record at or after that time, or the high watermark if
                there is none; or a mapping from partition to offset.
            topics: all partitions of these topics, also those that the group has no offset of.
            partitions: these. Without either, those that the group has committed offsets of.
            dry_run: change nothing, and say what would change. On a read-only store, too: then members of
                the process that has it open do not count.

        Raises:
            UnknownGroupError: there is no such group.
            UnknownTopicError, UnknownPartitionError: there is no such topic or partition, or not here.
            OffsetOutOfRangeError: an offset is below the log start, or above the log end.
            RetriableError: the group has members; says which. A dry run says so, too.
            UsageError: an argument is wrong; or the group has no offsets, and nothing is named.
            ReadOnlyError: the store was opened read-only.
            StorageError: the disk refused. Nothing was committed.

        Cost: in a store 40 µs, and 40 µs for each partition; for a time one search in each besides.
        """
        is_rehearsal = check_flag(dry_run, "dry_run")
        if not is_rehearsal:
            self._writable()
        described = self._describe_known(name)
        group = described.group_id
        members = self._in_the_way(status_of(described, {}, {}).members)
        if members:
            raise in_use(group, members, "its offsets were not reset")
        before = self._committed_of(group, None)
        planned = plan_reset(self._logs(), to, before, topics, partitions)
        if not planned:
            raise UsageError(
                f"group {group!r} has committed no offset, and no partition is named: there is nothing to "
                "reset. Name topics=[...] or partitions=[...]"
            )
        if not is_rehearsal:
            self._commit(group, planned)
        return {
            each: OffsetReset(before[each].offset if each in before else None, value.offset)
            for each, value in planned.items()
        }

    # What is refused

    def _check(self, code: ErrorCode, group: str, what: str) -> None:
        """
        Raises:
            LogstoreError: what the code stands for; ``what`` was not done.
        """
        if code is ErrorCode.NONE:
            return
        if code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
            raise in_use(group, status_of(self._describe_known(group), {}, {}).members, what)
        raise error_of(code, f"group {group!r}: {what} ({code.name})")

    # Showing

    def __repr__(self) -> str:
        place = self._place()
        what = "Groups" if place is None else f"Groups of {place!r}"
        try:
            names = self._names()
        except LogstoreError as error:  # closed, for one
            return f"<{what}: {type(error).__name__}>"
        shown_names = [repr(each) for each in names[:_MOST_NAMES]]
        if len(names) > _MOST_NAMES:
            shown_names.append(f"... {len(names)} groups")
        return f"<{what}: {', '.join(shown_names) or 'none'}>"


def in_use(group: str, members: Sequence[GroupMember], what: str) -> RetriableError:
    """The error for a group that has members: it names them, and the next step."""
    if not members:  # they have left just now
        return RetriableError(f"group {group!r} has just had members, and {what}; try again")
    texts = [
        f"{each.member_id!r} ({each.client_host}"
        + (f", static: {each.instance_id!r})" if each.instance_id is not None else ")")
        for each in members
    ]
    count = f"{len(members)} member{'s' * (len(members) > 1)}"
    is_static = any(each.instance_id is not None for each in members)
    removal = "; remove_members() removes static members at once" if is_static else ""
    return RetriableError(
        f"group {group!r} has {count}, and {what}: {listed_shortly(texts)}. Close the consumers, or wait "
        f"until their session timeouts (max_poll_interval_ms) are over, and try again{removal}"
    )


def check_instance_ids(instance_ids: Any) -> list[str]:
    """
    Raises:
        UsageError: it is no list of texts.
    """
    try:
        found = [] if isinstance(instance_ids, str) else [plain_text(each) for each in instance_ids]
    except (TypeError, ValueError):  # a released memoryview's
        found = [None]
    if isinstance(instance_ids, str) or not all(type(each) is str for each in found):
        raise UsageError(f"instance_ids is {shown(instance_ids)}; give a list of texts such as ['worker-1']")
    return found


def listed_shortly(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    return f"{', '.join(texts[:_MOST_SHOWN])}{more}"
