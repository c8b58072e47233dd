"""Members of share groups say what became of records, and get others. Callers look up the partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.share.held import HeldPartition
from logstore.broker.share.requests import (
    AcknowledgedPartition,
    AcknowledgePartition,
    Done,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResult,
    TopicIdPartition,
)
from logstore.broker.share.waiting import WaitingFetch
from logstore.format.messages.share_records import ShareKey
from logstore.schedule import Scheduler

T = TypeVar("T")

Found = HeldPartition | ErrorCode
"""A partition that is held, or why it is not."""

WhenDurable = Callable[[Sequence[ShareKey], Done[ErrorCode]], object]
"""Calls back when no power cut can take what was stored of partitions in groups."""


class Exchange:
    """All methods may be called from many threads."""

    def __init__(self, scheduler: Scheduler, when_durable: WhenDurable) -> None:
        self._scheduler = scheduler
        self._when_durable = when_durable

    def fetch(
        self,
        request: ShareFetchRequest,
        lock_ms: int,
        places: Sequence[tuple[TopicIdPartition, Found]],
        said: Sequence[tuple[AcknowledgePartition, Found]],
    ) -> Pending[ShareFetchResult]:
        """Take in what became of records, then take what is available; if nothing is, wait for it."""
        some = [each for _, each in places if isinstance(each, HeldPartition)]
        found, outcomes = self._in_one_step(request, places, said)
        nothing = ShareFetchResult(ErrorCode.NONE, (), lock_ms, acknowledged=outcomes)
        if request.durable and outcomes:
            return self._answer_durable(
                said, outcomes, lambda each: nothing._replace(partitions=tuple(found), acknowledged=each)
            )
        has_failed = any(each.error is not ErrorCode.NONE for each in outcomes)
        if found or has_failed or request.max_wait_ms <= 0 or request.max_records <= 0:
            return Answered(nothing._replace(partitions=tuple(found)))

        def attempt(changed: Iterable[HeldPartition], is_late: bool) -> ShareFetchResult | None:
            if not is_late and not _has_enough(some, request):
                return None
            found = _take(changed if request.min_bytes <= 1 else some, request)
            return nothing._replace(partitions=tuple(found)) if found else None

        return WaitingFetch(attempt, nothing, some, self._scheduler, request.max_wait_ms)

    def _in_one_step(
        self,
        request: ShareFetchRequest,
        places: Sequence[tuple[TopicIdPartition, Found]],
        said: Sequence[tuple[AcknowledgePartition, Found]],
    ) -> tuple[list[ShareFetchedPartition], tuple[AcknowledgedPartition, ...]]:
        """What became of records, and others for them: of one partition in one step."""
        outcomes: list[AcknowledgedPartition | None] = [None] * len(said)
        numbers = {each.partition: number for number, (each, _) in enumerate(said)}
        has_enough = request.min_bytes <= 1 and request.max_records > 0
        room = _Room(request)
        found: list[ShareFetchedPartition] = []
        for wanted, held in places:
            if not isinstance(held, HeldPartition):
                found.append(ShareFetchedPartition(wanted, held))
                continue
            number = numbers.get(wanted)
            if number is None and not has_enough:
                continue
            about = None if number is None else said[number][0]
            limits = room.limits() if has_enough else (0, 0)
            if about is None and not limits[0]:
                continue
            exchanged = held.exchange(request.member_id, about, *limits)
            room.note(exchanged.fetched)
            if exchanged.fetched is not None:
                found.append(exchanged.fetched)
            if number is not None:
                outcomes[number] = exchanged.acknowledged
        for number, (each, place) in enumerate(said):
            if outcomes[number] is None:
                outcomes[number] = _acknowledge(request.member_id, each, place)
        if not has_enough and request.max_records > 0:
            some = [each for _, each in places if isinstance(each, HeldPartition)]
            if request.max_wait_ms <= 0 or _has_enough(some, request):
                found += _take(some, request)
        return found, tuple(each for each in outcomes if each is not None)

    def acknowledge(
        self,
        request: ShareAcknowledgeRequest,
        lock_ms: int,
        said: Sequence[tuple[AcknowledgePartition, Found]],
        rest: Iterable[HeldPartition],
    ) -> Pending[ShareAcknowledgeResult]:
        """Take in what became of records, and let go what else the member has in ``rest``."""
        outcomes = tuple(_acknowledge(request.member_id, each, place) for each, place in said)
        for held in rest:
            held.release(request.member_id)
        result = ShareAcknowledgeResult(outcomes, lock_duration_ms=lock_ms)
        if not request.durable:
            return Answered(result)
        return self._answer_durable(said, outcomes, lambda each: result._replace(partitions=each))

    def _answer_durable(
        self,
        said: Sequence[tuple[AcknowledgePartition, Found]],
        outcomes: Sequence[AcknowledgedPartition],
        answer: Callable[[tuple[AcknowledgedPartition, ...]], T],
    ) -> Pending[T]:
        promise: Promise[T] = Promise()

        def complete(code: ErrorCode) -> None:
            taken_in = (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)
            found = [
                each._replace(error=code, was_stored=True)
                if code is not ErrorCode.NONE and each.error in taken_in
                else each
                for each in outcomes
            ]
            promise.complete(answer(tuple(found)))

        keys = [place.key for _, place in said if isinstance(place, HeldPartition)]
        self._when_durable(keys, complete)
        return promise


def _acknowledge(member_id: str, said: AcknowledgePartition, place: Found) -> AcknowledgedPartition:
    if isinstance(place, HeldPartition):
        return place.acknowledge(member_id, said)
    return AcknowledgedPartition(said.partition, place, said.batches)


class _Room:
    """How much of a fetch is left."""

    def __init__(self, request: ShareFetchRequest) -> None:
        self._records = request.max_records
        self._bytes = request.max_bytes
        self._partition_bytes = request.max_partition_bytes

    def limits(self) -> tuple[int, int]:
        """How many records and bytes of the next partition; 0 records if there is no room."""
        return self._records if self._bytes > 0 else 0, min(self._bytes, self._partition_bytes)

    def note(self, fetched: ShareFetchedPartition | None) -> None:
        if fetched is not None:
            self._records -= sum(each.last - each.first + 1 for each in fetched.acquired)
            self._bytes -= len(fetched.data)


def _take(held: Iterable[HeldPartition], request: ShareFetchRequest) -> list[ShareFetchedPartition]:
    room = _Room(request)
    found: list[ShareFetchedPartition] = []
    for each in held:
        limits = room.limits()
        if limits[0] <= 0:
            break
        fetched = each.exchange(request.member_id, None, *limits).fetched
        room.note(fetched)
        if fetched is not None:
            found.append(fetched)
    return found


def _has_enough(held: Iterable[HeldPartition], request: ShareFetchRequest) -> bool:
    """Whether as many bytes are available as the request waits for."""
    if request.min_bytes <= 1:
        return True
    room = _Room(request)
    records, size_bytes = room.limits()
    wanted = min(request.min_bytes, request.max_bytes)
    for each in held:
        wanted -= each.available_bytes(records, size_bytes)
        if wanted <= 0:
            return True
    return False


def refused(request: ShareAcknowledgeRequest, code: ErrorCode) -> ShareAcknowledgeResult:
    """Nothing of a request was taken in."""
    outcomes = (AcknowledgedPartition(each.partition, code, each.batches) for each in request.partitions)
    return ShareAcknowledgeResult(tuple(outcomes), code)
