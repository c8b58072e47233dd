"""The group coordinator: all groups by id, and the calls of Kafka's group protocol.

Every request takes ``done``, which is called exactly once with the result, without a lock held: at once, or
when other members, the storage or the time have decided. No thread waits for any of that.

Locks: ``_lock`` guards the groups and everything in them.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.active import ActiveGroup
from logstore.broker.groups.config import GroupConfig
from logstore.broker.groups.group import Group
from logstore.broker.groups.joining import check_join, join
from logstore.broker.groups.outbox import Outbox
from logstore.broker.groups.requests import (
    NO_MEMBER_ID,
    DescribedGroup,
    Done,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    ListedGroup,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.groups.snapshots import GroupSnapshot, GroupStorage, HandedGroup
from logstore.broker.groups.states import ANSWERS, State
from logstore.broker.timers import Timers
from logstore.format.messages.consumer_protocol import PROTOCOL_TYPE as CONSUMER

_DEFAULTS: Final = GroupConfig()


def random_member_id(prefix: str) -> str:
    """A member id that was never given out before; begins with the client's or the instance's id, as
    Kafka's do."""
    return f"{prefix}-{uuid.uuid4()}"


class GroupCoordinator:
    """Coordinates consumer groups, as Kafka's broker does for the classic protocol."""

    def __init__(
        self,
        storage: GroupStorage,
        timers: Timers,
        *,
        config: GroupConfig = _DEFAULTS,
        new_member_id: Callable[[str], str] = random_member_id,
    ) -> None:
        """``new_member_id`` makes an id from a prefix; each must be new."""
        self._storage = storage
        self._timers = timers
        self._config = config
        self._new_member_id = new_member_id
        self._groups: dict[str, ActiveGroup] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    # Life

    def restore(self, snapshots: Iterable[GroupSnapshot]) -> None:
        """Take over the groups that were stored, before the first request. Their members have a whole session
        timeout to be heard of. A snapshot without members and protocol type stands for a group of which only
        committed offsets are known."""
        for snapshot in snapshots:
            with self._lock:
                active = self._restore_locked(snapshot)
            active.outbox.send()

    def close(self) -> None:
        """Answer what waits with NOT_COORDINATOR, stop all timers, and answer every later request with
        COORDINATOR_NOT_AVAILABLE. What is stored remains."""
        with self._lock:
            self._is_closed = True
            groups = list(self._groups.values())
            self._groups.clear()
            for active in groups:
                active.close()
        for active in groups:
            active.outbox.send()

    # Requests of members

    def join_group(self, joins: JoinGroup, done: Done[JoinGroupResult]) -> None:
        """Answers when the next generation begins, or at once with an error."""
        refusal = check_join(self._config, joins)
        if refusal is not ErrorCode.NONE:
            done(JoinGroupResult(refusal, joins.member_id))
            return
        self._change(
            joins.group_id,
            lambda group: join(group, joins, self._new_member_id, done),
            lambda error: done(JoinGroupResult(error, joins.member_id)),
            creates=joins.member_id == NO_MEMBER_ID,
        )

    def sync_group(self, syncs: SyncGroup, done: Done[SyncGroupResult]) -> None:
        """Answers when the leader's assignment is stored, or at once if it is, or with an error."""

        def change(active: ActiveGroup) -> None:
            refusal = _check_sync(active.group, syncs)
            if refusal is ErrorCode.NONE:
                active.sync(active.group.members[syncs.member_id], syncs.assignments, done)
            else:
                active.answer(done, SyncGroupResult(refusal))

        self._change(syncs.group_id, change, lambda error: done(SyncGroupResult(error)))

    def heartbeat(self, beat: Heartbeat, done: Done[ErrorCode]) -> None:
        """Answers at once. REBALANCE_IN_PROGRESS tells the member to join again."""

        def change(active: ActiveGroup) -> None:
            error = _check_generation(active.group, beat.generation, beat.member_id, beat.instance_id)
            if error is ErrorCode.NONE:
                active.keep_alive(active.group.members[beat.member_id])
                error = ANSWERS[active.group.state].heartbeat
            active.answer(done, error)

        self._change(beat.group_id, change, done)

    def leave_group(self, leaves: LeaveGroup, done: Done[LeaveGroupResult]) -> None:
        """Answers at once, with a result for each member."""

        def change(active: ActiveGroup) -> None:
            if active.group.state is State.DEAD:
                active.answer(done, LeaveGroupResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            left = tuple(LeftMember(_leave(active, member), *member) for member in leaves.members)
            active.answer(done, LeaveGroupResult(ErrorCode.NONE, left))

        def without_group(error: ErrorCode) -> None:
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                left = tuple(LeftMember(error, *member) for member in leaves.members)
                done(LeaveGroupResult(ErrorCode.NONE, left))
            else:
                done(LeaveGroupResult(error))

        self._change(leaves.group_id, change, without_group)

    # Requests of administrators

    def describe_groups(self, group_ids: Collection[str], done: Done[tuple[DescribedGroup, ...]]) -> None:
        """Answers at once, one description for each id."""
        with self._lock:
            found = tuple(self._describe_locked(group_id) for group_id in group_ids)
        done(found)

    def list_groups(self, states: Collection[str], done: Done[tuple[ListedGroup, ...]]) -> None:
        """Answers at once with the groups in these states, or with all if none is given. Case does not
        matter."""
        wanted = {state.lower() for state in states}
        with self._lock:
            found = tuple(
                ListedGroup(group_id, active.group.protocol_type or "", active.group.state.value)
                for group_id, active in self._groups.items()
                if not wanted or active.group.state.value.lower() in wanted
            )
        done(found)

    def delete_groups(self, group_ids: Collection[str], done: Done[dict[str, ErrorCode]]) -> None:
        """Delete groups without members. Answers when the storage has, with a result for each id. If the
        storage fails, a group is as it was."""
        results = dict.fromkeys(group_ids, ErrorCode.UNKNOWN_SERVER_ERROR)
        left = set(results)

        def one_done(group_id: str, error: ErrorCode) -> None:
            with self._lock:
                results[group_id] = error
                left.remove(group_id)
                is_last = not left
            if is_last:
                done(results)

        for group_id in list(results):
            self._delete(group_id, functools.partial(one_done, group_id))
        if not results:
            done(results)

    def expire(self, has_offsets: Callable[[str], bool]) -> None:
        """Forget the groups that have neither members nor offsets, as Kafka does when it looks for offsets
        that have expired. ``has_offsets`` is asked without the lock: what is committed meanwhile stays."""
        with self._lock:
            empty = [each for each, active in self._groups.items() if _is_empty(active.group)]
        for group_id in empty:
            if not has_offsets(group_id):
                self._delete(group_id, lambda _: None, keeps_offsets=True)

    def check_empty(self, group_id: str) -> ErrorCode:
        """Whether there is no such group, or an empty one, which may go on with another protocol.
        NON_EMPTY_GROUP if it has members, or has given out a member id; COORDINATOR_NOT_AVAILABLE while it is
        being deleted."""
        with self._lock:
            active = self._groups.get(group_id)
            if active is None:
                return ErrorCode.NONE
            if active.group.state is State.DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.NONE if _is_empty(active.group) else ErrorCode.NON_EMPTY_GROUP

    def check_join(self, joins: JoinGroup) -> ErrorCode:
        """What is wrong with a request, whatever the group is."""
        return check_join(self._config, joins)

    def handed(self, group_id: str) -> HandedGroup | None:
        """A group as it would go on with the newer protocol; None if it is not there. Until :meth:`let_go` or
        :meth:`keep` it stays like that: an assignment that is stored meanwhile waits, too."""
        with self._lock:
            active = self._groups.get(group_id)
            if active is None:
                return None
            active.hold()
            return active.group.handed()

    def keep(self, group_id: str) -> None:
        """A group that was handed goes on here, if it was not let go."""
        with self._lock:
            active = self._groups.get(group_id)
            if active is not None:
                active.go_on()
        if active is not None:
            active.outbox.send()

    def let_go(self, group_id: str) -> list[tuple[JoinGroup, Done[JoinGroupResult]]]:
        """Know a group no longer: it has gone on with another protocol, also in what is stored. Members that
        wait for an assignment join again. Returns the joins that wait, for the group to answer."""
        waiting: list[tuple[JoinGroup, Done[JoinGroupResult]]] = []
        with self._lock:
            active = self._groups.get(group_id)
            if active is not None:
                waiting = active.take_joins()
                active.close(ErrorCode.REBALANCE_IN_PROGRESS)
                self._forget_locked(active.group)
        if active is not None:
            active.outbox.send()
        return waiting

    def take_in(self, handed: HandedGroup) -> None:
        """Go on with a group that had the newer protocol until now, and is stored as a classic one. All its
        members are to join again, and have until then what they had."""
        with self._lock:
            if self._is_closed:
                return
            active = self._add_locked(Group(handed.snapshot.group_id, self._timers.now_ms()))
            active.has_commits = True  # so that it is kept until it is deleted
            active.take_in(handed)
        active.outbox.send()

    # For committed offsets

    def check_commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None = None,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Whether offsets may be committed for a group. A commit by a member is a heartbeat, too.

        A consumer that assigns partitions to itself has a generation below 0, and may commit if the group has
        no members; the group is then known. ``is_transactional``: for TxnOffsetCommit, whose early versions
        name neither member nor generation.
        """
        answer: list[ErrorCode] = []

        def change(active: ActiveGroup) -> None:
            answer.append(_check_commit(active, generation, member_id, instance_id, is_transactional))

        def without_group(error: ErrorCode) -> None:
            is_stale = error is ErrorCode.UNKNOWN_MEMBER_ID and not is_transactional
            answer.append(ErrorCode.ILLEGAL_GENERATION if is_stale else error)

        self._change(group_id, change, without_group, creates=generation < 0, may_be_nameless=True)
        return answer[0]

    def empty_since(self, group_id: str) -> int | None:
        """Since when a group has no members, in milliseconds since the epoch; None if it has some. -1 if that
        is not known, or if it never had any: then the time of a commit says how old that is (KIP-211)."""
        with self._lock:
            active = self._groups.get(group_id)
            if active is None:
                return -1
            group = active.group
            if group.state is not State.EMPTY:
                return None
            return -1 if group.protocol_type is None else group.since_ms

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """The topics that a group of consumers subscribes to. None if that is not known: during a rebalance,
        or when its members are no consumers; take all topics for subscribed then. Empty if it has no
        members."""
        with self._lock:
            active = self._groups.get(group_id)
            if active is None or active.group.state is State.EMPTY:
                return frozenset()
            return None if active.group.state is State.PREPARING_REBALANCE else active.group.topics

    def match_offsets(self, with_offsets: Collection[str], group_ids: Collection[str] | None = None) -> None:
        """Know the groups that have committed offsets, also without asking here, and forget those of which
        nothing else was known and that have none any more. ``group_ids``: look at these only."""
        with self._lock:
            if self._is_closed:
                return
            for group_id in with_offsets:
                if group_id not in self._groups:
                    self._add_locked(Group(group_id, self._timers.now_ms()))
            for group_id in list(self._groups) if group_ids is None else group_ids:
                active = self._groups.get(group_id)
                if active is not None:
                    active.has_commits = group_id in with_offsets
                    active.change(lambda: None)

    def check_offset_delete(self, group_id: str, topics: Collection[str]) -> tuple[ErrorCode, frozenset[str]]:
        """Whether offsets of a group may be deleted, and for which of these topics not, because its consumers
        subscribe to them (KIP-496): in a rebalance those of the last generation, as in Kafka. NON_EMPTY_GROUP
        if its members are no consumers."""
        with self._lock:
            active = self._groups.get(group_id)
            if self._is_closed:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE, frozenset()
            if active is None or active.group.state is State.DEAD:
                return ErrorCode.GROUP_ID_NOT_FOUND, frozenset()
            group = active.group
            if not group.members:
                return ErrorCode.NONE, frozenset()
            if group.protocol_type != CONSUMER:
                return ErrorCode.NON_EMPTY_GROUP, frozenset()
            subscribed = frozenset(topics) if group.topics is None else group.topics
            return ErrorCode.NONE, subscribed.intersection(topics)

    # Groups by id

    def _change(
        self,
        group_id: str,
        change: Callable[[ActiveGroup], None],
        without_group: Callable[[ErrorCode], object],
        *,
        creates: bool = False,
        may_be_nameless: bool = False,
    ) -> None:
        """Change a group under the lock, and make the calls that follow. ``without_group`` hears why there is
        none. ``may_be_nameless``: Kafka's oldest clients commit for the group ``""``."""
        error = ErrorCode.UNKNOWN_MEMBER_ID
        with self._lock:
            active = self._groups.get(group_id)
            if not (group_id or may_be_nameless):
                error = ErrorCode.INVALID_GROUP_ID
            elif self._is_closed:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            elif active is None and creates:
                active = self._add_locked(Group(group_id, self._timers.now_ms()))
            if active is not None:
                active.change(functools.partial(change, active))
        if active is None:
            without_group(error)
        else:
            active.outbox.send()

    def _add_locked(self, group: Group) -> ActiveGroup:
        outbox = Outbox(self._lock)
        added = ActiveGroup(group, self._config, self._timers, self._storage, outbox, self._forget_locked)
        self._groups[group.group_id] = added
        return added

    def _restore_locked(self, snapshot: GroupSnapshot) -> ActiveGroup:
        active = self._add_locked(Group(snapshot.group_id, self._timers.now_ms()))
        active.has_commits = True  # so that it is kept until it is deleted
        active.restore(snapshot)
        return active

    def _forget_locked(self, group: Group) -> None:
        known = self._groups.get(group.group_id)
        if known is not None and known.group is group:
            del self._groups[group.group_id]

    def _has(self, group_id: str) -> bool:
        with self._lock:
            return group_id in self._groups

    def _describe_locked(self, group_id: str) -> DescribedGroup:
        active = self._groups.get(group_id)
        if self._is_closed:
            return DescribedGroup(ErrorCode.COORDINATOR_NOT_AVAILABLE, group_id, "")
        if active is None:
            return DescribedGroup(ErrorCode.NONE, group_id, State.DEAD.value)
        return active.group.describe()

    def _delete(self, group_id: str, done: Done[ErrorCode], *, keeps_offsets: bool = False) -> None:
        def change(active: ActiveGroup) -> None:
            if active.group.state is State.DEAD:  # another request is deleting it
                active.answer(done, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif active.group.state is not State.EMPTY:
                active.answer(done, ErrorCode.NON_EMPTY_GROUP)
            else:
                snapshot = active.group.snapshot({})

                def deleted(error: ErrorCode) -> None:
                    if not self._is_closed:
                        self._forget_locked(active.group)
                        if error is not ErrorCode.NONE:
                            self._restore_locked(snapshot)
                    active.answer(done, error)

                active.delete(deleted, keeps_offsets=keeps_offsets)

        def without_group(error: ErrorCode) -> None:
            is_unknown = error is ErrorCode.UNKNOWN_MEMBER_ID
            done(ErrorCode.GROUP_ID_NOT_FOUND if is_unknown else error)

        self._change(group_id, change, without_group, may_be_nameless=True)


def _is_empty(group: Group) -> bool:
    """Whether it has no members, and has given out no member id."""
    return group.state is State.EMPTY and not group.pending


def _check_generation(group: Group, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    is_in_it = generation == group.generation_of(group.members[member_id])
    return ErrorCode.NONE if is_in_it else ErrorCode.ILLEGAL_GENERATION


def _check_sync(group: Group, syncs: SyncGroup) -> ErrorCode:
    error = _check_generation(group, syncs.generation, syncs.member_id, syncs.instance_id)
    if error is not ErrorCode.NONE:
        return error
    has_type = syncs.protocol_type in (None, group.protocol_type)
    has_protocol = syncs.protocol in (None, group.protocol)
    return ErrorCode.NONE if has_type and has_protocol else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _leave(active: ActiveGroup, leaving: LeavingMember) -> ErrorCode:
    if leaving.member_id == NO_MEMBER_ID:
        static = active.group.static_member(leaving.instance_id)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        active.remove(static)
        return ErrorCode.NONE
    if leaving.member_id in active.group.pending:
        active.remove_pending(leaving.member_id)
        return ErrorCode.NONE
    error = active.group.check_member(leaving.member_id, leaving.instance_id)
    if error is ErrorCode.NONE:
        active.remove(active.group.members[leaving.member_id])
    return error


def _check_commit(
    active: ActiveGroup, generation: int, member_id: str, instance_id: str | None, is_transactional: bool
) -> ErrorCode:
    state = active.group.state
    if state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    names_nobody = generation < 0 and member_id == NO_MEMBER_ID and instance_id is None
    if generation < 0 and (state is State.EMPTY or (names_nobody and is_transactional)):
        active.has_commits = True
        return ErrorCode.NONE
    if names_nobody:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _check_generation(active.group, generation, member_id, instance_id)
    if error is not ErrorCode.NONE or is_transactional:
        return error
    active.keep_alive(active.group.members[member_id])
    return ANSWERS[state].commit
