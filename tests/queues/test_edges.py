"""Queues where two things meet: locks that run out one after another, retention, aborted transactions, topics
that are made again, and dead-letter topics that refuse."""

from __future__ import annotations

import pytest

import logstore
from logstore import Isolation
from logstore.broker.pending import Promise
from logstore.clients.queues.queue import Queue
from logstore.clients.settings import QueueConfig
from logstore.errors import JobLostError, RetriableError, StorageError
from logstore.model import ProducerIdentity
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles


def offsets(jobs):
    return [job.offset for job in jobs]


# Transactions


def test_what_follows_an_aborted_transaction_of_the_same_producer_is_given(world):
    """Also when the fetch begins behind the aborted records, at their marker."""
    log = world.log
    log.extend([b"lost", b"lost"], producer=ProducerIdentity(7, 0, 0, transactional=True))
    log.append_end_marker(7, 0, committed=False)
    log.extend([b"1", b"2"], producer=ProducerIdentity(7, 0, 2, transactional=True))
    log.append_end_marker(7, 0, committed=True)
    with world.queue(isolation=Isolation.COMMITTED) as queue:
        assert [job.value for job in queue.poll(0, max_jobs=2)] == [b"1", b"2"]


def test_jobs_above_what_is_committed_are_waited_for_without_trying_again_and_again(world):
    """They were taken when the group saw more."""
    world.log.extend([b"1"], producer=ProducerIdentity(7, 0, 0, transactional=True))
    with world.queue() as queue:
        assert len(queue.poll(0)) == 1
    with world.queue(isolation=Isolation.COMMITTED) as queue:
        polling = queue.begin_poll(10)
        woken = []
        assert polling.poll() is None
        polling.on_wake(lambda: woken.append(1))
        assert not woken
        world.log.append_end_marker(7, 0, committed=True)
        assert woken
        assert offsets(polling.poll()) == [0]


# Locks


def test_a_job_whose_lock_ran_out_does_not_take_its_neighbours_along(world):
    """They are told to the group as one run."""
    world.extend(3)
    with world.queue(record_lock_duration_ms=1_000, linger_ms=10_000) as queue:
        queue.poll(0, max_jobs=1)[0].accept()  # sent at once: the first
        first = queue.poll(0, max_jobs=1)[0]
        world.clock.advance(900)
        second = queue.poll(0, max_jobs=1)[0]
        first.accept()
        second.accept()
        world.clock.advance(500)
        with pytest.raises(JobLostError, match=r"jobs-0 offset 1: the lock"):
            queue.flush()
        world.clock.advance(10_000)
        assert offsets(queue.poll(0)) == [1]


def test_what_retention_deletes_is_not_lost(world):
    world.extend(4)
    with world.queue(record_lock_duration_ms=1_000) as queue:
        jobs = queue.poll(0)
        world.log.delete_before(2)
        for job in jobs[:3]:
            job.accept()
        queue.flush()
        jobs[3].reject("no")
    world.clock.advance(1_000)
    with world.queue() as queue:
        assert queue.poll(0) == []


def test_a_failed_job_that_retention_deletes_is_not_buried(world):
    world.extend(3)
    with world.queue(dead_letter_topic="dead") as queue:
        jobs = queue.poll(0)
        world.log.delete_before(2)
        jobs[0].reject("no")
        jobs[2].reject("no")
        jobs[1].accept()
    assert world.dead() == [b"2"]


def test_a_poll_takes_no_more_than_it_gives_after_one_that_wanted_more(world):
    with world.queue() as queue, world.queue() as other:
        assert queue.poll(0.01) == []
        world.extend(10)
        assert offsets(queue.poll(0, max_jobs=2)) == [0, 1]
        assert offsets(other.poll(0)) == [2, 3, 4, 5, 6, 7, 8, 9]


# Topics


def test_a_topic_that_is_made_again_has_its_own_jobs(world):
    world.extend(3)
    with world.queue(metadata_max_age_ms=1_000) as queue:
        old = queue.poll(0)
        old[0].accept()
        world.store.delete_topic("jobs")
        world.log = world.store.create_topic("jobs")[0]
        world.extend(2)
        world.clock.advance(1_000)
        assert [(job.offset, job.delivery_count) for job in queue.poll(0)] == [(0, 1), (1, 1)]


@pytest.mark.parametrize("by", ["store", "broker"])
def test_the_next_poll_hears_of_a_topic_that_was_made_again(world, by):
    world.extend(3)
    with world.queue(metadata_max_age_ms=10_000) as queue:
        queue.poll(0, max_jobs=1)[0].release()
        if by == "store":
            world.store.delete_topic("jobs")
        else:
            world.store._directory.delete_topic("jobs")
        world.log = world.store.create_topic("jobs")[0]
        world.extend(2)
        assert [(job.offset, job.delivery_count) for job in queue.poll(0)] == [(0, 1), (1, 1)]


# Dead letters


def test_a_dead_letter_that_is_too_large_does_not_hold_up_the_others(world):
    """The headers make it larger than the record was."""
    limit = world.store["dead"].config.max_message_bytes
    world.log.extend([b"small", b"x" * (limit - 80), b"small too"])
    with world.queue(dead_letter_topic="dead", delivery_count_limit=1) as queue:
        while jobs := queue.poll(0):
            for job in jobs:
                job.release(reason="no")
            world.clock.advance(1_000)
    assert world.dead() == [b"small", b"small too"]
    assert world.store.queues()[0].partitions[0].start_offset == 1  # it is kept
    world.store["dead"].configure(max_message_bytes=2 * limit)
    world.clock.advance(1_000)
    with world.queue(dead_letter_topic="dead", delivery_count_limit=1) as queue:
        assert queue.poll(0) == []
    assert len(world.dead()) == 3


# The disk


def test_what_was_said_and_is_not_durable_is_said_once():
    """The flush fails, not the writing: the job is done, and only its durability is still to come."""
    files = FaultyFiles(MemoryFiles())
    with logstore.open("/store", files=files) as store:
        store.create_topic("jobs")[0].extend([b"1", b"2"])
        state = "__share_group_state"
        with store.queue("jobs", group="workers", acks="all", linger_ms=0) as queue:
            jobs = queue.poll(0)
            files.fail(FAULTS["EIO"], kinds=["flush"], path=state, times=1)
            with pytest.raises(StorageError, match="jobs-0: "):
                jobs[0].accept()
            files.heal()
            for number in store[state].held_partitions:
                if store[state][number].needs_reopen:
                    store[state].reopen(number)
            queue.flush()
            jobs[1].accept()
        for log in store[state]:
            assert log.durable_offset == log.log_end_offset
        with store.queue("jobs", group="workers") as queue:
            assert queue.poll(0) == []


class LateBroker:
    """Takes everything in at once, and tells of acknowledgements when it is told to."""

    def __init__(self, broker):
        self._broker = broker
        self.late = []

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def share_acknowledge(self, request):
        promise = Promise()
        self.late.append((promise, self._broker.share_acknowledge(request).poll()))
        return promise


def test_an_answer_that_comes_late_is_waited_for_by_the_next_call(world):
    """What was said is not said again: it would count as lost."""
    world.extend(2)
    broker = LateBroker(world.store._open_broker(world.store._directory))
    config = QueueConfig(linger_ms=0, request_timeout_ms=1)
    queue = Queue(broker, ["jobs"], "workers", config=config, clock=world.clock)
    for job in queue.poll(0):
        with pytest.raises(RetriableError, match="did not take in what became of jobs"):
            job.accept()
    for number in range(2):
        (late,) = broker.late  # the second is sent when the first is answered
        late[0].complete(late[1])
        broker.late.clear()
        if number == 0:
            with pytest.raises(RetriableError):
                queue.flush()
    queue.close()
    assert world.queue().poll(0) == []


def test_what_is_durable_on_a_clock_set_by_hand_needs_no_other_thread(world):
    world.extend(1)
    with world.queue(acks="all") as queue:
        queue.poll(0)[0].accept()
    for log in world.store["__share_group_state"]:
        assert log.durable_offset == log.log_end_offset


def test_a_worker_that_waits_hears_of_a_topic_that_is_made_again(world):
    world.extend(1)
    with world.queue(metadata_max_age_ms=10_000) as queue:
        queue.poll(0)[0].accept()
        polling = queue.begin_poll()
        assert polling.poll() is None
        woken = []
        polling.on_wake(lambda: woken.append(True))
        world.store.delete_topic("jobs")
        world.log = world.store.create_topic("jobs")[0]
        world.extend(2)
        assert woken
        assert offsets(polling.poll()) == [0, 1]
