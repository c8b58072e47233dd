"""The table of all metrics: what each is called, counts, and is divided by. The page in the docs is made from
it, and so are the exporters' metrics. Knows no values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from logstore.counting import BYTES, SECONDS


class Kind(Enum):
    """What a metric is."""

    COUNTER = "counter"
    """Only grows, from 0 when the store (for a log: the log) was opened."""
    GAUGE = "gauge"
    """A state, which may go up and down."""
    HISTOGRAM = "histogram"
    """Values counted by size."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table."""

    name: str
    """Prometheus shows counters with ``_total`` behind it."""
    kind: Kind
    unit: str
    """By the UCUM: ``By`` for bytes, ``s`` for seconds, or a thing in braces."""
    description: str
    labels: tuple[str, ...] = ()
    """What it is divided by."""
    bounds: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets."""


_PARTITION = ("topic", "partition")
_GROUP_PARTITION = ("group", "topic", "partition")


def _counter(name: str, unit: str, description: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"logstore_{name}", Kind.COUNTER, unit, description, labels)


def _gauge(name: str, unit: str, description: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"logstore_{name}", Kind.GAUGE, unit, description, labels)


def _histogram(name: str, unit: str, description: str, labels: tuple[str, ...] = ()) -> Metric:
    bounds = SECONDS if unit == "s" else BYTES
    return Metric(f"logstore_{name}", Kind.HISTOGRAM, unit, description, labels, bounds)


TABLE: Final[tuple[Metric, ...]] = (
    # The store
    _gauge("topics", "{topic}", "Topics, the internal ones among them."),
    _gauge("partitions", "{partition}", "Partitions that the directory holds."),
    _gauge("damaged_partitions", "{partition}", "Partitions that could not be opened: `Store.damaged`."),
    _gauge(
        "failed_partitions",
        "{partition}",
        "Partitions that take no appends until they are reopened, because an fsync failed.",
    ),
    _gauge(
        "partitions_with_damage",
        "{partition}",
        "Partitions in which the last scrubbing found damage: `Store.damage_found`.",
    ),
    _gauge("open_segments", "{segment}", "Segments whose files are open."),
    _gauge("batch_cache_bytes", "By", "Memory of the batches kept for reads of single records."),
    _counter("background_failures", "{failure}", "Runs of background tasks that ended with an error."),
    _gauge("recovered_bytes", "By", "Bytes that recovery read when the partitions were opened."),
    _gauge("cut_bytes", "By", "Bytes of torn ends that recovery cut off and kept aside."),
    # Logs
    _gauge("log_start_offset", "{offset}", "The first offset that can be read.", _PARTITION),
    _gauge("log_end_offset", "{offset}", "The offset that the next record gets.", _PARTITION),
    _gauge("log_high_watermark", "{offset}", "Records below it are replicated.", _PARTITION),
    _gauge("log_last_stable_offset", "{offset}", "Transactions below it are decided.", _PARTITION),
    _gauge("log_durable_offset", "{offset}", "A power cut takes no record below it.", _PARTITION),
    _gauge("log_size_bytes", "By", "Bytes of the segments.", _PARTITION),
    _gauge("log_segments", "{segment}", "Segments, the active one among them.", _PARTITION),
    _gauge(
        "log_cleanable_bytes", "By", "Bytes that wait to be compacted (compacted topics only).", _PARTITION
    ),
    _counter(
        "log_appended_records",
        "{record}",
        "Records appended, with the markers that end transactions.",
        _PARTITION,
    ),
    _counter("log_appended_batches", "{batch}", "Batches appended.", _PARTITION),
    _counter("log_appended_bytes", "By", "Bytes of the batches appended.", _PARTITION),
    _counter("log_deleted_segments", "{segment}", "Segments deleted by retention or on request.", _PARTITION),
    _counter("log_deleted_bytes", "By", "Bytes of the segments deleted.", _PARTITION),
    _counter("log_truncations", "{truncation}", "How often the end of the log was cut, ever.", _PARTITION),
    _counter("log_damaged_reads", "{read}", "Reads that met damage: `CorruptionError`.", _PARTITION),
    _counter("log_write_failures", "{write}", "Writes that the disk refused.", _PARTITION),
    _counter("log_flush_failures", "{flush}", "Flushes that failed.", _PARTITION),
    _counter("log_compactions", "{compaction}", "Compactions that had anything to do.", _PARTITION),
    _counter("log_compaction_failures", "{compaction}", "Compactions that failed.", _PARTITION),
    _counter("log_compaction_read_bytes", "By", "Bytes that compactions have read.", _PARTITION),
    _counter("log_compaction_written_bytes", "By", "Bytes that compactions have written.", _PARTITION),
    _histogram("write_seconds", "s", "The time of each write to a segment.", ("topic",)),
    _histogram("flush_seconds", "s", "The time of each flush of a log.", ("topic",)),
    _histogram("compaction_seconds", "s", "The time of each compaction.", ("topic",)),
    # Requests
    _histogram(
        "request_seconds",
        "s",
        "The time until a request was answered. A fetch that waits for records counts with its wait.",
        ("api",),
    ),
    _counter(
        "request_errors",
        "{request}",
        "Requests with an error, by Kafka's name for it; also those that [ACLs](security.md) do not allow.",
        ("api", "error"),
    ),
    _histogram(
        "throttle_seconds",
        "s",
        "The delays that answers told their clients, because a [quota](quotas.md) was exceeded.",
        ("api",),
    ),
    # Listeners
    _gauge("listener_connections", "{connection}", "Clients that are connected now.", ("listener",)),
    _counter("listener_accepted_connections", "{connection}", "Clients that were let in.", ("listener",)),
    _counter(
        "listener_refused_connections",
        "{connection}",
        "Clients that were turned away because `max_connections` others were there.",
        ("listener",),
    ),
    _counter(
        "listener_failed_logins",
        "{login}",
        "Logins that failed, also by a certificate. The [audit log](security.md) has who and why.",
        ("listener",),
    ),
    # A node of a cluster
    _gauge(
        "replica_living_nodes", "{node}", "Nodes of the cluster that live. Only a node has these metrics."
    ),
    _gauge("replica_is_controller", "{node}", "1 at the node that elects leaders, 0 at the others."),
    _gauge(
        "replica_offline_partitions", "{partition}", "Partitions of the whole cluster that have no leader."
    ),
    _gauge("replica_led_partitions", "{partition}", "Partitions that this node leads."),
    _gauge(
        "replica_under_replicated_partitions",
        "{partition}",
        "Those of them of which not all replicas are in sync.",
    ),
    _gauge(
        "replica_under_min_isr_partitions",
        "{partition}",
        "Those of them that take nothing with `acks=all`: fewer are in sync than `min.insync.replicas`.",
    ),
    _gauge(
        "replica_follower_lag",
        "{record}",
        "Records that another node lacks of the partition, led here, of which it lacks most.",
        ("node",),
    ),
    # A standby
    _gauge(
        "standby_lag",
        "{record}",
        "Records that a [standby](replication.md#a-standby) has still to copy, as far as its leader has "
        "told. Only a store that copies one has these metrics.",
        ("leader",),
    ),
    _gauge("standby_stopped_topics", "{topic}", "Topics that it cannot copy any more.", ("leader",)),
    _gauge(
        "standby_in_trouble",
        "{standby}",
        "1 while the leader does not answer, or not all topics can be copied; else 0.",
        ("leader",),
    ),
    # Producers
    _counter("producer_delivered_records", "{record}", "Records that producers have delivered."),
    _counter("producer_delivered_bytes", "By", "Bytes of the batches delivered."),
    _counter("producer_failed_records", "{record}", "Records that could not be delivered."),
    _counter("producer_retries", "{batch}", "Batches that were sent again."),
    _gauge("producer_buffered_bytes", "By", "Memory of the records that are not delivered yet."),
    _histogram("producer_batch_bytes", "By", "The sizes of the batches delivered."),
    _histogram("producer_delivery_seconds", "s", "From the first record of a batch until it was delivered."),
    # Consumers
    _gauge("consumers", "{consumer}", "Open consumers; those without a group have the group ''.", ("group",)),
    _counter("consumer_records", "{record}", "Records that `poll()` has returned.", ("group",)),
    _counter("consumer_fetched_bytes", "By", "Bytes of the batches fetched.", ("group",)),
    _counter("consumer_polls", "{poll}", "Calls of `poll()`.", ("group",)),
    _counter("consumer_commits", "{commit}", "Commits of offsets.", ("group",)),
    _gauge(
        "consumer_lag",
        "{offset}",
        "From the position of an open consumer to the high watermark.",
        _GROUP_PARTITION,
    ),
    # Groups
    _gauge("groups", "{group}", "Groups, by Kafka's name for their state.", ("state",)),
    _gauge("group_committed_offset", "{offset}", "The offset that a group has committed.", _GROUP_PARTITION),
    _gauge("group_lag", "{offset}", "From there to the high watermark.", _GROUP_PARTITION),
    # Queues
    _gauge(
        "queue_workers",
        "{worker}",
        "Workers of a group that shares jobs ([queue](queues.md)). A read-only store does not know them.",
        ("group",),
    ),
    _gauge(
        "queue_waiting_jobs",
        "{job}",
        "Jobs that no worker has, also those put off, and those that wait for a dead-letter topic.",
        _GROUP_PARTITION,
    ),
    _gauge(
        "queue_taken_jobs",
        "{job}",
        "Jobs that workers have.",
        _GROUP_PARTITION,
    ),
)
"""All metrics, in the order in which they are shown."""

BY_NAME: Final = {metric.name: metric for metric in TABLE}
