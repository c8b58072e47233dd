"""Commit or abort a transaction."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Int16, Int32, Int64, String, since


class EndTxnRequest(NamedTuple):
    """The transaction, and how it shall end."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False
    """False: aborted."""


class EndTxnResponse(NamedTuple):
    """Whether it has ended; since version 5 with the epoch for the next one (KIP-890)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5)] = -1
    producer_epoch: Annotated[Int16, since(5)] = -1
