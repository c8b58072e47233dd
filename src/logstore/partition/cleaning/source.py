"""The segments that compaction reads, piece by piece, with the checksum and place of each batch checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from logstore.errors import CorruptionError
from logstore.format.header import CODEC_MASK, HEADER_BYTES, BatchHeader, decode_header
from logstore.format.loops import scan_batches
from logstore.partition.reading.view import LogView
from logstore.partition.segments.segment import Segment

_READ_BYTES = 1024 * 1024


class SourcePiece(NamedTuple):
    """Some bytes of a segment with the whole batches in them."""

    buffer: memoryview
    """Reused for the next piece: new memory for each piece costs as much as reading it."""
    position: int
    """The position in the file where the buffer begins."""
    batches: list[tuple[int, BatchHeader]]
    """(position in the buffer, header) of each batch, in order; the first begins at 0."""
    end: int
    """Position in the buffer after the last of them."""


class Source(NamedTuple):
    """A segment to read, as it is in the view."""

    segment: Segment
    next_base_offset: int
    size_bytes: int

    def pieces(self, position: int = 0, end: int | None = None) -> Iterator[SourcePiece]:
        """The batches between two positions at which batches begin; if ``end`` is None, to the end of the
        segment.

        Raises:
            CorruptionError: one is damaged, or does not follow the one before.
        """
        end = self.size_bytes if end is None else end
        memory = bytearray(min(_READ_BYTES, end - position))
        last_offset = self.segment.base_offset - 1
        while position < end:
            wanted = memoryview(memory)[: end - position]
            buffer = wanted[: self.segment.read_into(position, wanted)]
            batches, stop, fault = scan_batches(buffer, 0, len(buffer), check=True)
            for at, header in batches:
                if not last_offset < header.base_offset <= header.last_offset < self.next_base_offset:
                    reason = f"offsets {header.base_offset} to {header.last_offset} follow {last_offset}"
                    raise header.damage(reason, at).located(self.segment.path, position)
                last_offset = header.last_offset
            if batches:
                yield SourcePiece(buffer, position, batches, stop)
            if fault is not None:
                raise fault.located(self.segment.path, position)
            if not batches:
                is_cut = len(buffer) < len(wanted)
                memory = bytearray(0 if is_cut else self._size_of_large(buffer, position, end))
                if not memory:
                    fault = CorruptionError("the last batch is incomplete", position=position)
                    raise fault.located(self.segment.path)
            position += stop

    @staticmethod
    def _size_of_large(buffer: memoryview, position: int, end: int) -> int:
        """The size of a batch that is larger than ``buffer``; 0 if it is incomplete."""
        if len(buffer) < HEADER_BYTES:
            return 0
        wanted = decode_header(buffer).size_bytes
        return wanted if len(buffer) < wanted <= end - position else 0

    def place(
        self, error: CorruptionError, piece: SourcePiece, at: int, header: BatchHeader
    ) -> CorruptionError:
        """The error with the batch's place and offsets. A position in decompressed bytes is of no use."""
        if header.attributes & CODEC_MASK or error.position is None:
            error.position = at
        error.base_offset, error.last_offset = header.base_offset, header.last_offset
        return error.located(self.segment.path, piece.position)


def sources_below(view: LogView, end: int, *, rolls: bool = False) -> list[Source]:
    """The sealed segments that begin below ``end``; with ``rolls`` the active one too."""
    return [
        Source(segment, view.next_base(number), view.size_of(number))
        for number, segment in enumerate(view.segments if rolls else view.segments[:-1])
        if segment.base_offset < end
    ]
