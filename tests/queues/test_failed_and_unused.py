"""What becomes of jobs that fail, and of those that a worker has taken and not used."""

from __future__ import annotations

import pytest

from logstore import TopicConfig
from logstore.errors import UsageError
from logstore.testing import FAULTS

# Dead letters


def test_a_compacted_topic_takes_no_dead_letters(world):
    """It keeps one of those with the same key. If it becomes compacted later, those without a key wait, and
    hold up no others."""
    world.store.create_topic("latest", config=TopicConfig(cleanup_policy="compact"))
    with pytest.raises(UsageError, match=r"'latest' is compacted.*cleanup_policy='delete'"):
        world.queue(dead_letter_topic="latest")
    world.log.extend([(b"k", b"keyed"), b"keyless", (b"l", b"keyed too")])
    with world.queue(dead_letter_topic="dead") as queue:
        jobs = queue.poll(0)
        world.store["dead"].configure(cleanup_policy="compact")
        for job in jobs:
            job.reject("no")
        world.clock.advance(1_000)
        assert queue.poll(0) == []
        assert world.dead() == [b"keyed", b"keyed too"]
        world.store["dead"].configure(cleanup_policy="delete")
        world.clock.advance(1_000)
        assert queue.poll(0) == []
    assert world.dead() == [b"keyed", b"keyed too", b"keyless"]


def test_of_a_job_that_was_deleted_it_is_not_said_where_it_went(world, caplog):
    world.extend(2)
    with world.queue(dead_letter_topic="dead") as queue:
        first, second = queue.poll(0)
        world.log.delete_before(1)
        first.reject("no")
        assert caplog.text == ""
        second.reject("no")
    assert "jobs-0 offset 1 failed" in caplog.text
    assert world.dead() == [b"1"]


def test_fewer_deliveries_than_before_keep_the_reason_of_the_last(world):
    world.extend(1)
    with world.queue() as queue:
        (job,) = queue.poll(0)
        job.release(reason="no address")
    with world.queue(delivery_count_limit=1, dead_letter_topic="dead") as queue:
        assert queue.poll(0) == []
    (letter,) = world.store["dead"].read()
    assert dict(letter.headers)["logstore.error"] == b"no address"


def test_a_reason_is_a_line_of_the_log_however_it_looks(world, caplog):
    """It may come from what others have sent. The letter has all of it."""
    world.extend(1)
    reason = "wrong\nERROR logstore: all is lost " + "x" * 1_000
    with world.queue(dead_letter_topic="dead") as queue:
        queue.poll(0)[0].reject(reason)
    (line,) = [each.getMessage() for each in caplog.records if "offset 0 failed" in each.getMessage()]
    assert "'wrong\\nERROR" in line
    assert "\n" not in line
    assert len(line) < 400
    (letter,) = world.store["dead"].read()
    assert dict(letter.headers)["logstore.error"] == reason.encode()


# What workers take and do not use


def test_jobs_that_no_worker_has_used_were_not_delivered(world):
    """Neither leaving nor a restart makes them fail."""
    world.extend(20)
    for _ in range(3):
        with world.queue(delivery_count_limit=1, dead_letter_topic="dead") as queue:
            queue.pace = 10
            for job in queue:
                job.accept()
                break
        world.store.close()
        world.reopen()
    assert world.dead() == []
    with world.queue(delivery_count_limit=1, dead_letter_topic="dead") as queue:
        assert [(job.offset, job.delivery_count) for job in queue.drain()] == [(n, 1) for n in range(3, 20)]


def test_a_job_that_its_worker_leaves_was_delivered(world):
    """It is said why it failed. What the same worker has and did not use goes back, also with a full disk."""
    world.extend(3)
    queue = world.queue(delivery_count_limit=1, dead_letter_topic="dead")
    jobs = queue.one_by_one(queue.poll(0))
    next(jobs)
    jobs.close()
    queue.close()
    (letter,) = world.store["dead"].read()
    assert letter.value == b"0"
    assert b"left without saying" in dict(letter.headers)["logstore.error"]
    queue = world.queue(delivery_count_limit=1, dead_letter_topic="dead")
    queue.give_back(queue.poll(0))
    world.files.fail(FAULTS["ENOSPC"], path="__share_group_state", times=None)
    queue.close()
    world.files.heal()
    with world.queue(delivery_count_limit=1, dead_letter_topic="dead") as queue:
        assert [(job.offset, job.delivery_count) for job in queue.poll(0)] == [(1, 1), (2, 1)]


def test_jobs_that_were_deleted_do_not_wait(world):
    world.extend(10)
    with world.queue() as queue:
        queue.poll(0, max_jobs=2)
    world.log.delete_before(8)
    (status,) = world.store.queues()
    assert (status.waiting_count, status.partitions[0].start_offset) == (2, 8)
