"""Joins the small batches that compaction leaves: a header of 61 bytes and an index entry for each record
would often cost more than the record itself.

Neighbours are joined if only their records and offsets matter: no transactions, no control records, no delete
horizon, no active producer, one leader epoch, one codec. A large batch stays as it is. So does a batch of a
former producer, unless it has lost records: the gap shows a replay of the log that it does not see
everything. And so does one with a header key that is not UTF-8, which cannot be encoded again as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple, Protocol

from logstore.format.batch import decode_section, encode_records_batch, records_section
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
from logstore.model import AbortedTransaction, Bytes, Record

SMALL_BYTES: Final = 16 * 1024
"""A batch of this size or more is left alone: joining it would save less than 0.5 %."""

SECTION_BYTES: Final = 4 * 1024 * 1024
"""The most that joined records have before compression, where batches are not larger anyway. A read of one of
them decompresses them all, and no reader decompresses more than 64 MiB. 16 times the usual batch: where
records compress better than that, larger batches gain little."""

_MAX_INT32 = 2**31 - 1
_REPLACEMENT: Final = "\ufffd"
"""What a reader shows in a header key for bytes that are not UTF-8."""
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
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        while len(waiting) > 1:
            records, count = self._records_of(waiting)
            self._pass_on(waiting[:count], records, output)
            del waiting[:count]
        for header, data in waiting:
            output.add([header], data)

    def _records_of(self, waiting: Sequence[tuple[BatchHeader, bytes]]) -> tuple[list[Record], int]:
        """The records of as many of the batches as may become one, and how many; if the first stays as it is,
        none and 1."""
        records: list[Record] = []
        section_bytes, most_bytes = 0, max(SECTION_BYTES, self._rules.limit_bytes)
        for count, (header, data) in enumerate(waiting):
            section, start, end = records_section(data, 0, header)
            section_bytes += end - start
            if count and section_bytes > most_bytes:
                return records, count
            found = decode_section(section, start, end, header)
            if any(_REPLACEMENT in key for record in found for key, _ in record.headers):
                return records, max(count, 1)
            records += found
        return records, len(waiting)

    def _pass_on(
        self, batches: Sequence[tuple[BatchHeader, bytes]], records: Sequence[Record], output: Output
    ) -> None:
        """The batches, as one if there are several and that makes them smaller."""
        if len(batches) > 1:
            joined = self._join(batches[0][0], batches[-1][0], records)
            size_bytes = sum(header.size_bytes for header, _ in batches)
            if len(joined) <= min(size_bytes, self._rules.limit_bytes):
                self.joined_count += len(batches)
                self.made_count += 1
                output.add([decode_header(joined)], joined)
                return
        for header, data in batches:
            output.add([header], data)

    def _join(self, first: BatchHeader, last: BatchHeader, records: Sequence[Record]) -> bytearray:
        like = first._replace(
            last_offset_delta=last.last_offset - first.base_offset,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
            base_sequence=NO_SEQUENCE,
        )
        return encode_records_batch(records, like=like, level=self._rules.level_of(first.codec))
