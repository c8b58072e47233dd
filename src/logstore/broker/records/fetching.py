"""Fetch requests, and their long polls.

A request that finds too little waits for its logs to grow: as a watcher of each of them, without a thread.
Those of a fetch that is repeated watch between requests, too (:mod:`~logstore.broker.kept`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final, NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.kept import KeptFetch, KeptPartition
from logstore.broker.pending import Answered, Pending, Wake, call_wake
from logstore.broker.records.diverging import find_divergence
from logstore.broker.records.outgrowing import outgrow
from logstore.broker.requests import (
    NO_EPOCH,
    NO_NODE,
    NO_OFFSET,
    AbortedProducer,
    DivergingEpoch,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResult,
)
from logstore.errors import CorruptionError, LogstoreError, OffsetOutOfRangeError, UnknownLeaderEpochError
from logstore.format.header import leader_epoch_at, walk_whole_batches
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, TopicPartition
from logstore.partition.log import Log
from logstore.partition.reading.fetched import Fetched
from logstore.partition.reading.readable import fetch_new
from logstore.partition.reading.view import LogView
from logstore.schedule import Task

_NOT_HERE: Final = "this node does not lead the partition"


class Look(NamedTuple):
    """Whether a partition may be read from here."""

    error: ErrorCode = NONE
    """Why not."""
    has_compared_epochs: bool = False
    """The caller's leader epoch is right; the log of a follower may not have any record of it."""
    preferred_id: int = NO_NODE
    """The node that has it nearer to the caller."""
    hears_high_watermark: bool = False
    """The caller is a follower where consumers read: how far they may is news to it."""


MAY_READ: Final = Look()


class Shelf(NamedTuple):
    """Where fetches read."""

    directory: LogDirectory
    look: Callable[[FetchPartition | KeptPartition, FetchRequest], Look] | None = None
    """None: everything may be read."""


def fetch(shelf: Shelf, request: FetchRequest) -> Pending[FetchResult]:
    """Read what is there. If that is less than ``min_bytes``, and nothing is wrong, wait."""
    if request.kept is not None:
        return _fetch_kept(shelf, request, request.kept)
    wanted = request.partitions
    read = _read(shelf, request, wanted)
    if read.is_enough or not wanted or request.max_wait_ms <= 0:
        return Answered(FetchResult(tuple(read.found)))
    kept = KeptFetch()
    kept.isolation = request.isolation
    parts = [KeptPartition(kept, number, *each) for number, each in enumerate(wanted)]
    kept.look_at(parts)
    return _LongPoll(shelf, request, kept, is_repeated=False)


def _fetch_kept(shelf: Shelf, request: FetchRequest, kept: KeptFetch) -> Pending[FetchResult]:
    """The same where most partitions are as they were."""
    kept.isolation = request.isolation
    if request.max_wait_ms > 0 and kept.count:
        return _LongPoll(shelf, request, kept, is_repeated=True)
    parts = kept.take()
    read = _read(shelf, request, parts, watch=True)
    kept.look_again(parts[number] for number in read.busy)
    _note_told(parts, read.found)
    return Answered(FetchResult(tuple(read.found), tuple(parts)))


def _note_told(parts: Iterable[KeptPartition], found: Iterable[FetchedPartition]) -> None:
    """This is what the answer says. A follower whose log has parted, or that is refused, passes it over."""
    for part, each in zip(parts, found, strict=True):
        if part.hears_high_watermark:
            is_taken = each.error is NONE and each.diverging is None
            part.told_high_watermark = each.high_watermark if is_taken else NO_OFFSET


class _Read(NamedTuple):
    """What partitions hold at one moment."""

    found: list[FetchedPartition]
    busy: list[int]
    """The numbers of those that are not at rest: they have an error, or more to read."""
    is_enough: bool
    """Whether it answers the request: it has bytes enough, tells of an error, or leaves out something that
    did not fit."""


def _read(
    shelf: Shelf,
    request: FetchRequest,
    wanted: Sequence[FetchPartition] | Sequence[KeptPartition],
    *,
    watch: bool = False,
    kept_bytes: int = 0,
) -> _Read:
    """Read the partitions in their order, within the limits. The first that has anything gives at least one
    batch, however large it is (KIP-74).

    Args:
        watch: begin to watch each log, before it is read.
        kept_bytes: what was read of others already.
    """
    found: list[FetchedPartition] = []
    busy: list[int] = []
    left_bytes, size_bytes = max(request.max_bytes - kept_bytes, 0), kept_bytes
    isolation, log_of, look = request.isolation, shelf.directory.log, shelf.look
    is_enough = hears = False
    may_read = MAY_READ
    for each in wanted:
        try:
            if look is not None:
                may_read = look(each, request)
            if may_read.error is not NONE:
                busy.append(len(found))
                found.append(FetchedPartition(each.partition, may_read.error, message=_NOT_HERE))
                is_enough = True
                continue
            log = log_of(each.partition)
            if watch:
                each.watch(log)  # type: ignore[union-attr]  # then they are kept ones
                hears = may_read.hears_high_watermark and request.kept is not None
                each.hears_high_watermark = hears  # type: ignore[union-attr]
            if may_read.preferred_id != NO_NODE:
                busy.append(len(found))
                found.append(_without_batches(each, log, preferred_id=may_read.preferred_id))
                is_enough = True
                continue
            has_epoch = each.leader_epoch != NO_EPOCH and not may_read.has_compared_epochs
            epoch = each.leader_epoch if has_epoch else None
            parted = None if each.last_fetched_epoch == NO_EPOCH else _parted(log, each, epoch, request)
            if parted is not None:
                busy.append(len(found))
                found.append(parted)
                is_enough = True
                continue
            fetched = fetch_new(
                log,
                each.offset,
                min(each.max_bytes, left_bytes),
                isolation,
                min_one_batch=not size_bytes,
                leader_epoch=epoch,
            )
            if isinstance(fetched, LogView):  # there is nothing, as in most partitions of most fetches
                found.append(_nothing(each, fetched))
                if hears and fetched.high_watermark > each.told_high_watermark:  # type: ignore[union-attr]
                    is_enough = True
                continue
            is_cut_short = fetched.data and fetched.next_offset < _limit(log, isolation, fetched)
        except LogstoreError as error:
            busy.append(len(found))
            found.append(_refused(shelf, each, request, error))
            is_enough = True
            continue
        busy.append(len(found))
        found.append(_answer(each, fetched, log))
        size_bytes += len(fetched.data)
        left_bytes = max(left_bytes - len(fetched.data), 0)
        is_enough = is_enough or bool(is_cut_short)
    others = _check_topics(shelf.directory, wanted, found)
    return _Read(found, busy + others, is_enough or bool(others) or size_bytes >= request.min_bytes)


def _check_topics(
    directory: LogDirectory,
    wanted: Iterable[FetchPartition | KeptPartition],
    found: list[FetchedPartition],
) -> list[int]:
    """Say which topics were read, and refuse those that were made again since the caller has looked: returns
    their numbers. Comes after the reading: a topic that is made again in between is noticed, too."""
    others = []
    catalogue = directory.catalogue
    name, topic_id = "", None
    for number, each in enumerate(wanted):
        if each.partition.topic != name:
            name = each.partition.topic
            entry = catalogue.get(name)
            topic_id = None if entry is None else entry.topic_id
        if each.topic_id is topic_id or topic_id is None:
            continue
        if each.topic_id is None:
            found[number] = found[number]._replace(topic_id=topic_id)
        elif each.topic_id != topic_id:
            message = f"topic {name!r} was deleted, and made again"
            found[number] = FetchedPartition(each.partition, ErrorCode.UNKNOWN_TOPIC_ID, message=message)
            others.append(number)
    return others


def _parted(
    log: Log, wanted: FetchPartition | KeptPartition, leader_epoch: int | None, request: FetchRequest
) -> FetchedPartition | None:
    """What a caller is told whose log has parted from this one.

    Raises:
        LeaderFencedError, UnknownLeaderEpochError: the log is in another epoch.
    """
    if leader_epoch is not None:
        log.writer.core.check_leader_epoch(leader_epoch)
    if request.replica is None:
        outgrow(log, wanted.last_fetched_epoch)
    found = find_divergence(log, wanted.offset, wanted.last_fetched_epoch)
    if found is None:
        return None
    if found.epoch == NO_EPOCH:  # Kafka's protocol has no other word for it
        why = f"the log knows of no leader epoch up to {wanted.last_fetched_epoch}"
        error = OffsetOutOfRangeError(why).of_log(log.log_start_offset, log.log_end_offset)
        return _refusal(wanted.partition, error)
    return _without_batches(wanted, log, diverging=found)


def _without_batches(
    wanted: FetchPartition | KeptPartition,
    log: Log,
    *,
    diverging: DivergingEpoch | None = None,
    preferred_id: int = NO_NODE,
) -> FetchedPartition:
    """Nothing is read here: the caller goes on elsewhere."""
    return FetchedPartition(
        wanted.partition,
        NONE,
        b"",
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        topic_id=wanted.topic_id,
        diverging=diverging,
        preferred_id=preferred_id,
    )


def _nothing(wanted: FetchPartition | KeptPartition, view: LogView) -> FetchedPartition:
    fields = (
        wanted.partition,
        NONE,
        b"",
        view.high_watermark,
        view.last_stable_offset,
        view.log_start_offset,
        (),
        wanted.offset,
        None,
        wanted.topic_id,
        None,
        NO_NODE,
        NO_EPOCH,
    )
    return tuple.__new__(FetchedPartition, fields)  # a third of the cost of calling the type


def _refused(
    shelf: Shelf, wanted: FetchPartition | KeptPartition, request: FetchRequest, error: LogstoreError
) -> FetchedPartition:
    """What an error says. A consumer that knows a later epoch is let in when it asks again."""
    if isinstance(error, UnknownLeaderEpochError) and request.replica is None:
        with suppress(LogstoreError):
            outgrow(shelf.directory.log(wanted.partition), wanted.leader_epoch)
    return _refusal(wanted.partition, error)


def _refusal(partition: TopicPartition, error: LogstoreError) -> FetchedPartition:
    """What an error says in words, and in numbers that tell a consumer where it may go on."""
    refusal = FetchedPartition(partition, code_of(error), message=str(error))
    if isinstance(error, CorruptionError) and error.last_offset is not None:
        where = CorruptionError(error.reason, path=error.path, position=error.position)
        return refusal._replace(message=str(where), next_offset=error.last_offset + 1)
    if isinstance(error, OffsetOutOfRangeError) and error.log_end_offset is not None:
        start_offset = NO_OFFSET if error.log_start_offset is None else error.log_start_offset
        return refusal._replace(log_start_offset=start_offset, high_watermark=error.log_end_offset)
    return refusal


def _limit(log: Log, isolation: Isolation, fetched: Fetched) -> int:
    """Up to where the fetch could see."""
    if isolation is Isolation.HIGH_WATERMARK:
        return fetched.high_watermark
    if isolation is Isolation.COMMITTED:
        return fetched.last_stable_offset
    return log.readable_offsets(isolation).stop


def _answer(wanted: FetchPartition | KeptPartition, fetched: Fetched, log: Log) -> FetchedPartition:
    return FetchedPartition(
        wanted.partition,
        NONE,
        fetched.data,
        fetched.high_watermark,
        fetched.last_stable_offset,
        fetched.log_start_offset,
        _aborted(fetched) if fetched.aborted else (),
        fetched.next_offset,
        None,
        wanted.topic_id,
        last_epoch=_last_epoch(fetched, log) if fetched.data else NO_EPOCH,
    )


def _last_epoch(fetched: Fetched, log: Log) -> int:
    """If the log's history has the epoch of the first batch there, all are in it. Else one may have begun
    among them, or the log was cut since: the batches themselves tell."""
    epoch = leader_epoch_at(fetched.data, 0)
    if log.writer.core.epochs.epoch_for_offset(fetched.next_offset - 1) == epoch:
        return epoch
    walked = walk_whole_batches(fetched.data)
    return walked.last_epoch if walked.next_offset == fetched.next_offset else NO_EPOCH


def _aborted(fetched: Fetched) -> tuple[AbortedProducer, ...]:
    return tuple([AbortedProducer(each.producer_id, each.first_offset) for each in fetched.aborted])


class _LongPoll:
    """A fetch that waits. What has changed since is read again, and nothing else.

    Lock: ``_lock`` guards whether its time is over, and who is to be woken then. It is never held while a log
    or a caller's code is called, and polls of several threads are the caller's to keep apart.
    """

    throttle_time_ms = 0

    def __init__(self, shelf: Shelf, request: FetchRequest, kept: KeptFetch, *, is_repeated: bool) -> None:
        self._shelf = shelf
        self._request = request
        self._kept = kept
        self._is_repeated = is_repeated
        self._found: dict[KeptPartition, FetchedPartition] = {}
        self._busy: set[KeptPartition] = set()
        """Those of them that are not at rest."""
        self._lock = threading.Lock()
        self._wake: Wake | None = None
        self._is_late = False
        self._result: FetchResult | None = None
        self._task: Task | None = None
        kept.begin_waiting(self)
        if self._read(kept.take()):
            self._finish()
        else:
            self._task = Task("answer a fetch request", self._expire, None)
            shelf.directory.context.scheduler.promptly(request.max_wait_ms, self._task)

    def _read(self, parts: Sequence[KeptPartition]) -> bool:
        """Returns whether it is enough."""
        kept_bytes = 0
        if self._found:
            again = set(parts)
            kept_bytes = sum([len(each.data) for part, each in self._found.items() if part not in again])
        read = _read(self._shelf, self._request, parts, watch=True, kept_bytes=kept_bytes)
        for part, each in zip(parts, read.found, strict=True):
            part.next_offset = each.next_offset if each.next_offset != NO_OFFSET else part.offset
            self._found[part] = each
        self._busy.difference_update(parts)
        self._busy.update([parts[number] for number in read.busy])
        return read.is_enough

    def poll(self) -> FetchResult | None:
        if self._result is not None:
            return self._result
        is_late = self._is_late
        changed = self._kept.take_changed()
        if (changed and self._read(changed)) or is_late:
            self._finish()
        return self._result

    def _finish(self) -> None:
        parts = sorted(self._found, key=attrgetter("rank"))
        found = tuple([self._found[each] for each in parts])
        self._end()
        if self._is_repeated:
            self._kept.look_again(self._busy)
            _note_told(parts, found)
        self._result = FetchResult(found, tuple(parts) if self._is_repeated else ())

    def on_wake(self, wake: Wake) -> None:
        with self._lock:
            is_over = self._is_late or self._result is not None
            if not is_over:
                self._wake = wake
        if is_over:
            call_wake(wake)
        else:
            self._kept.wake_on_change(self, self._woken)

    def _woken(self) -> None:
        with self._lock:
            wake, self._wake = self._wake, None
        call_wake(wake)

    def cancel(self) -> None:
        with self._lock:
            self._wake = None
        if self._result is None:
            self._end()
            if self._is_repeated:  # the client was not told what was found
                self._kept.look_again(self._found)

    def _end(self) -> None:
        self._kept.end_waiting(self)
        if self._task is not None:
            self._task.cancel()
        if not self._is_repeated:
            self._kept.forget(self._found)

    def _expire(self) -> None:
        with self._lock:
            self._is_late = True
        self._kept.end_waiting(self)  # even if no one polls again
        self._woken()
