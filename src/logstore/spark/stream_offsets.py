"""How far a stream has read, as Spark's checkpoint keeps it, and how far it reads next. Pure: no pyspark, no
files, no clock.

Before Spark runs a batch, it journals where the batch *ends*, and the next batch starts there. It asks again
after each restart where the first batch starts. So an end also says where its batch begins, for each
partition where that is not the end of the batch before: for every partition of the first batch, for a new
partition, and for one whose records were removed. A batch that runs again after a crash then covers the same
records, whatever happened to the log in between, and needs no state except Spark's own. As JSON::

    {"logstore": 1, "topics": {"flights": {
        "id": "…", "end": {"0": 120, "1": 50}, "epoch": {"0": 3, "1": 3}, "from": {"1": 0}}}}

``end`` has the next offsets, ``from`` those beginnings, and ``id`` the topic's id, which shows that a topic
was deleted and created again. ``epoch`` has the leader epoch of the record before each end: a log that was
cut has another one there, however far it has grown since (KIP-320). The JSON for "nothing was read yet" has
no ``topics`` but the options of the start; it is the same each time, and contains no offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from logstore.errors import UnsupportedVersionError, UsageError
from logstore.model import TopicPartition
from logstore.spark.origins.origin import Bounds

VERSION: Final = 1
"""The version of the JSON."""
_SHOWN: Final = 200  # characters of a bad offset in its error
_NAMED_LOSSES: Final = 5  # in an error; a store may have thousands of partitions


Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """Where one batch of a stream ends, and where it begins if that is not where the one before it ended."""

    ends: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The topics' ids; a topic without a known id is left out."""
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epochs of the records before the ends, where they are known."""


class Seen(NamedTuple):
    """The state of the stream's partitions now."""

    bounds: Mapping[TopicPartition, Bounds]
    topic_ids: Mapping[str, str]
    parted: Mapping[TopicPartition, int] = {}
    """Where logs have, at offsets that the stream knows, other records than it knows. The offset is the end
    of what it knows if nobody can tell since where."""


class Loss(NamedTuple):
    """Records that the stream should have read and that are lost, or may be."""

    partition: TopicPartition
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.reason}"


def named_losses(losses: Sequence[Loss]) -> str:
    """Some of them, in one line."""
    named = "; ".join(str(loss) for loss in losses[:_NAMED_LOSSES])
    return f"{named}; and {len(losses) - _NAMED_LOSSES} more" if len(losses) > _NAMED_LOSSES else named


# JSON -------------------------------------------------------------------------------------------------------


def initial_json(asked: Mapping[str, str]) -> dict[str, Any]:
    """The JSON for "nothing was read yet". ``asked`` are the options that say where to begin."""
    return {"logstore": VERSION, "begin": dict(asked)}


def format_offset(offset: StreamOffset) -> dict[str, Any]:
    """An offset as JSON. Equal offsets give equal text, because Spark compares the text."""
    topics: dict[str, dict[str, Any]] = {}
    for partition in sorted(offset.ends):
        topic = topics.setdefault(partition.topic, {})
        if not topic and partition.topic in offset.topic_ids:
            topic["id"] = offset.topic_ids[partition.topic]
        topic.setdefault("end", {})[str(partition.partition)] = offset.ends[partition]
        if partition in offset.epochs:
            topic.setdefault("epoch", {})[str(partition.partition)] = offset.epochs[partition]
    for partition in sorted(offset.starts):
        starts = topics[partition.topic].setdefault("from", {})
        starts[str(partition.partition)] = offset.starts[partition]
    return {"logstore": VERSION, "topics": topics}


def parse_offset(parsed: Any) -> StreamOffset | None:
    """An offset from its JSON; None if it stands for "nothing was read yet".

    Raises:
        UnsupportedVersionError: a newer logstore wrote it.
        UsageError: it was not written by logstore, or is damaged.
    """
    if not isinstance(parsed, dict) or type(parsed.get("logstore")) is not int:
        _refuse(parsed, 'it has no "logstore"; was the checkpoint made by another source?')
    if parsed["logstore"] != VERSION:
        raise UnsupportedVersionError(
            f"an offset in the stream's checkpoint has version {parsed['logstore']}; this logstore knows "
            f"version {VERSION}: {_shown(parsed)}"
        )
    topics = parsed.get("topics")
    if topics is None and isinstance(parsed.get("begin"), dict):
        return None
    if not isinstance(topics, dict):
        _refuse(parsed, 'it has neither "topics" nor "begin"')
    ends: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    epochs: dict[TopicPartition, int] = {}
    topic_ids: dict[str, str] = {}
    for name, topic in topics.items():
        if not isinstance(topic, dict) or not topic.get("end"):
            _refuse(parsed, f'topic {name!r} has no "end"')
        ends.update(_parse_numbers(parsed, name, topic["end"]))
        starts.update(_parse_numbers(parsed, name, topic.get("from", {})))
        epochs.update(_parse_numbers(parsed, name, topic.get("epoch", {})))
        if "id" in topic:
            if not isinstance(topic["id"], str):
                _refuse(parsed, f"the id of topic {name!r} is not text")
            topic_ids[name] = topic["id"]
    for partition, start in starts.items():
        if start > ends.get(partition, -1):
            _refuse(parsed, f"{partition} begins at {start} and ends at {ends.get(partition)}")
    for partition, epoch in epochs.items():
        if partition not in ends or epoch >= 2**31:
            _refuse(parsed, f"{partition} ends at {ends.get(partition)} in leader epoch {epoch}")
    return StreamOffset(ends=ends, starts=starts, topic_ids=topic_ids, epochs=epochs)


def _parse_numbers(parsed: Any, topic: str, numbers: Any) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    if not isinstance(numbers, dict):
        _refuse(parsed, f"the offsets of topic {topic!r} are not a JSON object")
    for text, offset in numbers.items():
        if not text.isascii() or not text.isdigit() or type(offset) is not int or not 0 <= offset < 2**63:
            _refuse(parsed, f"partition {text!r} of topic {topic!r} has the number {offset!r}")
        found[TopicPartition(topic, int(text))] = offset
    return found


def _refuse(parsed: Any, reason: str) -> NoReturn:
    raise UsageError(f"an offset in the stream's checkpoint cannot be read: {reason}: {_shown(parsed)}")


def _shown(parsed: Any) -> str:
    text = repr(parsed)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


# What a batch covers ----------------------------------------------------------------------------------------


def ranges_between(start: StreamOffset | None, end: StreamOffset) -> dict[TopicPartition, range]:
    """The offsets of each partition between the ends of two consecutive batches, without empty ranges.

    Raises:
        UsageError: the two cannot be consecutive: the checkpoint is damaged.
    """
    if start == end:
        return {}  # without this: what the batch that ended there had covered
    before = {} if start is None else start.ends
    found = {}
    for partition, stop in end.ends.items():
        first = end.starts.get(partition, before.get(partition))
        if first is None or first > stop:
            raise UsageError(
                f"the offsets in the stream's checkpoint contradict each other: {partition} should be read "
                f"from {'nowhere' if first is None else first} to {stop}"
            )
        if first < stop:
            found[partition] = range(first, stop)
    return found


def readable_ranges(
    ranges: Mapping[TopicPartition, range], topic_ids: Mapping[str, str], seen: Seen
) -> tuple[dict[TopicPartition, range], list[Loss]]:
    """The parts of a batch's ranges that still exist, and what was lost. ``topic_ids`` are those of the plan;
    ``seen`` has the ranges' partitions, as far as they exist."""
    found: dict[TopicPartition, range] = {}
    losses = []
    for partition, wanted in ranges.items():
        bounds = seen.bounds.get(partition)
        if bounds is None:
            losses.append(_vanished(partition, wanted.start))
            continue
        if is_another(partition.topic, topic_ids, seen.topic_ids):
            losses.append(_created_again(partition, wanted.start))
            continue
        if wanted.start < bounds.start:
            losses.append(_deleted(partition, wanted.start, min(bounds.start, wanted.stop)))
        end = min(wanted.stop, bounds.end, seen.parted.get(partition, wanted.stop))
        if partition in seen.parted:
            losses.append(_parted(partition, wanted.stop, end))
        elif wanted.stop > bounds.end:
            losses.append(_cut(partition, wanted.stop, bounds.end))
        left = range(max(wanted.start, bounds.start), end)
        if left:
            found[partition] = left
    return found, losses


# Where the next batch begins --------------------------------------------------------------------------------


def next_begins(
    last: StreamOffset, seen: Seen, is_wanted: Callable[[TopicPartition], bool]
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Where the next batch begins in each existing partition, and what was lost since the last one.

    A partition that the stream has not read yet is read from its beginning, and so is one of a topic that was
    created again. If records were deleted, the batch begins at the first that is left; if they were cut off,
    where others took their place, or at the end. ``is_wanted`` tells whether a missing partition is a loss,
    or no longer asked for.
    """
    begins: dict[TopicPartition, int] = {}
    losses = []
    for partition in seen.bounds:
        begins[partition], loss = _next_begin(partition, last, seen)
        if loss is not None:
            losses.append(loss)
    missed = [partition for partition in last.ends if partition not in begins and is_wanted(partition)]
    losses += [_vanished(partition, last.ends[partition]) for partition in missed]
    return begins, losses


def _next_begin(partition: TopicPartition, last: StreamOffset, seen: Seen) -> tuple[int, Loss | None]:
    bounds, end = seen.bounds[partition], last.ends.get(partition)
    if end is None:
        return bounds.start, _began_late(partition, bounds.start) if bounds.start else None
    if is_another(partition.topic, last.topic_ids, seen.topic_ids):
        return bounds.start, _created_again(partition, end)
    if partition in seen.parted:
        begin = max(seen.parted[partition], bounds.start)
        return begin, _parted(partition, end, seen.parted[partition])
    if end < bounds.start:
        return bounds.start, _deleted(partition, end, bounds.start)
    if end > bounds.end:
        return bounds.end, _cut(partition, end, bounds.end)
    return end, None


def is_another(topic: str, then: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether the topic was deleted and created again, as far as its ids are known."""
    return topic in then and topic in now and then[topic] != now[topic]


def _vanished(partition: TopicPartition, offset: int) -> Loss:
    return Loss(partition, f"it does not exist any more; the next offset to read was {offset}")


def _created_again(partition: TopicPartition, offset: int) -> Loss:
    return Loss(
        partition,
        f"its topic was deleted and created again; in the old one the next offset to read was {offset}",
    )


def _deleted(partition: TopicPartition, first: int, stop: int) -> Loss:
    return Loss(partition, f"the records at offsets {first} to {stop - 1} were deleted before they were read")


def _cut(partition: TopicPartition, stop: int, end: int) -> Loss:
    return Loss(partition, f"it was cut: records were read up to offset {stop - 1}, but it ends at {end}")


def _parted(partition: TopicPartition, stop: int, at: int) -> Loss:
    if at < stop:
        gone = f"it was cut at offset {at}, and others took the place of the records up to offset {stop - 1}"
        return Loss(partition, f"{gone} that were read")
    return Loss(
        partition,
        f"it has another record at offset {stop - 1} than was read, as a log of an older copy has, "
        "and it is unknown which others",
    )


def _began_late(partition: TopicPartition, start: int) -> Loss:
    return Loss(
        partition, f"it is new to the stream, but its records below offset {start} are already deleted"
    )


# How far the next batch goes --------------------------------------------------------------------------------


def record_count(begins: Offsets, ends: Offsets) -> int:
    """The number of offsets between the two, over all partitions of ``begins``."""
    return sum(ends[partition] - begin for partition, begin in begins.items())


def limited_ends(begins: Offsets, ends: Offsets, limit: int) -> dict[TopicPartition, int]:
    """The ends of a batch of about ``limit`` records. Each partition contributes in proportion to what it
    has, and at least one record if it has any, so that none starves. Like Spark's Kafka connector."""
    total = record_count(begins, ends)
    if total <= limit:
        return dict(ends)
    return {
        partition: min(ends[partition], begin + max(1, limit * (ends[partition] - begin) // total))
        for partition, begin in begins.items()
    }


def moved_ends(last: StreamOffset, begins: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """The ends of the partitions of which a batch covers something."""
    return {each: end for each, end in ends.items() if not last.ends.get(each) == begins[each] == end}


def next_offset(
    last: StreamOffset | None,
    begins: Offsets,
    ends: Offsets,
    seen: Seen,
    gone: set[TopicPartition],
    epochs: Mapping[TopicPartition, int] | None = None,
) -> StreamOffset:
    """The end of a batch that covers ``begins`` to ``ends``, after the batch that ended at ``last``. The ends
    that have moved are in ``epochs``, where those are known; the others stay in theirs.

    Partitions that are no longer asked for keep their place, in case they are asked for again; ``gone`` are
    those that no longer exist.
    """
    before = StreamOffset() if last is None else last
    resting = {
        partition: end
        for partition, end in before.ends.items()
        if partition not in ends
        and partition not in gone
        and not is_another(partition.topic, before.topic_ids, seen.topic_ids)
    }
    topic_ids = {**before.topic_ids, **seen.topic_ids}
    kept = {partition.topic for partition in (*resting, *ends)}
    moved = moved_ends(before, begins, ends)
    all_ends = {**resting, **ends}
    stay = {each: epoch for each, epoch in before.epochs.items() if each in all_ends and each not in moved}
    return StreamOffset(
        ends=all_ends,
        epochs={**stay, **(epochs or {})},
        starts={
            partition: begin
            for partition, begin in begins.items()
            if before.ends.get(partition) != begin
            or is_another(partition.topic, before.topic_ids, seen.topic_ids)
        },
        topic_ids={topic: topic_id for topic, topic_id in topic_ids.items() if topic in kept},
    )


def is_further(last: StreamOffset, following: StreamOffset) -> bool:
    """Whether there is something to read or to remember after ``last``."""
    return bool(following.starts) or following.ends != last.ends
