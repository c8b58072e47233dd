"""How much of a compacted log waits to be cleaned, and which of several logs is next: pure decisions.

A compacted log has a clean part, which was compacted, and behind it a dirty part. Between them lies the
cleaner's offset, which is stored beside the log. The part that may be cleaned ends before the active segment,
at the last stable offset, or at the first segment with a record younger than ``min_compaction_lag_ms``,
whichever is first. The rules are Kafka's. This module knows no files and no clock: sizes and times are
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from logstore.config import TopicConfig

_Named = TypeVar("_Named")


class CleanableFacts(NamedTuple):
    """The facts about a segment. The times are called only if they decide: they may read the segment."""

    base_offset: int
    next_base_offset: int
    """The base offset of the next segment; for the last segment, the log end offset."""
    size_bytes: int
    newest_ms: Callable[[], int]
    """Returns the largest record timestamp, or the file's modification time if no record has one."""
    oldest_ms: Callable[[], int]
    """Returns the timestamp of the first batch; -1 if it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dirtiness:
    """How much of a log waits for compaction."""

    first_dirty_offset: int
    """Everything below this offset was compacted before."""
    first_uncleanable_offset: int
    """Nothing from this offset on may be compacted now; at least ``first_dirty_offset``."""
    clean_bytes: int
    """Bytes of the segments below the dirty part."""
    cleanable_bytes: int
    """Bytes of the segments that are at least partly dirty and lie wholly below the first uncleanable
    offset."""
    is_overdue: bool
    """Whether a dirty record is older than ``max_compaction_lag_ms``."""
    min_ratio: float
    """The topic's ``min_cleanable_dirty_ratio``."""
    is_stored_offset_wrong: bool = False
    """Whether the stored offset lies outside the log. The log then counts as dirty from its start."""

    @property
    def ratio(self) -> float:
        """``cleanable_bytes`` as a share of ``clean_bytes`` and ``cleanable_bytes``, 0 to 1."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_eligible(self) -> bool:
        """Whether it is time to compact the log: it is dirty enough, or overdue."""
        return (self.is_overdue and self.cleanable_bytes > 0) or self.ratio > self.min_ratio

    def _repr_html_(self) -> str:
        """The view in a notebook: the fields that are not 0 or empty."""
        from logstore.showing import show_report  # few programs get here

        return show_report(self)


def plan_cleaning(
    segments: Sequence[CleanableFacts],
    *,
    config: TopicConfig,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    stored_offset: int | None,
    now_ms: int,
) -> Dirtiness:
    """What may be cleaned of a log with these segments; the last one is active.

    ``stored_offset`` is the cleaner's offset, None if the log was never cleaned. One outside the log (it was
    truncated, or its beginning deleted) counts as none. A wall clock that went back makes records look too
    young, never too old: they are cleaned later.
    """
    is_wrong = stored_offset is not None and not log_start_offset <= stored_offset <= log_end_offset
    dirty = log_start_offset if stored_offset is None or is_wrong else stored_offset
    sealed = segments[:-1]
    end = min(last_stable_offset, segments[-1].base_offset)
    waiting = [segment for segment in sealed if segment.next_base_offset > dirty]
    if config.min_compaction_lag_ms > 0:
        end = min(end, _first_young_base(waiting, now_ms - config.min_compaction_lag_ms, end))
    end = max(end, dirty)
    return Dirtiness(
        first_dirty_offset=dirty,
        first_uncleanable_offset=end,
        clean_bytes=sum(segment.size_bytes for segment in sealed if segment.next_base_offset <= dirty),
        cleanable_bytes=sum(segment.size_bytes for segment in waiting if segment.next_base_offset <= end),
        is_overdue=_has_older_than(waiting, now_ms - config.max_compaction_lag_ms),
        min_ratio=config.min_cleanable_dirty_ratio,
        is_stored_offset_wrong=is_wrong,
    )


def _first_young_base(segments: Iterable[CleanableFacts], limit_ms: int, end: int) -> int:
    """The base of the first segment with a record younger than ``limit_ms``; ``end`` if there is none."""
    for segment in segments:
        if segment.base_offset >= end:
            break
        if segment.newest_ms() > limit_ms:
            return segment.base_offset
    return end


def _has_older_than(segments: Iterable[CleanableFacts], limit_ms: int) -> bool:
    """Whether one begins with a record older than ``limit_ms``. Records without a timestamp have no age."""
    return limit_ms > 0 and any(0 < segment.oldest_ms() < limit_ms for segment in segments)


def most_dirty_first(logs: Iterable[tuple[_Named, Dirtiness]]) -> list[_Named]:
    """The logs that it is time to clean, the highest ratio first. Being overdue makes a log eligible but
    gives it no priority. With equal ratios, the one with more to clean comes first."""
    eligible = [
        (dirtiness.ratio, dirtiness.cleanable_bytes, name)
        for name, dirtiness in logs
        if dirtiness.is_eligible
    ]
    eligible.sort(key=lambda each: each[:2], reverse=True)
    return [name for _, _, name in eligible]
