"""What was read of a partition's log, kept while workers take it in small pieces.

A worker that takes one record would read, check and walk a whole batch for it, and the next worker again:
100 µs, or 300 µs where batches are small. What is kept is used as long as another read would bring the same
bytes. It is not used after a truncation, nor after compaction or erasing have put another segment in place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final
from weakref import ref

from logstore.broker.requests import AbortedProducer
from logstore.broker.share.partition import Batch
from logstore.format.header import decode_header
from logstore.model import Bytes, Isolation
from logstore.partition.log import Log
from logstore.partition.reading.readable import published_view
from logstore.partition.segments.segment import Segment

KEPT_BYTES: Final = 256 * 1024
"""The most that a partition keeps."""

_Source = tuple["ref[Segment]", int]


class Stretch:
    """Whole batches from an offset on, of one segment."""

    def __init__(self, log: Log, start: int, *, max_bytes: int, isolation: Isolation) -> None:
        """Read them.

        Raises:
            LogstoreError: as :meth:`.Log.fetch`.
        """
        self._source = _source(log, start)  # first: a change meanwhile is then noticed
        fetched = log.fetch(start, max_bytes=max_bytes, isolation=isolation)
        self._start = start
        self._isolation = isolation
        self._data = fetched.data
        self.next_offset = fetched.next_offset
        """Behind them; the start if there are none."""
        self.aborted = tuple(AbortedProducer(each.producer_id, each.first_offset) for each in fetched.aborted)
        """What members leave out that see committed records only."""
        self._batches: list[Batch] = []
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._ends: list[int] = []
        """Where each batch ends in the data."""
        self._walk()

    def _walk(self) -> None:
        at = 0
        while at < len(self._data):
            header = decode_header(self._data, at)
            at += header.size_bytes
            is_hidden = header.is_control or not header.record_count
            self._batches.append(Batch(header.base_offset, header.last_offset, is_hidden))
            self._firsts.append(header.base_offset)
            self._lasts.append(header.last_offset)
            self._ends.append(at)

    @property
    def record_bytes(self) -> int:
        """What a record needs, about: some more than the mean."""
        if not self._batches:
            return 0
        return len(self._data) * 17 // 16 // (self._lasts[-1] - self._firsts[0] + 1) + 1

    def is_worth_keeping(self, offset: int) -> bool:
        """Whether it has more from an offset on, and is not too large."""
        return offset < self.next_offset and len(self._data) <= KEPT_BYTES and not self.aborted

    def covers(self, log: Log, start: int, most: int, *, max_bytes: int, isolation: Isolation) -> bool:
        """Whether it can take the place of another read at ``start``, for as many offsets."""
        return (
            self._start <= start <= self.next_offset - most
            and isolation is self._isolation
            and (len(self._data) <= max_bytes or len(self._batches) == 1)
            and self._source == _source(log, start)
        )

    def piece(self, start: int, most: int) -> tuple[Sequence[Batch], int]:
        """The batches that hold ``most`` offsets from ``start`` on, or all; and the offset behind them."""
        low = bisect_left(self._lasts, start)
        count = 0
        for number in range(low, len(self._batches)):
            batch = self._batches[number]
            if not batch.is_hidden:
                count += batch.last - max(batch.first, start) + 1
            if count >= most:
                return self._batches[low : number + 1], batch.last + 1
        return self._batches[low:], self.next_offset

    def data(self, first: int, last: int) -> Bytes:
        """The bytes of the batches that hold something of these offsets."""
        low, high = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        if low >= high:
            return b""
        # The markers in front of it say which aborted transactions end before it.
        begin = self._ends[low - 1] if low and not self.aborted else 0
        return self._data[begin : self._ends[high - 1]]


def _source(log: Log, offset: int) -> _Source:
    """The same as long as the bytes are the same that a read brings at the offset."""
    view = published_view(log)
    return ref(view.segments[view.floor(offset)]), view.truncations.count
