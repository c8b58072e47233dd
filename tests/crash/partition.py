"""A partition in sessions of everything that can be done to one: the scenario of the crash explorer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread, current_thread
from typing import Any

from logstore.config import StoreConfig, TopicConfig
from logstore.format.batch import encode_batch
from logstore.format.header import BatchHeader
from logstore.format.loops import scan_batches
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.operations import FlushFile, Operation, Write
from tests.crash.history import (
    Appending,
    Deleted,
    Deleting,
    Durable,
    Found,
    History,
    Opened,
    Truncated,
    Truncating,
    next_value,
)

PATH = "/t-0"
CONFIG = TopicConfig(segment_bytes=1_500, index_interval_bytes=100, retention_ms=-1)
STORE_CONFIG = StoreConfig(linger_ms=0)


def open_partition(files: Any, **options: Any) -> Log:
    options = {"config": CONFIG, "clock": ManualClock()} | options
    return Log.open(PATH, store_config=STORE_CONFIG, files=files, **options)


def abandon(log: Log) -> None:
    """Let go of a log as a killed process does."""
    log.abandon()
    log._context.scheduler.stop()
    log._context.home.release()


def found_in(log: Log) -> Found:
    records = list(log.read())
    start = log.log_start_offset
    offsets = [record.offset for record in records]
    assert offsets == list(range(start, log.log_end_offset)), f"offsets {offsets} from {start}"
    return Found(start, tuple(record.value or b"" for record in records))


class Session:
    """A log that is open on a disk, and what its writer notes."""

    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self.files = files
        self.rng = rng
        self._number = 1_000 * len(said)
        self.clock = ManualClock()
        self.log = self._open()
        self._note_opened()

    def _open(self) -> Log:
        return open_partition(self.files, clock=self.clock)

    def _note_opened(self) -> None:
        found = found_in(self.log)
        self.note(Opened(found.start, found.values, self.log.durable_offset))
        self.end = found.end
        self._last = found.values[-1] if found.values else b"none<"
        self._borders = [found.end]
        self._sequences: dict[int, int] = {}

    def note(self, said: Any) -> None:
        self.files.note(said)

    def _values(self, count: int, size_bytes: int) -> list[bytes]:
        values = []
        for _ in range(count):
            self._number += 1
            self._last = next_value(self._number, self._last, size_bytes)
            values.append(self._last)
        return values

    # What may be done

    def append(self, count: int = 1, *, size_bytes: int = 20, flush: bool = False) -> None:
        """One batch."""
        values = self._values(count, size_bytes)
        self.note(Appending(self.end, tuple(values)))
        offsets = self.log.extend([(None, value) for value in values], flush=flush)
        assert offsets == range(self.end, self.end + count), f"{offsets} instead of {self.end}"
        self.end += count
        self._borders.append(self.end)
        self._note_durable()

    def append_as_producer(self) -> None:
        """A batch of an idempotent producer, a new one or one of this session."""
        producers = self._sequences
        if not producers or self.rng.random() < 0.5:
            producers[self._number] = 0
        producer_id = self.rng.choice(list(producers))
        values = self._values(2, 5)
        batch = encode_batch(
            [None] * 2,
            values,
            self.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=producers[producer_id],
        )
        self.note(Appending(self.end, tuple(values)))
        result = self.log.append_batch(bytes(batch))
        assert result is not None
        assert result.base_offset == self.end
        producers[producer_id] += 2
        self.end += 2
        self._borders.append(self.end)
        self._note_durable()

    def append_from_two_threads(self) -> None:
        """A second thread appends and flushes while the first one's flush is under way."""
        first, second = self._values(1, 20), self._values(1, 20)
        has_noted, has_written = Event(), Event()

        def append_second() -> None:
            self.note(Appending(self.end + 1, tuple(second)))
            self.log.extend([(None, second[0])], flush=True)

        thread = Thread(target=append_second)

        def before(operation: Operation) -> None:
            if current_thread() is thread:
                if isinstance(operation, Write) and operation.path.endswith(".log"):
                    has_written.set()
                if is_group_commit(operation):
                    assert has_noted.wait(10)
            elif is_group_commit(operation) and thread.ident is None:
                thread.start()
                assert has_written.wait(10)

        def is_group_commit(operation: Operation) -> bool:
            """The flush that others wait for, and not one of a roll, during which nobody can append."""
            return isinstance(operation, FlushFile) and not self.log._lock._is_owned()

        self.note(Appending(self.end, tuple(first)))
        self.files.before = before
        self.log.extend([(None, first[0])], flush=True)
        self.files.before = None if thread.ident is None else before
        self.note(Durable(self.end + 1))
        has_noted.set()
        if thread.ident is None:  # an append that rolls has flushed nothing of its own
            append_second()
        else:
            thread.join()
        self.files.before = None
        self.end += 2
        self._borders += [self.end - 1, self.end]
        self._note_durable()

    def flush(self) -> None:
        self.log.flush()
        assert self.log.durable_offset == self.end
        self._note_durable()

    def _note_durable(self) -> None:
        self.note(Durable(self.log.durable_offset))

    def roll(self) -> None:
        self.log.roll()
        self._note_durable()

    def checkpoint(self) -> None:
        self.log.checkpoint()
        self._note_durable()

    def delete_before(self) -> None:
        offset = self.rng.randint(self.log.log_start_offset, self.end)
        self.note(Deleting(offset))
        self.note(Deleted(self.log.delete_before(offset)))

    def truncate(self) -> None:
        """At a border of batches."""
        start = self.log.log_start_offset
        floor = self.rng.choice([border for border in self._borders if border >= start] or [self.end])
        self.note(Truncating(floor))
        self.log.truncate_to(floor)
        self.end = self.log.log_end_offset
        self.note(Truncated(self.end))
        self._note_durable()
        self._borders = [border for border in self._borders if border <= self.end]
        self._sequences.clear()
        last = list(self.log.read(self.end - 1)) if self.end > self.log.log_start_offset else []
        self._last = (last[0].value or b"") if last else b"none<"

    def remove_deleted(self) -> None:
        """Let the time come at which deleted files are removed."""
        self.clock.advance(120_000)
        self.log._context.scheduler.run_due()

    def new_epoch(self) -> None:
        latest = self.log.leader_epoch
        self.log.assign_leader_epoch(max(latest, 0) + 1)

    def reopen(self) -> None:
        """A clean stop."""
        self.log.close()
        self._note_durable_all()
        self.log = self._open()
        self._note_opened()

    def _note_durable_all(self) -> None:
        self.note(Durable(self.end))


ACTIONS: dict[str, tuple[int, Callable[[Session], None]]] = {
    "append": (6, lambda s: s.append(s.rng.randint(1, 3), size_bytes=s.rng.choice((5, 50, 700)))),
    "append and flush": (4, lambda s: s.append(s.rng.randint(1, 3), flush=True)),
    "append as producer": (3, Session.append_as_producer),
    "append from two threads": (1, Session.append_from_two_threads),
    "flush": (2, Session.flush),
    "roll": (2, Session.roll),
    "checkpoint": (1, Session.checkpoint),
    "delete before": (1, Session.delete_before),
    "truncate": (1, Session.truncate),
    "remove deleted": (1, Session.remove_deleted),
    "new epoch": (1, Session.new_epoch),
    "reopen": (1, Session.reopen),
}


class PartitionScenario:
    """Sessions of random actions, or of given ones."""

    def __init__(self, *, actions: Sequence[str] = (), length: int = 8) -> None:
        self._actions = actions
        self._length = length

    def session(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        session = Session(files, said, rng)
        names = list(ACTIONS)
        weights = [weight for weight, _ in ACTIONS.values()]
        for name in self._actions or rng.choices(names, weights, k=self._length):
            ACTIONS[name][1](session)

    def check(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        history = History(said)
        log = open_partition(files)
        found = found_in(log)
        history.check(found)
        assert log.durable_offset >= history.durable
        check_lookups(log, found)
        check_producers(log)
        end = log.log_end_offset
        log.extend([(None, b"more")], flush=True)
        abandon(log)
        again = open_partition(MemoryFiles(files.now()))
        cut_bytes = again.recovery.cut_bytes
        assert cut_bytes == 0, f"a second recovery cut {cut_bytes} bytes more"
        assert found_in(again) == Found(found.start, (*found.values, b"more")), (
            "the second open found another log"
        )
        assert again.log_end_offset == end + 1


def check_lookups(log: Log, found: Found) -> None:
    """The indexes lead to every record."""
    for offset, value in enumerate(found.values, found.start):
        record = log.record_at(offset)
        assert record is not None
        assert record.value == value, f"offset {offset} leads to {record}"


def check_producers(log: Log) -> None:
    """The last batch that the log has of a producer is known again, the one behind it is taken."""
    last: dict[int, tuple[bytes, BatchHeader]] = {}
    for data, header in batches_of(log):
        if header.producer_id >= 0:
            last[header.producer_id] = data, header
    for data, header in last.values():
        result = log.append_batch(bytes(8) + data[8:])  # the base offset is the leader's to give
        assert result is not None
        assert result.is_duplicate, f"the batch of producer {header.producer_id} was appended twice"
        assert result.base_offset == header.base_offset


def batches_of(log: Log) -> Iterator[tuple[bytes, BatchHeader]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.fetch(offset)
        for position, header in scan_batches(fetched.data, 0, len(fetched.data), check=False)[0]:
            yield fetched.data[position : position + header.size_bytes], header
        offset = fetched.next_offset
