"""The coordinator of consumer groups of the newer protocol: all groups by id.

Every call answers at once: nothing waits for other members, or for a flush.

Locks: ``_lock`` guards the list of groups; each group has one of its own, which is taken without it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups import classic
from logstore.broker.consumer_groups.active import ActiveConsumerGroup, ConsumerGroupStorage
from logstore.broker.consumer_groups.advancing import Now, Refusal
from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.converting import has_only_classic, to_classic
from logstore.broker.consumer_groups.describing import describe
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.heartbeat import carry_out, check_heartbeat, leave
from logstore.broker.consumer_groups.requests import (
    JOINING,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerGroup,
    TopicIdPartition,
)
from logstore.broker.consumer_groups.states import GroupState
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.failures import code_of
from logstore.broker.groups.requests import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.groups.snapshots import HandedGroup
from logstore.broker.timers import Timers
from logstore.errors import LogstoreError
from logstore.warning import warn

T = TypeVar("T")

_DEFAULTS: Final = ConsumerGroupConfig()


def random_member_id() -> str:
    """A member id that was never given out before."""
    return str(uuid.uuid4())


class ConsumerGroupCoordinator:
    """Coordinates groups that have a member of the newer protocol; others may have the classic one."""

    def __init__(
        self,
        storage: ConsumerGroupStorage,
        timers: Timers,
        topics: Callable[[], Topics],
        *,
        config_of: Callable[[str], ConsumerGroupConfig] = lambda group_id: _DEFAULTS,
        new_member_id: Callable[[], str] = random_member_id,
        on_only_classic: Callable[[str], object] = lambda group_id: None,
    ) -> None:
        """
        Args:
            topics: the topics now; the same object as long as they have not changed.
            config_of: the settings of a group now.
            on_only_classic: called without a lock held when a group that has changed has members of the
                classic protocol only: it may go on as a classic one (:meth:`hand_back`).
        """
        self._storage = storage
        self._timers = timers
        self._topics = topics
        self._config_of = config_of
        self._new_member_id = new_member_id
        self._on_only_classic = on_only_classic
        self._groups: dict[str, ActiveConsumerGroup] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    # Life

    def restore(self, groups: Iterable[Group]) -> None:
        """Take over the groups that were stored, before the first request."""
        for group in groups:
            active = self._add(group.group_id, group)
            with active.lock:
                active.begin()

    def close(self) -> None:
        """Stop all timers, and answer every later request with COORDINATOR_NOT_AVAILABLE. What is stored
        remains."""
        with self._lock:
            self._is_closed = True
            groups = list(self._groups.values())
            self._groups.clear()
        for active in groups:
            with active.lock:
                active.end()

    # Requests of members

    def heartbeat(
        self, beat: ConsumerGroupHeartbeat, former: Group | None = None
    ) -> ConsumerGroupHeartbeatResult:
        """A member joins, is alive, or leaves. ``former``: the classic group that it joins, which is one of
        the newer protocol if that succeeds."""
        wrong = check_heartbeat(beat)
        if wrong is not None:
            return wrong.as_result()
        if beat.member_epoch == JOINING:
            self._require(beat.group_id)
        found = self._change(beat.group_id, lambda active: self._beat(active, beat, former or active.group))
        if isinstance(found, Refusal):
            return found.as_result()
        return found

    def _require(self, group_id: str) -> None:
        with self._lock:
            if group_id not in self._groups and not self._is_closed:
                self._add_locked(group_id, Group(group_id))

    def _beat(
        self, active: ActiveConsumerGroup, beat: ConsumerGroupHeartbeat, before: Group
    ) -> ConsumerGroupHeartbeatResult | Refusal:
        leaves = beat.member_epoch < JOINING
        step = leave(before, beat) if leaves else carry_out(before, beat, self._now(beat.group_id))
        if isinstance(step, Refusal):
            self._forget_unless_used(active)
            return step
        try:
            active.change(step.group)
        except LogstoreError as error:
            self._forget_unless_used(active)
            return Refusal(code_of(error), str(error))
        if step.member_id in active.group.members:
            active.heard_of(step.member_id)
        return step.result

    def _now(self, group_id: str) -> Now:
        return Now(self._topics(), self._timers.now_ms(), self._config_of(group_id), self._new_member_id)

    def _forget_unless_used(self, active: ActiveConsumerGroup) -> None:
        """A group that its first member could not join was never there."""
        group = active.group
        if not group.epoch and not group.members:
            self._forget(active)

    def leave_group(self, leaves: LeaveGroup) -> LeaveGroupResult:
        """Members leave with the classic request, as an administrator removes them: all that can, at once."""

        def change(active: ActiveConsumerGroup) -> LeaveGroupResult:
            after = active.group.copy()
            left = tuple(LeftMember(_take_out(after, each), *each) for each in leaves.members)
            try:
                active.change(after if any(each.error is ErrorCode.NONE for each in left) else active.group)
            except LogstoreError as error:
                return LeaveGroupResult(code_of(error))
            return LeaveGroupResult(ErrorCode.NONE, left)

        found = self._change(leaves.group_id, change)
        return LeaveGroupResult(found.error) if isinstance(found, Refusal) else found

    # Requests of members of the classic protocol

    def join_classic(self, joins: JoinGroup) -> JoinGroupResult:
        """One joins, or joins again."""

        def change(active: ActiveConsumerGroup) -> JoinGroupResult:
            after, result = classic.join(active.group, joins, self._now(joins.group_id))
            try:
                active.change(after)
            except LogstoreError as error:
                return JoinGroupResult(code_of(error), joins.member_id)
            if result.error is ErrorCode.NONE:
                active.heard_of(result.member_id)
                active.expect(result.member_id)
            return result

        found = self._change(joins.group_id, change)
        return JoinGroupResult(_for_classic(found), joins.member_id) if isinstance(found, Refusal) else found

    def sync_classic(self, syncs: SyncGroup) -> SyncGroupResult:
        """One asks for what it has."""

        def change(active: ActiveConsumerGroup) -> SyncGroupResult:
            result = classic.sync(active.group, syncs, self._topics())
            if result.error is ErrorCode.NONE:
                active.heard_of(syncs.member_id)
                active.has_joined(syncs.member_id)
            return result

        found = self._with_group(syncs.group_id, change)
        return SyncGroupResult(_for_classic(found)) if isinstance(found, Refusal) else found

    def heartbeat_classic(self, beats: Heartbeat) -> ErrorCode:
        """One is alive. REBALANCE_IN_PROGRESS tells it to join again."""

        def change(active: ActiveConsumerGroup) -> ErrorCode:
            after, error, member_id = classic.beat(active.group, beats, self._now(beats.group_id))
            try:
                active.change(after)
            except LogstoreError:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE  # the members take others for the end
            if member_id is not None:
                active.heard_of(member_id)
                if error is ErrorCode.REBALANCE_IN_PROGRESS and not active.is_expected(member_id):
                    active.expect(member_id)
            return error

        found = self._with_group(beats.group_id, change)
        return _for_classic(found) if isinstance(found, Refusal) else found

    def has_only_classic(self, group_id: str) -> bool:
        """Whether there is such a group, and it has members of the classic protocol only."""
        with self._lock:
            active = self._groups.get(group_id)
        return active is not None and has_only_classic(active.group)

    def hand_back(self, group_id: str, store: Callable[[HandedGroup], object]) -> HandedGroup | None:
        """Know a group no longer that has members of the classic protocol only. ``store`` stores it as a
        classic one, and may raise LogstoreError: then it stays, as it does if it has other members."""

        def change(active: ActiveConsumerGroup) -> HandedGroup | None:
            if not has_only_classic(active.group):
                return None
            handed = to_classic(active.group, self._topics(), self._timers.now_ms())
            try:
                store(handed)
            except LogstoreError as error:
                warn("group %s stays one of the newer protocol for now: %s", group_id, error)
                return None
            self._forget(active)
            return handed

        found = self._with_group(group_id, change)
        return None if isinstance(found, Refusal) else found

    # Requests of administrators

    def names(self) -> list[str]:
        """All groups."""
        with self._lock:
            return list(self._groups)

    def has(self, group_id: str) -> bool:
        """Whether there is such a group here."""
        with self._lock:
            return group_id in self._groups

    def states(self) -> dict[str, GroupState]:
        """All groups, each with its state."""
        with self._lock:
            groups = list(self._groups.items())
        return {group_id: active.group.state for group_id, active in groups}

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """A group and its members; GROUP_ID_NOT_FOUND if it is not there, or of the classic protocol."""
        found = self._with_group(group_id, lambda active: describe(active.group, self._topics()))
        if isinstance(found, Refusal):
            return DescribedConsumerGroup(found.error, group_id, message=found.message)
        return found

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, with its offsets."""
        return self._end(group_id, self._storage.delete)

    def give_up(self, group_id: str) -> ErrorCode:
        """Forget a group without members, which goes on with the classic protocol, and keep its offsets.
        NON_EMPTY_GROUP if it has members."""
        return self._end(group_id, self._storage.forget)

    def _end(self, group_id: str, remove: Callable[[str], None]) -> ErrorCode:
        def change(active: ActiveConsumerGroup) -> ErrorCode:
            if active.group.members:
                return ErrorCode.NON_EMPTY_GROUP
            try:
                remove(group_id)
            except LogstoreError as error:
                return code_of(error)
            self._forget(active)
            return ErrorCode.NONE

        found = self._with_group(group_id, change)
        return found.error if isinstance(found, Refusal) else found

    # For committed offsets

    def check_commit(
        self,
        group_id: str,
        member_epoch: int,
        member_id: str,
        partitions: Iterable[TopicIdPartition],
        *,
        is_of_nobody: bool = False,
    ) -> ErrorCode:
        """Whether offsets may be committed. A consumer that assigns partitions to itself has an epoch below
        0, and may if the group has no members. A member that is an epoch behind may commit what it has had
        since then (KIP-1251). ``is_of_nobody``: a transaction commits, whose early versions name no member.
        """

        def check(active: ActiveConsumerGroup) -> ErrorCode:
            group = active.group
            if is_of_nobody or (member_epoch < 0 and not group.members):
                return ErrorCode.NONE
            member = group.members.get(member_id)
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            held = member.held
            is_current = member_epoch == member.epoch or (
                member_epoch < member.epoch
                and all(held.get(each, member.epoch) <= member_epoch for each in partitions)
            )
            if is_current:
                return ErrorCode.NONE
            is_newer = member.classic is None
            return ErrorCode.STALE_MEMBER_EPOCH if is_newer else ErrorCode.ILLEGAL_GENERATION

        found = self._with_group(group_id, check)
        return found.error if isinstance(found, Refusal) else found

    def check_fetch(self, group_id: str, member_epoch: int, member_id: str) -> ErrorCode:
        """Whether a member may look up what its group has committed: not if others have its partitions."""

        def check(active: ActiveConsumerGroup) -> ErrorCode:
            member = active.group.members.get(member_id)
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if member.epoch == member_epoch else ErrorCode.STALE_MEMBER_EPOCH

        found = self._with_group(group_id, check)
        return found.error if isinstance(found, Refusal) else found

    def has_members(self, group_id: str) -> bool:
        """Whether there is such a group, with members. Takes no group's lock."""
        with self._lock:
            active = self._groups.get(group_id)
        return active is not None and bool(active.group.members)

    def subscribed_topics(self, group_id: str) -> frozenset[str]:
        """The topics that a group subscribes to; none if it is not there."""
        with self._lock:
            active = self._groups.get(group_id)
        return frozenset() if active is None else active.group.subscribed_topics()

    # Groups by id

    def _change(self, group_id: str, action: Callable[[ActiveConsumerGroup], T]) -> T | Refusal:
        """As :meth:`_with_group`, for what may change the members."""
        found = self._with_group(group_id, action)
        self._has_changed(group_id)
        return found

    def _has_changed(self, group_id: str) -> None:
        if self.has_only_classic(group_id):
            self._on_only_classic(group_id)

    def _with_group(self, group_id: str, action: Callable[[ActiveConsumerGroup], T]) -> T | Refusal:
        """What an action on a group returns, with its lock held; or why there is no group."""
        while True:
            with self._lock:
                active = self._groups.get(group_id)
                if self._is_closed:
                    return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is closed")
            if active is None:
                return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")
            with active.lock:
                if not active.is_over:
                    return action(active)

    def _add(self, group_id: str, group: Group) -> ActiveConsumerGroup:
        with self._lock:
            return self._add_locked(group_id, group)

    def _add_locked(self, group_id: str, group: Group) -> ActiveConsumerGroup:
        active = ActiveConsumerGroup(group, self._config_of, self._timers, self._storage, self._has_changed)
        self._groups[group_id] = active
        return active

    def _forget(self, active: ActiveConsumerGroup) -> None:
        """With the group's lock held."""
        active.end()
        with self._lock:
            self._groups.pop(active.group.group_id, None)


def _for_classic(refusal: Refusal) -> ErrorCode:
    """The classic protocol has no error for a group that is gone."""
    is_gone = refusal.error is ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.UNKNOWN_MEMBER_ID if is_gone else refusal.error


def _take_out(group: Group, leaving: LeavingMember) -> ErrorCode:
    member_id, instance_id = leaving.member_id, leaving.instance_id
    if instance_id is not None:
        static = group.static_member(instance_id)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id not in ("", static.member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        member_id = static.member_id
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    group.remove(member_id)
    return ErrorCode.NONE
