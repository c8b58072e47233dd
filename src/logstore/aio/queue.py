"""A worker of a queue, for asyncio: it drives the polls of the synchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, NoReturn

from logstore.aio.polled import Polled
from logstore.aio.shell import Awaited, Shell, close_unwanted
from logstore.arguments import check_callable, shown
from logstore.broker.share.partition import Acknowledgement
from logstore.clients.queues.job import Delay, Job
from logstore.clients.queues.queue import Queue, WorkReport
from logstore.clients.settings import QueueConfig
from logstore.errors import JobLostError, RetriableError, UsageError
from logstore.model import BoundToProcess
from logstore.warning import warn


class AsyncQueue(Polled, BoundToProcess):
    """A worker of a queue. Made by :meth:`.AsyncStore.queue`. Use it in ``async with``, or call
    :meth:`close`.

    The calls are those of :class:`.Queue`, with its arguments and errors. A worker that waits takes no
    thread. What becomes of a job is said here, with the job: ``await queue.accept(job)``. The job's own
    methods say the same, and may block the loop.
    """

    def __init__(self, shell: Shell, queue: Queue) -> None:
        super().__init__(shell, queue, "queue")
        self.sync = queue
        """The synchronous queue. Its calls may block the loop; do not poll with it."""

    @property
    def config(self) -> QueueConfig:
        """The settings."""
        return self.sync.config

    @property
    def group(self) -> str:
        """The group that shares the jobs."""
        return self.sync.group

    # Taking jobs

    async def poll(self, timeout: float | None = None, *, max_jobs: int | None = None) -> list[Job]:
        """Take jobs that no other worker has: :meth:`.Queue.poll`. Waits without a thread. Jobs that a
        cancelled call would have given come with the next.

        Raises:
            LogstoreError: as :meth:`.Queue.poll`.
            UsageError: another task polls.
            ClosedError: it was closed, also while this call waits.
        """
        return await self._poll(partial(self.sync.begin_poll, timeout, max_jobs=max_jobs))

    def __aiter__(self) -> AsyncIterator[Job]:
        """Every job from here on, without end."""
        sync = self.sync
        return _OneByOne(sync, lambda: self._poll(partial(sync.begin_poll, max_jobs=sync.pace)))

    def drain(self) -> AsyncIterator[Job]:
        """Every job that is available, until none is: :meth:`.Queue.drain`."""
        return _OneByOne(self.sync, lambda: self._poll(self.sync.begin_poll_available))

    async def work(
        self, function: Callable[[Job], Awaitable[Any]], *, until_empty: bool = False
    ) -> WorkReport:
        """Await ``function`` with each job, and accept it: :meth:`.Queue.work`. Ends when the task is
        cancelled: the job that it is at goes back to the others then.

        Raises:
            UsageError: ``function`` gives nothing to await.
            LogstoreError: as :meth:`.Queue.work`.
        """
        check_callable(function, "function")
        accepted = released = lost = 0
        jobs = aiter(self.drain() if until_empty else self)
        while True:
            try:
                job = await anext(jobs)
            except StopAsyncIteration:
                break
            except (JobLostError, RetriableError) as error:
                if not self.sync.goes_on_after(error, until_empty=until_empty):
                    raise
                await asyncio.sleep(self.sync.pause_after(error))
                jobs = aiter(self.drain() if until_empty else self)
                continue
            try:
                doing = function(job)
                if isawaitable(doing):
                    await doing
            except Exception as error:
                warn("queue %r: %s: %s: %s", self.group, job, type(error).__name__, error)
                released += 1
                await self._in_turn(partial(self.sync.release_after, job, error))
                continue
            except BaseException as error:
                await self._in_turn(partial(self.sync.release_after, job, error))
                raise
            if not isawaitable(doing):
                raise UsageError(
                    f"function gave {shown(doing)}, and nothing to await; it must be an async function. The "
                    "work() of a synchronous store takes the others, each worker in a thread"
                )
            try:
                if not job.is_over:
                    await self.accept(job)
                accepted += 1
            except (JobLostError, RetriableError) as error:
                lost += 1
                await asyncio.sleep(self.sync.pause_after(error))
        try:
            await self.flush()
        except JobLostError as error:
            warn("queue %r: %s", self.group, error)
        return WorkReport(accepted, released, lost)

    # What becomes of jobs

    async def accept(self, job: Job) -> None:
        """It is done: :meth:`.Job.accept`."""
        await self._in_turn(partial(self.sync.accept, job))

    async def release(self, job: Job, delay: Delay | None = None, *, reason: str = "") -> None:
        """Another try: :meth:`.Job.release`."""
        settle = partial(self.sync.settle, job, Acknowledgement.RELEASE, delay=delay, reason=reason)
        await self._in_turn(settle)

    async def reject(self, job: Job, reason: str = "") -> None:
        """It cannot be done: :meth:`.Job.reject`."""
        await self._in_turn(partial(self.sync.settle, job, Acknowledgement.REJECT, reason=reason))

    async def renew(self, job: Job) -> None:
        """It takes longer: :meth:`.Job.renew`."""
        await self._in_turn(partial(self.sync.renew, job))

    async def flush(self) -> None:
        """Return when what was said of jobs is known to the group: :meth:`.Queue.flush`."""
        await self._in_turn(self.sync.flush)

    # The end

    async def close(self) -> None:
        """Send what was said of jobs, and leave the group: :meth:`.Queue.close`. A poll that waits ends with
        ``ClosedError``. You may call it again. A cancelled call leaves it to go on."""
        await self._end(self.sync.close)


class Joining(Awaited):
    """A worker that is to join its group: ``async with store.queue(...) as queue``, or
    ``queue = await store.queue(...)``."""

    _said_as = "say: async with store.queue(...) as queue, or queue = await store.queue(...)"

    def __init__(self, shell: Shell, join: Callable[[], Queue]) -> None:
        self._shell = shell
        self._join = join
        self._queue: AsyncQueue | None = None

    def __await__(self) -> Generator[Any, None, AsyncQueue]:
        return self._joined().__await__()

    async def _joined(self) -> AsyncQueue:
        job = self._shell.begin(self._join)
        try:
            return AsyncQueue(self._shell, await asyncio.shield(job))
        except asyncio.CancelledError:
            job.add_done_callback(close_unwanted)
            raise

    def __aiter__(self) -> NoReturn:
        """
        Raises:
            UsageError: always: there is no worker yet.
        """
        raise UsageError(f"this worker has not joined its group yet; {self._said_as}")

    async def __aenter__(self) -> AsyncQueue:
        self._queue = await self._joined()
        return self._queue

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._queue is not None
        await self._queue.__aexit__(kind, error, trace)


class _OneByOne(AsyncIterator[Job]):
    """The jobs of a queue. When it is dropped, those that were not given come again."""

    def __init__(self, sync: Queue, take: Callable[[], Awaitable[list[Job]]]) -> None:
        """``take`` gives some, or none if there will be no more."""
        self._sync = sync
        self._take = take
        self._given: Iterator[Job] = iter(())

    async def __anext__(self) -> Job:
        while True:
            for job in self._given:
                return job
            found = await self._take()
            if not found:
                raise StopAsyncIteration
            self._given = self._sync.one_by_one(found)
