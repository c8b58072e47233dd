"""The steps that change a log, each disk first and then memory: this module removes and replaces.

The log's state is in :mod:`~logstore.partition.writing.log_state`, and its growth in
:mod:`~logstore.partition.writing.growth`.

A change that fails leaves everything as it was, with one exception: some steps must all be done once the
first is done (:meth:`LogState._all_or_reopen`). A failure between them calls ``poison``, because memory and
disk then disagree.

Callers hold the log's lock for every method; the exception is ``view``, which any thread may read at any
time. Nothing here waits, schedules or flushes data: :mod:`~logstore.partition.log` does that.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from weakref import WeakSet

from logstore.config import TopicConfig
from logstore.errors import DiskFullError, StorageError, UsageError
from logstore.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    segment_file_name,
)
from logstore.model import Role
from logstore.partition.recovery.leftovers import (
    list_segment_files,
    remove_strays,
    segment_bases,
    snapshot_offsets,
    undo_replacement,
)
from logstore.partition.segments.active import ActiveSegment, open_active
from logstore.partition.segments.segment import Segment
from logstore.partition.state import sidecars
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.producer_replay import ProducerSource
from logstore.partition.writing.growth import LogGrowth
from logstore.partition.writing.retention import SegmentFacts, plan_retention


def bytes_of(segments: Iterable[Segment]) -> int:
    """The size of the segments on disk. One that the disk refuses to measure counts as 0."""
    size_bytes = 0
    for segment in segments:
        with suppress(StorageError):
            size_bytes += segment.size_bytes
    return size_bytes


class LogCore(LogGrowth):
    """Every change of a log, under its lock."""

    # Removing from the front

    def plan_retention(self, now_ms: int, config: TopicConfig | None = None) -> int:
        """How many segments to delete by the limits of ``config``, or else of the topic."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.log_end_offset]
        facts = [
            SegmentFacts(segment.base_offset, end, segment.size_bytes, segment.newest_ms)
            for segment, end in zip(self.segments, ends, strict=True)
        ]
        return plan_retention(
            facts,
            config=config or self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )

    def limits_behind(self, count: int, now_ms: int) -> str:
        """The limits by which ``count`` segments are deleted, in words."""
        config = self.config
        timeless = replace(config, retention_ms=-1)
        by_size = self.plan_retention(now_ms, timeless)
        below_start = self.plan_retention(now_ms, replace(timeless, retention_bytes=-1))
        reasons = {
            f"log start offset {self.log_start_offset}": below_start > 0,
            f"retention_bytes={config.retention_bytes}": by_size > below_start,
            f"retention_ms={config.retention_ms}": count > max(by_size, below_start),
        }
        return ", ".join([reason for reason, is_one in reasons.items() if is_one])

    def delete_segments(self, count: int, now_ms: int, reason: str = "") -> list[str]:
        """Remove the first ``count`` segments; returns the renamed files, which the caller removes later.

        The log start is durable before a file changes its name: a crash in between loses nothing above it and
        brings nothing back from below it. ``reason`` goes into the log message; without it, the caller has
        logged the deletion.
        """
        self.context.home.check_held()
        if count == len(self.segments):
            self.roll(self.log_end_offset, now_ms)
        gone, kept = self.segments[:count], self.segments[count:]
        size_bytes = bytes_of(gone)
        self._settle_without(gone, kept[0].base_offset)  # only a snapshot knows producers whose batches go
        self.raise_log_start(max(self.log_start_offset, kept[0].base_offset))
        if reason:
            self.tell_deletion(gone[0].base_offset, kept[0].base_offset, size_bytes, reason)
        with self._all_or_reopen():
            self.segments = kept
            self.unflushed = [segment for segment in self.unflushed if segment not in gone]
            for base in [each for each in self.coming_snapshots if each < kept[0].base_offset]:
                del self.coming_snapshots[base]
            self.publish()
            renamed = self._rename_away(gone)
        self.counts.note_deletion(len(gone), size_bytes)
        return renamed

    def tell_deletion(self, start: int, stop: int, size_bytes: int, reason: str) -> None:
        """Log a deletion, once it can no longer be undone and before anything else can fail; as soon as the
        lock is free."""
        self.context.lines.inform(
            "%s: deleted offsets %d to %d, %d bytes: %s", self.partition, start, stop - 1, size_bytes, reason
        )

    def raise_log_start(self, offset: int) -> None:
        """Move the log start up, durably, and the epochs with it."""
        if offset <= self.log_start_offset:
            return
        self._store_log_start(offset)
        with self._all_or_reopen():
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.publish()
            epochs = LeaderEpochs(self.epochs.entries)
            epochs.truncate_from_start(offset)
            self.replace_epochs(epochs)

    def _store_log_start(self, offset: int) -> None:
        home = self.context.home
        home.check_held()  # before the snapshots, which may be the first that is written for long
        going = [segment for segment, after in pairwise(self.segments) if after.base_offset <= offset]
        self._settle_without(going, self.segments[len(going)].base_offset)
        self._making_room(lambda: home.store_log_start(self.partition, offset), going)

    def _settle_without(self, going: Sequence[Segment], base_offset: int) -> None:
        self._making_room(lambda: self.settle_beginning(base_offset), going)

    def _making_room(self, store: Callable[[], None], going: Sequence[Segment]) -> None:
        """Call ``store``. If the disk is full, remove the indexes of the segments that go and try again:
        indexes can be rebuilt."""
        try:
            store()
        except DiskFullError:
            if not sum(segment.remove_indexes() for segment in going):
                raise
            store()

    def _rename_away(self, gone: Sequence[Segment]) -> list[str]:
        renamed = self._retire(gone)
        self._remove_snapshots(self.segments[0].base_offset)
        self.context.files.flush_directory(self.directory)
        return renamed

    # Replacing

    def replace_segments(
        self, old: Sequence[Segment], base_offset: int, kinds: Sequence[str], *, keeps_markers: bool = False
    ) -> list[str]:
        """Replace consecutive sealed segments by the ``.cleaned`` files of one segment with this base.
        ``kinds`` are the suffixes of its files, which are already flushed, the log last. Returns the renamed
        files of the old segments, as :meth:`delete_segments` does.

        Retention may have deleted the first of ``old`` meanwhile: the new segment then begins below the log
        start. If it deleted all of them, only the new files are removed. Readers under way go on with the old
        segments: see :meth:`Segment.keep_open`.

        With ``keeps_markers`` every batch is still there, with or without records, so the producer snapshots
        stay true.

        :mod:`~logstore.partition.recovery.leftovers` says what a crash leaves at each step. Before the last
        rename to ``.swap`` the old segments count, and a failure undoes the replacement; after it the new one
        counts.
        """
        self.context.home.check_held()
        self.settle()
        there = [segment for segment in old if segment in self.segments]
        if not there:
            undo_replacement(self.context.files, self.directory)
            return []
        first = self.segments.index(there[0])
        assert self.segments[first : first + len(there)] == tuple(there)
        assert there[-1] is not self.segments[-1]
        flush_directory, files = self.context.files.flush_directory, self.context.files
        paths = [f"{self.directory}/{segment_file_name(base_offset, kind)}" for kind in kinds]
        remove_strays(files, self.directory, [path + CLEANED_SUFFIX for path in paths])
        flush_directory(self.directory)
        self._begin_swap(there, paths)
        with self._all_or_reopen():
            flush_directory(self.directory)
            renamed = self._retire(there)
            flush_directory(self.directory)
            for path in reversed(paths):  # the log first
                files.rename(path + SWAP_SUFFIX, path)
                if path == paths[-1]:
                    flush_directory(self.directory)
            if not keeps_markers:
                for segment in there:  # its open transactions may rest on markers that are gone
                    self._remove_snapshot_of(segment)
            flush_directory(self.directory)
            new = Segment(files, self.directory, base_offset, self.context.open_segments)
            new.size_bytes  # noqa: B018 - remembers the size now, before the file is ever renamed
            self.segments = [*self.segments[:first], new, *self.segments[first + len(there) :]]
            self.unflushed = [segment for segment in self.unflushed if segment not in there]
            self.context.batches.drop([segment.number for segment in there])
            self.publish()
            self.replacement_count += 1
        return renamed

    def _begin_swap(self, old: Sequence[Segment], paths: Sequence[str]) -> None:
        """Rename ``.cleaned`` to ``.swap``, the log last. A failure before that undoes the others."""
        try:
            for segment in old:
                segment.keep_open()
            for path in paths:
                self.context.files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        except StorageError:
            for segment in old:
                segment.stop_keeping()
            with self._all_or_reopen():
                undo_replacement(self.context.files, self.directory)
            raise

    def keep_retired_open(self) -> None:
        """Keep retired segments open, so that their readers can go on when the files are removed."""
        for segment in list(self._retired):
            try:
                segment.keep_open()
            except StorageError as error:
                if error.errno != errno.ENOENT:  # else it is gone already
                    raise

    def forget_removed(self, paths: Collection[str]) -> None:
        """Close the segments whose files were removed: the disk cannot free an open file."""
        for segment in list(self._retired):
            if segment.path in paths:
                segment.leave_cache()

    def _retire(self, segments: Sequence[Segment]) -> list[str]:
        """Rename segments away; their readers go on under the new names. An earlier segment with the same
        base may have had such a name: its readers must not find the files of the new one."""
        bases = {segment.base_offset for segment in segments}
        for before in [each for each in self._retired if each.base_offset in bases]:
            before.lose_files()
        self._retired = WeakSet([*self._retired, *segments])
        return [path for segment in segments for path in segment.rename_files(DELETED_SUFFIX)]

    def _remove_snapshot_of(self, segment: Segment) -> None:
        path = sidecars.snapshot_path(self.directory, segment.base_offset)
        if self.context.files.is_file(path):
            self.context.files.remove(path)

    # Removing from the end

    def truncate_to(self, offset: int, now_ms: int, reason: str) -> list[str]:
        """Drop every batch whose last offset is at or above ``offset``, which becomes the log end. Returns
        the renamed files, as :meth:`delete_segments` does.

        The stored recovery point is lowered first: if it were above the cut after a crash, the missing end
        would look like damage. A batch is dropped whole, so the offsets of its records below ``offset`` stay
        unused; a new segment then begins at ``offset``, and its name keeps the log end.
        """
        self._check_taken_away()
        self.settle()
        leader_epoch = self._epoch_after_cut()
        cut_segments = [segment for segment in self.segments if segment.base_offset > offset]
        kept = self.segments[: len(self.segments) - len(cut_segments)]
        self.context.home.lower_recovery_point(self.partition, kept[-1].base_offset)
        self.context.home.lower_cleaner_offset(self.partition, offset)
        self._lower_high_watermark(offset)
        active = self._as_active(kept[-1], now_ms)
        with self._all_or_reopen():
            self.truncations.count += 1
            self._forget_batches()
            self.durable_offset = min(self.durable_offset, active.base_offset)
            self.segments = [*kept[:-1], active]
            self.unflushed = [segment for segment in self.unflushed if segment in self.segments]
            old_end, old_bytes = self.log_end_offset, active.size_bytes
            self.leader_epoch = leader_epoch  # first: a fetch that names the old one is fenced
            end = active.hide_from(offset)
            self._show_end(max(end, self.log_start_offset))
            cut_bytes = old_bytes - active.size_bytes + bytes_of(cut_segments)
            self.tell_deletion(end, old_end, cut_bytes, reason)
            renamed = self._rename_all(cut_segments)
            active.truncate_to(offset, now_ms)
            self._finish_truncation(offset)
            if end < offset and active.base_offset < offset:
                self.roll(offset, now_ms)
            self._tell_followers(self.log_end_offset)
            self.publish()
            return renamed

    def _epoch_after_cut(self) -> int:
        """The leader epoch in which the log goes on when its end is cut off: other records than readers have
        seen take the offsets. It is on disk before."""
        if self.role is not Role.ALONE:
            return self.leader_epoch
        return self.context.home.begin_epoch(self.leader_epoch)

    def _lower_high_watermark(self, offset: int) -> None:
        """Before a cut: a follower gets other records at these offsets afterwards than those replicated."""
        if self.role is not Role.ALONE:
            self.context.home.lower_high_watermark(self.partition, offset)

    def _show_end(self, end: int) -> None:
        """Hide everything behind ``end`` from readers from now on, even if the change under way fails."""
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.durable_offset = min(self.durable_offset, end)
        self.publish()

    def _tell_followers(self, offset: int) -> None:
        """That the log was cut, and goes on at ``offset``. After the cut, so that none begins in between with
        what goes, and before anything is appended."""
        self.truncations.note(offset)
        sidecars.write_cuts(self.context.files, self.directory, self.truncations.cuts)

    def _as_active(self, segment: Segment, now_ms: int) -> ActiveSegment:
        if isinstance(segment, ActiveSegment):
            return segment
        active = self.new_active(segment.base_offset, now_ms)
        open_active(active).use_contents(segment.size_bytes)
        active.take_over_failure(segment)
        segment.leave_cache()
        segment.disown_files()
        return active

    def _rename_all(self, segments: Sequence[Segment]) -> list[str]:
        """From the last to the first: a crash in between leaves a log without a hole."""
        renamed = []
        for segment in reversed(segments):
            renamed += self._retire([segment])
            self.context.files.flush_directory(self.directory)
        return renamed

    def _finish_truncation(self, offset: int) -> None:
        """Bring epochs, log start, producers and snapshots in line with a log that ends at ``offset``."""
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_end(offset)
        self.replace_epochs(epochs)
        if self.log_start_offset > offset:
            self.context.home.store_log_start(self.partition, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self._remove_snapshots(self.segments[0].base_offset, offset)
        self.last_snapshot_offset = -1
        names = list_segment_files(self.context.files, self.directory)
        now_ms = self.context.clock.now_ms()
        source = ProducerSource(
            self.context.files,
            self.directory,
            self.segments,
            offset,
            now_ms,
            high_watermark=self.high_watermark,
        )
        self.producers = source.rebuild(snapshot_offsets(names), store_found=False)

    def start_over(self, offset: int, log_start_offset: int | None, now_ms: int, reason: str) -> list[str]:
        """Drop everything and go on at ``offset``. The new segment is created before the old ones go.

        The recovery point is lowered below all of them first: after a crash that leaves some of them, a
        higher one would make the log look damaged.
        """
        self._check_taken_away()
        leader_epoch = self._epoch_after_cut()
        old = [*self._left_out(), *self.segments]
        lowest = min(old[0].base_offset, offset)
        self.context.home.lower_recovery_point(self.partition, lowest)
        self.context.home.lower_cleaner_offset(self.partition, lowest)
        self._lower_high_watermark(lowest)
        with self._all_or_reopen():
            start = offset if log_start_offset is None else log_start_offset
            self.leader_epoch = leader_epoch  # first: a fetch that names the old one is fenced
            return self._start_over(old, offset, start, now_ms, reason)

    def _check_taken_away(self) -> None:
        """Before the end of the log is taken away. A node that another leader tells what to cut follows it by
        then.

        Raises:
            UsageError: a node leads the log: its followers would cut the same off, acknowledged or not.
        """
        home = self.context.home
        home.check_held()
        if home.is_node_here and self.role is Role.LEADER:
            raise UsageError(
                f"{self.partition}: this node leads it, and all replicas would lose what is cut off here, "
                "acknowledged or not. Delete the topic, or stop the node first: then others lead, with what "
                "they have"
            )
        if home.is_of_absent_node:  # it must not lead with less than it had
            home.note_loss()

    def _left_out(self) -> list[Segment]:
        """Deleted segments that a crash brought back: the opening left them out of the log, and their files
        wait for retention. Files above a new log end would come back as its records."""
        files, first = self.context.files, self.segments[0].base_offset
        bases = segment_bases(list_segment_files(files, self.directory))
        return [
            Segment(files, self.directory, base, self.context.open_segments) for base in bases if base < first
        ]

    def _start_over(
        self, old: Sequence[Segment], offset: int, log_start_offset: int, now_ms: int, reason: str
    ) -> list[str]:
        self.truncations.count += 1
        self._forget_batches()
        old_end, size_bytes = self.log_end_offset, bytes_of(old)
        self._show_end(self.log_start_offset)
        if size_bytes:
            self.tell_deletion(old[0].base_offset, old_end, size_bytes, reason)
        renamed = self._rename_all([segment for segment in old if segment.base_offset == offset])
        fresh = self.new_active(offset, now_ms)
        fresh.create()
        self.context.home.store_log_start(self.partition, log_start_offset)
        renamed += self._rename_all([segment for segment in old if segment.base_offset != offset])
        self._remove_snapshots(2**63 - 1)
        self.segments = [fresh]
        self.unflushed = []
        self.last_snapshot_offset = -1
        self.coming_snapshots.clear()
        self.producers.clear(offset)
        self.replace_epochs(LeaderEpochs())
        self._tell_followers(offset)
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.high_watermark = self.durable_offset = offset
        self.publish()
        return renamed
