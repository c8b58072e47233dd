"""How coordinators meet time: a seam, and a deadline that is cheap to move.

A group with thousands of members gets thousands of heartbeats a second, and each moves a deadline. A
:class:`Countdown` therefore keeps the timer that it has, and only when that fires looks how much is left.
A heartbeat costs an assignment, and a session one timer in each session timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from logstore.clock import Clock
from logstore.schedule import Scheduler, Task


class Timer(Protocol):
    """An action that is to come."""

    def cancel(self) -> None:
        """Do not start it any more; a run that is under way finishes."""
        ...


class Timers(Protocol):
    """All that groups know of time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: for timestamps."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start, which never decrease: for deadlines."""
        ...

    def after(self, delay_ms: int, action: Callable[[], object]) -> Timer:
        """Run ``action`` once, ``delay_ms`` from now, outside this call."""
        ...


class ScheduledTimers:
    """Timers of a scheduler. Its prompt thread runs the actions; none of them waits for the disk."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        """``clock`` is the scheduler's.

        Raises:
            RetriableError: there is no thread for it. No later call raises that.
        """
        self._scheduler = scheduler
        self.now_ms = clock.now_ms
        self.monotonic_ms = clock.monotonic_ms
        scheduler.promptly(0, Task("first group timer", lambda: None, None))

    def after(self, delay_ms: int, action: Callable[[], object]) -> Timer:
        task = Task("group timer", action, None)
        self._scheduler.promptly(delay_ms, task)
        return task


class BackgroundTimers(ScheduledTimers):
    """The same for actions that write to the disk: they run where the background work does."""

    def after(self, delay_ms: int, action: Callable[[], object]) -> Timer:
        return self._scheduler.after(delay_ms, "group timer", action, is_waiting=True)


class Countdown:
    """One deadline that moves often. Every method is called with the group's lock held."""

    __slots__ = ("_action", "_due_ms", "_fires_ms", "_round", "_timer", "_timers", "_turn")

    def __init__(
        self, timers: Timers, turn: Callable[[Callable[[], None]], None], action: Callable[[], None]
    ) -> None:
        """``turn`` runs a change under the group's lock; ``action`` is what happens at the deadline."""
        self._timers = timers
        self._turn = turn
        self._action = action
        self._due_ms = 0
        self._timer: Timer | None = None
        self._fires_ms = 0
        self._round = 0
        """Tells a timer that was cancelled while it waited for the lock that it no longer counts."""

    def start(self, delay_ms: int) -> None:
        """Move the deadline to ``delay_ms`` from now. Cost: no timer, unless it comes sooner than before."""
        self._due_ms = self._timers.monotonic_ms() + delay_ms
        if self._timer is None or self._due_ms < self._fires_ms:
            self._arm(delay_ms)

    @property
    def is_running(self) -> bool:
        """Whether there is a deadline."""
        return self._timer is not None

    def stop(self) -> None:
        """There is no deadline any more."""
        self._round += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, delay_ms: int) -> None:
        self.stop()
        round_ = self._round
        self._fires_ms = self._due_ms
        self._timer = self._timers.after(delay_ms, lambda: self._turn(lambda: self._fire(round_)))

    def _fire(self, round_: int) -> None:
        if round_ != self._round:
            return
        self._timer = None
        left_ms = self._due_ms - self._timers.monotonic_ms()
        if left_ms > 0:
            self._arm(left_ms)
        else:
            self._action()
