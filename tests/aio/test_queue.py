"""Workers of a queue as tasks."""

from __future__ import annotations

import asyncio

import pytest

from logstore import NewRecord, aio
from logstore.errors import ClosedError, JobLostError, UsageError
from tests.aio.helpers import run


async def filled(store, count):
    jobs = await store.require_topic("jobs", partitions=2)
    await jobs.extend([NewRecord(b"%d" % number) for number in range(count)])
    return jobs


def test_tasks_share_jobs_and_each_is_done_once(tmp_path):
    async def main():
        async with aio.open(tmp_path) as store:
            await filled(store, 500)
            done = []

            async def do(job):
                done.append(job.value)
                await asyncio.sleep(0)

            async def work():
                async with store.queue("jobs", group="g") as queue:
                    return await queue.work(do, until_empty=True)

            reports = await asyncio.gather(*[work() for _ in range(5)])
            assert sum(report.accepted_count for report in reports) == 500
            assert sorted(done) == sorted(b"%d" % number for number in range(500))

    run(main())


def test_what_is_said_of_jobs(tmp_path):
    async def main():
        async with aio.open(tmp_path) as store:
            await filled(store, 4)
            dead = await store.require_topic("dead")
            async with store.queue("jobs", group="g", dead_letter_topic="dead") as queue:
                one, two, three, four = await queue.poll(1)
                await queue.accept(one)
                await queue.release(two)
                await queue.reject(three, "why")
                await queue.renew(four)
                await queue.flush()
                with pytest.raises(UsageError, match="before"):
                    await queue.accept(one)
                for say in (queue.accept, queue.release, queue.reject, queue.renew):
                    with pytest.raises(UsageError, match="job is None; it must be one of the jobs"):
                        await say(None)
                assert [job.offset async for job in queue.drain()] == [two.offset]
                assert [record.value async for record in dead.read()] == [three.value]

    run(main())


def test_a_cancelled_poll_gives_its_jobs_to_the_next(tmp_path):
    async def main():
        async with aio.open(tmp_path) as store:
            jobs = await filled(store, 0)
            async with store.queue("jobs", group="g") as queue:
                for number in range(50):
                    polling = asyncio.create_task(queue.poll())
                    await asyncio.sleep(0.0005 * (number % 4))
                    await jobs.append(b"%d" % number)
                    await asyncio.sleep(0.0005 * (number % 3))
                    polling.cancel()
                    found = []
                    try:
                        found = await polling
                    except asyncio.CancelledError:
                        found = await queue.poll(5)
                    assert [(job.value, job.delivery_count) for job in found] == [(b"%d" % number, 1)]
                    await queue.accept(found[0])

    run(main())


def test_a_cancelled_call_that_fails_fails_for_nobody(tmp_path):
    """The event loop printed a traceback of an exception that was never retrieved."""

    async def main():
        async with aio.open(tmp_path) as store:
            await filled(store, 1)
            async with store.queue("jobs", group="g") as queue:
                (job,) = await queue.poll(1)
                await queue.accept(job)
                again = asyncio.create_task(queue.accept(job))
                await asyncio.sleep(0)
                again.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await again
                await queue.flush()

    run(main())


def test_a_cancelled_worker_gives_its_job_back_and_a_closed_one_ends(tmp_path):
    async def main():
        async with aio.open(tmp_path) as store:
            await filled(store, 1)
            started = asyncio.Event()

            async def hang(_):
                started.set()
                await asyncio.sleep(3600)

            queue = await store.queue("jobs", group="g", record_lock_duration_ms=600_000, retry_backoff_ms=0)
            working = asyncio.create_task(queue.work(hang))
            await started.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            async with store.queue(
                "jobs", group="g", record_lock_duration_ms=600_000, retry_backoff_ms=0
            ) as other:
                (job,) = await other.poll(5)
                assert job.delivery_count == 2
                waiting = asyncio.create_task(queue.poll())
                await asyncio.sleep(0.01)
                await queue.close()
                with pytest.raises(ClosedError):
                    await waiting

    run(main())


def test_a_job_that_is_late_is_lost(tmp_path):
    async def main():
        async with aio.open(tmp_path) as store:
            await filled(store, 1)
            async with store.queue("jobs", group="g", record_lock_duration_ms=100) as queue:
                (job,) = await queue.poll(10)
                await asyncio.sleep(0.11)
                with pytest.raises(JobLostError):
                    await queue.accept(job)

    run(main())


def test_a_worker_that_is_not_awaited_says_how_to_write_it(tmp_path):
    async def main():
        async with aio.open(tmp_path) as store:
            await filled(store, 1)
            said = "async with store.queue.* or queue = await store.queue"
            with pytest.raises(UsageError, match=said):
                async for _ in store.queue("jobs", group="g"):
                    pass
            for name in ("poll", "work", "close"):
                with pytest.raises(
                    AttributeError, match=f"'Joining' object has no attribute '{name}'.*{said}"
                ):
                    getattr(store.queue("jobs", group="g"), name)
        with pytest.raises(AttributeError, match=r"say: async with aio\.open.* or store = await aio\.open"):
            await aio.open(tmp_path).require_topic("jobs")

    run(main())
