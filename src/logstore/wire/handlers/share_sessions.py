"""Share sessions: a member of a share group names only which partitions it adds or leaves, and counts its
requests (KIP-932).

A member has one session, which ends when it says so, and with the connection on which it began: what the
member has goes to the others then. That is how a worker that was killed is noticed at once.

Lock: ``ShareSessions._lock`` guards which sessions there are, and what each of them knows. Nothing is called
with it held.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode

FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = -1
_INT32_MAX: Final = 2**31 - 1

Place = tuple[uuid.UUID, int]
"""A topic's id and the number of a partition."""


class Member(NamedTuple):
    """Whose session it is."""

    group: str
    member_id: str


class _Session:
    __slots__ = ("epoch", "owner", "turn", "wanted")

    def __init__(self, owner: object, wanted: Iterable[Place]) -> None:
        self.owner = owner
        """The connection on which it began."""
        self.epoch = FIRST_EPOCH + 1
        """That of the next request."""
        self.wanted: dict[Place, None] = dict.fromkeys(wanted)
        self.turn = 0


class Opened(NamedTuple):
    """What a request finds."""

    error: ErrorCode
    wanted: tuple[Place, ...] = ()
    """The partitions of the session, in the order in which they are to be looked at now."""
    is_last: bool = False
    """The session has ended: what the member has is to be let go."""


class ShareSessions:
    """All share sessions of a node."""

    def __init__(self, slots: int = 2_000) -> None:
        self._slots = slots
        self._lock = threading.Lock()
        self._sessions: dict[Member, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, member: Member) -> bool:
        return member in self._sessions

    def fetch(
        self,
        owner: object,
        member: Member,
        epoch: int,
        *,
        added: Iterable[Place] = (),
        forgotten: Iterable[Place] = (),
        says_something: bool = False,
    ) -> Opened:
        """A ShareFetch. ``says_something``: it has acknowledgements, which the first of a session must not.
        ``owner``: the connection."""
        with self._lock:
            if epoch == FIRST_EPOCH:
                return self._begin_locked(owner, member, added, says_something=says_something)
            session, found = self._go_on_locked(member, epoch)
            if session is None or found.error is not ErrorCode.NONE or found.is_last:
                return found
            for place in forgotten:
                session.wanted.pop(place, None)
            session.wanted.update(dict.fromkeys(added))
            wanted = tuple(session.wanted)
            if wanted:
                session.turn = (session.turn + 1) % len(wanted)
            return Opened(ErrorCode.NONE, wanted[session.turn :] + wanted[: session.turn])

    def places(self, member: Member) -> list[Place]:
        """The partitions of a member's session."""
        with self._lock:
            session = self._sessions.get(member)
            return [] if session is None else list(session.wanted)

    def acknowledge(self, member: Member, epoch: int) -> Opened:
        """A ShareAcknowledge, which cannot begin a session."""
        if epoch == FIRST_EPOCH:
            return Opened(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        with self._lock:
            return self._go_on_locked(member, epoch)[1]

    def _begin_locked(
        self, owner: object, member: Member, added: Iterable[Place], *, says_something: bool
    ) -> Opened:
        if says_something:
            return Opened(ErrorCode.INVALID_REQUEST)
        self._sessions.pop(member, None)
        if len(self._sessions) >= self._slots:
            return Opened(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[member] = _Session(owner, added)
        return Opened(ErrorCode.NONE, tuple(session.wanted))

    def _go_on_locked(self, member: Member, epoch: int) -> tuple[_Session | None, Opened]:
        session = self._sessions.get(member)
        if session is None:
            return None, Opened(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == LAST_EPOCH:
            del self._sessions[member]
            return session, Opened(ErrorCode.NONE, is_last=True)
        if session.epoch != epoch:
            return session, Opened(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _INT32_MAX else epoch + 1
        return session, Opened(ErrorCode.NONE)

    def end_of(self, owner: object) -> list[Member]:
        """A connection has ended, and with it its sessions; returns whose they were."""
        if not self._sessions:
            return []
        with self._lock:
            gone = [member for member, session in self._sessions.items() if session.owner is owner]
            for member in gone:
                del self._sessions[member]
        return gone
