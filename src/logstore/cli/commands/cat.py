"""``logstore cat`` and ``logstore tail``: the records of a topic."""

from __future__ import annotations

import sys
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Annotated, Final

import typer

from logstore.cli import streams
from logstore.cli.commands import Command
from logstore.cli.errors import CommandError
from logstore.cli.opening import logs_of, reading, told_of_elsewhere
from logstore.cli.options import Directory, Format, From, Json, Partitions, Quiet, RecordFormat, To, TopicName
from logstore.cli.output import Output
from logstore.cli.records import RECORD, WriteRecord, record_writer
from logstore.cli.times import Place
from logstore.errors import OffsetOutOfRangeError
from logstore.logdir.joining import join
from logstore.model import Isolation, Record
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.topic import Topic

_LOOK_S: Final = 0.05
"""How often a follower looks for more: a look is a few calls to the system for each partition."""


class Order(Enum):
    """The order of records of several partitions, as :meth:`.Topic.read` has it."""

    TIMESTAMP = "timestamp"
    PARTITION = "partition"


ReadIsolation = Annotated[Isolation, typer.Option("--isolation", help="how far to see")]
Key = Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="records with this key only")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="at most so many")]
RecordOrder = Annotated[
    Order, typer.Option("--order", help="partitions merged by timestamp, or one after the other")
]
Last = Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="how many of the last records")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="then wait for more, until interrupted")]


def cat(
    directory: Directory,
    topic: TopicName,
    partition: Partitions = None,
    start: From = None,
    stop: To = None,
    key: Key = None,
    limit: Limit = None,
    order: RecordOrder = Order.TIMESTAMP,
    isolation: ReadIsolation = Isolation.HIGH_WATERMARK,
    form: RecordFormat = Format.TEXT,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the records of a topic, merged by their times.

    Each partition stays in the order of its offsets; --order partition writes one after the other. In text a
    line has partition, offset, time, key, value and headers; what is not printable is escaped, and \\N is
    null.
    """
    out = Output(json=json, quiet=quiet)
    write = record_writer(out, form, json=json)
    with reading(directory) as store:
        logs = _logs_of(out, store[topic], partition)
        found = []
        for log in logs:
            offsets = _range_of(log, start, stop, isolation)
            if offsets:
                found.append(_records(out, log, offsets, isolation, on_demand=key is not None))
        if logs and not found:
            out.remark(_nothing_there(topic, logs, isolation))
        records = join(found, by_timestamp=order is Order.TIMESTAMP)
        if key is not None:
            wanted = streams.argument_bytes(key)
            records = (record for record in records if record.key == wanted)
        for record in islice(records, None if limit is None else min(limit, sys.maxsize)):
            write(record)


def _logs_of(out: Output, topic: Topic, numbers: Sequence[int] | None) -> list[ReadOnlyLog]:
    """What to read, having told of what is not here: other ``log.dirs`` or brokers have it."""
    elsewhere = told_of_elsewhere(topic)
    if elsewhere and not numbers:
        out.remark(elsewhere)
    return logs_of(topic, numbers)


def _records(
    out: Output, log: ReadOnlyLog, offsets: range, isolation: Isolation, *, on_demand: bool = False
) -> Iterator[Record]:
    """The records of a range. What is deleted before it is read is passed over, and told."""
    start = offsets.start
    while start < offsets.stop:
        try:
            for record in log.read(start, offsets.stop, isolation=isolation, on_demand=on_demand):
                yield record
                start = record.offset + 1
            return
        except OffsetOutOfRangeError:
            first = log.log_start_offset
            if first <= start:
                raise
            _tell_deleted(out, log, start, min(first, offsets.stop))
            start = first


def _tell_deleted(out: Output, log: ReadOnlyLog, start: int, stop: int) -> None:
    out.remark(f"{log.partition}: offsets {start} to {stop - 1} were deleted before they were read")


def _nothing_there(topic: str, logs: Sequence[ReadOnlyLog], isolation: Isolation) -> str:
    """What to say if no partition has an offset in the range."""
    readable = [log.readable_offsets(isolation) for log in logs]
    if len(logs) == 1:
        subject = f"{logs[0].partition} has"
    else:
        subject = f"the {len(logs)} partitions of {topic} have"
    first, last = min(each.start for each in readable), max(each.stop for each in readable)
    return f"nothing there: {subject} offsets {first} up to {last}"


def _range_of(log: ReadOnlyLog, start: Place | None, stop: Place | None, isolation: Isolation) -> range:
    """The offsets from one place up to another, of those that can be read."""
    readable = log.readable_offsets(isolation)
    first = readable.start if start is None else _offset_at(log, start, readable.stop)
    last = readable.stop if stop is None else _offset_at(log, stop, readable.stop)
    return range(max(first, readable.start), min(last, readable.stop))


def _offset_at(log: ReadOnlyLog, place: Place, end: int) -> int:
    if place.offset is not None:
        return place.offset
    assert place.timestamp_ms is not None
    offset = log.offset_at(place.timestamp_ms)
    return end if offset is None else offset


def tail(
    directory: Directory,
    topic: TopicName,
    lines: Last = 10,
    follow: Follow = False,
    partition: Partitions = None,
    isolation: ReadIsolation = Isolation.HIGH_WATERMARK,
    form: RecordFormat = Format.TEXT,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the last records of a topic, and follow it.

    They are the last of all partitions together, by their times; those of a partition stay in order. Reads
    only the end of each.
    """
    out = Output(json=json, quiet=quiet)
    write = record_writer(out, form, json=json)
    lines = min(lines, sys.maxsize)
    with reading(directory) as store:
        found = store[topic]
        topic_id = found.topic_id
        logs = _logs_of(out, found, partition)
        ends = {log.partition.partition: log.readable_offsets(isolation).stop for log in logs}
        of_each = [_last_records(log, ends[log.partition.partition], lines, isolation) for log in logs]
        for record in deque(join(map(iter, of_each), by_timestamp=True), lines):
            write(record)
        streams.flush()
        if follow:
            _follow(out, found, topic_id, ends, partition, isolation, write)


def _last_records(log: ReadOnlyLog, end: int, count: int, isolation: Isolation) -> deque[Record]:
    """The last ``count`` records in front of ``end``: reads that many offsets, and where there are gaps twice
    as many again and again."""
    found: deque[Record] = deque()
    start = log.readable_offsets(isolation).start
    step = count
    while len(found) < count and end > start:
        begin = max(end - step, start)
        part = deque(log.read(begin, end, isolation=isolation), count - len(found))
        found.extendleft(reversed(part))
        end, step = begin, step * 2
    return found


def _follow(
    out: Output,
    topic: Topic,
    topic_id: uuid.UUID,
    ends: dict[int, int],
    numbers: Sequence[int] | None,
    isolation: Isolation,
    write: WriteRecord,
) -> None:
    """Write records as they come, until interrupted, and those of new partitions from their beginning."""
    while True:
        count = 0
        logs = logs_of(topic, numbers)
        if topic.topic_id != topic_id:  # looked at behind the logs, which may be the new ones already
            raise CommandError(
                f"topic {topic.name!r} was deleted, and made again: begin again to see what is in the new one"
            )
        for log in logs:
            for record in _new_records(out, log, ends, isolation):
                write(record)
                count += 1
        if count:
            streams.flush()
        else:
            streams.wait(_LOOK_S)


def _new_records(
    out: Output, log: ReadOnlyLog, ends: dict[int, int], isolation: Isolation
) -> Iterator[Record]:
    number = log.partition.partition
    readable = log.readable_offsets(isolation)
    start = ends.get(number, readable.start)
    if start < readable.start:
        _tell_deleted(out, log, start, readable.start)
        start = ends[number] = readable.start
    if start > log.log_end_offset:
        raise CommandError(f"{log.partition} was cut at offset {readable.stop}, behind which it was read")
    if start < readable.stop:
        yield from _records(out, log, range(start, readable.stop), isolation)
        ends[number] = readable.stop


COMMANDS: Final = (Command("cat", cat, (RECORD,)), Command("tail", tail, (RECORD,)))
