"""Verified batches, kept for reads of single records.

A batch that was checked, and decompressed if needed, answers the next read of one of its records without the
disk, the checksum and the codec. The cache keeps bytes, never decoded records: a hit makes one record and
none of its neighbours.

A batch is kept under the place it was read from: the segment object, and the truncation count of the reader's
view. A reopened log, a replaced segment and a truncated log are other places, so nothing kept can outlive the
bytes it was read from.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection
from typing import Final, Literal, NamedTuple

from logstore.format.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from logstore.format.header import HEADER_BYTES, BatchHeader
from logstore.format.loops import find_in_section, mark_records
from logstore.model import Bytes, Record, TimestampType, TopicPartition
from logstore.turns import held_here

MARK_STEP: Final = 64
"""In a larger batch, the position of one record in this many is remembered from the second read on. Skipping
to a record then takes 0.2 µs (compiled) in a batch of any size; the marks take 1 to 2 bytes a record."""

_OVERHEAD_BYTES = 1_000  # per kept batch: its header, and its entries in the tables
_MARK_BYTES = 80  # two numbers and their slots


Place = tuple[int, int]
"""Where a kept batch was read: the number of the segment object, and the view's truncation count."""


class VerifiedBatch:
    """A batch of magic 2 whose checksum, structure and place were checked, its records uncompressed."""

    __slots__ = ("_is_dense", "_is_read", "_marks", "_section", "_start", "header", "last_offset")

    def __init__(self, buffer: Bytes, position: int, header: BatchHeader) -> None:
        """Copy the records section of the batch at ``position``, decompressed.

        Raises:
            CorruptionError: it does not decompress.
        """
        start, stop = position + HEADER_BYTES, position + header.size_bytes
        section: Bytes = memoryview(buffer)[start:stop]
        if header.codec is not Codec.NONE:
            section = decompress(header.codec, section, MAX_DECOMPRESSED_BYTES)
        self._section = bytes(section)
        self.header = header
        self.last_offset = header.last_offset
        self._is_dense = header.record_count == header.last_offset_delta + 1
        self._marks: tuple[list[int], list[int]] | None = None
        self._is_read = False

    @property
    def size_bytes(self) -> int:
        """The memory it takes, approximately."""
        return len(self._section) + self.header.record_count // MARK_STEP * _MARK_BYTES + _OVERHEAD_BYTES

    def find(self, offset: int, partition: TopicPartition | None = None) -> Record | Literal[False] | None:
        """The record at an offset between the batch's first and last, with ``partition`` noted in it; False
        if there is a gap. None if something is wrong: decoding the whole batch says what."""
        header = self.header
        number = position = 0
        if header.record_count > 2 * MARK_STEP:
            marks = self._marks or self._mark()
            if marks is not None:
                nearest = bisect_right(marks[0], offset - header.base_offset) - 1
                if nearest > 0:
                    number, position = nearest * MARK_STEP, marks[1][nearest]
        return find_in_section(
            self._section,
            position,
            number,
            header.record_count,
            self._is_dense,
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms,
            header.timestamp_type is TimestampType.LOG_APPEND_TIME,
            offset,
            header.partition_leader_epoch,
            partition,
        )

    def _mark(self) -> tuple[list[int], list[int]] | None:
        """The marks; None for the first read, since there may be no second."""
        if self._is_read:
            self._marks = mark_records(self._section, 0, self.header.record_count, MARK_STEP)
        self._is_read = True
        return self._marks


class _Shelf(NamedTuple):
    """The kept batches of one place, by rising base offset."""

    bases: list[int]
    batches: list[VerifiedBatch]


class BatchCache:
    """The batches that were read last, up to a number of bytes. Shared by the logs of a store.

    Lock: ``_lock`` guards all of it, except that ``places`` is read without it. A signal handler or a
    finalizer that has interrupted a thread which has the lock does without the cache.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._shelves: dict[Place, _Shelf] = {}
        self.places: Collection[Place] = self._shelves.keys()
        """The places with kept batches; a live view."""
        self._order: OrderedDict[VerifiedBatch, Place] = OrderedDict()
        self._lock = threading.RLock()
        self._is_used_here = held_here(self._lock)

    @property
    def size_bytes(self) -> int:
        """The memory taken, approximately; never above the limit."""
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._order)

    def find(self, place: Place, offset: int) -> VerifiedBatch | None:
        """The kept batch that holds ``offset``."""
        if self._is_used_here():
            return None
        with self._lock:
            shelf = self._shelves.get(place)
            if shelf is None:
                return None
            number = bisect_right(shelf.bases, offset) - 1
            if number < 0 or shelf.batches[number].last_offset < offset:
                return None
            batch = shelf.batches[number]
            self._order.move_to_end(batch)
            return batch

    def add(self, place: Place, batch: VerifiedBatch) -> None:
        """Keep a batch, and drop the least recently read ones if the limit is passed."""
        size_bytes = batch.size_bytes
        if size_bytes > self._limit_bytes or self._is_used_here():
            return
        with self._lock:
            shelf = self._shelves.setdefault(place, _Shelf([], []))
            number = bisect_right(shelf.bases, batch.header.base_offset)
            if number and shelf.bases[number - 1] == batch.header.base_offset:
                return  # another thread was quicker
            shelf.bases.insert(number, batch.header.base_offset)
            shelf.batches.insert(number, batch)
            self._order[batch] = place
            self._size_bytes += size_bytes
            while self._size_bytes > self._limit_bytes:
                self._remove_locked(next(iter(self._order)))

    def drop(self, segment_numbers: Collection[int]) -> None:
        """Drop the batches of some segments. This only frees memory; nothing depends on it."""
        if not self._order or self._is_used_here():
            return
        wanted = set(segment_numbers)
        with self._lock:
            for batch in [kept for kept, place in self._order.items() if place[0] in wanted]:
                self._remove_locked(batch)

    def clear(self) -> None:
        """Drop everything."""
        if self._is_used_here():
            return
        with self._lock:
            self._order.clear()
            self._shelves.clear()
            self._size_bytes = 0

    def _remove_locked(self, batch: VerifiedBatch) -> None:
        place = self._order.pop(batch)
        self._size_bytes -= batch.size_bytes
        bases, batches = shelf = self._shelves[place]
        number = bisect_right(bases, batch.header.base_offset) - 1
        del bases[number], batches[number]
        if not shelf.bases:
            del self._shelves[place]
