"""Tests of a program that stores its data in logstore: a disk in memory, one that is full, and power cuts.

Run: python -m pytest examples/test_orders.py
"""

import random
from collections.abc import Iterator, Sequence

import pytest

import logstore
from logstore.errors import DiskFullError
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles, Scenario, explore


def take_order(store: logstore.Store, order: bytes) -> None:
    """The program: when it returns, the customer may count on the order."""
    store.require_topic("orders", partitions=2).append(order, flush=True)


def orders_in(store: logstore.Store) -> set[bytes | None]:
    return {record.value for record in store.require_topic("orders", partitions=2).read()}


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def store(files: FaultyFiles) -> Iterator[logstore.Store]:
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        yield store


def test_an_order_is_there(store: logstore.Store) -> None:
    take_order(store, b"tea")
    assert orders_in(store) == {b"tea"}


def test_a_full_disk_refuses_an_order_and_keeps_the_others(store: logstore.Store, files: FaultyFiles) -> None:
    take_order(store, b"tea")
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=None)
    with pytest.raises(DiskFullError):
        take_order(store, b"milk")
    files.heal()
    assert b"tea" in orders_in(store)


class Orders(Scenario):
    """Takes two orders; the power may be cut after each operation of the disk."""

    def session(self, files: MemoryFiles, said: Sequence[bytes], rng: random.Random) -> None:
        with logstore.open("/store", files=files, clock=ManualClock()) as store:
            for order in (b"tea", b"milk"):
                take_order(store, order)
                files.note(order)  # from here on the customer counts on it

    def check(self, files: MemoryFiles, said: Sequence[bytes]) -> None:
        with logstore.open("/store", files=files, clock=ManualClock()) as store:
            assert orders_in(store) >= set(said)


def test_no_power_cut_takes_an_order_that_was_taken() -> None:
    explore(Orders(), seed=1, max_states=200, depth=1)  # raises CrashError where an order is lost
