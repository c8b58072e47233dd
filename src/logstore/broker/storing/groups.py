"""The groups of a directory: their coordinator, and the topic that it keeps them in.

The members that run in this process end with it. The next process that opens the directory removes them from
their groups, instead of waiting for their session timeouts. Static members (KIP-345) are expected back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.groups.config import GroupConfig
from logstore.broker.groups.coordinator import GroupCoordinator
from logstore.broker.groups.requests import (
    DescribedGroup,
    DescribedMember,
    Done,
    LeaveGroup,
    LeavingMember,
)
from logstore.broker.groups.snapshots import GroupSnapshot, HandedGroup, MemberSnapshot
from logstore.broker.groups.states import State
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.timers import ScheduledTimers
from logstore.config import StoreConfig
from logstore.errors import LogstoreError, RetriableError
from logstore.format.messages.group_records import GroupMetadataValue, MemberMetadata
from logstore.schedule import Scheduler

HERE: Final = "in-process"
"""The client host of members that run in the process of their broker."""


class TopicStorage:
    """Keeps groups in ``__consumer_offsets``.

    Lock: ``_writing`` is held while something is written, in the order in which it was asked for.
    """

    def __init__(self, committed: CommittedOffsets, scheduler: Scheduler) -> None:
        self._committed = committed
        self._scheduler = scheduler
        self._unwritten: deque[Callable[[], None]] = deque()
        self._writing = threading.RLock()

    def store(self, snapshot: GroupSnapshot, done: Done[ErrorCode]) -> None:
        """See :class:`~logstore.broker.groups.snapshots.GroupStorage`. The background writes it."""
        group_id, value = snapshot.group_id, _value_of(snapshot)
        self._write(group_id, lambda: self._committed.store_group(group_id, value), done)

    def delete(self, group_id: str, done: Done[ErrorCode]) -> None:
        """The same, with the offsets that the group has committed."""
        self._write(group_id, lambda: self._committed.delete_group(group_id), done)

    def forget(self, group_id: str, done: Done[ErrorCode]) -> None:
        """The same, without them."""
        self._write(group_id, lambda: self._committed.forget_group(group_id), done)

    def _write(self, group_id: str, change: Callable[[], None], done: Done[ErrorCode]) -> None:
        def write() -> None:
            try:
                change()
            except LogstoreError as error:
                done(code_of(error))
            else:
                done(ErrorCode.NONE)

        if self._scheduler.has_no_threads:  # no other thread would do it while the caller waits
            write()
            return
        self._unwritten.append(write)
        try:
            self._scheduler.after(0, f"store group {group_id}", self.write_all, is_waiting=True)
        except RetriableError:  # there is no thread for it
            self.write_all()

    def store_handed(self, handed: HandedGroup) -> None:
        """Store a group that had the newer protocol until now, in this thread, after all that is to be
        written before.

        Raises:
            LogstoreError: it could not be stored. What is stored is as it was.
        """
        with self._writing:
            self.write_all()
            self._committed.store_as_classic(handed.snapshot.group_id, _value_of(handed.snapshot))

    def drop_all(self) -> None:
        """Write nothing of that any more: another node leads the groups."""
        with self._writing:
            self._unwritten.clear()

    def write_all(self) -> None:
        """Write in this thread what still waits to be written."""
        with self._writing:
            while self._unwritten:
                self._unwritten.popleft()()


def _group_config(config: StoreConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
    )


def open_coordinator(
    committed: CommittedOffsets,
    storage: TopicStorage,
    *,
    config: StoreConfig | None = None,
    besides: Collection[str] = (),
) -> GroupCoordinator:
    """The coordinator, with the groups that are stored. ``besides``: those of another protocol.

    Raises:
        CorruptionError, UnsupportedVersionError: they cannot be read.
    """
    context = committed.context
    timers = ScheduledTimers(context.scheduler, context.clock)
    coordinator = GroupCoordinator(storage, timers, config=_group_config(config or StoreConfig()))
    stored = committed.load_groups()
    known = [_snapshot_of(group_id, value) for group_id, value in stored.items()]
    known += [
        GroupSnapshot(each, "", 0, None, None, -1, ())
        for each in committed.all_groups()
        if each not in stored
    ]
    known = [each for each in known if each.group_id not in besides]
    coordinator.restore(known)
    for snapshot in known:
        gone = tuple(
            LeavingMember(each.member_id)
            for each in snapshot.members
            if ends_with_process(each.client_host, each.instance_id)
        )
        if gone:
            coordinator.leave_group(LeaveGroup(snapshot.group_id, gone), lambda _: None)
    return coordinator


def ends_with_process(client_host: str, instance_id: str | None) -> bool:
    """Whether a stored member is gone when another process opens the directory."""
    return client_host == HERE and instance_id is None


def stored_states(committed: CommittedOffsets) -> dict[str, str]:
    """The groups that are stored: ``Stable`` if they had members, else ``Empty``. Raises as
    :func:`open_coordinator`."""
    found = dict.fromkeys(committed.all_groups(), State.EMPTY.value)
    for group_id, value in committed.load_groups().items():
        found[group_id] = State.STABLE.value if value.members else State.EMPTY.value
    return found


def describe_stored(committed: CommittedOffsets, group_ids: Collection[str]) -> list[DescribedGroup]:
    """Groups as they are stored, for those who have no coordinator; ``Dead`` if nothing is. Raises as
    :func:`open_coordinator`."""
    if len(group_ids) == 1:
        (group_id,) = group_ids
        is_known = committed.has_any(group_id)
        return [_describe(group_id, committed.load_group(group_id), is_known)]
    with_offsets, stored = committed.all_groups(), committed.load_groups()
    return [_describe(each, stored.get(each), each in with_offsets) for each in group_ids]


def _describe(group_id: str, value: GroupMetadataValue | None, has_offsets: bool) -> DescribedGroup:
    if value is None or not value.members:
        state = State.EMPTY if has_offsets or value is not None else State.DEAD
        return DescribedGroup(ErrorCode.NONE, group_id, state.value, value.protocol_type if value else "")
    members = tuple(
        DescribedMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.subscription,
            each.assignment,
        )
        for each in value.members
    )
    stable = State.STABLE.value
    return DescribedGroup(
        ErrorCode.NONE, group_id, stable, value.protocol_type, value.protocol or "", members
    )


def _value_of(snapshot: GroupSnapshot) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=snapshot.protocol_type,
        generation=snapshot.generation,
        protocol=snapshot.protocol,
        leader=snapshot.leader_id,
        current_state_timestamp_ms=snapshot.state_timestamp_ms,
        members=tuple(
            MemberMetadata(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                session_timeout_ms=each.session_timeout_ms,
                subscription=each.subscription,
                assignment=each.assignment,
            )
            for each in snapshot.members
        ),
    )


def _snapshot_of(group_id: str, value: GroupMetadataValue) -> GroupSnapshot:
    members = tuple(
        MemberSnapshot(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout_ms,
            each.session_timeout_ms,
            each.subscription,
            each.assignment,
        )
        for each in value.members
    )
    return GroupSnapshot(
        group_id,
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp_ms,
        members,
    )
