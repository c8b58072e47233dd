"""Fetch."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple, cast

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import FetchedPartition, Fetcher, FetchPartition
from logstore.broker.requests import FetchRequest as ToRead
from logstore.broker.requests import FetchResult as Read
from logstore.logdir.acls import Operation
from logstore.model import Isolation, TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.fetch_sessions import (
    FetchSession,
    Opened,
    PartitionKey,
    Resolved,
    SessionPartition,
    TopicKey,
)
from logstore.wire.handlers.records.leaders import with_leaders
from logstore.wire.handlers.then import then
from logstore.wire.messages.records.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchRequest,
    FetchResponse,
    Partition,
    PartitionResult,
    TopicResult,
)

_WITH_SESSIONS = 7
_BY_ID = 13
"""From this version on topics are named by their ids."""
_READ_COMMITTED = 1
_NOT_DIVERGING, *_NO_TAGS = PartitionResult()[5:8]
_NO_LIFE = -1
_new = tuple.__new__  # a third of the cost of calling the type, which counts with thousands of partitions
_OF_SESSIONS = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


def answer(call: Call, request: FetchRequest, version: int) -> Pending[FetchResponse]:
    """Read what is there; wait for more if that is less than the client wants."""
    uses_ids = version >= _BY_ID
    replica = _replica(request)
    if replica is not None and not call.allows_cluster(Operation.CLUSTER_ACTION):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    opened = Opened(ErrorCode.NONE)
    if version >= _WITH_SESSIONS:
        opened = call.node.fetch_sessions.open(request, uses_ids=uses_ids)
    if opened.error is not ErrorCode.NONE:
        return Answered(FetchResponse(error_code=opened.error))
    session = opened.session
    is_committed = request.isolation_level == _READ_COMMITTED
    if session is not None:
        return _answer_in_session(call, request, replica, session)
    reading = _Reading.of(call, request, uses_ids=uses_ids, is_replica=replica is not None)
    return then(
        call.broker.fetch(_to_read(call, request, replica, tuple(reading.partitions), reading.refused)),
        lambda result: with_leaders(
            call, FetchResponse(topics=reading.told(result.partitions, is_committed=is_committed))
        ),
    )


def _answer_in_session(
    call: Call, request: FetchRequest, replica: Fetcher | None, session: FetchSession
) -> Pending[FetchResponse]:
    """The same where the client is told of what has changed, and the broker looks at nothing else."""
    is_replica = replica is not None
    session.resolve(
        (
            call.principal,
            call.host,
            call.node.security.stamp,
            call.node.topics.stamp,
            is_replica,
        ),
        lambda topic: _resolved(call, topic, uses_ids=session.uses_ids, is_replica=is_replica),
    )
    refused = session.refused()
    asked = _to_read(call, request, replica, (), refused)
    session.read_at(asked.isolation)
    asked = asked._replace(kept=session.kept)
    if is_replica:
        asked = asked._replace(partitions=tuple(map(_wanted, session.to_note())))

    def response(read: Read) -> FetchResponse:
        found = zip(cast("tuple[SessionPartition, ...]", read.kept), read.partitions, strict=True)
        news = session.news(found, [key for key, _ in refused])
        told = _results(news, refused, is_committed=request.isolation_level == _READ_COMMITTED)
        return with_leaders(call, FetchResponse(session_id=session.session_id, topics=_by_topic(told)))

    return then(call.broker.fetch(asked), response)


def _wanted(part: SessionPartition) -> FetchPartition:
    return FetchPartition(
        part.partition,
        part.offset,
        part.max_bytes,
        part.leader_epoch,
        part.topic_id,
        part.last_fetched_epoch,
        part.log_start_offset,
    )


def _replica(request: FetchRequest) -> Fetcher | None:
    """The follower that asks. A negative number is a consumer's, or that of a tool."""
    if request.replica_state.replica_id >= 0:
        return Fetcher(*request.replica_state)
    return None if request.replica_id < 0 else Fetcher(request.replica_id, _NO_LIFE)


def _to_read(
    call: Call,
    request: FetchRequest,
    replica: Fetcher | None,
    partitions: tuple[FetchPartition, ...],
    refused: list[tuple[PartitionKey, ErrorCode]],
) -> ToRead:
    most_bytes, min_bytes = call.room.take(
        min(request.max_bytes, call.node.config.fetch_max_bytes), request.min_bytes
    )
    isolation = Isolation.HIGH_WATERMARK
    if replica is not None:
        isolation = Isolation.LOG_END
    elif request.isolation_level == _READ_COMMITTED:
        isolation = Isolation.COMMITTED
    return ToRead(
        partitions,
        0 if refused else request.max_wait_ms,
        min_bytes,
        most_bytes,
        isolation,
        replica,
        rack=request.rack_id,
    )


class _Reading(NamedTuple):
    """What is to be read, and what must not be, without a key for each partition: there may be thousands."""

    topics: list[tuple[TopicKey, int]]
    """What is read, and how many partitions of it."""
    partitions: list[FetchPartition]
    refused: list[tuple[PartitionKey, ErrorCode]]

    @classmethod
    def of(cls, call: Call, request: FetchRequest, *, uses_ids: bool, is_replica: bool) -> _Reading:
        known: dict[TopicKey, Resolved] = {}
        reading = cls([], [], [])
        for topic in request.topics:
            key = (topic.name, topic.topic_id)
            found = known.get(key)
            if found is None:
                found = known[key] = _resolved(call, key, uses_ids=uses_ids, is_replica=is_replica)
            if found.error is not ErrorCode.NONE:
                reading.refused.extend([((key, each.partition), found.error) for each in topic.partitions])
            elif topic.partitions:
                reading.add(key, found, topic.partitions)
        return reading

    def add(self, key: TopicKey, found: Resolved, partitions: tuple[Partition, ...]) -> None:
        name, topic_id, _ = found
        count = len(partitions)
        if self.topics and self.topics[-1][0] == key:
            count += self.topics.pop()[1]
        self.topics.append((key, count))
        self.partitions.extend(
            [
                _new(
                    FetchPartition,
                    (
                        _new(TopicPartition, (name, each.partition)),
                        each.fetch_offset,
                        each.max_bytes,
                        each.current_leader_epoch,
                        topic_id,
                        each.last_fetched_epoch,
                        each.log_start_offset,
                    ),
                )
                for each in partitions
            ]
        )

    def told(self, found: tuple[FetchedPartition, ...], *, is_committed: bool) -> tuple[TopicResult, ...]:
        """What the client is told."""
        topics = []
        at = 0
        for (name, topic_id), count in self.topics:
            part = found[at : at + count]
            results = tuple([_result(each, is_committed=is_committed, uses_ids=not name) for each in part])
            topics.append(TopicResult(name, topic_id, results))
            at += count
        if self.refused:
            topics += _by_topic(_results((), self.refused, is_committed=is_committed))
        return tuple(topics)


def _results(
    found: Iterable[tuple[PartitionKey, FetchedPartition]],
    refused: list[tuple[PartitionKey, ErrorCode]],
    *,
    is_committed: bool,
) -> list[tuple[PartitionKey, PartitionResult]]:
    """What the client is told of these, and of those that it must not read."""
    told = [(key, _result(each, is_committed=is_committed, uses_ids=not key[0][0])) for key, each in found]
    return told + [(key, PartitionResult(key[1], code, -1)) for key, code in refused]


def _resolved(call: Call, topic: TopicKey, *, uses_ids: bool, is_replica: bool) -> Resolved:
    """The topic that is there now, of which followers may read all. A fetch that waits stays with it: another
    one that is made under its name meanwhile has other offsets."""
    name, topic_id = topic
    if uses_ids:
        found = call.node.topics.name_of(topic_id)
        if found is None:
            return Resolved("", None, ErrorCode.UNKNOWN_TOPIC_ID)
        name = found
    if not is_replica and not call.allows_topic(Operation.READ, name):
        return Resolved(name, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return Resolved(name, topic_id if uses_ids else call.node.topics.id_of(name), ErrorCode.NONE)


def _result(each: FetchedPartition, *, is_committed: bool, uses_ids: bool) -> PartitionResult:
    if each.error is ErrorCode.UNKNOWN_TOPIC_ID and not uses_ids:
        return PartitionResult(each.partition.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    aborted = None
    if is_committed:
        aborted = tuple([AbortedTransaction(one.producer_id, one.first_offset) for one in each.aborted])
    return _new(
        PartitionResult,
        (
            each.partition.partition,
            each.error,
            each.high_watermark,
            each.last_stable_offset,
            each.log_start_offset,
            _NOT_DIVERGING if each.diverging is None else DivergingEpoch(*each.diverging),
            *_NO_TAGS,
            aborted,
            each.preferred_id,
            each.data,
        ),
    )


def _by_topic(found: list[tuple[PartitionKey, PartitionResult]]) -> tuple[TopicResult, ...]:
    topics = []
    for topic, parts in groupby(found, key=lambda each: each[0][0]):
        topics.append(TopicResult(topic[0], topic[1], tuple([each[1] for each in parts])))
    return tuple(topics)


def refuse(request: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    """The error, of each partition that the request names: clients act on it there. Of the whole request, if
    it is one of sessions, or the request names no partition."""
    return _refused(_named(request), code, version)


def refuse_all(call: Call, request: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    """The same, also of the partitions that its session knows already."""
    forgotten = {
        ((each.name, each.topic_id), one) for each in request.forgotten_topics for one in each.partitions
    }
    known = set(call.node.fetch_sessions.keys(request.session_id)) - forgotten
    return _refused(sorted(known.union(_named(request))), code, version)


def _named(request: FetchRequest) -> list[PartitionKey]:
    return [((each.name, each.topic_id), one.partition) for each in request.topics for one in each.partitions]


def _refused(keys: list[PartitionKey], code: ErrorCode, version: int) -> FetchResponse:
    if version >= _WITH_SESSIONS and (code in _OF_SESSIONS or not keys):
        return FetchResponse(error_code=code)
    return FetchResponse(topics=_by_topic([(key, PartitionResult(key[1], code, -1)) for key in keys]))
