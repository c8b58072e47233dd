"""Settings: per topic and per store.

Names are Kafka's with underscores for dots, values are its units (milliseconds, bytes). Where a default
differs from Kafka's, the reason stands beside it. Objects are immutable; change one with
:func:`dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from logstore.arguments import did_you_mean, shown
from logstore.errors import InvalidConfigError

UNLIMITED = 2**63 - 1
"""Kafka's spelling of "never" for intervals and counts."""

DEFAULT_MAP_BYTES = 128 * 1024 * 1024
"""Memory for the keys of a log that is compacted or seen as a table: 5.7 million keys (plain Python 0.7
million). Kafka's ``log.cleaner.dedupe.buffer.size``."""

LEAST_CLEANER_MAP_BYTES = 1024 * 1024
"""Memory for the keys that a thread of the log cleaner has at least, as in Kafka."""

_POLICIES = {"delete", "compact", "compact,delete", "delete,compact"}
_COMPRESSION_TYPES = {"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}
_TIMESTAMP_TYPES = {"CreateTime", "LogAppendTime"}
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
    ("scrub_interval_ms", -1, UNLIMITED),
    ("scrub_bytes_per_second", 1, 2**40),
    ("log_cleaner_threads", 1, 128),
    ("log_cleaner_dedupe_buffer_size", LEAST_CLEANER_MAP_BYTES, 2**40),
    ("log_cleaner_io_max_bytes_per_second", 1, UNLIMITED),
    ("log_cleaner_backoff_ms", 1, UNLIMITED),
    ("producer_id_expiration_ms", 1, UNLIMITED),
    ("producer_id_expiration_check_interval_ms", 1, UNLIMITED),
)


def _check_range(config: object, setting: str, low: float, high: float) -> None:
    value = getattr(config, setting)
    may_be_fraction = setting.endswith("_ratio")
    if type(value) is not int and not (may_be_fraction and type(value) is float):
        raise InvalidConfigError(
            f"{setting} is {shown(value)}; it must be a {'number' if may_be_fraction else 'whole number'}"
        )
    if not low <= value <= high:
        raise InvalidConfigError(f"{setting} is {value}; it must be from {low} to {high}")


def _check_choice(config: object, setting: str, choices: set[str]) -> None:
    value = getattr(config, setting)
    if not isinstance(value, str) or value not in choices:
        raise InvalidConfigError(f"{setting} is {shown(value)}{did_you_mean(value, choices)}")


def _check_flag(config: object, setting: str) -> None:
    value = getattr(config, setting)
    if not isinstance(value, bool):
        raise InvalidConfigError(f"{setting} is {shown(value)}; it must be True or False")


def _check_names(cls: type[Any], settings: Iterable[str]) -> None:
    """
    Raises:
        InvalidConfigError: there is no setting of that name; says which is meant.
    """
    known = {field.name for field in fields(cls)}
    for name in settings:
        if name not in known:
            hint = did_you_mean(name.replace(".", "_"), known)
            raise InvalidConfigError(f"unknown setting {name!r}{hint}")


class _Checked:
    """Says of an unknown setting which one is meant, before Python says less."""

    __slots__ = ()

    if not TYPE_CHECKING:  # the signature stays that of the fields

        def __new__(cls, *arguments, **settings):
            _check_names(cls, settings)
            return super().__new__(cls)


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicConfig(_Checked):
    """The settings of one topic; each partition obeys them by itself.

    Raises:
        InvalidConfigError: a name is unknown, a value is out of range, or two contradict each other; names
            the setting.
    """

    cleanup_policy: str = "delete"
    """``delete`` (retention), ``compact`` (last value per key), or ``compact,delete``."""

    compression_type: str = "producer"
    """Codec on disk. ``producer`` keeps what arrives; records appended directly are then uncompressed."""
    compression_gzip_level: int = -1
    """1 to 9, or -1 for zlib's default."""
    compression_lz4_level: int = 9
    """1 to 17; higher is smaller and slower. Kafka's default."""
    compression_zstd_level: int = 3
    """-131072 to 22. Kafka's default."""

    segment_bytes: int = 128 * 1024 * 1024
    """Roll when the active segment would grow past this. Kafka: 1 GiB; an embedded log frees space and
    recovers in steps of one segment, so smaller steps serve better."""
    segment_ms: int = 604_800_000
    """Roll when the active segment spans this much time. 7 days, as Kafka."""
    segment_jitter_ms: int = 0
    """Up to this much is taken off ``segment_ms``, drawn once per segment."""
    segment_index_bytes: int = 10 * 1024 * 1024
    """Roll when an index would grow past this. Nothing is preallocated."""
    index_interval_bytes: int = 4096
    """Bytes of log between index entries. 0 indexes every batch but the first."""

    retention_ms: int = -1
    """Delete segments whose newest record is older; -1 keeps for ever. Kafka: 7 days, because a server passes
    data on; a library may hold the only copy, and deletes nothing that nobody asked it to delete."""
    retention_bytes: int = -1
    """Delete the oldest segments while the partition is larger by a whole segment; -1 is no limit."""
    delete_retention_ms: int = 86_400_000
    """How long a tombstone survives compaction. A day, as Kafka: a tombstone is a request to delete."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    """How long a removed file stays under its ``.deleted`` name, for readers in other processes."""

    flush_messages: int = UNLIMITED
    """Flush in the append that brings the unflushed records to this number. 1 makes every append durable."""
    flush_ms: int = 1_000
    """Flush in the background when data has waited this long. Kafka: never, because it relies on replicas;
    one machine has none, so a power cut would take everything since the last roll."""

    max_message_bytes: int = 1_048_588
    """Largest batch accepted, in bytes as stored (after compression). Kafka's default."""
    message_timestamp_type: str = "CreateTime"
    """``CreateTime`` keeps the record's timestamp, ``LogAppendTime`` replaces it with the append's."""
    message_timestamp_before_max_ms: int = UNLIMITED
    """Refuse records older than this."""
    message_timestamp_after_max_ms: int = 3_600_000
    """Refuse records from further in the future: one of them would block retention for as long (KIP-937;
    Kafka 4.0's default, KIP-1030)."""

    message_timestamp_unit_check: bool = True
    """Refuse records, and lookups by time, whose timestamp looks like seconds, microseconds or nanoseconds of
    the years 2000 to 2100. Kafka has no such setting: it takes seconds for times in 1970, which its retention
    deletes. False takes every number within the two bounds above."""

    preallocate: bool = False
    """Accepted for Kafka's sake and ignored: it gains nothing here, and a crash would leave zeros."""
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False

    def __post_init__(self) -> None:
        for setting, low, high in _TOPIC_RANGES:
            _check_range(self, setting, low, high)
        _check_choice(self, "cleanup_policy", _POLICIES)
        _check_choice(self, "compression_type", _COMPRESSION_TYPES)
        _check_choice(self, "message_timestamp_type", _TIMESTAMP_TYPES)
        _check_flag(self, "message_timestamp_unit_check")
        _check_flag(self, "preallocate")
        _check_flag(self, "unclean_leader_election_enable")
        if self.compression_gzip_level == 0:
            raise InvalidConfigError("compression_gzip_level is 0; it must be -1 or 1 to 9")
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min_compaction_lag_ms ({self.min_compaction_lag_ms}) is above "
                f"max_compaction_lag_ms ({self.max_compaction_lag_ms})"
            )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def setting_names(cls) -> frozenset[str]:
        """The names of all settings, in Kafka's spelling."""
        return frozenset(field.name.replace("_", ".") for field in fields(cls))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read Kafka's spelling (``retention.ms``), values as text.

        Raises:
            InvalidConfigError: an unknown key, or a value that does not parse; names the key.
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
        """The settings in which two differ: name, value here, value there."""
        pairs = [
            (field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        ]
        return [(name, here, there) for name, here, there in pairs if here != there]

    def to_properties(self) -> dict[str, str]:
        """Every setting that differs from its default, in Kafka's spelling."""
        return _format_properties(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreConfig(_Checked):
    """The settings of one open store.

    Raises:
        InvalidConfigError: a name is unknown, or a value is out of range; names the setting.
    """

    topic: TopicConfig = TopicConfig()
    """The settings of topics that are created without their own."""

    linger_ms: int = 5
    """How long single appends may gather in memory before they are written as one batch. 0 writes each at
    once. It bounds what a killed process can lose of :meth:`Log.append` without ``flush``. Kafka 4.0's
    producer default (KIP-1030)."""
    batch_bytes: int = 262_144
    """Gathered appends are written when they reach this size; :meth:`Log.extend` cuts its input into batches
    of about this size before compression. Larger batches compress better; a random read decodes one whole."""

    log_retention_check_interval_ms: int = 30_000
    """Kafka: 5 minutes; deleting is cheap and users expect their limits to hold."""
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    """How often the recovery point is stored, which bounds what a crash makes the next open read."""
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    num_recovery_threads_per_data_dir: int = 2
    max_open_segments: int = 256
    """Sealed segments whose files are kept open, over the whole store; the least recently read are closed."""
    batch_cache_bytes: int = 8 * 1024 * 1024
    """Memory for batches that reads of single records checked and decompressed, over the whole store; 0 keeps
    none. Small beside what a process takes anyway, and room for some dozens of batches of the default size:
    what is read again and again. Reads that go through a log leave it alone."""

    scrub_interval_ms: int = -1
    """Read sealed segments below the recovery point again in the background, and check them: so long after
    the store was opened, and after the end of each pass. -1 is never, the default, since it costs reads that
    nobody asked for; a week is what others choose. What it finds: :attr:`Store.damage_found`."""
    scrub_bytes_per_second: int = 8 * 1024 * 1024
    """The most that scrubbing reads: about a hundredth of what a disk of today gives, and 700 GB a day."""

    log_cleaner_enable: bool = True
    """Compact the logs of compacted topics in the background. Without, :meth:`Store.compact` does it."""
    log_cleaner_threads: int = 1
    """How many logs are compacted at a time. The threads start with the first topic that is compacted."""
    log_cleaner_dedupe_buffer_size: int = DEFAULT_MAP_BYTES
    """The most memory for the keys of the logs under compaction, shared by the threads: 24 bytes for each key
    (190 without the compiled module). A log that would need more is compacted in several rounds, and each
    reads what lies in front of it again. Kafka's default; a log with less to clean takes less."""
    log_cleaner_io_max_bytes_per_second: int = 8 * 1024 * 1024
    """The most that the background compaction reads and writes, all threads together. Kafka: no limit; a
    broker has its machine for itself, a library shares it with the application. A thread that compacts takes
    so far 1 % of a core, and where records compress well, or in plain Python, up to 20 % (measured: 1 GiB,
    and 40 to 55 MiB, for each second of processor time). Appends lose no more than that."""
    log_cleaner_backoff_ms: int = 15_000
    """How long the cleaner waits when no log is dirty enough, and after a first failure. Kafka's default."""

    producer_id_expiration_ms: int = 86_400_000
    """Forget an idle producer after this long."""
    producer_id_expiration_check_interval_ms: int = 600_000

    def __post_init__(self) -> None:
        for setting, low, high in _STORE_RANGES:
            _check_range(self, setting, low, high)
        _check_flag(self, "log_cleaner_enable")
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads < LEAST_CLEANER_MAP_BYTES:
            raise InvalidConfigError(
                f"log_cleaner_dedupe_buffer_size ({self.log_cleaner_dedupe_buffer_size}) must be at least "
                f"{LEAST_CLEANER_MAP_BYTES} for each of {self.log_cleaner_threads} log_cleaner_threads"
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


def _parse_properties(cls: type[Any], properties: Mapping[str, str]) -> dict[str, Any]:
    known = {field.name.replace("_", "."): field for field in fields(cls)}
    values: dict[str, Any] = {}
    for key, text in properties.items():
        if key not in known:
            raise InvalidConfigError(f"unknown setting {key!r}{did_you_mean(key, known)}")
        values[known[key].name] = _parse_value(key, text, type(known[key].default))
    return values


_KINDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def _parse_value(key: str, text: str, kind: type) -> Any:
    """Spaces around a value and inside a list do not count, as in Kafka."""
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
