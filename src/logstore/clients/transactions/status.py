"""What is known of the transactions of a store, and the end of those that hang."""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import wait_for
from logstore.broker.storing.transactions import open_transactions_of
from logstore.broker.transactions.requests import DescribedTransaction, ListTransactions
from logstore.broker.transactions.states import Event, next_state
from logstore.errors import InvalidTransactionStateError, LogstoreError, RetriableError, UnknownTopicError
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, Role, TopicPartition
from logstore.partition.log import Log

HANGING: Final = "Hanging"
"""The state of records without a marker that no transactional id is about to give them."""
_SECONDS: Final = 10.0


class TransactionStatus(NamedTuple):
    """A transactional id with its last transaction; or one that hangs."""

    transactional_id: str | None
    """None if it hangs."""
    state: str
    """Kafka's name of it, as readers see it: ``Empty``, ``Ongoing``, ``CompleteCommit`` or ``CompleteAbort``;
    ``PrepareCommit`` or ``PrepareAbort`` if its end is decided, and readers of some ``partitions`` do not see
    it yet. Or ``Hanging``: a partition has records of it, and no transactional id will end it."""
    producer_id: int
    producer_epoch: int
    since_ms: int
    """When it began, in milliseconds since the epoch; -1 if it has not."""
    timeout_ms: int
    """After so long it is aborted; -1 if it hangs."""
    partitions: tuple[TopicPartition, ...]
    """Where readers of committed records wait for its end."""


def statuses(directory: LogDirectory, broker: Broker) -> list[TransactionStatus]:
    """All transactional ids, in order, then what hangs.

    Raises:
        LogstoreError: the transactions cannot be read.
    """
    known = _described(broker)
    found = [
        TransactionStatus(
            each.transactional_id,
            each.state.value,
            each.producer_id,
            each.producer_epoch,
            each.start_ms,
            each.timeout_ms,
            tuple(sorted(each.partitions)),
        )
        for each in (_as_readers_see(directory, each) for each in known)
    ]
    cared_for = {(each.producer_id, partition) for each in known for partition in each.partitions}
    for log in sorted(directory.logs(), key=lambda log: log.partition):
        if log.role is Role.FOLLOWER:
            continue  # what is open in a copy ends with its leader's markers
        for producer_id, (epoch, first_offset) in open_transactions_of(directory, log).items():
            if (producer_id, log.partition) not in cared_for:
                since_ms = _time_of(log, first_offset)
                found.append(
                    TransactionStatus(None, HANGING, producer_id, epoch, since_ms, -1, (log.partition,))
                )
    return found


def abort_hanging(directory: LogDirectory, broker: Broker, status: TransactionStatus) -> None:
    """Give the partitions of a hanging transaction the marker that it lacks.

    Raises:
        InvalidTransactionStateError: it does not hang; or it has ended meanwhile.
        LogstoreError: a log cannot be written.
    """
    if status not in statuses(directory, broker):
        raise InvalidTransactionStateError(f"{status} is not there any more; look again")
    if status.state != HANGING:
        raise InvalidTransactionStateError(
            f"transactional id {status.transactional_id!r} is in state {status.state}, and does not hang: a "
            "new producer with the id, or its time-out, ends the transaction"
        )
    for partition in status.partitions:
        log = directory.log(partition)
        abort_open(log, status.producer_id)
        log.flush()


def abort_open(log: Log, producer_id: int | None = None) -> set[tuple[int, int]]:
    """Give a log the markers that its open transactions lack, or the one of a producer: of the epoch of the
    producer, and of the coordinator that has written its last marker, as if that had aborted them.

    Returns:
        The producers' ids and epochs.
    """
    aborted = set()
    for each in log.active_producers():
        is_meant = producer_id in (None, each.producer_id)
        if is_meant and each.transaction_first_offset is not None:
            log.append_end_marker(each.producer_id, each.producer_epoch, committed=False)
            aborted.add((each.producer_id, each.producer_epoch))
    return aborted


def _described(broker: Broker) -> list[DescribedTransaction]:
    listed = wait_for(broker.list_transactions(ListTransactions()), _SECONDS)
    if listed is None:
        raise RetriableError(f"the coordinator did not list its transactions within {_SECONDS:g} s")
    if listed.error is not ErrorCode.NONE:
        raise error_of(listed.error, listed.message or listed.error.name)
    names = tuple(sorted(each.transactional_id for each in listed.transactions))
    described = wait_for(broker.describe_transactions(names), _SECONDS)
    if described is None:
        raise RetriableError(f"the coordinator did not describe its transactions within {_SECONDS:g} s")
    for each in described:
        if each.error not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            why = each.message or each.error.name
            raise error_of(each.error, f"transactional id {each.transactional_id!r}: {why}")
    return [each for each in described if each.error is ErrorCode.NONE]


def _as_readers_see(directory: LogDirectory, known: DescribedTransaction) -> DescribedTransaction:
    """A transaction whose markers are all there is over, also while the coordinator waits for them to be
    durable; else the partitions without one are left."""
    if not known.state.is_ending:
        return known
    left = frozenset(each for each in known.partitions if _waits(directory, each, known.producer_id))
    if left:
        return known._replace(partitions=left)
    return known._replace(partitions=left, state=next_state(known.state, Event.MARKED))


def _waits(directory: LogDirectory, partition: TopicPartition, producer_id: int) -> bool:
    """Whether the partition has records of the producer without a marker, as far as can be seen."""
    try:
        return producer_id in directory.log(partition).open_transactions()
    except UnknownTopicError:
        return False  # it was deleted
    except LogstoreError:
        return True


def _time_of(log: Log, offset: int) -> int:
    """When the record was made; -1 if it cannot be read."""
    try:
        record = log.record_at(offset, isolation=Isolation.LOG_END)
    except LogstoreError:
        return -1
    return -1 if record is None else record.timestamp_ms
