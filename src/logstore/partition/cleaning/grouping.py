"""Which neighbouring segments compaction joins into one: a pure decision over sizes and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logstore.config import TopicConfig
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET


class GroupingFacts(NamedTuple):
    """What grouping looks at, for one segment."""

    base_offset: int
    next_base_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def plan_groups(segments: Sequence[GroupingFacts], *, config: TopicConfig) -> list[range]:
    """The groups of segment numbers, in order; each group becomes one segment.

    A group takes as many neighbours as stay, before cleaning, within ``segment_bytes`` and, for each index,
    within ``segment_index_bytes``, and have their offsets in reach of the first one's base. A segment that
    exceeds a limit by itself is a group of its own. One without batches fits anywhere.
    """
    groups: list[range] = []
    for number, segment in enumerate(segments):
        if groups:
            first = groups[-1].start
            if _fit([*segments[first : number + 1]], config) and _reaches(segments[first], segment):
                groups[-1] = range(first, number + 1)
                continue
        groups.append(range(number, number + 1))
    return groups


def _fit(group: Sequence[GroupingFacts], config: TopicConfig) -> bool:
    return (
        sum(segment.size_bytes for segment in group) <= config.segment_bytes
        and sum(segment.offset_index_bytes for segment in group) <= config.segment_index_bytes
        and sum(segment.time_index_bytes for segment in group) <= config.segment_index_bytes
    )


def _reaches(first: GroupingFacts, last: GroupingFacts) -> bool:
    return not last.size_bytes or last.next_base_offset - 1 - first.base_offset <= MAX_RELATIVE_OFFSET
