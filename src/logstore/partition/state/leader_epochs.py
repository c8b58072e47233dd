"""A partition's leader epochs: which leader wrote which offsets.

It knows the history of (epoch, start offset) and the rules by which it grows, is cut, and answers where two
histories diverge (KIP-101, KIP-279). It does not store itself: a method that returns True changed the
history, and its caller writes ``leader-epoch-checkpoint``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from logstore.errors import UsageError
from logstore.format.checkpoint import EpochEntry
from logstore.format.header import NO_EPOCH, BatchHeader

EPOCHS_ELSEWHERE: Final = 1_000
"""By so many leader epochs a log jumps where a copy takes the place of its original, which may have begun
some since that the copy does not know."""

UNDEFINED = (-1, -1)
"""The answer of :meth:`LeaderEpochs.end_offset_for` if this history cannot tell."""


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset


class LeaderEpochs:
    """Entries whose epochs and start offsets both rise strictly.

    A change replaces the tuple of entries in one assignment, so readers need no lock. Callers that change it
    hold the log's lock.

    Raises:
        UsageError: the entries do not rise, or are negative.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries = tuple(entries)
        """The history, oldest first. A change replaces the tuple."""
        for earlier, later in pairwise((EpochEntry(-1, -1), *self.entries)):
            if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
                raise UsageError(f"leader epochs must rise: {tuple(later)} after {tuple(earlier)}")
        self.latest_epoch = self.entries[-1].epoch if self.entries else NO_EPOCH
        """The newest epoch; -1 if there is none."""

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` wrote from ``start_offset`` on. Returns whether the history changed.

        Nothing changes if that is the latest epoch and it began no later. Otherwise every entry that is not
        older in both epoch and start offset is wrong and is removed.

        Raises:
            UsageError: a negative epoch or offset.
        """
        if epoch < 0 or start_offset < 0:
            raise UsageError(f"leader epoch {epoch} at offset {start_offset}: both must be 0 or more")
        entries = self.entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        kept = min(
            bisect_left(entries, epoch, key=_epoch), bisect_left(entries, start_offset, key=_start_offset)
        )
        return self._replace((*entries[:kept], EpochEntry(epoch, start_offset)))

    def note(self, headers: Iterable[BatchHeader]) -> None:
        """Add the epochs of a log's batches, in their order: each one that is newer than all before."""
        for header in headers:
            if header.partition_leader_epoch > self.latest_epoch:
                self.assign(header.partition_leader_epoch, header.base_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Where the log of ``epoch`` ends: the largest known epoch at or below it, and the first offset that
        does not belong to that epoch.

        ========================= ========================================================
        ``epoch``                 answer
        ========================= ========================================================
        -1, or no history         UNDEFINED
        the latest                (latest, log end offset)
        above the latest          UNDEFINED: this log is behind
        below the first           (``epoch``, first start offset)
        otherwise                 (largest known epoch <= ``epoch``, start of the next one)
        ========================= ========================================================
        """
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return UNDEFINED
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=_epoch)
        known_epoch = entries[following - 1].epoch if following else epoch
        return known_epoch, entries[following].start_offset

    def with_next(self, epoch: int, start_offset: int) -> LeaderEpochs:
        """This history, where a later epoch begins at ``start_offset``. The history itself stays."""
        changed = LeaderEpochs(self.entries)
        changed.assign(epoch, start_offset)
        return changed

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote ``offset``; None before the first known one."""
        entries = self.entries
        count = bisect_right(entries, offset, key=_start_offset)
        return entries[count - 1].epoch if count else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that began at or after ``end_offset``. Does nothing if that is negative."""
        if end_offset < 0:
            return False
        return self._replace(self.entries[: bisect_left(self.entries, end_offset, key=_start_offset)])

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget everything before ``start_offset``; the epoch that wrote it now begins there. Does nothing
        if that is negative."""
        if start_offset < 0:
            return False
        entries = self.entries
        dropped = bisect_right(entries, start_offset, key=_start_offset)
        if not dropped:
            return False
        return self._replace((EpochEntry(entries[dropped - 1].epoch, start_offset), *entries[dropped:]))

    def keep_between(self, start_offset: int, end_offset: int) -> bool:
        """Both :meth:`truncate_from_end` and :meth:`truncate_from_start`."""
        was_cut = self.truncate_from_end(end_offset)
        return self.truncate_from_start(start_offset) or was_cut

    def go_back(self, entries: tuple[EpochEntry, ...]) -> bool:
        """Have the entries of before."""
        return self._replace(entries)

    def clear(self) -> bool:
        """Forget everything, as after a batch of magic 0 or 1, which has no epoch."""
        return self._replace(())

    def _replace(self, entries: tuple[EpochEntry, ...]) -> bool:
        changed = entries != self.entries
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_EPOCH
        return changed
