"""A consumer's fetch session with one broker: each request says all that is wanted, and each result has all
of it, but a consumer of a thousand partitions sends one row, not a thousand (KIP-227).

Makes requests and takes answers; has no socket and no thread. One request is under way at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchedPartition, FetchPartition, FetchRequest, FetchResult
from logstore.model import TopicPartition
from logstore.wire.messages.records import fetch
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.questions import Reply
from logstore.wire.remote.fetches.messages import (
    LAST_BY_NAME,
    WITHOUT_SESSION,
    Seen,
    SessionNumbers,
    fetched,
    message_of,
    why_nonsense,
)
from logstore.wire.remote.translate.records import LEFT_OUT

_WITH_SESSIONS: Final = 7


class FetchSession:
    """What one broker was asked for, and has told."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        """``is_lasting=False``: for one request, which names everything, and begins no session."""
        self._numbers = SessionNumbers(is_lasting=is_lasting)
        self._uses_ids = False
        self._is_full = True
        """Whether the request that is under way names everything."""
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        """What the broker was asked for."""
        self._quiet: dict[TopicPartition, FetchedPartition] = {}
        """What it has told of partitions that have nothing new."""

    # Asking

    def build(self, request: FetchRequest, version: int) -> fetch.FetchRequest:
        """The request in a version of the protocol, which has ids only if all its topics have."""
        uses_ids = version > LAST_BY_NAME
        wanted = {each.partition: each for each in request.partitions}
        is_plain = version < _WITH_SESSIONS or len(wanted) < len(request.partitions)
        if is_plain or uses_ids is not self._uses_ids:
            self._numbers.restart()
        self._uses_ids = uses_ids
        self._is_full = not self._numbers.is_begun
        rows: Iterable[FetchPartition] = request.partitions
        forgotten: list[FetchPartition] = []
        if self._is_full:
            self._quiet = {}
        else:
            rows, forgotten = self._changes(wanted)
        self._wanted = wanted
        numbers = WITHOUT_SESSION if is_plain else self._numbers.pair
        return message_of(request, version, numbers, rows, forgotten)

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

    # Answers

    def result_of(self, request: FetchRequest, reply: Reply) -> FetchResult | None:
        """What a reply means; None if the session is lost, and the request is to be built and sent again."""
        if reply.error is not ErrorCode.NONE:
            self._numbers.restart()
            return refused(request, reply.error, reply.message)
        try:
            return self._take(request, reply.response)
        except Exception as error:  # a broker's word may be anything
            self._numbers.restart()
            return refused(request, ErrorCode.UNKNOWN_SERVER_ERROR, why_nonsense(error))

    def _take(self, request: FetchRequest, response: fetch.FetchResponse) -> FetchResult | None:
        match self._numbers.take(response, was_full=self._is_full):
            case Seen.LOST:
                return None
            case Seen.REFUSED:
                number = response.error_code
                return refused(request, code_of_number(number), why_of_number(number))
            case Seen.NOTHING:
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

    def _outcome(
        self, wanted: FetchPartition, answers: dict[tuple[str, int], list[fetch.PartitionResult]]
    ) -> FetchedPartition:
        partition = wanted.partition
        found = answers.get(partition) if answers else None
        if found:
            outcome = fetched(wanted, found.pop(0))
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


def _nothing_yet(request: FetchRequest) -> FetchResult:
    """No partition has a high watermark here. The session still knows what it was told before."""
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
