"""The state of a share-partition, and how a change alters it (KIP-932). No I/O, no clock and no lock."""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from logstore.broker.share.states import DONE
from logstore.format.messages.share_records import UNCHANGED, UNKNOWN_COUNT, ShareBatch, ShareKey
from logstore.model import TopicPartition

_first_of: Final = attrgetter("first_offset")
_last_of: Final = attrgetter("last_offset")


class ShareState(NamedTuple):
    """All of a share-partition's state."""

    state_epoch: int
    """Counts how often the start offset was set from outside."""
    leader_epoch: int
    start_offset: int
    """Everything below it is done with."""
    batches: tuple[ShareBatch, ...] = ()
    """By offset, without overlaps."""

    @property
    def delivery_complete_count(self) -> int:
        """How many offsets from the start offset on are done with (KIP-1226)."""
        return sum(each.last_offset - each.first_offset + 1 for each in self.batches if each.state in DONE)


class ShareChange(NamedTuple):
    """What has changed in it."""

    start_offset: int = UNCHANGED
    batches: tuple[ShareBatch, ...] = ()
    """Offsets in their new state. Where two have the same offset, the later one in the tuple counts."""
    leader_epoch: int = UNCHANGED
    delivery_complete_count: int = UNKNOWN_COUNT
    """:attr:`ShareState.delivery_complete_count` after the change; -1 if it is not known. Kafka reports the
    group's lag by it."""


def combine(
    start_offset: int, old: Iterable[ShareBatch], new: Iterable[ShareBatch]
) -> tuple[ShareBatch, ...]:
    """The state of all offsets from ``start_offset`` on: of each offset what the last batch that has it says.
    Batches that are side by side and say the same become one, where ``new`` has touched them.

    Kafka (``PersisterStateBatchCombiner``) decides an overlap by the higher delivery count, then by the
    higher state. As long as offsets go through their states in order, that is the later batch too.

    Args:
        start_offset: what lies below is left out; -1 for nothing.
        old: by offset, without overlaps, as this function returns them.
        new: in the order in which they were written.

    Cost: 3 µs for each new batch; 0.01 µs for each old one, of which a reference is copied.
    """
    found = list(old)
    for batch in new:
        _paint(found, batch)
    count = bisect_left(found, start_offset, key=_last_of)
    del found[:count]
    if found and found[0].first_offset < start_offset:
        found[0] = found[0]._replace(first_offset=start_offset)
    return tuple(found)


def _paint(batches: list[ShareBatch], new: ShareBatch) -> None:
    """Put a batch in place of what is there for its offsets."""
    first, last = new.first_offset, new.last_offset
    if not batches or first > batches[-1].last_offset:
        at = stop = len(batches)
    else:
        at = bisect_left(batches, first, key=_last_of)
        stop = bisect_right(batches, last, lo=at, key=_first_of)
    pieces = [new]
    if at < stop:
        left, right = batches[at], batches[stop - 1]
        if left.first_offset < first:
            pieces.insert(0, left._replace(last_offset=first - 1))
        if right.last_offset > last:
            pieces.append(right._replace(first_offset=last + 1))
    if at:
        at -= 1
        pieces.insert(0, batches[at])
    if stop < len(batches):
        pieces.append(batches[stop])
        stop += 1
    batches[at:stop] = _joined(pieces)


def _joined(batches: list[ShareBatch]) -> list[ShareBatch]:
    found = batches[:1]
    for batch in batches[1:]:
        before = found[-1]
        if before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]:
            found[-1] = before._replace(last_offset=batch.last_offset)
        else:
            found.append(batch)
    return found


def apply_change(state: ShareState, change: ShareChange) -> ShareState:
    """The state after a change."""
    start = state.start_offset if change.start_offset == UNCHANGED else change.start_offset
    return ShareState(
        state.state_epoch,
        state.leader_epoch if change.leader_epoch == UNCHANGED else change.leader_epoch,
        start,
        combine(start, state.batches, change.batches),
    )


def cut_back(state: ShareState, end: int) -> ShareState:
    """Without what it says of offsets from ``end`` on."""
    kept = [
        each._replace(last_offset=min(each.last_offset, end - 1))
        for each in state.batches
        if each.first_offset < end
    ]
    start = min(state.start_offset, end)
    return state._replace(start_offset=start, batches=combine(start, kept, ()))


def is_above(state: ShareState, end: int) -> bool:
    """Whether it says something of offsets from ``end`` on."""
    return state.start_offset > end or any(each.last_offset >= end for each in state.batches)


def cut_back_all(
    states: Mapping[ShareKey, ShareState],
    topics: Mapping[uuid.UUID, str],
    ends: Mapping[TopicPartition, int],
) -> Iterator[tuple[ShareKey, ShareState, int]]:
    """Of the states that say something of offsets above the ends of their logs: what stays of each, and that
    end. Those whose topic or log is not among these are left out."""
    for key, state in states.items():
        end = ends.get(TopicPartition(topics.get(key.topic_id, ""), key.partition))
        if end is not None and is_above(state, end):
            yield key, cut_back(state, end), end
