"""Places in groups whose consumers were dropped without ``close()``: others get their partitions.

A consumer may be dropped in any thread and at any time, also while the collector of garbage runs within a
lock. So its place is only noted then, and given back by the next of the store's consumers that polls.
"""

from __future__ import annotations

import weakref
from collections import deque

from logstore.broker.broker import Broker
from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from logstore.warning import warn


class Seat:
    """A member of a group, as long as it has a name."""

    __slots__ = ("group", "member_id")

    def __init__(self, group: str) -> None:
        self.group = group
        self.member_id = ""
        """Empty before it has joined, and when it has left."""


class Seats:
    """Of the consumers of one store. All methods may be called from many threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left: deque[Seat] = deque()

    def keep(self, consumer: object, seat: Seat) -> None:
        """Give the seat back when the consumer is gone."""
        weakref.finalize(consumer, self._left.append, seat).atexit = False

    def __bool__(self) -> bool:
        """Whether there are seats to give back."""
        return bool(self._left)

    def give_back(self) -> None:
        """Let those leave that are gone, with a warning for each."""
        while True:
            try:
                seat = self._left.popleft()
            except IndexError:
                return
            if seat.member_id:
                self._broker.leave_group(LeaveGroup(seat.group, (LeavingMember(seat.member_id),)))
                warn(
                    "group %r: a consumer was dropped without close(); others get its partitions, and read "
                    "again what it had not committed",
                    seat.group,
                )
