"""Joins the small batches that compaction leaves: a header of 61 bytes and an index entry for each record
would often cost more than the record itself.

Neighbours are joined if only their records and offsets matter: no transactions, no control records, no delete
horizon, no active producer, one leader epoch, one codec. A large batch stays as it is. So does a batch of a
former producer, unless it has lost records: the gap shows a replay of the log that it does not see
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple, Protocol

from logstore.format.batch import decode_batch, encode_records_batch
from logstore.format.compression import Codec
from logstore.format.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAGIC,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_header,
)
from logstore.model import AbortedTransaction, Bytes

SMALL_BYTES: Final = 16 * 1024
"""A batch of this size or more is left alone: joining it would save less than 0.5 %."""

_MAX_INT32 = 2**31 - 1
_NEVER_BITS = CONTROL_BIT | TRANSACTIONAL_BIT | DELETE_HORIZON_BIT


class Output(Protocol):
    """The receiver of batches."""

    size_bytes: int
    """The size of all added batches."""
    written_bytes: int
    """How much of that is written to a file."""

    def add(self, batches: Sequence[BatchHeader], data: Bytes) -> None:
        """Add batches; ``data`` holds them one after the other and must not change until :meth:`write`."""
        ...

    def write(self) -> None: ...

    def add_aborted(self, aborted: Sequence[AbortedTransaction]) -> None: ...


class JoiningRules(NamedTuple):
    """The rules of one round."""

    end_offset: int
    """Batches from here on stay as they are."""
    limit_bytes: int
    """The largest batch that is made."""
    producers: Container[int]
    """The active producers."""
    level_of: Callable[[Codec], int | None]

    def may_join(self, header: BatchHeader) -> bool:
        """Whether the batch may become part of another."""
        return (
            header.batch_length < SMALL_BYTES
            and header.magic == MAGIC
            and header.record_count > 0
            and not header.attributes & _NEVER_BITS
            and header.last_offset < self.end_offset
            and (header.producer_id == NO_PRODUCER_ID or self._is_former_producers(header))
        )

    def _is_former_producers(self, header: BatchHeader) -> bool:
        has_gap = header.record_count <= header.last_offset_delta
        return has_gap and header.producer_id not in self.producers

    def fits(self, first: BatchHeader, size_bytes: int, header: BatchHeader) -> bool:
        """Whether the batch may be joined to others that begin with ``first`` and have ``size_bytes``."""
        return (
            size_bytes + header.size_bytes <= self.limit_bytes
            and header.attributes == first.attributes
            and header.partition_leader_epoch == first.partition_leader_epoch
            and header.last_offset - first.base_offset <= _MAX_INT32
            and (
                not header.attributes & TIMESTAMP_TYPE_BIT
                or header.max_timestamp_ms == first.max_timestamp_ms  # the timestamp of all records
            )
        )


class BatchJoiner:
    """Takes batches that may be joined, in order, and passes them on, joined if they fit."""

    def __init__(self, rules: JoiningRules) -> None:
        self._rules = rules
        self._waiting: list[tuple[BatchHeader, bytes]] = []
        self._waiting_bytes = 0
        self.joined_count = 0
        """Batches that became part of another one."""
        self.made_count = 0
        """Batches that were made from them."""

    def add(self, header: BatchHeader, data: Bytes, output: Output) -> None:
        waiting = self._waiting
        if waiting and not self._rules.fits(waiting[0][0], self._waiting_bytes, header):
            self.flush(output)
        self._waiting.append((header, bytes(data)))
        self._waiting_bytes += header.size_bytes

    def flush(self, output: Output) -> None:
        """Pass on the waiting batches."""
        waiting, size_bytes = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        if len(waiting) > 1:
            joined = self._join(waiting)
            if len(joined) <= min(size_bytes, self._rules.limit_bytes):
                self.joined_count += len(waiting)
                self.made_count += 1
                output.add([decode_header(joined)], joined)
                return
        for header, data in waiting:
            output.add([header], data)

    def _join(self, waiting: Sequence[tuple[BatchHeader, bytes]]) -> bytearray:
        first, last = waiting[0][0], waiting[-1][0]
        like = first._replace(
            last_offset_delta=last.last_offset - first.base_offset,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
            base_sequence=NO_SEQUENCE,
        )
        records = [record for header, data in waiting for record in decode_batch(data, 0, header)]
        return encode_records_batch(records, like=like, level=self._rules.level_of(first.codec))
