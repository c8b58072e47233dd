"""Add the offsets of a group to a transaction, before TxnOffsetCommit sends them."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(NamedTuple):
    """The transaction and the group."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(NamedTuple):
    """Whether the group's offsets are in the transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
