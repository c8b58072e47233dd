"""The state of a log: its segments, offsets, producers and epochs, and the view of it that readers get.

The steps in this module change only this state, or the files beside the records. Growth is in
:mod:`~logstore.partition.writing.growth`, the rest in :mod:`~logstore.partition.writing.core`.

Callers hold the log's lock for every method; the exception is ``view``, which any thread may read at any
time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from logstore.config import TopicConfig
from logstore.counting import LogCounts
from logstore.errors import LeaderFencedError, UnknownLeaderEpochError, UsageError
from logstore.format.snapshot import ProducerSnapshotEntry
from logstore.model import IS_REPLICA, Role, TopicPartition
from logstore.partition.reading.view import LogView, Truncations
from logstore.partition.recovery.leftovers import list_snapshots
from logstore.partition.recovery.loaded import LoadedLog
from logstore.partition.segments.active import ActiveSegment
from logstore.partition.segments.segment import Segment
from logstore.partition.state import sidecars
from logstore.partition.state.context import LogContext
from logstore.partition.state.leader_epochs import EPOCHS_ELSEWHERE, LeaderEpochs
from logstore.partition.writing.waits import Waits

_EPOCHS_IN_REACH: Final = 1_000 * EPOCHS_ELSEWHERE
"""So many leader epochs a directory may have gone on since it was copied."""
_STORED_SNAPSHOTS: Final = 16
"""At a time: each waits for the disk."""
_COMING_SNAPSHOTS: Final = 128
"""In memory, of those that know no producer: twice as many until they are thinned out."""


class Copied(NamedTuple):
    """What clients have read elsewhere of a log whose directory is a copy."""

    latest_here: int
    """The latest leader epoch that the copy knew."""
    goes_on_in: int
    """What is between the two was given elsewhere."""
    epoch: int
    end_offset: int
    """Up to where the log is what they have read, and the epoch of that: what came here since it was opened
    is not."""


class LogState:
    """Segments, offsets, producers and epochs of one log."""

    # Objects of a class share the names of up to 30 attributes; with more each takes 1.6 KB for its own.
    __slots__ = (
        "_are_epochs_stored",
        "_bases",
        "_had_gaps",
        "_is_epoch_file_unknown",
        "_opened_end_offset",
        "_opened_high_watermark",
        "_poison",
        "_retired",
        "_segments",
        "active",
        "coming_snapshots",
        "config",
        "context",
        "copied",
        "counts",
        "directory",
        "durable_name_count",
        "durable_offset",
        "epochs",
        "has_put_off",
        "high_watermark",
        "last_snapshot_offset",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "may_wait",
        "new_name_count",
        "partition",
        "producers",
        "replacement_count",
        "role",
        "stored_role",
        "truncations",
        "unflushed",
        "view",
        "view_of_clean_stop",
        "waits",
    )

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        loaded: LoadedLog,
        waits: Waits,
        poison: Callable[[BaseException], None],
    ) -> None:
        self.context = context
        self.directory = directory
        self.partition = partition
        self.config = config
        self.counts = LogCounts()
        """What the log has done since it was opened."""
        self.segments = loaded.segments
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.durable_offset = loaded.log_end_offset
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self._had_gaps = loaded.may_have_gaps
        self.leader_epoch = loaded.leader_epoch
        """The epoch stamped on appends."""
        self.copied: Copied | None = None
        """What is known since :meth:`outgrow`."""
        self._are_epochs_stored = True
        """False while the epoch file may differ: the next checkpoint writes it first."""
        self._is_epoch_file_unknown = False
        """Whether the epoch file may have epochs without records: the next append writes it first."""
        self.waits = waits
        """Told of each view that readers get."""
        self._poison = poison
        self.role = self.stored_role = loaded.role
        """``stored_role`` is what the next open finds. A log that leads for now has a follower's."""
        """Known before the log is used: records that other replicas lack are neither shown nor removed."""
        ends = loaded.log_start_offset, loaded.log_end_offset
        self._opened_high_watermark = sidecars.replicated_below(Role.LEADER, loaded.high_watermark, *ends)
        self._opened_end_offset = loaded.log_end_offset
        self.high_watermark = self._opened_high_watermark
        self.unflushed: list[Segment] = []
        """Sealed segments with data above the durable offset."""
        self.new_name_count = int(loaded.is_settled and not loaded.report.was_clean)
        """How many segments were created without flushing their names. And one where a crash may have come
        between a removal and the flush of the directory, and the open had nothing to flush: a segment that a
        failed roll had made would come back, and what is behind its base would count as left over."""
        self.durable_name_count = 0
        self.coming_snapshots: dict[int, list[ProducerSnapshotEntry]] = {}
        """Producer snapshots as of the base of a segment that are not in a file yet."""
        self.may_wait = True
        """Whether the current change may wait for an fsync."""
        self.has_put_off = False
        """Whether a change would have had to wait, and was put off instead."""
        self.truncations = Truncations(loaded.cuts)
        """Counts truncations: a flush that began before one says nothing about later records."""
        self.last_snapshot_offset = loaded.producers.snapshot_offset if loaded.is_settled else -1
        self.replacement_count = 0
        """How often segments were replaced; it grows after the view shows the change."""
        self._retired: Collection[Segment] = ()
        """Segments that left the log and were renamed to ``.deleted``, but still have readers. From the first
        one on these are weak references."""
        self.view: LogView
        self.publish()
        self.view_of_clean_stop = self.view if loaded.report.was_clean else None
        """While this is still the current view, closing has nothing to store: the last close did that."""

    @contextmanager
    def _all_or_reopen(self) -> Iterator[None]:
        """Steps that belong together: an error in one of them makes the log refuse changes until it is opened
        again and reads its state from disk."""
        try:
            yield
        except BaseException as error:
            self._poison(error)
            raise

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Ascending, never empty; the last one is active."""
        return self._segments

    @segments.setter
    def segments(self, segments: Sequence[Segment]) -> None:
        active = segments[-1]
        assert isinstance(active, ActiveSegment)
        self._segments = tuple(segments)
        self.active = active
        self._bases = tuple([segment.base_offset for segment in segments])

    def publish(self) -> None:
        """Show the current state to readers, in one assignment."""
        if self.role is Role.ALONE:
            self.high_watermark = self.log_end_offset
        high_watermark = stable = self.high_watermark
        producers = self.producers
        if producers.open_transactions or producers.unreplicated:
            stable = producers.last_stable_offset(high_watermark)
        start = self.log_start_offset
        fields = (
            self._segments,
            self._bases,
            self.active.size_bytes,
            start,
            self.log_end_offset,
            high_watermark,
            stable if stable > start else start,
            self.durable_offset,
            self.truncations,
            self.truncations.count,
            None,
            self.partition,
        )
        self.view = tuple.__new__(LogView, fields)  # once per append: a third of the cost of LogView(*fields)
        if self.waits.watchers is not None:
            self.waits.note_view(self.view)

    @property
    def known_high_watermark(self) -> int:
        """The high watermark to store. A log without a role that has not grown since it was opened may belong
        to a broker, as one of several replicas. Its stored high watermark then stays, even if the log goes
        further."""
        if self.role is not Role.ALONE or self.log_end_offset > self._opened_end_offset:
            return self.high_watermark
        return max(min(self._opened_high_watermark, self.log_end_offset), self.log_start_offset)

    def set_role(self, role: Role) -> None:
        """Store the log's new role, then take it on.

        The high watermark is stored before the role: a crash in between leaves a log that is alone, for which
        a high watermark means nothing. When the log stops being replicated, the high watermark moves after
        the role was stored: a crash in between leaves it where it was, or at the end.
        """
        known = self.known_high_watermark
        if self.role is Role.ALONE and known > self.log_start_offset:  # without one it is the log start
            self.context.home.store_high_watermark(self.partition, known)
        sidecars.prepare_role(self.context.files, self.directory, role)
        with self._all_or_reopen():  # a failure leaves the old role, the new one, or neither
            sidecars.put_role(self.context.files, self.directory, role)
            self._opened_end_offset = -1
            self.role = self.stored_role = role
            if role is Role.FOLLOWER:  # what it has not written in is not what its leader must be beyond
                self.leader_epoch = max(self.epochs.latest_epoch, 0)
            elif role is Role.ALONE:
                self.leader_epoch = max(self.leader_epoch, self.context.home.leader_epoch)
            self.high_watermark = known
            self._had_gaps = self._had_gaps or role is Role.FOLLOWER
            self.publish()

    def lead(self, epoch: int) -> None:
        """Lead in a new epoch from the log end on, for now: nothing is stored. What is appended carries the
        epoch, so a recovery finds it there."""
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.assign(epoch, self.log_end_offset)
        if epochs.entries != self.epochs.entries:
            self.epochs, self._are_epochs_stored = epochs, False
        self.leader_epoch, self.role = epoch, Role.LEADER
        self.publish()

    def stop_leading(self) -> None:
        """See :meth:`.Log.stop_leading`."""
        self.role = Role.FOLLOWER
        self.publish()

    def forget_files(self) -> None:
        """Close all open files; a reader under way keeps the ones it uses until it is done."""
        self._forget_batches()
        for segment in (*self.segments, *self._retired):
            segment.leave_cache()
        for segment in self.segments:
            segment.forget_files()

    def lose_files(self) -> None:
        """Like :meth:`forget_files`, if another log's files may take the names: no reader reopens them."""
        for segment in (*self.segments, *self._retired):
            segment.lose_files()
        self.forget_files()

    def _forget_batches(self) -> None:
        """Free the cached batches that no reader will ask for again."""
        self.context.batches.drop([segment.number for segment in self.segments])

    # Epochs

    def replace_epochs(self, epochs: LeaderEpochs) -> None:
        """Store a changed history, then use it."""
        if epochs.entries != self.epochs.entries or not self._are_epochs_stored:
            self._are_epochs_stored = False
            self._is_epoch_file_unknown = True  # a failure leaves the old file or the new one
            sidecars.write_epochs(self.context.files, self.directory, epochs)
            self._are_epochs_stored = True
            self._is_epoch_file_unknown = False
            self.epochs = epochs

    def assign_epoch(self, epoch: int) -> None:
        """Begin a new leader epoch at the log end."""
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.assign(epoch, self.log_end_offset)
        self.replace_epochs(epochs)
        self.leader_epoch = epoch

    def is_outgrown_by(self, epoch: int) -> bool:
        """Whether somebody was told of a later leader epoch than there was here: the directory is a copy of
        one that has gone on. Only an epoch in reach counts, and once: a client that makes one up is not to
        use up those that there are."""
        is_later = self.leader_epoch < epoch < self.leader_epoch + _EPOCHS_IN_REACH
        return is_later and self.role is Role.ALONE and self.copied is None and self.context.home.gives_epochs

    def outgrow(self, epoch: int) -> None:
        """Go on in a leader epoch that no client can have seen. Only if :meth:`is_outgrown_by`."""
        opened_end = self._opened_end_offset
        end = self.log_end_offset if opened_end < 0 else min(opened_end, self.log_end_offset)
        known = self.epochs.epoch_for_offset(end - 1)
        latest = max(epoch, self.leader_epoch + EPOCHS_ELSEWHERE)
        now = self.context.home.begin_epoch(latest)
        self.copied = Copied(self.leader_epoch, now, 0 if known is None else known, end)
        self.leader_epoch = now

    def check_no_replica(self) -> None:
        """Before a follower's log gets records that no leader has sent. The leader may append others there in
        the same epoch, and then nothing would ever show that the replicas differ.

        Raises:
            UsageError: it is a replica of a node, which does not lead it.
        """
        if self.context.home.is_of_node:
            raise UsageError(f"{self.partition}: {IS_REPLICA}")

    def check_leader_epoch(self, expected: int | None) -> None:
        """
        Raises:
            LeaderFencedError: the log has a newer epoch than the caller.
            UnknownLeaderEpochError: the caller has a newer one.
        """
        if expected is None or expected == self.leader_epoch:
            return
        told = f"leader epoch {expected} is expected, and {self.partition} has {self.leader_epoch}"
        if expected < self.leader_epoch:
            raise LeaderFencedError(f"{told}: there is a newer leader")
        raise UnknownLeaderEpochError(f"{told}: it has not heard of the newer one yet")

    def follow_epochs(self) -> None:
        """Take over the newest epoch of the batches that a leader has sent."""
        if self.epochs.entries:
            self.leader_epoch = self.epochs.latest_epoch

    def cut_epochs(self) -> None:
        """Forget the epochs that begin at or above the log end: nothing was written in them."""
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_end(self.log_end_offset)
        self.replace_epochs(epochs)

    # Made durable after the records

    def flush_names(self) -> None:
        """Make the names of new segments durable. Works without the lock, too."""
        count = self.new_name_count
        if count > self.durable_name_count:
            self.context.files.flush_directory(self.directory)
            self.durable_name_count = max(count, self.durable_name_count)

    def settle(self, end: int | None = None) -> None:
        """Store epochs, and the snapshots up to ``end``. No append waits for them, but the recovery point
        must not pass them. After a crash before this step, the batches above the recovery point still tell
        the same."""
        if not self._are_epochs_stored:
            self.replace_epochs(self.epochs)
        coming = sorted(each for each in self.coming_snapshots if end is None or each <= end)
        for offset in self._without_most(coming, _STORED_SNAPSHOTS):
            self.store_snapshot(offset)
        for offset in coming:
            self.coming_snapshots.pop(offset, None)

    def settle_beginning(self, offset: int) -> None:
        """The part of :meth:`settle` that is needed before anything below ``offset``, the base of a segment,
        may go. It takes little room on a full disk."""
        if not self._are_epochs_stored:
            self.replace_epochs(self.epochs)
        if offset in self.coming_snapshots:
            self.store_snapshot(offset)

    # Producer snapshots

    @property
    def settles_slowly(self) -> bool:
        """Whether :meth:`settle` has so many snapshots to store that appends are not to wait for it."""
        return sum(map(bool, self.coming_snapshots.values())) > _STORED_SNAPSHOTS

    def note_coming_snapshot(self, base_offset: int) -> None:
        """A segment begins."""
        coming = self.coming_snapshots
        coming[base_offset] = self.producers.snapshot_entries()
        if not coming[base_offset] and len(coming) > 2 * _COMING_SNAPSHOTS:
            kept = self._without_most(sorted(coming), _COMING_SNAPSHOTS)
            self.coming_snapshots = {each: coming[each] for each in kept}

    def _without_most(self, coming: Sequence[int], count: int) -> list[int]:
        """Where very many segments begin between two flushes, those that know no producer get no snapshot,
        except for the newest: from any place the batches behind an earlier one tell the same."""
        return [each for each in coming[:-count] if self.coming_snapshots[each]] + list(coming[-count:])

    def store_snapshot(self, offset: int, known: Sequence[int] | None = None) -> None:
        """Write the producers' state as of ``offset``: the log end, or the base of a segment begun since the
        last :meth:`settle`. A snapshot inside a segment replaces the one before it. ``known`` are the offsets
        of the others, if the caller has just looked."""
        entries = self.coming_snapshots.get(offset)
        if entries is None:
            entries = self.producers.snapshot_entries()
        sidecars.write_snapshot(self.context.files, self.directory, offset, entries)
        self.coming_snapshots.pop(offset, None)
        bases = {segment.base_offset for segment in self.segments}
        if known is None:
            known = list_snapshots(self.context.files, self.directory)
        for previous in known:
            if previous != offset and previous not in bases:
                self.context.files.remove(sidecars.snapshot_path(self.directory, previous))
        self.last_snapshot_offset = offset

    def _remove_snapshots(self, low: int, high: int | None = None) -> None:
        """Remove the snapshots below ``low`` and, if given, above ``high``."""
        for offset in list_snapshots(self.context.files, self.directory):
            if offset < low or (high is not None and offset > high):
                self.context.files.remove(sidecars.snapshot_path(self.directory, offset))
