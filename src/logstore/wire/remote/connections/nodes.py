"""A broker, and the connections to it.

A broker answers the requests of a connection one after the other. So what waits long must not hold up the
rest, and goes over connections of its own: one for the batches of each client, which may wait for disks and
replicas; one for what is answered soon; and one for each request that waits for something to happen.

After a connection that could not be made, or that broke, the next is made after a while: Kafka's exponential
back-off with chance. Meanwhile requests fail at once.

Lock: ``_lock`` guards the connections and the back-off.
"""

from __future__ import annotations

import random
import threading
import time
import weakref
from enum import Enum
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.wire.addresses import Address
from logstore.wire.remote.connections.connection import Connection
from logstore.wire.remote.connections.dialing import Tls
from logstore.wire.remote.connections.loop import Loop
from logstore.wire.remote.connections.questions import Question
from logstore.wire.remote.connections.settings import RemoteConfig, RenewedSasl, Sasl

_CHANCE: Final = 0.2
_MOST_POLLS: Final = 512
"""Connections for requests that wait; more share them."""


class Lane(Enum):
    """What a connection is for."""

    WRITES = "writes"
    """Batches: they may be large, and wait for replicas. In their order."""
    SOON = "soon"
    """What is answered at once. In its order."""
    WAITS = "waits"
    """What waits: for records, or for other members. In no order."""


class Dialer:
    """What all connections of a client have in common."""

    def __init__(
        self,
        loop: Loop,
        config: RemoteConfig,
        *,
        client_id: str,
        tls: Tls | None = None,
        sasl: Sasl | RenewedSasl | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.loop = loop
        self.config = config
        self.client_id = client_id
        self.tls = tls
        self.sasl = sasl
        self.chance = chance or random.Random()  # noqa: S311  # no secret
        self.broken_count = 0
        """Grows when a connection that was made breaks."""

    def backoff_seconds(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        config = self.config
        doubled = config.reconnect_backoff_ms * 2 ** min(failures - 1, 32)
        longest = max(config.reconnect_backoff_max_ms, config.reconnect_backoff_ms)
        return float(min(doubled, longest)) * self.chance.uniform(1 - _CHANCE, 1 + _CHANCE) / 1000


class Node:
    """One broker, by its address."""

    def __init__(self, dialer: Dialer, address: Address) -> None:
        self.address = address
        self._dialer = dialer
        self._lock = threading.Lock()
        self._lanes: dict[Lane, list[Connection]] = {lane: [] for lane in Lane}
        self._owned: weakref.WeakKeyDictionary[object, Connection] = weakref.WeakKeyDictionary()
        """Client -> the connection for its batches."""
        self._failures = 0
        self._resume = 0.0
        """Make no connection before, by the monotonic clock in seconds."""
        self._why: tuple[ErrorCode, str] | None = None
        """What the last failure was."""
        self._is_closed = False

    def ask(self, lane: Lane, question: Question) -> None:
        """Send a request over a connection of the lane."""
        with self._lock:
            connection = self._connection_locked(lane, question.owner)
        if connection is None:
            code, message = self._why or (ErrorCode.BROKER_NOT_AVAILABLE, f"{self.address}: not connected")
            question.fail(code, message)
        else:
            connection.ask(question)

    @property
    def is_connected(self) -> bool:
        """Whether a connection is there, or may be made at once."""
        return any(self._lanes.values()) or time.monotonic() >= self._resume

    @property
    def has_failed(self) -> bool:
        """Whether a connection broke, could not be made or was not answered, and none was made since."""
        return self._failures > 0

    @property
    def trouble(self) -> str:
        """Why it has not answered, as far as that is known."""
        with self._lock:
            return f"{self.address}: there was no answer" if self._why is None else self._why[1]

    @property
    def is_busy(self) -> bool:
        """Whether a request waits that is answered soon."""
        with self._lock:
            there = [*self._lanes[Lane.SOON], *self._lanes[Lane.WRITES]]
        return any(each.load for each in there)

    def _connection_locked(self, lane: Lane, owner: object) -> Connection | None:
        there = [each for each in self._lanes[lane] if each.is_usable]
        if owner is not None:
            own = self._owned.get(owner)
            there = [each for each in there if each is own]
        if there and (lane is not Lane.WAITS or len(there) >= _MOST_POLLS):
            return min(there, key=lambda each: each.load)
        idle = next((each for each in there if not each.load), None)
        if idle is not None:
            return idle
        if self._is_closed or time.monotonic() < self._resume:
            return None
        dialer = self._dialer
        made = Connection(
            dialer.loop,
            self.address,
            dialer.config,
            client_id=dialer.client_id,
            tls=dialer.tls,
            sasl=dialer.sasl,
            on_open=self._opened,
            on_closed=lambda closed, code, why: self._closed(lane, closed, code, why),
        )
        self._lanes[lane].append(made)
        if owner is not None:
            self._owned[owner] = made
            self._close_orphans_locked(lane)
        return made

    def _close_orphans_locked(self, lane: Lane) -> None:
        """Clients that their program has dropped need no connection any more."""
        owned = set(self._owned.values())
        for each in self._lanes[lane]:
            if each not in owned and not each.load:
                each.close()

    def _opened(self, connection: Connection) -> None:
        with self._lock:
            self._failures, self._resume, self._why = 0, 0.0, None
            is_known = any(connection in there for there in self._lanes.values())
        if not is_known:  # Ctrl-C struck when it was just made; the loop may be closing
            self._dialer.loop.try_later(0, connection.end)

    def _closed(self, lane: Lane, connection: Connection, code: ErrorCode, why: str) -> None:
        with self._lock:
            if connection in self._lanes[lane]:
                self._lanes[lane].remove(connection)
            if code is ErrorCode.BROKER_NOT_AVAILABLE and connection.peer.versions:
                return  # it was to be closed
            self._dialer.broken_count += bool(connection.peer.versions)
            was_first = time.monotonic() >= self._resume
            if was_first:  # several that break together are one failure
                self._failures += 1
                self._resume = time.monotonic() + self._dialer.backoff_seconds(self._failures)
            is_final = code is ErrorCode.SASL_AUTHENTICATION_FAILED
            self._why = (code if is_final else ErrorCode.BROKER_NOT_AVAILABLE, why)

    def close(self) -> None:
        """Close all connections, and make none any more."""
        with self._lock:
            self._is_closed = True
            self._why = (ErrorCode.BROKER_NOT_AVAILABLE, f"{self.address}: the client is closed")
            there = [each for lane in self._lanes.values() for each in lane]
        for each in there:
            each.close()
