"""Places in groups whose consumers, or workers of queues, were dropped without ``close()``: others go on with
what they had.

A consumer may be dropped in any thread and at any time, also while the collector of garbage runs within a
lock. So its place is only noted then, and given back by the next of the store's consumers that polls.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from logstore.broker.broker import Broker
from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from logstore.broker.pending import wait_for
from logstore.broker.share.requests import LEAVING, ShareGroupHeartbeat
from logstore.warning import warn

_SECONDS: Final = 5.0
"""For the answer to a worker that leaves: the next may have other settings than it had."""


class Seat(ABC):
    """A member of a group, as long as it has a name."""

    __slots__ = ("group", "member_id")

    def __init__(self, group: str, member_id: str = "") -> None:
        self.group = group
        self.member_id = member_id
        """Empty before it has joined, and when it has left."""

    @abstractmethod
    def leave(self, broker: Broker) -> str:
        """Be no member any more. Returns what is to be told."""


class ConsumerSeat(Seat):
    """Of a consumer."""

    __slots__ = ()

    def leave(self, broker: Broker) -> str:
        broker.leave_group(LeaveGroup(self.group, (LeavingMember(self.member_id),)))
        return (
            f"group {self.group!r}: a consumer was dropped without close(); others get its partitions, and "
            "read again what it had not committed"
        )


class WorkerSeat(Seat):
    """Of a worker of a queue."""

    __slots__ = ()

    def leave(self, broker: Broker) -> str:
        wait_for(
            broker.share_group_heartbeat(ShareGroupHeartbeat(self.group, self.member_id, LEAVING)), _SECONDS
        )
        return (
            f"queue {self.group!r}: a worker was dropped without close(); what it had goes back to the others"
        )


class Seats:
    """Of the consumers and workers of one store. All methods may be called from many threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left: deque[Seat] = deque()

    def keep(self, owner: object, seat: Seat) -> None:
        """Give the seat back when its owner is gone."""
        weakref.finalize(owner, self._left.append, seat).atexit = False

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
                warn("%s", seat.leave(self._broker))
