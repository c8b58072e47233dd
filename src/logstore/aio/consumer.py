"""A consumer, for asyncio: it drives the polls of the synchronous one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from logstore.aio.polled import Polled
from logstore.aio.shell import Shell
from logstore.clients.consumer import Consumer
from logstore.clients.offsets import PartitionName
from logstore.clients.settings import ConsumerConfig
from logstore.model import BoundToProcess, Isolation, Moment, OffsetAndMetadata, Record, TopicPartition
from logstore.serializing import SerializedRecord


class AsyncConsumer(Polled, BoundToProcess):
    """Reads records. Made by :meth:`.AsyncStore.consumer`. Use it in ``async with``, or call :meth:`close`.

    The calls are those of :class:`.Consumer`, with its arguments and errors. A consumer that waits takes no
    thread. One task polls at a time; others may call everything else meanwhile, and each call takes its turn.
    ``on_assigned`` and the like, deserializers and interceptors run in a thread.
    """

    def __init__(self, shell: Shell, consumer: Consumer) -> None:
        super().__init__(shell, consumer, "consumer")
        self.sync = consumer
        """The synchronous consumer. Its calls may block the loop; do not poll with it."""

    @property
    def config(self) -> ConsumerConfig:
        """The settings."""
        return self.sync.config

    @property
    def group(self) -> str | None:
        """The group that its offsets are committed for."""
        return self.sync.group

    @property
    def isolation(self) -> Isolation:
        """How far it sees."""
        return self.sync.isolation

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that it reads."""
        return self.sync.assignment

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return self.sync.paused

    # Reading

    async def poll(self, timeout: float | None = None, *, max_records: int | None = None) -> list[Any]:
        """The next records, of one partition: :meth:`.Consumer.poll`. Waits without a thread.

        A cancelled call loses no records: those that it would have given come again, and the position does
        not move past them.

        Raises:
            LogstoreError: as :meth:`.Consumer.poll`.
            UsageError: another task polls.
            ClosedError: it was closed, also while this call waits.
        """
        begin = partial(self.sync.begin_poll, timeout, max_records=max_records)
        return await self._poll(begin)

    def __aiter__(self) -> AsyncIterator[Any]:
        """Every record from here on, without end. A :meth:`commit` in the loop covers the records up to the
        present one, and so does the position when the loop is left. A :meth:`poll` meanwhile takes what is
        next, and the loop goes on behind that."""
        return _OneByOne(self)

    # Positions

    async def assign(self, partitions: Iterable[PartitionName]) -> None:
        """Read these partitions from now on: :meth:`.Consumer.assign`."""
        await self._change(partial(self.sync.assign, partitions))

    async def position(self, partition: PartitionName) -> int:
        """The offset of the next record of a partition: :meth:`.Consumer.position`."""
        return await self._in_turn(partial(self.sync.position, partition))

    async def seek(self, partition: PartitionName, offset: int) -> None:
        """Go on at an offset: :meth:`.Consumer.seek`."""
        await self._change(partial(self.sync.seek, partition, offset))

    async def seek_to_beginning(self, *partitions: PartitionName) -> None:
        """Go to the log start of these partitions; of all, if none is named."""
        await self._change(partial(self.sync.seek_to_beginning, *partitions))

    async def seek_to_end(self, *partitions: PartitionName) -> None:
        """Go to the end of these partitions; of all, if none is named."""
        await self._change(partial(self.sync.seek_to_end, *partitions))

    async def seek_to_time(self, timestamp_ms: Moment, *partitions: PartitionName) -> None:
        """Go to the first record at or after a time: :meth:`.Consumer.seek_to_time`."""
        await self._change(partial(self.sync.seek_to_time, timestamp_ms, *partitions))

    async def pause(self, *partitions: PartitionName) -> None:
        """Return no records of these partitions for now; of all, if none is named."""
        await self._change(partial(self.sync.pause, *partitions))

    async def resume(self, *partitions: PartitionName) -> None:
        """Return records of these partitions again; of all, if none is named."""
        await self._change(partial(self.sync.resume, *partitions))

    async def beginning_offsets(self) -> dict[TopicPartition, int]:
        """The log start offset of each of its partitions."""
        return await self._in_turn(self.sync.beginning_offsets)

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """The end of each of its partitions, as the isolation shows it."""
        return await self._in_turn(self.sync.end_offsets)

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind its end."""
        return await self._in_turn(self.sync.lag)

    # Commits

    async def commit(
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | Record | SerializedRecord | None = None
    ) -> None:
        """Commit where the group is, atomically over partitions: :meth:`.Consumer.commit`. A cancelled call
        has committed all or nothing."""
        await self._in_turn(partial(self.sync.commit, offsets))

    async def committed(
        self, partitions: Iterable[PartitionName] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed: :meth:`.Consumer.committed`."""
        return await self._in_turn(partial(self.sync.committed, partitions))

    # The end

    async def close(self) -> None:
        """Commit, if that is automatic, leave the group, and stop: :meth:`.Consumer.close`. A poll that waits
        ends with ``ClosedError``. You may call it again. A cancelled call leaves it to go on."""
        await self._end(self.sync.close)


class _OneByOne(AsyncIterator[Any]):
    """The records of a consumer. When it is dropped, those that were not given come again."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._given: Iterator[Any] = iter(())

    async def __anext__(self) -> Any:
        while True:
            for record in self._given:
                return record
            self._given = self._consumer.sync.one_by_one(await self._consumer.poll())
