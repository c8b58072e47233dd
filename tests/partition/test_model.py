"""Any sequence of calls against a log of lists and dictionaries.

The model knows what the contract says and nothing of segments or files. After a crash it accepts what the
contract allows: everything that was written survives a killed process; after a power cut, which also cuts the
file of the active segment somewhere, the log is a prefix that holds everything durable.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logstore.errors import OffsetOutOfRangeError, OutOfOrderError
from logstore.model import Isolation, NewRecord, ProducerIdentity, Record
from logstore.partition.reading.records import iterate_batches
from logstore.testing import ManualClock
from tests.partition.helpers_rules import crash, open_log, run_background
from tests.rotation import seed_of_turn

LOG_END, HIGH_WATERMARK, COMMITTED, DURABLE = Isolation

small_payloads = st.one_of(st.none(), st.binary(max_size=12))
payloads = st.one_of(small_payloads, st.integers(13, 400).map(lambda n: b"x" * n))
headers = st.lists(
    st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2
).map(tuple)
ages = st.one_of(st.none(), st.integers(-1000, 1000))
new_records = st.tuples(payloads, payloads, headers, ages)
small_records = st.tuples(small_payloads, small_payloads, headers, ages)
"""Several of them fit into one batch of the smallest segment: a producer's records are never cut."""


class Model:
    """What the log must hold."""

    def __init__(self):
        self.records: list[Record] = []
        self.batches: list[range] = []
        """Offsets of what was written as one unit; truncation drops them whole."""
        self.start = 0
        self.end = 0
        self.durable = 0
        self.waiting: list[int] = []
        """Offsets that are gathered and not written."""
        self.markers: set[int] = set()
        self.open_since: dict[int, int] = {}
        self.hidden: set[int] = set()
        """Offsets of aborted records."""
        self.owner: dict[int, int] = {}
        """Of transactional records that are not decided."""

    def visible(self, start, limit):
        return [r for r in self.records if max(start, self.start) <= r.offset < limit]

    @property
    def stable(self):
        return max(min(self.open_since.values(), default=self.end), self.start)

    def add(self, record):
        self.records.append(record)
        self.end = record.offset + 1

    def write(self):
        if self.waiting:
            self.batches.append(range(self.waiting[0], self.waiting[-1] + 1))
            self.waiting = []

    def cut(self, end):
        """Drop what lies at or above ``end``, which becomes the log end."""
        self.records = [r for r in self.records if r.offset < end]
        self.batches = [b for b in self.batches if b.stop <= end]
        self.markers = {o for o in self.markers if o < end}
        self.end = end


class LogMachine(RuleBasedStateMachine):
    """Producer 1 is idempotent, producer 2 transactional; truncation forgets both in the model's stead."""

    def __init__(self):
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="logstore-model-"))
        self.clock = ManualClock()
        self.model = Model()
        self.log = None

    def teardown(self):
        if self.log is not None:
            crash(self.log)
        shutil.rmtree(self.directory)

    @initialize(
        segment_bytes=st.sampled_from([1500, 4000, 10**6]),
        compression=st.sampled_from(["producer", "zstd", "lz4"]),
        batch_bytes=st.sampled_from([300, 10**5]),
        interval=st.sampled_from([0, 200, 4096]),
        flush_messages=st.sampled_from([7, 2**63 - 1]),
    )
    def begin(self, segment_bytes, compression, batch_bytes, interval, flush_messages):
        self.settings = {
            "segment_bytes": segment_bytes,
            "compression_type": compression,
            "batch_bytes": batch_bytes,
            "index_interval_bytes": interval,
            "flush_messages": flush_messages,
            "flush_ms": 50,
            "retention_ms": 10_000,
            "file_delete_delay_ms": 100,
        }
        self.reset_producers()
        self.open()

    def open(self):
        self.log = open_log(self.directory / "topic-0", clock=self.clock, **self.settings)

    def reset_producers(self):
        """Both begin anew, with ids that the log does not know."""
        self.producer_id = getattr(self, "producer_id", 0) + 2
        self.sent = []  # (sequence, records, offsets) of the idempotent one
        self.sequence = 0
        self.transactional_sequence = 0

    # Appending

    def to_append(self, drawn):
        value, key, headers, age = drawn
        stamp = None if age is None else self.clock.now_ms() + age
        return NewRecord(value, key, headers, stamp)

    def note(self, new, offset):
        stamp = self.clock.now_ms() if new.timestamp_ms is None else new.timestamp_ms
        self.model.add(Record(offset, stamp, new.key, new.value, new.headers))

    def note_batch(self, news, offsets, *, one_batch):
        """``extend`` cuts its input into batches by size: the model reads from disk where."""
        assert offsets == range(self.model.end, self.model.end + len(news))
        for new, offset in zip(news, offsets, strict=True):
            self.note(new, offset)
        if one_batch:
            self.model.batches.append(offsets)
        elif offsets:
            self.learn_batches(offsets.start)

    def learn_batches(self, start):
        view = self.log.writer.core.view
        for found in iterate_batches(view, start, view.log_end_offset):
            if found.header.base_offset >= start:
                self.model.batches.append(range(found.header.base_offset, found.header.next_offset))

    @rule(drawn=new_records, flush=st.booleans())
    def append(self, drawn, flush):
        new = self.to_append(drawn)
        before = self.log.writer.core.log_end_offset
        offset = self.log.append(
            new.value, key=new.key, headers=new.headers, timestamp_ms=new.timestamp_ms, flush=flush
        )
        assert offset == self.model.end
        self.note(new, offset)
        self.after_write(before)
        if flush:
            assert self.log.writer.core.durable_offset == self.model.end

    def after_write(self, before):
        """Batches that were written since the log ended at ``before``."""
        if self.log.writer.core.log_end_offset > before:
            self.learn_batches(before)

    @rule(drawn=st.lists(new_records, max_size=12), flush=st.booleans())
    def extend(self, drawn, flush):
        news = [self.to_append(one) for one in drawn]
        self.settle()
        self.note_batch(news, self.log.extend(news, flush=flush), one_batch=False)

    @rule(drawn=st.lists(small_records, min_size=1, max_size=4))
    def extend_idempotent(self, drawn):
        news = [self.to_append(one) for one in drawn]
        self.settle()
        offsets = self.log.extend(news, producer=ProducerIdentity(self.producer_id, 0, self.sequence))
        self.note_batch(news, offsets, one_batch=True)
        self.sent = [*self.sent[-4:], (self.sequence, news, offsets)]
        self.sequence += len(news)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat_a_batch(self, data):
        sequence, news, offsets = data.draw(st.sampled_from(self.sent))
        assert self.log.extend(news, producer=ProducerIdentity(self.producer_id, 0, sequence)) == offsets

    @precondition(lambda self: self.sent)
    @rule(gap=st.integers(1, 5))
    def skip_a_sequence(self, gap):
        with pytest.raises(OutOfOrderError):
            self.log.extend([b"v"], producer=ProducerIdentity(self.producer_id, 0, self.sequence + gap))

    @rule(drawn=st.lists(small_records, min_size=1, max_size=3))
    def extend_transactional(self, drawn):
        news = [self.to_append(one) for one in drawn]
        self.settle()
        identity = ProducerIdentity(self.producer_id + 1, 0, self.transactional_sequence, True)
        offsets = self.log.extend(news, producer=identity)
        self.note_batch(news, offsets, one_batch=True)
        self.transactional_sequence += len(news)
        self.model.open_since.setdefault(identity.producer_id, offsets.start)
        self.model.owner.update(dict.fromkeys(offsets, identity.producer_id))

    @precondition(lambda self: self.model.open_since)
    @rule(committed=st.booleans())
    def end_transaction(self, committed):
        producer_id = next(iter(self.model.open_since))
        self.settle()
        marker = self.log.append_end_marker(producer_id, 0, committed=committed).base_offset
        assert marker == self.model.end
        self.model.batches.append(range(marker, marker + 1))
        self.model.markers.add(marker)
        self.model.end += 1
        del self.model.open_since[producer_id]
        mine = {offset for offset, owner in self.model.owner.items() if owner == producer_id}
        if not committed:
            self.model.hidden |= mine
        for offset in mine:
            del self.model.owner[offset]

    # Reading

    def settle(self):
        """Have what is gathered written, as each read does, and learn its batches."""
        before = self.log.writer.core.log_end_offset
        assert self.log.log_end_offset == self.model.end
        assert self.log._current_view().log_end_offset == self.model.end
        self.after_write(before)

    def settle_or_not(self, is_settled):
        """Changes write what is gathered, as one batch, before they do anything else."""
        if is_settled:
            self.settle()
            return
        written = self.log.writer.core.log_end_offset
        if written < self.model.end:
            self.model.batches.append(range(written, self.model.end))

    @rule(data=st.data(), isolation=st.sampled_from(Isolation))
    def read(self, data, isolation):
        self.settle()
        start = data.draw(st.integers(self.model.start, self.model.end))
        limit = {
            LOG_END: self.model.end,
            HIGH_WATERMARK: self.model.end,
            COMMITTED: self.model.stable,
            DURABLE: self.log.durable_offset,
        }[isolation]
        expected = self.model.visible(start, limit)
        if isolation is COMMITTED:
            expected = [record for record in expected if record.offset not in self.model.hidden]
        assert list(self.log.read(start, isolation=isolation)) == expected

    @rule(offset=st.integers(0, 500))
    def read_out_of_range(self, offset):
        self.settle()
        if not self.model.start <= offset <= self.model.end:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset)

    @rule(age=st.integers(-2000, 2000))
    def find_timestamp(self, age):
        self.settle()
        wanted = self.clock.now_ms() - age
        visible = self.model.visible(0, self.model.end)
        first = next((record.offset for record in visible if record.timestamp_ms >= wanted), None)
        assert self.log.offset_at(wanted) == first

    @rule()
    def find_max_timestamp(self):
        self.settle()
        best = max(
            self.model.visible(0, self.model.end), key=lambda r: (r.timestamp_ms, -r.offset), default=None
        )
        found = self.log.find_max_timestamp()
        assert (found and found[:2]) == (best and best[:2])

    # Changing

    @rule()
    def flush(self):
        before = self.log.writer.core.log_end_offset
        self.log.flush()
        self.after_write(before)
        assert self.log.durable_offset == self.model.end

    @rule(is_settled=st.booleans())
    def roll(self, is_settled):
        self.settle_or_not(is_settled)
        self.log.roll()

    @rule(data=st.data(), is_settled=st.booleans())
    def delete_before(self, data, is_settled):
        self.settle_or_not(is_settled)
        self.model.start = data.draw(st.integers(self.model.start, self.model.end))
        assert self.log.delete_before(self.model.start) == self.model.start

    @rule(data=st.data(), is_settled=st.booleans())
    def truncate_to(self, data, is_settled):
        self.settle_or_not(is_settled)
        end = data.draw(st.integers(max(self.model.end - 20, 0), self.model.end))
        assert self.log.truncate_to(end) == (end < self.model.end)
        self.forget_from(end)

    def forget_from(self, end):
        """The model after the log was cut at ``end``: batches go whole."""
        model = self.model
        if end >= model.end:
            return
        cut = [batch for batch in model.batches if batch.stop > end]
        model.records = [r for r in model.records if not any(r.offset in batch for batch in cut)]
        model.cut(end)
        model.start = min(model.start, end)
        self.abort_what_is_open()

    def abort_what_is_open(self):
        """Markers may be gone, and transactions open again: end whatever the log says is open."""
        self.reset_producers()
        model = self.model
        model.open_since, model.owner = {}, {}
        states = self.log.writer.core.producers.active_producers()
        for producer_id, state in states.items():
            first = state.transaction_first_offset
            if first is not None:
                marker = self.log.append_end_marker(producer_id, 0, committed=False).base_offset
                model.batches.append(range(marker, marker + 1))
                model.markers.add(marker)
                model.end = marker + 1
        self.learn_hidden()

    def learn_hidden(self):
        """Which transactional records are aborted, from the markers on disk, in order."""
        from logstore.format.control import ControlType, decode_control_record
        from logstore.partition.reading.records import iterate_batches

        hidden, undecided = set(), {}
        view = self.log.writer.core.view
        for found in iterate_batches(view, view.bases[0], view.log_end_offset):
            header = found.header
            if header.is_control:
                mine = undecided.pop(header.producer_id, set())
                if decode_control_record(found.decode()[0]).control_type is ControlType.ABORT:
                    hidden |= mine
            elif header.is_transactional:
                undecided.setdefault(header.producer_id, set()).update(
                    range(header.base_offset, header.next_offset)
                )
        self.model.hidden = hidden

    @rule(is_settled=st.booleans())
    def retain(self, is_settled):
        self.settle_or_not(is_settled)
        self.log.enforce_retention()
        start = self.log.log_start_offset
        assert start >= self.model.start
        limit = self.clock.now_ms() - 10_000
        gone = [r for r in self.model.records if self.model.start <= r.offset < start]
        assert all(record.timestamp_ms < limit for record in gone)
        self.model.start = start

    @rule(ms=st.sampled_from([1, 5, 50, 1000, 20_000]))
    def let_time_pass(self, ms):
        before = self.log.writer.core.log_end_offset
        self.clock.advance(ms)
        run_background(self.log)
        self.after_write(before)
        if ms >= 50:
            assert self.log.writer.core.durable_offset >= before

    # Ends

    @rule(is_settled=st.booleans())
    def close_and_reopen(self, is_settled):
        self.settle_or_not(is_settled)
        self.log.close()
        self.open()
        assert self.log.recovery.was_clean
        assert self.log.durable_offset == self.model.end
        self.sent = self.sent[-1:]

    @rule()
    def kill_and_reopen(self):
        """What was written survives; what was gathered may be gone."""
        written = self.log.writer.core.log_end_offset
        crash(self.log)
        self.open()
        assert self.log.log_end_offset == written
        self.lose_from(written)

    @rule(chance=st.integers(0, 2**32))
    def cut_power_and_reopen(self, chance):
        """The active segment's file ends somewhere at or above what is durable."""
        core = self.log.writer.core
        durable, written = core.durable_offset, core.log_end_offset
        path, safe_size = core.active.path, self.durable_size()
        crash(self.log)
        size = random.Random(chance).randint(safe_size, Path(path).stat().st_size)
        with open(path, "r+b") as file:
            file.truncate(size)
        self.open()
        assert durable <= self.log.log_end_offset <= written
        self.lose_from(self.log.log_end_offset)

    def durable_size(self):
        """Where in the active segment's file the first batch begins that is not durable."""
        core = self.log.writer.core
        for piece in core.active.walk(0, core.active.size_bytes, check=False):
            for position, header in piece.batches:
                if header.last_offset >= core.durable_offset:
                    return piece.position + position
        return core.active.size_bytes

    def lose_from(self, end):
        model = self.model
        model.start = self.log.log_start_offset
        model.waiting = []
        model.cut(end)
        self.abort_what_is_open()

    # Always

    @invariant()
    def offsets_are_in_order(self):
        if self.log is None:
            return
        view = self.log.writer.core.view
        assert view.log_start_offset <= view.last_stable_offset <= view.high_watermark <= view.log_end_offset
        assert view.durable_offset <= view.log_end_offset
        assert view.log_start_offset == self.model.start
        assert view.log_end_offset + self.log.writer.gathering.rows.row_count == self.model.end
        assert list(view.bases) == sorted(set(view.bases))
        if not self.log.writer.gathering.rows.row_count:
            assert view.last_stable_offset == self.model.stable

    @invariant()
    def what_is_written_equals_the_model(self):
        if self.log is None:
            return
        from logstore.partition.reading.records import iterate_records

        view = self.log.writer.core.view
        records = list(iterate_records(view, view.log_start_offset, view.log_end_offset, LOG_END))
        assert records == self.model.visible(0, view.log_end_offset)


def run(example_count, step_count, chosen=None):
    """Always the same examples, or those of the number that is chosen."""
    run_state_machine_as_test(
        LogMachine if chosen is None else seed(chosen)(type("Chosen", (LogMachine,), {})),
        settings=settings(
            max_examples=example_count,
            stateful_step_count=step_count,
            derandomize=chosen is None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_any_sequence_of_calls_equals_the_model():
    run(120, 40)


@pytest.mark.slow
def test_any_long_sequence_of_calls_equals_the_model():
    run(150, 70, seed_of_turn())
