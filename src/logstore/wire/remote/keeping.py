"""Signs of life for members of groups.

A client gives one when it polls, which it may do as seldom as it has said (``rebalance_timeout_ms``). In
between this module does it for the client. So a member whose process has died is missed soon, after the
session timeout, and one that works long on what it has polled is not.

Lock: ``_lock`` guards who there is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import Heartbeat, JoinGroup, JoinGroupResult
from logstore.wire.remote.connections.loop import Loop, Timer

LONGEST_SESSION_MS: Final = 45_000
"""What ``session.timeout.ms`` of Kafka's clients is by default: a member that has died is missed after it."""
_BEATS_IN_SESSION: Final = 3
"""How often a sign of life is given within a session, at least."""
_LONGEST_INTERVAL_MS: Final = 3_000
_OVER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
    }
)
"""After these the member is none any more. Its client hears it when it asks."""

Member = tuple[str, str]
"""Group and member id."""
Beat = Callable[[Heartbeat, Callable[[ErrorCode], object]], object]
"""Sends a heartbeat, and passes on the answer."""


class _Kept:
    """One member."""

    def __init__(self, beat: Heartbeat, interval_ms: int, patience_ms: int) -> None:
        self.beat = beat
        self.interval_ms = interval_ms
        self.patience_ms = patience_ms
        """How long its client may be silent."""
        self.heard = time.monotonic()
        """When its client last was not."""
        self.timer: Timer | None = None


class Keeping:
    """The members that are clients of one program."""

    def __init__(self, loop: Loop, send: Beat) -> None:
        self._loop = loop
        self._send = send
        self._lock = threading.Lock()
        self._members: dict[Member, _Kept] = {}

    @staticmethod
    def with_session(request: JoinGroup) -> JoinGroup:
        """The request with a session timeout that does without the client's own signs of life."""
        return request._replace(session_timeout_ms=min(request.session_timeout_ms, LONGEST_SESSION_MS))

    def begin(self, request: JoinGroup, joined: JoinGroupResult) -> None:
        """A member has joined, or joined again."""
        beat = Heartbeat(request.group_id, joined.generation, joined.member_id, request.instance_id)
        session_ms = self.with_session(request).session_timeout_ms
        interval_ms = min(session_ms // _BEATS_IN_SESSION, _LONGEST_INTERVAL_MS)
        kept = _Kept(beat, interval_ms, request.rebalance_timeout_ms)
        with self._lock:
            before = self._members.get((request.group_id, joined.member_id))
            self._members[request.group_id, joined.member_id] = kept
        if before is not None and before.timer is not None:
            before.timer.cancel()
        self._plan(kept)

    def note(self, group: str, member_id: str) -> None:
        """Its client has asked for something."""
        with self._lock:
            kept = self._members.get((group, member_id))
            if kept is not None:
                kept.heard = time.monotonic()

    def end(self, group: str, member_id: str) -> None:
        """It leaves."""
        with self._lock:
            kept = self._members.pop((group, member_id), None)
        if kept is not None and kept.timer is not None:
            kept.timer.cancel()

    def _plan(self, kept: _Kept) -> None:
        if not self._loop.is_closed:
            kept.timer = self._loop.call_later(kept.interval_ms, lambda: self._beat(kept))

    def _beat(self, kept: _Kept) -> None:
        key = (kept.beat.group_id, kept.beat.member_id)
        with self._lock:
            if self._members.get(key) is not kept:
                return
            silent_ms = (time.monotonic() - kept.heard) * 1000
            if silent_ms > kept.patience_ms or self._loop.is_closed:
                del self._members[key]  # the others get its partitions when its session is over
                return
        self._send(kept.beat, lambda code: self._answered(kept, code))

    def _answered(self, kept: _Kept, code: ErrorCode) -> None:
        key = (kept.beat.group_id, kept.beat.member_id)
        with self._lock:
            if self._members.get(key) is not kept:
                return
            if code in _OVER:
                del self._members[key]
                return
        self._plan(kept)
