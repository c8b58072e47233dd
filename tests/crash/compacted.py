"""Sessions of all operations on a compacted partition: a scenario of the crash explorer.

Each record must exist, or compaction may have removed it. While a round is running, both are right for each
record that it may remove; after it has returned, only what it left is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from logstore.config import TopicConfig
from logstore.format.batch import encode_batch
from logstore.format.header import BatchHeader
from logstore.model import Isolation, ProducerIdentity
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles
from tests.crash.partition import abandon, open_partition
from tests.crash.scenario import RandomScenario
from tests.crash.writer import batches_of

DELETE_RETENTION_MS = 60_000
CONFIG = TopicConfig(
    cleanup_policy="compact",
    segment_bytes=1_500,
    index_interval_bytes=100,
    delete_retention_ms=DELETE_RETENTION_MS,
)
KEYS = (b"a", b"b", b"c", b"d")
_MAP_BYTES = 1_000  # so few keys that the dict of plain Python needs several rounds

Keyed = tuple[bytes, bytes | None]
Contents = dict[int, Keyed]
"""Offset -> key and value."""


class Appending(NamedTuple):
    """These records are about to be written, at these offsets."""

    offset: int
    records: tuple[Keyed, ...]
    is_aborted: bool = False
    """They belong to a transaction that is never committed."""


class Durable(NamedTuple):
    """A call has returned that promises everything below ``offset``."""

    offset: int


class Compacting(NamedTuple):
    """From now on compaction may remove records below ``end`` that are not the latest of their keys;
    tombstones only if a round at least their retention ago may also have seen them."""

    end: int
    now_ms: int


class Compacted(NamedTuple):
    """These records are left, durably."""

    contents: tuple[tuple[int, Keyed], ...]


class Opened(NamedTuple):
    """What a session has found in the log."""

    contents: tuple[tuple[int, Keyed], ...]
    end: int
    durable: int


class History:
    """Combines the notes of all sessions into the contents that are allowed now."""

    def __init__(self, said: Iterable[Any]) -> None:
        self.durable = 0
        self.aborted: set[int] = set()
        """Offsets of records that were never committed."""
        self._line: Contents = {}
        """The contents of the log if nothing is lost or removed."""
        self._allowed: dict[int, set[Keyed]] = {}
        self._rounds: list[Compacting] = []
        self._may_go: set[int] = set()
        for note in said:
            self._fold(note)

    def _fold(self, note: Any) -> None:
        if isinstance(note, Appending):
            for offset, record in enumerate(note.records, note.offset):
                self._line[offset] = record
                self._allowed.setdefault(offset, set()).add(record)
                (self.aborted.add if note.is_aborted else self.aborted.discard)(offset)
        elif isinstance(note, Durable):
            for offset in self._line.keys() & range(self.durable, note.offset):
                self._allowed[offset] = {self._line[offset]}
            self.durable = max(self.durable, note.offset)
        elif isinstance(note, Compacting):
            self._rounds.append(note)
            self._may_go = removable(self._line, self._rounds, self.aborted)
        elif isinstance(note, Compacted):
            self._keep_only(dict(note.contents))
        elif isinstance(note, Opened):
            self._cut(note.end)
            self._keep_only(dict(note.contents))
            self._fold(Durable(note.durable))

    def _keep_only(self, contents: Contents) -> None:
        gone = [offset for offset in self._line if offset not in contents]
        for offset in gone:
            del self._line[offset], self._allowed[offset]
        self._line |= contents
        self._may_go = set()

    def _cut(self, end: int) -> None:
        for offset in [offset for offset in self._line if offset >= end]:
            del self._line[offset], self._allowed[offset]

    def check(self, contents: Contents, end: int) -> None:
        """Raise unless the log may have these contents."""
        assert end >= self.durable, f"LOST: the log ends at {end}, {self.durable} was promised"
        for offset, record in contents.items():
            allowed = self._allowed.get(offset, set())
            assert record in allowed, f"WRONG: at offset {offset} is {record}; it may be one of {allowed}"
        for offset in self._line:
            if offset < end and offset not in contents:
                assert offset in self._may_go, f"LOST: offset {offset}, {self._line[offset]}, is gone"


def removable(contents: Contents, rounds: Sequence[Compacting], aborted: set[int]) -> set[int]:
    """The offsets that the last of these rounds may remove."""
    this = rounds[-1]
    later: set[bytes] = set()
    found: set[int] = set()
    for offset in sorted(contents, reverse=True):
        key, value = contents[offset]
        if offset >= this.end:
            continue
        if offset in aborted:
            found.add(offset)
            continue
        if key in later or (value is None and _is_expired(offset, rounds)):
            found.add(offset)
        later.add(key)
    return found


def _is_expired(offset: int, rounds: Sequence[Compacting]) -> bool:
    now_ms = rounds[-1].now_ms
    seen = [each for each in rounds[:-1] if offset < each.end]
    return any(now_ms >= each.now_ms + DELETE_RETENTION_MS for each in seen)


def open_compacted(files: MemoryFiles, clock: ManualClock | None = None) -> Log:
    return open_partition(files, config=CONFIG, clock=clock or ManualClock())


def contents_of(log: Log, isolation: Isolation = Isolation.LOG_END) -> Contents:
    return {record.offset: (record.key or b"", record.value) for record in log.read(isolation=isolation)}


def latest_of(contents: Contents, aborted: set[int]) -> dict[bytes, bytes]:
    """Key -> value, without deleted keys."""
    table = {key: value for offset, (key, value) in sorted(contents.items()) if offset not in aborted}
    return {key: value for key, value in table.items() if value is not None}


class CompactedSession:
    """A compacted partition that is open on a disk."""

    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self.files = files
        self.rng = rng
        self.say = files.note
        self.clock = ManualClock()
        self._number = 1_000 * len(said)
        self._aborted = History(said).aborted
        self._open()

    def _open(self) -> None:
        """Abort the transactions that the last session has left open."""
        self.log = open_compacted(self.files, self.clock)
        contents = contents_of(self.log)
        self.say(Opened(tuple(contents.items()), self.log.log_end_offset, self.log.durable_offset))
        for producer_id, state in self.log.writer.core.producers.active_producers().items():
            if state.transaction_first_offset is not None:
                self.log.append_end_marker(producer_id, 0, committed=False)
        self._sequences: dict[int, int] = {}

    def _records(self, count: int, *, is_aborted: bool = False) -> list[Keyed]:
        """The next records, which are about to be appended."""
        made: list[Keyed] = []
        for _ in range(count):
            self._number += 1
            is_tombstone = self.rng.random() < 0.2
            size_bytes = self.rng.choice((5, 50, 400))
            value = None if is_tombstone else b"%d" % self._number + b"." * size_bytes
            made.append((self.rng.choice(KEYS), value))
        offset = self.log.log_end_offset
        self._aborted -= {*range(offset, offset + count)}
        if is_aborted:
            self._aborted |= {*range(offset, offset + count)}
        self.say(Appending(offset, tuple(made), is_aborted))
        return made

    def append(self, *, flush: bool = False) -> None:
        self.log.extend(self._records(self.rng.randint(1, 3)), flush=flush)
        self.say(Durable(self.log.log_end_offset if flush else self.log.durable_offset))

    def append_as_producer(self) -> None:
        if not self._sequences or self.rng.random() < 0.3:
            self._sequences[self._number] = 0
        producer_id = self.rng.choice(list(self._sequences))
        sequence = self._sequences[producer_id]
        batch = keyed_batch(self._records(2), self.clock.now_ms(), producer_id, sequence)
        assert self.log.append_batch(batch) is not None
        self._sequences[producer_id] += 2
        self.say(Durable(self.log.durable_offset))

    def abort(self) -> None:
        """A transaction, by a producer of its own, that is aborted."""
        records = self._records(2, is_aborted=True)
        producer_id = self._number
        self.log.extend(records, producer=ProducerIdentity(producer_id, 0, 0, transactional=True))
        if self.rng.random() < 0.5:
            self.append()
        self.log.append_end_marker(producer_id, 0, committed=False)
        self.say(Durable(self.log.durable_offset))

    def roll(self) -> None:
        self.log.roll()
        self.say(Durable(self.log.durable_offset))

    def compact(self) -> None:
        before = contents_of(self.log)
        compacting = Compacting(self.log.log_end_offset, self.clock.now_ms())
        self.say(compacting)
        report = self.log.compact(now=True, map_bytes=_MAP_BYTES)
        after = contents_of(self.log)
        left = after.keys() & superseded(before, self._aborted)
        assert not left, f"a round has left {left}, which are not the latest of their keys: {report}"
        self.say(Durable(self.log.durable_offset))
        self.say(Compacted(tuple(after.items())))

    def wait(self) -> None:
        """Let tombstones expire, and deleted files be removed."""
        self.clock.advance(2 * DELETE_RETENTION_MS)
        self.log._context.scheduler.run_due()

    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.say(Durable(self.log.durable_offset))

    def reopen(self) -> None:
        end = self.log.log_end_offset
        self.log.close()
        self.say(Durable(end))
        self._open()


def superseded(contents: Contents, aborted: set[int]) -> set[int]:
    """Offsets of records that are not the latest of their keys, or that were aborted."""
    committed = {offset: key for offset, (key, _) in sorted(contents.items()) if offset not in aborted}
    latest = {key: offset for offset, key in committed.items()}
    return contents.keys() - set(latest.values())


def keyed_batch(records: Sequence[Keyed], now_ms: int, producer_id: int, sequence: int) -> bytes:
    keys, values = zip(*records, strict=True)
    return bytes(
        encode_batch(
            list(keys),
            list(values),
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )


def check_sequences(log: Log) -> None:
    """Check that the log recognises the last batch of each producer, even if compaction has emptied it."""
    last: dict[int, BatchHeader] = {}
    for _, header in batches_of(log):
        if header.producer_id >= 0 and not header.is_transactional:
            last[header.producer_id] = header
    end = log.log_end_offset
    for producer_id, header in last.items():
        count = header.last_offset - header.base_offset + 1
        batch = keyed_batch([(b"a", b"again")] * count, 0, producer_id, header.base_sequence)
        result = log.append_batch(batch)
        assert result is not None
        assert result.is_duplicate, f"the last batch of producer {producer_id} was appended twice"
        assert result.base_offset == header.base_offset
    assert log.log_end_offset == end


ACTIONS: dict[str, tuple[int, Callable[[CompactedSession], None]]] = {
    "append": (5, CompactedSession.append),
    "append and flush": (4, lambda s: s.append(flush=True)),
    "append as producer": (2, CompactedSession.append_as_producer),
    "abort": (2, CompactedSession.abort),
    "roll": (2, CompactedSession.roll),
    "compact": (4, CompactedSession.compact),
    "wait": (1, CompactedSession.wait),
    "checkpoint": (1, CompactedSession.checkpoint),
    "reopen": (1, CompactedSession.reopen),
}


class CompactedScenario(RandomScenario):
    """Sessions of one compacted partition."""

    table = ACTIONS

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> CompactedSession:
        return CompactedSession(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        log = open_compacted(files)
        contents, end = contents_of(log), log.log_end_offset
        history = History(said)
        history.check(contents, end)
        aborted = {offset for offset in history.aborted if offset < end}
        shown = contents_of(log, Isolation.COMMITTED).keys() & aborted
        assert not shown, f"offsets {shown} were aborted"
        report = log.verify()
        assert report, str(report)
        for offset, (key, value) in contents.items():
            record = log.record_at(offset)
            assert record is not None
            assert (record.key, record.value) == (key, value), f"offset {offset} leads to {record}"
        check_sequences(log)
        log.compact(now=True)
        table = latest_of(contents, aborted)
        assert latest_of(contents_of(log), aborted) == table
        log.extend([(b"z", b"more")], flush=True)
        abandon(log)
        again = open_compacted(MemoryFiles(files.now()))
        assert again.recovery.cut_bytes == 0
        assert latest_of(contents_of(again), aborted) == table | {b"z": b"more"}
