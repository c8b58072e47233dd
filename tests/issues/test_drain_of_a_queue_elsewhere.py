"""A queue through a socket took nothing, and said so: ``drain()`` and ``work(until_empty=True)`` ended before
the broker had answered that there are jobs.

They asked with a time-out of 0, which is enough in the broker's own process, where the answer is there when
the request returns. Now they end when the broker has said that nothing is available.
"""

import itertools

import pytest

import logstore
from logstore.errors import RetriableError
from logstore.testing import Drop, HangUp, Refuse, kafka


def drained(store, group):
    with store.queue("jobs", group=group) as queue:
        return sum(1 for job in queue.drain() if job.accept() is None)


def worked(store, group):
    with store.queue("jobs", group=group) as queue:
        return queue.work(lambda job: None, until_empty=True).accepted_count


@pytest.fixture
def listener(tmp_path):
    with logstore.open(tmp_path / "store") as store, store.listen("127.0.0.1:0") as listener:
        store.create_topic("jobs", partitions=3).extend([(b"%d" % number, b"v") for number in range(40)])
        yield listener


@pytest.mark.parametrize("take", [drained, worked])
def test_every_job_is_done_and_then_none_is_left(listener, take):
    with logstore.connect(listener.address) as store:
        assert [take(store, "workers"), take(store, "workers")] == [40, 0]


def test_a_broker_that_cannot_answer_now_is_asked_again():
    """A lost connection, or a session that the broker has given up, counted as no jobs."""
    with kafka(topics={"jobs": 3}) as servers, logstore.connect(servers, retry_backoff_ms=5) as store:
        with store.producer() as producer:
            for number in range(60):
                producer.send("jobs", b"%d" % number, partition=number % 3)
        turns = itertools.count()
        for at, action in enumerate([HangUp(), Refuse("SHARE_SESSION_NOT_FOUND")]):
            servers.intercept("ShareFetch", action, times=None, when=lambda _, at=at: next(turns) % 4 == at)
        done = set()
        with store.queue("jobs", group="workers") as queue:
            for job in queue.drain():
                done.add(job.value)
                job.accept()
        assert len(done) == 60


def test_a_broker_that_does_not_answer_is_no_empty_queue():
    with (
        kafka(topics={"jobs": 1}) as servers,
        logstore.connect(servers, request_timeout_ms=1_500) as store,
        store.queue("jobs", group="workers") as queue,
    ):
        assert list(queue.drain()) == []
        servers.intercept("ShareFetch", Drop(), times=None)
        with pytest.raises(RetriableError):
            list(queue.drain())
        servers.let_through()
