"""Compaction against a list of all that was ever appended: what must be left, what must be gone.

The reference knows records, not batches: it says of each record whether compaction has to keep it, has to
remove it, or may do either (a tombstone whose time is over goes in the next compaction that meets it).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from logstore.model import Isolation, Record
from logstore.partition.cleaning import joined_batches
from logstore.partition.cleaning.joined_batches import SMALL_BYTES
from logstore.testing import ManualClock
from tests.partition.helpers_compaction import RETENTION_MS, end, open_compacted, reopen, row
from tests.partition.helpers_rules import identity

KEYS = "abcdef"
PLAIN, IDEMPOTENT, FIRST_TRANSACTIONAL = -1, 5, 7


@dataclass
class Entry:
    """One record that was appended."""

    record: Record
    producer: int = PLAIN
    is_open: bool = False
    """Its transaction has not ended."""
    is_aborted: bool = False
    met_ms: int | None = None
    """When a compaction met it first."""


@dataclass
class Producer:
    sequence: int = 0
    last: tuple[int, list[Any], range] | None = None
    """First sequence, rows and offsets of the last batch."""
    opened: list[Entry] = field(default_factory=list)
    """The records of the open transaction."""


class Reference:
    """The log and the list beside it."""

    def __init__(self, path: Path, codec: str, segment_bytes: int) -> None:
        self.clock = ManualClock()
        self.log = open_compacted(
            path,
            clock=self.clock,
            compression_type=codec,
            segment_bytes=segment_bytes,
            index_interval_bytes=64,
        )
        self.entries: dict[int, Entry] = {}
        """Those that may still be in the log, by offset."""
        self.producers = {number: Producer() for number in (IDEMPOTENT, FIRST_TRANSACTIONAL, 8)}
        self.count = 0
        self.removed = 0

    def append(self, producer: int, keys: str) -> None:
        rows = []
        for key in keys:
            self.count += 1
            rows.append(row(key.lower(), None if key.isupper() else f"value {self.count}"))
        if producer == PLAIN:
            offsets = self.log.extend(rows)
        else:
            state = self.producers[producer]
            who = identity(state.sequence, producer=producer, transactional=producer >= FIRST_TRANSACTIONAL)
            offsets = self.log.extend(rows, producer=who)
            state.last = state.sequence, rows, offsets
            state.sequence += len(rows)
        for offset, each in zip(offsets, rows, strict=True):
            record = Record(offset, self.clock.now_ms(), each.key, each.value)
            entry = self.entries[offset] = Entry(record, producer)
            if producer >= FIRST_TRANSACTIONAL:
                entry.is_open = True
                self.producers[producer].opened.append(entry)

    def end(self, producer: int, *, committed: bool) -> None:
        end(self.log, producer, committed=committed)
        state = self.producers[producer]
        for entry in state.opened:
            entry.is_open, entry.is_aborted = False, not committed
        state.opened = []

    def compact(self, capacity: int) -> None:
        """And hold what is left against the rules."""
        self.log.roll()
        stop = self.log.dirtiness().first_uncleanable_offset
        before = self.entries
        self.log.compact(now=True, map_bytes=capacity)
        now_ms = self.clock.now_ms()
        found = {record.offset: record for record in self.log.read(isolation=Isolation.LOG_END)}
        assert list(found) == sorted(found)
        latest = {
            entry.record.key: offset
            for offset, entry in before.items()
            if offset < stop and not entry.is_aborted
        }
        for offset, entry in before.items():
            is_there = offset in found
            assert not is_there or found[offset] == entry.record
            wanted = self._is_wanted(entry, stop, latest, now_ms)
            assert wanted is None or wanted is is_there, (offset, entry, stop, now_ms)
            if offset < stop and entry.met_ms is None:
                entry.met_ms = now_ms
        assert found.keys() <= before.keys()
        self.entries = {offset: entry for offset, entry in before.items() if offset in found}
        self.removed += len(before) - len(found)

    def _is_wanted(self, entry: Entry, stop: int, latest: dict[Any, int], now_ms: int) -> bool | None:
        """Whether the record must be left; None: either is right."""
        if entry.record.offset >= stop:
            return True
        if entry.is_aborted or latest[entry.record.key] != entry.record.offset:
            return False
        if entry.record.value is not None or entry.met_ms is None:
            return True
        return now_ms < entry.met_ms + RETENTION_MS

    def reopen(self, how: str, *, keep_snapshots: bool = True) -> None:
        self.log = reopen(self.log, how=how, keep_snapshots=keep_snapshots)

    def check(self) -> None:
        """Everything that holds at any time."""
        found = list(self.log.read(isolation=Isolation.LOG_END))
        assert found == [entry.record for entry in self.entries.values()]
        stable = self.log.last_stable_offset
        opened = [state.opened[0].record.offset for state in self.producers.values() if state.opened]
        assert stable == min([*opened, self.log.log_end_offset])
        committed = [
            entry.record
            for offset, entry in self.entries.items()
            if offset < stable and not entry.is_aborted and not entry.is_open
        ]
        assert list(self.log.read(isolation=Isolation.COMMITTED)) == committed
        for number, state in self.producers.items():
            if state.last is not None:
                sequence, rows, offsets = state.last
                is_transactional = number >= FIRST_TRANSACTIONAL
                who = identity(sequence, producer=number, transactional=is_transactional)
                assert self.log.extend(rows, producer=who) == offsets, "a duplicate was appended again"
        report = self.log.verify()
        assert report, report

    def run(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        if name == "append":
            self.append(*arguments)
        elif name == "end":
            if self.producers[arguments[0]].opened:
                self.end(arguments[0], committed=arguments[1])
        elif name == "roll":
            self.log.roll()
        elif name == "compact":
            self.compact(*arguments)
        elif name == "advance":
            self.clock.advance(arguments[0])
        elif name == "jump":
            self.clock.jump(arguments[0])
        else:
            self.reopen(name, keep_snapshots=arguments[0] or name == "clean")


keys = st.text(KEYS + KEYS.upper(), min_size=1, max_size=4)
producers = st.sampled_from([PLAIN, PLAIN, IDEMPOTENT, FIRST_TRANSACTIONAL, 8])
enders = st.sampled_from([FIRST_TRANSACTIONAL, 8])
steps = st.one_of(
    st.tuples(st.just("append"), producers, keys),
    st.tuples(st.just("append"), producers, keys),
    st.tuples(st.just("end"), enders, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact"), st.sampled_from([400, 800, 10_000])),
    st.tuples(st.just("advance"), st.sampled_from([RETENTION_MS // 2, RETENTION_MS])),
    st.tuples(st.just("jump"), st.sampled_from([-3 * RETENTION_MS, 2 * RETENTION_MS])),
    st.tuples(st.sampled_from(["clean", "crash"]), st.booleans()),
)


def run_all(wanted: list[tuple[Any, ...]], codec: str, segment_bytes: int, *, joins: bool) -> Reference:
    directory = Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
    small_bytes = SMALL_BYTES if joins else 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined_batches, "SMALL_BYTES", small_bytes)
        return run_in(directory, wanted, codec, segment_bytes)


def run_in(directory: Path, wanted: list[tuple[Any, ...]], codec: str, segment_bytes: int) -> Reference:
    try:
        reference = Reference(directory / "topic-0", codec, segment_bytes)
        for step in wanted:
            reference.run(step)
            if step[0] not in ("advance", "jump", "append"):
                reference.check()
        reference.run(("compact", 10_000))
        reference.run(("crash", False))
        reference.check()
        reference.log.close()
        return reference
    finally:
        shutil.rmtree(directory)


some = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@some
@given(
    st.lists(steps, min_size=12, max_size=50),
    st.sampled_from(["producer", "lz4"]),
    st.sampled_from([400, 100_000]),
    st.booleans(),
)
def test_what_is_left_is_what_the_rules_say(wanted, codec, segment_bytes, joins):
    reference = run_all(wanted, codec, segment_bytes, joins=joins)
    event(f"removed records: {min(reference.removed, 20) // 5 * 5} or more")
