"""Fetch requests, and their long polls.

A request that finds too little waits for its logs to grow: as an entry in each of them, without a thread."""

from __future__ import annotations

import threading
from typing import NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending, Wake, call_wake
from logstore.broker.requests import (
    NO_EPOCH,
    NO_OFFSET,
    AbortedProducer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResult,
)
from logstore.errors import CorruptionError, LogstoreError, OffsetOutOfRangeError
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, TopicPartition
from logstore.partition.log import Log
from logstore.partition.reading.records import Fetched
from logstore.partition.writing.waits import Wait
from logstore.schedule import Task


def fetch(directory: LogDirectory, request: FetchRequest) -> Pending[FetchResult]:
    """Read what is there. If that is less than ``min_bytes``, and nothing is wrong, wait."""
    read = _read(directory, request)
    if request.max_wait_ms <= 0 or read.is_enough:
        return Answered(read.result)
    return _LongPoll(directory, request, read)


class _Read(NamedTuple):
    """What the partitions hold at one moment."""

    result: FetchResult
    is_enough: bool
    """Whether it answers the request: it has bytes enough, tells of an error, or leaves out something that
    did not fit."""


def _read(directory: LogDirectory, request: FetchRequest) -> _Read:
    """Read the partitions in their order, within the limits. The first that has anything gives at least one
    batch, however large it is (KIP-74)."""
    left_bytes = request.max_bytes
    found: list[FetchedPartition] = []
    is_enough, size_bytes = not request.partitions, 0
    for wanted in request.partitions:
        limit_bytes = min(wanted.max_bytes, left_bytes)
        try:
            log = directory.log(wanted.partition)
            fetched = log.fetch(
                wanted.offset,
                max_bytes=limit_bytes,
                isolation=request.isolation,
                min_one_batch=not size_bytes,
                leader_epoch=None if wanted.leader_epoch == NO_EPOCH else wanted.leader_epoch,
            )
            is_cut_short = fetched.data and fetched.next_offset < _limit(log, request.isolation, fetched)
        except LogstoreError as error:
            found.append(_refusal(wanted.partition, error))
            is_enough = True
            continue
        found.append(_answer(wanted, fetched))
        size_bytes += len(fetched.data)
        left_bytes = max(left_bytes - len(fetched.data), 0)
        is_enough = is_enough or bool(is_cut_short)
    return _Read(FetchResult(tuple(found)), is_enough or size_bytes >= request.min_bytes)


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


def _answer(wanted: FetchPartition, fetched: Fetched) -> FetchedPartition:
    return FetchedPartition(
        wanted.partition,
        ErrorCode.NONE,
        fetched.data,
        fetched.high_watermark,
        fetched.last_stable_offset,
        fetched.log_start_offset,
        tuple(AbortedProducer(each.producer_id, each.first_offset) for each in fetched.aborted),
        fetched.next_offset,
    )


class _LongPoll:
    """A fetch that waits.

    Lock: ``_lock`` guards what it waits for. It is never held while a log or a caller's code is called, and
    polls of several threads are the caller's to keep apart.
    """

    throttle_time_ms = 0

    def __init__(self, directory: LogDirectory, request: FetchRequest, read: _Read) -> None:
        self._directory = directory
        self._request = request
        self._lock = threading.Lock()
        self._wake: Wake | None = None
        self._is_awake = False
        """Whether something has changed since the last poll."""
        self._is_late = False
        self._is_over = False
        self._waits: list[Wait] = []
        self._result: FetchResult | None = None
        self._task = Task("answer a fetch request", self._expire, None)
        directory.context.scheduler.promptly(request.max_wait_ms, self._task)
        self._watch(read.result)

    def poll(self) -> FetchResult | None:
        if self._result is not None or not self._is_awake:
            return self._result
        self._is_awake = False
        read = _read(self._directory, self._request)
        if self._is_late or read.is_enough:
            self._end()
            self._result = read.result
            return read.result
        self._watch(read.result)
        return None

    def on_wake(self, wake: Wake) -> None:
        with self._lock:
            if not self._is_awake and self._result is None:
                self._wake = wake
                return
        call_wake(wake)

    def cancel(self) -> None:
        with self._lock:
            self._wake = None
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            waits, self._waits = self._waits, []
        self._task.cancel()
        for wait in waits:
            wait.cancel()

    def _watch(self, seen: FetchResult) -> None:
        """Wait for any partition to show more than was seen."""
        fresh: list[Wait] = []
        try:
            for each in seen.partitions:
                log = self._directory.log(each.partition)
                fresh.append(log.when(each.next_offset + 1, self._note, isolation=self._request.isolation))
        except LogstoreError:  # the next poll tells of it
            self._note(False)
        with self._lock:
            if not self._is_over:
                self._waits, fresh = fresh, self._waits
        for wait in fresh:
            wait.cancel()

    def _expire(self) -> None:
        self._is_late = True
        self._note(False)

    def _note(self, _: bool) -> None:
        """Something has changed: the next poll looks."""
        with self._lock:
            self._is_awake = True
            wake, self._wake = self._wake, None
        call_wake(wake)
