"""The transactions that a coordinator knows (KIP-664)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String, needs


class ListTransactionsRequest(NamedTuple):
    """Which transactions are wanted: all, or those that pass every filter."""

    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_ms: Annotated[Int64, needs(1)] = -1
    """Only those that have run longer; -1: all."""
    transactional_id_pattern: Annotated[String | None, needs(2)] = None
    """A regular expression of RE2/J (KIP-1152)."""


class Transaction(NamedTuple):
    """A transaction, and its state."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(NamedTuple):
    """The transactions."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transactions: tuple[Transaction, ...] = ()
