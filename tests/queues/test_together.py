"""What a loop says of its jobs goes with the request for the next: the group's state is written once for
both."""

from __future__ import annotations

from itertools import pairwise

import pytest

from logstore.broker.pending import Promise
from logstore.broker.share.requests import ShareFetchRequest
from logstore.errors import JobLostError, RetriableError, StorageError
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.testing import FAULTS
from logstore.testing.operations import Write


def writes(world):
    return sum(
        isinstance(each, Write) and SHARE_STATE_TOPIC in each.path and each.path.endswith(".log")
        for each in world.files.files.trace
    )


@pytest.mark.parametrize("acks", [1, "all"])
def test_a_job_of_a_loop_takes_one_write(world, acks):
    world.extend(20)
    with world.queue(acks=acks, metadata_max_age_ms=60_000) as queue:
        counts = []
        for job in queue.drain():
            queue.pace = 1
            counts.append(writes(world))
            world.clock.advance(60)
            job.accept()
    assert [after - before for before, after in pairwise(counts)] == [1] * 19
    assert world.store.queues()[0].partitions[0].start_offset == 20


def test_without_linger_time_each_accept_is_sent_at_once(world):
    world.extend(5)
    with world.queue(linger_ms=0) as queue:
        for number, job in enumerate(queue.drain(), 1):
            job.accept()
            assert world.store.queues()[0].partitions[0].start_offset == number


def test_a_job_that_is_not_the_last_at_hand_is_sent_after_the_linger_time(world):
    world.extend(5)
    with world.queue() as queue:
        queue.pace = 5
        for number, job in enumerate(queue.drain(), 1):
            world.clock.advance(10)
            job.accept()
            done = world.store.queues()[0].partitions[0].start_offset
            assert done == (number if number < 5 else 4)
    assert world.store.queues()[0].partitions[0].start_offset == 5


def test_what_is_said_of_a_topic_that_was_made_again_is_refused(world):
    world.extend(2)
    with world.queue() as queue, world.queue() as other:
        old = queue.poll(0, max_jobs=1)[0]
        world.store.delete_topic("jobs")
        world.log = world.store.create_topic("jobs")[0]
        world.extend(1)
        assert [job.offset for job in queue.poll(0)] == [0]
        with pytest.raises(JobLostError, match=r"jobs-0 offset 0: the topic was deleted"):
            old.accept()
        assert world.store.queues()[0].taken_count == 1
        assert other.poll(0) == []


def test_a_lost_job_is_told_of_and_the_next_are_kept(world):
    world.extend(3)
    with (
        world.queue(record_lock_duration_ms=1_000) as queue,
        world.queue(record_lock_duration_ms=1_000) as other,
    ):
        for job in queue.drain():
            queue.pace = 1
            job.accept()
            break
        world.clock.advance(1_001)
        (again,) = other.poll(0, max_jobs=1)
        assert again.offset == 0
        with pytest.raises(JobLostError, match="jobs-0 offset 0"):
            queue.poll(0)
        assert [job.offset for job in queue.poll(0)] == [1, 2]


def test_a_full_disk_keeps_what_was_said(world):
    world.extend(3)
    with world.queue() as queue:
        for job in queue.drain():
            queue.pace = 1
            job.accept()
            break
        world.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=SHARE_STATE_TOPIC, times=None)
        with pytest.raises(StorageError):
            queue.poll(0)
        world.files.heal()
        assert [job.offset for job in queue.poll(0, max_jobs=1)] == [1]
        assert world.store.queues()[0].partitions[0].start_offset == 1


def test_an_answer_that_comes_late_brings_its_jobs_to_the_next_poll(world):
    world.extend(3)
    with world.queue(request_timeout_ms=100) as queue:
        for job in queue.drain():
            queue.pace = 1
            job.accept()
            break
        broker, late = queue._broker, Promise()

        class Slow:
            def share_fetch(self, request: ShareFetchRequest):
                self.request = request
                return late

            def __getattr__(self, name):
                return getattr(broker, name)

        queue._acks._broker = slow = Slow()
        with pytest.raises(RetriableError, match="request_timeout_ms"):
            queue.poll(0, max_jobs=1)
        late.complete(broker.share_fetch(slow.request).poll())
        queue.flush()
        assert world.store.queues()[0].partitions[0][1:4] == (1, 2, 1)
        queue._acks._broker = broker
        assert [job.offset for job in queue.poll(0, max_jobs=1)] == [1]
        assert [job.offset for job in queue.poll(0, max_jobs=1)] == [2]
