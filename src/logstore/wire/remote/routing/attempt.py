"""A request that is asked again, until its answer counts or its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from logstore.broker.codes import ErrorCode
from logstore.wire.remote.connections.codes import LOST, NOT_HERE, NOT_YET
from logstore.wire.remote.connections.loop import Loop
from logstore.wire.remote.connections.nodes import Dialer, Lane, Node
from logstore.wire.remote.connections.peer import Peer
from logstore.wire.remote.connections.questions import ANY_VERSION, Question, Reply
from logstore.wire.remote.connections.settings import RemoteConfig

_ASK_ANOTHER_MS: Final = 500
"""A broker that has not answered in this time is perhaps stopped."""
_MARKERS_MS: Final = 10
"""How long to wait for the markers of the transaction before: a coordinator answers when the end is decided,
and takes the next one in when all partitions have heard of it."""


class Target:
    """Which broker a request is for."""

    @property
    def choice(self) -> int:
        """How many brokers may be asked: while one is silent, another one is."""
        return 1

    def find(self, then: Callable[[Node | Reply], object]) -> None:
        """Call ``then`` with the broker, or with why there is none; at once or later."""
        raise NotImplementedError

    def forget(self) -> None:
        """The broker that was found was not the right one."""


class Surroundings(Protocol):
    """What an attempt needs of the client."""

    dialer: Dialer
    config: RemoteConfig


class Attempt:
    """One request. ``done`` is called once, with the reply that counts."""

    def __init__(
        self,
        surroundings: Surroundings,
        target: Target,
        key: int,
        build: Callable[[int], Any],
        done: Callable[[Reply], object],
        *,
        client_id: str,
        timeout_ms: int,
        lane: Lane = Lane.SOON,
        first: int = 0,
        last: int | Callable[[Peer], int] = ANY_VERSION,
        judge: Callable[[Reply], ErrorCode] = lambda _: ErrorCode.NONE,
        may_repeat: bool = True,
        wait_ms: int = 0,
        waits_for_broker: bool = True,
    ) -> None:
        """
        Args:
            judge: the code in a response that says whether to ask again.
            may_repeat: whether to ask again although the broker may have taken the request.
            wait_ms: how long the broker may take by the request's own word, beside ``timeout_ms``.
            waits_for_broker: whether to ask again if it was not there.
        """
        self._target = target
        self._done = done
        self._judge = judge
        self._may_repeat = may_repeat
        self._waits_for_broker = waits_for_broker
        self._lane = lane
        self._loop = surroundings.dialer.loop
        self._backoff_ms = surroundings.config.retry_backoff_ms
        self._begun = time.monotonic()
        self._deadline = self._begun + timeout_ms / 1000
        self._question = partial(
            Question, key, build, client_id=client_id, timeout_ms=timeout_ms + wait_ms, first=first, last=last
        )

    def begin(self) -> None:
        """Ask."""
        self._begun = time.monotonic()
        choice = self._target.choice
        if choice == 1:
            self._ask(self._answered)
        else:
            Hedged(self._loop, self._ask, choice, self._answered).begin()

    def _ask(self, take: Callable[[Reply], object]) -> None:
        def found(node: Node | Reply) -> None:
            if isinstance(node, Reply):
                self._done(node)
            else:
                node.ask(self._lane, self._question(take))

        self._target.find(found)

    def _answered(self, reply: Reply) -> None:
        code = reply.error or self._judge(reply)
        if code in NOT_HERE:
            self._target.forget()
        may_again = code in NOT_YET and (code not in LOST or self._may_repeat) and not self._loop.is_closed
        if code is ErrorCode.BROKER_NOT_AVAILABLE:
            may_again = may_again and self._waits_for_broker
        backoff_ms = self._backoff_ms
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            backoff_ms = min(backoff_ms, _MARKERS_MS)
        now = time.monotonic()
        # A coordinator has tried for so long itself: if our time ran out during the next try, its reason
        # would be lost.
        took = now - self._begun if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else 0.0
        if may_again and now + backoff_ms / 1000 + took < self._deadline:
            self._loop.try_later(backoff_ms, self.begin)
        else:
            self._done(reply)


class Hedged:
    """One question: asked of a broker, and of others while nobody answers. The first answer counts, or the
    last failure.

    Lock: ``_lock`` guards the counts. Nothing is called with it held.
    """

    def __init__(
        self,
        loop: Loop,
        ask: Callable[[Callable[[Reply], object]], object],
        most: int,
        done: Callable[[Reply], object],
    ) -> None:
        """``ask`` asks any broker, and calls what it is given with the reply. ``most``: how many to ask."""
        self._loop = loop
        self._ask = ask
        self._most = most
        self._done = done
        self._lock = threading.Lock()
        self._asked_count = self._heard_count = 0
        self._is_over = False

    def begin(self) -> None:
        """Ask one; after a while, if nobody has answered, the next."""
        with self._lock:
            if self._is_over:
                return
            self._asked_count += 1
            has_others = self._asked_count < self._most
        self._ask(self._heard)
        if has_others and not self._loop.is_closed:
            self._loop.try_later(_ASK_ANOTHER_MS, self.begin)

    def _heard(self, reply: Reply) -> None:
        with self._lock:
            self._heard_count += 1
            is_last = self._heard_count == self._asked_count
            if self._is_over or (reply.error is not ErrorCode.NONE and not is_last):
                return
            self._is_over = True
        self._done(reply)
