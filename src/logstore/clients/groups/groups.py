"""The consumer groups of a store, for those who look after them: ``store.groups()``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.committing import as_committed
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import OffsetCommitRequest
from logstore.broker.storing.consumer_groups import (
    describe_stored_consumer_group,
    stored_consumer_states,
)
from logstore.broker.storing.groups import describe_stored, ends_with_process, stored_states
from logstore.clients.groups.administered import AdministeredGroups
from logstore.clients.groups.resetting import LogsHere, end_of
from logstore.clients.groups.status import Described, GroupMember, GroupStatus, status_of
from logstore.clients.offsets import check_commit, check_known
from logstore.errors import RetriableError
from logstore.format.messages.group_records import OffsetCommitValue
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_SECONDS: Final = 10.0


class Groups(AdministeredGroups):
    """The consumer groups of a store: a mapping from name to
    :class:`~logstore.clients.groups.status.GroupStatus`. Made by :meth:`.Store.groups`.

    A group is there as long as it has members, committed offsets (also in open transactions), or the metadata
    of members that have left. The first look of a process removes the members that ran in an earlier one,
    except static ones.

    Each call looks at what is there now; a status that was returned stays as it is. ``items()`` and
    ``values()`` describe all groups with one look. All methods may be called from many threads.

    A read-only store has no coordinator, and shows groups as they were last stored: with the members of
    their last complete generation, also if the process has died that those were in.

    Cost: 40 µs for one group. All of them take 20 µs for each group, 6 µs for each offset, and 5 µs for each
    partition that has one: 20 ms for 1,000 groups. On a read-only store 130 µs more, and 100 µs for each
    partition, of which it looks at the files.
    """

    def __init__(
        self,
        directory: LogDirectory | WatchedDirectory,
        committed: CommittedOffsets,
        broker: Broker | None,
    ) -> None:
        """``broker``: who coordinates the groups; None if they can only be looked at."""
        self._directory = directory
        self._committed = committed
        self._broker = broker

    # Where they are

    def _coordinator(self) -> Broker:
        assert self._broker is not None
        return self._broker

    def _writable(self) -> Broker:
        self._committed.writable()
        return self._coordinator()

    def _ask(self, pending: Pending[T], what: str) -> T:
        result = wait_for(pending, _SECONDS)
        if result is None:
            raise RetriableError(f"the coordinator did not {what} within {_SECONDS:g} s")
        return result

    def _place(self) -> str:
        return self._directory.path

    def _logs(self) -> LogsHere:
        return LogsHere(self._directory)

    # What a read-only store knows without a coordinator

    def _names(self) -> list[str]:
        self._directory.check_open()
        if self._broker is None:
            return sorted(stored_states(self._committed).keys() | stored_consumer_states(self._committed))
        return super()._names()

    def _described(self, names: Sequence[str]) -> Sequence[Described]:
        self._directory.check_open()
        if self._broker is not None:
            return super()._described(names)
        committed, found = self._committed, describe_stored(self._committed, names)
        newer = [describe_stored_consumer_group(self._directory, committed, name) for name in names]
        return [each or classic for each, classic in zip(newer, found, strict=True)]

    def _in_the_way(self, members: tuple[GroupMember, ...]) -> tuple[GroupMember, ...]:
        if self._broker is not None:
            return members
        # They end before anybody can reset the group.
        return tuple(each for each in members if not ends_with_process(each.client_host, each.instance_id))

    # Offsets

    def _statuses(self, described: Sequence[Described]) -> list[GroupStatus]:
        committed = self._committed.fetch_many([each.group_id for each in described])
        partitions = {name for offsets in committed.values() for name in offsets}
        ends = {name: end_of(self._directory, name) for name in partitions}
        return [status_of(each, _in_order(committed[each.group_id]), ends) for each in described]

    def _committed_of(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return _in_order(self._committed.fetch(group, partitions))

    def _deletable(
        self, wanted: tuple[TopicPartition, ...], known: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> tuple[TopicPartition, ...]:
        for each in wanted:
            if each not in known:
                check_known(self._directory, each)
        return wanted

    def _commit(self, group: str, planned: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """As one who is no member: the coordinator refuses that of a group that has some by now."""
        broker, directory = self._writable(), self._committed.writable()
        check_commit(directory, planned)
        result = self._ask(broker.offset_commit(OffsetCommitRequest(group, planned)), "commit offsets")
        code = result.error
        if code is ErrorCode.UNKNOWN_MEMBER_ID:  # of a group with members
            code = ErrorCode.NON_EMPTY_GROUP
        self._check(code, group, result.message or "its offsets were not reset")

    # Showing

    def _repr_html_(self) -> str:
        """What a notebook shows: a line for each group."""
        from logstore.showing import show  # few programs get here

        return show(f"Groups of {self._directory.path}", self._parts_to_show())

    def _parts_to_show(self) -> Iterator[Any]:
        from logstore.showing import MOST_ROWS, Table

        names = self._names()
        rows = [
            (
                each.name,
                each.state,
                each.assignor,
                len(each.members),
                len(each.offsets),
                sum(each.lag.values()),
            )
            for each in self._statuses(self._described(names[: MOST_ROWS + 1]))
        ]
        yield Table(("group", "state", "assignor", "members", "offsets", "lag"), rows, len(names))


def _in_order(
    offsets: Mapping[TopicPartition, OffsetCommitValue],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {each: as_committed(offsets[each]) for each in sorted(offsets)}
