"""Results that may take a while, without a thread for each.

A broker answers a request with a :class:`Pending`. The caller, be it a thread, an event loop or a test with
a clock set by hand, calls :meth:`Pending.poll` each time it is woken, until there is a result. The broker
itself never blocks, and runs no code of the caller's except ``wake``.

Lock: ``_lock`` guards the result and who is to be woken. Nothing is called with it held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from logstore.warning import warn

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Wake = Callable[[], object]
"""Called when it is worth polling again: from any thread, maybe under a log's lock. It must return at once,
and not poll itself: set an event, or pass the news to a loop."""


class Pending(Protocol[T_co]):
    """A request that was taken, and its result once there is one."""

    @property
    def throttle_time_ms(self) -> int:
        """How long the caller is to ask for nothing, from when it has the result: a quota of its is exceeded
        (KIP-219). 0 if none is, and while there is no result."""
        ...

    def poll(self) -> T_co | None:
        """The result; None while there is none. Does what has become possible meanwhile, in this thread."""
        ...

    def on_wake(self, wake: Wake) -> None:
        """Call ``wake`` when a poll may give the result; at once, if it may now. One at a time: it takes the
        place of an earlier one."""
        ...

    def cancel(self) -> None:
        """Want no result any more. What the request has changed stays changed."""
        ...


class Promise(Generic[T]):
    """A :class:`Pending` whose result is set by other code, once."""

    __slots__ = ("_lock", "_result", "_wake")

    throttle_time_ms = 0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._result: T | None = None
        self._wake: Wake | None = None

    def complete(self, result: T) -> None:
        """Set the result, and wake who waits for it."""
        with self._lock:
            if self._result is None:
                self._result = result
            wake, self._wake = self._wake, None
        if wake is not None:
            call_wake(wake)

    def poll(self) -> T | None:
        return self._result

    def on_wake(self, wake: Wake) -> None:
        with self._lock:
            if self._result is None:
                self._wake = wake
                return
        call_wake(wake)

    def cancel(self) -> None:
        with self._lock:
            self._wake = None


class Answered(Generic[T]):
    """A :class:`Pending` whose result was there at once."""

    __slots__ = ("_result",)

    throttle_time_ms = 0

    def __init__(self, result: T) -> None:
        self._result = result

    def poll(self) -> T:
        return self._result

    def on_wake(self, wake: Wake) -> None:
        call_wake(wake)

    def cancel(self) -> None:
        pass


def call_wake(wake: Wake | None) -> None:
    """What a caller gave must not stop what is changing."""
    if wake is None:
        return
    try:
        wake()
    except Exception as error:
        warn("waking a waiting request failed: %s: %s", type(error).__name__, error)


def wait_for(pending: Pending[T], timeout: float | None = None) -> T | None:
    """Block until the result is there, or ``timeout`` seconds have passed: then None, and the request still
    waits. An interrupt leaves it waiting, too."""
    result = pending.poll()
    if result is not None:
        return result
    woken = threading.Event()
    deadline = None if timeout is None else time.monotonic() + timeout
    while result is None:
        woken.clear()
        pending.on_wake(woken.set)
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return pending.poll()
        woken.wait(left)
        result = pending.poll()
    return result
