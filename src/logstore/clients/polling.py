"""A poll that has begun, for those who wait without a thread: an event loop drives thousands of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from logstore.broker.pending import Wake, call_wake
from logstore.clock import Clock, SystemClock
from logstore.turns import SafeEvent

T = TypeVar("T")

LONG_MS = 60_000
"""How long a poll without an end waits at a time."""


class Polling(Generic[T]):
    """A poll that has begun: a :class:`~logstore.broker.pending.Pending` that time completes, too.

    Call :meth:`poll` until it gives something: when you were woken, and after :meth:`wait_ms` at the latest.
    A consumer has one at a time, and the thread that uses the consumer calls it.
    """

    def __init__(
        self,
        step: Callable[[int], T | None],
        nothing: Callable[[], T],
        clock: Clock,
        timeout_ms: int | None,
        on_wake: Callable[[Wake | None], object],
        step_due_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            step: does what can be done now; called with how many milliseconds are left.
            nothing: the result when the time is over.
            on_wake: says whom to wake when there is something to do.
            step_due_ms: in how many milliseconds there is something to do in any case.
        """
        self._step = step
        self._nothing = nothing
        self._clock = clock
        self._deadline_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        self._on_wake = on_wake
        self._step_due_ms = step_due_ms
        self._result: T | None = None

    def poll(self) -> T | None:
        """What the poll gives; None while that is nothing and the time is not over.

        Raises:
            LogstoreError: as :meth:`.Consumer.poll`. You may call it again.
        """
        if self._result is None:
            left_ms = self._left_ms()
            self._result = self._step(max(left_ms, 0))
            if self._result is None and left_ms <= 0:
                self._result = self._nothing()
        return self._result

    def on_wake(self, wake: Wake) -> None:
        """Call ``wake`` once when :meth:`poll` is worth calling; at once, if it is now. From any thread."""
        if self._result is None:
            self._on_wake(wake)
        else:
            call_wake(wake)

    def wait_ms(self) -> int:
        """In how many milliseconds to call :meth:`poll` at the latest."""
        return max(min(self._left_ms(), self._step_due_ms()), 0)

    def wait(self) -> T:
        """What the poll gives, in this thread. With a clock set by hand nothing would come while it waits:
        then the result is as if the time were over, unless there is something to do.

        Raises:
            LogstoreError: as :meth:`poll`.
        """
        woken = SafeEvent()
        may_wait = isinstance(self._clock, SystemClock)
        while (found := self.poll()) is None:
            woken.clear()
            self.on_wake(woken.set)
            if may_wait:
                woken.wait(self.wait_ms() / 1000)
            elif not woken.is_set():
                return self._nothing()
        return found

    def cancel(self) -> None:
        """Wake no caller any more. What was fetched stays with the consumer for its next poll."""
        self._on_wake(None)

    def _left_ms(self) -> int:
        return LONG_MS if self._deadline_ms is None else self._deadline_ms - self._clock.monotonic_ms()


def wake_none() -> None:
    """Takes the place of a caller who was to be woken."""
