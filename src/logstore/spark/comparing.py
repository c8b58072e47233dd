"""Whether logs still have what was read of them, by the leader epochs of the last records (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from logstore.spark.origins.origin import ReadUpTo
from logstore.spark.stream_offsets import Offsets, Seen, StreamOffset, is_another, moved_ends

if TYPE_CHECKING:
    from logstore.model import TopicPartition
    from logstore.spark.origins.origin import Origin


def compared(origin: Origin, seen: Seen, known: StreamOffset, ends: Offsets) -> Seen:
    """With where logs have parted from what is known of them up to ``ends``."""
    read = _read_up_to(known, ends, seen)
    parted = {
        each: offset
        for each, offset in (origin.parted(read) if read else {}).items()
        if offset < seen.bounds[each].end or read[each].offset <= seen.bounds[each].end
    }
    return seen._replace(parted=parted)


def epochs_of(
    origin: Origin, seen: Seen, last: StreamOffset, begins: Offsets, ends: Offsets
) -> dict[TopicPartition, int]:
    """The leader epochs of the records before the ends that have moved. If a log was cut since it was
    compared with what is known, that one's is kept: the next comparison finds it."""
    moved = {each: end for each, end in moved_ends(last, begins, ends).items() if end}
    found = origin.epochs_before(moved) if moved else {}
    goes_on = {
        each: begins[each] for each in moved.keys() - seen.parted if begins[each] == last.ends.get(each)
    }
    read = _read_up_to(last, goes_on, seen)
    changed = {each: up_to for each, up_to in read.items() if up_to.epoch != found.get(each)}
    for each in origin.parted(changed) if changed else {}:
        found[each] = changed[each].epoch
    return found


def _read_up_to(known: StreamOffset, ends: Offsets, seen: Seen) -> Mapping[TopicPartition, ReadUpTo]:
    """Of topics that are still the same."""
    return {
        each: ReadUpTo(end, known.epochs[each])
        for each, end in ends.items()
        if each in known.epochs
        and each in seen.bounds
        and not is_another(each.topic, known.topic_ids, seen.topic_ids)
    }
