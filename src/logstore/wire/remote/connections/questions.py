"""One request to one broker, as a connection takes it, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Promise, T
from logstore.wire.remote.connections.peer import Peer

ANY_VERSION: Final = 32_767


class Reply(NamedTuple):
    """What became of a question: the response, or why there is none."""

    response: Any = None
    version: int = -1
    error: ErrorCode = ErrorCode.NONE
    """``BROKER_NOT_AVAILABLE``: it was not sent. ``NETWORK_EXCEPTION``, ``REQUEST_TIMED_OUT``: the broker may
    have taken it. Any other: asking again does not help."""
    message: str | None = None


def throttle_of(reply: Reply) -> int:
    """For how long the broker wants to be left alone, in milliseconds."""
    throttle_ms: int = getattr(reply.response, "throttle_time_ms", 0)
    return max(throttle_ms, 0)


class Question:
    """A request that a connection is to send once it knows what the broker serves."""

    __slots__ = ("build", "client_id", "done", "first", "is_answered", "key", "last", "owner", "timeout_ms")

    def __init__(
        self,
        key: int,
        build: Callable[[int], Any],
        done: Callable[[Reply], object],
        *,
        client_id: str,
        timeout_ms: int,
        first: int = 0,
        last: int | Callable[[Peer], int] = ANY_VERSION,
        is_answered: bool = True,
        owner: object = None,
    ) -> None:
        """
        Args:
            build: makes the request, in a version.
            done: called once, in any thread, without a lock held.
            timeout_ms: how long the answer may take from when it is sent.
            first, last: the versions that ``build`` can make; ``last`` may depend on the broker.
            is_answered: whether a response comes. Else it is done when it was handed over.
            owner: whose batches these are, if they are some.
        """
        self.key = key
        self.build = build
        self.done = done
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self.first = first
        self.last = last
        self.is_answered = is_answered
        self.owner = owner

    def version_for(self, peer: Peer) -> int:
        """
        Raises:
            UnsupportedVersionError: none is common.
        """
        last = self.last(peer) if callable(self.last) else self.last
        return peer.common(self.key, self.first, last)

    def fail(self, error: ErrorCode, message: str) -> None:
        """It ends without an answer."""
        self.done(Reply(error=error, message=message))


class RemotePending(Promise[T]):
    """A result that a connection brings."""

    __slots__ = ("throttle_time_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.throttle_time_ms = 0

    def complete_throttled(self, result: T, throttle_time_ms: int) -> None:
        """Set the result, and how long the caller is to ask for nothing."""
        self.throttle_time_ms = throttle_time_ms
        self.complete(result)
