"""The store: what :func:`logstore.open` returns. Topics by name, partitions by number.

A thin face over :class:`~logstore.logdir.directory.LogDirectory` (open for writing) or
:class:`~logstore.logdir.watched.WatchedDirectory` (read-only), which do the work.
"""

from __future__ import annotations

import errno
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from logstore.arguments import check_callable, check_callback, check_flag, check_flags, plain_text, shown
from logstore.clock import Clock
from logstore.config import StoreConfig, TopicConfig, check_topic_config, choose_settings
from logstore.errors import (
    LogstoreError,
    ReadOnlyError,
    StorageError,
    TopicExistsError,
    UsageError,
)
from logstore.files import Files, OsFiles, PathLike, check_path
from logstore.format.names import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    SHARED_NAME,
    TRANSACTIONS_TOPIC,
    check_new_topics,
    check_topic_name,
)
from logstore.logdir.catalogue import MAX_PARTITIONS
from logstore.logdir.directory import LogDirectory, check_partition_count
from logstore.logdir.held import check_numbers, shown_numbers
from logstore.logdir.open_logs import OnProgress
from logstore.logdir.topics import NewTopic
from logstore.model import (
    BoundToProcess,
    Isolation,
    Role,
    TopicPartition,
)
from logstore.partition.arguments import check_timeout
from logstore.partition.state.home import OFFSETS_LOST_ENDS_NAME, QUEUES_LOST_ENDS_NAME
from logstore.partition.state.lost_ends import EndListener
from logstore.topic import Topic
from logstore.warning import warn

if TYPE_CHECKING:
    from logstore.backup.report import BackupReport, OnBackupProgress
    from logstore.broker.local import LocalBroker
    from logstore.broker.offsets.committed import CommittedOffsets
    from logstore.broker.share.requests import DescribedShareGroup
    from logstore.broker.storing.shares import ShareStorage
    from logstore.clients.assignors import Assignor
    from logstore.clients.consumer import Consumer, OnRebalance
    from logstore.clients.counts import ClientCounts
    from logstore.clients.groups.groups import Groups
    from logstore.clients.interceptors import ConsumerInterceptor, ProducerInterceptor
    from logstore.clients.offsets import Offsets, PartitionName
    from logstore.clients.producer import Partitioner, Producer
    from logstore.clients.queues.queue import Queue
    from logstore.clients.queues.status import QueueStatus
    from logstore.clients.quotas import StoreQuotas
    from logstore.clients.seats import Seats
    from logstore.clients.settings import ConsumerConfig, ProducerConfig, QueueConfig
    from logstore.clients.transactions.status import TransactionStatus
    from logstore.clients.transform import Transform, TransformFunction
    from logstore.logdir.cleaner import LogCleaner
    from logstore.logdir.watched import WatchedDirectory
    from logstore.metrics.reading import Copying
    from logstore.metrics.snapshot import Metrics
    from logstore.partition.checking.findings import OnVerifyProgress, VerifyReport
    from logstore.partition.cleaning.reports import (
        CompactionReport,
        OnCompactionProgress,
    )
    from logstore.serializing import DecoderChoice, EncoderChoice
    from logstore.showing import Table
    from logstore.wire.handlers.settings import ListenerConfig
    from logstore.wire.listener.intercepting import Intercept
    from logstore.wire.listener.listener import Listener
    from logstore.wire.security.acls import Acls
    from logstore.wire.security.tls import ServerTls
    from logstore.wire.security.users import Users


_ADDRESS: Final = re.compile(r"[^/\s]+:[0-9]{1,5}")
_LISTEN_ARGUMENTS: Final = ("advertised", "allow_anonymous", "intercept", "tls")


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
) -> Store:
    """Open a directory of topics.

    After a clean stop no record is read. After a crash, everything above the last checkpoint is checked, and
    a torn end is cut off (its bytes are kept in a ``.torn-`` file). The directory may have been written by a
    Kafka broker.

    Args:
        path: the directory; made if it does not exist, unless ``create`` is false.
        read_only: take no lock and write nothing. Works while another process writes, and follows it.
        config: the store's settings, and those of topics that are created without their own.
        files: another file system, for tests.
        clock: another clock, for tests. With any but the system's clock there is no background thread, and
            partitions are recovered one after the other.
        on_progress: called after each partition is opened; for recoveries that take long.
        timeout: how many seconds to wait while the directory is open for writing elsewhere, in this process
            or another; by default not at all. Real seconds, also with another clock. It tries again every 50
            ms, which costs nothing to speak of, and has no queue: of several that wait, any may be next. Says
            nothing of how long the opening itself takes. A read-only open never waits.

    Raises:
        LockedError: the directory is open for writing, in this process or another, and was so until the
            timeout; names the process.
        UsageError: the path is not a store; or it is not there, and looks like the address of a broker.
        RetriableError: no thread could be started for the background work.
        CorruptionError: the catalogue is damaged. A damaged partition does not fail the open: it raises when
            it is used, and :attr:`Store.damaged` lists it.
    """
    name = check_path(path)
    create, read_only = check_flags(create=create, read_only=read_only)
    check_no_address(name, files)
    timeout = None if timeout is None else check_timeout(timeout)
    if read_only:
        from logstore.logdir.watched import WatchedDirectory  # a writer needs none

        return Store(WatchedDirectory(name, config=config, files=files, clock=clock))
    return store_of(
        lambda: LogDirectory(
            name,
            config=config,
            create=create,
            files=files,
            clock=clock,
            on_progress=on_progress,
            timeout=timeout,
        )
    )


def store_of(open_directory: Callable[[], LogDirectory]) -> Store:
    """The store of a directory that is opened for writing."""
    opened: list[LogDirectory] = []
    try:
        opened.append(open_directory())
        return Store(opened[0])
    except BaseException:  # an interrupt, for one: what was opened must not stay locked
        for each in opened:
            each.abandon()
        raise


def check_no_address(path: str, files: Files | None = None) -> None:
    """
    Raises:
        UsageError: it looks like a broker's address, and no such directory is there: a new store would be
            empty.
    """
    if _ADDRESS.fullmatch(path) and not (files or OsFiles()).is_directory(path):
        raise UsageError(
            f"{path!r} looks like the address of a broker, and there is no directory of this name: "
            f"logstore.connect({path!r}) asks a broker; give './{path}' to make such a directory"
        )


class Store(BoundToProcess, Mapping[str, Topic]):
    """An open directory of topics: a mapping from topic name to :class:`Topic`.

    Use it in a ``with`` statement, or call :meth:`close`. All methods may be called from many threads. A
    child process must open its own: a forked child that uses its parent's store gets ``ForkedError``.
    """

    def __init__(self, directory: LogDirectory | WatchedDirectory) -> None:
        self._directory = directory
        self._topics: dict[str, Topic] = {}
        self._committed: CommittedOffsets | None = None
        self._share_states: ShareStorage | None = None
        """Of a store that is open for reading only."""
        self._broker: LocalBroker | None = None
        self._is_node = False
        """Whether another broker than its own answers for it."""
        self._client_counts: ClientCounts | None = None
        self._consumers: weakref.WeakSet[Consumer | Queue] = weakref.WeakSet()
        """And workers of queues."""
        self._seats: Seats | None = None
        self._users: Users | None = None
        self._acls: Acls | None = None
        self._security_lock = threading.Lock()
        """Guards their making, which reads what is stored."""
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._copies: weakref.WeakSet[Copying] = weakref.WeakSet()
        self._broker_lock = threading.Lock()
        """Guards its making."""
        if isinstance(directory, LogDirectory):
            names = directory.catalogue
            if TRANSACTIONS_TOPIC in names and _is_own(directory, TRANSACTIONS_TOPIC):
                self._finish_transactions(directory)
            logs = [] if directory.is_settled else directory.logs()
            directory.context.lost_ends.listen(
                _listeners_of(weakref.ref(self)),
                {log.partition: log.log_end_offset for log in logs if log.role is Role.ALONE},
            )
            directory.is_settled = True

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._directory.path

    @property
    def directory(self) -> LogDirectory:
        """The directory that does the work, for the engine: it may change from version to version.

        Raises:
            ReadOnlyError, ClosedError: the store cannot be changed.
        """
        return self._writable()

    @property
    def cluster_id(self) -> str | None:
        """Kafka's ``cluster.id`` of the directory: which cluster its topics are of.

        Raises:
            ReadOnlyError, ClosedError: the store cannot be changed.
        """
        return self._writable().identity.cluster_id

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened with ``read_only``."""
        return not isinstance(self._directory, LogDirectory)

    @property
    def was_clean(self) -> bool:
        """Whether the last writer had closed the store, so that nothing had to be recovered."""
        return self._directory.was_clean

    @property
    def damaged(self) -> Mapping[TopicPartition, Exception]:
        """Partitions that could not be opened, and why."""
        return dict(self._directory.damaged)

    @property
    def damage_found(self) -> Mapping[TopicPartition, VerifyReport]:
        """Open partitions in which scrubbing (``scrub_interval_ms``) found damage when it last read them,
        with its report. They stay in use: only reads of the damaged part fail."""
        return dict(self._directory.damage_found)

    # Topics

    def __getitem__(self, name: str) -> Topic:
        if type(name) is not str:
            name = plain_text(name)
        self._directory.topic(name)  # there is one
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(self._directory, name)
        return topic

    def __contains__(self, name: object) -> bool:
        return self._directory.has_topic(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._directory.topic_names())

    def __len__(self) -> int:
        return len(self._directory.topic_names())

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: TopicConfig | None = None,
        held: Iterable[int] | None = None,
    ) -> Topic:
        """Make a topic, durably.

        Args:
            name: the topic's name.
            partitions: the number of partitions, here and in other directories. Keys are divided among all of
                them.
            config: its settings. Default: ``StoreConfig.topic``.
            held: the numbers of the partitions that this directory holds, if other directories hold the
                others. Default: all.

        Raises:
            TopicExistsError: the topic exists already.
            InvalidTopicError: Kafka would refuse the name, or it is ``__cluster_metadata``.
            UsageError: the number of partitions is out of range, or ``held`` is not a list of some of their
                numbers.
        """
        name = plain_text(name)
        self.check_topics_own()
        self._writable().create_topic(name, partitions, config, held)
        return self[name]

    def create_topics(
        self, topics: Mapping[str, int], *, config: TopicConfig | None = None
    ) -> dict[str, Topic]:
        """Make many topics, durably. What is stored for all of them is stored once, for 64 at a time: 5,000
        take a tenth of the time that they take one by one.

        Args:
            topics: their names, each with its number of partitions.
            config: the settings of each. Default: ``StoreConfig.topic``.

        Returns:
            The topics, by name.

        Raises:
            TopicExistsError: of the first that is refused, when all others were made.
            InvalidTopicError, UsageError: of a wrong name or number of partitions; or ``topics`` is no
                mapping. None was made.
            DiskFullError: there was no room. The 64 topics that were being made then are not there, and will
                not be; all others were made.
            StorageError: the disk failed. The 64 topics that were being made then may be there when the
                store is opened again; all others were made.
        """
        wanted = check_new_topics(topics, MAX_PARTITIONS)
        check_topic_config(config)
        self.check_topics_own()
        directory = self._writable()
        made = directory.create_topics(
            [NewTopic(name=name, partition_count=count, config=config) for name, count in wanted.items()]
        )
        for each in made.values():
            if isinstance(each, LogstoreError):
                raise each
        return {name: self[name] for name in wanted}

    def require_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: TopicConfig | None = None,
        held: Iterable[int] | None = None,
    ) -> Topic:
        """Return the topic. If it does not exist, create it first (with one partition unless ``partitions``
        says otherwise).

        Raises:
            UsageError: it exists with another number of partitions, other settings, or other held partitions
                than asked for.
            ReadOnlyError: it does not exist, and the store was opened read-only.
            InvalidTopicError: Kafka would refuse the name, or it is ``__cluster_metadata``.
        """
        check_topic_name(name)
        name = plain_text(name)
        if partitions is not None:
            check_partition_count(partitions)
        check_topic_config(config)
        held = None if held is None else check_numbers(held, "held", range(partitions or MAX_PARTITIONS))
        if name not in self:
            if self.is_read_only:
                raise ReadOnlyError(
                    f"there is no topic {name!r} in {self.path}, which was opened read-only; open it "
                    "without read_only to create the topic"
                )
            try:
                return self.create_topic(name, partitions=partitions or 1, config=config, held=held)
            except TopicExistsError:
                if name not in self:
                    raise  # the name clashes with another's; else another thread was faster
        topic = self[name]
        if partitions is not None and len(topic) != partitions:
            raise UsageError(
                f"topic {name!r} has {len(topic)} partitions, not {partitions}; "
                "add_partitions() gives it more"
            )
        if config is not None and topic.config != config:
            differences = ", ".join(
                f"{setting} is {have!r} and not {want!r}"
                for setting, have, want in topic.config.differences(config)
            )
            raise UsageError(
                f"topic {name!r} has other settings: {differences}; topic.configure() changes them"
            )
        if held is not None and topic.held_partitions != held:
            raise UsageError(
                f"{self.path} holds partitions {shown_numbers(topic.held_partitions)} of topic {name!r}, not "
                f"{shown_numbers(held)}; hold() adds some, let_go() removes one"
            )
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic, all its records, and the offsets that groups have committed for it. Its logs are
        closed. The files are removed after ``file_delete_delay_ms``, so that readers in other processes can
        finish; at once if there is no room for the new list of topics.

        Raises:
            UnknownTopicError: there is no such topic.
            StorageError: the disk refused; the topic is still there. A full disk does not refuse it, as long
                as directories can be renamed there.
        """
        name = plain_text(name)
        self.check_topics_own()
        directory = self._writable()
        names, topic_id = directory.topic_names(), directory.topic(name).topic_id
        directory.delete_topic(name)
        self._topics.pop(name, None)
        if OFFSETS_TOPIC in names and name != OFFSETS_TOPIC:
            self._forget_offsets_of(name)
        if SHARE_STATE_TOPIC in names and name != SHARE_STATE_TOPIC:
            self._forget_jobs_of(name, topic_id)

    def _forget_offsets_of(self, topic: str) -> None:
        try:
            self._committed_offsets().forget_topic(topic)
        except LogstoreError as error:  # the topic is deleted all the same
            warn("topic %r was deleted, but not the offsets that groups have committed: %s", topic, error)

    def _forget_jobs_of(self, topic: str, topic_id: UUID) -> None:
        try:
            self._open_broker(self._writable()).forget_topic(topic_id)
        except LogstoreError as error:  # its id is never used again
            warn("topic %r was deleted, but not what queues know of it: %s", topic, error)

    def _writable(self) -> LogDirectory:
        if not isinstance(self._directory, LogDirectory):
            raise ReadOnlyError(f"{self.path} was opened read-only; open it without read_only to change it")
        self._directory.check_open()
        return self._directory

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
    ) -> Producer:
        """A producer: its ``send()`` returns at once, batches form by size and time, and each record's result
        tells where it is, or why it was refused. ``docs/producers.md`` says more.

        Args:
            config: a whole :class:`~logstore.clients.settings.ProducerConfig`; or give single settings by
                name: ``store.producer(acks=1, linger_ms=20)``.
            partitioner: called with topic, key, value and the number of partitions of the topic; returns a
                partition's number. By default the key decides, as in Kafka's Java client.
            key_serializer, value_serializer: ``"text"``, ``"json"``, or a function that makes bytes; also a
                pair of functions, as :meth:`.Topic.serialized` takes. By default keys and values are bytes.
                Neither is called for None.
            interceptors: functions that are called in ``send()``, one after the other, with a
                :class:`~logstore.clients.interceptors.ProducerRecord`, and return the one to send. What they
                raise, ``send()`` raises.

        Raises:
            InvalidConfigError: an unknown name or a bad value.
            UsageError: it has a transactional id, and the directory is that of a node of a cluster which does
                not run.
            ReadOnlyError: the store was opened read-only.
            ClosedError: it is closed.
        """
        from logstore.clients.producer import Producer  # many programs never get here
        from logstore.clients.settings import PRODUCER_ARGUMENTS, ProducerConfig, client_of

        directory = self._writable()
        scheduler = directory.context.scheduler
        chosen = choose_settings(ProducerConfig, config, settings, arguments=PRODUCER_ARGUMENTS)
        if chosen.transactional_id is not None:
            directory.check_not_of_cluster("no transaction begins here", "producer(transactional_id=...)")
        producer = Producer(
            self._open_broker(directory).as_client(client_of(chosen)),
            config=chosen,
            clock=directory.context.clock,
            run_background=scheduler.run_due if scheduler.has_no_threads else None,
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            interceptors=interceptors,
        )
        self._counted_clients().keep_producer(producer, producer.counts)
        return producer

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
    ) -> Consumer:
        """A consumer of topics, or of certain partitions. The consumers of a group share the partitions of
        their topics, and go on where the group has committed. ``docs/consumers.md`` says more.

        Args:
            topics: their names.
            group: the group's name. Without one the consumer reads all partitions, and commits nothing.
            partitions: read these, instead of topics. With a group, only its offsets are used.
            isolation: how far it sees.
            assignors: how the group divides partitions: names of Kafka's assignors (``range``,
                ``roundrobin``, ``sticky``, ``cooperative-sticky``) or your own, in the order of preference.
            on_assigned, on_revoked, on_lost: called in ``poll()`` with partitions that it got, gives up (in
                ``close()``, too), or has lost already. Without ``on_lost``, ``on_revoked`` is called for it.
            key_deserializer, value_deserializer: ``"text"``, ``"json"``, or a function that takes bytes; also
                a pair of functions, of which the second is used. Neither is called for None.
            interceptors: functions that are called in ``poll()``, one after the other, with the list of
                records, and return the list to give: of the same records, or with other keys, values and
                headers (``record._replace(...)``). What they raise, ``poll()`` raises.
            config: a whole :class:`~logstore.clients.settings.ConsumerConfig`; or give single settings by
                name: ``store.consumer("orders", auto_offset_reset="latest")``.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: topics and partitions are given; or a group, in the directory of an absent node.
            InvalidConfigError: an unknown name or a bad value.
            ReadOnlyError, ClosedError: the store was opened read-only, or is closed.
        """
        from logstore.clients.consumer import Consumer  # many programs never get here
        from logstore.clients.settings import CONSUMER_ARGUMENTS, ConsumerConfig, client_of

        directory, group = self._writable(), plain_text(group)
        if group is not None:
            directory.check_not_of_cluster("a group does not read here", "consumer(...)")
        chosen = choose_settings(ConsumerConfig, config, settings, arguments=CONSUMER_ARGUMENTS)
        broker = self._open_broker(directory)
        consumer = Consumer(
            broker.as_client(client_of(chosen)),
            topics,
            partitions=partitions,
            group=group,
            isolation=isolation,
            config=chosen,
            clock=directory.context.clock,
            assignors=assignors,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            seats=self._open_seats(broker),
        )
        self._counted_clients().keep_consumer(consumer, consumer.group, consumer.counts)
        with self._broker_lock:
            self._consumers.add(consumer)
        return consumer

    def transform(
        self,
        source: str,
        target: str,
        function: TransformFunction,
        *,
        group: str,
        dead_letter_topic: str | None = None,
        retries: int = 3,
        retry_backoff_ms: int = 100,
        workers: int = 1,
        **settings: Any,
    ) -> Transform:
        """Make records of one topic into records of another, exactly once: whatever is killed, readers of
        committed records see each result once. ``docs/transactions.md`` says more.

        ::

            store.transform("orders", "invoices", bill, group="billing").run()

        Args:
            source: the topic to read; committed records only.
            target: the topic to write.
            function: called with each :class:`~logstore.model.Record`; returns bytes (the key and the
                timestamp stay), a :class:`~logstore.model.NewRecord`, None, or several of them. It may be
                called again for the same record, so its other effects may come twice.
            group: its name: where the transform goes on. It is the transactional id, too.
            dead_letter_topic: takes the records for which the function raises, and those whose results the
                target refuses. By default the run ends with the exception.
            retries: how often the function is called again for such a record.
            retry_backoff_ms: how long to wait before that.
            workers: threads. They share the partitions of the topic.
            settings: of the consumer: ``max_poll_records`` is the size of a transaction. ``client_id`` and
                ``user`` are the producers', too.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError, InvalidConfigError: an argument is wrong; or the directory is that of a node of a
                cluster which does not run.
            ReadOnlyError: the store was opened read-only.
        """
        from logstore.clients.transform import transform_by  # many programs never get here

        self._writable().check_not_of_cluster("nothing is transformed here", "transform(...)")
        for name in (source, target, *([] if dead_letter_topic is None else [dead_letter_topic])):
            self[name]
        return transform_by(
            self,
            source,
            target,
            function,
            group=group,
            dead_letter_topic=dead_letter_topic,
            retries=retries,
            retry_backoff_ms=retry_backoff_ms,
            workers=workers,
            settings=settings,
        )

    def queue(
        self,
        *topics: str,
        group: str,
        key_deserializer: DecoderChoice | None = None,
        value_deserializer: DecoderChoice | None = None,
        config: QueueConfig | None = None,
        **settings: Any,
    ) -> Queue:
        """A worker of a queue. The workers of a group share the records of their topics: each record is one
        worker's at a time, until it is accepted, or its lock runs out (KIP-932). ``docs/queues.md`` says
        more.

        ::

            with store.queue("jobs", group="workers") as queue:
                for job in queue:
                    with job:
                        send_mail(job.value)

        Args:
            topics: their names.
            group: the group's name. Several groups on one topic each do all the jobs.
            key_deserializer, value_deserializer: ``"text"``, ``"json"``, or a function that takes bytes; also
                a pair of functions, of which the second is used. Neither is called for None.
            config: a whole :class:`~logstore.clients.settings.QueueConfig`; or give single settings by name:
                ``store.queue("jobs", group="workers", delivery_count_limit=3)``.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: no topic is named, or the group's other workers have other settings; or the directory
                is that of a node of a cluster, whose queues they are.
            InvalidConfigError: an unknown name or a bad value.
            ReadOnlyError: the store was opened read-only.
            ClosedError: it is closed.
        """
        from logstore.clients.queues.queue import Queue  # many programs never get here
        from logstore.clients.settings import QueueConfig, client_of

        directory = self._writable()
        directory.check_not_of_cluster("a queue is not worked on here", "queue(...)")
        chosen = choose_settings(QueueConfig, config, settings)
        broker = self._open_broker(directory)
        queue = Queue(
            broker.as_client(client_of(chosen)),
            topics,
            group,
            config=chosen,
            clock=directory.context.clock,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            seats=self._open_seats(broker),
        )
        with self._broker_lock:
            self._consumers.add(queue)
        return queue

    def queues(self) -> list[QueueStatus]:
        """The groups that share jobs, who works in each, and how far it is: jobs that wait, that workers
        have, and that are done.

        Works on read-only stores too, beside the writer. Workers are in its process: their number is not
        known then, and the jobs that they have count as waiting.

        Cost: 10 µs for each partition that a group works on. The first call on a read-only store reads
        ``__share_group_state``: 7 µs for each record.

        Raises:
            CorruptionError: ``__share_group_state`` cannot be read.
            ClosedError: the store is closed.
        """
        from logstore.clients.queues.status import statuses, statuses_as_stored  # few programs get here

        directory = self._directory
        directory.check_open()
        if not isinstance(directory, LogDirectory):
            return statuses_as_stored(directory, self._stored_share_states(directory))
        broker = self._open_broker(directory)
        self._open_seats(broker).give_back()
        return statuses(broker)

    def _stored_share_states(self, directory: WatchedDirectory) -> ShareStorage:
        from logstore.broker.storing.shares import ShareStorage  # few programs get here

        with self._broker_lock:
            if self._share_states is None:
                self._share_states = ShareStorage(directory)
            return self._share_states

    def delete_queue(self, group: str) -> None:
        """Forget a group of workers, durably, and what is done of its jobs. The records stay in their topics.

        Raises:
            UnknownGroupError: there is no such group.
            UsageError: it has workers.
            ReadOnlyError: the store was opened read-only.
            StorageError: the disk refused.
        """
        from logstore.clients.queues.status import delete  # few programs get here

        directory = self._writable()
        directory.check_not_of_cluster("a queue is not deleted here", "delete_queue(...)")
        broker = self._open_broker(directory)
        self._open_seats(broker).give_back()
        delete(broker, group)

    def transactions(self) -> list[TransactionStatus]:
        """The transactional ids that are known, and how far the last transaction of each has come; then what
        hangs: records without a marker that no transactional id will end. They hold up readers of committed
        records until :meth:`abort_hanging` ends them; a broker that has lost its state can leave them.

        Cost: 2 µs for each partition, and one read for each that hangs.

        Raises:
            ReadOnlyError: the store was opened read-only.
            CorruptionError: ``__transaction_state`` cannot be read.
            ClosedError: the store is closed.
        """
        from logstore.clients.transactions.status import statuses  # few programs get here

        directory = self._writable()
        return statuses(directory, self._open_broker(directory))

    def abort_hanging(self, status: TransactionStatus) -> None:
        """End a transaction that hangs: its records never count. Returns when that is durable.

        Args:
            status: one of :meth:`transactions`, with the state ``Hanging``.

        Raises:
            InvalidTransactionStateError: it does not hang, or is not there any more.
            StorageError: the disk refused.
            ReadOnlyError: the store was opened read-only.
        """
        from logstore.clients.transactions.status import TransactionStatus, abort_hanging

        directory = self._writable()
        if not isinstance(status, TransactionStatus):
            raise UsageError(f"status is {shown(status)}; it must be one of store.transactions()")
        abort_hanging(directory, self._open_broker(directory), status)

    @property
    def quotas(self) -> StoreQuotas:
        """How much producers and consumers may use: bytes and time, by their ``user`` and ``client_id``.
        ``docs/quotas.md`` says more. A read-only store shows them.

        ::

            store.quotas.set(client_id="import", producer_byte_rate=5_000_000)

        Raises:
            ClosedError: the store is closed.
        """
        from logstore.clients.quotas import StoreQuotas  # few programs get here

        directory = self._directory
        directory.check_open()
        broker = self._open_broker(directory) if isinstance(directory, LogDirectory) else None
        return StoreQuotas(directory, broker)

    # Committed offsets

    def offsets(self, group: str) -> Offsets:
        """The committed offsets of a group: a mapping from partition to the next offset to read.

        ::

            offsets = store.offsets("billing")
            committed = offsets.get(("orders", 0))
            for record in store["orders"][0].read(committed.offset if committed else None):
                ...
                offsets.commit({("orders", 0): record.offset + 1})

        They are kept in the topic ``__consumer_offsets``, as Kafka keeps those of its consumer groups, which
        the first commit makes. ``docs/offsets.md`` says more. Works on read-only stores too, beside the
        writer. Costs nothing until it is used; the first look reads what is committed, 6 µs for each offset.

        Raises:
            UsageError: the group is not text of 1 to 32,767 bytes.
            ClosedError: the store is closed.
        """
        from logstore.clients.offsets import Offsets  # many programs never get here

        self._directory.check_open()
        return Offsets(self._directory, self._committed_offsets(), group)

    def groups(self) -> Groups:
        """The consumer groups: a mapping from name to :class:`~logstore.clients.groups.status.GroupStatus`,
        with state, members, committed offsets and lag. Groups without members can be deleted, and set to
        other offsets. ``docs/groups.md`` says more.

        ::

            for name, group in store.groups().items():
                print(name, group.state, sum(group.lag.values()))

        Works on read-only stores too, beside the writer: see :class:`.Groups`.

        Raises:
            ClosedError: the store is closed.
        """
        from logstore.clients.groups.groups import Groups  # few programs get here

        directory = self._directory
        directory.check_open()
        broker = self._open_broker(directory) if isinstance(directory, LogDirectory) else None
        return Groups(directory, self._committed_offsets(), broker)

    # Other processes

    def listen(
        self,
        address: str = "127.0.0.1:0",
        *,
        advertised: str | None = None,
        tls: ServerTls | None = None,
        allow_anonymous: bool = False,
        intercept: Intercept | None = None,
        config: ListenerConfig | None = None,
        **settings: Any,
    ) -> Listener:
        """Speak Kafka's protocol on a socket: the store is a broker then, for clients of every kind.

        Use it in a ``with`` statement; the store closes it with itself. A store may have several.

        Args:
            address: a host and a port, ``0`` for any that is free; or the path of a Unix socket.
            advertised: the host and port that clients are told to connect to. Default: ``address``.
            tls: the certificate of the listener. Default: connections are not encrypted.
            allow_anonymous: let everybody in who can reach it from other machines.
            intercept: called with each request, for tests: :func:`.testing.kafka`.
            config: the listener's settings. Single ones may be given by name instead.

        Raises:
            UsageError: the address is none; or other machines can reach it, clients need not say who they
                are, and ``allow_anonymous`` is not said.
            StorageError: the system refuses the address, because it is in use, for one.
            InvalidConfigError: a setting is unknown or out of range.
            RetriableError: the process may have no more threads.
            ReadOnlyError: the store was opened read-only.
        """
        from logstore.wire.handlers.settings import ListenerConfig
        from logstore.wire.listener.listener import Listener
        from logstore.wire.security.security import Security
        from logstore.wire.security.tls import ServerTls

        chosen = choose_settings(ListenerConfig, config, settings, arguments=_LISTEN_ARGUMENTS)
        allow_anonymous = check_flag(allow_anonymous, "allow_anonymous")
        if tls is not None and not isinstance(tls, ServerTls):
            raise UsageError(f"tls is {shown(tls)}; it must be a logstore.security.ServerTls, or None")
        if intercept is not None:
            check_callable(intercept, "intercept")
        broker = self._open_broker(self._writable())
        listener = Listener(
            broker,
            address,
            advertised=advertised,
            allow_anonymous=allow_anonymous,
            config=chosen,
            security=Security(
                self.users,
                self.acls if chosen.authorize else None,
                tls=tls,
                mechanisms=chosen.mechanisms,
                super_users=chosen.super_user_names,
                allow_everyone_if_no_acl_found=chosen.allow_everyone_if_no_acl_found,
            ),
            intercept=intercept,
        )
        with self._broker_lock:
            self._listeners.add(listener)
        return listener

    @property
    def users(self) -> Users:
        """Who may log in at a listener with ``sasl_enabled_mechanisms``, and with which password. In a
        node of a cluster: who may log in at any of them.

        Raises:
            ReadOnlyError: the store was opened read-only.
            CorruptionError: ``users.json`` is damaged; says what to do.
            UnsupportedVersionError: a newer logstore wrote it.
        """
        from logstore.wire.security.users import Users  # few programs get here

        directory = self._writable()
        with self._security_lock:
            if self._users is None:
                self._users = Users(directory)
            return self._users

    @property
    def acls(self) -> Acls:
        """What clients may do at a listener with ``authorize``. In a node of a cluster: at any of them.

        Raises:
            ReadOnlyError: the store was opened read-only.
            CorruptionError: ``acls.json`` is damaged; says what to do.
            UnsupportedVersionError: a newer logstore wrote it.
        """
        from logstore.wire.security.acls import Acls  # few programs get here

        directory = self._writable()
        with self._security_lock:
            if self._acls is None:
                self._acls = Acls(directory)
            return self._acls

    def share(self, *, config: ListenerConfig | None = None, **settings: Any) -> Listener:
        """Let other processes of this machine use the store while it is open here: they reach it through a
        Unix socket in its directory, for programs of the same user (mode 0600).

        Use it in a ``with`` statement; the store ends it with itself. It is a :meth:`listen`, and takes the
        same settings.

        Raises:
            UsageError: it is shared already.
            StorageError: the system refuses the socket, or something else is in its place.
            InvalidConfigError: a setting is unknown or out of range.
            ReadOnlyError: the store was opened read-only.
        """
        address = f"{self.path}/{SHARED_NAME}"
        try:
            return self.listen(address, config=config, **settings)
        except StorageError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if any(each.address == address and not each.is_name_gone for each in list(self._listeners)):
                message = f"{self.path} is shared already; one share() lets all processes in"
                raise UsageError(message) from None
            advice = "no process but this has the directory, and needs what is there: remove it"
            raise StorageError(error.errno, f"{error.strerror}; {advice}") from None

    def _committed_offsets(self) -> CommittedOffsets:
        if isinstance(self._directory, LogDirectory):
            return self._open_broker(self._directory).committed
        from logstore.broker.offsets.committed import CommittedOffsets

        with self._broker_lock:
            if self._committed is None:
                self._committed = CommittedOffsets(self._directory)
            return self._committed

    def _set_offsets_back(self, directory: LogDirectory, ends: Mapping[TopicPartition, int]) -> bool:
        """After a crash, and where logs were cut: see :meth:`.CommittedOffsets.set_back`. Of a log that is
        one of several replicas, another one may have what is missing here. Returns whether all is done that
        ever was to be."""
        if OFFSETS_TOPIC not in directory.catalogue:
            return True
        committed = self._open_broker(directory).committed
        if ends and _is_own(directory, OFFSETS_TOPIC):
            try:
                committed.set_back(ends.get)
            except LogstoreError as error:  # using them raises it; the rest of the store is fine
                warn("committed offsets above the ends of their logs could not be set back: %s", error)
        return not committed.is_to_be_set_back

    def _set_queues_back(self, directory: LogDirectory, ends: Mapping[TopicPartition, int]) -> bool:
        """The same of what queues have done."""
        if SHARE_STATE_TOPIC not in directory.catalogue:
            return True
        broker = self._open_broker(directory)
        if ends and _is_own(directory, SHARE_STATE_TOPIC):
            broker.set_share_groups_back(ends)
        return not broker.are_share_groups_to_be_set_back

    def _finish_transactions(self, directory: LogDirectory) -> None:
        """End in all partitions the transactions whose end was decided: readers of committed records do not
        wait for the next producer."""
        try:
            self._open_broker(directory).finish_transactions()
        except LogstoreError as error:
            warn("open transactions are not finished: %s", error)

    def _open_seats(self, broker: LocalBroker) -> Seats:
        from logstore.clients.seats import Seats  # many programs never get here

        with self._broker_lock:
            if self._seats is None:
                self._seats = Seats(broker)
            return self._seats

    def _open_broker(self, directory: LogDirectory) -> LocalBroker:
        from logstore.broker.local import LocalBroker

        with self._broker_lock:
            if self._broker is None:
                self._broker = LocalBroker(directory)
            return self._broker

    def serve_through(self, broker: LocalBroker) -> None:
        """Let this broker answer all clients of the store, in place of the store's own: a node of a cluster
        does so, before anything else uses the store.

        Raises:
            UsageError: it is no such broker.
            ReadOnlyError: the store was opened read-only.
        """
        from logstore.broker.local import LocalBroker

        self._writable()
        if not isinstance(broker, LocalBroker):
            raise UsageError(f"broker is {shown(broker)}; it must be a LocalBroker")
        with self._broker_lock:
            before, self._broker = self._broker, broker
            self._is_node = True
        if before is not None:
            before.close()

    def check_topics_own(self) -> None:
        """See whether the store's topics are its own.

        Raises:
            UsageError: the store is a node, and its topics are those of a cluster.
        """
        if self._is_node:
            raise UsageError(
                "the store is a node of a cluster, whose topics are made and deleted through its nodes: "
                "logstore.connect(node.address)"
            )

    # The whole store

    def flush(self) -> None:
        """Return when everything appended before the call is durable, in every partition.

        Raises:
            StorageError: an fsync failed; the other partitions were still flushed.
        """
        directory = self._writable()
        directory.flush(directory.logs())

    def checkpoint(self) -> None:
        """Flush, and store recovery points, so that the next open has nothing to read. The store does this
        every ``log_flush_offset_checkpoint_interval_ms``, after rolls, and on close."""
        self._writable().checkpoint()

    def enforce_retention(self, *, dry_run: bool = False) -> dict[TopicPartition, int]:
        """Apply every topic's retention settings now. Returns the number of deleted segments for each
        partition; with ``dry_run``, of those that would be deleted. The store does this every
        ``log_retention_check_interval_ms``."""
        return self._writable().enforce_retention(dry_run=check_flag(dry_run, "dry_run"))

    @property
    def cleaner(self) -> LogCleaner:
        """The log cleaner, which compacts the store's compacted topics in the background and reports on
        them."""
        return self._writable().cleaner

    def compact(
        self, *, now: bool = False, dry_run: bool = False, on_progress: OnCompactionProgress | None = None
    ) -> dict[TopicPartition, CompactionReport]:
        """Run :meth:`Log.compact` on every partition of every compacted topic, one after the other in the
        calling thread. Returns a report for each partition. The store does this in the background when a log
        is dirty enough: see :attr:`cleaner`. ``on_progress`` must not create, change or delete topics.

        Raises:
            CorruptionError, StorageError: from the first partition that failed; the others were still
                compacted.
        """
        now, dry_run = check_flags(now=now, dry_run=dry_run)
        check_callback(on_progress, "on_progress")
        return self._writable().compact(None, now=now, dry_run=dry_run, on_progress=on_progress)

    def verify(self, *, on_progress: OnVerifyProgress | None = None) -> VerifyReport:
        """Check every partition as :meth:`Log.verify` does, including those that could not be opened, and the
        store's own files. Changes nothing. Works on read-only stores too. Topics that are deleted meanwhile
        are left out.

        Raises:
            StorageError: this process's user lacks the permission to read something.
        """
        from logstore.logdir.verify import verify_topics  # few programs get here

        check_callback(on_progress, "on_progress")
        return verify_topics(self._directory, list(self), on_progress, with_store=True)

    def backup(
        self,
        path: PathLike,
        *,
        links: bool = True,
        accept_damage: bool = False,
        on_progress: OnBackupProgress | None = None,
    ) -> BackupReport:
        """Copy the whole store to another directory, which is a store like this one then:
        ``logstore.open(path)`` works. Appends and everything else go on meanwhile; of each partition the
        backup has all that was appended before the call, and maybe the beginning of what was appended since.
        ``docs/backup.md`` says what else holds, and how to restore.

        Another call with the same path brings over what has changed, and takes out what is gone: the backup
        is the earlier or the new one at any moment, whatever happens. What is new in it was read and
        verified.

        Args:
            path: the directory of the backup. Not there, empty, or an earlier backup of this store.
            links: sealed segments are not copied where the file system allows two names of one file. Neither
                the store nor the backup ever changes such a file, but a disk may damage it for both; without,
                everything is copied.
            accept_damage: make the backup although something in the store is damaged, and say so in
                :attr:`BackupReport.damaged`: it is copied as it is, unless the earlier backup has it sound.
            on_progress: called with a :class:`~logstore.backup.report.BackupProgress` after each piece, by
                one thread at a time.

        Cost: what is new is read once, and written once if it is not linked; an fsync for each new file; some
        system calls for each segment. The last segment of each partition is copied if it has changed at all.
        Locks are held for single system calls.

        Raises:
            UsageError: the path holds something else, or lies in the store.
            CorruptionError: the store is damaged; says where. No backup was made, an earlier one is as it
                was.
            LockedError: somebody has the backup open for writing, or is making one there.
            DiskFullError, StorageError: the disk refused; an earlier backup is as it was.
            ReopenRequiredError: what was appended to a partition cannot be made durable.
            ClosedError: the log of a partition was closed by itself. ``topic.reopen()`` opens it again.
            RetriableError: segments are deleted, or logs reopened, faster than they are copied. Call again.
            ReadOnlyError: the store was opened read-only; the program that writes to it makes its backups.
        """
        from logstore.backup.store_backup import back_up  # few programs get here

        if self.is_read_only:
            raise ReadOnlyError(
                f"{self.path} was opened read-only, and only its writer makes backups: call backup() in the "
                "program that has it open; if there is none, run `logstore backup`, or open it without "
                "read_only"
            )
        name, links = check_path(path), check_flag(links, "links")
        accept_damage = check_flag(accept_damage, "accept_damage")
        check_callback(on_progress, "on_progress")
        return back_up(
            self._writable(), name, links=links, accept_damage=accept_damage, on_progress=on_progress
        )

    # Metrics

    def metrics(self) -> Metrics:
        """What the store has counted, and its state, as of now: sizes, offsets, appends, flushes, deletions,
        compactions, requests, clients, groups and their lag. ``docs/metrics.md`` lists all, and shows how
        Prometheus and OpenTelemetry get them.

        Counters begin at 0 when the store is opened. A read-only store knows sizes, offsets, the lag
        of groups, and how many jobs wait. What is damaged is left out: see :attr:`.Metrics.incomplete`.

        Cost: 25 µs for each partition, and 3 µs for each offset that a group has committed; a read-only store
        looks at the files of each partition besides. The first call reads what groups have committed, and
        what is stored of queues: see :meth:`queues`. Locks are held for single values, so the numbers of
        different logs may be some milliseconds apart.

        Raises:
            ClosedError: the store is closed.
        """
        from logstore.metrics.reading import read_metrics  # many programs never get here

        directory = self._directory
        directory.check_open()
        has_offsets = OFFSETS_TOPIC in directory.topic_names()
        committed = self._committed_offsets() if has_offsets else None
        listeners = [each for each in list(self._listeners) if not each.is_closed]
        return read_metrics(
            directory,
            self._broker,
            committed,
            self._counted_clients(),
            self._described_queues,
            listeners,
            list(self._copies),
        )

    def watch_copy(self, copy: Copying) -> None:
        """For :mod:`logstore.replica`: tell in the metrics of what copies a leader's topics into the store,
        as long as it is there.

        Raises:
            UsageError: it is no standby.
        """
        if not all(hasattr(copy, name) for name in ("source", "is_ended", "progress")):
            raise UsageError(
                f"copy is {shown(copy)}; it must be a standby: logstore.replica.follow() makes one"
            )
        self._copies.add(copy)

    def _described_queues(self) -> Sequence[DescribedShareGroup]:
        """
        Raises:
            LogstoreError: what is stored of them cannot be read.
        """
        directory = self._directory
        has_some = SHARE_STATE_TOPIC in directory.topic_names()
        if not isinstance(directory, LogDirectory):
            from logstore.broker.storing.share_groups import describe_stored

            return describe_stored(directory, self._stored_share_states(directory)) if has_some else ()
        if has_some and not self._is_node:
            return self._open_broker(directory).share_groups()
        return () if self._broker is None else self._broker.share_groups_in_use()

    def _counted_clients(self) -> ClientCounts:
        from logstore.clients.counts import ClientCounts

        with self._broker_lock:
            if self._client_counts is None:
                self._client_counts = ClientCounts()
            return self._client_counts

    def run_background(self) -> int:
        """Run the background tasks that are due, in this thread. For stores with a clock that is set by hand.
        Returns how many tasks ran."""
        return self._writable().context.scheduler.run_due()

    def close(self) -> None:
        """Flush and close everything, producers too: what they have not delivered after 10 s is lost, with a
        warning. You may call it again, also from two threads at once. If an interrupt leaves something open,
        the directory stays locked until another call closes the rest. In a forked child it does nothing.

        Raises:
            StorageError: something could not be made durable.
            UsageError: a signal handler, a finalizer or a callback that has interrupted a change of a log
                calls this; nothing was done.
        """
        if self._directory.context.fork_flag.is_forked:
            return
        if isinstance(self._directory, LogDirectory):
            self._directory.check_not_within()
        with self._broker_lock:
            counted, consumers = self._client_counts, list(self._consumers)
            listeners = list(self._listeners)
        for listener in listeners:
            listener.close()
        if counted is not None:
            counted.close_producers()
        for consumer in consumers:
            consumer.note_closed_store()
        if self._broker is not None:
            self._broker.close()
            self._directory.context.lost_ends.settle()
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = " read-only" if self.is_read_only else ""
        try:
            contents = ", ".join(self) or "no topics"
        except LogstoreError as error:  # closed, for one
            contents = type(error).__name__
        return f"<Store {self.path!r}{mode}: {contents}>"

    def _ipython_key_completions_(self) -> list[str]:
        """What completes ``store["``: the topics; none if they cannot be listed."""
        try:
            return list(self)
        except LogstoreError:
            return []

    def _repr_html_(self) -> str:
        """What a notebook shows: the topics with their sizes, and what is damaged. Never raises; reads no
        record and changes nothing. Cost: that of :attr:`Log.size_bytes` for up to 200 partitions."""
        from logstore.showing import show  # few programs get here

        mode = " (read-only)" if self.is_read_only else ""
        return show(f"Store {self.path}{mode}", self._parts_to_show())

    def _parts_to_show(self) -> Iterator[Table]:
        from logstore.showing import MOST_LOGS, Table, attempt, describe_error

        names = list(self)
        log_count = 0

        def cells(name: str) -> tuple[object, ...]:
            nonlocal log_count
            topic = self[name]
            log_count += len(topic.held_partitions)
            if log_count > MOST_LOGS:
                return len(topic), "too many partitions to look at all"
            offset_count = sum(len(log.readable_offsets()) for log in topic)
            return len(topic), offset_count, sum(log.size_bytes for log in topic)

        rows = (attempt(name, partial(cells, name)) for name in names)
        yield Table(("topic", "partitions", "offsets", "bytes"), rows, len(names))
        damaged = [(partition, describe_error(error)) for partition, error in self.damaged.items()]
        damaged += [(partition, repr(report)) for partition, report in self.damage_found.items()]
        if damaged:
            yield Table(("damaged", "what"), damaged)


def _listeners_of(store: weakref.ref[Store]) -> dict[str, EndListener]:
    """Those who are told that logs have lost their ends. The directory knows the store by these only, so that
    both are gone when the program drops them."""

    def listen(set_back: Callable[[Store, LogDirectory, Mapping[TopicPartition, int]], bool]) -> EndListener:
        def set_back_in(ends: Mapping[TopicPartition, int]) -> bool:
            found = store()
            if found is None or not isinstance(found._directory, LogDirectory):
                return False
            return set_back(found, found._directory, ends)

        return set_back_in

    return {
        OFFSETS_LOST_ENDS_NAME: listen(Store._set_offsets_back),
        QUEUES_LOST_ENDS_NAME: listen(Store._set_queues_back),
    }


def _is_own(directory: LogDirectory, topic: str) -> bool:
    """Whether the topic is replicated nowhere."""
    return all(log.role is Role.ALONE for log in directory.logs() if log.partition.topic == topic)
