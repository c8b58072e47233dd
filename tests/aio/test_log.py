"""Appending, flushing, reading and following one partition."""

import asyncio
import random
import threading
from datetime import UTC, datetime, timedelta

import pytest

from logstore import aio
from logstore.errors import (
    CorruptionError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    ReadOnlyError,
    RetriableError,
    StorageError,
    UnknownTopicError,
    UsageError,
)
from logstore.files import OsFiles
from logstore.model import Isolation, ProducerIdentity
from logstore.testing.faults import FAULTS, FaultyFiles
from logstore.testing.memory import MemoryFiles
from logstore.testing.operations import FlushFile
from tests.aio.helpers import HeldDisk, check_few_threads, run


async def logs(files=None, path="/s", **options):
    store = await aio.open(path, files=files or MemoryFiles(), **options)
    return store, (await store.require_topic("t"))[0]


class TestReading:
    @pytest.mark.parametrize("sizes", [(0, 50), (100, 3_000), (200_000, 600_000)])
    def test_it_gives_what_the_synchronous_log_gives(self, sizes):
        async def main():
            store, log = await logs()
            rows = [(b"k", bytes(random.Random(number).randrange(*sizes))) for number in range(40)]
            await log.extend(rows * (60 if sizes[1] < 4_000 else 1))
            for start, stop in [(None, None), (17, None), (None, 29), (5, 6), (3, 3)]:
                expected = list(log.sync.read(start, stop))
                assert [record async for record in log.read(start, stop)] == expected
                assert [
                    record async for record in store["t"].read({0: start or 0}, {0: stop or 9_999_999})
                ] == expected
            assert await log.record_at(7) == log.sync.record_at(7)
            assert await log.readable_offsets() == log.sync.readable_offsets()
            assert await log.offset_at(0) == 0
            await store.close()

        run(main())

    @pytest.mark.damaged
    def test_records_before_damage_are_given_and_then_it_raises(self, tmp_path):
        path = tmp_path / "s" / "t-0" / f"{0:020}.log"

        async def main():
            store, log = await logs(path=tmp_path / "s", files=OsFiles())
            for number in range(20):
                await log.extend([b"%02d" % number])
            data = bytearray(path.read_bytes())
            data[len(data) // 20 * 13 - 1] ^= 1  # every batch has as many bytes
            path.write_bytes(data)
            for records in (log.read(), log.follow(0)):
                assert [(await anext(records)).value for _ in range(12)] == [b"%02d" % n for n in range(12)]
                with pytest.raises(CorruptionError):
                    await anext(records)
                with pytest.raises(StopAsyncIteration):
                    await anext(records)
            await store.close()

        run(main())

    def test_one_task_at_a_time(self):
        async def main():
            store, log = await logs()
            followed = log.follow()
            first = asyncio.ensure_future(anext(followed))
            await asyncio.sleep(0.01)
            with pytest.raises(UsageError, match="another task"):
                await anext(followed)
            await log.append(b"v")
            assert (await first).value == b"v"
            await followed.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(followed)
            await store.close()

        run(main())

    def test_wrong_arguments_raise_as_in_the_synchronous_log(self):
        async def main():
            store, log = await logs()
            await log.append(b"v")
            for wrong in (log.read(5), log.read(-1), log.follow(5)):
                with pytest.raises(OffsetOutOfRangeError):
                    await anext(wrong)
            with pytest.raises(UsageError):
                log.read(isolation="x")
            with pytest.raises(UsageError):
                log.follow(timeout=-1)
            with pytest.raises(InvalidRecordError):
                await log.append("text")
            with pytest.raises(InvalidRecordError):
                await store["t"].append("text", key=b"k")
            with pytest.raises(UnknownTopicError):
                store["t"][7]
            await store.close()

        run(main())


class TestFollowing:
    def test_a_thousand_who_wait_take_no_thread_and_one_callback(self):
        async def main():
            before = set(threading.enumerate())
            store, log = await logs()
            followed = [log.follow() for _ in range(1_000)]
            begun = [asyncio.ensure_future(anext(each)) for each in followed]
            while log.waiting_count < 1_000:
                await asyncio.sleep(0.01)
            await check_few_threads(before)
            assert len(log.sync.writer.waits._callbacks) == 1
            await log.append(b"v")
            assert {record.value for record in await asyncio.gather(*begun)} == {b"v"}
            assert log.waiting_count == 0
            assert not log.sync.writer.waits.is_watched
            await store.close()

        run(main())

    def test_aclose_ends_a_call_that_waits(self):
        """It went on waiting, and gave the next record."""

        async def main():
            store, log = await logs()
            followed = log.follow()
            waiting = asyncio.ensure_future(anext(followed, "over"))
            while not log.waiting_count:
                await asyncio.sleep(0.001)
            await followed.aclose()
            assert await asyncio.wait_for(waiting, 10) == "over"
            assert log.waiting_count == 0
            await log.append(b"v")
            read = log.read()
            waiting = asyncio.ensure_future(anext(read, "over"))
            await asyncio.sleep(0)  # a thread reads
            await read.aclose()
            assert await waiting == "over"
            assert [await anext(each, "over") for each in (followed, read)] == ["over", "over"]
            await store.close()

        run(main())

    def test_a_call_that_is_cancelled_again_and_again_loses_nothing(self):
        async def main():
            store, log = await logs()
            followed, found = log.follow(0), []

            async def write():
                for number in range(300):
                    await log.append(b"%d" % number)
                    if number % 10 == 0:
                        await asyncio.sleep(0.002)

            writing = asyncio.ensure_future(write())
            cancelled = 0
            while len(found) < 300:
                try:
                    found.append(int((await asyncio.wait_for(anext(followed), 0.001)).value))
                except TimeoutError:
                    cancelled += 1
            assert found == list(range(300))
            assert cancelled
            await writing
            await store.close()

        run(main())

    def test_it_begins_with_what_is_written_after_the_call_and_ends_by_its_timeout(self):
        async def main():
            store, log = await logs()
            await log.extend([b"old"] * 3)
            followed = log.follow(timeout=0.05)
            await log.extend([b"new"])
            assert [record.value async for record in followed] == [b"new"]
            later = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
            dated = log.follow(later, timeout=0.05)
            await log.extend([(None, b"early"), (None, b"late", int(later.timestamp() * 1000))])
            assert [record.value async for record in dated] == [b"late"]
            await store.close()

        run(main())

    def test_its_timeout_counts_from_when_the_caller_asks_again(self, monkeypatch):
        """As with the synchronous one: a caller that is slow for a moment has not waited."""

        async def main():
            store, log = await logs()
            await log.append(b"1")
            loop, found = asyncio.get_running_loop(), []
            plain = loop.time
            followed = log.follow(0, timeout=5)
            async for record in followed:
                found.append(record.value)
                if len(found) == 2:
                    break
                monkeypatch.setattr(loop, "time", lambda: plain() + 10)
                loop.call_later(0.01, log.sync.append, b"2")
            await followed.aclose()
            assert found == [b"1", b"2"]
            await store.close()

        run(main())

    def test_a_truncation_ends_it(self):
        async def main():
            store, log = await logs()
            await log.extend([b"v"] * 3)
            waiting = asyncio.ensure_future(anext(log.follow()))
            while not log.waiting_count:
                await asyncio.sleep(0.001)
            await log.truncate_to(1)
            with pytest.raises(OffsetOutOfRangeError):
                await waiting
            assert await log.delete_before(1) == 1
            await store.close()

        run(main())

    def test_a_log_that_another_store_writes_is_followed_by_one_look_for_all(self):
        async def main():
            tasks = len(asyncio.all_tasks())
            files = MemoryFiles()
            store, log = await logs(files)
            reader = await aio.open("/s", files=files, read_only=True)
            read = (await reader.topic("t"))[0]
            begun = [asyncio.ensure_future(anext(read.follow(0))) for _ in range(50)]
            while read.waiting_count < 50:
                await asyncio.sleep(0.005)
            await log.extend([b"v"])
            assert {record.value for record in await asyncio.gather(*begun)} == {b"v"}
            with pytest.raises(ReadOnlyError):
                await read.append(b"v")
            with pytest.raises(ReadOnlyError):
                await read.flush()
            waiting = asyncio.ensure_future(anext(read.follow()))
            while not read.waiting_count:
                await asyncio.sleep(0.005)
            await reader.close()
            with pytest.raises(UsageError, match="closed"):
                await waiting
            await store.close()
            while len(asyncio.all_tasks()) > tasks:  # who looked at the files learns it, too
                await asyncio.sleep(0.005)

        run(main())


def test_a_batch_of_an_idempotent_producer_is_appended_once():
    async def main():
        store, log = await logs()
        producer = ProducerIdentity(7, 0, 0)
        assert await log.extend([b"a", b"b"], producer=producer) == range(2)
        assert await log.extend([b"a", b"b"], producer=producer) == range(2)
        assert [record.value async for record in log.read(on_demand=True)] == [b"a", b"b"]
        assert [record.value async for record in store["t"].read(on_demand=True)] == [b"a", b"b"]
        await store.close()

    run(main())


class TestFlushing:
    def test_one_flush_serves_all_who_wait_and_takes_one_thread(self):
        async def main():
            files = HeldDisk(FlushFile)
            store, log = await logs(files)
            await log.append(b"v", flush=True)
            files.hold()
            first = asyncio.ensure_future(log.append(b"first", flush=True))
            await files.reached()
            before = sum(isinstance(each, FlushFile) for each in files.trace)
            others = [asyncio.ensure_future(log.append(b"v", flush=True)) for _ in range(200)]
            await asyncio.sleep(0.01)
            others[7].cancel()
            await asyncio.sleep(0.01)
            files.release()
            await first
            done = await asyncio.gather(*others, return_exceptions=True)
            assert sum(isinstance(each, asyncio.CancelledError) for each in done) == 1
            assert log.sync.durable_offset == 202
            assert sum(isinstance(each, FlushFile) for each in files.trace) - before <= 2
            await store.close()

        run(main())

    def test_a_flush_with_a_timeout_goes_on_after_it(self):
        async def main():
            files = HeldDisk(FlushFile)
            store, log = await logs(files)
            await log.append(b"v")
            with pytest.raises(UsageError, match="timeout is -1"):
                await log.flush(timeout=-1)
            files.hold()
            for seconds in (0, 0.01):
                with pytest.raises(RetriableError, match=f"not durable after {seconds} s; the flush goes on"):
                    await log.flush(timeout=seconds)
            files.release()
            await log.flush(timeout=60)
            assert log.sync.durable_offset == 1
            await store.close()

        run(main())

    def test_a_flush_that_fails_raises_for_all_who_wait(self):
        async def main():
            files = FaultyFiles(MemoryFiles())
            store, log = await logs(files)
            await log.append(b"v", flush=True)
            files.fail(FAULTS["EIO"], kinds={"flush"}, times=None)
            done = await asyncio.gather(
                *[log.append(b"v", flush=True) for _ in range(5)], return_exceptions=True
            )
            assert all(isinstance(each, StorageError) for each in done), done
            files.heal()
            with pytest.raises(StorageError):
                await log.append(b"v", flush=True)
            assert [record.value async for record in log.read(isolation=Isolation.DURABLE)] == [b"v"]
            with pytest.raises(StorageError):
                await store.close()

        run(main())
