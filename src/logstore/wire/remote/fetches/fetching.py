"""Fetches: each goes to the leaders of its partitions as long polls, and is answered when one of them has
something.

The polls of the others cannot be called back. They go on, and what they bring is given to the next fetch that
asks for the same: a consumer of many leaders does not fetch the same bytes twice. A long poll waits a few
seconds at a time, so that a connection is soon free after a fetch that is not wanted any more.

The polls of one leader go through one fetch session, one after the other. A poll that begins while another is
under way goes without.

Locks: ``Fetching._lock`` guards the polls; ``Fetch._state`` guards the outcomes of one fetch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import NO_EPOCH, FetchedPartition, FetchPartition, FetchRequest, FetchResult
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.remote.connections.codes import ABOUT_EPOCHS, STALE
from logstore.wire.remote.connections.nodes import Lane, Node
from logstore.wire.remote.connections.questions import (
    ANY_VERSION,
    Question,
    RemotePending,
    Reply,
    throttle_of,
)
from logstore.wire.remote.fetches.consumer_session import FetchSession
from logstore.wire.remote.fetches.messages import LAST_BY_NAME
from logstore.wire.remote.routing.cluster import Cluster, Leader

_LONGEST_WAIT_MS: Final = 5_000


class _Poll:
    """One long poll of one leader."""

    __slots__ = ("fetch", "is_repeated", "places", "request", "session")

    def __init__(
        self, request: FetchRequest, fetch: Fetch, places: Sequence[int], session: FetchSession
    ) -> None:
        self.request = request
        self.fetch: Fetch | None = fetch
        """Who waits for it; None if no one does any more."""
        self.places = places
        self.session = session
        self.is_repeated = False
        """Whether the session was lost once already."""

    def is_for(self, request: FetchRequest) -> bool:
        """Whether it asks for the same; how long it waits does not count."""
        mine = self.request
        return mine is request or mine._replace(max_wait_ms=0) == request._replace(max_wait_ms=0)


class _ToLeader:
    """What one leader is asked."""

    __slots__ = ("is_in_session", "kept", "kept_at", "running", "session")

    def __init__(self) -> None:
        self.running: list[_Poll] = []
        self.kept: tuple[_Poll, FetchResult] | None = None
        """What a poll has brought for which no fetch waited; the last."""
        self.kept_at = 0
        """How many connections had broken then: behind the next one may be another process."""
        self.session = FetchSession()
        self.is_in_session = False
        """Whether a poll goes through the session now."""


class Fetching:
    """The fetches of one client."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        self.cluster = cluster
        self._client_id = client_id
        self._lock = threading.Lock()
        self._leaders: dict[Node, _ToLeader] = {}

    def fetch(self, request: FetchRequest) -> RemotePending[FetchResult]:
        """See :meth:`.Broker.fetch`."""
        fetch = Fetch(self, request)
        fetch.begin()
        return fetch

    def poll(self, node: Node, request: FetchRequest, fetch: Fetch, places: Sequence[int]) -> None:
        """Ask a leader, or wait for what it was asked already."""
        with self._lock:
            leader = self._leaders.setdefault(node, _ToLeader())
            kept, leader.kept = leader.kept, None
            is_old = leader.kept_at != self.cluster.dialer.broken_count
            if kept is not None and (is_old or not kept[0].is_for(request)):
                kept = None
            poll = None
            if kept is None:
                let_go = (each for each in leader.running if each.fetch is None and each.is_for(request))
                running = next(let_go, None)
                if running is not None:
                    running.fetch, running.places = fetch, places
                else:
                    poll = self._begin_locked(leader, request, fetch, places)
        if kept is not None:
            fetch.take(places, kept[1], 0)
        elif poll is not None:
            self._ask(node, poll)

    @staticmethod
    def _begin_locked(leader: _ToLeader, request: FetchRequest, fetch: Fetch, places: Sequence[int]) -> _Poll:
        session = FetchSession(is_lasting=False) if leader.is_in_session else leader.session
        leader.is_in_session = True
        poll = _Poll(request, fetch, places, session)
        leader.running.append(poll)
        return poll

    def _ask(self, node: Node, poll: _Poll) -> None:
        request, session = poll.request, poll.session
        has_ids = all(each.topic_id is not None for each in request.partitions)
        node.ask(
            Lane.WAITS,
            Question(
                ApiKey.FETCH,
                lambda version: session.build(request, version),
                lambda reply: self._answered(node, poll, reply),
                client_id=self._client_id,
                timeout_ms=self.cluster.config.request_timeout_ms + request.max_wait_ms,
                last=ANY_VERSION if has_ids else LAST_BY_NAME,
            ),
        )

    def _answered(self, node: Node, poll: _Poll, reply: Reply) -> None:
        result = poll.session.result_of(poll.request, reply)
        with self._lock:
            leader = self._leaders[node]
            is_lost = result is None
            if is_lost and poll.is_repeated:
                poll.session, leader.is_in_session = FetchSession(is_lasting=False), False
            may_repeat = is_lost and poll.fetch is not None
            if not may_repeat:
                leader.running.remove(poll)
                if poll.session is leader.session:
                    leader.is_in_session = False
            fetch = poll.fetch
            if result is not None and fetch is None and any(each.data for each in result.partitions):
                leader.kept, leader.kept_at = (poll, result), self.cluster.dialer.broken_count
        if may_repeat:
            poll.is_repeated = True
            self._ask(node, poll)
        elif fetch is not None and result is not None:
            fetch.take(poll.places, result, throttle_of(reply))

    def let_go(self, fetch: Fetch) -> None:
        """It waits for nothing any more. What still comes for it is kept."""
        with self._lock:
            for leader in self._leaders.values():
                for poll in leader.running:
                    if poll.fetch is fetch:
                        poll.fetch = None


class Fetch(RemotePending[FetchResult]):
    """One fetch."""

    __slots__ = ("_fetching", "_give_up", "_is_over", "_outcomes", "_request", "_state", "_until")

    def __init__(self, fetching: Fetching, request: FetchRequest) -> None:
        super().__init__()
        now = time.monotonic()
        self._fetching = fetching
        self._request = request
        self._state = threading.Lock()
        self._outcomes: list[FetchedPartition | None] = [None] * len(request.partitions)
        self._until = now + request.max_wait_ms / 1000
        self._give_up = now + fetching.cluster.config.request_timeout_ms / 1000
        """Until then leaders that cannot be reached are tried again."""
        self._is_over = False

    def begin(self) -> None:
        """Ask the leaders."""
        if not self._outcomes:
            self.complete(FetchResult(()))
        else:
            self._ask(range(len(self._outcomes)))

    def cancel(self) -> None:
        super().cancel()
        with self._state:
            self._is_over = True
        self._fetching.let_go(self)

    def _ask(self, places: Sequence[int]) -> None:
        if not self._is_over:
            names = [self._request.partitions[at].partition for at in places]
            self._fetching.cluster.when_known(names, lambda leaders: self._poll(places, leaders))

    def _poll(self, places: Sequence[int], leaders: dict[TopicPartition, Leader]) -> None:
        parts: dict[Node, list[int]] = {}
        missing: dict[int, FetchedPartition] = {}
        for at in places:
            wanted = self._request.partitions[at]
            leader = leaders[wanted.partition]
            if leader.node is None:
                missing[at] = FetchedPartition(wanted.partition, leader.error, message=leader.message)
            elif wanted.topic_id is not leader.topic_id and _is_of_another(wanted, leader):
                message = f"topic {wanted.partition.topic!r} was deleted, and made again"
                missing[at] = FetchedPartition(wanted.partition, ErrorCode.UNKNOWN_TOPIC_ID, message=message)
            else:
                parts.setdefault(leader.node, []).append(at)
        if parts and not all(self._is_soft(at, each) for at, each in missing.items()):
            self._until = time.monotonic()  # there is an error to tell; the others are only looked at
            for at, outcome in missing.items():
                self._outcomes[at] = outcome
        elif missing:
            self.take(list(missing), FetchResult(tuple(missing.values())), 0)
        wait_ms = min(max(int((self._until - time.monotonic()) * 1000), 0), _LONGEST_WAIT_MS)
        for node, part in parts.items():
            partitions = tuple([self._named(at, leaders) for at in part])
            request = self._request._replace(partitions=partitions, max_wait_ms=wait_ms)
            self._fetching.poll(node, request, self, part)

    def _named(self, at: int, leaders: dict[TopicPartition, Leader]) -> FetchPartition:
        """The partition with the id of its topic, if that is known."""
        wanted = self._request.partitions[at]
        if wanted.topic_id is not None:
            return wanted
        topic_id = leaders[wanted.partition].topic_id
        return wanted if topic_id is None else wanted._replace(topic_id=topic_id)

    def take(self, places: Sequence[int], result: FetchResult, throttle_ms: int) -> None:
        """A part is answered."""
        outcomes = result.partitions
        soft = [at for at, each in zip(places, outcomes, strict=True) if self._is_soft(at, each)]
        has_some = any(each.data or each.diverging for each in outcomes) or any(
            each.error is not ErrorCode.NONE and at not in soft
            for at, each in zip(places, outcomes, strict=True)
        )
        quiet = [at for at in places if at not in soft]
        now, loop = time.monotonic(), self._fetching.cluster.dialer.loop
        is_late = bool(quiet) and now >= self._until
        is_hopeless = bool(soft) and (now >= self._give_up or loop.is_closed)
        with self._state:
            if self._is_over:
                return
            for at, outcome in zip(places, outcomes, strict=True):
                self._outcomes[at] = outcome
            self._is_over = has_some or is_late or is_hopeless
            is_over = self._is_over
        if soft:
            self._fetching.cluster.note_stale({self._request.partitions[at].partition.topic for at in soft})
        if is_over:
            self._finish(throttle_ms, hides_soft=has_some or is_late)
            return
        if quiet:
            self._ask(quiet)
        if soft:
            backoff_ms = self._fetching.cluster.config.retry_backoff_ms
            loop.try_later(backoff_ms, lambda: self._ask(soft))

    def _is_soft(self, at: int, outcome: FetchedPartition) -> bool:
        """Whether it goes away when the leader is looked up again."""
        if outcome.error in ABOUT_EPOCHS and self._request.partitions[at].leader_epoch != NO_EPOCH:
            return False
        if outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            (leader,) = self._fetching.cluster.leaders((outcome.partition,)).values()
            return leader.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return outcome.error in STALE

    def _finish(self, throttle_ms: int, *, hides_soft: bool) -> None:
        """``hides_soft``: partitions whose leader is not known have nothing for now; the next fetch asks for
        them again."""
        found = []
        for at, wanted in enumerate(self._request.partitions):
            outcome = self._outcomes[at]
            if outcome is None or (hides_soft and self._is_soft(at, outcome)):
                outcome = FetchedPartition(wanted.partition, ErrorCode.NONE, next_offset=wanted.offset)
            found.append(outcome)
        self._fetching.let_go(self)
        self.complete_throttled(FetchResult(tuple(found)), throttle_ms)


def _is_of_another(wanted: FetchPartition, leader: Leader) -> bool:
    """Whether the caller means another topic than the one that has the name now."""
    return wanted.topic_id is not None and leader.topic_id is not None and wanted.topic_id != leader.topic_id
