"""A compacted partition whose writer is cut off anywhere: while it appends, compacts, or opens again.

Each value says its number, and the notes say what was appended and what is durable; so a check knows of each
key which records may be its latest.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from logstore.config import StoreConfig, TopicConfig
from logstore.model import Isolation, NewRecord, ProducerIdentity, Record
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles

DIRECTORY = "/t-0"
KEYS = 5
_SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 500,
    "index_interval_bytes": 64,
    "delete_retention_ms": 10**9,
    "file_delete_delay_ms": 0,
}


class Appending(NamedTuple):
    """These records are about to be written."""

    records: tuple[tuple[int, bytes, bytes | None], ...]
    is_aborted: bool = False


class Durable(NamedTuple):
    """A call has returned that promises everything below ``offset``."""

    offset: int


class Opened(NamedTuple):
    """A session has found the log like this."""

    end: int
    records: tuple[tuple[int, bytes, bytes | None], ...]


def open_log(files: MemoryFiles) -> Log:
    return Log.open(
        DIRECTORY,
        config=TopicConfig(**_SETTINGS),
        store_config=StoreConfig(log_flush_offset_checkpoint_interval_ms=10**9),
        files=files,
        clock=ManualClock(),
    )


def rows_of(records: Iterable[Record]) -> tuple[tuple[int, bytes, bytes | None], ...]:
    return tuple((record.offset, record.key or b"", record.value) for record in records)


class CompactionScenario:
    """Appends, aborts, rolls and compacts in random order."""

    def __init__(self, length: int = 8) -> None:
        self._length = length

    def session(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        log = open_log(files)
        self._check_against(log, Expected(said))
        for producer, state in log._core.producers.active_producers().items():
            if state.transaction_first_offset is not None:
                log.append_end_marker(producer, 0, committed=False)
        log.flush()
        files.note(Opened(log.log_end_offset, rows_of(log.read(isolation=Isolation.LOG_END))))
        for number in range(self._length):
            self._step(log, files, rng, rng.randrange(10**9), number)
        log.close()

    def _step(self, log: Log, files: MemoryFiles, rng: random.Random, name: int, number: int) -> None:
        chance = rng.random()
        if chance < 0.55:
            rows = [_row(rng, name, each) for each in range(rng.randrange(1, 4))]
            self._append(log, files, rows, flush=rng.random() < 0.6)
        elif chance < 0.7:
            self._abort(log, files, [_row(rng, name, each) for each in range(2)], rng)
        elif chance < 0.8:
            log.roll()
        else:
            log.compact(now=True, map_bytes=rng.choice([200, 10_000]))
            files.note(Durable(log.log_end_offset))

    def _append(self, log: Log, files: MemoryFiles, rows: list[NewRecord], *, flush: bool) -> None:
        _note_rows(log, files, rows, is_aborted=False)
        log.extend(rows, flush=flush)
        if flush:
            files.note(Durable(log.log_end_offset))

    def _abort(self, log: Log, files: MemoryFiles, rows: list[NewRecord], rng: random.Random) -> None:
        """A transaction of a producer of its own, so that no crash can make its sequence wrong."""
        producer = rng.randrange(10**9)
        _note_rows(log, files, rows, is_aborted=True)
        log.extend(rows, producer=ProducerIdentity(producer, 0, 0, transactional=True))
        log.append_end_marker(producer, 0, committed=False)
        log.flush()
        files.note(Durable(log.log_end_offset))

    def check(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        log = open_log(files)
        self._check_against(log, Expected(said))
        report = log.verify()
        assert report, report
        log.close()

    def _check_against(self, log: Log, expected: Expected) -> None:
        found = rows_of(log.read(isolation=Isolation.LOG_END))
        assert log.log_end_offset >= expected.durable
        for row in found:
            assert row in expected.allowed.get(row[0], ()), f"{row} was never appended there"
        for row in rows_of(log.read(isolation=Isolation.COMMITTED)):
            assert row in expected.committed, f"{row} was aborted"
        for row in expected.must_be_there(log.last_stable_offset):
            is_there = any(
                each[1] == row[1] and each[0] >= row[0] and each in expected.committed for each in found
            )
            assert is_there, f"{row} is lost"


def _row(rng: random.Random, name: int, number: int) -> NewRecord:
    value = None if rng.random() < 0.1 else b"%d.%d" % (name, number)
    return NewRecord(value, b"k%d" % rng.randrange(KEYS))


def _note_rows(log: Log, files: MemoryFiles, rows: list[NewRecord], *, is_aborted: bool) -> None:
    base = log.log_end_offset
    records = tuple((base + number, row.key, row.value) for number, row in enumerate(rows))
    files.note(Appending(records, is_aborted))


class Expected:
    """What the notes allow and demand."""

    def __init__(self, said: Sequence[Any]) -> None:
        self.allowed: dict[int, set[Any]] = {}
        self.aborted: set[Any] = set()
        self.committed: set[Any] = set()
        self.durable = 0
        self._line: dict[int, Any] = {}
        for note in said:
            self._fold(note)

    def _fold(self, note: Any) -> None:
        if isinstance(note, Appending):
            for row in note.records:
                self.allowed.setdefault(row[0], set()).add(row)
                self._line[row[0]] = row
                (self.aborted if note.is_aborted else self.committed).add(row)
        elif isinstance(note, Durable):
            self.durable = note.offset
        elif isinstance(note, Opened):
            self._line = {offset: row for offset, row in self._line.items() if offset < note.end}
            self._line.update({row[0]: row for row in note.records})
            self.durable = note.end

    def must_be_there(self, stable: int) -> list[Any]:
        """The latest durable record of each key that was not aborted: it, or a later one."""
        latest: dict[bytes, Any] = {}
        for offset in sorted(self._line):
            row = self._line[offset]
            if offset < min(self.durable, stable) and row not in self.aborted:
                latest[row[1]] = row
        return list(latest.values())
