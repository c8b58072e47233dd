"""The threads of one store, and the event loop that it belongs to.

Everything that may take a lock or touch the disk is a job for a thread: :meth:`Shell.begin`. Threads tell the
loop of what they learn with :meth:`Shell.call_soon`. Knows nothing of logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Final, NoReturn, ParamSpec, TypeVar

from logstore.errors import ClosedError, UsageError

P = ParamSpec("P")
T = TypeVar("T")

MOST_THREADS: Final = 8
"""Of one store. They work; they do not wait for records. More would not make a disk faster."""

MOST_GUESTS: Final = 32
"""Of one store, besides: for functions of the program, which may wait for anything, also for what the others
do."""


class Shell:
    """Of one store."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        """The loop in which the store was opened."""
        self.is_closed = False
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="logstore-aio")
        self._guests = ThreadPoolExecutor(MOST_GUESTS, thread_name_prefix="logstore-aio-run")

    def check_usable(self) -> None:
        """
        Raises:
            UsageError: the caller runs in another event loop.
            ClosedError: the store is closed.
        """
        self.check_loop()
        if self.is_closed:
            raise ClosedError("the store is closed")

    def check_loop(self) -> None:
        """
        Raises:
            UsageError: the caller runs in another event loop, or in none.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self.loop:
            raise UsageError(
                "the store was opened in another event loop; use it there "
                "(asyncio.run_coroutine_threadsafe), or open it once for the whole program"
            )

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Begin a job in a thread. Cancelling the future keeps the job from beginning; one that has begun
        goes on to its end.

        Raises:
            UsageError, ClosedError: see :meth:`check_usable`.
        """
        self.check_usable()
        return self.begin_in(self._threads, partial(function, *args, **kwargs))

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a job. A cancelled call was carried out whole or not at all."""
        return await self.begin(function, *args, **kwargs)

    async def run_guest(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function of the program, in a thread that no job waits for.

        Raises:
            UsageError: it is a coroutine function; or as :meth:`check_usable`.
            ClosedError: see :meth:`check_usable`.
        """
        self.check_usable()
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"run() calls functions in a thread, and {function.__name__}() is to be awaited")
        return await self.begin_in(self._guests, partial(function, *args, **kwargs))

    def begin_in(self, threads: Executor, function: Callable[[], T]) -> asyncio.Future[T]:
        """Begin a function in one of these threads, with the caller's context: what the program calls there,
        such as an interceptor, finds the context variables of the task."""
        return self.loop.run_in_executor(threads, partial(copy_context().run, function))

    def begin_last(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Begin the last job; all others are refused from now on. The threads end with it, also if the loop
        has ended before."""
        job = self.begin(function)
        self.end()
        return job

    def end(self) -> None:
        """Refuse further jobs. The threads end with those that were begun."""
        self.is_closed = True
        self._threads.shutdown(wait=False)
        self._guests.shutdown(wait=False)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, from any thread. A loop that has ended needs no news."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function)


class Awaited:
    """What a call gives is there when it is awaited. Before, it has none of the calls of what is to come."""

    _said_as: ClassVar[str]
    """How to write it, in both ways."""

    def __getattr__(self, name: str) -> NoReturn:
        """
        Raises:
            AttributeError: always: nothing is there yet.
        """
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}; {self._said_as}")


def tell(waiting: asyncio.Future[None]) -> None:
    """What somebody waits for has come."""
    if not waiting.done():
        waiting.set_result(None)


def close_unwanted(job: asyncio.Future[Any]) -> None:
    """Close what a job has made just before its caller was cancelled: a callback of the job."""
    if not job.cancelled() and job.exception() is None:
        threading.Thread(target=job.result().close, name="logstore-aio-close").start()
