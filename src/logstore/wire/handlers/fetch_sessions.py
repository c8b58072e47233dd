"""Fetch sessions: a consumer of many partitions names only what has changed, and is told only of what has
(KIP-227).

Lock: ``FetchSessions._lock`` guards which sessions there are, and ``FetchSession.lock`` what one of them
knows: the requests of a session come one after the other, on one connection, unless a client breaks the
rules. Nothing is called with the first one held.
"""

from __future__ import annotations

import itertools
import operator
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.kept import KeptFetch, KeptPartition
from logstore.broker.requests import NO_NODE, FetchedPartition
from logstore.model import Isolation, TopicPartition
from logstore.wire.messages.records.fetch import FetchRequest, Partition

NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = -1
_INT32_MAX: Final = 2**31 - 1
_KEPT_SECONDS: Final = 120
"""A session that was used so lately keeps its place:
Kafka's ``min.incremental.fetch.session.eviction.ms``."""

_UNRESOLVED: Final = (object(),)

TopicKey = tuple[str, uuid.UUID]
"""A topic's name or its id: the one that the version has; the other is empty."""
PartitionKey = tuple[TopicKey, int]


class Resolved(NamedTuple):
    """What a client means by a topic's name or id, and why it may not read it."""

    name: str
    topic_id: uuid.UUID | None
    error: ErrorCode


class SessionPartition(KeptPartition):
    """A partition of a session."""

    __slots__ = ("key", "told")

    def __init__(
        self, kept: KeptFetch, rank: int, partition: TopicPartition, asked: Partition, key: PartitionKey
    ) -> None:
        super().__init__(
            kept,
            rank,
            partition,
            asked.fetch_offset,
            asked.max_bytes,
            asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            log_start_offset=asked.log_start_offset,
        )
        self.key = key
        self.told: tuple[int, int, int, bool] | None = None
        """What the client was told last: high watermark, last stable offset, log start offset, and whether
        there was an error."""


class FetchSession:
    """What one client reads."""

    __slots__ = (
        "_fresh",
        "_looked_seconds",
        "_parts",
        "_ranks",
        "_refused",
        "_sign_seconds",
        "_stamp",
        "_topics",
        "epoch",
        "kept",
        "lock",
        "session_id",
        "used_seconds",
        "uses_ids",
    )

    def __init__(self, session_id: int, *, uses_ids: bool, sign_seconds: float) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self._sign_seconds = sign_seconds
        self.epoch = _FIRST_EPOCH + 1
        """That of the next request."""
        self.lock = threading.Lock()
        self.used_seconds = time.monotonic()
        self.kept = KeptFetch()
        """What the broker knows of it: the partitions that the client may read."""
        self._parts: dict[PartitionKey, SessionPartition] = {}
        self._fresh: list[SessionPartition] = []
        """What the last request named."""
        self._looked_seconds = 0.0
        """When :meth:`to_note` gave everything."""
        self._ranks = itertools.count()
        """Partitions are read in the order in which they came; who has got records goes to the end."""
        self._topics: dict[TopicKey, Resolved] = {}
        """What the topics were found to be."""
        self._stamp: tuple[object, ...] = _UNRESOLVED
        """They are the same while these objects are."""
        self._refused: dict[SessionPartition, ErrorCode] = {}
        """What the client may not read, or what is not known."""

    def __len__(self) -> int:
        return len(self._parts)

    def update(self, request: FetchRequest) -> None:
        """Take in what the request changes."""
        self._fresh = []
        if not (request.topics or request.forgotten_topics):
            return
        with self.lock:
            gone = []
            for forgotten in request.forgotten_topics:
                key = (forgotten.name, forgotten.topic_id)
                gone += [self._parts.pop((key, number), None) for number in forgotten.partitions]
            self._forget_locked([each for each in gone if each is not None])
            fresh = []
            for topic in request.topics:
                key = (topic.name, topic.topic_id)
                fresh += [self._wanted_locked((key, each.partition), each) for each in topic.partitions]
            self._fresh = fresh
            self.kept.look_at([part for part in fresh if part not in self._refused])
            self._note_count_locked()

    def _wanted_locked(self, key: PartitionKey, asked: Partition) -> SessionPartition:
        part = self._parts.get(key)
        if part is not None:
            part.read_from(
                asked.fetch_offset, asked.max_bytes, asked.current_leader_epoch, asked.last_fetched_epoch
            )
            part.log_start_offset = asked.log_start_offset
            return part
        found = self._topics.get(key[0])
        if found is None:
            self._stamp = _UNRESOLVED  # a topic that is yet to be looked up
        partition = TopicPartition(found.name if found else "", asked.partition)
        part = self._parts[key] = SessionPartition(self.kept, next(self._ranks), partition, asked, key)
        if found is not None:
            part.topic_id = found.topic_id
            if found.error is not NONE:
                self._refused[part] = found.error
        return part

    def _forget_locked(self, gone: list[SessionPartition]) -> None:
        if not gone:
            return
        self.kept.forget(gone)
        for part in gone:
            self._refused.pop(part, None)

    def resolve(self, stamp: tuple[object, ...], resolved: Callable[[TopicKey], Resolved]) -> None:
        """Look topics up again: all of them unless the stamp has the same objects as the last time, and what
        was refused each time."""
        with self.lock:
            if all(map(operator.is_, self._stamp, stamp)):
                self._resolve_locked({part.key[0] for part in self._refused}, resolved)
            else:
                topics = dict.fromkeys(key[0] for key in self._parts)
                self._topics = {topic: self._topics[topic] for topic in topics if topic in self._topics}
                self._resolve_locked(topics, resolved)
                self._stamp = stamp

    def _resolve_locked(self, topics: Iterable[TopicKey], resolved: Callable[[TopicKey], Resolved]) -> None:
        changed = {}
        for topic in topics:
            found = resolved(topic)
            if self._topics.get(topic) != found:
                changed[topic] = self._topics[topic] = found
        if not changed:
            return
        for part in self._parts.values():
            found_of = changed.get(part.key[0])
            if found_of is not None:
                self._resolve_part_locked(part, found_of)
        self._note_count_locked()

    def _resolve_part_locked(self, part: SessionPartition, found: Resolved) -> None:
        if found.error is not NONE:
            self.kept.forget([part])
            self._refused[part] = found.error
            return
        self._refused.pop(part, None)
        part.partition = TopicPartition(found.name, part.key[1])
        part.topic_id = found.topic_id
        self.kept.look_at([part])

    def _note_count_locked(self) -> None:
        self.kept.count = len(self._parts) - len(self._refused)

    def read_at(self, isolation: Isolation) -> None:
        """At another isolation all partitions may have something new."""
        if isolation is not self.kept.isolation:
            with self.lock:
                self.kept.look_at([part for part in self._parts.values() if part not in self._refused])

    def to_note(self) -> list[SessionPartition]:
        """Of a follower: how far it is, where that has changed; of everything now and then, as a sign of
        life."""
        now = time.monotonic()
        with self.lock:
            parts: Iterable[SessionPartition] = self._fresh
            if now - self._looked_seconds > self._sign_seconds:
                self._looked_seconds, parts = now, self._parts.values()
            return [part for part in parts if part not in self._refused]

    def keys(self) -> list[PartitionKey]:
        """All of its partitions, in the order of the topics."""
        with self.lock:
            return sorted(self._parts)

    def refused(self) -> list[tuple[PartitionKey, ErrorCode]]:
        """What the client may not read. It is told each time."""
        if not self._refused:
            return []
        with self.lock:
            parts = sorted(self._refused, key=lambda part: part.rank)
            return [(part.key, self._refused[part]) for part in parts]

    def news(
        self, found: Iterable[tuple[Any, FetchedPartition]], refused: Iterable[PartitionKey] = ()
    ) -> list[tuple[PartitionKey, FetchedPartition]]:
        """What of this the client does not know yet. What is refused is news once it is not."""
        fresh = []
        with self.lock:
            for key in refused:
                part = self._parts.get(key)
                if part is not None:
                    part.told = None
            for part, result in found:
                is_error = result.error is not NONE
                told = (result.high_watermark, result.last_stable_offset, result.log_start_offset, is_error)
                goes_elsewhere = result.preferred_id != NO_NODE
                if not (is_error or result.data or result.diverging or goes_elsewhere or part.told != told):
                    continue
                fresh.append((part.key, result))
                part.told = told
                if result.data:
                    part.rank = next(self._ranks)
        return fresh

    def close(self) -> None:
        """It has ended: stop watching its partitions."""
        with self.lock:
            self.kept.forget(self._parts.values())
            self._parts = {}
            self._refused = {}


class Opened(NamedTuple):
    """The session of a request."""

    error: ErrorCode
    session: FetchSession | None = None
    """None if there is none: all partitions are named, and all are told of."""


class FetchSessions:
    """All sessions of a node."""

    def __init__(self, slots: int = 1_000, *, sign_seconds: float = 0.0) -> None:
        """``sign_seconds``: how often to note of everything that a follower still asks for it."""
        self._slots = slots
        self._sign_seconds = sign_seconds
        self._lock = threading.Lock()
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, *, uses_ids: bool) -> Opened:
        """The session that the request begins, or goes on with."""
        if request.session_epoch in (_FIRST_EPOCH, _LAST_EPOCH):
            with self._lock:
                ended = self._sessions.pop(request.session_id, None)
            if ended is not None:
                ended.close()
            if request.session_epoch == _LAST_EPOCH:
                return Opened(ErrorCode.NONE)
            return self._begin(request, uses_ids=uses_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            return Opened(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_ids != uses_ids:
            return Opened(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        with session.lock:
            if session.epoch != request.session_epoch:
                return Opened(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.epoch = 1 if session.epoch == _INT32_MAX else session.epoch + 1
        session.used_seconds = time.monotonic()
        session.update(request)
        return Opened(ErrorCode.NONE, session)

    def keys(self, session_id: int) -> list[PartitionKey]:
        """The partitions of a session; none if there is no such session."""
        session = self._sessions.get(session_id)
        return [] if session is None else session.keys()

    def _begin(self, request: FetchRequest, *, uses_ids: bool) -> Opened:
        with self._lock:
            has_room, evicted = self._make_room_locked()
            if not has_room:
                return Opened(ErrorCode.NONE)
            number = NO_SESSION
            while number == NO_SESSION or number in self._sessions:
                number = secrets.randbits(31)
            session = FetchSession(number, uses_ids=uses_ids, sign_seconds=self._sign_seconds)
            self._sessions[number] = session
        if evicted is not None:
            evicted.close()
        session.update(request)
        return Opened(ErrorCode.NONE, session)

    def _make_room_locked(self) -> tuple[bool, FetchSession | None]:
        """Whether there is room for one more, and the session that gave its place."""
        if len(self._sessions) < self._slots:
            return True, None
        oldest = min(self._sessions.values(), key=lambda each: each.used_seconds, default=None)
        if oldest is None or time.monotonic() - oldest.used_seconds < _KEPT_SECONDS:
            return False, None
        return True, self._sessions.pop(oldest.session_id)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            ended, self._sessions = self._sessions, {}
        for session in ended.values():
            session.close()
