"""Runs a coroutine in a loop of its own, and holds a disk."""

from __future__ import annotations

import asyncio
import threading

from logstore.aio.shell import MOST_THREADS
from logstore.testing.memory import MemoryFiles


def run(coroutine):
    """Run to the end. An exception that nobody was told of fails the test, as does a task left over."""
    unseen = []

    async def watched():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        try:
            return await asyncio.wait_for(coroutine, 60)
        finally:
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            unseen.extend(task for task in left if not task.done())

    result = asyncio.run(watched())
    assert unseen == []
    return result


class HeldDisk(MemoryFiles):
    """A disk on which some operations wait until :meth:`release`, while it is held."""

    def __init__(self, *kinds):
        super().__init__(before=self._wait)
        self._kinds = kinds
        self._is_free = threading.Event()
        self._is_free.set()
        self.is_reached = threading.Event()

    def hold(self):
        self._is_free.clear()
        self.is_reached.clear()

    def release(self):
        self._is_free.set()

    def _wait(self, operation):
        if not self._is_free.is_set() and isinstance(operation, self._kinds):
            self.is_reached.set()
            assert self._is_free.wait(60)

    async def reached(self):
        """Return when something waits for the disk. The loop goes on meanwhile."""
        while not self.is_reached.is_set():
            await asyncio.sleep(0.001)


def threads():
    """The threads of stores that are open; those of closed ones end by themselves."""
    return [each for each in threading.enumerate() if each.name.startswith("logstore-aio")]


async def check_few_threads(before):
    """Only few threads have begun since ``before``, and none begins or ends while everything waits. Those of
    earlier tests in this process may still be ending."""
    begun = set(threading.enumerate()) - before
    await asyncio.sleep(0.05)
    assert set(threading.enumerate()) - before == begun
    assert len(begun) < MOST_THREADS + 10  # with the main thread, MOST_THREADS + 10


def check_threads_end():
    for each in threads():
        each.join(10)
    assert threads() == []
