"""One group at work: each change is stored, then shown, and moves the timers.

Lock: ``lock`` is held for a change, and while it is stored: that is an append to a log, without a flush.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.states import MemberState
from logstore.broker.consumer_groups.stored import Row, rows_between
from logstore.broker.timers import Countdown, Timers
from logstore.errors import LogstoreError
from logstore.warning import warn

T = TypeVar("T")


class ConsumerGroupStorage(Protocol):
    """Where groups are kept."""

    def store(self, group_id: str, rows: Sequence[Row]) -> None:
        """Keep these records in place of those with the same keys; and of nothing else of the group that the
        classic protocol has left. When the call returns they survive the death of the process.

        Raises:
            LogstoreError: they could not be stored.
        """
        ...

    def delete(self, group_id: str) -> None:
        """Forget the group, with the offsets that it has committed. Raises as :meth:`store`."""
        ...

    def forget(self, group_id: str) -> None:
        """Forget the group, and keep its offsets. Raises as :meth:`store`."""
        ...


class _Timers:
    """Those of a member."""

    def __init__(self, session: Countdown, rebalance: Countdown) -> None:
        self.session = session
        """Until when it must be heard of."""
        self.rebalance = rebalance
        """Until when it must have given up what it was told to; one of the classic protocol: have joined
        again, or asked for what it has."""

    def stop(self) -> None:
        self.session.stop()
        self.rebalance.stop()


class ActiveConsumerGroup:
    """A group, its timers and its storage. All methods are called with the lock held."""

    def __init__(
        self,
        group: Group,
        config_of: Callable[[str], ConsumerGroupConfig],
        timers: Timers,
        storage: ConsumerGroupStorage,
        on_change: Callable[[str], object],
    ) -> None:
        """``on_change`` is called with its id after a timer has changed it, without the lock held."""
        self.group = group
        """As it is stored. A change puts another in its place."""
        self.lock = threading.Lock()
        self.is_over = False
        """Whether it was deleted, or its broker has closed."""
        self._config_of = config_of
        self._timers = timers
        self._storage = storage
        self._on_change = on_change
        self._of_members: dict[str, _Timers] = {}

    def begin(self) -> None:
        """Its members have a whole session to be heard of."""
        for member_id in self.group.members:
            self._watch(self.group, member_id)

    def end(self) -> None:
        """Stop all timers. What is stored remains."""
        self.is_over = True
        for each in self._of_members.values():
            each.stop()
        self._of_members.clear()

    def change(self, after: Group) -> None:
        """Store what a change has made of the group, and show it.

        Raises:
            LogstoreError: it could not be stored. The group is as it was.
        """
        before = self.group
        if after is before:
            return
        rows = rows_between(before, after)
        if rows:
            self._storage.store(after.group_id, rows)
        self.group = after
        for member_id in before.members.keys() - after.members.keys():
            self._of_members.pop(member_id).stop()
        for member_id, member in after.members.items():
            if before.members.get(member_id) is not member:
                self._watch(before, member_id)

    def heard_of(self, member_id: str) -> None:
        """The member has sent a heartbeat. One that has left for a while goes on from its last one."""
        if not self.group.is_expected_back(member_id):
            self._of_members[member_id].session.start(self._session_ms(member_id))

    def expect(self, member_id: str) -> None:
        """A member of the classic protocol is to join again, or after that to ask for what it has: it has its
        rebalance timeout for each."""
        timeout_ms = self.group.members[member_id].rebalance_timeout_ms
        self._of_members[member_id].rebalance.start(max(timeout_ms, 0))

    def is_expected(self, member_id: str) -> bool:
        """Whether it is to do that, and has not done it yet."""
        return self._of_members[member_id].rebalance.is_running

    def has_joined(self, member_id: str) -> None:
        """A member of the classic protocol has asked for what it has."""
        self._of_members[member_id].rebalance.stop()

    @property
    def _config(self) -> ConsumerGroupConfig:
        return self._config_of(self.group.group_id)

    def _session_ms(self, member_id: str) -> int:
        classic = self.group.members[member_id].classic
        if classic is not None:
            return classic.session_timeout_ms
        return self._config.group_consumer_session_timeout_ms

    def _watch(self, before: Group, member_id: str) -> None:
        """A member has changed: it has timers, and so long to give up what it is to."""
        timers = self._of_members.get(member_id)
        if timers is None:
            timers = self._of_members[member_id] = self._new_timers(member_id)
            timers.session.start(self._session_ms(member_id))
        member = self.group.members[member_id]
        known = before.members.get(member_id)
        if member.classic is not None:
            return  # it is told when to join again, and expected then
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            timers.rebalance.stop()
        elif known is None or known is member or known.revoking != member.revoking:
            timers.rebalance.start(max(member.rebalance_timeout_ms, 0))

    def _new_timers(self, member_id: str) -> _Timers:
        return _Timers(
            Countdown(self._timers, self._turn, lambda: self._remove(member_id, "session")),
            Countdown(self._timers, self._turn, lambda: self._remove(member_id, "rebalance")),
        )

    def _turn(self, change: Callable[[], None]) -> None:
        with self.lock:
            change()
        self._on_change(self.group.group_id)

    def _remove(self, member_id: str, what: str) -> None:
        """A timer has fired. What cannot be stored now, as on a full disk, is tried again."""
        after = self.group.copy()
        after.remove(member_id)
        try:
            self.change(after)
        except LogstoreError as error:
            warn(
                "group %s: member %s, whose %s timeout is over, is not removed yet: %s",
                self.group.group_id,
                member_id,
                what,
                error,
            )
            interval_ms = self._config.group_consumer_heartbeat_interval_ms
            self._of_members[member_id].session.start(interval_ms)
