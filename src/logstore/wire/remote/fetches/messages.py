"""Requests and answers of fetch sessions (KIP-227): after the first request only what has changed is named,
and the answer has only what is new. One request of a session is under way at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
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
)
from logstore.format.messages.fields import NO_UUID
from logstore.model import Isolation
from logstore.wire.messages.records import fetch
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.translate.records import READ_COMMITTED, whole_batches

LAST_BY_NAME: Final = 12
"""Later versions name topics by ids."""
_WITH_DIVERGENCE: Final = 12
"""From this version on a broker says where the caller has parted from its log."""
_WITH_STATE: Final = 15
"""From this version on a follower tells its life."""
_NO_SESSION: Final = 0
_NOT_DIVERGING: Final = fetch.DivergingEpoch()
_NOBODY: Final = Fetcher(-1, -1)
_FIRST_EPOCH: Final = 0
_NO_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
WITHOUT_SESSION: Final = (_NO_SESSION, _NO_EPOCH)
"""See :attr:`SessionNumbers.pair`."""
_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The broker has given the session up, or knows it otherwise."""
_Topics = dict[tuple[str, UUID], list[FetchPartition]]


class Seen(Enum):
    """What a broker has made of a request."""

    ANSWER = auto()
    NOTHING = auto()
    """It answers a client that is over its quota at once, without having looked at a partition, and then does
    not listen to it for a while (KIP-219). So it is not known that there is nothing new."""
    REFUSED = auto()
    LOST = auto()
    """It does not know the session: the request is to be built and sent again."""


class SessionNumbers:
    """How a broker knows a session again: the number that it gave, and the epoch of the next request."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        """``is_lasting=False``: for one request, which names everything, and begins no session."""
        self._is_lasting = is_lasting
        self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH if is_lasting else _NO_EPOCH

    @property
    def is_begun(self) -> bool:
        """Whether the broker knows what it was asked before."""
        return self._epoch > _FIRST_EPOCH

    @property
    def pair(self) -> tuple[int, int]:
        """Of the next request."""
        return self._session_id, self._epoch

    def restart(self, *, is_known: bool = True) -> None:
        """The next request names everything. ``is_known``: and ends the session that the broker may have."""
        if not is_known:
            self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH if self._is_lasting else _NO_EPOCH

    def take(self, response: fetch.FetchResponse, *, was_full: bool) -> Seen:
        """Go on, or begin again.

        Raises:
            ValueError: the answer is of another session.
        """
        if response.error_code:
            code = code_of_number(response.error_code)
            self.restart(is_known=code is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return Seen.LOST if code in _LOST and self._is_lasting else Seen.REFUSED
        is_unseen = response.throttle_time_ms > 0 and not response.topics
        if is_unseen and not response.session_id:
            self.restart()
        else:
            self._go_on(response.session_id, was_full=was_full)
        return Seen.NOTHING if is_unseen else Seen.ANSWER

    def _go_on(self, session_id: int, *, was_full: bool) -> None:
        if not self._is_lasting:
            return
        if session_id == _NO_SESSION:  # the broker has no room for one
            self.restart(is_known=False)
        elif was_full or session_id == self._session_id:
            self._session_id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else max(self._epoch, _FIRST_EPOCH) + 1
        else:
            raise ValueError(f"the answer is of session {session_id}, not {self._session_id}")


def message_of(
    request: FetchRequest,
    version: int,
    numbers: tuple[int, int],
    rows: Iterable[FetchPartition],
    forgotten: Iterable[FetchPartition] = (),
) -> fetch.FetchRequest:
    """The request in a version of the protocol. ``numbers``: of its session, and the epoch. ``rows``: what it
    names."""
    uses_ids = version > LAST_BY_NAME
    replica = request.replica or _NOBODY
    return fetch.FetchRequest(
        replica_id=replica.node_id if version < _WITH_STATE else _NOBODY.node_id,
        replica_state=fetch.ReplicaState(*replica) if version >= _WITH_STATE else fetch.ReplicaState(),
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=READ_COMMITTED if request.isolation is Isolation.COMMITTED else 0,
        session_id=numbers[0],
        session_epoch=numbers[1],
        topics=tuple(
            [
                fetch.Topic(name, topic_id, tuple([_row(each, version) for each in parts]))
                for (name, topic_id), parts in _by_topic(rows, uses_ids=uses_ids).items()
            ]
        ),
        forgotten_topics=tuple(
            [
                fetch.ForgottenTopic(name, topic_id, tuple([each.partition.partition for each in parts]))
                for (name, topic_id), parts in _by_topic(forgotten, uses_ids=uses_ids).items()
            ]
        ),
    )


def _by_topic(partitions: Iterable[FetchPartition], *, uses_ids: bool) -> _Topics:
    found: _Topics = {}
    for each in partitions:
        topic_id = (each.topic_id or NO_UUID) if uses_ids else NO_UUID
        name = "" if uses_ids else each.partition.topic
        found.setdefault((name, topic_id), []).append(each)
    return found


def _row(each: FetchPartition, version: int) -> fetch.Partition:
    return fetch.Partition(
        each.partition.partition,
        current_leader_epoch=each.leader_epoch,
        fetch_offset=each.offset,
        max_bytes=each.max_bytes,
        last_fetched_epoch=each.last_fetched_epoch if version >= _WITH_DIVERGENCE else _NO_EPOCH,
        log_start_offset=each.log_start_offset,
    )


def fetched(wanted: FetchPartition, answer: fetch.PartitionResult) -> FetchedPartition:
    """What a broker has told of a partition."""
    code = code_of_number(answer.error_code)
    data, next_offset, last_epoch = whole_batches(answer.records or b"", wanted.offset)
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
        last_epoch=last_epoch,
    )


def why_nonsense(error: Exception) -> str:
    """Of an answer that could not be taken."""
    return f"the broker's answer means nothing: {type(error).__name__}: {error}"
