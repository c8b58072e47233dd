"""What a consumer and a queue have in common here: one task polls, without a thread, and calls take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from logstore.aio.shell import Shell
from logstore.clients.polling import Polling
from logstore.errors import UsageError

T = TypeVar("T")


class _Client(Protocol):
    """What is driven here."""

    def give_back(self, given: list[Any], /) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Polled:
    """Drives the polls of a synchronous client, and makes its other calls in threads, one at a time."""

    def __init__(self, shell: Shell, client: _Client, what: str) -> None:
        """``what`` names the client in errors."""
        self._shell = shell
        self._client = client
        self._what = what
        self._turn = asyncio.Lock()
        self._woken = asyncio.Event()
        self._is_polled = False
        self._closing: asyncio.Task[None] | None = None

    async def _poll(self, begin: Callable[[], Polling[list[Any]]]) -> list[Any]:
        """What a poll gives. What it would have given a caller who was cancelled goes back to the client.

        Raises:
            UsageError: another task polls.
            LogstoreError: what the poll raises.
        """
        if self._is_polled:
            raise UsageError(f"another task polls; make a {self._what} for each task, or one task that polls")
        self._is_polled = True

        def unwanted(stepped: tuple[list[Any] | None, int]) -> None:
            if stepped[0]:
                self._client.give_back(stepped[0])

        try:
            polling = await self._in_turn(begin)
            while True:
                self._woken.clear()
                found, wait_ms = await self._in_turn(partial(self._step, polling), unwanted)
                if found is not None:
                    return found
                await self._wait(wait_ms)
        finally:
            self._is_polled = False

    def _step(self, polling: Polling[list[Any]]) -> tuple[list[Any] | None, int]:
        """In a thread: the records, or None and in how many milliseconds to call again at the latest."""
        found = polling.poll()
        if found is None:
            polling.on_wake(self._note)
        return found, polling.wait_ms()

    def _note(self) -> None:
        """It is worth looking again: called in any thread, maybe under a log's lock."""
        self._shell.call_soon(self._woken.set)

    async def _wait(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _change(self, call: Callable[[], object]) -> None:
        """A call after which a waiting poll looks again: what it waits for may not be what it needs."""
        try:
            await self._in_turn(call, lambda _: self._woken.set())
        finally:
            self._woken.set()  # if it was cancelled, once more when the call is over

    async def _in_turn(self, call: Callable[[], T], when_cancelled: Callable[[T], object] | None = None) -> T:
        """The result of a call in a thread; the calls take turns. A call that has begun keeps its turn until
        it is over, also if the task is cancelled; its result then goes to ``when_cancelled``."""
        self._shell.check_loop()
        await self._turn.acquire()
        try:
            job = self._shell.begin(call)
        except BaseException:
            self._turn.release()
            raise
        is_cancelled = False

        def end(job: asyncio.Future[T]) -> None:
            try:
                if is_cancelled and job.exception() is None and when_cancelled is not None:
                    when_cancelled(job.result())
            finally:
                self._turn.release()

        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            if job.done():
                end(job)
            else:
                job.add_done_callback(end)

    async def _end(self, close: Callable[[], object]) -> None:
        self._shell.check_loop()
        if self._closing is None:
            if self._shell.is_closed:
                return
            self._closing = self._shell.loop.create_task(self._change(close))
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(partial(self._client.__exit__, kind, error, trace))

    def __repr__(self) -> str:
        return f"<Async{repr(self._client).removeprefix('<')}"
