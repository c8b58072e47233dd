"""The state of transactions (KIP-664)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String


class DescribeTransactionsRequest(NamedTuple):
    """Which transactional ids."""

    transactional_ids: tuple[String, ...] = ()


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class Transaction(NamedTuple):
    """A transaction: its producer, its state, and its partitions."""

    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[Topic, ...] = ()


class DescribeTransactionsResponse(NamedTuple):
    """The transactions."""

    throttle_time_ms: Int32 = 0
    transactions: tuple[Transaction, ...] = ()
