"""A log was cut behind a worker and grew again. The worker was given a new job, and accepted the
old one that had its offset: that counted for the new one, which was lost when the worker died.
"""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import JobLostError
from logstore.testing import ManualClock, MemoryFiles


@pytest.fixture
def store():
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        yield store


@pytest.mark.parametrize("say", ["accept", "release", "reject", "renew"])
def test_what_is_said_of_the_old_one_does_not_count(store, say):
    """0.01 s each."""
    log = store.create_topic("jobs")[0]
    log.extend([b"0", b"1", b"2", b"3"])
    with store.queue("jobs", group="g") as queue:
        old = queue.poll(timeout=0)
        log.truncate_to(2)
        log.extend([b"new 2", b"new 3", b"new 4"])
        assert [job.value for job in queue.poll(timeout=0)] == [b"new 2", b"new 3", b"new 4"]
        for job in old[:2]:
            job.accept()
        for job in old[2:]:
            with pytest.raises(JobLostError, match="the log was cut there, and has other records now"):
                getattr(job, say)()
    with store.queue("jobs", group="g") as queue:
        assert [(job.value, job.delivery_count) for job in queue.poll(timeout=0)] == [
            (b"new 2", 2),
            (b"new 3", 2),
            (b"new 4", 2),
        ]


def test_nor_if_the_new_one_came_with_an_error(store):
    """With the answer that said which job was lost: the poll that raised it gave no job. 0.01 s."""
    log = store.create_topic("jobs")[0]
    log.extend([b"0", b"1", b"2", b"3"])
    with store.queue("jobs", group="g") as queue:
        old = queue.poll(timeout=0)
        old[0].accept()
        log.truncate_to(2)
        log.extend([b"new 2", b"new 3", b"new 4"])
        old[3].accept()
        with pytest.raises(JobLostError, match="jobs-0 offset 3"):
            queue.poll(timeout=0)
        with pytest.raises(JobLostError, match="the log was cut there, and has other records now"):
            old[2].accept()
        assert [job.value for job in queue.poll(timeout=0)] == [b"new 2", b"new 3", b"new 4"]


def test_jobs_of_earlier_epochs_in_front_of_a_cut_stay(store):
    """Also when they come again after later ones. 0.01 s."""
    log = store.create_topic("jobs")[0]
    with store.queue("jobs", group="g") as queue:
        for number in range(12):
            log.extend([b"kept"])
            log.extend([b"cut"])
            log.truncate_to(number + 1)
        first, *others = queue.poll(timeout=0, max_jobs=12)
        first.release()
        (again,) = queue.poll(timeout=0)
        for job in [again, *others]:
            job.accept()
    (status,) = store.queues()
    assert status.partitions[0].start_offset == 12
