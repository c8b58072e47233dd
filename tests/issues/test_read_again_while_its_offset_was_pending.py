"""A consumer with the default isolation did not wait for offsets that an open transaction was about to
commit. When a partition moved between ``commit_offsets`` and the commit, its next owner read the same records
again, and both results counted. Who waited did so until the fetch of other partitions ended. Costs 1 s."""

from __future__ import annotations

import threading
import time

import pytest

import logstore
from logstore import Isolation
from logstore.errors import RetriableError

SOON_SECONDS = 20


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.require_topic("in").extend([b"%d" % number for number in range(5)])
        store.require_topic("idle")
        store.require_topic("out")
        yield store


@pytest.fixture(params=["here", "elsewhere"])
def clients(request, store):
    """The same calls, in the process of the store and through a listener."""
    if request.param == "here":
        yield store
        return
    with store.listen() as listener, logstore.connect(listener.address) as elsewhere:
        yield elsewhere


def in_thread(call):
    """The results of a call in another thread: transactions are their thread's."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return thread, found


def test_each_record_is_transformed_once(store, clients):
    first, second = clients.consumer("in", group="g"), clients.consumer("in", group="g")
    with (
        first,
        second,
        clients.producer(transactional_id="1") as one,
        clients.producer(transactional_id="2") as two,
    ):
        records = first.poll(timeout=SOON_SECONDS)
        with one.transaction() as transaction:
            for record in records:
                one.send("out", b"1:" + record.value)
            transaction.commit_offsets(first)
            first.close()
            while not second.assignment:
                assert second.poll(timeout=0.01) == []
            assert second.poll(timeout=0.05) == []
            with pytest.raises(RetriableError, match="waits for it"):
                second.position(("in", 0))
        store["in"].append(b"5")
        with two.transaction() as transaction:
            for record in second.poll(timeout=SOON_SECONDS):
                two.send("out", b"2:" + record.value)
            transaction.commit_offsets(second)
    results = [record.value for record in store["out"].read(isolation=Isolation.COMMITTED)]
    assert results == [b"1:0", b"1:1", b"1:2", b"1:3", b"1:4", b"2:5"]


def test_a_poll_goes_on_when_the_transaction_ends_though_others_have_nothing(clients):
    partitions = [("idle", 0), ("in", 0)]
    with (
        clients.producer(transactional_id="1") as producer,
        clients.consumer(partitions=partitions, group="g") as consumer,
        producer.transaction() as transaction,
    ):
        transaction.commit_offsets("g", {("in", 0): 3})
        thread, found = in_thread(lambda: consumer.poll(timeout=3 * SOON_SECONDS))
        time.sleep(0.1)  # the fetch of the idle partition is under way
        begun = time.monotonic()
        transaction.commit()
        thread.join()
        assert time.monotonic() - begun < SOON_SECONDS
        assert [record.offset for record in found[0]] == [3, 4]


def test_drain_waits_for_pending_offsets(clients):
    with (
        clients.producer(transactional_id="1") as producer,
        clients.consumer("in", group="g") as consumer,
        producer.transaction() as transaction,
    ):
        transaction.commit_offsets("g", {("in", 0): 3})
        thread, found = in_thread(lambda: [record.offset for record in consumer.drain()])
        while not consumer.assignment:
            time.sleep(0.01)
        transaction.commit()
        thread.join()
        assert found == [[3, 4]]
