"""A topic, for asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.aio.log import AsyncLog, chunks_of
from logstore.aio.records import AsyncRecords
from logstore.aio.shell import Shell
from logstore.model import BoundToProcess, Bytes, Isolation, Moment
from logstore.partition.encoding.rows import NewRecords
from logstore.topic import Topic

if TYPE_CHECKING:
    from logstore.logdir.joining import Order, Start, Stop


class AsyncTopic(BoundToProcess):
    """A topic. Get it from a store: ``store["orders"]``. ``topic[0]`` is the :class:`AsyncLog` of a
    partition, ``len(topic)`` the number of partitions.

    The calls are those of :class:`.Topic`, with its arguments and errors.
    """

    def __init__(self, shell: Shell, topic: Topic, *, is_read_only: bool) -> None:
        self.sync = topic
        """The synchronous topic. Its calls may block the loop."""
        self._shell = shell
        self._is_read_only = is_read_only
        self._logs: dict[int, AsyncLog] = {}

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.sync.name

    def __len__(self) -> int:
        return len(self.sync)

    def __getitem__(self, number: int) -> AsyncLog:
        log = self.sync[number]
        number = log.partition.partition
        known = self._logs.get(number)
        if known is None or known.sync is not log:
            known = self._logs[number] = AsyncLog(self._shell, log, is_read_only=self._is_read_only)
        return known

    def __iter__(self) -> Iterator[AsyncLog]:
        return (self[number] for number in self.sync.held_partitions)

    async def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        partition: int | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
        flush: bool = False,
    ) -> tuple[int, int]:
        """Append one record to the partition of its key, and return (partition, offset):
        :meth:`.Topic.append`. Cancelling it is as with :meth:`AsyncLog.append`, and so is the cost.

        Raises:
            UnknownTopicError: there is no such partition, or the directory does not hold it.
            LogstoreError: as :meth:`AsyncLog.append`.
        """
        self._shell.check_usable()
        if partition is None and key is not None:
            partition = self.sync.partition_for(key)
        if partition is not None:
            log = self[partition]
            offset = await log.append(value, key=key, headers=headers, timestamp_ms=timestamp_ms, flush=flush)
            return log.partition.partition, offset
        append = partial(self.sync.append, value, headers=headers, timestamp_ms=timestamp_ms)
        number, offset = await self._shell.run(append)
        if flush:
            await self[number].flush()
        return number, offset

    async def extend(self, records: NewRecords, *, flush: bool = False) -> dict[int, range]:
        """Append many records, each to the partition of its key: :meth:`.Topic.extend`. A cancelled call has
        appended all or none, as far as the disk does not fail."""
        return await self._shell.run(self.sync.extend, records, flush=flush)

    async def flush(self) -> None:
        """Return when everything appended before the call is durable: :meth:`.Topic.flush`."""
        await self._shell.run(self.sync.flush)

    def read(
        self,
        start: Start = "earliest",
        stop: Stop | None = None,
        *,
        order: Order = "timestamp",
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        on_demand: bool = False,
    ) -> AsyncRecords:
        """The records of all partitions, for ``async for``: :meth:`.Topic.read`, which says what the
        arguments mean and what is raised, while iterating. To follow a topic, use a consumer."""
        self._shell.check_usable()
        begin = partial(self.sync.read, start, stop, order=order, isolation=isolation, on_demand=on_demand)
        return AsyncRecords(self._shell, chunks_of(begin))

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync).removeprefix('<')}"
