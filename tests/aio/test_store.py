"""Opening, closing, and the loop that a store belongs to."""

import asyncio

import pytest

import logstore
from logstore import aio
from logstore.aio.shell import MOST_THREADS
from logstore.errors import ClosedError, LockedError, UnknownTopicError, UsageError
from logstore.testing.memory import MemoryFiles
from logstore.testing.operations import FlushDirectory, FlushFile, Write
from tests.aio.helpers import HeldDisk, check_threads_end, run, threads
from tests.logdir.helpers import run_python


def test_open_awaited_and_with_are_one(tmp_path):
    async def main():
        store = await aio.open(tmp_path / "s")
        await store.create_topic("t", partitions=3)
        assert await store["t"].append(b"v", partition=2) == (2, 0)
        made = await store.create_topics({"u": 2, "v": 1})
        assert made == {"u": store["u"], "v": store["v"]}
        await store.close()
        await store.close()
        async with aio.open(tmp_path / "s", create=False) as store:
            assert list(store) == ["t", "u", "v"]
            assert "t" in store
            assert len(store["t"]) == 3
            assert [record.value async for record in store["t"].read()] == [b"v"]
            assert await store.topic("t") is store["t"]
            assert await store.run(store.sync.verify)
            with pytest.raises(UsageError, match=r"main\(\) is to be awaited"):
                await store.run(main)
            await store.delete_topic("t")
            with pytest.raises(UnknownTopicError):
                store["t"]

    run(main())
    check_threads_end()


def test_an_open_that_fails_raises_and_leaves_no_thread(tmp_path):
    async def main():
        with logstore.open(tmp_path / "s"), pytest.raises(LockedError):
            await aio.open(tmp_path / "s")

    run(main())
    check_threads_end()


def test_a_cancelled_open_lets_the_directory_go():
    async def main():
        files = HeldDisk(FlushDirectory)
        logstore.open("/s", files=files).close()
        files.hold()
        opening = asyncio.ensure_future(_open(files))
        await files.reached()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        files.release()
        async with aio.open("/s", files=files, timeout=30) as store:
            await store.create_topic("t")

    run(main())


def test_a_cancelled_open_does_not_wait_for_the_lock_any_longer(tmp_path):
    """Its thread kept the process from ending for as long as the timeout."""

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await aio.open(tmp_path / "s", timeout=30)

    with logstore.open(tmp_path / "s"):
        run(main())
        check_threads_end()


async def _open(files):
    return await aio.open("/s", files=files)


def test_another_loop_and_a_closed_store_are_refused_with_a_reason(tmp_path):
    async def first():
        store = await aio.open(tmp_path / "s")
        log = (await store.create_topic("t"))[0]
        return store, log, store.producer(), store.consumer("t"), log.follow()

    loop = asyncio.new_event_loop()
    store, log, producer, consumer, followed = loop.run_until_complete(first())
    calls = [
        lambda: log.append(b"v"),
        lambda: log.extend([b"v"]),
        lambda: log.flush(),
        lambda: anext(followed),
        lambda: producer.send("t", b"v"),
        lambda: producer.flush(),
        lambda: consumer.poll(0),
        lambda: consumer.position(("t", 0)),
        lambda: store.flush(),
        lambda: store["t"].append(b"v"),
        lambda: store.run(len, ""),
    ]

    async def elsewhere():
        for call in [*calls, lambda: store.close(), lambda: producer.close(), lambda: consumer.close()]:
            with pytest.raises(UsageError, match="another event loop"):
                await call()

    async def afterwards():
        await store.close()
        for call in calls:
            with pytest.raises(ClosedError, match="closed"):
                await call()
        for begin in (log.read, log.follow, store.producer, lambda: store.consumer("t")):
            with pytest.raises(ClosedError, match="closed"):
                begin()
        await producer.close()
        await consumer.close()

    run(elsewhere())
    loop.run_until_complete(afterwards())
    loop.close()


@pytest.mark.parametrize("kinds", [(Write, FlushFile), (FlushFile,)], ids=["no write", "no flush"])
def test_the_loop_goes_on_while_the_disk_does_not(kinds):
    """Every call is made while the disk, and with it the log's lock, is held. If one of them blocked the
    loop, nothing would release the disk."""

    async def main():
        files = HeldDisk(*kinds)
        store = await aio.open("/s", files=files)
        topic = await store.create_topic("t", partitions=2)
        log = topic[0]
        await log.extend([b"there"] * 3)
        files.hold()
        begun = [asyncio.ensure_future(log.extend([b"v"], flush=True))]
        await files.reached()
        producer, consumer = store.producer(linger_ms=0), store.consumer("t")
        reader, follower = log.read(), log.follow()
        idle, buyer = log.follow(), store.consumer("t", group="g")
        handles = [asyncio.ensure_future(producer.send("t", b"v", partition=0)) for _ in range(3)]
        calls = [
            *(log.append(b"v"), log.append(b"v", flush=True), log.flush(), log.delete_before(1)),
            *(log.readable_offsets(), log.record_at(1), log.offset_at(0), topic.append(b"v"), topic.flush()),
            *(store.flush(), store.create_topic("u"), store.topic("t"), producer.flush()),
            *(anext(reader), anext(follower), consumer.poll(), consumer.lag()),
            *(buyer.poll(0.01), buyer.commit()),
        ]
        begun += [asyncio.ensure_future(call) for call in calls]
        waiting = asyncio.ensure_future(anext(idle))
        for _ in range(20):
            await asyncio.sleep(0.001)  # the loop goes on
        assert not begun[0].done()
        assert topic[0] is log
        assert log.waiting_count <= 2
        waiting.cancel()
        files.release()
        done = await asyncio.gather(*begun, *handles, return_exceptions=True)
        failed = [each for each in done if isinstance(each, Exception)]
        assert failed == []
        await asyncio.gather(*[handle.result() for handle in handles])
        await store.close()

    run(main())


def test_a_store_has_few_threads_however_much_it_is_asked(tmp_path):
    async def main():
        async with aio.open(tmp_path / "s") as store:
            await store.create_topic("t")
            await asyncio.gather(*[store["t"][0].extend([b"v"] * 10) for _ in range(300)])
            assert 0 < len(threads()) <= MOST_THREADS
            assert len(await store["t"][0].readable_offsets()) == 3_000

    run(main())
    check_threads_end()


def test_functions_that_wait_hold_up_nothing_else():
    """Eight of them took all threads: nothing else was done, and close() waited for them without end."""

    async def main():
        store = await aio.open("/s", files=MemoryFiles())
        topic = await store.create_topic("t", partitions=MOST_THREADS)

        def wait(partition):
            return next(store.sync["t"][partition].follow())

        waiting = [asyncio.ensure_future(store.run(wait, each)) for each in range(MOST_THREADS)]
        while not all(topic[each].sync.writer.waits.is_watched for each in range(MOST_THREADS)):
            await asyncio.sleep(0.001)
        await asyncio.wait_for(topic[0].append(b"v", flush=True), 10)
        assert (await waiting[0]).value == b"v"
        await asyncio.wait_for(store.close(), 10)
        done = await asyncio.gather(*waiting[1:], return_exceptions=True)
        assert {type(each) for each in done} == {ClosedError}

    run(main())
    check_threads_end()


def test_logstore_does_not_import_asyncio():
    assert run_python("import logstore, sys; print('asyncio' in sys.modules)").split() == ["False"]
