"""Groups and queues of a log that loses its end while it is open: what comes next is read, and given."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import weakref
from pathlib import Path

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import JobLostError, OffsetOutOfRangeError
from logstore.model import Isolation, Role
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.rotation import seed_of_turn


def cut(store):
    store["t"][0].truncate_to(2)


def start_over(store):
    store["t"][0].truncate_fully_and_start_at(2)


def accept_loss(store):
    """The disk has damaged what was durable."""
    log = store["t"][0]
    store.flush()
    path = Path(log.directory, f"{0:020}.log")
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 6 + 40] ^= 1
    path.write_bytes(data)
    for snapshot in Path(log.directory).glob("*.snapshot"):
        os.remove(snapshot)
    assert store["t"].reopen(0, accept_loss=True).log_end_offset == 2


LOSSES = [cut, start_over, accept_loss]


def fill(store, name, count):
    for number in range(count):
        store["t"][0].extend([f"{name} {number}".encode()])


def given(queue, count):
    found = []
    while len(found) < count and (jobs := list(queue.poll(timeout=5))):
        for job in jobs:
            found.append(job.value.decode())
            job.accept()
    queue.flush()
    return found


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as opened:
        opened.create_topic("t")
        fill(opened, "old", 6)
        yield opened


@pytest.mark.parametrize("lose", LOSSES)
def test_committed_offsets_go_back(store, lose):
    store.offsets("above").commit({("t", 0): 6})
    store.offsets("below").commit({("t", 0): 1})
    lose(store)
    fill(store, "new", 5)
    assert store.offsets("above")["t", 0].offset == 2
    assert store.offsets("below")["t", 0].offset == 1


def test_groups_that_read_a_copy_go_back_where_it_had_other_records_than_its_leader(store):
    store.offsets("above").commit({("t", 0): 6})
    store["t"][0].set_role(Role.FOLLOWER)
    cut(store)
    assert store.offsets("above")["t", 0].offset == 2


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("when", ["in use", "at rest", "never opened here"])
def test_a_queue_gives_what_comes_next(tmp_path, store, lose, when):
    """Of the records that are lost some were done with, and one is under way."""
    expected = [f"new {number}" for number in range(5)]
    if when == "in use":
        with store.queue("t", group="g", linger_ms=0) as queue:
            assert len(given(queue, 6)) == 6
            fill(store, "under way", 1)
            (job,) = queue.poll(timeout=5)
            lose(store)
            fill(store, "new", 5)
            with pytest.raises(JobLostError):
                job.accept()
            assert given(queue, 5) == expected
        return
    with store.queue("t", group="g") as queue:
        assert len(given(queue, 6)) == 6
    if when == "never opened here":
        store.close()
        store = logstore.open(store.path)
    lose(store)
    fill(store, "new", 5)
    with store.queue("t", group="g") as queue:
        assert given(queue, 5) == expected
    store.close()
    with logstore.open(store.path) as again, again.queue("t", group="g") as queue:
        assert not queue.poll(timeout=0)
        fill(again, "newer", 1)
        assert given(queue, 1) == ["newer 0"]


@pytest.mark.parametrize("lose", [cut, start_over])
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_whose_markers_are_cut_off_holds_up_no_other(store, lose, committed):
    """They never became durable, and the next producer of the id waited for that until it gave up."""
    for number in range(20):
        producer = store.producer(transactional_id="x", max_block_ms=5_000)
        with producer, producer.transaction() as transaction:
            producer.send("t", b"%d" % number)
            if not committed:
                transaction.abort()
        lose(store)


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.COMMITTED])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_drain_ends_where_a_log_was_cut_within_its_last_batch(store, isolation, elsewhere):
    """There is no record in front of its end then. 0.6 s each."""
    log = store.create_topic("u", partitions=2)[0]
    store["u"][1].extend([b"other"])
    log.extend([b"kept"])
    log.extend([b"cut off", b"cut off"])
    log.truncate_to(2)
    with contextlib.ExitStack() as stack:
        place = store
        if elsewhere:
            listener = stack.enter_context(store.listen())
            place = stack.enter_context(logstore.connect(listener.address))
        with place.consumer("u", isolation=isolation) as consumer:
            assert sorted(record.value for record in consumer.drain()) == [b"kept", b"other"]
            assert set(consumer.lag().values()) == {0}
            log.extend([b"next"])
            assert [record.value for record in consumer.drain()] == [b"next"]


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("lose", LOSSES)
def test_a_drain_reads_what_has_come_since_its_log_was_cut(store, lose, elsewhere, count):
    """Also where the log has not grown beyond what was read before. 0.2 s each."""
    with contextlib.ExitStack() as stack:
        place = store
        if elsewhere:
            listener = stack.enter_context(store.listen())
            place = stack.enter_context(logstore.connect(listener.address))
        with place.consumer("t") as consumer:
            assert len(list(consumer.drain())) == 6
            lose(store)
            fill(store, "new", count)
            found = [record.value for record in consumer.drain()]
            assert found == [b"new %d" % number for number in range(count)]
            assert list(consumer.drain()) == []


def test_a_drain_of_a_consumer_that_is_not_to_begin_elsewhere_tells_that_its_log_was_cut(store):
    with store.consumer("t", auto_offset_reset="none") as consumer:
        consumer.seek_to_beginning()
        assert len(list(consumer.drain())) == 6
        cut(store)
        fill(store, "new", 1)
        with pytest.raises(OffsetOutOfRangeError, match=r"seek\(\) to offset 2 reads what is there now"):
            list(consumer.drain())


def test_a_store_that_is_closed_and_dropped_is_gone_at_once(store):
    """Its files are not left to the collector of garbage, which runs anywhere."""
    path = store.path
    store.close()
    gc.disable()
    try:
        other = logstore.open(path)
        directory = weakref.ref(other._directory)
        other.close()
        del other
        assert directory() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("refusing", ["__consumer_offsets", "__share_group_state"])
def test_what_a_full_disk_kept_back_until_the_close_is_done_by_the_next_open(refusing):
    """The topic was not opened since the last clean stop, so nothing else was wrong with the store."""
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store = logstore.open("/store", files=files, clock=ManualClock())
    store.create_topic("t")
    fill(store, "old", 6)
    store.offsets("g").commit({("t", 0): 6})
    with store.queue("t", group="g") as queue:
        assert len(given(queue, 6)) == 6
    store.close()
    store = logstore.open("/store", files=files, clock=ManualClock())
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path=refusing, times=None)
    cut(store)
    store.close()
    store = logstore.open("/store", files=MemoryFiles(disk.now()), clock=ManualClock())
    fill(store, "new", 5)
    assert store.offsets("g")["t", 0].offset == 2
    with store.queue("t", group="g") as queue:
        assert given(queue, 5) == [f"new {number}" for number in range(5)]
    store.close()


class Life:
    """A queue and a reader of a log that is cut now and then."""

    def __init__(self, path, seed):
        self.path, self.random, self.count = path, random.Random(seed), 0
        self.store = logstore.open(path)
        self.store.create_topic("t", config=TopicConfig(segment_bytes=400))
        self.queue = None
        self.done, self.read = set(), set()

    def append(self):
        for _ in range(self.random.randint(1, 4)):
            self.count += 1
            self.store["t"][0].extend([str(self.count).encode()])

    def cut(self):
        log = self.store["t"][0]
        log.truncate_to(self.random.randint(log.log_start_offset, log.log_end_offset))

    def work(self, timeout=0.0):
        if self.queue is None:
            self.queue = self.store.queue("t", group="g", max_poll_records=3)
        jobs = list(self.queue.poll(timeout=timeout))
        for job in jobs:
            self.done.add(job.value)
            job.accept()
        self.queue.flush()
        return jobs

    def stop(self):
        if self.queue is not None:
            self.queue.close()
            self.queue = None

    def look(self):
        offsets, log = self.store.offsets("reader"), self.store["t"][0]
        committed = offsets.get(("t", 0))
        for record in log.read(committed.offset if committed else None):
            self.read.add(record.value)
            offsets.commit({("t", 0): record.offset + 1})

    def restart(self):
        self.stop()
        self.store.close()
        self.store = logstore.open(self.path)

    def run(self, steps):
        """What is there and was not done, and not read."""
        deeds = [self.append, self.append, self.work, self.work, self.look, self.cut, self.stop, self.restart]
        for _ in range(steps):
            self.random.choice(deeds)()
        self.look()
        while self.work(timeout=0.1):
            pass
        there = {record.value for record in self.store["t"][0].read()}
        self.stop()
        self.store.close()
        return there - self.done, there - self.read


@pytest.mark.parametrize("number", range(3))
def test_what_is_there_was_given_and_read_however_often_the_log_was_cut(tmp_path, number):
    """0.2 s each."""
    seed = seed_of_turn() * 10 + number
    assert Life(tmp_path / "store", seed).run(60) == (set(), set()), f"seed {seed}"
