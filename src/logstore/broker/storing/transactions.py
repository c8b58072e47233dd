"""The transactions of a directory: the topic that the coordinator keeps them in, and the logs that they write
to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import Final

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.internal_topic import InternalTopic, Row
from logstore.broker.offsets.topic import partition_of
from logstore.broker.pending import Answered, Pending
from logstore.broker.records.durable import when_all_durable
from logstore.broker.timers import ScheduledTimers
from logstore.broker.transactions.config import TransactionConfig
from logstore.broker.transactions.coordinator import (
    TransactionCoordinator,
    TransactionLogs,
    TransactionStorage,
)
from logstore.broker.transactions.requests import Done
from logstore.broker.transactions.states import TransactionState, state_of_number
from logstore.broker.transactions.transaction import NewProducerId, Transaction
from logstore.errors import (
    ClosedError,
    CorruptionError,
    LogstoreError,
    ProducerFencedError,
    UnknownTopicError,
)
from logstore.format.messages.transaction_records import (
    TransactionLogValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_state,
)
from logstore.format.names import TRANSACTIONS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, Role, TopicPartition
from logstore.partition.log import Log
from logstore.warning import is_due, warn

_PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT


def transactions_topic(directory: LogDirectory) -> InternalTopic:
    """The topic in one directory. It is made for the first transactional id."""
    count = directory.config.transaction_state_log_num_partitions
    return InternalTopic(directory, TRANSACTIONS_TOPIC, count, "transactions")


def open_transactions(directory: LogDirectory, new_producer_id: NewProducerId) -> TransactionCoordinator:
    """The coordinator, with the transactions that are stored.

    Raises:
        CorruptionError, UnsupportedVersionError: they cannot be read.
    """
    storage = TopicStorage(directory)
    logs = LocalLogs(directory, storage.coordinator_epoch)
    return begin_coordinator(directory, storage, logs, storage.load(), new_producer_id)


def begin_coordinator(
    directory: LogDirectory,
    storage: TransactionStorage,
    logs: TransactionLogs,
    known: Iterable[Transaction],
    new_producer_id: NewProducerId,
) -> TransactionCoordinator:
    """A coordinator with the directory's settings, which goes on with these transactions."""
    context = directory.context
    coordinator = TransactionCoordinator(
        storage,
        logs,
        ScheduledTimers(context.scheduler, context.clock),
        new_producer_id=new_producer_id,
        config=TransactionConfig(
            transaction_max_timeout_ms=directory.config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=directory.config.transactional_id_expiration_ms,
        ),
    )
    coordinator.restore(known)
    return coordinator


class TopicStorage:
    """Keeps transactions in ``__transaction_state``; see
    :class:`~logstore.broker.transactions.coordinator.TransactionStorage`."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._topic = transactions_topic(directory)
        self._partitions: tuple[TopicPartition, ...] = ()
        """Of the topic, once they were needed."""
        self._told_at: dict[str, float] = {}
        """When the log last heard of a disk that refuses: producers try again several times a second."""

    def load(self) -> list[Transaction]:
        """What is stored of each transactional id.

        Raises:
            CorruptionError, UnsupportedVersionError: a record cannot be read.
        """
        values: dict[str, bytes] = {}
        for number in range(self._topic.find_count() or 0):
            for record in self._topic.log(number).read(isolation=Isolation.LOG_END):
                name = decode_transaction_key(record.key or b"")
                if name is None:
                    continue
                if record.value is None:
                    values.pop(name, None)
                else:
                    values[name] = record.value
        return [_transaction_of(name, decode_transaction_value(value)) for name, value in values.items()]

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch that markers carry: that of the partition that has the id."""
        return max(self._log_of(transactional_id).writer.core.leader_epoch, 0)

    def store(self, transaction: Transaction, done: Done[ErrorCode], *, durable: bool) -> None:
        name = transaction.transactional_id
        try:
            try:
                log = self._log_of(name)
            except UnknownTopicError:  # it is the first transactional id
                self._topic.require()
                self._partitions = ()
                log = self._log_of(name)
            end = log.extend([_row_of(transaction)]).stop
        except LogstoreError as error:
            if is_due(self._told_at, self._topic.name):
                warn("transactional id %r: storing state %s: %s", name, transaction.state.value, error)
            done(code_of(error))
            return
        if durable and log.config.acks_all_durable:
            _when_durable(self._directory, [(log, end)], done)
        else:
            done(NONE)

    def store_all(self, transactions: Collection[Transaction]) -> frozenset[str]:
        by_partition: dict[TopicPartition, list[Transaction]] = {}
        for each in transactions:
            by_partition.setdefault(self._partition_of(each.transactional_id), []).append(each)
        refused: set[str] = set()
        for partition, part in by_partition.items():
            try:
                self._directory.log(partition).extend(list(map(_row_of, part)))
            except LogstoreError as error:
                if is_due(self._told_at, "ends"):
                    warn("storing the ends of %d transactions: %s", len(part), error)
                refused.update(each.transactional_id for each in part)
        return frozenset(refused)

    def _log_of(self, transactional_id: str) -> Log:
        return self._directory.log(self._partition_of(transactional_id))

    def _partition_of(self, transactional_id: str) -> TopicPartition:
        if not self._partitions:
            count = self._topic.partition_count
            self._partitions = tuple([TopicPartition(self._topic.name, number) for number in range(count)])
        partitions = self._partitions
        if len(partitions) == 1:
            return partitions[0]
        return partitions[partition_of(transactional_id, len(partitions))]


class LocalLogs:
    """The logs of one directory; see :class:`~logstore.broker.transactions.coordinator.TransactionLogs`."""

    def __init__(self, directory: LogDirectory, coordinator_epoch: Callable[[str], int]) -> None:
        self._directory = directory
        self._coordinator_epoch = coordinator_epoch
        self._told_at: dict[str, float] = {}
        """When the log last heard that a marker was refused, by the partition: it is tried again until it is
        there."""

    @property
    def refusal(self) -> ErrorCode:
        """The disk refuses."""
        return ErrorCode.KAFKA_STORAGE_ERROR

    def make_durable(self, partitions: Collection[TopicPartition], done: Done[ErrorCode]) -> None:
        waits = []
        for partition in partitions:
            try:
                log = self._directory.log(partition)
                acks_all_durable = log.writer.core.config.acks_all_durable
                if acks_all_durable and log.durable_offset < (end := log.log_end_offset):
                    waits.append((log, end))
            except UnknownTopicError:
                continue  # it was deleted
            except LogstoreError as error:
                done(code_of(error))
                return
        if waits:
            _when_durable(self._directory, waits, done)
        else:
            done(NONE)

    def flush(self, partitions: Collection[TopicPartition]) -> ErrorCode:
        for partition in partitions:
            try:
                log = self._directory.log(partition)
                if log.config.acks_all_durable and log.durable_offset < log.log_end_offset:
                    log.flush()
            except UnknownTopicError:
                continue  # it was deleted
            except LogstoreError as error:
                return code_of(error)
        return NONE

    def append_markers(
        self, transaction: Transaction, partitions: Collection[TopicPartition]
    ) -> Pending[frozenset[TopicPartition]]:
        refused = [each for each in sorted(partitions) if not self._append_marker(transaction, each)]
        return Answered(frozenset(refused))

    def _append_marker(self, transaction: Transaction, partition: TopicPartition) -> bool:
        try:
            log = self._directory.log(partition)
            if log.role is Role.FOLLOWER:
                return True  # a copy has taken nothing of it; its markers come from its leader
            log.append_end_marker(
                transaction.producer_id,
                transaction.producer_epoch,
                committed=transaction.state is _PREPARE_COMMIT,
                coordinator_epoch=self._coordinator_epoch(transaction.transactional_id),
            )
        except (UnknownTopicError, ProducerFencedError):
            return True  # it was deleted, or a later marker is there
        except LogstoreError as error:
            if is_due(self._told_at, str(partition)):
                warn("transactional id %r: %s: %s", transaction.transactional_id, partition, error)
            return False
        return True

    def open_transactions(self) -> dict[int, dict[TopicPartition, int]]:
        found: dict[int, dict[TopicPartition, int]] = {}
        for log in self._directory.logs():
            if log.role is Role.FOLLOWER:
                continue  # they are of its leader's producers
            for producer_id, (epoch, _) in open_transactions_of(self._directory, log).items():
                found.setdefault(producer_id, {})[log.partition] = epoch
        return found


def open_transactions_of(directory: LogDirectory, log: Log) -> dict[int, tuple[int, int]]:
    """See :meth:`.Log.open_transactions`. None, if the topic was deleted meanwhile."""
    try:
        return log.open_transactions()
    except ClosedError:
        with contextlib.suppress(UnknownTopicError):
            if (reopened := directory.log(log.partition)) is not log:
                return reopened.open_transactions()
            raise
        return {}


def _when_durable(directory: LogDirectory, waits: list[tuple[Log, int]], done: Done[ErrorCode]) -> None:
    """Answer when each log is durable below its offset, in the background: without the lock of any."""

    def go_on(code: ErrorCode) -> None:
        try:
            directory.context.scheduler.after(
                0, "go on with a transaction", lambda: done(code), is_waiting=True
            )
        except LogstoreError as error:
            warn("a transaction goes on after the next opening: %s", error)

    when_all_durable(waits, go_on)


def _row_of(known: Transaction) -> Row:
    """A dead one has no value."""
    key = encode_transaction_key(known.transactional_id)
    if known.state is TransactionState.DEAD:
        return key, None
    # A broker takes None for the partitions in the state Empty alone, and stops loading at any other.
    return key, encode_transaction_state(
        known.producer_id,
        known.producer_epoch,
        known.timeout_ms,
        known.state.number,
        None if known.state is TransactionState.EMPTY else known.partitions,
        known.last_update_ms,
        known.start_ms,
        (known.previous_producer_id, known.next_producer_id, known.client_version),
    )


def _transaction_of(name: str, value: TransactionLogValue) -> Transaction:
    """
    Raises:
        CorruptionError: the number of the state is unknown.
    """
    state = state_of_number(value.status)
    if state is None:
        raise CorruptionError(
            f"transactional id {name!r} is stored in a state {value.status}, which is unknown"
        )
    return Transaction(
        name,
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        state,
        frozenset(
            TopicPartition(each.topic, number)
            for each in value.partitions or ()
            for number in each.partitions
        ),
        value.start_ms,
        value.last_update_ms,
        value.previous_producer_id,
        value.next_producer_id,
        client_version=value.client_version,
    )
