"""Counts the requests of a broker: how long each took until it was answered, and with which error.

A request counts once, when its result is there: one that waits for records, or for a flush, when the caller
takes the result. It has an error if any of its partitions, topics or members has one; the first counts.
What a listener refuses to a client does not come here: of that only the error counts.

Lock: :class:`RequestCounts` and :class:`ConnectionCounts` have one each, held for single additions.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial, wraps
from time import perf_counter
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending, Wake
from logstore.counting import SECONDS, Histogram, HistogramValue

P = ParamSpec("P")
R = TypeVar("R")


ErrorOf = Callable[[Any], ErrorCode]
"""The error of a result."""


class RequestCounts:
    """The requests of one broker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: defaultdict[str, Histogram] = defaultdict(partial(Histogram, SECONDS))
        self._errors: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._throttled: defaultdict[str, Histogram] = defaultdict(partial(Histogram, SECONDS))

    def note(self, api: str, error: ErrorCode, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self._seconds[api].observe(seconds)
            if error is not NONE:
                self._errors[api, error.name] += 1

    def note_refused(self, api: str, error: ErrorCode) -> None:
        """A client asked for what it may not do. What it may do of the same request counts by itself."""
        with self._lock:
            self._errors[api, error.name] += 1

    def note_throttle(self, api: str, seconds: float) -> None:
        """An answer told its client to wait."""
        with self._lock:
            self._throttled[api].observe(seconds)

    @property
    def throttle_seconds(self) -> dict[str, HistogramValue]:
        """The delays that clients were told, by api."""
        with self._lock:
            return {api: histogram.value for api, histogram in self._throttled.items()}

    @property
    def seconds(self) -> dict[str, HistogramValue]:
        """The time of the requests, by api."""
        with self._lock:
            return {api: histogram.value for api, histogram in self._seconds.items()}

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """How many requests had an error, by api and the name of the error's code."""
        with self._lock:
            return dict(self._errors)


class ConnectionCounts:
    """Who came to one listener. Its thread changes the first two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.accepted_count = 0
        self.turned_away_count = 0
        """Because there were as many as it lets in."""
        self.failed_login_count = 0

    def note_failed_login(self) -> None:
        """A client did not prove to be who it claims to be."""
        with self._lock:
            self.failed_login_count += 1


class _Counts(Protocol):
    """What has requests to count."""

    requests: RequestCounts


B = TypeVar("B", bound=_Counts)


def counted(
    error_of: ErrorOf,
) -> Callable[[Callable[Concatenate[B, P], Pending[R]]], Callable[Concatenate[B, P], Pending[R]]]:
    """Count the requests that a method of a broker takes, under its name. Cost: 1 µs for a request."""

    def decorate(
        method: Callable[Concatenate[B, P], Pending[R]],
    ) -> Callable[Concatenate[B, P], Pending[R]]:
        api = method.__name__

        @wraps(method)
        def take(self: B, /, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
            started = perf_counter()
            pending = method(self, *args, **kwargs)
            result = pending.poll()
            if result is None:
                return _Counted(pending, self.requests, api, error_of, started)
            self.requests.note(api, error_of(result), perf_counter() - started)
            return pending

        return take

    return decorate


class _Counted(Generic[R]):
    """A request that waits, and counts once its result is taken."""

    __slots__ = ("_api", "_counts", "_error_of", "_is_counted", "_pending", "_started")

    throttle_time_ms = 0

    def __init__(
        self, pending: Pending[R], counts: RequestCounts, api: str, error_of: ErrorOf, started: float
    ) -> None:
        self._pending = pending
        self._counts = counts
        self._api = api
        self._error_of = error_of
        self._started = started
        self._is_counted = False

    def poll(self) -> R | None:
        result = self._pending.poll()
        if result is not None and not self._is_counted:
            self._is_counted = True
            self._counts.note(self._api, self._error_of(result), perf_counter() - self._started)
        return result

    def on_wake(self, wake: Wake) -> None:
        self._pending.on_wake(wake)

    def cancel(self) -> None:
        self._pending.cancel()


# What errors results have


def of_partitions(result: Any) -> ErrorCode:
    """The first error of the result's partitions."""
    for each in result.partitions:
        if each.error is not NONE:
            return each.error  # type: ignore[no-any-return]
    return NONE


def of_topics(result: Any) -> ErrorCode:
    """The first error of the result's topics."""
    return of_each(result.topics)


def of_entries(result: Any) -> ErrorCode:
    """The first error of the result's entries."""
    return of_each(result.entries)


def of_each(results: Any) -> ErrorCode:
    """The first error of several results."""
    return next((each.error for each in results if each.error is not NONE), NONE)


def of_codes(codes: Any) -> ErrorCode:
    """The first of the codes of a mapping that is an error."""
    return next((code for code in codes.values() if code is not NONE), NONE)


def of_result(result: Any) -> ErrorCode:
    """The result's own error."""
    return result.error  # type: ignore[no-any-return]


def of_code(code: Any) -> ErrorCode:
    """The result is a code."""
    return code  # type: ignore[no-any-return]
