"""What a compaction and an erasure say of themselves, while they run and at their end. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from logstore.model import TopicPartition

Throttle = Callable[[int], object]
"""Called with the bytes that were read and written since the last call, after every step of at most some
hundred KiB or one batch. It may sleep, or raise to abort the compaction."""


class CompactionProgress(NamedTuple):
    """How far a compaction is."""

    partition: TopicPartition
    round: int
    """From 1 on: one for each time that the offset map was filled."""
    done_bytes: int
    """Of this round: of the log, read to fill the map, and read again to clean."""
    total_bytes: int
    """Of this round; may grow a little while the map is filled."""


OnCompactionProgress = Callable[[CompactionProgress], object]
"""What it raises aborts the compaction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionReport:
    """What a compaction did; with ``dry_run``, would do. Sums over all its rounds.

    *Read* is what was looked at, *kept* what is left of that in the log, *written* what had to be written for
    it: a segment of which everything is kept stays as it is.
    """

    partition: TopicPartition
    is_dry_run: bool
    round_count: int
    """0: there was nothing to do, or not enough."""
    key_count: int
    """Keys in the offset map, all rounds together."""
    first_dirty_offset_before: int
    first_dirty_offset_after: int
    segment_count_before: int
    segment_count_after: int
    size_bytes_before: int
    """Of the log."""
    size_bytes_after: int
    read_bytes: int
    """Of the segments that were cleaned; not what was read to fill the map."""
    kept_bytes: int
    written_bytes: int
    read_batch_count: int
    kept_batch_count: int
    """Empty ones, kept for their producer or their offset, among them."""
    rewritten_batch_count: int
    """Kept with fewer records, with a delete horizon, or emptied."""
    joined_batch_count: int
    """Small ones of which larger ones were made; of ``kept_batch_count`` are those that were made."""
    read_record_count: int
    """Control records do not count; neither do those of batches that were kept without a look."""
    kept_record_count: int
    kept_tombstone_count: int
    removed_tombstone_count: int
    """They were the latest of their keys, and their time was over."""
    removed_marker_count: int
    removed_keyless_count: int
    removed_aborted_count: int
    """Records of aborted transactions."""
    elapsed_ms: int

    @property
    def saved_bytes(self) -> int:
        """By how much the log is smaller."""
        return self.size_bytes_before - self.size_bytes_after

    def _repr_html_(self) -> str:
        """What a notebook shows: the fields, without those that are 0 or empty."""
        from logstore.showing import show_report  # few programs get here

        return show_report(self)


MAX_LISTED_OFFSETS: Final = 1_000
"""How many offsets a report lists."""


class EraseProgress(NamedTuple):
    """How far an erasure is."""

    partition: TopicPartition
    done_bytes: int
    """Of the log, read to find the records, and read again to rewrite the segments that have any."""
    total_bytes: int
    """Grows once, when it is known which segments those are."""


OnEraseProgress = Callable[[EraseProgress], object]
"""What it raises aborts the erasure; segments that were rewritten before stay so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EraseReport:
    """What an erasure did; with ``dry_run``, would do."""

    partition: TopicPartition
    is_dry_run: bool
    record_count: int
    """Records erased. Those count too that nobody could read any more: of aborted transactions, and below the
    log start."""
    offsets: tuple[int, ...]
    """Of the first :data:`MAX_LISTED_OFFSETS` of them, ascending."""
    rewritten_batch_count: int
    """Batches that lost records."""
    emptied_batch_count: int
    """Of those, the ones that lost all: their headers stay."""
    rewritten_segment_count: int
    size_bytes_before: int
    """Of the log."""
    size_bytes_after: int
    removed_files: tuple[str, ...]
    """Names of files that were no part of the log, and were removed because they might have held such a
    record: what compaction, retention and truncation had left to be removed, and what recoveries had set
    aside."""
    elapsed_ms: int

    def _repr_html_(self) -> str:
        """What a notebook shows: the fields, without those that are 0 or empty."""
        from logstore.showing import show_report  # few programs get here

        return show_report(self)
