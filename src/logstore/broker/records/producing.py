"""Produce requests: append each batch, and wait for what ``acks`` asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.requests import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    NO_EPOCH,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
)
from logstore.broker.transactions.requests import TransactionalProducer
from logstore.errors import CorruptionError, InvalidRecordError, LogstoreError, OutOfOrderError
from logstore.format import checksum
from logstore.format.header import (
    ATTRIBUTES_POSITION,
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    decode_header,
)
from logstore.logdir.directory import LogDirectory
from logstore.model import Bytes, Isolation, Role, TopicPartition
from logstore.partition.log import Log
from logstore.schedule import Task


class Doorkeeper(Protocol):
    """Says whether a batch of a transaction may be appended."""

    def writing(self, transactional_id: str, partition: TopicPartition) -> AbstractContextManager[Any]:
        """The transaction does not end in the partition inside of the block."""
        ...

    def check_batch(self, producer: TransactionalProducer, partition: TopicPartition) -> ErrorCode:
        """Whether it may be, now."""
        ...


GetDoorkeeper = Callable[[], Doorkeeper]
"""Raises LogstoreError: the transactions cannot be read."""


def produce(
    directory: LogDirectory, request: ProduceRequest, doorkeeper: GetDoorkeeper
) -> Pending[ProduceResult]:
    """Append the batches in their order, in this thread. With ``ACKS_ALL`` the result waits for them to be
    durable: one flush of a log serves all who wait for it. Batches of a transaction become durable with its
    end. ``doorkeeper`` decides on them."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return Answered(_refused(request, f"acks is {request.acks}; it must be 0, 1 or -1 (all)"))
    outcomes = []
    waits: list[tuple[int, Log, int]] = []
    for number, each in enumerate(request.partitions):
        outcome, log, next_offset = _append_as(directory, request, each, doorkeeper)
        outcomes.append(outcome)
        is_waiting = request.acks == ACKS_ALL and request.transactional_id is None
        if log is not None and is_waiting and log.config.acks_all_durable:
            waits.append((number, log, next_offset))
    if not waits:
        return Answered(ProduceResult(tuple(outcomes)))
    return _Acknowledgement(directory, outcomes, waits, request.timeout_ms).promise


def _refused(request: ProduceRequest, why: str) -> ProduceResult:
    code = ErrorCode.INVALID_REQUIRED_ACKS
    return ProduceResult(
        tuple(ProducedPartition(each.partition, code, message=why) for each in request.partitions)
    )


_Appended = tuple[ProducedPartition, Log | None, int]
"""What became of one batch; and if it is in the log, the log and an offset behind it."""


def _append_as(
    directory: LogDirectory,
    request: ProduceRequest,
    wanted: ProducePartition,
    doorkeeper: GetDoorkeeper,
) -> _Appended:
    """A batch of a transaction goes in only while that is open, and has the partition (KIP-890)."""
    producer = transactional_producer(wanted.data)
    if producer is None:
        return _append(directory, wanted)
    transactional_id = request.transactional_id
    if transactional_id is None:
        why = "a batch of a transaction, in a request without a transactional id"
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return ProducedPartition(wanted.partition, code, message=why), None, -1
    try:
        keeper = doorkeeper()
    except LogstoreError as error:
        return ProducedPartition(wanted.partition, code_of(error), message=str(error)), None, -1
    with keeper.writing(transactional_id, wanted.partition):
        code = keeper.check_batch(TransactionalProducer(transactional_id, *producer), wanted.partition)
        if code is NONE:
            if request.begins_at_zero and _is_ahead(directory, wanted, producer[0]):
                why = "the first batch of the producer in the partition must have sequence 0: one is missing"
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                return ProducedPartition(wanted.partition, code, message=why), None, -1
            return _append(directory, wanted)
    try:
        directory.log(wanted.partition)
    except LogstoreError as error:  # that it is not there says more than that no transaction has it
        return ProducedPartition(wanted.partition, code_of(error), message=str(error)), None, -1
    return ProducedPartition(wanted.partition, code, message=why_not_in_transaction(code)), None, -1


def _is_ahead(directory: LogDirectory, wanted: ProducePartition, producer_id: int) -> bool:
    """Whether the log knows nothing of the producer, and the batch is not its first: the one in front of it
    was refused, and comes again."""
    try:
        is_known = directory.log(wanted.partition).writer.core.producers.state_of(producer_id) is not None
        return not is_known and decode_header(wanted.data).base_sequence > 0
    except LogstoreError:  # appending finds the same, and says so
        return False


def why_not_in_transaction(code: ErrorCode) -> str:
    """Why a batch is refused that is of a transaction."""
    if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
        return (
            "another producer has taken the transactional id, or the transaction was open for longer than "
            "its time-out; it was aborted"
        )
    return "the transaction does not take it now"


def transactional_producer(data: Bytes) -> tuple[int, int] | None:
    """The producer's id and epoch, if the batch is of a transaction. What is no batch, the log refuses."""
    if len(data) < HEADER_BYTES or not data[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT:
        return None
    try:
        header = decode_header(data)
    except LogstoreError:
        return None
    is_transactional = header.attributes & TRANSACTIONAL_BIT
    return (header.producer_id, header.producer_epoch) if is_transactional else None


def _append(directory: LogDirectory, wanted: ProducePartition) -> _Appended:
    partition = wanted.partition
    try:
        log = directory.log(partition)
        if log.role is Role.FOLLOWER:
            why = directory.context.home.why_copied_only
            return ProducedPartition(partition, ErrorCode.POLICY_VIOLATION, message=why), None, -1
        epoch = None if wanted.leader_epoch == NO_EPOCH else wanted.leader_epoch
        result = log.append_batch(wanted.data, leader_epoch=epoch)
    except LogstoreError as error:
        if isinstance(error, OutOfOrderError) and error.was_appended:
            code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            return ProducedPartition(partition, code, message=str(error)), log, log.log_end_offset
        records = error.records if isinstance(error, InvalidRecordError) else ()
        code = _why_refused(error, wanted.data)
        return ProducedPartition(partition, code, message=str(error), records=records), None, -1
    if result is None:
        why = "the request has no whole batch for it"
        return ProducedPartition(partition, ErrorCode.INVALID_RECORD, message=why), None, -1
    core = log.writer.core
    has_stamps = core.config.message_timestamp_type == "LogAppendTime"
    stamp_ms = result.timestamp_ms if has_stamps else -1
    produced = ProducedPartition(partition, NONE, result.base_offset, stamp_ms, core.log_start_offset)
    return produced, log, result.last_offset + 1


def _why_refused(error: LogstoreError, data: Bytes) -> ErrorCode:
    """CORRUPT_MESSAGE makes a client send the same again. So it stands for bytes that were changed on their
    way, and not for a batch that its producer has made wrong."""
    code = code_of(error)
    if code is not ErrorCode.CORRUPT_MESSAGE or (isinstance(error, CorruptionError) and error.path):
        return code
    return ErrorCode.INVALID_RECORD if _is_as_sealed(data) else code


def _is_as_sealed(data: Bytes) -> bool:
    """Whether the batch is as its producer has sealed it. Entries of magic 0 and 1 are not taken, whatever
    their checksums are."""
    try:
        header = decode_header(data)
    except LogstoreError:
        return False
    if header.magic < MAGIC:
        return True
    is_whole = header.size_bytes <= len(data)
    return is_whole and checksum.crc32c(memoryview(data)[CRC_FROM : header.size_bytes]) == header.crc


class _Acknowledgement:
    """Batches that are in their logs, and wait to be durable.

    Lock: ``_lock`` guards how many are left. It is never held while a log or the promise is called.
    """

    def __init__(
        self,
        directory: LogDirectory,
        outcomes: list[ProducedPartition],
        waits: list[tuple[int, Log, int]],
        timeout_ms: int,
    ) -> None:
        self.promise: Promise[ProduceResult] = Promise()
        self._outcomes = outcomes
        self._lock = threading.Lock()
        self._left = {number for number, _, _ in waits}
        self._task = Task("acknowledge a produce request", self._expire, None)
        directory.context.scheduler.promptly(max(timeout_ms, 0), self._task)
        for number, log, next_offset in waits:
            self._wait(number, log, next_offset)

    def _wait(self, number: int, log: Log, next_offset: int) -> None:
        try:
            log.when(
                next_offset,
                lambda is_durable: self._note(number, log, is_durable),
                isolation=Isolation.DURABLE,
                flush=True,
            )
        except LogstoreError as error:
            self._finish(number, code_of(error), str(error))

    def _note(self, number: int, log: Log, is_durable: bool) -> None:
        if is_durable:
            self._finish(number, NONE, None)
        elif log.writer.guard.is_removed:  # no fault of the disk
            what = f"{log.partition} was deleted before the batch was durable"
            self._finish(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        else:
            what = "the log was closed or cut, or could not be flushed; the batch may be lost"
            self._finish(number, ErrorCode.KAFKA_STORAGE_ERROR, what)

    def _finish(self, number: int, code: ErrorCode, message: str | None) -> None:
        with self._lock:
            if number not in self._left:
                return
            self._left.discard(number)
            if code is not NONE:
                self._outcomes[number] = self._outcomes[number]._replace(error=code, message=message)
            is_last = not self._left
        if is_last:
            self._complete()

    def _expire(self) -> None:
        with self._lock:
            late, self._left = self._left, set()
            for number in late:
                self._outcomes[number] = self._outcomes[number]._replace(
                    error=ErrorCode.REQUEST_TIMED_OUT,
                    message="the batch is in the log, and was not durable in time",
                )
        if late:
            self._complete()

    def _complete(self) -> None:
        self._task.cancel()
        self.promise.complete(ProduceResult(tuple(self._outcomes)))
