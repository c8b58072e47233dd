"""One partition, for asyncio."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from logstore.aio.growth import Growth
from logstore.aio.records import AsyncRecords, Chunk, Followed, take_chunk
from logstore.aio.shell import Shell
from logstore.arguments import check_flag
from logstore.errors import RetriableError
from logstore.model import (
    BoundToProcess,
    Bytes,
    Isolation,
    Moment,
    ProducerIdentity,
    Record,
    TopicPartition,
)
from logstore.partition.arguments import check_isolation, check_timeout
from logstore.partition.encoding.rows import NewRecords
from logstore.partition.log import Log
from logstore.partition.reading.times import OffsetOrTime


class AsyncLog(BoundToProcess):
    """One partition. Get it from a topic: ``topic[0]``.

    The calls are those of :class:`.Log`, with its arguments and errors. For those that are not here,
    ``await store.run(log.sync.compact, now=True)``.
    """

    def __init__(self, shell: Shell, log: Log, *, is_read_only: bool) -> None:
        self.sync = log
        """The synchronous log. Its calls may block the loop."""
        self._shell = shell
        self._is_read_only = is_read_only
        self._growth = Growth(shell, log, is_told=not is_read_only)
        self._flushing: asyncio.Task[None] | None = None
        self._next_flush: asyncio.Task[None] | None = None

    @property
    def partition(self) -> TopicPartition:
        """The topic's name and the partition's number."""
        return self.sync.partition

    # Appending

    async def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
        flush: bool = False,
    ) -> int:
        """Append one record and return its offset: :meth:`.Log.append`. With ``flush``, when it is durable;
        one fsync serves all tasks that wait.

        A cancelled call has appended the record or not; one that is cancelled while it waits for the flush
        has. Cost: 1 µs while records gather, and a thread's turn (about 50 µs) for the first and the last
        record of each batch.

        Raises:
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError, StorageError: as
                :meth:`.Log.append`.
            UsageError, ClosedError: another event loop; the store is closed.
        """
        self._shell.check_usable()
        flush = check_flag(flush, "flush")
        offset = self.sync.append_if_ready(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        if offset is None:
            append = partial(self.sync.append, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
            offset = await self._shell.run(append)
        if flush:
            await self.flush()
        return offset

    async def extend(
        self, records: NewRecords, *, flush: bool = False, producer: ProducerIdentity | None = None
    ) -> range:
        """Append many records and return their offsets: :meth:`.Log.extend`. ``records`` is read in a
        thread.

        A cancelled call has appended all of them or none.

        Raises:
            LogstoreError: as :meth:`.Log.extend`.
        """
        flush = check_flag(flush, "flush")
        offsets = await self._shell.run(partial(self.sync.extend, records, producer=producer))
        if flush:
            await self.flush()
        return offsets

    async def flush(self, *, timeout: float | None = None) -> None:
        """Return when everything appended before the call is durable. One fsync serves all waiting tasks, and
        takes one thread.

        A cancelled call leaves the flush to go on, and so does a timeout.

        Args:
            timeout: how many seconds to wait at most.

        Raises:
            StorageError, RetriableError: as :meth:`.Log.flush`.
        """
        self._shell.check_usable()
        seconds = None if timeout is None else check_timeout(timeout)
        if self._next_flush is None:
            self._next_flush = self._shell.loop.create_task(self._flush_after(self._flushing))
            self._next_flush.add_done_callback(_note_error)
        done, _ = await asyncio.wait([self._next_flush], timeout=seconds)
        if not done:
            raise RetriableError(
                f"{self.partition} is not durable after {seconds:g} s; the flush goes on in the background"
            )
        done.pop().result()

    async def _flush_after(self, other: asyncio.Task[None] | None) -> None:
        """Flush when the flush under way is over. Until then, more may join this one."""
        if other is not None:
            await asyncio.wait([other])
        self._flushing, self._next_flush = self._next_flush, None
        await self._shell.run(self.sync.flush)

    # Reading

    def read(
        self,
        start: OffsetOrTime | None = None,
        stop: OffsetOrTime | None = None,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        on_demand: bool = False,
    ) -> AsyncRecords:
        """The records from ``start`` up to ``stop``, for ``async for``: :meth:`.Log.read`. The end is fixed
        when the first record is asked for.

        Raises:
            UsageError: ``isolation`` or ``on_demand`` is wrong.
            OffsetOutOfRangeError, UsageError, CorruptionError: while iterating, as :meth:`.Log.read`.
        """
        self._shell.check_usable()
        check_isolation(isolation)
        on_demand = check_flag(on_demand, "on_demand")
        begin = partial(self.sync.read, start, stop, isolation=isolation, on_demand=on_demand)
        return AsyncRecords(self._shell, chunks_of(begin))

    def follow(
        self,
        start: OffsetOrTime | None = None,
        *,
        timeout: float | None = None,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> AsyncRecords:
        """The records from ``start`` on, for ``async for``, and more at the end: :meth:`.Log.follow`. A
        follower that waits takes no thread.

        Without ``start`` it begins with what is written after the call; single appends that still gather
        (``linger_ms``) are written after it. In a read-only store it begins at the end when the first record
        is asked for, and sees new ones within about 25 ms.

        Args:
            timeout: how many seconds without a record end it; by default it never ends.

        Raises:
            UsageError: an argument is wrong.
            OffsetOutOfRangeError, CorruptionError, ClosedError, UnknownTopicError: while iterating, as
                :meth:`.Log.follow`.
        """
        self._shell.check_usable()
        check_isolation(isolation)
        seconds = None if timeout is None else check_timeout(timeout)
        if start is None and not self._is_read_only:
            start = self.sync.written_offsets(isolation).stop
        return Followed(self._shell, self.sync, self._growth, start, seconds, isolation)

    @property
    def waiting_count(self) -> int:
        """How many followers wait for a record now."""
        return len(self._growth)

    async def record_at(
        self, offset: int, *, isolation: Isolation = Isolation.HIGH_WATERMARK
    ) -> Record | None:
        """The record at an offset: :meth:`.Log.record_at`."""
        return await self._shell.run(self.sync.record_at, offset, isolation=isolation)

    async def offset_at(self, timestamp_ms: Moment) -> int | None:
        """The offset of the first record at or after a time: :meth:`.Log.offset_at`."""
        return await self._shell.run(self.sync.offset_at, timestamp_ms)

    async def readable_offsets(self, isolation: Isolation = Isolation.HIGH_WATERMARK) -> range:
        """The offsets from the log start to what the isolation shows: :meth:`.Log.readable_offsets`. With
        :attr:`.Isolation.DURABLE`, up to where a power cut takes nothing."""
        return await self._shell.run(self.sync.readable_offsets, isolation)

    # Removing

    async def delete_before(self, offset: int) -> int:
        """Delete the records below ``offset``: :meth:`.Log.delete_before`. Returns the log start offset."""
        return await self._shell.run(self.sync.delete_before, offset)

    async def truncate_to(self, offset: int) -> bool:
        """Drop the records from ``offset`` on: :meth:`.Log.truncate_to`."""
        return await self._shell.run(self.sync.truncate_to, offset)

    def __repr__(self) -> str:
        return f"<AsyncLog {self.partition} in {self.sync.directory!r}>"


def chunks_of(begin: Any) -> Any:
    """A function that takes chunk after chunk of the iterator that ``begin()`` returns."""
    begun: list[Any] = []

    def take() -> Chunk:
        try:
            if not begun:
                begun.append(begin())
        except Exception as error:
            return Chunk([], error, True)
        return take_chunk(begun[0])

    return take


def _note_error(flush: asyncio.Task[None]) -> None:
    """Those who wait are told; if nobody waits any more, nobody needs to be."""
    if not flush.cancelled():
        flush.exception()
