"""Which segments to delete: a pure decision over sizes and times.

Retention removes a prefix of the log and stops at the first segment that does not qualify. The rules are
Kafka's: segments below the log start offset always go; size and age count only under ``cleanup_policy``
delete. The rules run in this order, and each looks at what the one before has left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from logstore.config import TopicConfig


class SegmentFacts(NamedTuple):
    """What retention looks at, for one segment."""

    base_offset: int
    next_base_offset: int
    """The base offset of the next segment; for the last segment, the log end offset."""
    size_bytes: int
    newest_ms: Callable[[], int]
    """Returns the largest record timestamp, or the file's modification time if no record has one. Called only
    if the other rules do not decide, because it may open the segment."""


class PlannedDeletion(NamedTuple):
    """What retention would delete from the front of a log."""

    segment_count: int
    size_bytes: int
    """The size of their ``.log`` files."""
    log_start_offset: int
    """The log start offset after the deletion."""


def plan_retention(
    segments: Sequence[SegmentFacts],
    *,
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many segments to delete from the front. It may be all of them: the caller then rolls first.

    A segment must lie below the high watermark, and an empty last segment never goes.
    """
    deletable = _count_deletable(segments, high_watermark)
    count = _count_below(segments[:deletable], log_start_offset, is_whole=deletable == len(segments))
    if not config.deletes:
        return count
    count += _count_over_size(segments[count:], deletable - count, config.retention_bytes)
    return count + _count_expired(segments[count:deletable], config.retention_ms, now_ms)


def _count_deletable(segments: Sequence[SegmentFacts], high_watermark: int) -> int:
    count = 0
    for segment in segments:
        if segment.next_base_offset > high_watermark:
            break
        count += 1
    if count == len(segments) and not segments[-1].size_bytes:
        count -= 1
    return count


def _count_below(segments: Sequence[SegmentFacts], log_start_offset: int, *, is_whole: bool) -> int:
    """Segments whose next segment begins at or below the log start offset. The last one has no next."""
    candidates = segments[:-1] if is_whole else segments
    count = 0
    for segment in candidates:
        if segment.next_base_offset > log_start_offset:
            break
        count += 1
    return count


def _count_over_size(segments: Sequence[SegmentFacts], deletable: int, retention_bytes: int) -> int:
    """Delete while the rest is still at or above the limit: the log keeps the limit or up to one segment
    more."""
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments[:deletable]:
        excess -= segment.size_bytes
        if excess < 0:
            break
        count += 1
    return count


def _count_expired(segments: Sequence[SegmentFacts], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.newest_ms() <= retention_ms:
            break
        count += 1
    return count
