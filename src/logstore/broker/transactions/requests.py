"""What producers ask of a transaction coordinator, and what it answers, in the terms of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.transactions.states import TransactionState
from logstore.model import ActiveProducer, TopicPartition

T = TypeVar("T")

Done = Callable[[T], object]
"""Called once with the result, at once or later, from any thread, without a lock held."""


class TransactionalProducer(NamedTuple):
    """Who asks: a transactional id, with the producer's id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class AddPartitionsToTransaction(NamedTuple):
    """The transaction is about to write to these partitions (AddPartitionsToTxn)."""

    producer: TransactionalProducer
    partitions: tuple[TopicPartition, ...]
    is_implied: bool = False
    """The producer has not asked its coordinator: a batch says so, where the partition is led (KIP-890)."""


class AddPartitionsResult(NamedTuple):
    """All partitions are in the transaction, or none. In a cluster one may take no batch for all that: it
    has got a marker since."""

    errors: Mapping[TopicPartition, ErrorCode]

    @property
    def error(self) -> ErrorCode:
        """The first that is one."""
        none = ErrorCode.NONE
        for code in self.errors.values():
            if code is not none:
                return code
        return none


class AddOffsetsToTransaction(NamedTuple):
    """The transaction is about to commit offsets of a group (AddOffsetsToTxn)."""

    producer: TransactionalProducer
    group: str
    is_implied: bool = False
    """The producer has not asked its coordinator: a commit says so, where the group is coordinated."""


class EndTransaction(NamedTuple):
    """Commit or abort (EndTxn)."""

    producer: TransactionalProducer
    committed: bool
    takes_epoch: bool = False
    """The producer's next transaction has the next epoch, which is in the answer (KIP-890)."""


class EndTransactionResult(NamedTuple):
    """The outcome is decided, if there is no error, and readers see it."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    """With which the next transaction is to be written."""
    message: str | None = None


class ListTransactions(NamedTuple):
    """Which transactional ids to list; an empty filter lets all through."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    open_for_ms: int = -1
    """Only those that are open for longer (KIP-994)."""


class ListedTransaction(NamedTuple):
    """One transactional id."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class ListTransactionsResult(NamedTuple):
    """Transactional ids, or why they cannot be read."""

    error: ErrorCode
    transactions: tuple[ListedTransaction, ...] = ()
    message: str | None = None


class DescribedTransaction(NamedTuple):
    """A transactional id with all that is known of it."""

    error: ErrorCode
    transactional_id: str
    state: TransactionState = TransactionState.DEAD
    timeout_ms: int = -1
    start_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    message: str | None = None
    """What the error is."""


class DescribedProducers(NamedTuple):
    """The producers that a partition remembers (DescribeProducers)."""

    partition: TopicPartition
    error: ErrorCode
    producers: tuple[ActiveProducer, ...] = ()
    message: str | None = None


class DescribeProducersResult(NamedTuple):
    """The producers of each partition that was asked for, in this order."""

    partitions: tuple[DescribedProducers, ...]


class TransactionMarker(NamedTuple):
    """End a producer's transaction in these partitions, whatever its coordinator knows (WriteTxnMarkers)."""

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int = -1
    """-1 of an administrator: as the first coordinator's."""


class MarkedPartition(NamedTuple):
    """What became of a marker in one partition."""

    producer_id: int
    partition: TopicPartition
    error: ErrorCode
    message: str | None = None


class WriteMarkersResult(NamedTuple):
    """What became of each partition of each marker, in the order of the request."""

    partitions: tuple[MarkedPartition, ...]
