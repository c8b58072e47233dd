"""A topic that is copied exactly once, by ``store.transform`` and by a loop as in ``docs/transactions.md``.
When processes are killed, or the disk fails, each record is copied once, with the offset behind it."""

from __future__ import annotations

import itertools
import os
import random
import re
from functools import partial
from time import perf_counter

import pytest

import logstore
from logstore.broker.local import LocalBroker
from logstore.clients import sender
from logstore.clients.transactions.transaction import Transaction
from logstore.errors import RetriableError, StorageError
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from tests.clients.copying import TARGET, Settings, check, copy, fill
from tests.clients.faulty_copies import run
from tests.clients.kill_copies import Tried, kill_in_directory
from tests.figures import report
from tests.kernel.programs import memory_directory, run_program
from tests.replica.node.cluster import eventually
from tests.rotation import seed_of_turn

SOAK_KILLS = int(os.environ.get("LOGSTORE_SOAK_COPY_KILLS", "500"))
SOAK_FAULTS = int(os.environ.get("LOGSTORE_SOAK_COPY_FAULTS", "500"))

forks = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_copy_that_nothing_stops(tmp_path, workers):
    with logstore.open(tmp_path / "store") as store:
        fill(store, 100)
        copy(store, Settings.draw(random.Random(1))._replace(workers=workers))
        assert check(store) == (100, True, 0)


# Kills ------------------------------------------------------------------------------------------------------


def kill(count, seed):
    with memory_directory() as path:
        tried = run_program(
            "kill_copies", "--kills", count, "--seed", seed, f"{path}/kills", folder="clients"
        )
    assert tried["kills"] == count
    report(
        "kill -9, exactly-once copies",
        count=tried["kills"],
        failures=0,
        seconds=tried["seconds"],
        detail=f"{tried['copied']:,} records copied, {tried['aborted']:,} in transactions cut short",
    )
    return tried


@pytest.mark.slow
@pytest.mark.every_turn
def test_some_kills():
    """Others in each turn. Some 4 s."""
    kill(20, seed_of_turn())


@pytest.mark.soak
def test_kills():
    tried = kill(SOAK_KILLS, random.randrange(2**32))
    assert min(tried["moments"].values()) > SOAK_KILLS // 5
    assert min(tried["ways"].values()) > SOAK_KILLS // 20
    assert tried["aborted"] > SOAK_KILLS // 10


# Failing disks ----------------------------------------------------------------------------------------------


def fail_many(first_seed, fault_count):
    started = perf_counter()
    faults = errors = 0
    for seed in itertools.count(first_seed):
        try:
            world = run(seed)
        except Exception as error:
            error.add_note(f"tests.clients.faulty_copies.run({seed})")
            raise
        faults += len(world.files.failures)
        errors += world.error_count
        if faults >= fault_count:
            break
    report(
        "failing file operations under exactly-once copies",
        count=faults,
        failures=0,
        seconds=perf_counter() - started,
        detail=f"{seed - first_seed + 1:,} histories, {errors:,} copies that gave up",
    )
    return errors


@pytest.mark.slow
@pytest.mark.every_turn
@pytest.mark.damaged
def test_some_faults():
    """Others in each turn. Some 5 s."""
    assert fail_many(1_000 * seed_of_turn(), 25) > 0


@pytest.mark.soak
@pytest.mark.damaged
def test_faults():
    assert fail_many(10**6, SOAK_FAULTS) > SOAK_FAULTS // 10


def ends_because_of_the_disk(store, settings):
    """Not if its patience ends before it comes to write."""
    with pytest.raises((StorageError, RetriableError)) as caught:
        copy(store, settings)
    return re.search(r"out-\d|a log cannot be written", str(caught.value))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_disk_that_stays_full_ends_the_copy_with_an_error(workers):
    """It is not tried without end, and the next run has everything."""
    files = FaultyFiles(MemoryFiles())
    settings = Settings.draw(random.Random(1))._replace(workers=workers, patience_ms=100)
    with logstore.open("/store", files=files) as store:
        fill(store, 50)
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path=f"{TARGET}-", times=None)
        eventually(partial(ends_because_of_the_disk, store, settings))
        files.heal()
        copy(store, settings._replace(patience_ms=30_000))
        assert check(store) == (50, True, 0)


# That the rig finds bugs ------------------------------------------------------------------------------------


def offsets_beside_the_transaction(patch):
    commit = LocalBroker.offset_commit
    patch.setattr(
        LocalBroker, "offset_commit", lambda self, request: commit(self, request._replace(transaction=None))
    )


def offsets_in_a_transaction_of_their_own(patch):
    """At least once."""

    def commit_offsets(self, consumer, offsets):
        self.commit()
        self.__init__(self._transacting, self._flush)
        self.__enter__()
        plainly(self, consumer, offsets)

    plainly = Transaction.commit_offsets
    patch.setattr(Transaction, "commit_offsets", commit_offsets)


def records_of_no_transaction(patch):
    """A producer that finds that it is in none sends all the same."""
    stamp = sender.stamp_producer
    patch.setattr(
        sender, "stamp_producer", lambda data, producer: stamp(data, producer._replace(transactional=False))
    )


@forks[0]
@forks[1]
@pytest.mark.parametrize(
    "plant",
    [offsets_beside_the_transaction, offsets_in_a_transaction_of_their_own, records_of_no_transaction],
)
def test_killed_copies_that_are_not_exactly_once_are_noticed(tmp_path, monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"TWICE|LEFT OUT|InvalidTransactionStateError"):
        kill_until_noticed(tmp_path)


def kill_until_noticed(path):
    for seed in range(20):
        kill_in_directory(str(path / str(seed)), seed, 12, Tried())


@pytest.mark.damaged
@pytest.mark.parametrize("plant", [offsets_beside_the_transaction, offsets_in_a_transaction_of_their_own])
def test_copies_on_a_failing_disk_that_are_not_exactly_once_are_noticed(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"TWICE|LEFT OUT"):
        fail_many(0, 200)
