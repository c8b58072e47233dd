"""What an erasure says of itself, while it runs and at its end. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from logstore.model import TopicPartition

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
