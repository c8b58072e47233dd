"""What hypothesis draws: records through all codecs and back, changed on the way; and the life of a log, with
power cuts in it, against a history of what was promised.

The quick tests draw the same examples in every run, the slow ones others with each commit. `make soak` draws
new ones each time: ``LOGSTORE_HYPOTHESIS_EXAMPLES`` of each test.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logstore.errors import CorruptionError
from logstore.format.batch import check_batch, decode_batch, decode_header, encode_batch, encode_records_batch
from logstore.format.compression import Codec
from logstore.testing import MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.memory import MemoryFile
from logstore.testing.operations import Note
from tests.crash.history import History
from tests.crash.partition import PartitionScenario, Session, abandon, found_in
from tests.figures import report
from tests.format import strategies
from tests.fuzz.readers import check, repaired
from tests.rotation import seed_of_turn

SOAK_EXAMPLES = int(os.environ.get("LOGSTORE_HYPOTHESIS_EXAMPLES", "20000"))
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


class Size(NamedTuple):
    """How many examples are drawn, and which."""

    examples: int
    is_fixed: bool = False
    seed: int | None = None

    def chosen(self, test):
        return test if self.seed is None else seed(self.seed)(test)


def sizes(quick, slow):
    """The same test in three sizes."""
    return pytest.mark.parametrize(
        "size",
        [
            pytest.param(Size(quick, is_fixed=True), id="quick"),
            pytest.param(Size(slow, seed=seed_of_turn()), id="slow", marks=pytest.mark.slow),
            pytest.param(Size(SOAK_EXAMPLES), id="soak", marks=pytest.mark.soak),
        ],
    )


def run_examples(name, size, test):
    """Let hypothesis call the test, and report how often it did."""
    count, began = 0, time.monotonic()

    def counted(*arguments, **options):
        nonlocal count
        count += 1
        test(*arguments, **options)

    phases = [phase for phase in Phase if phase is not Phase.explain]
    counted.hypothesis_explicit_examples = []
    settings(max_examples=size.examples, derandomize=size.is_fixed, phases=phases, **QUIET)(
        size.chosen(given(**test.arguments)(counted))
    )()
    assert count >= size.examples // 2, f"{count} examples of {size.examples}"
    report(f"hypothesis/{name}", count=count, failures=0, seconds=time.monotonic() - began)


def drawn(**arguments):
    def mark(test):
        test.arguments = arguments
        return test

    return mark


@drawn(
    records=strategies.records(gaps=True),
    codec=st.sampled_from(Codec),
    like=st.tuples(st.integers(-1, 2**31 - 1), st.booleans()),
)
def check_round_trip(records, codec, like):
    first = decode_header(encode_batch([None], [None], 0))
    epoch, is_transactional = like
    header = first._replace(
        base_offset=records[0].offset,
        last_offset_delta=records[-1].offset - records[0].offset,
        partition_leader_epoch=epoch,
        attributes=0x10 * is_transactional,
    )
    batch = bytes(encode_records_batch(records, like=header, codec=codec))
    found = decode_header(batch)
    check_batch(batch, 0, found)
    assert decode_batch(batch, 0, found) == records
    assert (found.partition_leader_epoch, found.is_transactional, found.codec) == (
        epoch,
        is_transactional,
        codec,
    )
    check("batch", batch)
    check("part_of_batch", batch)


edits = st.lists(
    st.tuples(
        st.integers(0, 10**6), st.sampled_from(["xor", "set", "cut", "insert", "delete"]), st.integers(1, 255)
    ),
    min_size=1,
    max_size=4,
)


def edited(data, changes):
    data = bytearray(data)
    for place, how, number in changes:
        at = place % (len(data) + 1)
        if how == "cut":
            del data[max(at, 1) :]
        elif how == "insert":
            data[at:at] = bytes([number])
        elif how == "delete":
            del data[at : at + number % 16]
        elif at < len(data):
            data[at] = data[at] ^ number if how == "xor" else number
    return bytes(data)


@drawn(records=strategies.records(), codec=st.sampled_from(Codec), changes=edits)
def check_mutations(records, codec, changes):
    """As it lies there, damage is seen; with a checksum that fits, whoever reads it says the same."""
    like = decode_header(encode_batch([None] * len(records), [None] * len(records), 0))
    base = records[0].offset
    like = like._replace(base_offset=base, last_offset_delta=records[-1].offset - base)
    batch = bytes(encode_records_batch(records, like=like, codec=codec))
    changed = edited(batch, changes)
    with contextlib.suppress(CorruptionError):
        header = decode_header(changed)
        check_batch(changed, 0, header)
        found = [tuple(record)[1:] for record in decode_batch(changed, 0, header)]
        assert found == [tuple(record)[1:] for record in records]
    check("batch_as_found", changed)
    check("batch", repaired(changed))


@sizes(40, 200)
def test_records_come_back_through_every_codec(size):
    run_examples("round trip", size, check_round_trip)


@sizes(40, 200)
def test_changed_batches_are_seen_or_read_alike(size):
    run_examples("mutations", size, check_mutations)


class LogMachine(RuleBasedStateMachine):
    """A log on a disk in memory, in sessions that end cleanly or with a power cut."""

    crashes = steps = 0

    def __init__(self):
        super().__init__()
        self._seed = 0
        self._begin(MemoryFiles(), [])

    def _begin(self, files, said):
        self.said = said
        self._states = CrashStates(files.image, self._seed)
        self._followed = 0
        files.make_directory("/")
        self.session = Session(files, said, random.Random(self._seed))

    def _follow(self):
        """Tell the states of a crash, and the history, what was done meanwhile."""
        trace = self.session.files.trace
        for entry in trace[self._followed :]:
            if isinstance(entry, Note):
                self.said.append(entry.said)
            else:
                self._states.follow(entry)
        self._followed = len(trace)

    @rule(count=st.integers(1, 4), size=st.sampled_from((0, 5, 60, 700)), flush=st.booleans())
    def append(self, count, size, flush):
        self.session.append(count, size_bytes=size, flush=flush)

    @rule()
    def append_as_producer(self):
        self.session.append_as_producer()

    @rule()
    def flush(self):
        self.session.flush()

    @rule()
    def roll(self):
        self.session.roll()

    @rule()
    def checkpoint(self):
        self.session.checkpoint()

    @rule()
    def new_epoch(self):
        self.session.new_epoch()

    @precondition(lambda self: self.session.end > self.session.log.log_start_offset)
    @rule()
    def delete_before(self):
        self.session.delete_before()

    @precondition(lambda self: self.session.end > self.session.log.log_start_offset)
    @rule()
    def truncate(self):
        self.session.truncate()

    @rule()
    def remove_deleted(self):
        self.session.remove_deleted()

    @rule()
    def reopen(self):
        self.session.reopen()

    @rule(data=st.data())
    def crash(self, data):
        """The power goes; the next session finds one of the states that this may leave."""
        self._follow()
        choices = tuple(
            data.draw(st.integers(0, len(domain.variants) - 1), label=f"variant of {domain.number}")
            for domain in self._states.domains()
        )
        image = self._states.image(choices)
        abandon(self.session.log)
        PartitionScenario().check(MemoryFiles(image), self.said)
        type(self).crashes += 1
        self._seed += 1
        self._begin(MemoryFiles(image), self.said)

    @invariant()
    def is_as_written(self):
        type(self).steps += 1
        self._follow()
        History(self.said).check(found_in(self.session.log))

    def teardown(self):
        abandon(self.session.log)


@sizes(10, 40)
def test_the_life_of_a_log(size):
    LogMachine.crashes = LogMachine.steps = 0
    began = time.monotonic()
    examples = size.examples // 10 if size.examples == SOAK_EXAMPLES else size.examples
    run_state_machine_as_test(
        size.chosen(LogMachine),
        settings=settings(max_examples=examples, stateful_step_count=30, derandomize=size.is_fixed, **QUIET),
    )
    assert LogMachine.crashes >= examples // 2
    report(
        "hypothesis/life of a log",
        count=LogMachine.steps,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"{LogMachine.crashes} power cuts",
    )


@pytest.mark.damaged
def test_the_life_of_a_log_finds_a_flush_that_is_none(monkeypatch):
    monkeypatch.setattr(MemoryFile, "flush", lambda self: None)
    machine = LogMachine()
    try:
        machine.append(3, 700, True)
        machine._follow()
        lost = machine._states.image([0] * len(machine._states.domains()))
        with pytest.raises(AssertionError):
            PartitionScenario().check(MemoryFiles(lost), machine.said)
    finally:
        machine.teardown()
