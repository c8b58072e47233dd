"""What people get wrong with a queue at first, and what they are told."""

from __future__ import annotations

import asyncio

import pytest

import logstore
from logstore import aio
from logstore.errors import UsageError
from logstore.testing import ManualClock, MemoryFiles


@pytest.fixture
def store():
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        store.create_topic("jobs").extend([b"0", b"1", b"2"])
        yield store


def waiting(store):
    (status,) = store.queues()
    return status.waiting_count, status.taken_count


async def asynchronous(job):
    pass


def generating(job):
    yield


@pytest.mark.parametrize("function", [asynchronous, generating, lambda job: asynchronous(job)])
@pytest.mark.filterwarnings("ignore:coroutine")
def test_work_does_not_take_a_function_for_done_that_has_not_begun(store, function):
    with store.queue("jobs", group="g") as queue, pytest.raises(UsageError, match=r"logstore\.aio"):
        queue.work(function, until_empty=True)
    assert waiting(store) == (3, 0)


def test_asynchronous_work_says_that_it_wants_an_async_function(tmp_path):
    async def main():
        async with aio.open(tmp_path) as store:
            topic = await store.require_topic("jobs")
            await topic.append(b"0")
            async with store.queue("jobs", group="g") as queue:
                with pytest.raises(UsageError, match=r"function gave None.*async function"):
                    await queue.work(lambda job: None, until_empty=True)

    asyncio.run(main())


def test_stop_ends_the_work_that_is_about_to_begin_and_no_poll(store):
    with store.queue("jobs", group="g") as queue:
        queue.stop()
        assert queue.work(lambda job: None) == (0, 0, 0)
        assert queue.work(lambda job: queue.stop()) == (1, 0, 0)
        assert [job.value for job in queue.poll(0, max_jobs=1)] == [b"1"]
        queue.stop()
        assert [job.value for job in queue.poll(0)] == [b"2"]
        assert queue.poll(0) == []


def test_a_worker_that_is_dropped_does_not_hold_its_group(store, caplog):
    """Without close() and without ``with``: as in a notebook, whose cell is run again."""
    store.queue("jobs", group="g").poll(0, max_jobs=1)
    queue = store.queue("jobs", group="g", delivery_count_limit=3)
    assert [job.value for job in queue.poll(0)] == [b"0", b"1", b"2"]
    assert "dropped without close()" in caplog.text
    queue.close()
    caplog.clear()
    del queue
    store.delete_queue("g")
    store.queue("jobs", group="g")
    assert store.queues()[0].workers == 0
    store.delete_queue("g")


def test_what_was_said_is_sent_when_the_store_is_closed():
    files = MemoryFiles()
    with logstore.open("/store", files=files) as store:
        store.create_topic("jobs").extend([b"0", b"1", b"2"])
        queue = store.queue("jobs", group="g", linger_ms=60_000)
        first, second, _ = queue.poll(0)
        first.accept()
        second.accept()
    with logstore.open("/store", files=files) as store:
        assert waiting(store) == (1, 0)
