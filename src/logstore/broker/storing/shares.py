"""The topic ``__share_group_state``: the states of share-partitions on disk.

As in Kafka, the topic is not compacted, and has no limits: what newer snapshots have replaced is deleted from
the beginning. A share-partition that does not change would hold that up; its state is written again.

What stands between the last flush and a power cut is lost, as with any record: the state is then an older
one, and records are delivered again.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterable
from typing import Final

from logstore.broker.internal_topic import InternalTopic, parts_of
from logstore.broker.offsets.replay import replay
from logstore.broker.offsets.topic import partition_of
from logstore.broker.share.stored import ShareChange, ShareState
from logstore.broker.storing.share_table import Change, PlannedRow, ShareTable
from logstore.errors import LogstoreError, OffsetOutOfRangeError, RecordTooLargeError, RetriableError
from logstore.format.batch import encode_batch
from logstore.format.messages.share_records import ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import AppendOrigin
from logstore.partition.log import Log
from logstore.partition.state.context import LogContext
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.warning import warn

_TIDY_EVERY: Final = 10_000
"""Records between two looks for what can be deleted. Kafka looks every five minutes
(``share.coordinator.state.topic.prune.interval.ms``), however much was written."""
_TIDY_EVERY_STATES: Final = 4
"""The same for each share-partition, so that writing states again is at most a quarter of what is written."""

_MOST_NUMBERS: Final = 10_000


def coordinator_key(key: ShareKey) -> str:
    """By whose hash Kafka finds the partition of the topic."""
    topic = base64.urlsafe_b64encode(key.topic_id.bytes).decode().rstrip("=")
    return f"{key.group_id}:{topic}:{key.partition}"


class ShareStorage:
    """Of one directory. All methods may be called from many threads.

    A directory that is open for reading only can be looked at, beside its writer; changes raise
    ``ReadOnlyError``.
    """

    def __init__(self, directory: LogDirectory | WatchedDirectory) -> None:
        config = directory.config
        count = config.share_coordinator_state_topic_num_partitions
        self._topic = InternalTopic(directory, SHARE_STATE_TOPIC, count, "share groups", is_compacted=False)
        self._updates_per_snapshot = config.share_coordinator_snapshot_update_records_per_snapshot
        self._context = directory.context
        self._lock = threading.Lock()
        """Guards the list of partitions."""
        self._partitions: list[StatePartition] = []
        self._numbers: dict[tuple[ShareKey, int], int] = {}
        """Where some share-partitions are, by the number of partitions."""

    def partition_for(self, key: ShareKey) -> int:
        """The partition of ``__share_group_state`` that has the records of a share-partition."""
        return self._number_of(key, self._topic.partition_count)

    def _number_of(self, key: ShareKey, partition_count: int) -> int:
        if partition_count == 1:
            return 0
        number = self._numbers.get((key, partition_count))
        if number is None:
            if len(self._numbers) >= _MOST_NUMBERS:
                self._numbers.clear()
            number = partition_of(coordinator_key(key), partition_count)
            self._numbers[key, partition_count] = number
        return number

    def load(self) -> dict[ShareKey, ShareState]:
        """The state of each share-partition.

        Cost: 7 µs for each record that is there, 14 µs if each was a write of its own. There are at most some
        20,000, and 8 for each share-partition, and what was written in the last seconds.

        Raises:
            CorruptionError, UnsupportedVersionError: a record cannot be read.
        """
        found: dict[ShareKey, ShareState] = {}
        for partition in self._all():
            found.update(partition.states())
        return found

    def find(self, key: ShareKey) -> ShareState | None:
        """The state of one share-partition; None if it has none. Raises as :meth:`load`."""
        partitions = self._all()
        return partitions[self._number_of(key, len(partitions))].state(key) if partitions else None

    def write(self, changes: Iterable[tuple[ShareKey, Change]], *, flush: bool = False) -> None:
        """Store changes in their order: of a share-partition all of its state, what has changed in it, or
        None to delete it. Those that are in one partition of the topic, and take less than 256 KiB, are one
        batch: after a crash all of them are there, or none. When the call returns they survive the death of
        the process; with ``flush`` also a power cut. The first change of all makes the topic.

        Cost: 25 µs for each partition of the topic, and 4 µs for each change
        (``python -m benchmarks.shares``). A change costs the same however long the state is.

        Raises:
            UsageError: a change of a share-partition whose state was never written; or a number does not fit.
            RecordTooLargeError: a state has too many batches for a record: some 52,000.
            ReadOnlyError: the directory is open for reading only.
            CorruptionError, UnsupportedVersionError: what is there cannot be read.
            StorageError: the disk refused. Of some partitions of the topic, the changes may be stored.
        """
        count = self._topic.find_count()
        new_count = count or self._topic.partition_count
        by_partition: dict[int, list[tuple[ShareKey, Change]]] = {}
        has_more_than_deletes = False
        for key, change in changes:
            has_more_than_deletes |= change is not None
            by_partition.setdefault(self._number_of(key, new_count), []).append((key, change))
        if count is not None:
            self._topic.writable()
        elif has_more_than_deletes:
            self._topic.require()
        else:
            return
        partitions = self._all()
        logs = [partitions[number].write(some) for number, some in by_partition.items()]
        if flush:
            for log in logs:
                log.flush()

    def write_snapshot(self, key: ShareKey, state: ShareState, *, flush: bool = False) -> None:
        """Store all of a share-partition's state. As :meth:`write`."""
        self.write([(key, state)], flush=flush)

    def write_update(self, key: ShareKey, change: ShareChange, *, flush: bool = False) -> None:
        """Store what has changed in a share-partition's state. As :meth:`write`."""
        self.write([(key, change)], flush=flush)

    def delete(self, key: ShareKey, *, flush: bool = False) -> None:
        """Delete a share-partition's state, if there is any. As :meth:`write`."""
        self.write([(key, None)], flush=flush)

    def _all(self) -> list[StatePartition]:
        """Those of the topic; none if it is not there."""
        count = self._topic.find_count() or 0
        partitions = self._partitions
        if len(partitions) < count:
            with self._lock:
                for number in range(len(partitions), count):
                    partitions.append(
                        StatePartition(self._topic, number, self._context, self._updates_per_snapshot)
                    )
        return partitions[:count]


class StatePartition:
    """One partition of the topic, in memory and on disk. The log is the truth, and the table follows it.

    Lock: ``_lock`` guards the table, and is held while something is appended. Never during an fsync.
    """

    def __init__(
        self, topic: InternalTopic, number: int, context: LogContext, updates_per_snapshot: int
    ) -> None:
        self._topic = topic
        self._number = number
        self._context = context
        self._updates_per_snapshot = updates_per_snapshot
        self._lock = threading.Lock()
        self._table = ShareTable()
        self._log: Log | ReadOnlyLog | None = None
        """The log that the table was read from."""
        self._next_offset = 0
        """The first one that the table does not know."""
        self._tidied_offset = 0
        """The end of the log when it was last looked for what can be deleted."""
        self._redundant: tuple[int, int] | None = None
        """What is below the first offset can be deleted, once all below the second is durable."""

    def states(self) -> dict[ShareKey, ShareState]:
        """What the log says.

        Raises:
            CorruptionError, UnsupportedVersionError: a record cannot be read.
        """
        log = self._topic.log(self._number)  # first: in a forked child the lock may be held forever
        with self._lock:
            self._follow_locked(log)
            return self._table.states()

    def state(self, key: ShareKey) -> ShareState | None:
        """See :meth:`ShareStorage.find`."""
        log = self._topic.log(self._number)
        with self._lock:
            self._follow_locked(log)
            return self._table.state(key)

    def write(self, changes: Iterable[tuple[ShareKey, Change]]) -> Log:
        """See :meth:`ShareStorage.write`. Returns the log, for a flush."""
        log = self._topic.log(self._number)
        assert isinstance(log, Log)
        with self._lock:
            self._follow_locked(log)
            now_ms = self._context.clock.now_ms()
            self._log = None  # until all went well
            planned = self._table.plan(
                changes, updates_per_snapshot=self._updates_per_snapshot, now_ms=now_ms
            )
            self._append_locked(log, planned, now_ms)
            self._log = log
            redundant = self._tidy_locked(log, now_ms)
        if redundant is not None:
            self._delete_soon(log, redundant)
        return log

    def _follow_locked(self, log: Log | ReadOnlyLog) -> None:
        is_known = log is self._log
        if is_known and log.log_end_offset == self._next_offset:
            return
        self._log = None  # until all went well
        while True:
            start, end = log.log_start_offset, log.log_end_offset  # in this order: see below
            if not is_known or not start <= self._next_offset <= end:  # a tombstone may have gone unseen
                self._table, self._next_offset = ShareTable(), start
                self._tidied_offset, self._redundant = start, None
            first = self._next_offset
            try:
                self._next_offset = replay(log, self._table, first, end)
            except OffsetOutOfRangeError:
                if log.log_start_offset <= first:
                    raise
            # If more was deleted meanwhile, the snapshots that replace it may lie above the end.
            if log.log_start_offset <= first:
                break
            is_known = False
        self._log = log

    def _append_locked(self, log: Log, planned: list[PlannedRow], now_ms: int) -> None:
        at = 0
        for rows in parts_of(each.row for each in planned):
            keys, values = zip(*rows, strict=True)
            batch = encode_batch(keys, values, now_ms)
            limit_bytes = min(log.config.max_message_bytes, log.config.segment_bytes)
            if len(batch) > limit_bytes:
                raise RecordTooLargeError(
                    f"the state of a share-partition would take {len(batch)} bytes in one batch, and topic "
                    f"{SHARE_STATE_TOPIC} allows {limit_bytes} (max_message_bytes, segment_bytes): let fewer "
                    "records be in flight"
                )
            result = log.append_batch(batch, origin=AppendOrigin.COORDINATOR)
            assert result is not None
            for offset, each in enumerate(planned[at : at + len(rows)], result.base_offset):
                if each.snapshot_of is not None:
                    self._table.note_snapshot(each.snapshot_of, offset)
            at += len(rows)
            self._next_offset = result.last_offset + 1

    # Deleting what newer snapshots have replaced

    def _tidy_locked(self, log: Log, now_ms: int) -> int | None:
        """The offset below which records can be deleted now; None if there are none, or it is not their
        time."""
        if self._redundant is not None:
            below, durable = self._redundant
            # A power cut must not take the snapshots that replace what is deleted.
            if log.durable_offset < durable:
                return None
            self._redundant = None
            return below
        end = self._next_offset
        if end - self._tidied_offset < max(_TIDY_EVERY, _TIDY_EVERY_STATES * len(self._table)):
            return None
        self._tidied_offset = end
        try:
            self._rewrite_locked(log, now_ms)
        except LogstoreError as error:
            warn("%s: writing states again: %s", log.partition, error)
            return None
        lowest = self._table.lowest_snapshot_offset()
        below = end if lowest is None else min(lowest, end)
        if below > log.log_start_offset:
            self._redundant = (below, self._next_offset)
        return None

    def _rewrite_locked(self, log: Log, now_ms: int) -> None:
        """Write the states again whose snapshots are in the older half of the log."""
        cold = self._table.keys_before((log.log_start_offset + self._next_offset) // 2)
        self._log = None  # until all went well
        self._append_locked(log, self._table.plan_again(cold, now_ms), now_ms)
        self._log = log

    def _delete_soon(self, log: Log, below: int) -> None:
        def delete() -> None:
            try:
                log.delete_before(below)
            except LogstoreError as error:  # the next look comes back to it
                if not log.is_closed:
                    warn("%s: deleting below %d: %s", log.partition, below, error)

        scheduler = self._context.scheduler
        if scheduler.has_no_threads:
            delete()
            return
        try:
            scheduler.after(0, f"delete states below {below}", delete, is_waiting=True)
        except RetriableError:  # there is no thread for it
            delete()
