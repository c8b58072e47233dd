"""Random schedules of calls and cancellations, against what a model allows.

Tasks append, extend, send, flush, follow, poll, seek and commit, and each call may be cancelled after any
number of turns of the loop. The model knows of each value whether its call returned, and where. In the end
the log must hold what returned where it was said to be, what was cancelled once or not at all, and nothing
else.
"""

import asyncio
import random

import pytest

from logstore import aio
from logstore.testing.memory import MemoryFiles
from tests.aio.helpers import run
from tests.rotation import seed_of_turn

SEEDS = 6
SOAK_SEEDS = 400


async def cancelled_sometimes(chance, call):
    """The result of a call, or None if it was cancelled on its way."""
    task = asyncio.ensure_future(call)
    if chance.random() < 0.4:
        if chance.random() < 0.5:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(chance.random() * 0.002)
        task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


class Writers:
    """Each value is written by one call. ``told`` has those that returned, with their offsets."""

    def __init__(self, chance, log, producer):
        self.chance, self.log, self.producer = chance, log, producer
        self.told = {}
        self.tried = []
        self.handles = []

    def value(self, group):
        self.tried.append(b"%d.%d" % (group, len(self.tried)))
        return self.tried[-1]

    async def work(self, group, count):
        chance = self.chance
        for _ in range(count):
            kind = chance.choice(["append", "append", "flushed", "extend", "send", "send", "flush", "pause"])
            if kind == "pause":
                await asyncio.sleep(chance.random() * 0.002)
            elif kind == "flush":
                await cancelled_sometimes(chance, self.log.flush())
            elif kind == "extend":
                values = [self.value(group) for _ in range(chance.randint(1, 5))]
                offsets = await cancelled_sometimes(chance, self.log.extend(values))
                self.told.update(zip(values, offsets or (), strict=False))
            elif kind == "send":
                value = self.value(group)
                handle = await cancelled_sometimes(chance, self.producer.send("t", value, partition=0))
                if handle is not None:
                    self.handles.append((value, handle))
                    await cancelled_sometimes(chance, _of(handle))
            else:
                value = self.value(group)
                call = self.log.append(value, flush=kind == "flushed")
                offset = await cancelled_sometimes(chance, call)
                if offset is not None:
                    self.told[value] = offset

    async def finish(self):
        await self.producer.close()
        for value, handle in self.handles:
            self.told[value] = (await handle).offset


async def _of(handle):
    return await handle


async def follow(chance, log, stop, found):
    """Every record from the beginning on, with calls that are cancelled; ends when the log has ended."""
    followed = log.follow(0)
    while not (stop.is_set() and len(found) == len(await log.readable_offsets())):
        try:
            record = await asyncio.wait_for(anext(followed), chance.random() * 0.004)
        except TimeoutError:
            continue
        found.append((record.offset, record.value))


async def consume(chance, consumer, log, stop, found):
    """Polls that are cancelled, seeks to where the model is, and commits of it. What is given must go on
    where the model is."""
    partition, at, committed = ("t", 0), 0, None
    while not (stop.is_set() and at == len(await log.readable_offsets())):
        kind = chance.random()
        if kind < 0.1:
            at = chance.randint(0, at)
            await consumer.seek(partition, at)
            del found[at:]
        elif kind < 0.2:
            assert await consumer.position(partition) == at
            await consumer.commit()
            committed = at
            saved = (await consumer.committed([partition])).get(partition)
            assert (0 if saved is None else saved.offset) == committed
        elif kind < 0.4:
            records = aiter(consumer)
            for _ in range(chance.randint(1, 9)):
                try:
                    record = await asyncio.wait_for(anext(records), 0.005)
                except TimeoutError:
                    continue
                assert record.offset == at
                at += 1
                found.append((record.offset, record.value))
            del records  # what it holds comes again
        else:
            call = consumer.poll(chance.choice([0, 0.001, 0.01]), max_records=chance.randint(1, 9))
            for record in await cancelled_sometimes(chance, call) or ():
                assert record.offset == at
                at += 1
                found.append((record.offset, record.value))


async def schedule(seed):
    chance = random.Random(seed)
    store = await aio.open("/s", files=MemoryFiles())
    log = (await store.create_topic("t"))[0]
    producer = store.producer(acks=chance.choice([1, "all"]), linger_ms=chance.choice([0, 1]))
    writers = Writers(chance, log, producer)
    stop, followed, consumed = asyncio.Event(), [], []
    consumer = store.consumer(partitions=[("t", 0)], group="g")
    readers = [
        asyncio.ensure_future(follow(chance, log, stop, followed)),
        asyncio.ensure_future(consume(chance, consumer, log, stop, consumed)),
    ]
    await asyncio.gather(*[writers.work(group, 25) for group in range(4)])
    await writers.finish()
    await log.extend([b"last"])
    writers.tried.append(b"last")
    stop.set()
    await asyncio.gather(*readers)

    records = [(record.offset, record.value) async for record in log.read()]
    there = dict(map(reversed, records))
    assert len(there) == len(records), "a value is there twice"
    assert set(there) <= set(writers.tried)
    assert {value: there.get(value) for value in writers.told} == writers.told
    assert followed == records
    assert consumed == records
    assert log.waiting_count == 0
    await store.close()


@pytest.mark.parametrize("number", range(SEEDS))
def test_what_is_cancelled_is_done_whole_or_not_at_all(number):
    """0.3 s each."""
    run(schedule(seed_of_turn() * SEEDS + number))


@pytest.mark.soak
def test_many_schedules():
    for seed in range(SOAK_SEEDS):
        run(schedule(seed))
