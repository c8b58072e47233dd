"""The settings of producers, consumers and queues. Names are Kafka's with underscores for dots."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from logstore.arguments import shown, utf8_bytes
from logstore.broker.quotas.precedence import ANONYMOUS, Client
from logstore.broker.requests import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from logstore.config import Checked, check_choice, check_flag, check_range
from logstore.errors import InvalidConfigError, UsageError
from logstore.logdir.quotas import check_client_name
from logstore.model import Isolation

_RANGES = (
    ("batch_size", 1, 64 * 1024 * 1024),
    ("linger_ms", 0, 2**31 - 1),
    ("buffer_memory", 1, 2**40),
    ("max_block_ms", 0, 2**63 - 1),
    ("delivery_timeout_ms", 0, 2**31 - 1),
    ("request_timeout_ms", 1, 2**31 - 1),
    ("retries", 0, 2**31 - 1),
    ("retry_backoff_ms", 0, 2**31 - 1),
    ("max_in_flight", 1, 5),
    ("metadata_max_age_ms", 0, 2**31 - 1),
    ("transaction_timeout_ms", 1, 2**31 - 1),
)
_LONGEST_NAME = 32_767
DELIVERY_SECONDS: Final = 10
"""How long a store that is closed waits for its producers."""
PRODUCER_ARGUMENTS: Final = ("partitioner", "key_serializer", "value_serializer", "interceptors")
CONSUMER_ARGUMENTS: Final = (
    "group",
    "partitions",
    "isolation",
    "assignors",
    "key_deserializer",
    "value_deserializer",
    "interceptors",
)
"""What an unknown setting is compared with, besides settings."""
_CODECS = {"none", "gzip", "snappy", "lz4", "zstd"}
_ACKS = {
    "all": ACKS_ALL,
    -1: ACKS_ALL,
    0: ACKS_NONE,
    1: ACKS_LEADER,
    "0": ACKS_NONE,
    "1": ACKS_LEADER,
    "-1": -1,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerConfig(Checked):
    """The settings of one producer.

    Raises:
        InvalidConfigError: a name is unknown, a value is out of range, or two contradict each other; names
            the setting.
    """

    acks: str | int = "all"
    """When a record counts as delivered. ``0``: it was handed over. ``1``: it is in the log, and survives the
    end of the process. ``"all"``: every in-sync replica has it. Where there is one replica, a power cut
    cannot take it; one flush serves all who wait for it (see ``acks_all_durable`` of the topic)."""
    linger_ms: int = 5
    """How long a record may wait for others, to share a batch with them. 0 sends at once what is there;
    records that come while a batch is being sent still share the next."""
    batch_size: int = 262_144
    """Send a batch when it has so many bytes, before compression.

    Kafka: 16 KiB, which suits many connections. Larger batches compress better."""
    compression: str = "none"
    """The codec of the batches: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``."""
    buffer_memory: int = 32 * 1024 * 1024
    """Bytes of records that may wait to be delivered. When they are used up, ``send()`` waits."""
    max_block_ms: int = 60_000
    """How long ``send()`` may wait for memory."""
    enable_idempotence: bool = True
    """A batch that is sent again is stored once, and batches stay in order (KIP-98)."""
    max_in_flight: int = 5
    """Batches of a partition that may wait for their result. Without idempotence 1 keeps the order when one
    of them is sent again. Kafka: ``max.in.flight.requests.per.connection``."""
    delivery_timeout_ms: int = 120_000
    """A record that is not delivered by then, with all retries, has failed."""
    request_timeout_ms: int = 30_000
    """How long ``acks="all"`` may take before a batch is sent again, within ``delivery_timeout_ms``."""
    retries: int = 2**31 - 1
    """How often a batch is sent again, within ``delivery_timeout_ms``."""
    retry_backoff_ms: int = 100
    """How long to wait before that."""
    metadata_max_age_ms: int = 1_000
    """How often to look for new partitions and changed settings of a topic that is sent to. While a broker
    elsewhere does not answer, records go by what is known.

    Kafka: 5 minutes. Here a look costs some microseconds."""
    transactional_id: str | None = None
    """Send in transactions, under this name. It stays the same when the program starts again, and of the
    producers that have it only the last one may send (KIP-98)."""
    transaction_timeout_ms: int = 60_000
    """After so long an open transaction is aborted. It holds up those who read committed records; the store's
    ``transaction_max_timeout_ms`` bounds it."""
    client_id: str = ""
    """Which program, or part of one, the producer is: :attr:`.Store.quotas` may hold for it."""
    user: str = ANONYMOUS
    """Who uses it: the same. Your program vouches for the name.

    Kafka: the user that a connection has authenticated."""

    def __post_init__(self) -> None:
        for setting, low, high in _RANGES:
            check_range(self, setting, low, high)
        self._check_transactional_id()
        client_of(self)
        check_choice(self, "compression", _CODECS)
        check_flag(self, "enable_idempotence")
        if type(self.acks) not in (int, str) or self.acks not in _ACKS:
            raise InvalidConfigError(f"acks is {shown(self.acks)}; it must be 0, 1 or 'all'")
        if self.enable_idempotence and self.required_acks == ACKS_NONE:
            raise InvalidConfigError(
                "acks is 0 with enable_idempotence: without an acknowledgement no batch is sent again; "
                "enable_idempotence=False goes with it"
            )

    def _check_transactional_id(self) -> None:
        name = self.transactional_id
        if name is None:
            return
        if not isinstance(name, str) or not 0 < utf8_bytes(name) <= _LONGEST_NAME:
            raise InvalidConfigError(
                f"transactional_id is {shown(name)}; it must be text of 1 to {_LONGEST_NAME} bytes"
            )
        if self.enable_idempotence is not True or self.acks not in ("all", -1, "-1"):
            raise InvalidConfigError(
                "transactional_id goes with acks='all' and enable_idempotence=True, which are the defaults"
            )

    @property
    def required_acks(self) -> int:
        """``acks`` as the protocol has it."""
        return _ACKS[self.acks]


def client_of(config: ProducerConfig | ConsumerConfig | QueueConfig) -> Client:
    """Who asks the broker.

    Raises:
        InvalidConfigError: ``user`` or ``client_id`` is no name.
    """
    try:
        user = check_client_name("user", config.user, least=1)
        return Client(user, check_client_name("client_id", config.client_id, least=0))
    except UsageError as error:
        raise InvalidConfigError(str(error)) from None


_RESETS = {"earliest", "latest", "none"}
_CONSUMER_RANGES = (
    ("max_poll_records", 1, 2**31 - 1),
    ("fetch_min_bytes", 0, 2**31 - 1),
    ("fetch_max_bytes", 0, 2**31 - 1),
    ("max_partition_fetch_bytes", 0, 2**31 - 1),
    ("fetch_max_wait_ms", 0, 2**31 - 1),
    ("request_timeout_ms", 1, 2**31 - 1),
    ("metadata_max_age_ms", 0, 2**31 - 1),
    ("auto_commit_interval_ms", 0, 2**31 - 1),
    ("max_poll_interval_ms", 6_000, 1_800_000),
    ("heartbeat_interval_ms", 1, 2**31 - 1),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerConfig(Checked):
    """The settings of one consumer.

    Raises:
        InvalidConfigError: a name is unknown, or a value is out of range; names the setting.
    """

    auto_offset_reset: str | timedelta = "earliest"
    """Where to begin in a partition for which the group has committed no offset, or whose offset is gone:
    ``"earliest"``, ``"latest"``, ``"none"`` (raise ``OffsetOutOfRangeError``), or a ``timedelta``: the first
    record that is no older (KIP-1106).

    Kafka: ``latest``. A program that starts for the first time would not see what is there."""
    max_poll_records: int = 500
    """The most records that one ``poll()`` returns."""
    fetch_min_bytes: int = 1
    """Wait for so many bytes, for ``fetch_max_wait_ms`` at most."""
    fetch_max_bytes: int = 50 * 1024 * 1024
    """The most that one fetch brings, over all partitions. A single batch may be larger."""
    max_partition_fetch_bytes: int = 1024 * 1024
    """The most of one partition. A single batch may be larger."""
    fetch_max_wait_ms: int = 500
    """How long a fetch waits for ``fetch_min_bytes``."""
    request_timeout_ms: int = 30_000
    """How long a request may take."""
    metadata_max_age_ms: int = 1_000
    """How often a consumer of topics looks for new partitions.

    Kafka: 5 minutes. Here a look costs some microseconds."""
    enable_auto_commit: bool = False
    """Commit what ``poll()`` has returned when it is called again, every ``auto_commit_interval_ms``, and in
    ``close()``: at least once.

    Kafka: true. An automatic commit loses records that your program still works on elsewhere."""
    auto_commit_interval_ms: int = 5_000
    """How often."""
    max_poll_interval_ms: int = 300_000
    """A member of a group that does not poll for this long loses its partitions to the others. There is no
    session timeout beside it: a member in this process does not die alone."""
    heartbeat_interval_ms: int = 3_000
    """How soon a member that polls learns that others have come or gone."""
    group_instance_id: str | None = None
    """Makes the member static (KIP-345): when it is closed, its partitions wait for it, for
    ``max_poll_interval_ms``, and it gets them again without a rebalance."""
    client_id: str = ""
    """Which program, or part of one, the consumer is: :attr:`.Store.quotas` may hold for it, and groups show
    it."""
    user: str = ANONYMOUS
    """Who uses it: the same. Your program vouches for the name."""

    def __post_init__(self) -> None:
        for setting, low, high in _CONSUMER_RANGES:
            check_range(self, setting, low, high)
        check_flag(self, "enable_auto_commit")
        client_of(self)
        instance = self.group_instance_id
        if instance is not None and (type(instance) is not str or not utf8_bytes(instance)):
            raise InvalidConfigError(
                f"group_instance_id is {shown(instance)}; it must be text, and not empty"
            )
        reset = self.auto_offset_reset
        if not (isinstance(reset, timedelta) or (isinstance(reset, str) and reset in _RESETS)):
            raise InvalidConfigError(
                f"auto_offset_reset is {shown(reset)}; it must be 'earliest', 'latest', 'none' or a timedelta"
            )


_QUEUE_RANGES = (
    ("record_lock_duration_ms", 1, 2**31 - 1),
    ("delivery_count_limit", 1, 32_767),
    ("partition_max_record_locks", 1, 20_000),  # each may be in a state of its own, which a record must hold
    ("max_poll_records", 1, 2**31 - 1),
    ("linger_ms", 0, 2**31 - 1),
    ("retry_backoff_ms", 0, 2**31 - 1),
    ("request_timeout_ms", 1, 2**31 - 1),
    ("metadata_max_age_ms", 0, 2**31 - 1),
    ("max_partition_fetch_bytes", 0, 2**31 - 1),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueConfig(Checked):
    """The settings of one worker of a queue. Kafka's settings of share groups are here without their
    ``share.``; those down to ``dead_letter_topic`` are the group's, and all its workers have the same.

    Raises:
        InvalidConfigError: a name is unknown, or a value is out of range; names the setting.
    """

    record_lock_duration_ms: int = 30_000
    """How long a worker has a job. Then another may take it. :meth:`.Job.renew` begins the time again."""
    delivery_count_limit: int = 5
    """How often a job is delivered, until it goes to the dead-letter topic. A process that is killed, or a
    lock that runs out, counts, too."""
    partition_max_record_locks: int = 2_000
    """How many jobs of a partition workers may have at a time."""
    auto_offset_reset: str = "earliest"
    """Where a group begins that is new: ``"earliest"``, with what is there, or ``"latest"``, with what comes.

    Kafka: ``latest``. A queue whose first worker comes late would not do what was queued before."""
    isolation: Isolation = Isolation.HIGH_WATERMARK
    """How far the group sees: with ``COMMITTED`` it leaves out aborted transactions, and waits for open
    ones."""
    dead_letter_topic: str | None = None
    """An existing topic that takes the jobs that were rejected or delivered too often. Without one they are
    passed over, with a warning."""
    max_poll_records: int = 500
    """The most jobs that :meth:`.Queue.poll` takes. A loop over a queue takes as many at a time as the worker
    does in about 50 ms, and no more than this."""
    linger_ms: int = 5
    """How long accepted jobs may gather, to be sent together, while the worker goes on with others. The last
    job that a loop has at hand goes with the request for the next ones. 0: each is sent at once."""
    acks: str | int = 1
    """When an accepted job counts as done. ``1``: a kill of the process does not undo it, but a power
    cut may: then jobs of the last second (``flush_ms``) are done again. ``"all"``: nor does a power cut."""
    retry_backoff_ms: int = 100
    """How long a job waits for its next try after an exception, in ``with job`` and in :meth:`.Queue.work`;
    doubled with each further delivery."""
    request_timeout_ms: int = 30_000
    """How long a request may take."""
    metadata_max_age_ms: int = 1_000
    """How often a worker looks for new partitions."""
    max_partition_fetch_bytes: int = 1024 * 1024
    """The most bytes that one fetch brings of a partition. A single batch may be larger."""
    client_id: str = ""
    """Which program, or part of one, the worker is: :attr:`.Store.quotas` may hold for it."""
    user: str = ANONYMOUS
    """Who uses it: the same. Your program vouches for the name."""

    def __post_init__(self) -> None:
        for setting, low, high in _QUEUE_RANGES:
            check_range(self, setting, low, high)
        client_of(self)
        check_choice(self, "auto_offset_reset", {"earliest", "latest"})
        if not isinstance(self.isolation, Isolation):
            raise InvalidConfigError(f"isolation is {shown(self.isolation)}; it must be an Isolation")
        if type(self.acks) not in (int, str) or self.acks not in ("all", -1, "-1", 1, "1"):
            raise InvalidConfigError(f"acks is {shown(self.acks)}; it must be 1 or 'all'")
        if self.dead_letter_topic is not None and type(self.dead_letter_topic) is not str:
            raise InvalidConfigError(
                f"dead_letter_topic is {shown(self.dead_letter_topic)}; it must be the name of a topic"
            )

    @property
    def is_durable(self) -> bool:
        """Whether accepted jobs wait for the disk."""
        return _ACKS[self.acks] == ACKS_ALL
