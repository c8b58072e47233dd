"""What a fetch gives: batches that follow each other, as views of the pieces in which they were read."""

from __future__ import annotations

from typing import Final

from logstore.format.header import HEADER_BYTES
from logstore.model import Bytes
from logstore.partition.segments.walk import FIRST_PIECE_BYTES

_MOST_PIECE_BYTES: Final = 8 * 1024 * 1024
"""That a fetch reads at once: what it gives is then one piece, and not joined from several. A follower that
asks for 4 MiB takes half the time of its leader's processor so."""
_INTERVAL_BYTES: Final = 8 * 1024
"""Twice what lies between index entries by default."""
_FEW_RECORDS: Final = 64
"""A fetch that can give so few is not worth a large piece."""


class Collected:
    """Batches, as views: one of each piece that was read."""

    __slots__ = ("_buffer", "_end", "_start", "_views", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._views: list[memoryview] = []
        self._buffer: Bytes = b""
        self._start = self._end = 0

    def add(self, buffer: Bytes, position: int, size_bytes: int) -> None:
        """The next batch: where it is in its piece."""
        if buffer is not self._buffer or position != self._end:
            self._end_view()
            self._buffer, self._start = buffer, position
        self._end = position + size_bytes
        self.size_bytes += size_bytes

    def _end_view(self) -> None:
        if self._end > self._start:
            self._views.append(memoryview(self._buffer)[self._start : self._end])
        self._end = self._start = 0

    def joined(self) -> Bytes:
        """All of them: without a copy, unless they are of several pieces or of a small part of one."""
        read_bytes = len(self._buffer)
        self._end_view()
        if len(self._views) == 1 and 2 * self.size_bytes >= read_bytes:
            return self._views[0]
        return b"".join(self._views)


def first_piece_bytes(max_bytes: int, record_count: int) -> int:
    """The first piece of a fetch that can give so many records: all that it may give, the small batches in
    front of it behind the last index entry, and the header behind it. 0: as for any other reader."""
    if max_bytes < FIRST_PIECE_BYTES or record_count < _FEW_RECORDS:
        return 0
    return min(max_bytes, _MOST_PIECE_BYTES) + _INTERVAL_BYTES + HEADER_BYTES
