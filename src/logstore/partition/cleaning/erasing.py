"""Erases chosen records of one log for good: afterwards their contents are in none of its files.

First all segments that may hold one of the records are read and checked: damage ends the call before anything
is changed. Then, if there is such a record, the active segment is rolled if it holds one, and everything is
made durable. Each segment that holds one is rewritten without it and replaces the old one, by the same steps
as in compaction (:mod:`~logstore.partition.recovery.leftovers`). The old files are removed at once. At the
end, even if no record was found, other files that might hold such a record and are not part of the log are
removed too.

A segment keeps its base and each batch its offsets, so that no gap appears where recovery and verification
would take it for a loss. A crash leaves each segment either old or rewritten; the next open removes the old
files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from logstore.errors import CorruptionError, RetriableError, StorageError
from logstore.format.header import BatchHeader, decode_header
from logstore.format.offset_map import SEED_BYTES
from logstore.partition.cleaning.cleaned_batches import KEPT
from logstore.partition.cleaning.cleaned_group import CountedOutput, KeptRow
from logstore.partition.cleaning.cleaned_segment import CleanedSegment
from logstore.partition.cleaning.erased_records import BatchEraser, ErasedRecords
from logstore.partition.cleaning.joined_batches import Output
from logstore.partition.cleaning.reports import EraseProgress, EraseReport, OnEraseProgress
from logstore.partition.cleaning.rewriting import Rewriting
from logstore.partition.cleaning.source import Source, SourcePiece, sources_below
from logstore.partition.encoding.planning import compression_level
from logstore.partition.reading.view import LogView
from logstore.partition.recovery.aside import aside_names
from logstore.partition.recovery.leftovers import deleted_names, remove_strays
from logstore.partition.writing.writer import LogWriter
from logstore.warning import inform


class Erasure(Rewriting):
    """One call of :meth:`Log.erase`. Used once, by the thread that has the log's turn."""

    def __init__(
        self, log: LogWriter, erased: ErasedRecords, *, dry_run: bool, on_progress: OnEraseProgress | None
    ) -> None:
        super().__init__(log)
        self._erased = erased
        self._is_dry_run = dry_run
        self._on_progress = on_progress
        self._done_bytes = self._total_bytes = 0
        self._rewritten_count = self._saved_bytes = self._erased_count = 0

    def run(self) -> EraseReport:
        """Run the whole erasure."""
        clock = self._context.clock
        started_ms = clock.monotonic_ms()
        with self._log.guard.own_lock(), self._log.guard as core:
            self._log.gathering.drain_locked()
            view = core.view
        self._truncation_count = view.truncation_count
        size_bytes = sum(view.size_of(number) for number in range(len(view.segments)))
        found = self._find(view)
        eraser = self._new_eraser(view.log_end_offset)
        del view  # it would keep the files of replaced segments open
        leftovers = self._list_leftovers()  # before some make way for those of the rewritten segments
        removed: list[str] = []
        try:
            if found:
                self._rewrite(found, eraser)
            more = [] if self._is_dry_run else self._remove_leftovers()
            removed = list(dict.fromkeys([*leftovers, *more]))
        finally:
            self._tell_deletion(removed)
        return EraseReport(
            partition=self._log.partition,
            is_dry_run=self._is_dry_run,
            record_count=eraser.record_count,
            offsets=tuple(eraser.offsets),
            rewritten_batch_count=eraser.rewritten_batch_count,
            emptied_batch_count=eraser.emptied_batch_count,
            rewritten_segment_count=self._rewritten_count,
            size_bytes_before=size_bytes,
            size_bytes_after=size_bytes - self._saved_bytes,
            removed_files=tuple(removed),
            elapsed_ms=clock.monotonic_ms() - started_ms,
        )

    def _tell_deletion(self, removed: Sequence[str]) -> None:
        """Log one line, even for an erasure that ended early. It names no key and no offset, because these
        may have to be erased too."""
        if (self._rewritten_count or removed) and not self._is_dry_run:
            inform(
                "%s: erased %d records, %d bytes, and removed %d files that are not in the log: erase()",
                self._log.partition,
                self._erased_count,
                self._saved_bytes,
                len(removed),
            )

    def _new_eraser(self, end_offset: int) -> BatchEraser:
        config = self._core.config
        return BatchEraser(
            self._erased,
            end_offset,
            seed=self._context.random.randbytes(SEED_BYTES),
            level_of=lambda codec: compression_level(config, codec),
        )

    # Finding

    def _find(self, view: LogView) -> set[int]:
        """The base offsets of the segments with a record to erase."""
        eraser = self._new_eraser(view.log_end_offset)
        sources = [
            source
            for source in sources_below(view, view.log_end_offset, rolls=True)
            if self._erased.may_hold(source.segment.base_offset, source.next_base_offset)
        ]
        self._total_bytes = sum(source.size_bytes for source in sources)
        found = set()
        for source in sources:
            count = eraser.record_count
            with self._unless_deleted(source):
                for piece in self._reading(source):
                    for at, header in piece.batches:
                        _erase(eraser, source, piece, at, header)
                if eraser.record_count > count:
                    source.segment.read_transaction_index()  # it will be copied, so it must be sound
                    found.add(source.segment.base_offset)
                    self._total_bytes += source.size_bytes
        return found

    # Rewriting

    def _rewrite(self, found: set[int], eraser: BatchEraser) -> None:
        """Rewrite the segments one after the other. No reference to an old segment is kept once it is
        replaced: its files are then closed, and the disk frees them before the next one is written."""
        if not self._is_dry_run:
            self._make_ready(found)
        below = sources_below(self._core.view, eraser.end_offset, rolls=self._is_dry_run)
        sources = [source for source in reversed(below) if source.segment.base_offset in found]
        below.clear()
        while sources:
            source = sources.pop()
            with self._unless_deleted(source):
                self._rewrite_segment(source, eraser)

    def _make_ready(self, found: set[int]) -> None:
        """Seal the active segment if it loses records, and make everything durable."""
        with self._log.guard.own_lock(), self._log.guard as core:
            self._check()
            if core.active.base_offset in found:
                self._log.gathering.drain_locked()
                core.roll(core.log_end_offset, self._context.clock.now_ms())
                core.publish()
        self._log.durability.checkpoint()

    def _rewrite_segment(self, source: Source, eraser: BatchEraser) -> None:
        if self._is_dry_run:
            counted = CountedOutput()
            self._copy(source, eraser, counted)
            self._note(source, counted.size_bytes, eraser)
            return
        output = self._new_segment(source.segment.base_offset, source.size_bytes)
        try:
            self._copy(source, eraser, output)
            self._replace(source, output)
        except BaseException:
            self._discard(output)
            raise
        self._note(source, output.size_bytes, eraser)

    def _note(self, source: Source, size_bytes: int, eraser: BatchEraser) -> None:
        self._rewritten_count += 1
        self._erased_count = eraser.record_count
        self._saved_bytes += source.size_bytes - size_bytes

    def _copy(self, source: Source, eraser: BatchEraser, output: Output) -> None:
        """Copy a segment without the erased records. Batches that stay as they are go in slices."""
        for piece in self._reading(source):
            row = KeptRow(output)
            for at, header in piece.batches:
                batch = _erase(eraser, source, piece, at, header)
                if batch is KEPT:
                    row.add(piece.buffer, at, header)
                else:
                    row.end(piece.buffer)
                    output.add([decode_header(batch)], batch)
            row.end(piece.buffer)
            output.write()
        output.add_aborted(source.segment.read_transaction_index().entries)

    def _replace(self, source: Source, output: CleanedSegment) -> None:
        """Replace the old segment, and remove its files at once, or in the next call if the disk refuses."""
        kinds = output.finish(source.segment.modified_ms)
        log = self._log
        with log.guard.own_lock(), log.guard as core:
            self._check()
            log.gathering.write_before_waiting_locked()
            renamed = core.replace_segments([source.segment], output.base_offset, kinds, keeps_markers=True)
            log.removal.waiting += renamed
            log.waits.notify(log.core.view)
        log.removal.remove(renamed)

    # Files that are not part of the log

    def _list_leftovers(self) -> list[str]:
        files, directory = self._context.files, self._log.directory
        return [*deleted_names(files, directory), *aside_names(files, directory)]

    def _remove_leftovers(self) -> list[str]:
        """Remove the files that might hold such a record: for bytes that were cut off this cannot be decided.
        Also clear the batch cache."""
        files, directory = self._context.files, self._log.directory
        with self._log.guard.own_lock(), self._log.guard as core, self._log.removal.lock:
            self._check()
            self._log.gathering.write_before_waiting_locked()
            core.keep_retired_open()
            remove_strays(files, directory, ())
            names = self._list_leftovers()
            for name in names:
                files.remove(f"{directory}/{name}")
            core.clear_rest()
            files.flush_directory(directory)
        self._context.batches.clear()
        return names

    # Steps

    def _reading(self, source: Source) -> Iterator[SourcePiece]:
        for piece in source.pieces():
            self._check()
            self._done_bytes += piece.end
            if self._on_progress is not None:
                self._on_progress(EraseProgress(self._log.partition, self._done_bytes, self._total_bytes))
            yield piece

    @contextlib.contextmanager
    def _unless_deleted(self, source: Source) -> Iterator[None]:
        """Ignore an error if retention has deleted the segment meanwhile: then its records are gone."""
        try:
            yield
        except (CorruptionError, StorageError):
            self._check()
            if source.segment.base_offset >= self._core.view.bases[0]:
                raise

    def _end_was_cut(self) -> RetriableError:
        return RetriableError(
            f"the end of {self._log.partition} was cut while records were erased; call again"
        )


def _erase(
    eraser: BatchEraser, source: Source, piece: SourcePiece, at: int, header: BatchHeader
) -> bytearray:
    """See :meth:`BatchEraser.erase`."""
    try:
        return eraser.erase(piece.buffer, at, header)
    except CorruptionError as error:
        raise source.place(error, piece, at, header) from None
