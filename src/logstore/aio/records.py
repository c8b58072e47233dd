"""Records as asynchronous iterators: read in a thread a chunk at a time, and given out in the loop.

A cancelled ``anext()`` loses nothing: what a thread reads meanwhile is given by the next call. So
``asyncio.wait_for(anext(records), 1)`` may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, Self

from logstore.aio.growth import Growth
from logstore.aio.shell import Shell, tell
from logstore.errors import UsageError
from logstore.model import BoundToProcess, Isolation, Record
from logstore.partition.log import Log
from logstore.partition.reading.times import OffsetOrTime, TimeSpan, span_of

_CHUNK_RECORDS: Final = 1_000
_CHUNK_BYTES: Final = 256 * 1024


class Chunk(NamedTuple):
    """What a job has read."""

    records: list[Record]
    error: Exception | None
    """What ended the reading behind them."""
    is_last: bool


def take_chunk(records: Iterator[Record]) -> Chunk:
    """The next records, of 256 KiB or a single larger one; 1,000 at most."""
    found: list[Record] = []
    size_bytes = 0
    try:
        for record in records:
            found.append(record)
            size_bytes += len(record.value or b"") + len(record.key or b"")
            if size_bytes >= _CHUNK_BYTES or len(found) == _CHUNK_RECORDS:
                return Chunk(found, None, False)
    except Exception as error:
        return Chunk(found, error, True)
    return Chunk(found, None, True)


class AsyncRecords(BoundToProcess, AsyncIterator[Record]):
    """Records, for ``async for``. Made by :meth:`.AsyncLog.read`, :meth:`.AsyncLog.follow` and
    :meth:`.AsyncTopic.read`. For one task at a time.

    A cancelled ``anext()`` loses no record: the next call gives it. An error that reading raises ends the
    iterator. Memory: that of the synchronous iterator, and 256 KiB or one record that is larger.
    """

    def __init__(self, shell: Shell, take: Callable[[], Chunk]) -> None:
        """``take`` is called in a thread."""
        self._shell = shell
        self._take = take
        self._given: Iterator[Record] = iter(())
        self._error: Exception | None = None
        self._is_over = False
        self._is_closed = False
        self._job: asyncio.Future[Chunk] | None = None
        self._is_asked = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        for record in self._given:
            return record
        if self._is_asked:
            raise UsageError("another task waits for a record of this iterator; give each task its own")
        self._is_asked = True
        try:
            while not self._is_over:
                if not await self._fill():
                    self._is_over = True
                if self._is_closed:
                    self._given, self._error = iter(()), None
                for record in self._given:
                    return record
        finally:
            self._is_asked = False
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    async def _fill(self) -> bool:
        """Get the next chunk. Returns whether another may follow."""
        chunk = await self._next_chunk()
        return not chunk.is_last

    async def _next_chunk(self) -> Chunk:
        if self._job is None:
            self._job = self._shell.begin(self._take)
        chunk = await asyncio.shield(self._job)  # a job that nobody waits for any more keeps its result
        self._job = None
        self._given, self._error = iter(chunk.records), chunk.error
        return chunk

    async def aclose(self) -> None:
        """End the iterator; ``anext()`` gives no more records, also one that waits."""
        self._is_over = self._is_closed = True
        self._given, self._error = iter(()), None


class Followed(AsyncRecords):
    """Records from a position on, without an end."""

    def __init__(
        self,
        shell: Shell,
        log: Log,
        growth: Growth,
        start: OffsetOrTime | None,
        timeout: float | None,
        isolation: Isolation,
    ) -> None:
        steps = _Steps(log, start, isolation)
        super().__init__(shell, steps.take)
        self._growth = growth
        self._timeout = timeout
        self._waited_since: float | None = None
        """Since when the caller waits for a record; None while it is busy with those that it has."""
        self._news: asyncio.Future[None] | None = None

    async def _fill(self) -> bool:
        self._news = news = self._growth.join()
        if self._waited_since is None:
            self._waited_since = self._shell.loop.time()
        try:
            chunk = await self._next_chunk()
            if chunk.records or chunk.error is not None:
                self._waited_since = None
                return chunk.error is None
            if self._timeout is None:
                await news
                return True
            left_seconds = self._waited_since + self._timeout - self._shell.loop.time()
            return bool((await asyncio.wait([news], timeout=max(left_seconds, 0)))[0])
        finally:
            self._news = None
            self._growth.leave(news)

    async def aclose(self) -> None:
        await super().aclose()
        if self._news is not None:
            self._shell.call_soon(partial(tell, self._news))


class _Steps:
    """Where a follower is. Used by one thread at a time."""

    def __init__(self, log: Log, start: OffsetOrTime | None, isolation: Isolation) -> None:
        self._log = log
        self._start = start
        self._isolation = isolation
        self._span: TimeSpan | None = span_of(start, None)
        self._position: int | None = None
        self._truncation_count = 0
        self._found: Iterator[Record] = iter(())

    def take(self) -> Chunk:
        """The next records that are there; no records, if there are none yet."""
        try:
            if self._position is None:
                self._truncation_count = self._log.truncation_count
                self._position = self._log.position_at(
                    "latest" if self._start is None else self._start, self._isolation
                )
            while True:
                chunk = take_chunk(self._found)
                if chunk.error is not None or chunk.records:
                    kept = chunk.records
                    if self._span is not None:
                        kept = [record for some in self._span.filter([kept]) for record in some]
                    if kept or chunk.error is not None:
                        return chunk._replace(records=kept)
                    continue
                before = self._position
                self._found, self._position, self._truncation_count = self._log.advance_from(
                    before, self._truncation_count, isolation=self._isolation
                )
                if self._position == before:
                    return chunk
        except Exception as error:
            return Chunk([], error, True)
