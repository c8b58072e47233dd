"""Fetched bytes to records: what a consumer does with whole batches.

Every batch's checksum is checked again here, where the bytes have arrived. Control records, the records of
aborted transactions, and those below the offset that was asked for are left out. As in
:mod:`~logstore.partition.reading.records`, compiled code takes runs of ordinary batches, and stops in front
of any other; the walk here takes that one.
"""

from __future__ import annotations

from typing import Final

from logstore.broker.requests import FetchedPartition
from logstore.errors import CorruptionError
from logstore.format.column_buffers import Ended
from logstore.format.header import MAGIC, BatchHeader, check_batch, decode_header
from logstore.format.loops import Columns, read_run
from logstore.model import Record
from logstore.partition.reading.records import RUN_BYTES, AbortedFilter, FoundBatch, section_of, take_section

NO_END: Final = 2**63 - 1


class ReceivedBatches:
    """A walk over the batches of one answer."""

    __slots__ = ("aborted", "at", "data", "partition", "previous_last", "start", "stop")

    def __init__(self, fetched: FetchedPartition, start: int, stop: int) -> None:
        self.data = fetched.data if type(fetched.data) is bytes else bytes(fetched.data)
        self.partition = fetched.partition
        self.start = start
        """Records below are left out."""
        self.stop = stop
        """So are records from there on."""
        self.aborted = AbortedFilter(fetched.aborted)
        self.at = 0
        """Where the next batch begins."""
        self.previous_last = -1
        """The last offset of the batch before it."""

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.data)

    def next_batch(self) -> FoundBatch | None:
        """The next batch of which a reader sees something, checked; None if there is none.

        Raises:
            CorruptionError: a batch is damaged; names the partition and the batch's offsets.
        """
        while not self.is_over:
            found = self._found()
            if not self._is_hidden(found):
                self._pass(found.header)
                return found
            self._pass(found.header)
        return None

    def skip_hidden(self) -> None:
        """Pass the next batches of which a reader sees nothing. Damage is left to :meth:`next_batch`."""
        try:
            while not self.is_over:
                found = self._found()
                if not self._is_hidden(found):
                    return
                self._pass(found.header)
        except CorruptionError:
            return

    def _is_hidden(self, found: FoundBatch) -> bool:
        header = found.header
        is_aborted = self.aborted.hides(header, found)
        is_outside = header.last_offset < self.start or self._is_behind(header)
        return is_outside or is_aborted or header.is_control or not header.record_count

    def _is_behind(self, header: BatchHeader) -> bool:
        """Before magic 2 a batch does not show its first offset."""
        return header.magic == MAGIC and header.base_offset >= self.stop

    def _pass(self, header: BatchHeader) -> None:
        self.at += header.size_bytes
        self.previous_last = header.last_offset

    def _found(self) -> FoundBatch:
        name = f"what was fetched of {self.partition}"
        try:
            header = decode_header(self.data, self.at)
            check_batch(self.data, self.at, header)
        except CorruptionError as error:
            raise error.located(name) from None
        return FoundBatch(self.data, self.at, header, name, 0, self.partition)


class ReceivedRecords:
    """The records of one answer, from an offset on. Cost: compiled 0.05 µs per record of 100 bytes."""

    __slots__ = ("_batches",)

    def __init__(self, fetched: FetchedPartition, start: int, stop: int = NO_END) -> None:
        """``start`` and ``stop``: records with other offsets are left out."""
        self._batches = ReceivedBatches(fetched, start, stop)

    @property
    def is_over(self) -> bool:
        """Whether no record is left."""
        return self._batches.is_over

    def next(self) -> list[Record]:
        """The next records, at least one; none if it is over.

        Raises:
            CorruptionError: a batch is damaged; names the partition and the batch's offsets.
        """
        records = self._next()
        self._batches.skip_hidden()
        return records

    def fill(self, columns: Columns, row_limit: int, byte_limit: int) -> int:
        """Append the next records to columns until they have about so much: at least one, or none if it is
        over. Returns the offset to go on from. Damage behind the first record is left to the next call.

        Raises:
            CorruptionError: the next batch is damaged; names the partition and the batch's offsets.
        """
        batches = self._batches
        try:
            while not batches.is_over and columns.row_count < row_limit and columns.used_bytes < byte_limit:
                ended, batches.at, batches.previous_last = columns.take_batches(
                    batches.data,
                    batches.at,
                    len(batches.data),
                    len(batches.data),
                    NO_END,
                    batches.previous_last,
                    batches.start,
                    batches.stop,
                    row_limit,
                    byte_limit,
                    batches.aborted.has_any,
                )
                if ended == Ended.IS_FULL:
                    break
                if ended == Ended.IS_DONE:
                    batches.at = len(batches.data)
                    break
                batch = batches.next_batch()
                if batch is not None:
                    _append(columns, batch, batches.start, batches.stop)
        except CorruptionError:
            if not columns.row_count:
                raise
        batches.skip_hidden()
        return batches.previous_last + 1

    def _next(self) -> list[Record]:
        batches = self._batches
        found: list[Record]
        while not batches.is_over:
            if read_run is not None:
                found, batches.at, batches.previous_last, _ = read_run(
                    batches.data,
                    batches.at,
                    batches.previous_last,
                    NO_END,
                    batches.start,
                    batches.stop,
                    RUN_BYTES,
                    batches.aborted.has_any,
                    False,
                    batches.partition,
                )
                if found:
                    return found
            batch = batches.next_batch()
            if batch is None:
                break
            records = batch.decode_within(batches.start, batches.stop)
            if records:
                return records
        return []


def _append(columns: Columns, batch: FoundBatch, start: int, stop: int) -> None:
    """The rows of a batch that is not ordinary.

    Raises:
        CorruptionError: it cannot be decoded.
    """
    header = batch.header
    section = section_of(batch.buffer, batch.position, header) if header.magic == MAGIC else None
    if section is not None and take_section(columns, section, header, start, stop):
        return
    kind = int(header.timestamp_type)
    for record in batch.decode_within(start, stop):
        columns.append_row(*record, kind)
