"""Writes a group of neighbouring segments into one: cleaned, joined, in large slices.

A segment that is alone in its group and stays whole is not written at all: an output is begun with the first
change, and the part in front of it is then read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from logstore.errors import CorruptionError
from logstore.format.header import BatchHeader, decode_header
from logstore.model import AbortedTransaction, Bytes
from logstore.partition.cleaning.cleaned_batches import KEPT, BatchCleaner
from logstore.partition.cleaning.joined_batches import BatchJoiner, JoiningRules, Output
from logstore.partition.cleaning.source import Source, SourcePiece

Cleaned = Sequence[bytearray | None]
"""The results of :meth:`BatchCleaner.clean` for the batches of a piece."""


class CountedOutput:
    """The output of a dry run: only counts its size."""

    def __init__(self) -> None:
        self.size_bytes = self.written_bytes = 0

    def add(self, batches: Sequence[BatchHeader], data: Bytes) -> None:
        self.size_bytes += len(data)

    def write(self) -> None:
        """Does nothing: a dry run writes nothing."""

    def add_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Does nothing: a dry run has no transaction index."""


class GroupCopy:
    """The copy of one group. ``read`` returns the pieces of a source up to a position, ``begin`` makes the
    output, and ``wrote`` is called with the number of bytes written to it."""

    def __init__(
        self,
        group: Sequence[Source],
        cleaner: BatchCleaner,
        rules: JoiningRules,
        *,
        read: Callable[[Source, int | None], Iterator[SourcePiece]],
        begin: Callable[[], Output],
        wrote: Callable[[int], object],
    ) -> None:
        self.output: Output | None = None
        """None as long as nothing has changed."""
        self._group = group
        self._cleaner = cleaner
        self._rules = rules
        self._joiner = BatchJoiner(rules)
        self._read = read
        self._begin = begin
        self._wrote = wrote

    def run(self) -> None:
        """
        Raises:
            CorruptionError: a batch is damaged.
        """
        if len(self._group) > 1:
            self.output = self._begin()
        for source in self._group:
            for piece in self._read(source, None):
                cleaned = [self._clean(source, piece, at, header) for at, header in piece.batches]
                if self.output is None and self._changes(piece, cleaned):
                    self._begin_late(source, piece.position)
                if self.output is not None:
                    self._hand_on(piece, cleaned, self.output)
            self._note_aborted(source)
        if self.output is not None:
            self._joiner.flush(self.output)
            self._write(self.output)
        counts = self._cleaner.counts
        counts.kept_batches -= self._joiner.joined_count - self._joiner.made_count
        counts.joined_batches += self._joiner.joined_count

    def _clean(self, source: Source, piece: SourcePiece, at: int, header: BatchHeader) -> bytearray | None:
        try:
            return self._cleaner.clean(piece.buffer, at, header)
        except CorruptionError as error:
            raise source.place(error, piece, at, header) from None

    def _changes(self, piece: SourcePiece, cleaned: Cleaned) -> bool:
        """Whether any batch goes, changes, or can be joined with its neighbour."""
        if any(each is not KEPT for each in cleaned):
            return True
        rules = self._rules
        return any(
            rules.may_join(header) and rules.may_join(after) and rules.fits(header, header.size_bytes, after)
            for (_, header), (_, after) in pairwise(piece.batches)
        )

    def _begin_late(self, source: Source, position: int) -> None:
        output = self.output = self._begin()
        for piece in self._read(source, position):
            output.add([header for _, header in piece.batches], piece.buffer[: piece.end])
            self._write(output)

    def _hand_on(self, piece: SourcePiece, cleaned: Cleaned, output: Output) -> None:
        """Write consecutive batches that stay as one slice, and pass small ones to the joiner."""
        buffer, row = piece.buffer, KeptRow(output)
        for (at, header), result in zip(piece.batches, cleaned, strict=True):
            if result is None:
                continue
            kept = header if result is KEPT else decode_header(result)
            data = buffer[at : at + header.size_bytes] if result is KEPT else result
            if self._rules.may_join(kept):
                row.end(buffer)
                self._joiner.add(kept, data, output)
                continue
            self._joiner.flush(output)
            if result is KEPT:
                row.add(buffer, at, header)
            else:
                row.end(buffer)
                output.add([kept], data)
        row.end(buffer)
        self._write(output)

    def _write(self, output: Output) -> None:
        before_bytes = output.written_bytes
        output.write()
        self._wrote(output.written_bytes - before_bytes)

    def _note_aborted(self, source: Source) -> None:
        """Add the aborted transactions whose markers stay, by the rules or because they are behind the
        end."""
        aborted, end = self._cleaner.take_aborted(), self._rules.end_offset
        if self.output is not None:
            if source.next_base_offset > end:
                entries = source.segment.read_transaction_index().entries
                aborted += [entry for entry in entries if entry.last_offset >= end]
            self.output.add_aborted(aborted)


class KeptRow:
    """Consecutive batches in a piece that stay as they are."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._headers: list[BatchHeader] = []
        self._start = self._end = 0

    def add(self, buffer: memoryview, at: int, header: BatchHeader) -> None:
        if at != self._end:
            self.end(buffer)
        if not self._headers:
            self._start = at
        self._headers.append(header)
        self._end = at + header.size_bytes

    def end(self, buffer: memoryview) -> None:
        if self._headers:
            self._output.add(self._headers, buffer[self._start : self._end])
            self._headers = []
