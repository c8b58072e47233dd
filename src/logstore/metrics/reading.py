"""Fills the table: looks at the logs, clients and groups of a store, and at what they have counted.

Changes nothing. What cannot be read is left out, and the snapshot says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from logstore.broker.cluster_state import ClusterState
from logstore.broker.codes import ErrorCode
from logstore.broker.groups.states import State
from logstore.broker.local import LocalBroker
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.share.requests import DescribedShareGroup
from logstore.broker.storing.groups import stored_states
from logstore.broker.storing.share_groups import ELSEWHERE_STATE, UNKNOWN_STATE
from logstore.clients.counts import ClientCounts
from logstore.counting import Histogram, HistogramValue, LogCounts
from logstore.errors import ClosedError, LogstoreError, UnknownTopicError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.metrics.declared import BY_NAME
from logstore.metrics.snapshot import Labels, Metrics, Value
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.partition.reading.readable import ReadableLog, known_view
from logstore.partition.reading.view import LogView

if TYPE_CHECKING:
    from logstore.wire.listener.listener import Listener

Directory = LogDirectory | WatchedDirectory

_OF_VIEW: Final = (
    "log_start_offset",
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "durable_offset",
)
_COUNTED: Final = {
    "log_appended_records": "appended_record_count",
    "log_appended_batches": "appended_batch_count",
    "log_appended_bytes": "appended_bytes",
    "log_deleted_segments": "deleted_segment_count",
    "log_deleted_bytes": "deleted_bytes",
    "log_write_failures": "write_failure_count",
    "log_flush_failures": "flush_failure_count",
    "log_compactions": "compaction_count",
    "log_compaction_failures": "compaction_failure_count",
    "log_compaction_read_bytes": "compacted_read_bytes",
    "log_compaction_written_bytes": "compacted_written_bytes",
}
"""Metrics of a log, and where :class:`~logstore.counting.LogCounts` has them."""
_TIMES: Final = ("write_seconds", "flush_seconds", "compaction_seconds")


class CopyProgress(Protocol):
    """How far a copy is."""

    @property
    def lag(self) -> int:
        """How many records are left."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why nothing is copied, or not all."""
        ...

    @property
    def stopped(self) -> Mapping[str, LogstoreError]:
        """Topics that cannot be copied any more."""
        ...


class Copying(Protocol):
    """What copies a leader's topics into a store."""

    @property
    def source(self) -> str:
        """The leader's addresses."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether it was closed, or promoted."""
        ...

    @property
    def progress(self) -> CopyProgress:
        """How far it is."""
        ...


def read_metrics(
    directory: Directory,
    broker: LocalBroker | None,
    committed: CommittedOffsets | None,
    clients: ClientCounts,
    queues: Callable[[], Sequence[DescribedShareGroup]],
    listeners: Iterable[Listener],
    copies: Iterable[Copying],
) -> Metrics:
    """The metrics of a store now. ``broker`` is None if no client was made, ``committed`` if no offset was
    ever committed. ``queues`` describes them."""
    reader = _Reader(directory)
    reader.read_logs()
    reader.read_store()
    if committed is not None:
        reader.read_groups(broker, committed, clients)
    reader.read_clients(clients)
    if broker is not None:
        reader.read_requests(broker)
        reader.read_cluster(broker.cluster_state())
    for each in listeners:
        reader.read_listener(each)
    for copy in copies:
        reader.read_copy(copy)
    reader.read_queues(queues)
    return reader.result()


class _Reader:
    """One look at a store."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._series: dict[str, dict[Labels, Value]] = defaultdict(dict)
        self._incomplete: list[str] = []
        self._high_watermarks: dict[TopicPartition, int] = {}

    def result(self) -> Metrics:
        return Metrics(
            self._directory.path,
            self._directory.context.clock.now_ms(),
            self._series,
            tuple(self._incomplete),
        )

    def _put(self, name: str, value: Value, *labels: str | int) -> None:
        self._series[f"logstore_{name}"][labels] = value

    # Logs

    def read_logs(self) -> None:
        times: dict[tuple[str, str], Histogram] = {}
        sums = dict.fromkeys(("recovered_bytes", "cut_bytes", "failed_partitions"), 0)
        for log in self._logs():
            try:
                self._read_log(log)
            except (ClosedError, UnknownTopicError):
                continue  # its topic was deleted meanwhile
            except LogstoreError as error:
                self._incomplete.append(f"{log.partition}: {error}")
            if isinstance(log, Log):
                _add_times(times, log.partition.topic, log.writer.core.counts)
                sums["recovered_bytes"] += log.recovery.scanned_bytes
                sums["cut_bytes"] += log.recovery.cut_bytes
                sums["failed_partitions"] += log.needs_reopen
        for (name, topic), histogram in times.items():
            self._put(name, histogram.value, topic)
        if isinstance(self._directory, LogDirectory):
            for name, value in sums.items():
                self._put(name, value)

    def _logs(self) -> Iterator[ReadableLog]:
        if isinstance(self._directory, LogDirectory):
            yield from self._directory.logs()
            return
        for name in self._directory.topic_names():
            try:
                numbers = self._directory.topic(name).held_partitions
            except UnknownTopicError:
                continue  # deleted meanwhile
            for number in numbers:
                partition = TopicPartition(name, number)
                try:
                    yield self._directory.log(partition)
                except UnknownTopicError:
                    continue
                except LogstoreError as error:
                    self._incomplete.append(f"{partition}: {error}")

    def _read_log(self, log: ReadableLog) -> None:
        partition = log.partition
        view = known_view(log)
        self._high_watermarks[partition] = view.high_watermark
        for name in _OF_VIEW:
            self._put(f"log_{name.removeprefix('log_')}", getattr(view, name), *partition)
        self._put("log_segments", len(view.segments), *partition)
        self._put("log_truncations", view.truncation_count, *partition)
        self._put("log_damaged_reads", log.damaged_read_count, *partition)
        self._put("log_size_bytes", _size_of(view), *partition)
        if isinstance(log, Log):
            counts = log.writer.core.counts
            for name, field in _COUNTED.items():
                self._put(name, getattr(counts, field), *partition)
            if log.config.compacts:
                self._put("log_cleanable_bytes", log.dirtiness().cleanable_bytes, *partition)

    # The store

    def read_store(self) -> None:
        directory = self._directory
        names = directory.topic_names()
        self._put("topics", len(names))
        self._put("partitions", sum(_held(directory, names)))
        self._put("open_segments", directory.context.open_segments.count)
        self._put("batch_cache_bytes", directory.context.batches.size_bytes)
        if isinstance(directory, LogDirectory):
            self._put("damaged_partitions", len(directory.damaged))
            self._put("partitions_with_damage", len(directory.damage_found))
            self._put("background_failures", directory.context.scheduler.failure_count)
            self._incomplete += [f"{name}: {error}" for name, error in directory.damaged.copy().items()]

    # Above the logs

    def read_requests(self, broker: LocalBroker) -> None:
        for api, seconds in broker.requests.seconds.items():
            self._put("request_seconds", seconds, api)
        for (api, error), count in broker.requests.errors.items():
            self._put("request_errors", count, api, error)
        for api, seconds in broker.requests.throttle_seconds.items():
            self._put("throttle_seconds", seconds, api)

    def read_cluster(self, state: ClusterState | None) -> None:
        if state is None:
            return
        self._put("replica_living_nodes", state.living_count)
        self._put("replica_is_controller", int(state.is_controller))
        self._put("replica_offline_partitions", state.offline_count)
        self._put("replica_led_partitions", state.led_count)
        self._put("replica_under_replicated_partitions", state.under_replicated_count)
        self._put("replica_under_min_isr_partitions", state.under_min_isr_count)
        for node_id, lag in state.lags.items():
            self._put("replica_follower_lag", lag, node_id)

    def read_copy(self, copy: Copying) -> None:
        if copy.is_ended:
            return
        progress = copy.progress
        self._put("standby_lag", progress.lag, copy.source)
        self._put("standby_stopped_topics", len(progress.stopped), copy.source)
        self._put("standby_in_trouble", int(progress.trouble is not None), copy.source)

    def read_listener(self, listener: Listener) -> None:
        name, counts = listener.address, listener.counts
        self._put("listener_connections", listener.connection_count, name)
        self._put("listener_accepted_connections", counts.accepted_count, name)
        self._put("listener_refused_connections", counts.turned_away_count, name)
        self._put("listener_failed_logins", counts.failed_login_count, name)

    def read_clients(self, clients: ClientCounts) -> None:
        producers, buffered_bytes = clients.producers()
        self._put("producer_delivered_records", producers.delivered_record_count)
        self._put("producer_delivered_bytes", producers.delivered_bytes)
        self._put("producer_failed_records", producers.failed_record_count)
        self._put("producer_retries", producers.retry_count)
        self._put("producer_buffered_bytes", buffered_bytes)
        self._put("producer_batch_bytes", producers.batch_bytes.value)
        self._put("producer_delivery_seconds", producers.delivery_seconds.value)
        for group, consumers in clients.consumers().items():
            self._put("consumers", consumers.open_count, group)
            self._put("consumer_records", consumers.counts.record_count, group)
            self._put("consumer_fetched_bytes", consumers.counts.fetched_bytes, group)
            self._put("consumer_polls", consumers.counts.poll_count, group)
            self._put("consumer_commits", consumers.counts.commit_count, group)
            for partition, offset in consumers.offsets.items():
                self._put_lag("consumer_lag", group, partition, offset)

    def read_groups(
        self, broker: LocalBroker | None, committed: CommittedOffsets, clients: ClientCounts
    ) -> None:
        try:
            states = stored_states(committed) if broker is None else broker.group_states()
            for state in states.values():
                before = self._series["logstore_groups"].get((state,), 0)
                assert not isinstance(before, HistogramValue)
                self._put("groups", before + 1, state)
            with_offsets = committed.groups()
            for group in with_offsets:
                for partition, value in committed.fetch(group).items():
                    self._put("group_committed_offset", value.offset, group, *partition)
                    self._put_lag("group_lag", group, partition, value.offset)
            known = {group for group, state in states.items() if state != State.EMPTY.value}
            clients.forget_groups(states, known.union(with_offsets))
        except LogstoreError as error:
            self._incomplete.append(f"groups: {error}")

    def read_queues(self, queues: Callable[[], Sequence[DescribedShareGroup]]) -> None:
        try:
            described = queues()
        except LogstoreError as error:
            self._incomplete.append(f"queues: {error}")
            return
        for group in described:
            if group.error is ErrorCode.GROUP_ID_NOT_FOUND:
                continue  # deleted just now
            if group.error is not ErrorCode.NONE:
                self._incomplete.append(f"queue {group.group!r}: {group.message or group.error.name}")
                continue
            is_known = group.state != UNKNOWN_STATE  # a reader knows no workers, nor what they have
            if is_known and group.state != ELSEWHERE_STATE:
                self._put("queue_workers", len(group.members), group.group)
            for each in group.partitions:
                self._put("queue_waiting_jobs", each.waiting_count, group.group, *each.partition)
                if is_known:
                    self._put("queue_taken_jobs", each.acquired_count, group.group, *each.partition)

    def _put_lag(self, name: str, group: str, partition: TopicPartition, offset: int) -> None:
        """Nothing for a partition that is not here."""
        high_watermark = self._high_watermarks.get(partition)
        if high_watermark is not None:
            self._put(name, max(high_watermark - offset, 0), group, *partition)


def _add_times(times: dict[tuple[str, str], Histogram], topic: str, counts: LogCounts) -> None:
    for name in _TIMES:
        histogram: Histogram | None = getattr(counts, name)
        if histogram is not None:
            total = times.get((name, topic))
            if total is None:
                total = times[name, topic] = Histogram(BY_NAME[f"logstore_{name}"].bounds)
            total.add(histogram.value)


def _size_of(view: LogView) -> int:
    return sum([view.size_of(number) for number in range(len(view.segments))])


def _held(directory: Directory, names: Iterable[str]) -> Iterator[int]:
    for name in names:
        try:
            yield len(directory.topic(name).held_partitions)
        except UnknownTopicError:
            continue  # deleted meanwhile
