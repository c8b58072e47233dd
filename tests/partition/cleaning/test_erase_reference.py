"""Erasing against a dict of all that was appended: what must be left, and what no file may hold."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from logstore.model import Isolation, NewRecord
from logstore.testing import ManualClock
from tests.partition.helpers_compaction import end, reopen
from tests.partition.helpers_erase import has_trace, is_dense
from tests.partition.helpers_rules import identity, open_log

KEYS = "abcd"
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, 5, 7
CODECS = ["producer", "gzip", "snappy", "lz4", "zstd"]


class Reference:
    """The log and the dict beside it."""

    def __init__(self, path: Path, codec: str, segment_bytes: int) -> None:
        self.log = open_log(
            path,
            clock=ManualClock(),
            compression_type=codec,
            segment_bytes=segment_bytes,
            index_interval_bytes=64,
            file_delete_delay_ms=60_000,
        )
        self.path = path
        self.count = 0
        self.records: dict[int, tuple[bytes | None, bytes]] = {}
        """Offset -> key and value, of what is in the log."""
        self.erased: list[bytes] = []
        """Values."""
        self.sequences = {IDEMPOTENT: 0, TRANSACTIONAL: 0}
        self.last: dict[int, tuple[int, list[NewRecord], range]] = {}
        """First sequence, rows and offsets of a producer's last batch."""
        self.opened: list[int] = []

    def append(self, producer: int, keys: str) -> None:
        rows = []
        for key in keys:
            self.count += 1
            rows.append(NewRecord(b"<value %d>" % self.count, None if key == "-" else key.encode()))
        if producer == PLAIN:
            offsets = self.log.extend(rows)
        else:
            sequence = self.sequences[producer]
            offsets = self._extend_as(producer, sequence, rows)
            self.last[producer] = sequence, rows, offsets
            self.sequences[producer] += len(rows)
        if producer == TRANSACTIONAL:
            self.opened += offsets
        for offset, row in zip(offsets, rows, strict=True):
            self.records[offset] = row.key, row.value or b""

    def _extend_as(self, producer: int, sequence: int, rows: list[NewRecord]) -> range:
        who = identity(sequence, producer=producer, transactional=producer == TRANSACTIONAL)
        return self.log.extend(rows, producer=who)

    def end(self, *, committed: bool) -> None:
        if self.opened:
            end(self.log, TRANSACTIONAL, committed=committed)
            self.opened = []

    def erase(self, keys: str, offsets: list[int]) -> None:
        wanted = {key.encode() for key in keys}
        gone = {at: value for at, (key, value) in self.records.items() if key in wanted or at in offsets}
        report = self.log.erase(keys=wanted, offsets=offsets)
        below = [offset for offset in report.offsets if offset < self.log.log_start_offset]
        assert report.offsets[len(below) :] == tuple(gone)
        self.erased += gone.values()
        for offset in gone:
            del self.records[offset]
        assert not any(has_trace(self.path, value) for value in gone.values())

    def delete_before(self, offset: int) -> None:
        start = self.log.delete_before(min(offset, self.log.log_end_offset))
        self.records = {at: record for at, record in self.records.items() if at >= start}

    def truncate(self, offset: int) -> None:
        """Batches go whole; that is for other tests to check."""
        self.log.truncate_to(offset)
        there = {record.offset for record in self.log.read(isolation=Isolation.LOG_END)}
        assert there <= {at for at in self.records if at < offset}
        self.records = {at: record for at, record in self.records.items() if at in there}
        self.last.clear()
        states = self.log.writer.core.producers.active_producers()
        self.sequences = {
            number: states[number].next_sequence if number in states else 0 for number in self.sequences
        }
        self.opened = [at for at in self.opened if at < self.log.log_end_offset]
        if TRANSACTIONAL not in states or states[TRANSACTIONAL].transaction_first_offset is None:
            self.opened = []

    def check(self) -> None:
        """Everything that holds at any time."""
        found = {
            record.offset: (record.key, record.value) for record in self.log.read(isolation=Isolation.LOG_END)
        }
        assert found == self.records
        for offset in range(self.log.log_start_offset, self.log.log_end_offset):
            record = self.log.record_at(offset, isolation=Isolation.LOG_END)
            assert (None if record is None else (record.key, record.value)) == self.records.get(offset)
        for producer, (sequence, rows, offsets) in self.last.items():
            assert self._extend_as(producer, sequence, rows) == offsets, "a duplicate was appended again"
        report = self.log.verify()
        assert report, report

    def run(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        if name == "append":
            self.append(*arguments)
        elif name == "end":
            self.end(committed=arguments[0])
        elif name == "roll":
            self.log.roll()
        elif name == "checkpoint":
            self.log.checkpoint()
        elif name == "erase":
            self.erase(*arguments)
        elif name == "delete":
            self.delete_before(*arguments)
        elif name == "truncate":
            self.truncate(*arguments)
        else:
            is_needed = name == "clean" or self.log.log_start_offset > 0  # they alone know what was deleted
            self.log = reopen(self.log, how=name, keep_snapshots=arguments[0] or is_needed)


offsets = st.integers(0, 40)
steps = st.one_of(
    st.tuples(
        st.just("append"),
        st.sampled_from([PLAIN, PLAIN, IDEMPOTENT, TRANSACTIONAL]),
        st.text(KEYS + "-", min_size=1, max_size=4),
    ),
    st.tuples(st.just("append"), st.just(PLAIN), st.text(KEYS + "-", min_size=1, max_size=4)),
    st.tuples(st.just("end"), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("erase"), st.text(KEYS, max_size=2), st.lists(offsets, max_size=4)),
    st.tuples(st.just("erase"), st.just(""), st.lists(offsets, max_size=4)),
    st.tuples(st.just("delete"), offsets),
    st.tuples(st.just("truncate"), offsets),
    st.tuples(st.sampled_from(["clean", "crash"]), st.booleans()),
)


def run_all(wanted: list[tuple[Any, ...]], codec: str, segment_bytes: int) -> Reference:
    directory = Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
    try:
        reference = Reference(directory / "topic-0", codec, segment_bytes)
        for step in wanted:
            reference.run(step)
            if step[0] not in ("append", "checkpoint"):
                reference.check()
        reference.run(("crash", False))
        reference.check()
        reference.log.close()
        return reference
    finally:
        shutil.rmtree(directory)


_DELETED_AND_ROLLED: list[tuple[Any, ...]] = [("append", IDEMPOTENT, "a"), ("delete", 1), ("roll",)]


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@example(_DELETED_AND_ROLLED, "producer", 100_000)
@given(st.lists(steps, min_size=10, max_size=40), st.sampled_from(CODECS), st.sampled_from([400, 100_000]))
def test_what_is_left_is_what_nobody_erased(wanted, codec, segment_bytes):
    reference = run_all(wanted, codec, segment_bytes)
    event(f"erased records: {min(len(reference.erased), 10) // 3 * 3} or more")


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.one_of(steps.filter(lambda step: step[0] not in ("truncate", "delete"))), max_size=30),
    st.sampled_from(CODECS),
)
def test_batches_stay_dense(wanted, codec):
    directory = Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
    try:
        reference = Reference(directory / "topic-0", codec, 400)
        for step in wanted:
            reference.run(step)
        assert is_dense(reference.log)
        reference.log.close()
    finally:
        shutil.rmtree(directory)
