"""Where a batch may lie: one rule for all readers that take batches one by one.

The CRC does not cover the base offset of a batch nor, for some formats, its last offset. The neighbours
confirm them: its offsets must be above those of the batch before it and below those of the batch after it, or
of the next segment. The compiled module checks the same for runs of ordinary batches.
"""

from __future__ import annotations

from typing import Final

from logstore.errors import CorruptionError
from logstore.format.header import (
    MAGIC,
    PREFIX_BYTES,
    UNKNOWN_COUNT,
    BatchHeader,
    check_batch,
)
from logstore.model import Bytes
from logstore.partition.reading.view import LogView
from logstore.partition.segments.segment import Segment

_BASE_OFFSET_BYTES: Final = 8


def ends_at_base(header: BatchHeader) -> bool:
    """Whether the batch is a compressed legacy entry: its base offset is that of its last record, and only
    decompressing it tells the first."""
    return header.magic < MAGIC and header.record_count == UNKNOWN_COUNT


def is_cut(header: BatchHeader, start: int, stop: int) -> bool:
    """Whether records of the batch may lie outside of ``[start, stop)``."""
    return header.base_offset < start or header.last_offset >= stop or ends_at_base(header)


class Place:
    """The progress of a pass over the batches of one segment of a view, in order."""

    __slots__ = ("_is_sealed", "end", "next_segment", "previous_last", "segment")

    def __init__(self, view: LogView, number: int) -> None:
        self.segment: Segment
        self.end: int
        """The end of the segment's bytes that belong to the view."""
        self.next_segment: int
        """The first offset behind the segment."""
        self.segment, self.end, self.next_segment = view.bounds_of(number)
        self._is_sealed = number + 1 < len(view.segments)
        self.previous_last = self.segment.base_offset - 1
        """The last offset of the last batch that was passed."""

    def first_offset(self, header: BatchHeader) -> int:
        """The first offset of the next batch, as far as it is known."""
        return self.previous_last + 1 if ends_at_base(header) else header.base_offset

    def check(self, header: BatchHeader, position: int, next_base: int) -> None:
        """Check the place of the next batch, at a position of the file; ``next_base`` is the base offset
        behind it.

        Raises:
            CorruptionError: it does not lie between its neighbours.
        """
        if self.previous_last < header.base_offset and header.last_offset < next_base:
            return
        raise CorruptionError(
            f"batch of offsets {header.base_offset} to {header.last_offset} does not fit between "
            f"{self.previous_last} and {next_base}",
            path=self.segment.path,
            position=position,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
        )

    def check_contents(self, header: BatchHeader, buffer: Bytes, at: int, piece_position: int) -> None:
        """Check the checksum of a batch at ``at`` in a piece that begins at ``piece_position``."""
        try:
            check_batch(buffer, at, header)
        except CorruptionError as error:
            raise error.located(self.segment.path, piece_position) from None

    def base_behind(self, buffer: Bytes, at: int, piece_position: int) -> int:
        """The base offset of the batch at ``at`` in or right behind a piece, or of the next segment."""
        in_file = piece_position + at
        if self.end - in_file < PREFIX_BYTES:
            return self.next_segment
        raw = bytes(buffer[at : at + _BASE_OFFSET_BYTES])
        if len(raw) < _BASE_OFFSET_BYTES:
            raw = self.segment.read_at(in_file, _BASE_OFFSET_BYTES)
        return int.from_bytes(raw, "big", signed=True)

    def check_end(self, position: int) -> None:
        """At the end of the pass, check that it has read every byte of the view, and every offset that the
        time index knows.

        Raises:
            CorruptionError: bytes are left, or the segment has lost its end.
        """
        if position < self.end:
            raise CorruptionError(
                f"the batch is incomplete: {self.end - position} bytes are left",
                path=self.segment.path,
                position=position,
                base_offset=self.previous_last + 1,
            )
        last_expected = self.next_segment - 1
        if self._is_sealed and self.previous_last < last_expected and self.segment.promises(last_expected):
            raise CorruptionError(
                "the segment lost its end",
                path=self.segment.path,
                position=self.end,
                base_offset=self.previous_last + 1,
                last_offset=last_expected,
            )
