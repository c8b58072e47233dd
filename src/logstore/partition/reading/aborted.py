"""Leaving out the records of aborted transactions, as every consumer at ``read_committed`` does (KIP-98).

The filter walks along the batches of a read with the list of aborted transactions that begin in it: a
producer's transactional batches are hidden from its transaction's first offset up to its abort marker.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from logstore.format.control import ControlType, decode_control_record
from logstore.format.header import BatchHeader
from logstore.format.index import AbortedTransactions
from logstore.model import Record


class _Decodable(Protocol):
    def decode(self) -> list[Record]: ...


class AbortedFilter:
    """Says of each batch, in offset order, whether it belongs to an aborted transaction."""

    def __init__(self, aborted: AbortedTransactions) -> None:
        self._waiting = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._open: set[int] = set()
        self.has_any = bool(self._waiting)
        """Whether any batch may be hidden at all."""

    def hides(self, header: BatchHeader, batch: _Decodable) -> bool:
        """Whether a reader must not see the batch. A control batch is never hidden here: it ends what it
        aborts, and no reader is shown one anyway."""
        while self._waiting and self._waiting[0].first_offset <= header.last_offset:
            self._open.add(self._waiting.popleft().producer_id)
        if not header.is_transactional or header.producer_id not in self._open:
            return False
        if not header.is_control:
            return True
        if decode_control_record(batch.decode()[0]).control_type is ControlType.ABORT:
            self._open.discard(header.producer_id)
        return False
