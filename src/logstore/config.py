"""Settings: per topic and per store.

Names are Kafka's with underscores for dots; values are in its units (milliseconds, bytes). A default that
differs from Kafka's has its reason beside it. Objects are immutable; change one with
:func:`dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from logstore.arguments import did_you_mean, shown
from logstore.errors import InvalidConfigError

UNLIMITED = 2**63 - 1
"""Kafka's spelling of "never" for intervals and counts."""

DEFAULT_MAP_BYTES = 128 * 1024 * 1024
"""Memory for the keys of a log that is compacted or seen as a table: 5.7 million keys (plain Python 0.7
million). Kafka's ``log.cleaner.dedupe.buffer.size``."""

LEAST_CLEANER_MAP_BYTES = 1024 * 1024
"""The least memory for keys that each log cleaner thread must have, as in Kafka."""

_POLICIES = {"", "delete", "compact", "compact,delete", "delete,compact"}
_COMPRESSION_TYPES = {"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}
_TIMESTAMP_TYPES = {"CreateTime", "LogAppendTime"}
_MIGRATIONS = {"bidirectional", "disabled", "downgrade", "upgrade"}
_MAX_INT32 = 2**31 - 1


_TOPIC_RANGES = (
    ("compression_gzip_level", -1, 9),
    ("compression_lz4_level", 1, 17),
    ("compression_zstd_level", -131_072, 22),
    ("segment_bytes", 14, _MAX_INT32),
    ("segment_ms", 1, UNLIMITED),
    ("segment_jitter_ms", 0, UNLIMITED),
    ("segment_index_bytes", 4, _MAX_INT32),
    ("index_interval_bytes", 0, _MAX_INT32),
    ("retention_ms", -1, UNLIMITED),
    ("retention_bytes", -1, UNLIMITED),
    ("delete_retention_ms", 0, UNLIMITED),
    ("min_compaction_lag_ms", 0, UNLIMITED),
    ("max_compaction_lag_ms", 1, UNLIMITED),
    ("min_cleanable_dirty_ratio", 0, 1),
    ("file_delete_delay_ms", 0, UNLIMITED),
    ("flush_messages", 1, UNLIMITED),
    ("flush_ms", 0, UNLIMITED),
    ("max_message_bytes", 0, _MAX_INT32),
    ("message_timestamp_before_max_ms", 0, UNLIMITED),
    ("message_timestamp_after_max_ms", 0, UNLIMITED),
    ("min_insync_replicas", 1, _MAX_INT32),
)


_STORE_RANGES = (
    ("linger_ms", 0, UNLIMITED),
    ("batch_bytes", 1, 64 * 1024 * 1024),
    ("log_retention_check_interval_ms", 1, UNLIMITED),
    ("log_flush_offset_checkpoint_interval_ms", 1, UNLIMITED),
    ("replica_high_watermark_checkpoint_interval_ms", 1, UNLIMITED),
    ("num_recovery_threads_per_data_dir", 1, 256),
    ("max_open_segments", 1, 1_000_000),
    ("batch_cache_bytes", 0, 2**40),
    ("disk_reserve_bytes", 0, 2**40),
    ("scrub_interval_ms", -1, UNLIMITED),
    ("scrub_bytes_per_second", 1, 2**40),
    ("log_cleaner_threads", 1, 128),
    ("log_cleaner_dedupe_buffer_size", LEAST_CLEANER_MAP_BYTES, 2**40),
    ("log_cleaner_io_max_bytes_per_second", 1, UNLIMITED),
    ("log_cleaner_backoff_ms", 1, UNLIMITED),
    ("producer_id_expiration_ms", 1, UNLIMITED),
    ("producer_id_expiration_check_interval_ms", 1, UNLIMITED),
    ("offsets_topic_num_partitions", 1, 100_000),
    ("offsets_retention_minutes", -1, _MAX_INT32),
    ("offset_metadata_max_bytes", 0, 32_767),
    ("transaction_state_log_num_partitions", 1, 100_000),
    ("transaction_max_timeout_ms", 1, _MAX_INT32),
    ("transactional_id_expiration_ms", 1, _MAX_INT32),
    ("group_min_session_timeout_ms", 0, 1_800_000),
    ("group_max_session_timeout_ms", 6_000, _MAX_INT32),
    ("group_max_size", 1, _MAX_INT32),
    ("group_initial_rebalance_delay_ms", 0, _MAX_INT32),
    ("group_consumer_session_timeout_ms", 2, _MAX_INT32),
    ("group_consumer_heartbeat_interval_ms", 1, _MAX_INT32 - 1),
    ("group_consumer_max_size", 1, _MAX_INT32),
    ("group_share_session_timeout_ms", 2, _MAX_INT32),
    ("group_share_heartbeat_interval_ms", 1, _MAX_INT32 - 1),
    ("share_coordinator_state_topic_num_partitions", 1, 100_000),
    ("share_coordinator_snapshot_update_records_per_snapshot", 0, 500),
    ("quota_window_num", 2, 1_000),
    ("quota_window_size_seconds", 1, 3_600),
)


def check_range(config: object, setting: str, low: float, high: float) -> None:
    value = getattr(config, setting)
    may_be_fraction = setting.endswith("_ratio")
    if type(value) is not int and not (may_be_fraction and type(value) is float):
        raise InvalidConfigError(
            f"{setting} is {shown(value)}; it must be a {'number' if may_be_fraction else 'whole number'}"
        )
    if not low <= value <= high:
        raise InvalidConfigError(f"{setting} is {value}; it must be from {low} to {high}")


def check_choice(config: object, setting: str, choices: set[str]) -> None:
    value = getattr(config, setting)
    if not isinstance(value, str) or value not in choices:
        raise InvalidConfigError(f"{setting} is {shown(value)}{did_you_mean(value, choices)}")


def check_flag(config: object, setting: str) -> None:
    value = getattr(config, setting)
    if not isinstance(value, bool):
        raise InvalidConfigError(f"{setting} is {shown(value)}; it must be True or False")


def _check_names(cls: type[Any], settings: Iterable[str], arguments: Iterable[str] = ()) -> None:
    """``arguments``: other names that a caller may mean.

    Raises:
        InvalidConfigError: there is no setting of that name; suggests the one that is probably meant.
    """
    known = {field.name for field in fields(cls)}
    for name in settings:
        if name not in known:
            hint = did_you_mean(name.replace(".", "_"), known.union(arguments))
            raise InvalidConfigError(f"unknown setting {name!r}{hint}")


class Checked:
    """Suggests the setting that an unknown name probably means; Python's own message would not."""

    __slots__ = ()

    if not TYPE_CHECKING:  # the signature stays that of the fields

        def __new__(cls, *arguments, **settings):
            _check_names(cls, settings)
            return super().__new__(cls)


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicConfig(Checked):
    """The settings of one topic. Limits on sizes and times hold for each partition by itself.

    Raises:
        InvalidConfigError: a name is unknown, a value is out of range, or two contradict each other; names
            the setting.
    """

    # Cleanup and compression

    cleanup_policy: str = "delete"
    """What is removed: old segments, by the retention settings (``delete``); all but the latest record of
    each key (``compact``); both (``compact,delete``, or ``delete,compact``, which means the same); or nothing
    (the empty text, as in Kafka 4.4): only ``delete_before()`` removes records."""
    compression_type: str = "producer"
    """The codec on disk. ``producer`` keeps batches as they arrive; records appended directly are then not
    compressed. Nor is a batch that has more than 64 MiB of records: readers decompress no more."""
    compression_gzip_level: int = -1
    """The level for gzip. -1 is zlib's default; 0 is refused."""
    compression_lz4_level: int = 9
    """The level for lz4. Higher is smaller and slower."""
    compression_zstd_level: int = 3
    """The level for zstd. Higher is smaller and slower."""

    # Segments

    segment_bytes: int = 128 * 1024 * 1024
    """Roll when the active segment would grow past this. A larger batch is refused; the least value, Kafka's,
    leaves no room for a record.

    Kafka: 1 GiB. An embedded log frees space and recovers in steps of one segment, so smaller steps serve it
    better."""
    segment_ms: int = 604_800_000
    """Roll when the active segment spans this much time."""
    segment_jitter_ms: int = 0
    """Roll up to this much earlier than ``segment_ms`` says; drawn once for each segment, so that logs do not
    all roll at the same time."""
    segment_index_bytes: int = 10 * 1024 * 1024
    """Roll when an index would grow past this. Nothing is preallocated."""
    index_interval_bytes: int = 4096
    """Bytes of log between index entries. 0 makes an entry for every batch but the first."""

    # Retention and compaction

    retention_ms: int = -1
    """Delete segments whose newest record is older than this. -1 keeps everything.

    Kafka: 7 days, because a server passes data on. A library may hold the only copy, so it deletes nothing
    unless told to."""
    retention_bytes: int = -1
    """Delete the oldest segment while the partition has this many bytes without it. -1 is no limit."""
    delete_retention_ms: int = 86_400_000
    """How long a tombstone stays after the compaction that first met it. Readers that lag less than this see
    every deletion."""
    min_compaction_lag_ms: int = 0
    """Do not compact records younger than this."""
    max_compaction_lag_ms: int = UNLIMITED
    """Compact a log when a record that was never compacted is older than this, whatever the ratio is."""
    min_cleanable_dirty_ratio: float = 0.5
    """Compact a log when more than this share of its compactable bytes was not compacted yet. A lower value
    keeps the log smaller and rewrites it more often."""
    file_delete_delay_ms: int = 60_000
    """How long a removed file stays under its ``.deleted`` name, for readers in other processes. A change
    counts for what is removed afterwards; what waits already is removed when it was due before, or on
    close."""

    # Durability

    flush_messages: int = UNLIMITED
    """Flush in the append that brings the unflushed records to this number. 1 makes every append durable."""
    flush_ms: int = 1_000
    """Flush in the background when data has waited this long, or up to a tenth less. A lower value counts for
    what waits already, too, from when it is set.

    Kafka: never, because it relies on replicas. One machine has none: a power cut would take everything since
    the last roll."""
    acks_all_durable: bool = True
    """What ``acks="all"`` means for a partition with a single replica. True: the batch is durable, which
    costs a flush, shared by all who wait for one. False: the batch is in the log, as with ``acks=1``, and a
    power cut within ``flush_ms`` can take it. To make every append durable whatever its acks, set
    ``flush_messages`` to 1.

    Kafka: has no such setting. Its ``acks=all`` means all replicas, and none of them flushes."""

    # What is accepted

    max_message_bytes: int = 1_048_588
    """The largest batch accepted, in bytes as stored (after compression)."""
    message_timestamp_type: str = "CreateTime"
    """Which time a record gets: its own (``CreateTime``), or that of the append (``LogAppendTime``)."""
    message_timestamp_before_max_ms: int = UNLIMITED
    """Refuse records whose timestamp is further in the past than this."""
    message_timestamp_after_max_ms: int = 3_600_000
    """Refuse records whose timestamp is further in the future than this. One such record would block
    retention until its time has come (KIP-937)."""
    message_timestamp_unit_check: bool = True
    """Refuse records, and lookups by time, whose timestamp looks like seconds, microseconds or nanoseconds of
    the years 2000 to 2100. False accepts every number within the two bounds above.

    Kafka: has no such setting. It takes seconds for times in 1970, which its retention deletes."""

    # Queues

    errors_deadletterqueue_group_enable: bool = False
    """Whether clients elsewhere may have the failed jobs of their queues put here (KIP-1191). Queues of this
    process may use any topic."""

    # In a cluster of nodes

    min_insync_replicas: int = 1
    """How many in-sync replicas there have to be for ``acks="all"``. A partition that is not replicated has
    one."""
    unclean_leader_election_enable: bool = False
    """Whether a replica that may lack acknowledged records leads when no other lives. A partition that is not
    replicated has no other."""

    # Without effect

    preallocate: bool = False
    """Stored with the topic; has no effect here. It would gain nothing, and a crash would leave zeros."""

    def __post_init__(self) -> None:
        for setting, low, high in _TOPIC_RANGES:
            check_range(self, setting, low, high)
        self._name_policies_once()
        check_choice(self, "cleanup_policy", _POLICIES)
        check_choice(self, "compression_type", _COMPRESSION_TYPES)
        check_choice(self, "message_timestamp_type", _TIMESTAMP_TYPES)
        check_flag(self, "message_timestamp_unit_check")
        check_flag(self, "acks_all_durable")
        check_flag(self, "errors_deadletterqueue_group_enable")
        check_flag(self, "preallocate")
        check_flag(self, "unclean_leader_election_enable")
        if self.compression_gzip_level == 0:
            raise InvalidConfigError("compression_gzip_level is 0; it must be -1 or 1 to 9")
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min_compaction_lag_ms ({self.min_compaction_lag_ms}) is above "
                f"max_compaction_lag_ms ({self.max_compaction_lag_ms})"
            )

    def _name_policies_once(self) -> None:
        """To Kafka they are a list, shown in the order in which it was set, and one may be named twice."""
        if type(self.cleanup_policy) is str and "," in self.cleanup_policy:
            once = ",".join(dict.fromkeys(self.cleanup_policy.split(",")))
            if once and once in _POLICIES:
                object.__setattr__(self, "cleanup_policy", once)

    @property
    def compacts(self) -> bool:
        """Whether ``cleanup_policy`` contains ``compact``."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether ``cleanup_policy`` contains ``delete``."""
        return "delete" in self.cleanup_policy

    @property
    def may_lose_its_front(self) -> bool:
        """Whether records may be deleted from the front by offset: not of a topic that is compacted only."""
        return self.deletes or not self.compacts

    @classmethod
    @cache
    def setting_names(cls) -> frozenset[str]:
        """The names of all settings, in Kafka's spelling."""
        return frozenset(field.name.replace("_", ".") for field in fields(cls))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read settings in Kafka's spelling (``retention.ms``), with values as text.

        Raises:
            InvalidConfigError: an unknown key, or a value that does not parse; names the key. Or this is no
                mapping.
        """
        return cls(**_parse_properties(cls, properties))

    def with_settings(self, **settings: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            InvalidConfigError: an unknown name or a bad value; names it.
        """
        _check_names(type(self), settings)
        return replace(self, **settings)

    def differences(self, other: TopicConfig) -> list[tuple[str, Any, Any]]:
        """The settings in which two configurations differ: (name, value here, value there)."""
        pairs = [
            (field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        ]
        return [(name, here, there) for name, here, there in pairs if here != there]

    def to_properties(self) -> dict[str, str]:
        """The settings that differ from their defaults, in Kafka's spelling and as text."""
        return _format_properties(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig(Checked):
    """The settings of one open store.

    Raises:
        InvalidConfigError: a name is unknown, or a value is out of range; names the setting.
    """

    # New topics

    topic: TopicConfig = TopicConfig()
    """The settings of topics that are created without their own."""

    # Appending

    linger_ms: int = 5
    """How long single appends may gather in memory before they are written as one batch. 0 writes each at
    once. A killed process loses at most what was appended in this time with :meth:`.Log.append` and without
    ``flush``."""
    batch_bytes: int = 262_144
    """The size of a batch before compression: gathered appends are written when they reach it, and
    :meth:`.Log.extend` cuts its input into batches of about this size. A read of a single record decodes one
    whole batch.

    Kafka: 16 KiB. Larger batches compress better."""

    # Retention, checkpoints and recovery

    log_retention_check_interval_ms: int = 30_000
    """How often retention runs.

    Kafka: 5 minutes. Deleting is cheap, and users expect their limits to hold."""
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    """How often recovery points are stored. After a crash the next open reads what was appended since.

    Readers in other processes learn from them what is durable."""
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    """How often high watermarks are stored."""
    num_recovery_threads_per_data_dir: int = 2
    """How many partitions are recovered at a time when a store is opened."""

    # Memory and open files

    max_open_segments: int = 256
    """How many sealed segments keep their files open, over the whole store. The least recently read are
    closed."""
    batch_cache_bytes: int = 8 * 1024 * 1024
    """Memory for batches that reads of single records have checked and decompressed, over the whole store. 0
    keeps none. The default has room for some dozens of batches of the default size. Reads of ranges do not
    use it."""

    disk_reserve_bytes: int = 0
    """The size of a file, ``disk-reserve``, that only takes room. On a full disk it is given up for the small
    files that are written when the store is opened or closed, or records are deleted. Without any room a
    store cannot be opened for writing after it was closed, or its process killed, and so nothing can be
    deleted from it, or pushed, to make room. 1 MiB is enough for some 30 partitions. It is made again when
    there is room."""

    # Scrubbing

    scrub_interval_ms: int = -1
    """Read sealed segments below the recovery point again in the background, and check them. A pass begins
    this long after the store was opened, and then this long after the end of the pass before. -1 is never:
    the default, since scrubbing costs reads. A week is usual elsewhere. :attr:`.Store.damage_found` lists
    what it finds."""
    scrub_bytes_per_second: int = 8 * 1024 * 1024
    """The most that scrubbing reads: about a hundredth of what a current disk can read, and 700 GB a day."""

    # The log cleaner

    log_cleaner_enable: bool = True
    """Compact the logs of compacted topics in the background. If False, call :meth:`.Store.compact`."""
    log_cleaner_threads: int = 1
    """How many logs are compacted at a time, each by a thread. The threads start with the first compacted
    topic."""
    log_cleaner_dedupe_buffer_size: int = DEFAULT_MAP_BYTES
    """The most memory for the keys of the logs that are being compacted, shared by the threads: 24 bytes for
    each key (190 without the compiled module). A log with fewer keys takes less. A log with more is compacted
    in several rounds; each round reads everything before it again."""
    log_cleaner_io_max_bytes_per_second: int = 8 * 1024 * 1024
    """The most that background compaction reads and writes, all threads together. At this rate a thread takes
    1 % of a core; where records compress well, or in plain Python, up to 20 % (measured: 1 GiB, and 40 to 55
    MiB, for each second of processor time). Appends slow down by no more than that.

    Kafka: no limit. A broker has its machine to itself; a library shares it with the application."""
    log_cleaner_backoff_ms: int = 15_000
    """How long the cleaner waits when no log is dirty enough, and after a first failure."""

    # Producers

    producer_id_expiration_ms: int = 86_400_000
    """Forget a producer that has been idle for this long."""
    producer_id_expiration_check_interval_ms: int = 600_000
    """How often to look for idle producers."""

    # Committed offsets

    offsets_topic_num_partitions: int = 1
    """How many partitions ``__consumer_offsets`` gets when the first commit makes it. Of a topic that is
    there, its own number counts.

    Kafka: 50, to divide the groups among brokers. One process gains nothing from more than one, and each is a
    directory with files of its own. A broker that takes the directory over goes by what is there."""
    offsets_retention_minutes: int = -1
    """How long the committed offsets of a group are kept after its last member has left (KIP-211). Offsets
    that were committed without a group, as by :meth:`.Store.offsets`, are kept for this long after each
    commit. -1 keeps them until they are deleted.

    Kafka: 10080, a week. A reader that pauses for longer would start over, and a library deletes nothing
    unless told to."""
    offset_metadata_max_bytes: int = 4_096
    """The longest metadata that a committed offset may have, in UTF-8."""

    # Transactions

    transaction_state_log_num_partitions: int = 1
    """How many partitions ``__transaction_state`` gets when the first transactional producer makes it. Of a
    topic that is there, its own number counts.

    Kafka: 50, to divide the transactional ids among brokers."""
    transaction_max_timeout_ms: int = 900_000
    """The longest ``transaction_timeout_ms`` that a producer may ask for. An open transaction holds up those
    who read committed records."""
    transactional_id_expiration_ms: int = 604_800_000
    """After a week without a transaction, a transactional id is forgotten."""

    # Consumer groups

    group_min_session_timeout_ms: int = 6_000
    """Members of consumer groups that ask for a shorter session timeout are refused. Tests of clients often
    ask for less."""
    group_max_session_timeout_ms: int = 1_800_000
    """Members that ask for a longer one are refused. A dead member holds its partitions so long."""
    group_max_size: int = 2**31 - 1
    """How many members a consumer group may have."""
    group_initial_rebalance_delay_ms: int = 0
    """How long an empty group waits for more members after the first one has joined.

    Kafka: 3 s, which saves rebalances where hundreds start together."""
    group_consumer_session_timeout_ms: int = 45_000
    """A member of the newer protocol (KIP-848) that was not heard of for so long is removed. It must be above
    ``group_consumer_heartbeat_interval_ms``."""
    group_consumer_heartbeat_interval_ms: int = 5_000
    """How often members of the newer protocol are told to send heartbeats."""
    group_consumer_max_size: int = 2**31 - 1
    """How many members a group of the newer protocol may have."""
    group_consumer_migration_policy: str = "bidirectional"
    """Whether a group with members becomes one of the newer protocol when the first member of that joins
    (``upgrade``), a classic one when the last such member has gone (``downgrade``), both, or neither
    (``disabled``). A group without members always takes the protocol of the first one that joins."""

    # Share groups

    group_share_session_timeout_ms: int = 45_000
    """A member of a share group (KIP-932) in another process that was not heard of for so long is gone. It
    must be above ``group_share_heartbeat_interval_ms``."""
    group_share_heartbeat_interval_ms: int = 5_000
    """How often such members are told to send heartbeats."""
    share_coordinator_state_topic_num_partitions: int = 1
    """How many partitions ``__share_group_state`` gets when the first share group makes it. Of a topic that
    is there, its own number counts.

    Kafka: 50, to divide the share groups among brokers."""
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    """How many changes of a share-partition's state are stored before all of its state is. Fewer make opening
    faster, and more of what is written a repetition."""

    # Quotas

    quota_window_num: int = 11
    """Over how many windows the rates of clients are measured, the current one among them. What the whole
    ones let through may come at once: ten seconds' worth, with the defaults. ``docs/quotas.md`` says more."""
    quota_window_size_seconds: int = 1
    """How long each window is. No delay of a ``request_percentage`` is longer."""

    def __post_init__(self) -> None:
        for setting, low, high in _STORE_RANGES:
            check_range(self, setting, low, high)
        check_flag(self, "log_cleaner_enable")
        check_choice(self, "group_consumer_migration_policy", _MIGRATIONS)
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads < LEAST_CLEANER_MAP_BYTES:
            raise InvalidConfigError(
                f"log_cleaner_dedupe_buffer_size ({self.log_cleaner_dedupe_buffer_size}) must be at least "
                f"{LEAST_CLEANER_MAP_BYTES} for each of {self.log_cleaner_threads} log_cleaner_threads"
            )
        shortest_ms, longest_ms = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if shortest_ms > longest_ms:
            raise InvalidConfigError(
                f"group_min_session_timeout_ms is {shortest_ms}, above group_max_session_timeout_ms, "
                f"which is {longest_ms}: no member could join"
            )
        for kind in ("consumer", "share"):
            session, interval = f"group_{kind}_session_timeout_ms", f"group_{kind}_heartbeat_interval_ms"
            session_ms, interval_ms = getattr(self, session), getattr(self, interval)
            if session_ms <= interval_ms:
                raise InvalidConfigError(
                    f"{session} is {session_ms}, not above {interval}, which is {interval_ms}: members would "
                    "be removed before their next heartbeat"
                )
        if not isinstance(self.topic, TopicConfig):
            raise InvalidConfigError(f"topic is a {type(self.topic).__name__}; it must be a TopicConfig")


def check_topic_config(config: TopicConfig | None) -> TopicConfig | None:
    """
    Raises:
        InvalidConfigError: it is something else.
    """
    if config is not None and not isinstance(config, TopicConfig):
        raise InvalidConfigError(f"config is a {type(config).__name__}; it must be a TopicConfig")
    return config


def check_store_config(config: StoreConfig | None) -> StoreConfig | None:
    """
    Raises:
        InvalidConfigError: it is something else.
    """
    if config is not None and not isinstance(config, StoreConfig):
        raise InvalidConfigError(
            f"the store's config is a {type(config).__name__}; it must be a StoreConfig, "
            "whose field topic takes the TopicConfig of new topics"
        )
    return config


ConfigT = TypeVar("ConfigT")


def choose_settings(
    cls: type[ConfigT],
    config: ConfigT | None,
    settings: Mapping[str, Any],
    *,
    arguments: Iterable[str] = (),
) -> ConfigT:
    """A whole configuration, with single settings changed. ``arguments``: what the caller of the caller can
    name besides settings.

    Raises:
        InvalidConfigError: ``config`` is something else, a name is unknown, or a value is bad.
    """
    _check_names(cls, settings, arguments)
    if config is None:
        return cls(**settings)
    if not isinstance(config, cls):
        raise InvalidConfigError(
            f"config is a {type(config).__name__}; it must be a {cls.__name__}, or give settings by name"
        )
    return replace(config, **settings)  # type: ignore[type-var]


def parse_settings(
    classes: Iterable[type[Any]], properties: Mapping[str, str]
) -> dict[type[Any], dict[str, Any]]:
    """Settings in Kafka's spelling, each for the class that has it.

    Raises:
        InvalidConfigError: none has it, or its value is no such value.
    """
    kinds = {field.name.replace("_", "."): cls for cls in classes for field in fields(cls)}
    found: dict[type[Any], dict[str, Any]] = {cls: {} for cls in classes}
    for key, text in properties.items():
        if key not in kinds or not isinstance(text, str):
            raise _unknown(key, kinds)
        found[kinds[key]].update(_parse_properties(kinds[key], {key: text}))
    return found


KAFKAS_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.decompressed.message.bytes": "2147483639",
        "remote.copy.lag.bytes": "-1",
        "remote.copy.lag.ms": "0",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "remote.storage.enable": "false",
    }
)
"""Settings of Kafka's topics that there are not here, with Kafka's defaults: of tiered storage, of moving
partitions slowly, and of what is as good as no limit."""


def _unknown(key: str, known: Iterable[str]) -> InvalidConfigError:
    if key in KAFKAS_OTHERS:  # a name that is near, such as retention.ms, would mean something else
        return InvalidConfigError(f"{key!r} is a setting of Kafka's that is not here; leave it out")
    return InvalidConfigError(f"unknown setting {key!r}{did_you_mean(key, known)}")


def _parse_properties(cls: type[Any], properties: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(properties, Mapping):
        example = '{"retention.ms": "-1"}'
        raise InvalidConfigError(
            f"the settings are {shown(properties)}; they must be a dict such as {example}"
        )
    known = {field.name.replace("_", "."): field for field in fields(cls)}
    values: dict[str, Any] = {}
    for key, text in properties.items():
        if key not in known:
            raise _unknown(key, known)
        values[known[key].name] = _parse_value(key, text, type(known[key].default))
    return values


_KINDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def _parse_value(key: str, text: str, kind: type) -> Any:
    """Spaces around a value and inside a list do not count, as in Kafka."""
    if not isinstance(text, str):
        raise InvalidConfigError(
            f"{key} is {shown(text)}, of type {type(text).__name__}; in Kafka's spelling a value is text"
        )
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.strip().lower()]
        if kind is str:
            return text.replace(" ", "")
        if "_" in text:
            raise ValueError("Python takes it for a thousands separator")
        return kind(text)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidConfigError(f"{key} is {text!r}; it must be a {_KINDS[kind]}") from None


def _format_properties(config: Any) -> dict[str, str]:
    properties = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if value != field.default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            properties[field.name.replace("_", ".")] = text
    return properties
