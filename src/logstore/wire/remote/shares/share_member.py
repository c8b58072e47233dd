"""One member of a share group, and its sessions with the leaders of its partitions (KIP-932).

In a session a broker remembers which partitions a member takes records from, and what it has. Each request of
a session has the epoch after the one before. One fetch of a member waits at each leader at most; what it
brings is the member's, also if its caller has gone away meanwhile: it is given to the next fetch.

What a fetch says of records goes with it to the same leader, where that does not have to wait for others: in
the ShareFetch of the session. Where that cannot be, a ShareAcknowledge goes before it: there is no session or
its fetch is under way, the fetch may wait, or locks are renewed, which no fetch does that brings records.

Lock: ``_lock`` guards the sessions, and the fetch that waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    AcknowledgeBatch,
    AcknowledgedPartition,
    AcknowledgePartition,
    AcquiredRecords,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResult,
    TopicIdPartition,
)
from logstore.model import TopicPartition
from logstore.wire.remote.connections.codes import STALE
from logstore.wire.remote.connections.nodes import Node
from logstore.wire.remote.connections.questions import RemotePending
from logstore.wire.remote.routing.asking import Gathered, ask
from logstore.wire.remote.routing.cluster import Cluster, Leader, OneNode
from logstore.wire.remote.translate import shares
from logstore.wire.remote.translate.shares import LAST_EPOCH, AcknowledgeInSession, FetchInSession
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")
R = TypeVar("R")

_LONGEST_WAIT_MS = 5_000
_GRACE_MS = 500
"""How much longer than it is to wait a fetch takes until its caller is told that there is nothing."""
_TRIES = 5
_TURN_MS = 5
"""How long a request waits for its turn in a session, the first time; doubled with each further one."""
_LAST_EPOCH_BEFORE_WRAP = 2**31 - 1
_LOST_SESSION = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
_NOTHING = ShareFetchResult(ErrorCode.NONE)
_NO_ANSWER = ShareFetchResult(
    ErrorCode.REQUEST_TIMED_OUT, message="the brokers have not said whether there are records"
)
_Leaders = dict[TopicPartition, Leader]
_Said = Sequence[AcknowledgePartition]
_Told = Callable[[Sequence[AcknowledgedPartition]], object]


class _Session:
    """With one broker."""

    __slots__ = ("epoch", "is_fetching", "partitions")

    def __init__(self) -> None:
        self.epoch = 0
        """Of the next request; 0 begins the session."""
        self.partitions: set[TopicIdPartition] = set()
        self.is_fetching = False

    def take_epoch(self) -> int:
        """The epoch of a request that is sent now."""
        epoch = self.epoch
        self.epoch = 1 if epoch == _LAST_EPOCH_BEFORE_WRAP else epoch + 1
        return epoch

    def forget(self) -> None:
        """It begins again with the next fetch."""
        self.epoch = 0
        self.partitions.clear()


class _Waiting:
    """A fetch without an answer: it waits for records, and for what became of its acknowledgements.

    Lock: ``_lock`` guards what is there of the answer.
    """

    def __init__(self, request: ShareFetchRequest, patience_ms: int) -> None:
        """``patience_ms``: how long to ask again where that may help, for one that only asks what is there
        now. Of one that says something, too, what became of that counts."""
        now = time.monotonic()
        self.request = request
        self.pending: RemotePending[ShareFetchResult] = RemotePending()
        self.until = now + request.max_wait_ms / 1000
        self.must_know = request.max_wait_ms <= 0 and not request.acknowledgements
        """Whether its caller has to know if there is nothing, or no answer."""
        self.patience_ms = patience_ms if self.must_know else _GRACE_MS
        self._gives_up = now + patience_ms / 1000 if self.must_know else self.until
        self.asked_count = 0
        """Leaders that have not answered the first time."""
        self._lock = threading.Lock()
        self._result: tuple[ShareFetchResult, int] | None = None
        self._outcomes: dict[int, AcknowledgedPartition] = {}
        self._is_complete = False

    @property
    def is_over(self) -> bool:
        """Whether its time is."""
        return time.monotonic() >= self.until

    @property
    def may_ask_again(self) -> bool:
        """Whether a leader that could not answer is asked again."""
        return time.monotonic() < self._gives_up

    def bring(self, result: ShareFetchResult, throttle_ms: int = 0) -> None:
        """The records; once."""
        with self._lock:
            self._result = self._result or (result, throttle_ms)
        self._complete()

    def tell(self, at: Iterable[int], outcomes: Iterable[AcknowledgedPartition]) -> None:
        """What became of acknowledgements."""
        with self._lock:
            self._outcomes.update(zip(at, outcomes, strict=True))
        self._complete()

    def _complete(self) -> None:
        with self._lock:
            count = len(self.request.acknowledgements)
            if self._is_complete or self._result is None or len(self._outcomes) < count:
                return
            self._is_complete = True
            result, throttle_ms = self._result
            outcomes = tuple(self._outcomes[at] for at in range(count))
        self.pending.complete_throttled(result._replace(acknowledged=outcomes), throttle_ms)


class ShareMember:
    """One member of one group."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._lock = threading.Lock()
        self._sessions: dict[Node, _Session] = {}
        self._waiting: _Waiting | None = None
        self._kept: list[tuple[float, ShareFetchResult]] = []
        """Records that no fetch waited for, and when they came."""
        self.topics: tuple[str, ...] = ()
        """What it subscribes to."""
        self.assigned: tuple[tuple[UUID, int], ...] = ()
        """The partitions that it was given, as the coordinator names them."""

    # Fetching

    def fetch(self, request: ShareFetchRequest) -> RemotePending[ShareFetchResult]:
        """See :meth:`.Broker.share_fetch`."""
        waiting = _Waiting(request, self._cluster.config.request_timeout_ms)
        wants_some = request.max_records > 0
        with self._lock:
            kept: list[tuple[float, ShareFetchResult]] = []
            before = self._waiting
            if wants_some:
                kept, self._kept = self._kept, []
                self._waiting = None if kept else waiting
        if before is not None and wants_some:  # its caller has gone away
            before.bring(_NOTHING)
        if kept or not wants_some:
            waiting.bring(_joined(kept) if kept else _NOTHING)
        else:
            wait_ms = request.max_wait_ms + waiting.patience_ms
            self._cluster.dialer.loop.call_later(wait_ms, lambda: self._end(waiting))
        if request.acknowledgements:
            places = [each.partition for each in request.acknowledgements]
            self._when_known([*request.partitions, *places], lambda leaders: self._begin(waiting, leaders))
        elif not kept and wants_some:
            self._ask(waiting, request.partitions)
        return waiting.pending

    def _end(self, waiting: _Waiting) -> None:
        """The time is over. Polls that still wait go on."""
        with self._lock:
            if self._waiting is not waiting:
                return
            self._waiting = None
        waiting.bring(_NO_ANSWER if waiting.must_know else _NOTHING)

    def _when_known(self, partitions: Iterable[TopicIdPartition], then: Callable[[_Leaders], object]) -> None:
        self._cluster.when_known(dict.fromkeys(each.partition for each in partitions), then)

    def _ask(self, waiting: _Waiting, partitions: Sequence[TopicIdPartition]) -> None:
        self._when_known(partitions, lambda leaders: self._poll(waiting, partitions, leaders, {}))

    def _begin(self, waiting: _Waiting, leaders: _Leaders) -> None:
        """Say what cannot be said with the fetches, then fetch."""
        request = waiting.request
        with self._lock:
            may_carry = self._waiting is waiting and request.max_wait_ms <= 0
            polled = set(request.partitions)
            carried: dict[Node, list[int]] = {}
            before: list[int] = []
            for at, (partition, batches, _) in enumerate(request.acknowledgements):
                node = self._place_of(partition, leaders)[0]
                session = None if node is None else self._sessions.get(node)
                can_take = session is not None and session.epoch and not session.is_fetching
                is_apart = any(batch.kind is Acknowledgement.RENEW for batch in batches)
                if may_carry and can_take and not is_apart and batches and partition in polled:
                    assert node is not None
                    carried.setdefault(node, []).append(at)
                else:
                    before.append(at)

        def go_on(outcomes: Sequence[AcknowledgedPartition]) -> None:
            waiting.tell(before, outcomes)
            if any(each.error is not ErrorCode.NONE for each in outcomes):
                waiting.until = time.monotonic()
            self._poll(waiting, request.partitions, leaders, carried)

        said = tuple(request.acknowledgements[at] for at in before)
        self._say(ShareAcknowledgeRequest(request.group, request.member_id, said), leaders, go_on)

    def _place_of(
        self, partition: TopicIdPartition, leaders: _Leaders
    ) -> tuple[Node | None, ErrorCode, str | None]:
        """The leader of a partition; or why there is none to ask."""
        name = partition.partition.topic
        leader = leaders[partition.partition]
        if leader.node is None:
            return None, leader.error, leader.message
        known = self._cluster.topic_ids((name,)).get(name)
        if known is None:
            return None, ErrorCode.UNSUPPORTED_VERSION, f"the broker has no id for topic {name!r}"
        if known != partition.topic_id:
            self._cluster.note_stale((name,))
            return None, ErrorCode.UNKNOWN_TOPIC_ID, f"topic {name!r} was deleted, and made again"
        return leader.node, ErrorCode.NONE, None

    def _poll(
        self,
        waiting: _Waiting,
        partitions: Sequence[TopicIdPartition],
        leaders: _Leaders,
        carried: dict[Node, list[int]],
    ) -> None:
        """``carried``: which acknowledgements of the request go with the fetch of each leader."""
        parts: dict[Node, list[TopicIdPartition]] = {}
        failed: list[ShareFetchedPartition] = []
        for partition in partitions:
            node, code, message = self._place_of(partition, leaders)
            if node is None:
                failed.append(ShareFetchedPartition(partition, code, message=message))
            else:
                parts.setdefault(node, []).append(partition)
        with self._lock:
            if self._waiting is waiting and not waiting.asked_count:
                waiting.asked_count = len(parts) + bool(failed)
        if failed:
            self._take(ShareFetchResult(ErrorCode.NONE, tuple(failed)), 0, (), waiting)
        for node, part in parts.items():
            self._poll_node(waiting, node, tuple(part), carried.pop(node, []))

    def _poll_node(
        self, waiting: _Waiting, node: Node, part: tuple[TopicIdPartition, ...], carried: Sequence[int]
    ) -> None:
        wait_ms = min(max(int((waiting.until - time.monotonic()) * 1000), 0), _LONGEST_WAIT_MS)
        said = tuple(waiting.request.acknowledgements[at] for at in carried)
        with self._lock:
            session = self._sessions.setdefault(node, _Session())
            is_asked = self._waiting is waiting and not session.is_fetching
            carries = is_asked and session.epoch > 0
            if is_asked:
                session.is_fetching = True
                request = waiting.request._replace(
                    partitions=part, max_wait_ms=wait_ms, acknowledgements=said if carries else ()
                )
                added = tuple(each for each in part if each not in session.partitions)
                forgotten = tuple(each for each in session.partitions if each not in part)
                session.partitions = set(part)
                asked = FetchInSession(request, session.take_epoch(), added, forgotten)
        if said and not carries:  # things have changed meanwhile
            alone = ShareAcknowledgeRequest(waiting.request.group, waiting.request.member_id, said)
            self._say_to(node, alone, lambda result: waiting.tell(carried, result.partitions))
        if not is_asked:
            waiting.asked_count -= waiting.asked_count > 0
            return

        def done(result: ShareFetchResult, throttle_ms: int) -> None:
            with self._lock:
                session.is_fetching = False
                if result.error in _LOST_SESSION:
                    session.forget()
            if carries and said:
                alone = ShareAcknowledgeRequest(waiting.request.group, waiting.request.member_id, said)
                self._say_singly(
                    node,
                    alone,
                    result.acknowledged,
                    lambda told: waiting.tell(carried, told.partitions),
                    fresh={each.partition: each.acquired for each in result.partitions},
                )
            self._take(result, throttle_ms, part, waiting)

        self._ask_in_turn(node, shares.FETCH, asked, lambda result: result.error, done)

    def _take(
        self,
        result: ShareFetchResult,
        throttle_ms: int,
        part: Sequence[TopicIdPartition],
        asker: _Waiting,
    ) -> None:
        """A leader has answered about a part. ``asker``: who made it be asked."""
        soft = [each for each in result.partitions if each.error in STALE]
        if soft:
            self._cluster.note_stale({each.partition.partition.topic for each in soft})
            hard = tuple(each for each in result.partitions if each.error not in STALE)
            result = result._replace(partitions=hard)
        again = tuple(part) or tuple(each.partition for each in soft)
        if result.error in STALE:  # its node may be gone, and another leads
            self._cluster.note_stale({each.partition.topic for each in again})
        is_soft = bool(soft) or result.error in _LOST_SESSION
        has_some = bool(result.partitions)
        loop = self._cluster.dialer.loop
        with self._lock:
            waiting = self._waiting
            is_tried = is_soft and not has_some and waiting is asker and asker.may_ask_again
            if not is_tried:
                asker.asked_count -= asker.asked_count > 0
            if waiting is None:
                if has_some:
                    self._kept.append((time.monotonic(), result))
                return
            is_failure = result.error is not ErrorCode.NONE and not is_soft
            is_late = waiting.is_over and (waiting is not asker or not waiting.asked_count)
            is_over = has_some or is_failure or (is_late and not is_tried) or loop.is_closed
            if is_over:
                self._waiting = None
        backoff_ms = self._cluster.config.retry_backoff_ms
        if is_over:
            told = result._replace(acknowledged=())
            if is_soft and not has_some:
                told = _NO_ANSWER if waiting.must_know else _NOTHING
            is_gone = has_some and all(each.error is ErrorCode.UNKNOWN_TOPIC_ID for each in result.partitions)
            if is_gone and not waiting.is_over:  # who asks again at once does not ask all the time
                loop.try_later(backoff_ms, lambda: waiting.bring(told, throttle_ms))
            else:
                waiting.bring(told, throttle_ms)
        elif waiting.is_over and not is_tried:
            return  # other leaders have not answered yet
        elif is_soft:
            loop.try_later(backoff_ms, lambda: self._ask(waiting, again))
        else:
            self._ask(waiting, again)

    # Acknowledging

    def acknowledge(self, request: ShareAcknowledgeRequest) -> RemotePending[ShareAcknowledgeResult]:
        """See :meth:`.Broker.share_acknowledge`."""
        pending: RemotePending[ShareAcknowledgeResult] = RemotePending()

        def done(outcomes: Sequence[AcknowledgedPartition]) -> None:
            result = ShareAcknowledgeResult(tuple(outcomes))
            if request.releases_rest:
                self._end_sessions(request.group, request.member_id, lambda: pending.complete(result))
            else:
                pending.complete(result)

        partitions = [each.partition for each in request.partitions]
        self._when_known(partitions, lambda leaders: self._say(request, leaders, done))
        return pending

    def _say(self, request: ShareAcknowledgeRequest, leaders: _Leaders, done: _Told) -> None:
        parts: dict[Node, list[int]] = {}
        outcomes: dict[int, AcknowledgedPartition] = {}
        for at, (partition, batches, _) in enumerate(request.partitions):
            node, code, message = self._place_of(partition, leaders)
            if not batches:
                outcomes[at] = AcknowledgedPartition(partition, ErrorCode.NONE)
            elif node is None:
                outcomes[at] = shares.outcome_of(request.partitions[at], code, message)
            else:
                parts.setdefault(node, []).append(at)

        def finish(_: list[None]) -> None:
            done([outcomes[at] for at in range(len(request.partitions))])

        gathered: Gathered[None] = Gathered(len(parts) + 1, finish)
        gathered.add(None)
        for node, part in parts.items():
            said = request._replace(partitions=tuple(request.partitions[at] for at in part))

            def take(result: ShareAcknowledgeResult, part: list[int] = part) -> None:
                outcomes.update(zip(part, result.partitions, strict=True))
                gathered.add(None)

            self._say_to(node, said, take)

    def _say_to(
        self,
        node: Node,
        request: ShareAcknowledgeRequest,
        done: Callable[[ShareAcknowledgeResult], object],
    ) -> None:
        with self._lock:
            session = self._sessions.get(node)
            epoch = 0 if session is None or session.epoch == 0 else session.take_epoch()
        if session is None or not epoch:  # nothing was taken there, or its session has ended with all it had
            code = ErrorCode.INVALID_RECORD_STATE
            lost = (AcknowledgedPartition(each.partition, code, each.batches) for each in request.partitions)
            done(ShareAcknowledgeResult(tuple(lost)))
            return

        def take(result: ShareAcknowledgeResult, _: int) -> None:
            if result.error in _LOST_SESSION:
                with self._lock:
                    session.forget()
            if result.error in STALE or any(each.error in STALE for each in result.partitions):
                self._cluster.note_stale({each.partition.partition.topic for each in request.partitions})
            self._say_singly(node, request, result.partitions, done)

        asked = AcknowledgeInSession(request, epoch)
        self._ask_in_turn(node, shares.ACKNOWLEDGE, asked, lambda result: result.error, take)

    def _say_singly(
        self,
        node: Node,
        request: ShareAcknowledgeRequest,
        told: Sequence[AcknowledgedPartition],
        done: Callable[[ShareAcknowledgeResult], object],
        *,
        fresh: Mapping[TopicIdPartition, Sequence[AcquiredRecords]] | None = None,
    ) -> None:
        """A broker refuses all that was said of a partition if one record of it is not the member's any more.
        The rest is said again, batch by batch, to find which; but not what is ``fresh``: the same request
        brought it, so it was not the member's when that was said."""
        doubtful: list[tuple[int, AcknowledgeBatch]] = []
        outcomes = list(told)
        for at, outcome in enumerate(told):
            if outcome.error is ErrorCode.INVALID_RECORD_STATE and len(outcome.refused) > 1:
                taken = (fresh or {}).get(outcome.partition, ())
                lost = tuple(each for each in outcome.refused if _is_among(each, taken))
                doubtful += [(at, each) for each in outcome.refused if each not in lost]
                code = ErrorCode.INVALID_RECORD_STATE if lost else ErrorCode.NONE
                outcomes[at] = AcknowledgedPartition(outcome.partition, code, lost)

        def take(at: int, single: AcknowledgedPartition) -> None:
            with self._lock:
                before = outcomes[at]
                if single.error is not ErrorCode.NONE:
                    outcomes[at] = single._replace(refused=before.refused + single.refused)
            gathered.add(None)

        gathered: Gathered[None] = Gathered(
            len(doubtful) + 1, lambda _: done(ShareAcknowledgeResult(tuple(outcomes)))
        )
        for at, batch in doubtful:
            said = AcknowledgePartition(request.partitions[at].partition, (batch,))
            one = request._replace(partitions=(said,))
            self._say_to(node, one, lambda found, at=at: take(at, found.partitions[0]))  # type: ignore[misc]
        gathered.add(None)

    def _ask_in_turn(
        self,
        node: Node,
        translation: Translation[Q, R],
        asked: Q,
        code_of: Callable[[R], ErrorCode],
        done: Callable[[R, int], object],
        tries: int = _TRIES,
    ) -> None:
        """Ask in a session. The requests of one go over several connections, and one that comes before its
        turn is refused as if its session were another: it is sent again."""

        def take(result: R, throttle_ms: int) -> None:
            loop = self._cluster.dialer.loop
            is_early = code_of(result) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
            if is_early and tries > 0 and not loop.is_closed:
                backoff_ms = _TURN_MS << (_TRIES - tries)
                loop.try_later(
                    backoff_ms, lambda: self._ask_in_turn(node, translation, asked, code_of, done, tries - 1)
                )
            else:
                done(result, throttle_ms)

        ask(
            self._cluster, OneNode(node), translation, asked, self._client_id, take, waits_for_broker=False
        )  # another may lead

    # Leaving

    def leave(self, group: str, member_id: str, then: Callable[[], object]) -> None:
        """End the sessions: the leaders let go what the member has."""
        self._end_sessions(group, member_id, then)

    def _end_sessions(self, group: str, member_id: str, then: Callable[[], object]) -> None:
        with self._lock:
            nodes = [node for node, session in self._sessions.items() if session.epoch]
            self._sessions.clear()
        gathered: Gathered[None] = Gathered(len(nodes), lambda _: then())
        for node in nodes:
            asked = AcknowledgeInSession(ShareAcknowledgeRequest(group, member_id, ()), LAST_EPOCH)
            ask(
                self._cluster,
                OneNode(node),
                shares.ACKNOWLEDGE,
                asked,
                self._client_id,
                lambda _result, _ms: gathered.add(None),
                waits_for_broker=False,  # one that is gone has let go what the member had
            )


def _is_among(batch: AcknowledgeBatch, taken: Iterable[AcquiredRecords]) -> bool:
    return any(each.first <= batch.last and batch.first <= each.last for each in taken)


def _joined(kept: Sequence[tuple[float, ShareFetchResult]]) -> ShareFetchResult:
    """Several results as one. The locks of the oldest run out first."""
    now = time.monotonic()
    left_ms = [each.lock_duration_ms - int((now - at) * 1000) for at, each in kept]
    partitions = tuple(each for _, result in kept for each in result.partitions)
    return ShareFetchResult(ErrorCode.NONE, partitions, max(min(left_ms), 0))
