"""A producer, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from logstore.aio.shell import Shell, tell
from logstore.clients.accumulator import handed_over_at
from logstore.clients.outgoing import Delivered, Sent
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.errors import ClosedError, LogstoreError, RetriableError
from logstore.model import BoundToProcess, Moment
from logstore.partition.arguments import check_timeout

T = TypeVar("T")


class AsyncSent(BoundToProcess):
    """A record that was handed to a producer: ``await`` it to learn where it is. It may be awaited by many
    tasks, and again after one of them was cancelled.

    Raises:
        LogstoreError: from ``await``: the record was not delivered.
    """

    def __init__(self, shell: Shell, sent: Sent) -> None:
        self._shell = shell
        self._sent = sent

    def __await__(self) -> Generator[Any, None, Delivered]:
        return self._delivered().__await__()

    async def _delivered(self) -> Delivered:
        self._shell.check_loop()
        if not self._sent.is_done:
            told = self._shell.loop.create_future()
            self._sent.add_callback(lambda *_: self._shell.call_soon(partial(tell, told)))
            await told
        return self._sent.result(0)

    @property
    def is_done(self) -> bool:
        """Whether the record is delivered, or has failed."""
        return self._sent.is_done

    def __repr__(self) -> str:
        return f"<Async{repr(self._sent).removeprefix('<')}"


def _no_room_after(timeout: float | None) -> RetriableError:
    return RetriableError(f"records still wait for room in buffer_memory after {timeout:g} s")


def _send(send: Callable[[], Sent], asked_at: float) -> Sent:
    """In the thread, behind the sends before it."""
    before = handed_over_at.set(asked_at)
    try:
        return send()
    finally:
        handed_over_at.reset(before)


class AsyncProducer(BoundToProcess):
    """Sends records. Made by :meth:`.AsyncStore.producer`. Use it in ``async with``, or call :meth:`close`.

    The calls are those of :class:`.Producer`, with its arguments and errors. Records that one task sends stay
    in their order, and so do those of several tasks, in the order of the calls. It has a thread for its
    sends, beside that of :class:`.Producer`.
    """

    def __init__(self, shell: Shell, producer: Producer) -> None:
        self.sync = producer
        """The synchronous producer. Its calls may block the loop."""
        self._shell = shell
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logstore-aio-producer")
        self._begun: deque[Future[Any]] = deque()
        """What the thread has before it, in its order; the first is not over."""
        self._closing: asyncio.Task[None] | None = None

    @property
    def config(self) -> ProducerConfig:
        """The settings."""
        return self.sync.config

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
    ) -> AsyncSent:
        """Send one record: :meth:`.Producer.send`. Waits only for room (``buffer_memory``), not for the
        delivery: ``await`` the result for that. Serializers, interceptors and partitioners run in a thread.

        A cancelled call has sent the record or not; cancelling never sends half of it, or sends it twice.
        Cost: a thread's turn, about 50 µs.

        Raises:
            LogstoreError: as :meth:`.Producer.send`: the record is refused, or there was no room for
                ``max_block_ms``.
            UsageError, ClosedError: another event loop; the store or the producer is closed.
        """
        self._shell.check_usable()
        send = partial(
            self.sync.send,
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
        )
        if self._closing is not None:
            raise ClosedError("the producer is closed")
        job = self._begin(partial(_send, send, time.monotonic()))
        return AsyncSent(self._shell, await asyncio.wrap_future(job))

    def _begin(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in the thread, behind what was begun before. Cancelling the future keeps it from
        being called, until it is."""
        job = self._thread.submit(copy_context().run, function)
        self._begun.append(job)
        self._has_more_begun()
        return job

    def _has_more_begun(self) -> bool:
        """Whether the thread has anything to do. The future of the loop would not say: it may be cancelled
        while the function runs, and hears of the end late."""
        while self._begun and self._begun[0].done():
            self._begun.popleft()
        return bool(self._begun)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when every record sent before the call is delivered or has failed: :meth:`.Producer.flush`.
        A cancelled call leaves them on their way.

        Raises:
            LogstoreError: as :meth:`.Producer.flush`.
        """
        self._shell.check_usable()
        await asyncio.shield(self._shell.loop.create_task(self._flush(timeout)))

    async def _flush(self, timeout: float | None) -> None:
        if self._closing is not None:
            await self._shell.loop.run_in_executor(None, self.sync.flush, timeout)
        elif not await self._behind_the_sends(self.sync.flush, timeout):
            raise _no_room_after(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Deliver what was sent, and take no more: :meth:`.Producer.close`. You may call it again. A
        cancelled call leaves it to go on.

        Raises:
            LogstoreError: as :meth:`.Producer.close`. Sends that still wait for room then raise
                ``ClosedError``.
        """
        self._shell.check_loop()
        if self._closing is None:
            self._closing = self._shell.loop.create_task(self._close(timeout))
        await asyncio.shield(self._closing)

    async def _close(self, timeout: float | None) -> None:
        try:
            if not await self._behind_the_sends(self.sync.close, timeout):
                with contextlib.suppress(RetriableError):
                    await self._shell.loop.run_in_executor(None, self.sync.close, 0)
                raise _no_room_after(timeout)
        finally:
            self._thread.shutdown(wait=False)

    async def _behind_the_sends(self, finish: Callable[[float | None], None], timeout: float | None) -> bool:
        """Call ``finish`` with the time that is left, when all sends before it are over. Returns whether it
        was called: not, if they wait for room for all of the time."""
        seconds = None if timeout is None else check_timeout(timeout)
        asked_at, is_begun = time.monotonic(), self._shell.loop.create_future()

        def begin() -> None:
            self._shell.call_soon(partial(tell, is_begun))
            finish(None if seconds is None else max(asked_at + seconds - time.monotonic(), 0))

        is_behind_others = self._has_more_begun()
        job = self._begin(begin)
        ended = asyncio.wrap_future(job)
        if is_behind_others:  # else it begins as soon as the thread has the processor, however short the time
            await asyncio.wait([ended, is_begun], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not is_begun.done() and job.cancel():
                return False
        await ended
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except LogstoreError as failure:
            if error is None:
                raise
            error.add_note(f"and the producer: {failure}")

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync).removeprefix('<')}"
