"""Transactions interleaved with all else that happens to a store: each reader finds what the model says."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from logstore.broker.local import LocalBroker
from logstore.broker.storing.transactions import TopicStorage
from logstore.broker.transactions import coordinator
from logstore.broker.transactions.states import TransactionState
from logstore.errors import LogstoreError
from logstore.partition.state.producer_state import ProducerStates
from tests.differential.store import IDS, KEYS, PARTITIONS, Store
from tests.figures import report
from tests.rotation import rotating, seed_of_turn

names = st.sampled_from(IDS)
places = st.sampled_from(PARTITIONS)
keys = st.sampled_from(KEYS)
sizes = st.sampled_from((0, 100))


class Reads:
    count = 0


class StoreMachine(RuleBasedStateMachine):
    """Rules that are there twice come as often again."""

    @initialize(number=st.integers(0, 2**32))
    def begin(self, number):
        self._home = tempfile.mkdtemp(prefix="logstore-store-")
        self.store = Store(Path(self._home) / "store", number)

    @rule(name=names, partition=places, key=keys, size=sizes)
    def send(self, name, partition, key, size):
        self.store.send(name, partition, key, size)

    @rule(name=names, partition=places, key=keys, size=sizes)
    def send_more(self, name, partition, key, size):
        self.store.send(name, partition, key, size)

    @rule(partition=places, key=keys, size=sizes)
    def send_plain(self, partition, key, size):
        self.store.send_plain(partition, key, size)

    @rule(name=names, partition=places)
    def commit_offset(self, name, partition):
        self.store.commit_offset(name, partition)

    @rule(name=names, committed=st.booleans())
    def finish(self, name, committed):
        self.store.finish(name, committed=committed)

    @rule(name=names)
    def start(self, name):
        self.store.start(name)

    @rule()
    def use_one_that_is_shut_out(self):
        self.store.use_one_that_is_shut_out()

    @rule()
    def time_out(self):
        self.store.time_out()

    @rule()
    def let_time_pass(self):
        self.store.let_time_pass()

    @rule()
    def compact(self):
        self.store.compact()

    @rule(partition=places, count=st.integers(1, 6))
    def delete_before(self, partition, count):
        self.store.delete_before(partition, count)

    @rule(partition=places)
    def roll(self, partition):
        self.store.roll(partition)

    @rule(killed=st.booleans())
    def reopen(self, killed):
        self.store.reopen(killed=killed)

    @rule()
    def look(self):
        Reads.count += self.store.check()

    def teardown(self):
        if hasattr(self, "store"):
            try:
                Reads.count += self.store.check()
                self.store.end()
            finally:
                shutil.rmtree(self._home)


def run(example_count, step_count, chosen=None, phases=tuple(Phase)):
    """Always the same examples, or those of the number that is chosen. Returns the number of reads."""
    Reads.count = 0
    run_state_machine_as_test(
        StoreMachine if chosen is None else seed(chosen)(type("Chosen", (StoreMachine,), {})),
        settings=settings(
            max_examples=example_count,
            stateful_step_count=step_count,
            derandomize=chosen is None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Reads.count


def run_and_report(example_count, step_count, chosen):
    began = time.monotonic()
    count = run(example_count, step_count, chosen)
    report(
        "differential/transactions of a store",
        count=count,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"{example_count} histories of {step_count} steps",
    )


@pytest.mark.slow
@pytest.mark.every_turn
def test_interleavings_of_this_commit():
    """Some 7 s."""
    run_and_report(10, 30, seed_of_turn())


@pytest.mark.soak
def test_interleavings_at_random():
    count = int(os.environ.get("LOGSTORE_HISTORIES", "1000"))
    run_and_report(count, 50, int.from_bytes(os.urandom(4), "big"))


# That it finds bugs -----------------------------------------------------------------------------------------


def no_successor_shuts_out(patch):
    """Whoever takes the id has the epoch of the last."""

    def begin(known, *rest):
        step = begin_anew(known, *rest)
        if known is None or step.after is None:
            return step
        return step._replace(after=step.after._replace(producer_epoch=known.producer_epoch))

    begin_anew = coordinator.begin_anew
    patch.setattr(coordinator, "begin_anew", begin)


def time_outs_forget_a_partition(patch):
    def forget(known, *rest):
        step = expire(known, *rest)
        if step.after is not None and step.after.partitions:
            step = step._replace(
                after=step.after._replace(partitions=frozenset(sorted(step.after.partitions)[1:]))
            )
        return step

    expire = coordinator.expire
    patch.setattr(coordinator, "expire", forget)


def offsets_are_committed_beside_the_transaction(patch):
    commit = LocalBroker.offset_commit
    patch.setattr(
        LocalBroker, "offset_commit", lambda self, request: commit(self, request._replace(transaction=None))
    )


def open_transactions_hold_no_reader_up(patch):
    patch.setattr(ProducerStates, "first_unstable_offset", lambda self, high_watermark: None)


def a_killed_process_leaves_its_transactions_to_nobody(patch):
    """What is open is forgotten by the next process."""
    load = TopicStorage.load
    patch.setattr(
        TopicStorage,
        "load",
        lambda self: [each for each in load(self) if each.state is not TransactionState.ONGOING],
    )


PLANTS = (
    no_successor_shuts_out,
    time_outs_forget_a_partition,
    offsets_are_committed_beside_the_transaction,
    open_transactions_hold_no_reader_up,
    a_killed_process_leaves_its_transactions_to_nobody,
)


@pytest.mark.slow
@pytest.mark.damaged
@pytest.mark.parametrize("plant", rotating(PLANTS, 2))
def test_planted_bugs_are_found(monkeypatch, plant):
    """The first history that shows it is enough: it is not made shorter. Some 2 s each."""
    plant(monkeypatch)
    with pytest.raises((AssertionError, LogstoreError)):
        run(30, 30, phases=(Phase.generate,))
