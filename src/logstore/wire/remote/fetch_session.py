"""A fetch session with one broker: after its first request only what has changed is named, and the answer has
only what is new (KIP-227). A consumer of a thousand partitions sends one row, not a thousand.

Makes requests and takes answers; has no socket and no thread. One request is under way at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    AbortedProducer,
    DivergingEpoch,
    FetchedPartition,
    Fetcher,
    FetchPartition,
    FetchRequest,
    FetchResult,
)
from logstore.format.messages.fields import NO_UUID
from logstore.model import Isolation, TopicPartition
from logstore.wire.messages.records import fetch
from logstore.wire.remote.codes import code_of_number, why_of_number
from logstore.wire.remote.questions import Reply
from logstore.wire.remote.translate.records import LEFT_OUT, READ_COMMITTED, whole_batches

LAST_BY_NAME: Final = 12
"""Later versions name topics by ids."""
_WITH_SESSIONS: Final = 7
_WITH_STATE: Final = 15
"""From this version on a follower tells its life."""
_NO_SESSION: Final = 0
_NOT_DIVERGING: Final = fetch.DivergingEpoch()
_NOBODY: Final = Fetcher(-1, -1)
_FIRST_EPOCH: Final = 0
_NO_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The broker has given the session up, or knows it otherwise."""

_Topics = dict[tuple[str, UUID], list[FetchPartition]]


class FetchSession:
    """What one broker was asked for, and has told."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        """``is_lasting=False``: for one request, which names everything, and begins no session."""
        self._is_lasting = is_lasting
        self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH if is_lasting else _NO_EPOCH
        """Of the next request."""
        self._uses_ids = False
        self._is_full = True
        """Whether the request that is under way names everything."""
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        """What the broker was asked for."""
        self._quiet: dict[TopicPartition, FetchedPartition] = {}
        """What it has told of partitions that have nothing new."""

    def restart(self, *, is_known: bool = True) -> None:
        """The next request names everything. ``is_known``: and ends the session that the broker may have."""
        if not is_known:
            self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH if self._is_lasting else _NO_EPOCH

    # Asking

    def build(self, request: FetchRequest, version: int) -> fetch.FetchRequest:
        """The request in a version of the protocol, which has ids only if all its topics have."""
        uses_ids = version > LAST_BY_NAME
        wanted = {each.partition: each for each in request.partitions}
        is_plain = version < _WITH_SESSIONS or len(wanted) < len(request.partitions)
        if is_plain or uses_ids is not self._uses_ids:
            self.restart()
        self._uses_ids = uses_ids
        self._is_full = self._epoch <= _FIRST_EPOCH
        rows: Iterable[FetchPartition] = request.partitions
        forgotten: list[FetchPartition] = []
        if self._is_full:
            self._quiet = {}
        else:
            rows, forgotten = self._changes(wanted)
        self._wanted = wanted
        replica = request.replica or _NOBODY
        return fetch.FetchRequest(
            replica_id=replica.node_id if version < _WITH_STATE else _NOBODY.node_id,
            replica_state=fetch.ReplicaState(*replica) if version >= _WITH_STATE else fetch.ReplicaState(),
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=READ_COMMITTED if request.isolation is Isolation.COMMITTED else 0,
            session_id=_NO_SESSION if is_plain else self._session_id,
            session_epoch=_NO_EPOCH if is_plain else self._epoch,
            topics=tuple(
                [
                    fetch.Topic(name, topic_id, tuple(map(_row, parts)))
                    for (name, topic_id), parts in self._by_topic(rows).items()
                ]
            ),
            forgotten_topics=tuple(
                [
                    fetch.ForgottenTopic(name, topic_id, tuple([each.partition.partition for each in parts]))
                    for (name, topic_id), parts in self._by_topic(forgotten).items()
                ]
            ),
        )

    def _changes(
        self, wanted: dict[TopicPartition, FetchPartition]
    ) -> tuple[list[FetchPartition], list[FetchPartition]]:
        """What the broker does not know yet, and what it is to forget."""
        known = self._wanted
        rows = [
            each
            for partition, each in wanted.items()
            if (before := known.get(partition)) is not each and before != each
        ]
        forgotten = []
        added_count = 0
        for each in rows:
            before = known.get(each.partition)
            if before is None:
                added_count += 1
            elif self._uses_ids and before.topic_id != each.topic_id:  # another topic has its name now
                forgotten.append(before)
        if len(known) + added_count > len(wanted):
            forgotten += [each for partition, each in known.items() if partition not in wanted]
        for each in forgotten:
            self._quiet.pop(each.partition, None)
        return rows, forgotten

    def _by_topic(self, partitions: Iterable[FetchPartition]) -> _Topics:
        found: _Topics = {}
        for each in partitions:
            topic_id = (each.topic_id or NO_UUID) if self._uses_ids else NO_UUID
            name = "" if self._uses_ids else each.partition.topic
            found.setdefault((name, topic_id), []).append(each)
        return found

    # Answers

    def result_of(self, request: FetchRequest, reply: Reply) -> FetchResult | None:
        """What a reply means; None if the session is lost, and the request is to be built and sent again."""
        if reply.error is not ErrorCode.NONE:
            self.restart()
            return refused(request, reply.error, reply.message)
        try:
            return self._take(request, reply.response)
        except Exception as error:  # a broker's word may be anything
            self.restart()
            message = f"the broker's answer means nothing: {type(error).__name__}: {error}"
            return refused(request, ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def _take(self, request: FetchRequest, response: fetch.FetchResponse) -> FetchResult | None:
        if response.error_code:
            code = code_of_number(response.error_code)
            self.restart(is_known=code is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if code in _LOST and self._is_lasting:
                return None
            return refused(request, code, why_of_number(response.error_code))
        is_unseen = response.throttle_time_ms > 0 and not response.topics
        if is_unseen and not response.session_id:
            self.restart()
        else:
            self._go_on(response.session_id)
        if is_unseen:
            return _nothing_yet(request)
        names = {}
        if self._uses_ids:
            names = {each.topic_id: each.partition.topic for each in request.partitions}
        answers: dict[tuple[str, int], list[fetch.PartitionResult]] = {}
        for topic in response.topics:
            name = names.get(topic.topic_id, "") if self._uses_ids else topic.name
            for each in topic.partitions:
                answers.setdefault((name, each.partition), []).append(each)
        return FetchResult(tuple([self._outcome(each, answers) for each in request.partitions]))

    def _go_on(self, session_id: int) -> None:
        if not self._is_lasting:
            return
        if session_id == _NO_SESSION:  # the broker has no room for one
            self.restart(is_known=False)
        elif self._is_full or session_id == self._session_id:
            self._session_id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else max(self._epoch, _FIRST_EPOCH) + 1
        else:
            raise ValueError(f"the answer is of session {session_id}, not {self._session_id}")

    def _outcome(
        self, wanted: FetchPartition, answers: dict[tuple[str, int], list[fetch.PartitionResult]]
    ) -> FetchedPartition:
        partition = wanted.partition
        found = answers.get(partition) if answers else None
        if found:
            outcome = _fetched(wanted, found.pop(0))
            if outcome.error is ErrorCode.NONE and outcome.diverging is None:
                is_empty = not (outcome.data or outcome.aborted)
                self._quiet[partition] = outcome if is_empty else outcome._replace(data=b"", aborted=())
            return outcome
        quiet = self._quiet.get(partition)
        if self._is_full:
            return FetchedPartition(partition, ErrorCode.UNKNOWN_SERVER_ERROR, message=LEFT_OUT)
        if quiet is None or quiet.next_offset != wanted.offset:
            known = quiet or FetchedPartition(partition, ErrorCode.NONE)
            quiet = known._replace(next_offset=wanted.offset, topic_id=wanted.topic_id)
            self._quiet[partition] = quiet
        return quiet


def _row(each: FetchPartition) -> fetch.Partition:
    return fetch.Partition(
        each.partition.partition,
        current_leader_epoch=each.leader_epoch,
        fetch_offset=each.offset,
        max_bytes=each.max_bytes,
        last_fetched_epoch=each.last_fetched_epoch,
        log_start_offset=each.log_start_offset,
    )


def _fetched(wanted: FetchPartition, answer: fetch.PartitionResult) -> FetchedPartition:
    code = code_of_number(answer.error_code)
    data, next_offset = whole_batches(answer.records or b"", wanted.offset)
    return FetchedPartition(
        wanted.partition,
        code,
        data,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        tuple(
            [
                AbortedProducer(each.producer_id, each.first_offset)
                for each in answer.aborted_transactions or ()
            ]
        ),
        next_offset if code is ErrorCode.NONE else -1,
        why_of_number(answer.error_code),
        wanted.topic_id,
        None if answer.diverging_epoch == _NOT_DIVERGING else DivergingEpoch(*answer.diverging_epoch),
    )


def _nothing_yet(request: FetchRequest) -> FetchResult:
    """A broker answers a client that is over its quota at once, without having looked at a partition, and
    then does not listen to it for a while (KIP-219). So it is not known that there is nothing new: no
    partition has a high watermark here. The session still knows what it was told before."""
    found = [
        FetchedPartition(each.partition, ErrorCode.NONE, next_offset=each.offset)
        for each in request.partitions
    ]
    return FetchResult(tuple(found))


def refused(request: FetchRequest, code: ErrorCode, message: str | None) -> FetchResult:
    """The same of every partition."""
    return FetchResult(
        tuple([FetchedPartition(each.partition, code, message=message) for each in request.partitions])
    )
