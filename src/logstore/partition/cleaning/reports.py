"""The progress and the reports of compactions and erasures. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from logstore.model import TopicPartition

Throttle = Callable[[int], object]
"""Called after each step with the number of bytes read or written: about 1 MiB at most, or one batch if it is
larger. It may sleep, or raise to abort the compaction."""


class CompactionProgress(NamedTuple):
    """The progress of a compaction."""

    partition: TopicPartition
    round: int
    """The number of the round, from 1: the offset map is filled once in each."""
    done_bytes: int
    """Bytes of the log that this round has read, to fill the map and again to compact."""
    total_bytes: int
    """Bytes that this round has to read; may grow a little while the map is filled."""


OnCompactionProgress = Callable[[CompactionProgress], object]
"""An exception in it aborts the compaction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionReport:
    """What a compaction did; with ``dry_run``, what it would do. All rounds are added up.

    *Read* counts what was read, *kept* how much of that stays in the log, *written* what was written for it.
    A segment that is kept whole is not rewritten.
    """

    partition: TopicPartition
    is_dry_run: bool
    round_count: int
    """0 if there was nothing to do, or not enough."""
    key_count: int
    """Keys in the offset map, all rounds together."""
    first_dirty_offset_before: int
    first_dirty_offset_after: int
    segment_count_before: int
    segment_count_after: int
    size_bytes_before: int
    """The size of the log."""
    size_bytes_after: int
    read_bytes: int
    """Bytes of the segments that were compacted; those read to fill the map do not count."""
    kept_bytes: int
    written_bytes: int
    read_batch_count: int
    kept_batch_count: int
    """Includes empty ones, which are kept for their producer or their offset."""
    rewritten_batch_count: int
    """Batches that lost records, got a delete horizon, or were emptied."""
    joined_batch_count: int
    """Small batches that were joined into larger ones. ``kept_batch_count`` counts the larger ones."""
    read_record_count: int
    """Without control records, and without those in batches that were kept without decoding."""
    kept_record_count: int
    kept_tombstone_count: int
    removed_tombstone_count: int
    """Tombstones that were the latest of their keys and had expired (``delete_retention_ms``)."""
    removed_marker_count: int
    removed_keyless_count: int
    removed_aborted_count: int
    """Records of aborted transactions."""
    elapsed_ms: int

    @property
    def saved_bytes(self) -> int:
        """By how many bytes the log became smaller."""
        return self.size_bytes_before - self.size_bytes_after

    def _repr_html_(self) -> str:
        """What a notebook shows: the fields, without those that are 0 or empty."""
        from logstore.showing import show_report  # few programs get here

        return show_report(self)


MAX_LISTED_OFFSETS: Final = 1_000
"""How many offsets a report lists."""


class EraseProgress(NamedTuple):
    """The progress of an erasure."""

    partition: TopicPartition
    done_bytes: int
    """Bytes of the log that were read, to find the records and again to rewrite their segments."""
    total_bytes: int
    """Bytes to read. Grows once, when it is known which segments to rewrite."""


OnEraseProgress = Callable[[EraseProgress], object]
"""An exception in it aborts the erasure; segments that were rewritten before stay so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EraseReport:
    """What an erasure did; with ``dry_run``, what it would do."""

    partition: TopicPartition
    is_dry_run: bool
    record_count: int
    """Records that were erased, including those that could no longer be read: of aborted transactions, and
    below the log start."""
    offsets: tuple[int, ...]
    """The offsets of the first 1,000 of them (:data:`MAX_LISTED_OFFSETS`), ascending."""
    rewritten_batch_count: int
    """Batches that lost records."""
    emptied_batch_count: int
    """The rewritten batches that lost all records; their headers stay."""
    rewritten_segment_count: int
    size_bytes_before: int
    """The size of the log."""
    size_bytes_after: int
    removed_files: tuple[str, ...]
    """Files that were no longer part of the log and might have held such a record, and were therefore
    removed: those that compaction, retention and truncation had left to be removed, and those that recoveries
    had kept."""
    elapsed_ms: int

    def _repr_html_(self) -> str:
        """What a notebook shows: the fields, without those that are 0 or empty."""
        from logstore.showing import show_report  # few programs get here

        return show_report(self)
