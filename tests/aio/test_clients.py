"""Producers and consumers."""

import asyncio
import threading
import time
from contextvars import ContextVar

import pytest

from logstore import aio
from logstore.errors import ClosedError, InvalidRecordError, RetriableError, UnknownTopicError, UsageError
from logstore.model import TopicPartition
from logstore.testing.faults import FAULTS, FaultyFiles
from logstore.testing.memory import MemoryFiles
from logstore.testing.operations import Write
from tests.aio.helpers import HeldDisk, check_few_threads, run

T0 = TopicPartition("t", 0)


async def opened(files=None, partitions=1):
    store = await aio.open("/s", files=files or MemoryFiles())
    return store, await store.create_topic("t", partitions=partitions)


class TestProducers:
    def test_transactions_belong_to_threads(self):
        async def main():
            store, _ = await opened()
            with pytest.raises(UsageError, match="a transaction belongs to a thread"):
                store.producer(transactional_id="x")

            def transfer():
                with store.sync.producer(transactional_id="x") as producer, producer.transaction():
                    producer.send("t", b"1")

            await store.run(transfer)
            consumer = store.consumer("t", group="g")

            def commit():
                with store.sync.producer(transactional_id="x") as producer, producer.transaction() as begun:
                    begun.commit_offsets(consumer)

            with pytest.raises(UsageError, match=r"of one in asyncio, give consumer\.sync"):
                await store.run(commit)
            await store.close()

        run(main())

    def test_handles_say_where_each_record_is(self):
        async def main():
            store, topic = await opened(partitions=3)
            async with store.producer(acks=1) as producer:
                sent = [await producer.send("t", b"%d" % n, key=b"k%d" % (n % 9)) for n in range(500)]
            where = [await each for each in sent]
            assert all(each.is_done for each in sent)
            for number, delivered in enumerate(where):
                record = await topic[delivered.partition].record_at(delivered.offset)
                assert record.value == b"%d" % number
                assert record.timestamp_ms == delivered.timestamp_ms
            assert await asyncio.gather(*[_of(each) for each in sent]) == where
            await store.close()

        run(main())

    def test_sends_of_several_tasks_are_in_the_order_of_the_calls(self):
        async def main():
            store, topic = await opened()
            async with store.producer(acks=1) as producer:
                await asyncio.gather(*[producer.send("t", b"%d" % n) for n in range(300)])
            assert [int(record.value) async for record in topic.read()] == list(range(300))
            await store.close()

        run(main())

    def test_a_send_waits_for_room_and_the_loop_goes_on(self):
        async def main():
            files = HeldDisk(Write)
            store, topic = await opened(files)
            producer = store.producer(acks=1, linger_ms=0, batch_size=1_000, buffer_memory=4_000)
            first = await producer.send("t", bytes(900))
            await first
            files.hold()
            sends = [asyncio.ensure_future(producer.send("t", bytes(900))) for _ in range(30)]
            await files.reached()
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert sum(each.done() for each in sends) < 10
            for each in sends[20:]:
                each.cancel()
            await asyncio.sleep(0.001)
            files.release()
            handles = await asyncio.gather(*sends, return_exceptions=True)
            given = [each for each in handles if isinstance(each, aio.AsyncSent)]
            assert len(given) == 20
            await producer.close()
            offsets = [(await each).offset for each in given]
            assert offsets == sorted(set(offsets))
            assert len(await topic[0].readable_offsets()) == 21  # those that were cancelled did not begin
            await store.close()

        run(main())

    def test_sends_that_wait_for_room_wait_side_by_side(self):
        """They wait in one thread. Each began to wait only when the one before it had given up."""

        async def main():
            files = FaultyFiles(MemoryFiles())
            store, producer = await _full(files, max_block_ms=150)
            began = time.monotonic()
            sends = [producer.send("t", bytes(900)) for _ in range(30)]
            done = await asyncio.gather(*sends, return_exceptions=True)
            assert time.monotonic() - began < 2  # 30 times 150 ms are more
            assert {type(each) for each in done[10:]} == {RetriableError}
            files.heal()
            await producer.flush()
            await producer.send("t", bytes(900))  # there is room again
            await producer.close()
            await store.close()

        run(main())

    def test_flush_and_close_of_what_is_delivered_need_no_time(self):
        """They ended with an error if the thread had not begun with them in that time."""

        async def main():
            store, _ = await opened()
            for timeout in (0, 0.0001):
                producer = store.producer(acks=1)
                for finish in (producer.flush, producer.close):
                    await finish()
                    await finish(timeout)
            producers = [store.producer(acks=1) for _ in range(8)]
            for finish in [each.flush for each in producers] + [each.close for each in producers]:
                await finish(0)
            await store.close()

        run(main())

    def test_a_flush_that_has_begun_in_time_is_not_told_as_one_that_has_not(self, monkeypatch):
        """The loop hears of its beginning late: here the time is over first."""

        async def main():
            store, _ = await opened()
            producer, release, has_begun = store.producer(), threading.Event(), threading.Event()

            async def wait(*_, **__):
                release.set()
                await store.run(has_begun.wait)

            producer._begin(release.wait)
            monkeypatch.setattr(producer.sync, "flush", lambda _: has_begun.set())
            with monkeypatch.context() as patch:
                patch.setattr(producer._shell, "call_soon", lambda _: None)
                patch.setattr(asyncio, "wait", wait)
                await producer.flush(0.01)
            await store.close()

        run(main())

    def test_flush_and_close_keep_to_their_time_while_sends_wait_for_room(self):
        async def main():
            files = FaultyFiles(MemoryFiles())
            store, producer = await _full(files, max_block_ms=30_000)
            sends = [asyncio.ensure_future(producer.send("t", bytes(900))) for _ in range(30)]
            for finish in (producer.flush, producer.close):
                with pytest.raises(RetriableError, match=r"wait for room in buffer_memory after 0\.05 s"):
                    await asyncio.wait_for(finish(timeout=0.05), 5)
            done = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 5)
            assert {type(each) for each in done[10:]} == {ClosedError}
            files.heal()
            await producer.flush(timeout=10)  # what had found room is delivered all the same
            offsets = [(await each).offset for each in done if isinstance(each, aio.AsyncSent)]
            assert offsets == list(range(1, len(offsets) + 1))
            await store.close()

        run(main())

    def test_what_cannot_be_sent_raises_as_it_does_elsewhere(self):
        async def main():
            store, _ = await opened()
            producer = store.producer(delivery_timeout_ms=1_000, max_block_ms=50)
            with pytest.raises(UnknownTopicError):
                await producer.send("nowhere", b"v")
            with pytest.raises(InvalidRecordError):
                await producer.send("t", "text")
            sent = await producer.send("t", b"v", partition=0)
            await sent
            await store.delete_topic("t")
            failed = await producer.send("t", b"v", partition=0)
            for _ in range(2):
                with pytest.raises((UnknownTopicError, RetriableError)):
                    await failed
            await producer.close()
            await producer.close()
            with pytest.raises(ClosedError):
                await producer.send("t", b"v")
            await store.close()

        run(main())


def test_what_runs_in_threads_finds_the_context_variables_of_the_task():
    """As in the synchronous calls: an interceptor may add the trace that the task belongs to."""
    trace = ContextVar("trace", default="none")
    seen = []

    def note(given):
        seen.append(trace.get())
        return given

    async def main():
        store, _ = await opened()
        trace.set("mine")
        async with store.producer(interceptors=[note], value_serializer=note) as producer:
            await (await producer.send("t", b"v"))
        async with store.consumer("t", group="g", on_assigned=note, value_deserializer=note) as consumer:
            assert len(await consumer.poll()) == 1
        assert await store.run(trace.get) == "mine"
        await store.close()

    run(main())
    assert seen == ["mine"] * 4


async def _full(files, *, max_block_ms):
    """A store whose disk is full, and a producer that soon has no room."""
    store, _ = await opened(files)
    producer = store.producer(
        acks=1, linger_ms=0, batch_size=1_000, buffer_memory=4_000, max_block_ms=max_block_ms
    )
    await (await producer.send("t", b"first"))
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=None)
    return store, producer


async def _of(sent):
    return await sent


class TestConsumers:
    def test_a_thousand_that_wait_take_no_thread(self):
        async def main():
            before = set(threading.enumerate())
            store, topic = await opened()
            consumers = [store.consumer("t") for _ in range(1_000)]
            polls = [asyncio.ensure_future(each.poll()) for each in consumers]
            while not all(each.sync._fetches.waits_for for each in consumers):
                await asyncio.sleep(0.01)
            await check_few_threads(before)
            await topic[0].append(b"v")
            assert {found[0].value for found in await asyncio.gather(*polls)} == {b"v"}
            await store.close()

        run(main())

    def test_every_record_once_and_a_commit_covers_those_up_to_the_present_one(self):
        async def main():
            store, topic = await opened(partitions=2)
            await topic.extend([(b"%d" % n, b"%d" % n) for n in range(200)])
            found = []
            async with store.consumer("t", group="g") as consumer:
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == 77:
                        await consumer.commit()
                        break
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == 150:
                        break
            assert len(set(found)) == 150
            async with store.consumer("t", group="g") as consumer:
                rest = []
                while len(rest) < 123:
                    rest += [record.value for record in await consumer.poll(1)]
                assert sorted(found[:77] + rest) == sorted(b"%d" % n for n in range(200))
                assert sum((await consumer.lag()).values()) == 0
            await store.close()

        run(main())

    def test_a_poll_takes_what_an_iterator_has_not_given(self):
        async def main():
            store, topic = await opened()
            await topic.extend([b"%d" % n for n in range(10)])
            async with store.consumer("t") as consumer:
                iterator = aiter(consumer)
                found = [await anext(iterator)]
                found += await consumer.poll(timeout=0, max_records=2)
                found += [await anext(iterator), await anext(iterator)]
                found += await consumer.poll(timeout=0)
                assert [record.offset for record in found] == list(range(10))
                await topic.append(b"10")
                assert (await anext(iterator)).offset == 10
            await store.close()

        run(main())

    def test_what_is_given_up_at_the_end_can_be_committed(self):
        async def main():
            store, topic = await opened()
            await topic.extend([b"1", b"2"])
            consumer = store.consumer("t", group="g", on_revoked=lambda partitions: consumer.sync.commit())
            async with consumer:
                assert len(await consumer.poll()) == 2
            assert store.sync.offsets("g")[T0].offset == 2
            await store.close()

        run(main())

    def test_members_of_a_group_share_the_partitions(self):
        async def main():
            store, topic = await opened(partitions=4)
            found = []

            async def work(consumer):
                while True:
                    for record in await consumer.poll():
                        found.append(record.value)
                    await consumer.commit()

            consumers = [store.consumer("t", group="g", heartbeat_interval_ms=20) for _ in range(3)]
            workers = [asyncio.ensure_future(work(each)) for each in consumers]
            while sorted(len(each.assignment) for each in consumers) != [1, 1, 2]:
                await asyncio.sleep(0.01)
            await topic.extend([(b"%d" % n, b"%d" % n) for n in range(100)])
            while len(found) < 100:
                await asyncio.sleep(0.005)
            workers[0].cancel()
            await consumers[0].close()
            while sorted(len(each.assignment) for each in consumers[1:]) != [2, 2]:
                await asyncio.sleep(0.01)
            await topic.extend([(b"%d" % n, b"%d" % n) for n in range(100, 200)])
            while len(found) < 200:
                await asyncio.sleep(0.005)
            assert sorted(found, key=int) == [b"%d" % n for n in range(200)]
            for each in workers:
                each.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await store.close()

        run(main())

    def test_a_poll_that_waits_ends_when_the_consumer_or_the_store_is_closed(self):
        async def main():
            store, _ = await opened()
            consumers = [store.consumer("t"), store.consumer("t", group="g"), store.consumer("t")]
            polls = [asyncio.ensure_future(each.poll()) for each in consumers]
            await asyncio.sleep(0.05)
            with pytest.raises(UsageError, match="another task polls"):
                await consumers[0].poll()
            await consumers[0].close()
            with pytest.raises(ClosedError):
                await polls[0]
            await store.close()
            for each in polls[1:]:
                with pytest.raises(ClosedError):
                    await each

        run(main())

    def test_a_seek_reaches_a_poll_that_waits(self):
        async def main():
            store, topic = await opened()
            await topic.extend([(None, b"%d" % n) for n in range(5)])
            consumer = store.consumer(partitions=[T0], auto_offset_reset="latest")
            poll = asyncio.ensure_future(consumer.poll())
            await asyncio.sleep(0.05)
            assert not poll.done()
            await consumer.seek(T0, 2)
            assert [record.offset for record in await poll] == [2, 3, 4]
            await consumer.seek_to_beginning()
            assert await consumer.position(T0) == 0
            await consumer.pause()
            assert consumer.paused == (T0,)
            assert await consumer.poll(0.01) == []
            poll = asyncio.ensure_future(consumer.poll())
            await asyncio.sleep(0.02)
            await consumer.resume()
            assert len(await poll) == 5
            await store.close()

        run(main())
