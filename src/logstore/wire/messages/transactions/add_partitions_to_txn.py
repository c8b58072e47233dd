"""Add partitions to a transaction before producing to them."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Int16, Int32, Int64, String, needs, since


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class Transaction(NamedTuple):
    """A transaction, and its new partitions."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    """Whether to ask only if the partitions are in the transaction (KIP-890)."""
    topics: tuple[Topic, ...] = ()


class AddPartitionsToTxnRequest(NamedTuple):
    """Up to version 3 one transaction of a producer; later, from brokers, many."""

    transactions: Annotated[tuple[Transaction, ...], needs(4)] = ()
    transactional_id: Annotated[String, needs(0, 3)] = ""
    producer_id: Annotated[Int64, needs(0, 3)] = 0
    producer_epoch: Annotated[Int16, needs(0, 3)] = 0
    topics: Annotated[tuple[Topic, ...], needs(0, 3)] = ()


class PartitionResult(NamedTuple):
    """What became of a partition."""

    partition: Int32 = 0
    error_code: Int16 = 0


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class TransactionResult(NamedTuple):
    """The partitions of one transaction."""

    transactional_id: String = ""
    topics: tuple[TopicResult, ...] = ()


class AddPartitionsToTxnResponse(NamedTuple):
    """What became of the partitions."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4)] = 0
    transactions: Annotated[tuple[TransactionResult, ...], needs(4)] = ()
    topics: Annotated[tuple[TopicResult, ...], needs(0, 3)] = ()
