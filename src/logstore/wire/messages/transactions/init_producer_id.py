"""A producer's id and epoch. With a transactional id, producers that had it before are fenced."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String, needs


class InitProducerIdRequest(NamedTuple):
    """Which producer asks, and with which transactional id, if any."""

    transactional_id: String | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, needs(3)] = -1
    producer_epoch: Annotated[Int16, needs(3)] = -1


class InitProducerIdResponse(NamedTuple):
    """The id and the epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
