"""Operations on a log, each with its notes: see :mod:`tests.crash.history`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from logstore.format.batch import encode_batch
from logstore.format.header import BatchHeader
from logstore.format.loops import scan_batches
from logstore.partition.log import Log
from logstore.testing import ManualClock
from tests.crash.history import (
    ERASED,
    FIRST,
    Appending,
    Deleted,
    Deleting,
    Durable,
    Erased,
    Erasing,
    Found,
    Opened,
    Truncated,
    Truncating,
    next_value,
)

Say = Callable[[Any], None]


class Writer:
    """One log, and the notes of its writer. Values are numbered from ``number`` on, so no two are equal."""

    def __init__(self, log: Log, say: Say, rng: random.Random, clock: ManualClock, number: int) -> None:
        self.rng = rng
        self.say = say
        self.clock = clock
        self.number = number
        self.log = log
        self.begin()

    def begin(self) -> None:
        """Note what was found in a log that has just been opened."""
        found = found_in(self.log)
        self.say(Opened(found.start, found.values, self.log.durable_offset))
        self.end = found.end
        self._last = found.values[-1] if found.values else FIRST
        self._borders = [found.end]
        self._sequences: dict[int, int] = {}

    def values(self, count: int, size_bytes: int) -> list[bytes]:
        """The next values, which are about to be appended."""
        made = []
        for _ in range(count):
            self.number += 1
            self._last = next_value(self.number, self._last, size_bytes)
            made.append(self._last)
        self.say(Appending(self.end, tuple(made)))
        return made

    def appended(self, count: int) -> None:
        """Note that a batch of ``count`` records was appended."""
        self.end += count
        self._borders.append(self.end)
        self.say_durable()

    def say_durable(self) -> None:
        self.say(Durable(self.log.durable_offset))

    # Actions

    def append(self, count: int = 1, *, size_bytes: int = 20, flush: bool = False) -> None:
        """Append one batch."""
        values = self.values(count, size_bytes)
        offsets = self.log.extend([(None, value) for value in values], flush=flush)
        assert offsets == range(self.end, self.end + count), f"{offsets} instead of {self.end}"
        if flush:
            self.say(Durable(self.end + count))
        self.appended(count)

    def append_as_producer(self) -> None:
        """Append a batch of an idempotent producer, a new one or one of this session."""
        producers = self._sequences
        if not producers or self.rng.random() < 0.5:
            producers[self.number] = 0
        producer_id = self.rng.choice(list(producers))
        sequence = producers[producer_id]
        batch = encode_batch(
            [None] * 2,
            self.values(2, 5),
            self.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        result = self.log.append_batch(bytes(batch))
        assert result is not None
        assert result.base_offset == self.end
        producers[producer_id] += 2
        self.appended(2)

    def flush(self) -> None:
        self.log.flush()
        self.say(Durable(self.end))

    def roll(self) -> None:
        self.log.roll()
        self.say_durable()

    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.say_durable()

    def delete_before(self) -> None:
        offset = self.rng.randint(self.log.log_start_offset, self.end)
        self.say(Deleting(offset))
        self.say(Deleted(self.log.delete_before(offset)))

    def truncate(self) -> None:
        """Truncate at a border of batches."""
        start = self.log.log_start_offset
        floor = self.rng.choice([border for border in self._borders if border >= start] or [self.end])
        self.say(Truncating(floor))
        self.log.truncate_to(floor)
        self.end = self.log.log_end_offset
        self.say(Truncated(self.end))
        self.say_durable()
        self._borders = [border for border in self._borders if border <= self.end]
        self._sequences.clear()
        last = list(self.log.read(self.end - 1)) if self.end > self.log.log_start_offset else []
        self._last = (last[0].value or b"") if last else FIRST

    def erase(self) -> None:
        """Erase some scattered records, or a whole range."""
        start, end = self.log.log_start_offset, self.end
        if self.rng.random() < 0.5:
            first = self.rng.randint(start, end)
            offsets = tuple(range(first, self.rng.randint(first, end)))
        else:
            offsets = tuple(sorted({self.rng.randrange(start, end) for _ in range(3)} if start < end else ()))
        offsets = tuple(offset for offset in offsets if self.log.record_at(offset) is not None)
        self.say(Erasing(offsets))
        report = self.log.erase(offsets=offsets)
        assert report.offsets == offsets
        self.say(Erased(offsets))
        self.say_durable()

    def new_epoch(self) -> None:
        self.log.assign_leader_epoch(max(self.log.leader_epoch, 0) + 1)


# What must be true of a log ---------------------------------------------------------------------------------


def found_in(log: Log) -> Found:
    """The readable records; ERASED for a missing one, which the history must allow."""
    values = {record.offset: record.value or b"" for record in log.read()}
    start, end = log.log_start_offset, log.log_end_offset
    assert list(values) == sorted(values)
    assert not values or start <= min(values) <= max(values) < end, f"{list(values)} from {start} to {end}"
    return Found(start, tuple(values.get(offset, ERASED) for offset in range(start, end)))


def check_lookups(log: Log, found: Found) -> None:
    """Check that the indexes lead to every record."""
    for offset, value in enumerate(found.values, found.start):
        record = log.record_at(offset)
        if value == ERASED:
            assert record is None, f"offset {offset} leads to {record}"
            continue
        assert record is not None
        assert record.value == value, f"offset {offset} leads to {record}"


def check_producers(log: Log) -> tuple[bytes, ...]:
    """Check that the log recognises the last batch of each producer, and takes the next one. Returns what was
    appended."""
    last: dict[int, tuple[bytes, BatchHeader]] = {}
    for data, header in batches_of(log):
        if header.producer_id >= 0:
            last[header.producer_id] = data, header
    for data, header in last.values():
        if header.record_count != count_of(header):  # the producer also sent the erased ones
            data = encode_batch(
                [None] * count_of(header),
                [b"again"] * count_of(header),
                header.max_timestamp_ms,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
        result = log.append_batch(bytes(8) + data[8:])  # the leader sets the base offset
        assert result is not None
        assert result.is_duplicate, f"the batch of producer {header.producer_id} was appended twice"
        assert result.base_offset == header.base_offset
    for producer_id, (_, header) in last.items():
        batch = encode_batch(
            [None],
            [b"next"],
            header.max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence + count_of(header),
        )
        end = log.log_end_offset
        result = log.append_batch(bytes(batch))
        assert result is not None
        assert not result.is_duplicate, (
            f"a new batch of producer {producer_id} was taken for one that is there"
        )
        assert result.base_offset == end
    return (b"next",) * len(last)


def count_of(header: BatchHeader) -> int:
    """How many records the batch had when it was appended."""
    return header.last_offset_delta + 1


def batches_of(log: Log) -> Iterator[tuple[bytes, BatchHeader]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.fetch(offset)
        for position, header in scan_batches(fetched.data, 0, len(fetched.data), check=False)[0]:
            yield fetched.data[position : position + header.size_bytes], header
        offset = fetched.next_offset
