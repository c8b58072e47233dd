"""A coordinator on a clock set by hand, and the storage and the timers that it works with."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.config import GroupConfig
from logstore.broker.groups.coordinator import GroupCoordinator
from logstore.broker.groups.requests import Done, GroupProtocol
from logstore.broker.groups.snapshots import GroupSnapshot
from logstore.broker.timers import ScheduledTimers
from logstore.format.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from logstore.schedule import Scheduler, Task
from logstore.testing import ManualClock


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself."""
    return encode_subscription(ConsumerProtocolSubscription(topics))


def protocols(text: str) -> tuple[GroupProtocol, ...]:
    """``range:orders+bills,sticky:orders`` as protocols with subscriptions."""
    pairs = [part.partition(":") for part in text.split(",") if part]
    return tuple(
        GroupProtocol(name, subscription(*filter(None, topics.split("+")))) for name, _, topics in pairs
    )


class Armed(NamedTuple):
    due_ms: int
    task: Task


class WatchedTimers(ScheduledTimers):
    """The product's timers; knows which are armed, so that the clock can go from one to the next."""

    def __init__(self, scheduler: Scheduler, clock: ManualClock) -> None:
        super().__init__(scheduler, clock)
        self._armed: dict[int, Armed] = {}
        self._numbers = itertools.count()
        self.made_count = 0

    def after(self, delay_ms, action):
        number = next(self._numbers)
        self.made_count += 1

        def run():
            del self._armed[number]
            action()

        task = super().after(delay_ms, run)
        self._armed[number] = Armed(self.monotonic_ms() + max(delay_ms, 0), task)
        return task

    @property
    def armed(self) -> list[Armed]:
        armed = (each for each in self._armed.values() if not each.task.is_cancelled)
        return sorted(armed, key=lambda each: each.due_ms)


class MemoryStorage:
    """Keeps snapshots; may fail, or hold its answers back."""

    def __init__(self) -> None:
        self.snapshots: dict[str, GroupSnapshot] = {}
        self.on_call: Callable[[str], object] = lambda call: None
        self.error = ErrorCode.NONE
        self.is_holding = False
        self._held: deque[Any] = deque()

    def store(self, snapshot: GroupSnapshot, done: Done[ErrorCode]) -> None:
        members = ", ".join(
            f"{m.member_id}={m.assignment.decode(errors='replace')}" for m in snapshot.members
        )
        text = f"stores generation {snapshot.generation}: {members or 'empty'}"
        self._answer(text, done, lambda: self.snapshots.update({snapshot.group_id: snapshot}))

    def delete(self, group_id: str, done: Done[ErrorCode]) -> None:
        self._answer(f"deletes {group_id}", done, lambda: self.snapshots.pop(group_id, None))

    def forget(self, group_id: str, done: Done[ErrorCode]) -> None:
        self._answer(f"forgets {group_id}", done, lambda: self.snapshots.pop(group_id, None))

    def _answer(self, call, done, apply):
        error = self.error
        if error is ErrorCode.NONE:
            apply()
        else:
            call += ", which fails"
        self.on_call(call)
        if self.is_holding:
            self._held.append(functools.partial(done, error))
        else:
            done(error)

    def release(self) -> None:
        self.is_holding = False
        while self._held:
            self._held.popleft()()


class Stage:
    """One coordinator and its surroundings."""

    def __init__(self, *, clock: ManualClock | None = None, **config: int) -> None:
        self.clock = clock or ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.storage = MemoryStorage()
        self.config = GroupConfig(**config)
        self._prefixes: Counter[str] = Counter()
        self.answered: Counter[int] = Counter()
        """Request -> how often it was answered."""
        self.start()

    def start(self) -> None:
        """A coordinator that knows what is stored."""
        self.timers = WatchedTimers(self.scheduler, self.clock)
        self.scheduler.run_due()
        self.coordinator = GroupCoordinator(
            self.storage, self.timers, config=self.config, new_member_id=self._new_member_id
        )
        self.coordinator.restore(list(self.storage.snapshots.values()))

    def _new_member_id(self, prefix: str) -> str:
        self._prefixes[prefix] += 1
        return f"{prefix}-{self._prefixes[prefix]}"

    def once(self, done):
        """``done``, counted."""
        number = len(self.answered)
        self.answered[number] = 0

        def count(result):
            self.answered[number] += 1
            assert self.answered[number] == 1, f"request {number} is answered again, with {result}"
            done(result)

        return count

    @property
    def unanswered_count(self) -> int:
        return sum(not count for count in self.answered.values())

    def wait(self, ms: int) -> None:
        """Let time pass, from timer to timer."""
        end_ms = self.clock.monotonic_ms() + ms
        while self.timers.armed and self.timers.armed[0].due_ms <= end_ms:
            self.clock.advance(max(self.timers.armed[0].due_ms - self.clock.monotonic_ms(), 0))
            self.scheduler.run_due()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        self.scheduler.run_due()
