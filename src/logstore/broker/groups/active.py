"""One group at work: what each event leads to.

Knows how a rebalance begins, goes on and ends, what is answered then, what is stored and what expires. Who
may join, and how, is decided in :mod:`~logstore.broker.groups.joining`. All methods but ``turn`` are called
with the coordinator's lock held. Answers leave through the outbox when it is released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.config import GroupConfig
from logstore.broker.groups.group import Group, Member, joins_of
from logstore.broker.groups.outbox import Outbox
from logstore.broker.groups.requests import Done, JoinGroup, JoinGroupResult, SyncGroupResult, T
from logstore.broker.groups.snapshots import GroupSnapshot, GroupStorage, HandedGroup
from logstore.broker.groups.states import ANSWERS, Event, State
from logstore.broker.timers import Countdown, Timers
from logstore.warning import warn

_PAUSE_MS: Final = 100
"""Before another try at a rebalance for which no member has come."""


class ActiveGroup:
    """A group, its timers, and what it has to tell others."""

    def __init__(
        self,
        group: Group,
        config: GroupConfig,
        timers: Timers,
        storage: GroupStorage,
        outbox: Outbox,
        on_unused: Callable[[Group], object],
    ) -> None:
        """``on_unused`` is called when the group holds nothing that is worth keeping."""
        self.group = group
        self.config = config
        self.outbox = outbox
        self.has_commits = False
        """Whether offsets were committed for the group by consumers that are no members."""
        self._timers = timers
        self._storage = storage
        self._on_unused = on_unused
        self._join_timer = Countdown(timers, self.turn, self._join_time_is_up)
        self._sync_timer = Countdown(timers, self.turn, self._sync_time_is_up)
        self._unsynced: set[Member] = set()
        """Members that have not asked for their part of this generation."""
        self._stored_generation: int | None = None
        """The generation whose assignment was given to the storage."""
        self._delay_left_ms: int | None = None
        """How much longer an empty group may wait for more members; None if it does not."""
        self._has_newcomer = False
        """Whether one came during that delay."""
        self._held: list[Callable[[], None]] | None = None
        """What timers and the storage bring while the group is to change its protocol; None if it is not."""

    def turn(self, change: Callable[[], None]) -> None:
        """Run a change that a timer or the storage brings under the lock, and make the calls that follow from
        it without."""
        self.outbox.turn(lambda: self._take(change))

    def _take(self, change: Callable[[], None]) -> None:
        if self._held is None:
            self.change(change)
        else:
            self._held.append(change)

    def hold(self) -> None:
        """Stay as it is, whatever timers and the storage bring, until it is let go or goes on."""
        self._held = []

    def go_on(self) -> None:
        """Take what has come since it was held."""
        held, self._held = self._held or [], None
        for change in held:
            self.change(change)

    def change(self, change: Callable[[], None]) -> None:
        """Run a change, and say so if the group is not needed any more."""
        change()
        group = self.group
        if group.state is State.EMPTY and not (group.generation or group.pending or self.has_commits):
            self._on_unused(group)

    def answer(self, done: Done[T], result: T) -> None:
        """Give a result when the lock is released."""
        self.outbox.add(lambda: done(result))

    # Members

    def add_pending(self, member_id: str, session_timeout_ms: int) -> None:
        """Give out a member id, and wait so long for a member that joins with it."""
        expiry = Countdown(self._timers, self.turn, lambda: self.remove_pending(member_id))
        self.group.pending[member_id] = expiry
        expiry.start(session_timeout_ms)

    def remove_pending(self, member_id: str) -> None:
        """Wait no longer for the holder of a member id."""
        self.group.pending.pop(member_id).stop()
        self.begin_if_all_joined()

    def add(self, joins: JoinGroup, member_id: str, done: Done[JoinGroupResult]) -> None:
        """A new member joins."""
        group = self.group
        expiry = group.pending.pop(member_id, None)
        if expiry is not None:
            expiry.stop()
        self._has_newcomer = group.state is State.PREPARING_REBALANCE and group.generation == 0
        member = self._new_member(joins, member_id)
        member.is_new = True
        group.wait_for_join(member, done)
        self.keep_alive(member)
        self._on(Event.JOINS)

    def rejoin(self, member: Member, joins: JoinGroup, done: Done[JoinGroupResult]) -> None:
        """A member waits for the next generation. If it waits already, the client has given up the earlier
        request, and only the later one gets the result."""
        self._answer_join(member, JoinGroupResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.group.update(member, joins)
        self.group.wait_for_join(member, done)
        self._on(Event.CHANGES)

    def restart(self, member: Member, joins: JoinGroup, member_id: str, done: Done[JoinGroupResult]) -> None:
        """A static member comes back under a new id (KIP-345). Requests with the old one are fenced."""
        group = self.group
        old_id, old_joins, old_leader = member.member_id, member.joins, group.leader_id or ""
        self._answer_join(member, JoinGroupResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._answer_sync(member, SyncGroupResult(ErrorCode.FENCED_INSTANCE_ID))
        group.rename(member, member_id)
        group.update(member, joins)
        group.wait_for_join(member, done)
        self.keep_alive(member)
        if group.state is not State.STABLE:
            self._on(Event.RESTARTS)
        elif group.elect_protocol() != group.protocol or group.needs_assignment(member, old_joins):
            self._on(Event.CHANGES)
        else:
            self._on(Event.RESTARTS)

            def stored(error: ErrorCode) -> None:
                if member.join_done is not done or group.state is not State.STABLE:
                    return  # answered already, or about to be by the rebalance that has begun
                if error is ErrorCode.NONE:
                    self._answer_join(member, group.rejoined(member, old_leader))
                else:
                    group.update(member, old_joins)
                    group.rename(member, old_id)
                    self._answer_join(member, JoinGroupResult(error))

            self._store(group.snapshot(group.assignments()), stored)

    def remove(self, member: Member) -> None:
        """A member has left or failed: the others share what it had."""
        self.drop(member)
        self._on(Event.GOES)

    def drop(self, member: Member) -> None:
        """Take out a member, and leave the state as it is."""
        self._answer_join(member, JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
        member.session.stop()
        self._unsynced.discard(member)
        self.group.remove(member)

    def keep_alive(self, member: Member) -> None:
        """The member was heard of. A new one cannot send heartbeats, so its first wait is bounded instead."""
        is_new = member.is_new
        member.session.start(
            self.config.new_member_join_timeout_ms if is_new else member.joins.session_timeout_ms
        )

    def _new_member(self, joins: JoinGroup, member_id: str, assignment: bytes = b"") -> Member:
        session = Countdown(self._timers, self.turn, lambda: self._session_is_over(member))
        member = Member(joins, member_id, session, assignment)
        self.group.add(member, joins.protocol_type)
        return member

    def _session_is_over(self, member: Member) -> None:
        if not member.is_waiting:  # else the session begins again with the answer
            self.remove(member)

    # The first round: join

    def _on(self, event: Event) -> None:
        before = self.group.move(event, self._timers.now_ms())
        if self.group.state is State.PREPARING_REBALANCE:
            if before is State.PREPARING_REBALANCE:
                self.begin_if_all_joined()
            else:
                self._prepare(before)

    def _prepare(self, before: State) -> None:
        if before is State.COMPLETING_REBALANCE:
            for member in self.group.members.values():
                self._answer_sync(member, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self._unsynced.clear()
        self._sync_timer.stop()
        timeout_ms = self.group.rebalance_timeout_ms
        delay_ms = self.config.group_initial_rebalance_delay_ms
        if before is State.EMPTY and delay_ms:
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._join_timer.start(delay_ms)
        elif before is State.EMPTY or self.group.have_all_joined:
            self._begin()
        else:
            self._join_timer.start(timeout_ms)

    def begin_if_all_joined(self) -> None:
        """Begin the generation if it waits for no member. An empty group waits out its initial delay."""
        is_preparing = self.group.state is State.PREPARING_REBALANCE
        if is_preparing and self._delay_left_ms is None and self.group.have_all_joined:
            self._begin()

    def _join_time_is_up(self) -> None:
        if self._has_newcomer and self._delay_left_ms:  # they are still arriving
            self._has_newcomer = False
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._join_timer.start(delay_ms)
        else:
            self._begin()

    def _begin(self) -> None:
        """Begin a generation of those who have joined. Static members that have not keep their place until
        their session, or the time to sync, is over."""
        group = self.group
        self._delay_left_ms = None
        self._join_timer.stop()
        missing = [member for member in group.members.values() if member.join_done is None]
        for member in missing:
            if member.instance_id is None:
                self.drop(member)
        if group.members and not group.elect_leader():
            self._join_timer.start(max(group.rebalance_timeout_ms, _PAUSE_MS))  # or their sessions end first
            return
        group.begin_generation(self._timers.now_ms())
        if not group.members:
            self._store(group.snapshot({}), self._warn_unless_stored)
            return
        for member in group.members.values():
            member.is_new = False
            self._answer_join(member, group.joined(member))
            self.keep_alive(member)
        self._unsynced.update(group.members.values())
        self._sync_timer.start(group.rebalance_timeout_ms)

    def _answer_join(self, member: Member, result: JoinGroupResult) -> None:
        done = self.group.take_join(member)
        if done is not None:
            self.answer(done, result)
            self.keep_alive(member)

    # The second round: sync

    def sync(self, member: Member, assignments: Mapping[str, bytes], done: Done[SyncGroupResult]) -> None:
        """A member of the current generation asks for its part; the leader brings the parts of all."""
        group = self.group
        refusal = ANSWERS[group.state].sync
        if refusal:
            self.answer(done, SyncGroupResult(refusal))
            return
        self._unsynced.discard(member)
        if not self._unsynced:
            self._sync_timer.stop()
        if group.state is State.STABLE:
            self.answer(done, group.synced(member))
            self.keep_alive(member)
            return
        self._answer_sync(member, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))  # given up by the client
        member.sync_done = done
        if member.member_id == group.leader_id and self._stored_generation != group.generation:
            generation = self._stored_generation = group.generation
            self._store(
                group.snapshot(assignments), lambda error: self._stored(generation, assignments, error)
            )

    def _stored(self, generation: int, assignments: Mapping[str, bytes], error: ErrorCode) -> None:
        group = self.group
        if group.state is not State.COMPLETING_REBALANCE or group.generation != generation:
            return  # another rebalance has begun
        if error is not ErrorCode.NONE:
            for member in group.members.values():
                self._answer_sync(member, SyncGroupResult(error))
            self._on(Event.NOT_STORED)
            return
        self._on(Event.STORED)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_sync(member, group.synced(member))

    def _sync_time_is_up(self) -> None:
        for member in list(self._unsynced):
            self.drop(member)
        self._on(Event.GOES)

    def _answer_sync(self, member: Member, result: SyncGroupResult) -> None:
        done, member.sync_done = member.sync_done, None
        if done is not None:
            self.answer(done, result)
            self.keep_alive(member)

    # Storage, and the end

    def restore(self, snapshot: GroupSnapshot) -> None:
        """Become the group that was stored. Sessions begin again."""
        group = self.group
        for stored in snapshot.members:
            joins = joins_of(snapshot, stored)
            self.keep_alive(self._new_member(joins, stored.member_id, stored.assignment))
        group.restore(snapshot)
        if len(group.members) > self.config.group_max_size:
            self._on(Event.CHANGES)

    def take_in(self, handed: HandedGroup) -> None:
        """Become a group that had the newer protocol until now. All its members are to join again: none of
        them knows yet that it leads, and so looks after new partitions."""
        group = self.group
        for stored, joins, generation in zip(
            handed.snapshot.members, handed.joins, handed.generations, strict=True
        ):
            member = self._new_member(joins, stored.member_id, stored.assignment)
            member.known_generation = generation
            self.keep_alive(member)
        group.restore(handed.snapshot)
        self._on(Event.CHANGES)

    def delete(self, then: Callable[[ErrorCode], None], *, keeps_offsets: bool = False) -> None:
        """End an empty group, and remove what is stored of it."""
        self._end(Event.DELETED)
        group_id = self.group.group_id
        remove = self._storage.forget if keeps_offsets else self._storage.delete
        self._ask_storage(lambda done: remove(group_id, done), then)

    def take_joins(self) -> list[tuple[JoinGroup, Done[JoinGroupResult]]]:
        """The requests that wait for the next generation, for others to answer."""
        waiting = []
        for member in self.group.members.values():
            done = self.group.take_join(member)
            if done is not None:
                waiting.append((self.group.join_of(member), done))
        return waiting

    def close(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """End the group here; what is stored remains. Who waits hears ``error``, and by default looks for
        another coordinator."""
        for member in list(self.group.members.values()):
            self._answer_join(member, JoinGroupResult(error, member.member_id))
            self._answer_sync(member, SyncGroupResult(error))
            self.drop(member)
        if self.group.state is not State.DEAD:
            self._end(Event.CLOSED)

    def _end(self, event: Event) -> None:
        self.group.move(event, self._timers.now_ms())
        self._join_timer.stop()
        self._sync_timer.stop()
        for expiry in self.group.pending.values():
            expiry.stop()
        self.group.pending.clear()

    def _warn_unless_stored(self, error: ErrorCode) -> None:
        """A crash would bring back the members that have left, until their sessions are over."""
        if error is not ErrorCode.NONE:
            warn("group %s: that it is empty could not be stored: %s", self.group.group_id, error.name)

    def _store(self, snapshot: GroupSnapshot, then: Callable[[ErrorCode], None]) -> None:
        self._ask_storage(lambda done: self._storage.store(snapshot, done), then)

    def _ask_storage(
        self, ask: Callable[[Done[ErrorCode]], object], then: Callable[[ErrorCode], None]
    ) -> None:
        """Call the storage when the lock is released, and go on with its first answer. What it raises is an
        answer, too."""
        waiting = [then]

        def answered(error: ErrorCode) -> None:
            if waiting:
                waiting.pop()(error)

        def call() -> None:
            try:
                ask(lambda error: self.turn(lambda: answered(error)))
            except Exception as error:
                warn("group %s could not be stored: %s", self.group.group_id, error)
                self.turn(lambda: answered(ErrorCode.UNKNOWN_SERVER_ERROR))

        self.outbox.add(call)
