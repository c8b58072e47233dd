"""What is to be done with a result that may take a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from logstore.broker.pending import Answered, Pending, Wake, call_wake

R = TypeVar("R")
T = TypeVar("T")


class Then(Generic[T]):
    """A result made of another one, in the thread that polls."""

    __slots__ = ("_convert", "_pending", "_result")

    def __init__(self, pending: Pending[R], convert: Callable[[R], T]) -> None:
        self._pending = pending
        self._convert = convert
        self._result: T | None = None

    @property
    def throttle_time_ms(self) -> int:
        return self._pending.throttle_time_ms

    def poll(self) -> T | None:
        if self._result is None:
            found = self._pending.poll()
            if found is not None:
                self._result = self._convert(found)
        return self._result

    def on_wake(self, wake: Wake) -> None:
        self._pending.on_wake(wake)

    def cancel(self) -> None:
        self._pending.cancel()


def then(pending: Pending[R], convert: Callable[[R], T]) -> Pending[T]:
    """``convert`` of the result, once it is there."""
    if isinstance(pending, Answered):
        return Answered(convert(pending.poll()))
    return Then(pending, convert)


class ThenAsk(Generic[T]):
    """The result of a request that is made of the result of another one, in the thread that polls."""

    __slots__ = ("_ask", "_first", "_second", "_wake")

    def __init__(self, first: Pending[R], ask: Callable[[R], Pending[T]]) -> None:
        self._first = first
        self._ask = ask
        self._second: Pending[T] | None = None
        self._wake: Wake | None = None

    @property
    def throttle_time_ms(self) -> int:
        second = self._second
        return max(self._first.throttle_time_ms, 0 if second is None else second.throttle_time_ms)

    def poll(self) -> T | None:
        if self._second is None:
            found = self._first.poll()
            if found is None:
                return None
            self._second = self._ask(found)
            result = self._second.poll()
            if result is None and self._wake is not None:
                self._second.on_wake(self._wake)
            return result
        return self._second.poll()

    def on_wake(self, wake: Wake) -> None:
        self._wake = wake
        if self._second is None:
            self._first.on_wake(wake)
        else:
            self._second.on_wake(wake)

    def cancel(self) -> None:
        self._wake = None
        if self._second is None:
            self._first.cancel()
        else:
            self._second.cancel()


def then_ask(first: Pending[R], ask: Callable[[R], Pending[T]]) -> Pending[T]:
    """The result of what is asked once the first result is there."""
    return ThenAsk(first, ask)


class Gathered(Generic[R]):
    """The results of several, once all are there.

    Lock: ``_lock`` guards who is to be woken; nothing is called with it held.
    """

    __slots__ = ("_lock", "_parts", "_wake")

    def __init__(self, parts: Sequence[Pending[R]]) -> None:
        self._parts = tuple(parts)
        self._lock = threading.Lock()
        self._wake: Wake | None = None

    @property
    def throttle_time_ms(self) -> int:
        return max([each.throttle_time_ms for each in self._parts], default=0)

    def poll(self) -> tuple[R, ...] | None:
        found = [each.poll() for each in self._parts]
        return None if any(each is None for each in found) else tuple(found)  # type: ignore[arg-type]

    def on_wake(self, wake: Wake) -> None:
        with self._lock:
            self._wake = wake
        waits = [each for each in self._parts if each.poll() is None]
        if not waits:
            self._note()
        for each in waits:
            each.on_wake(self._note)

    def _note(self) -> None:
        with self._lock:
            wake, self._wake = self._wake, None
        call_wake(wake)

    def cancel(self) -> None:
        with self._lock:
            self._wake = None
        for each in self._parts:
            each.cancel()


def gather(parts: Sequence[Pending[R]]) -> Pending[tuple[R, ...]]:
    """All results, in their order."""
    return Gathered(parts)
