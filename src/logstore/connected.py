"""A store elsewhere: what :func:`connect` returns. The same producers, consumers and queues as of a store in
this process, over Kafka's protocol: to an Apache Kafka cluster, or to a store that another process serves.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from logstore.arguments import check_least, plain_text, shown
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import wait_for
from logstore.broker.requests import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribedConfig,
    MetadataRequest,
    MorePartitions,
    NewTopic,
    Reassignment,
    TopicMetadata,
    TopicsResult,
)
from logstore.broker.share.dead_letters import check_takes_letters
from logstore.clients.asking import ask, create_topics
from logstore.clients.assignors import Assignor
from logstore.clients.consumer import Consumer, OnRebalance
from logstore.clients.elsewhere.groups import RemoteGroups
from logstore.clients.elsewhere.offsets import RemoteOffsets
from logstore.clients.interceptors import ConsumerInterceptor, ProducerInterceptor
from logstore.clients.offsets import PartitionName, check_partition
from logstore.clients.producer import Partitioner, Producer
from logstore.clients.queues.queue import Queue
from logstore.clients.queues.status import QueueStatus, delete, statuses
from logstore.clients.seats import Seats
from logstore.clients.settings import (
    CONSUMER_ARGUMENTS,
    DELIVERY_SECONDS,
    PRODUCER_ARGUMENTS,
    ConsumerConfig,
    ProducerConfig,
    QueueConfig,
    client_of,
)
from logstore.clients.transform import Transform, TransformFunction, transform_by
from logstore.clock import SystemClock
from logstore.config import TopicConfig, check_topic_config, choose_settings
from logstore.errors import LogstoreError, RetriableError, TopicExistsError, UsageError
from logstore.files import OsFiles, PathLike
from logstore.format.names import SHARED_NAME, check_new_topics, check_topic_name
from logstore.lock import ForkFlag
from logstore.logdir.quotas import check_client_name
from logstore.model import BoundToProcess, Isolation, TopicPartition
from logstore.serializing import DecoderChoice, EncoderChoice
from logstore.warning import warn
from logstore.wire.remote.broker import CLIENT_ID, RemoteBroker
from logstore.wire.remote.connections.dialing import Tls
from logstore.wire.remote.connections.settings import RemoteConfig, Sasl, check_sasl
from logstore.wire.remote.translate.moving import Reassign
from logstore.wire.security.tls import check_client_tls

__all__ = ["Reassignment", "RemoteConfig", "RemoteStore", "Sasl", "connect"]


_BROKERS: Final = -1
"""In place of a number: as the broker has it."""


def connect(
    *addresses: PathLike,
    client_id: str = CLIENT_ID,
    tls: Tls | None = None,
    sasl: Sasl | None = None,
    config: RemoteConfig | None = None,
    **settings: Any,
) -> RemoteStore:
    """Connect to a store elsewhere: an Apache Kafka cluster, or a process that serves a store.

    ::

        with logstore.connect("127.0.0.1:9092") as store:
            with store.producer() as producer:
                producer.send("orders", b"paid", key=b"alice")

    Args:
        addresses: ``"host:port"``, or the path of a Unix socket, or the directory of a store that a process
            of this machine shares (:meth:`.Store.share`). Of several, any may answer; the brokers tell
            where the others are. ``"host1:port,host2:port"``, as Kafka's clients take it, are two.
        client_id: what the program is called: in the brokers' logs, in groups, and for quotas.
        tls: how to check the brokers, and what to show them: ``ssl.create_default_context()``, for one; or a
            :class:`logstore.security.ClientTls`, which looks again at files that are renewed.
        sasl: who we are.
        config: a whole :class:`RemoteConfig`; or give single settings by name:
            ``connect("127.0.0.1:9092", request_timeout_ms=5_000)``.

    Raises:
        RetriableError: no broker answers within ``request_timeout_ms``; says why.
        StorageError: the process may have no more files open.
        UsageError: an address is none, an argument is of the wrong type, or the broker does not let us in.
        InvalidConfigError: an unknown name or a bad value.
    """
    store = prepare_connection(*addresses, client_id=client_id, tls=tls, sasl=sasl, config=config, **settings)
    try:
        store.check()
    except BaseException:
        store.close()
        raise
    return store


def prepare_connection(
    *addresses: PathLike,
    client_id: str = CLIENT_ID,
    tls: Tls | None = None,
    sasl: Sasl | None = None,
    config: RemoteConfig | None = None,
    **settings: Any,
) -> RemoteStore:
    """What :func:`connect` returns, before any broker has answered: each use connects as far as it has to.

    Raises:
        UsageError: an address is none, or ``tls`` or ``sasl`` is of the wrong type.
        InvalidConfigError: an unknown name or a bad value.
    """
    check_client_name("client_id", client_id, least=0)
    named = tuple(each for given in addresses for each in _addresses_in(given))
    chosen = choose_settings(RemoteConfig, config, settings, arguments=("client_id", "tls", "sasl"))
    check_client_tls(tls, "tls")
    check_sasl(sasl, "sasl")
    broker = RemoteBroker(named, client_id=client_id, tls=tls, sasl=sasl, config=chosen)
    return RemoteStore(broker, chosen)


def _addresses_in(given: Any) -> list[Any]:
    """The addresses; of a store's directory, that of the process that shares it."""
    if not isinstance(given, str):
        given = getattr(given, "__fspath__", lambda: given)()
    files = OsFiles()
    if isinstance(given, str) and given and files.is_directory(given):
        return [f"{files.absolute(given)}/{SHARED_NAME}"]
    if isinstance(given, str) and given and not set(given) & set(":/,\0"):
        what = "is a file" if files.is_file(given) else "is not there"
        raise UsageError(
            f"{shown(given)} is no address, such as '127.0.0.1:9092'; and as the directory of a store that a "
            f"process shares it {what}"
        )
    if isinstance(given, str) and "," in given and "/" not in given:
        return [each.strip() for each in given.split(",")]
    return [given]


class RemoteStore(BoundToProcess):
    """A store elsewhere. Use it in a ``with`` statement, or call :meth:`close`. All methods may be called
    from many threads."""

    def __init__(self, broker: RemoteBroker, config: RemoteConfig) -> None:
        self._broker = broker
        self._config = config
        self._clock = SystemClock()
        self._fork_flag = ForkFlag.watch()
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer | Queue] = weakref.WeakSet()
        """And workers of queues."""
        self._seats = Seats(broker)
        self._is_closed = False

    @property
    def broker(self) -> RemoteBroker:
        """The cluster as a broker, for the engine: it may change from version to version.

        Raises:
            ClosedError: the store is closed.
        """
        self._check_usable()
        return self._broker

    @property
    def config(self) -> RemoteConfig:
        """The settings."""
        return self._config

    # Topics

    def topics(self) -> dict[str, int]:
        """The names of all topics, but for internal ones, each with how many partitions it has.

        Raises:
            RetriableError: no broker answers.
            ClosedError: the store is closed.
        """
        found = describe_topics(self, None)
        return {each.name: len(each.partitions) for each in found if not each.is_internal}

    def check(self) -> None:
        """See whether a broker answers.

        Raises:
            RetriableError: none does within ``request_timeout_ms``; says why.
            UsageError: it does not let us in.
            ClosedError: the store is closed.
        """
        self._check_usable()
        timeout_ms = self._config.request_timeout_ms
        result = wait_for(self._broker.reach(), timeout_ms / 1000)
        if result is None:  # it was still connecting
            raise RetriableError(f"{self._broker.trouble} (request_timeout_ms is {timeout_ms})")
        code, why = result
        if code is not ErrorCode.NONE:
            raise error_of(code, why or code.name)

    def leaders(self, topic: str) -> list[int]:
        """The ids of the nodes that lead the partitions of a topic, by their numbers; -1 if none does now.

        Raises:
            UnknownTopicError: there is no such topic.
            RetriableError: no broker answers.
        """
        check_topic_name(topic)
        (found,) = describe_topics(self, (plain_text(topic),))
        if found.error is not ErrorCode.NONE:
            raise error_of(found.error, found.message or f"topic {topic!r}: {found.error.name}")
        return [each.leader_id for each in sorted(found.partitions)]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: TopicConfig | None = None,
    ) -> None:
        """Make a topic. When the call returns, it can be used.

        Args:
            name: the topic's name.
            partitions: how many.
            replication_factor: on how many nodes each partition is. By default as the connection's setting
                says, or the broker's.
            config: its settings. What differs from the defaults is sent; of the others the broker has its
                own.

        Raises:
            TopicExistsError: the topic exists already.
            InvalidTopicError: the name is refused.
            InvalidConfigError: a setting is refused.
            UsageError: the number of partitions is refused.
        """
        self._check_usable()
        check_topic_name(name)
        check_least("partitions", partitions, 1)
        self._create({plain_text(name): partitions}, replication_factor, config)

    def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication_factor: int | None = None,
        config: TopicConfig | None = None,
    ) -> None:
        """Make many topics, a hundred with each request, or 5,000 partitions. When the call returns, all of
        them are there.

        Args:
            topics: their names, each with its number of partitions.
            replication_factor: as for :meth:`create_topic`.
            config: the same, of each.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidConfigError, UsageError: of the first that is refused,
                as for :meth:`create_topic`. All others were asked for, too: several that ask for the same
                topics at once make all of them together. If ``topics`` has a wrong name or number, none was
                made.
        """
        wanted = check_new_topics(topics)
        self._check_usable()
        self._create(wanted, replication_factor, config)

    def _create(
        self, topics: Mapping[str, int], replication_factor: int | None, config: TopicConfig | None
    ) -> None:
        check_topic_config(config)
        settings = {} if config is None else config.to_properties()
        factor = _BROKERS if replication_factor is None else replication_factor
        if factor != _BROKERS:
            check_least("replication_factor", factor, 1)
        wanted = [NewTopic(name, partitions, settings, factor) for name, partitions in topics.items()]
        for result in list(create_topics(self._broker, wanted, self._config)):  # all are asked for before
            self._check(result)

    def require_topic(
        self, name: str, *, partitions: int | None = None, config: TopicConfig | None = None
    ) -> int:
        """Create the topic, if it does not exist (with one partition unless ``partitions`` says otherwise).
        Returns how many partitions it has.

        Raises:
            UsageError: it exists with another number of partitions, or with other values of the settings that
                ``config`` changes.
            InvalidTopicError: the name is refused.
            RetriableError: no broker answers, or makes it, within ``request_timeout_ms``.
        """
        check_topic_name(name)
        tried_until = time.monotonic() + self._config.request_timeout_ms / 1000
        (found,) = describe_topics(self, (plain_text(name),))
        while found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if self._makes_topic(name, partitions or 1, config, tried_until):
                return partitions or 1
            (found,) = describe_topics(self, (plain_text(name),))
            if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                time.sleep(self._config.retry_backoff_ms / 1000)
        if found.error is not ErrorCode.NONE:
            raise error_of(found.error, found.message or f"topic {name!r}: {found.error.name}")
        count = len(found.partitions)
        if partitions is not None and count != partitions:
            raise UsageError(
                f"topic {name!r} has {count} partitions, not {partitions}; add_partitions() gives it more"
            )
        if config is not None:
            self._check_settings(plain_text(name), check_topic_config(config))
        return count

    def _makes_topic(
        self, name: str, partitions: int, config: TopicConfig | None, tried_until: float
    ) -> bool:
        """Returns whether it was made now. If not, another was faster, or a broker that went away meanwhile
        may have made it: both can be asked about."""
        try:
            self.create_topic(name, partitions=partitions, config=config)
        except (TopicExistsError, RetriableError):
            if time.monotonic() >= tried_until:
                raise
            return False
        return True

    def _describe_settings(self, name: str) -> tuple[DescribedConfig, dict[str, str]]:
        request = DescribeConfigsRequest((name,))
        (found,) = ask(self._broker.describe_configs(request), "tell of settings", self._config).topics
        return found, {each.name: each.value for each in found.settings}

    def _check_settings(self, name: str, config: Any) -> None:
        found, have = self._describe_settings(name)
        if found.error is not ErrorCode.NONE:
            raise error_of(found.error, found.message or f"topic {name!r}: {found.error.name}")
        for key, value in config.to_properties().items():
            if have.get(key) != value:
                raise UsageError(
                    f"topic {name!r} has other settings: {key} is {have.get(key)!r} and not {value!r}"
                )

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic more partitions: so many in all. Keys may go to other partitions from then on.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: it has as many already; or fewer nodes live than it has replicas.
        """
        self._check_usable()
        check_least("partitions", partitions, 1)
        request = CreatePartitionsRequest((MorePartitions(plain_text(name), partitions),))
        self._check(ask(self._broker.create_partitions(request), f"grow topic {name!r}", self._config))

    def reassign(self, replicas: Mapping[PartitionName, Sequence[int] | None]) -> None:
        """Move partitions of a cluster to other nodes, give them more replicas, or fewer (KIP-455). Returns
        when the moves have begun; :meth:`reassignments` tells which go on. Meanwhile the partitions are used.

        ::

            store.reassign({("orders", 0): (1, 2, 3), ("orders", 1): (2, 3, 1)})

        Args:
            replicas: of each partition the ids of the nodes that are to have it; or None to call a move off.
                The first one is preferred as the leader: it leads from the controller's next look, every five
                minutes, or when the leader goes.

        Raises:
            UnknownTopicError: there is no such partition.
            UsageError: the nodes are not there, or nothing moves; says of which partition. Others may move.
            RetriableError: no controller answers.
        """
        self._check_usable()
        if not isinstance(replicas, Mapping):
            raise UsageError(f"{shown(replicas)} does not say which nodes; give {{('orders', 0): (1, 2, 3)}}")
        wanted = {check_partition(each): _nodes(each, nodes) for each, nodes in replicas.items()}
        result = ask(self._broker.reassign(Reassign(wanted)), "move partitions", self._config)
        if result.error is not ErrorCode.NONE:
            raise error_of(result.error, result.message or result.error.name)

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The partitions that are on their way to other nodes: their replicas, those that they get, and those
        that they lose when the others have caught up.

        Raises:
            RetriableError: no controller answers.
        """
        self._check_usable()
        found = ask(self._broker.reassignments(), "tell which partitions move", self._config)
        if found.error is not ErrorCode.NONE:
            raise error_of(found.error, found.message or found.error.name)
        return dict(found.moving)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        self._check_usable()
        check_topic_name(name)
        request = DeleteTopicsRequest((plain_text(name),))
        self._check(ask(self._broker.delete_topics(request), f"delete topic {name!r}", self._config))

    def _check(self, result: TopicsResult) -> None:
        for each in result.topics:
            if each.error is not ErrorCode.NONE:
                raise error_of(each.error, f"topic {each.name!r}: {each.message or each.error.name}")

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
        """A producer, as of :meth:`.Store.producer`. When a record counts as delivered is the broker's word:
        with ``acks="all"`` all in-sync replicas have it.

        Raises:
            InvalidConfigError: an unknown name or a bad value.
            ClosedError: the store is closed.
        """
        self._check_usable()
        chosen = choose_settings(ProducerConfig, config, settings, arguments=PRODUCER_ARGUMENTS)
        producer = Producer(
            self._broker.as_client(client_of(chosen)),
            config=chosen,
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            interceptors=interceptors,
        )
        self._producers.add(producer)
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
        """A consumer, as of :meth:`.Store.consumer`. Its group may have members of other clients, if they
        have an assignor in common.

        A consumer whose process is killed keeps its partitions for 45 seconds, or ``max_poll_interval_ms`` if
        that is shorter. One that works on what it has polled is a member for ``max_poll_interval_ms``: signs
        of life are given for it.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: both topics and partitions are given.
            InvalidConfigError: an unknown name or a bad value.
            ClosedError: the store is closed.
        """
        self._check_usable()
        chosen = choose_settings(ConsumerConfig, config, settings, arguments=CONSUMER_ARGUMENTS)
        consumer = Consumer(
            self._broker.as_client(client_of(chosen)),
            topics,
            partitions=partitions,
            group=plain_text(group),
            isolation=isolation,
            config=chosen,
            assignors=assignors,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            seats=self._seats,
        )
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
        """Make records of one topic into records of another, exactly once. Arguments are those of
        :meth:`.Store.transform`.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError, InvalidConfigError: an argument is wrong.
        """
        names = (source, target, *([] if dead_letter_topic is None else [dead_letter_topic]))
        for topic in describe_topics(self, tuple(map(plain_text, names))):
            if topic.error is not ErrorCode.NONE:
                raise error_of(topic.error, topic.message or f"topic {topic.name!r}: {topic.error.name}")
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

    # Queues

    def queue(
        self,
        *topics: str,
        group: str,
        key_deserializer: DecoderChoice | None = None,
        value_deserializer: DecoderChoice | None = None,
        config: QueueConfig | None = None,
        **settings: Any,
    ) -> Queue:
        """A worker of a queue, as of :meth:`.Store.queue`: a member of a share group (KIP-932), for brokers
        from Kafka 4.2 on. It gives the group its settings, if the broker lets it.

        A ``dead_letter_topic`` (KIP-1191) must have ``errors_deadletterqueue_group_enable``; brokers of Kafka
        take one from 4.4 on. Without one the group keeps what an administrator has given it. What Kafka's
        protocol does not have: a job that is released with a delay is available at once, and the reasons of
        ``release`` and ``reject`` are not told.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: no topic is named, or the broker has no share groups.
            InvalidConfigError: an unknown name or a bad value; or the dead-letter topic is not taken.
            ClosedError: the store is closed.
        """
        self._check_usable()
        chosen = choose_settings(QueueConfig, config, settings)
        if chosen.dead_letter_topic is not None:
            self._check_dead_letter_topic(plain_text(chosen.dead_letter_topic))
        queue = Queue(
            self._broker.as_client(client_of(chosen)),
            topics,
            group,
            config=chosen,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            seats=self._seats,
        )
        self._consumers.add(queue)
        return queue

    def _check_dead_letter_topic(self, name: str) -> None:
        """Brokers of Kafka look at it only when a job has failed, which is lost then."""
        found, have = self._describe_settings(name)
        if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check_takes_letters(name, None)
        elif found.error is ErrorCode.NONE:  # or it may not be looked at
            policy = "compact" if "compact" in have.get("cleanup.policy", "") else "delete"
            is_enabled = have.get("errors.deadletterqueue.group.enable") == "true"
            check_takes_letters(
                name, TopicConfig(cleanup_policy=policy, errors_deadletterqueue_group_enable=is_enabled)
            )

    def queues(self) -> list[QueueStatus]:
        """The groups that share jobs, how many workers each has, and how many jobs are not done; brokers
        before Kafka 4.2 do not tell the latter.

        Raises:
            LogstoreError: they cannot be listed.
        """
        self._check_usable()
        return statuses(self._broker)

    def delete_queue(self, group: str) -> None:
        """Forget a group of workers, and what is done of its jobs. The records stay in their topics.

        Raises:
            UnknownGroupError: there is no such group.
            UsageError: it has workers.
        """
        self._check_usable()
        delete(self._broker, group)

    # Groups

    def offsets(self, group: str) -> RemoteOffsets:
        """The committed offsets of a group: a mapping from partition to the next offset to read.

        Raises:
            UsageError: the group is not text of 1 to 32,767 bytes.
            ClosedError: the store is closed.
        """
        self._check_usable()
        return RemoteOffsets(self._broker, group, self._config)

    def groups(self) -> RemoteGroups:
        """The consumer groups: a mapping from name to :class:`~logstore.clients.groups.status.GroupStatus`.

        Raises:
            ClosedError: the store is closed.
        """
        self._check_usable()
        return RemoteGroups(self._broker, self._config, self._clock)

    # The end

    def _check_usable(self) -> None:
        self._fork_flag.check_usable("the connection to a store", is_closed=self._is_closed)

    def close(self) -> None:
        """Deliver what producers still have, for 10 seconds at most; leave groups; close all connections.
        You may call it again. In a forked child it does nothing: the connections are the parent's."""
        if self._is_closed or self._fork_flag.is_forked:
            return
        self._is_closed = True
        for producer in list(self._producers):
            try:
                producer.close(DELIVERY_SECONDS)
            except LogstoreError as error:  # each record's result tells, too
                warn("a producer that was still open could not deliver everything: %s", error)
        for consumer in list(self._consumers):
            try:
                consumer.close()
            except LogstoreError as error:
                warn("a consumer that was still open was not closed as it should be: %s", error)
        self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<RemoteStore: {state}>"


def _nodes(partition: object, nodes: Any) -> tuple[int, ...] | None:
    if nodes is None:
        return None
    found = tuple(nodes) if isinstance(nodes, Iterable) else ()
    if not found or any(type(each) is not int for each in found):
        raise UsageError(f"{partition}: {shown(nodes)} are no ids of nodes, such as (1, 2, 3)")
    return found


def describe_topics(store: RemoteStore, names: tuple[str, ...] | None) -> tuple[TopicMetadata, ...]:
    """What is known of topics, or of all; each has its own error.

    Raises:
        RetriableError: no broker answers.
        ClosedError: the store is closed.
    """
    result = ask(store.broker.metadata(MetadataRequest(names)), "tell of its topics", store.config)
    if not result.cluster_id and not result.topics:  # which does not say why
        store.check()
        raise RetriableError("no broker has told of its topics")
    return result.topics
