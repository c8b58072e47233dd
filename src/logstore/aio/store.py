"""A store, for asyncio: what :func:`logstore.aio.open` returns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

from logstore import lock
from logstore.aio.consumer import AsyncConsumer
from logstore.aio.groups import AsyncGroups
from logstore.aio.producer import AsyncProducer
from logstore.aio.queue import Joining
from logstore.aio.shell import Awaited, Shell, close_unwanted
from logstore.aio.topic import AsyncTopic
from logstore.clients.assignors import Assignor
from logstore.clients.consumer import OnRebalance
from logstore.clients.interceptors import ConsumerInterceptor, ProducerInterceptor
from logstore.clients.offsets import PartitionName
from logstore.clients.producer import Partitioner
from logstore.clients.settings import ConsumerConfig, ProducerConfig, QueueConfig
from logstore.clock import Clock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import UsageError
from logstore.files import Files, PathLike
from logstore.logdir.open_logs import OnProgress
from logstore.model import BoundToProcess, Isolation
from logstore.serializing import DecoderChoice, EncoderChoice
from logstore.store import Store
from logstore.store import open_store as open_synchronous
from logstore.topic import Topic

P = ParamSpec("P")
T = TypeVar("T")


def open_store(
    path: PathLike,
    *,
    create: bool = True,
    read_only: bool = False,
    config: StoreConfig | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    on_progress: OnProgress | None = None,
    timeout: float | None = None,
) -> Opening:
    """Open a directory of topics: ``logstore.open``, with its arguments and errors. ``await`` the result,
    or use it in ``async with``, which also closes the store.

    The store belongs to the event loop in which it was opened. ``on_progress`` is called in a thread. If it
    is cancelled, it does not wait for another writer any longer, and the store is closed again as soon as it
    is open. Cost: that of ``logstore.open``; up to
    8 threads, which start when they are needed.

    Raises:
        LogstoreError: as ``logstore.open``, when it is awaited.
    """
    return Opening(
        partial(
            open_synchronous,
            path,
            create=create,
            read_only=read_only,
            config=config,
            files=files,
            clock=clock,
            on_progress=on_progress,
            timeout=timeout,
        )
    )


class Opening(Awaited):
    """A store that is to be opened: ``store = await aio.open(path)``, or ``async with aio.open(path) as
    store``."""

    _said_as = "say: async with aio.open(...) as store, or store = await aio.open(...)"

    def __init__(self, begin: Callable[[], Store]) -> None:
        self._begin = begin
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open().__await__()

    async def _open(self) -> AsyncStore:
        shell = Shell()
        is_unwanted = threading.Event()
        job = shell.begin(_open_if_wanted, self._begin, is_unwanted)
        try:
            return AsyncStore(shell, await asyncio.shield(job))
        except BaseException:
            is_unwanted.set()
            job.add_done_callback(close_unwanted)
            shell.end()
            raise

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        assert self._store is not None
        await self._store.close()


def _open_if_wanted(begin: Callable[[], Store], is_unwanted: threading.Event) -> Store:
    """In a thread. A caller who was cancelled meanwhile, maybe with the whole loop, gets no store, and the
    thread waits for no lock: it would keep the process from ending."""
    asking = lock.is_unwanted.set(is_unwanted.is_set)
    try:
        store = begin()
    finally:
        lock.is_unwanted.reset(asking)
    if is_unwanted.is_set():
        store.close()
    return store


class AsyncStore(BoundToProcess):
    """An open directory of topics. ``store["orders"]`` is a topic; iterating gives their names.

    Use it in ``async with``, or call :meth:`close`, in the event loop in which it was opened. The calls are
    those of :class:`.Store`, with its arguments and errors; :meth:`run` makes all others.
    """

    def __init__(self, shell: Shell, store: Store) -> None:
        self.sync = store
        """The synchronous store. Its calls may block the loop."""
        self._shell = shell
        self._topics: dict[str, AsyncTopic] = {}
        self._closing: asyncio.Future[None] | None = None

    @property
    def path(self) -> str:
        """The absolute path."""
        return self.sync.path

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened with ``read_only``."""
        return self.sync.is_read_only

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function that may take time, called in a thread: for what has no call here. ::

            report = await store.run(store.sync.verify)

        Cancelling it ends the waiting alone, once the function has begun. Up to 32 functions run at a time,
        and hold up nothing else of the store. One that waits for records (``store.sync.transform(...).run``)
        keeps its thread until it ends, and ends with ``ClosedError`` when the store is closed.

        Raises:
            UsageError: another event loop; or it is a coroutine function.
            ClosedError: the store is closed.
            Exception: what the function raises.
        """
        return await self._shell.run_guest(function, *args, **kwargs)

    # Topics

    def __getitem__(self, name: str) -> AsyncTopic:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """
        return self._wrap(self.sync[name])

    def __contains__(self, name: object) -> bool:
        return name in self.sync

    def __iter__(self) -> Iterator[str]:
        return iter(self.sync)

    def __len__(self) -> int:
        return len(self.sync)

    def _wrap(self, topic: Topic) -> AsyncTopic:
        known = self._topics.get(topic.name)
        if known is None or known.sync is not topic:
            known = AsyncTopic(self._shell, topic, is_read_only=self.is_read_only)
            self._topics[topic.name] = known
        return known

    async def topic(self, name: str) -> AsyncTopic:
        """The topic, as ``store[name]``. In a read-only store that looks at the disk; this does so in a
        thread.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return self._wrap(await self._shell.run(self.sync.__getitem__, name))

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: TopicConfig | None = None,
        held: Iterable[int] | None = None,
    ) -> AsyncTopic:
        """Make a topic, durably: :meth:`.Store.create_topic`. A cancelled call has made it or not."""
        make = partial(self.sync.create_topic, name, partitions=partitions, config=config, held=held)
        return self._wrap(await self._shell.run(make))

    async def create_topics(
        self, topics: Mapping[str, int], *, config: TopicConfig | None = None
    ) -> dict[str, AsyncTopic]:
        """Make many topics, durably: :meth:`.Store.create_topics`. A cancelled call may have made some."""
        made = await self._shell.run(partial(self.sync.create_topics, topics, config=config))
        return {name: self._wrap(topic) for name, topic in made.items()}

    async def require_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: TopicConfig | None = None,
        held: Iterable[int] | None = None,
    ) -> AsyncTopic:
        """Return the topic; create it first, if it does not exist: :meth:`.Store.require_topic`."""
        require = partial(self.sync.require_topic, name, partitions=partitions, config=config, held=held)
        return self._wrap(await self._shell.run(require))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records: :meth:`.Store.delete_topic`."""
        await self._shell.run(self.sync.delete_topic, name)
        self._topics.pop(name, None)

    # Producers and consumers

    def producer(
        self,
        config: ProducerConfig | None = None,
        *,
        partitioner: Partitioner | None = None,
        key_serializer: EncoderChoice | None = None,
        value_serializer: EncoderChoice | None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Any,
    ) -> AsyncProducer:
        """A producer: :meth:`.Store.producer`, with its arguments and errors.

        Raises:
            UsageError: it has a transactional id. A transaction belongs to a thread: use ``store.sync`` in a
                function, with ``await store.run(function)``.
        """
        self._shell.check_usable()
        if settings.get("transactional_id", config and config.transactional_id) is not None:
            raise UsageError(
                "a transaction belongs to a thread: use store.sync.producer(transactional_id=...) in a "
                "function that await store.run(function) calls"
            )
        producer = self.sync.producer(
            config,
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            interceptors=interceptors,
            **settings,
        )
        return AsyncProducer(self._shell, producer)

    def consumer(
        self,
        *topics: str,
        group: str | None = None,
        partitions: Iterable[PartitionName] = (),
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        assignors: Iterable[str | Assignor] = ("cooperative-sticky",),
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
        key_deserializer: DecoderChoice | None = None,
        value_deserializer: DecoderChoice | None = None,
        interceptors: Iterable[ConsumerInterceptor] = (),
        config: ConsumerConfig | None = None,
        **settings: Any,
    ) -> AsyncConsumer:
        """A consumer: :meth:`.Store.consumer`, with its arguments and errors."""
        self._shell.check_usable()
        consumer = self.sync.consumer(
            *topics,
            group=group,
            partitions=partitions,
            isolation=isolation,
            assignors=assignors,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            config=config,
            **settings,
        )
        return AsyncConsumer(self._shell, consumer)

    def queue(
        self,
        *topics: str,
        group: str,
        key_deserializer: DecoderChoice | None = None,
        value_deserializer: DecoderChoice | None = None,
        config: QueueConfig | None = None,
        **settings: Any,
    ) -> Joining:
        """A worker of a queue: :meth:`.Store.queue`, with its arguments and errors. Use it in ``async with``,
        or ``await`` it. ::

            async with store.queue("jobs", group="workers") as queue:
                await queue.work(send_mail)

        The worker that a cancelled call would have made leaves at once.
        """
        return Joining(
            self._shell,
            partial(
                self.sync.queue,
                *topics,
                group=group,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                config=config,
                **settings,
            ),
        )

    def groups(self) -> AsyncGroups:
        """The consumer groups: :meth:`.Store.groups`.

        Raises:
            UsageError, ClosedError: another event loop; the store is closed.
        """
        self._shell.check_usable()
        return AsyncGroups(self._shell, self.sync.groups())

    # The whole store

    async def flush(self) -> None:
        """Return when everything appended before the call is durable: :meth:`.Store.flush`."""
        await self._shell.run(self.sync.flush)

    async def close(self) -> None:
        """Flush and close everything, producers too: :meth:`.Store.close`. Followers and polls that wait end
        with ``ClosedError``. You may call it again. A cancelled call leaves it to go on.

        Raises:
            StorageError: something could not be made durable.
            UsageError: another event loop.
        """
        self._shell.check_loop()
        if self._closing is None:
            self._closing = self._shell.begin_last(self.sync.close)
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync).removeprefix('<')}"
