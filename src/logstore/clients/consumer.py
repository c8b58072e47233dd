"""The consumer: reads records of topics or partitions from a broker, and remembers where it is.

It has no thread. A call fetches what is there, and waits in the calling thread if there is nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from logstore.arguments import check_callback, milliseconds_of, plain_text, shown
from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import RETRIABLE, error_of
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResult,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from logstore.clients.assignors import Assignor, choose_assignors
from logstore.clients.counts import ConsumerCounts
from logstore.clients.membership import Membership
from logstore.clients.offsets import PartitionName, check_group, check_partition, check_partitions
from logstore.clients.positions import NO_POSITION, Position, Positions
from logstore.clients.received import received_records
from logstore.clients.settings import ConsumerConfig
from logstore.clock import Clock, SystemClock
from logstore.errors import (
    CorruptionError,
    LogstoreError,
    OffsetOutOfRangeError,
    RetriableError,
    UsageError,
)
from logstore.files import ForkFlag
from logstore.model import BoundToProcess, Isolation, Moment, OffsetAndMetadata, Record, TopicPartition
from logstore.partition.arguments import check_isolation, check_offset, check_timeout

OnRebalance = Callable[[tuple[TopicPartition, ...]], object]
"""Called in :meth:`Consumer.poll` with partitions that the consumer got, or has to give up."""

_NO_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)

_POLL_MS = 60_000
"""How long a fetch of a caller who waits for ever waits before it is made again."""


class Consumer(BoundToProcess):
    """Reads records. Made by :meth:`.Store.consumer`. Use it in a ``with`` statement, or call :meth:`close`.

    For one thread at a time; :meth:`wakeup` may be called from any.
    """

    def __init__(
        self,
        broker: Broker,
        topics: Iterable[str] = (),
        *,
        partitions: Iterable[PartitionName] = (),
        group: str | None = None,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        config: ConsumerConfig | None = None,
        clock: Clock | None = None,
        assignors: Iterable[str | Assignor] = ("cooperative-sticky",),
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        check_isolation(isolation)
        for name, callback in (
            ("on_assigned", on_assigned),
            ("on_revoked", on_revoked),
            ("on_lost", on_lost),
        ):
            check_callback(callback, name)
        chosen = choose_assignors(assignors)
        self.config = config or ConsumerConfig()
        """The settings."""
        self.isolation = isolation
        """How far it sees."""
        self.group = None if group is None else check_group(group)
        """The group that its offsets are committed for."""
        self._broker = broker
        self._clock = clock or SystemClock()
        self._may_wait = isinstance(self._clock, SystemClock)
        """With a clock set by hand nothing would come while this thread waits."""
        self._fork_flag = ForkFlag.watch()
        self._positions = Positions()
        self.counts = ConsumerCounts(self._positions)
        self._topics = _names(topics)
        self._looked_ms = -(2**62)
        self._fetch: tuple[Pending[FetchResult], list[tuple[Position, int]]] | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._committed_ms = self._clock.monotonic_ms()
        self._woken = threading.Event()
        self._is_woken_up = self._is_closed = False
        assigned = check_partitions(partitions)
        if assigned and self._topics:
            raise UsageError("a consumer has topics or partitions, not both")
        self._positions.assign(assigned)
        self._on_assigned, self._on_revoked, self._on_lost = (
            on_assigned,
            on_revoked,
            on_revoked if on_lost is None else on_lost,
        )
        self._membership: Membership | None = None
        if self._topics:
            self._partitions_of(self._topics)  # or there is no such topic
        if self._topics and self.group is not None:
            self._membership = Membership(
                broker,
                self.group,
                self._topics,
                assignors=chosen,
                instance_id=self.config.group_instance_id,
                config=self.config,
                clock=self._clock,
                count_partitions=self._count_partitions,
                give_up=self._give_up,
                take=self._take_over,
            )
        self._look_for_partitions()

    # What it reads

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that it reads."""
        return tuple(sorted(self._positions.partitions))

    def assign(self, partitions: Iterable[PartitionName]) -> None:
        """Read these partitions from now on. Those that it has already keep their position.

        Raises:
            UsageError: the consumer subscribes to topics, or this is no list of partitions.
        """
        self._check_usable()
        if self._topics:
            raise UsageError("the consumer subscribes to topics; it finds their partitions itself")
        self._drop_fetch()
        self._positions.assign(check_partitions(partitions))

    def _look_for_partitions(self) -> None:
        """Find the partitions of the topics, from time to time. In a group they are assigned.

        Raises:
            UnknownTopicError: a topic is gone.
        """
        now_ms = self._clock.monotonic_ms()
        if not self._topics or now_ms - self._looked_ms < self.config.metadata_max_age_ms:
            return
        partitions = self._partitions_of(self._topics)
        self._looked_ms = now_ms
        if self._membership is None and set(partitions) != set(self._positions.partitions):
            self._drop_fetch()
            self._positions.assign(partitions)

    def _partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """
        found = self._ask(self._broker.metadata(MetadataRequest(tuple(topics))), "tell of the topics")
        partitions = []
        for topic in found.topics:
            if topic.error is not ErrorCode.NONE:
                raise error_of(topic.error, topic.message or f"topic {topic.name!r}: {topic.error.name}")
            partitions += [
                TopicPartition(topic.name, each.partition) for each in topic.partitions if each.leader_id >= 0
            ]
        return partitions

    def _count_partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Of the topics that there are, for the leader of the group."""
        found = self._ask(self._broker.metadata(MetadataRequest(tuple(topics))), "tell of the topics")
        return {topic.name: len(topic.partitions) for topic in found.topics if topic.error is ErrorCode.NONE}

    # Its group

    def _give_up(self, partitions: Sequence[TopicPartition], is_lost: bool) -> None:
        """Partitions are no longer its own."""
        if not is_lost and self.config.enable_auto_commit:
            self._commit_changed(partitions)
        tell = self._on_lost if is_lost else self._on_revoked
        if tell is not None:
            tell(tuple(partitions))
        self._drop_fetch()
        gone = set(partitions)
        self._positions.assign([each for each in self._positions.partitions if each not in gone])

    def _take_over(self, partitions: Sequence[TopicPartition]) -> None:
        self._drop_fetch()
        self._positions.assign([*self._positions.partitions, *partitions])
        if self._on_assigned is not None:
            self._on_assigned(tuple(partitions))

    def _take_part(self, left_ms: int) -> bool:
        """Be a member of the group. Returns False if it is not one yet, after so many milliseconds."""
        membership = self._membership
        if membership is None:
            return True
        deadline_ms = self._clock.monotonic_ms() + left_ms
        while True:
            while membership.step():
                pass
            if membership.is_member:
                return True
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or not self._may_wait:
                return False
            pending = membership.waits_for
            self._woken.clear()
            self._check_woken_up()
            if pending is None:
                self._woken.wait(min(left_ms, max(membership.wait_ms(), 1)) / 1000)
            else:
                pending.on_wake(self._woken.set)
                self._woken.wait(left_ms / 1000)

    def _check_woken_up(self) -> None:
        """
        Raises:
            RetriableError: :meth:`wakeup` was called.
        """
        if self._is_woken_up:
            self._is_woken_up = False
            raise RetriableError("wakeup() was called; poll again to go on")

    # Reading

    def poll(self, timeout: float | None = None, *, max_records: int | None = None) -> list[Record]:
        """The next records, of one partition; its partitions take turns. Waits for some if there are none.

        Args:
            timeout: how many seconds to wait at most: then the list is empty. By default without end.
            max_records: the most records; by default ``max_poll_records``.

        Raises:
            OffsetOutOfRangeError: what is next was deleted, and ``auto_offset_reset`` is ``"none"``.
            CorruptionError: a batch is damaged; names the partition and the offsets. The position stays: each
                poll that comes to it raises, until you :meth:`seek` past it.
            UnknownTopicError: a topic or partition is gone.
            RetriableError: :meth:`wakeup` was called.
            ClosedError, ForkedError: the consumer cannot be used.
        """
        self._check_usable()
        self.counts.poll_count += 1
        most = self.config.max_poll_records if max_records is None else max_records
        if type(most) is not int or most < 1:
            raise UsageError(f"max_records is {shown(most)}; it must be a whole number, 1 or above")
        if timeout is not None:
            timeout = check_timeout(timeout)
        if self.config.enable_auto_commit:
            self._commit_if_due()
        deadline_ms = None if timeout is None else self._clock.monotonic_ms() + int(timeout * 1000)
        while True:
            left_ms = _POLL_MS if deadline_ms is None else deadline_ms - self._clock.monotonic_ms()
            is_over = left_ms <= 0 or not self._may_wait
            if not self._take_part(left_ms):
                if is_over:
                    return []
                continue
            position = self._positions.with_records()
            if position is not None:
                found = position.take(most)
                self.counts.record_count += len(found)
                if not position.has_records:
                    self._positions.move_last(position)
                return found
            wait_ms = max(left_ms, 0)
            if self._membership is not None:
                wait_ms = min(wait_ms, self._membership.wait_ms())
            if not self._fetch_some(wait_ms) and is_over:
                return []

    def __iter__(self) -> Iterator[Record]:
        """Every record from here on, without end; waits for more. A :meth:`commit` in the loop covers the
        records up to the present one, and so does the position when the loop is left."""
        while True:
            yield from self._one_by_one(self.poll())

    def drain(self) -> Iterator[Record]:
        """Every record from here to the ends that the partitions have now, as the isolation shows them."""
        if not self._take_part(self.config.request_timeout_ms):
            raise RetriableError(f"group {self.group!r} still rebalances; try again, or poll()")
        ends = self.end_offsets()
        while any(
            self._at(each) < ends.get(each.partition, 0) and not each.is_paused for each in self._positions
        ):
            found = self.poll(timeout=self.config.fetch_max_wait_ms / 1000)
            if not found:
                continue
            partition = _partition_of(found[0])
            end = ends.get(partition, 0)
            if found[-1].offset < end:
                yield from self._one_by_one(found)
                continue
            for record in self._one_by_one(found):
                if record.offset >= end:
                    self._of(partition).seek(max(end, found[0].offset))
                    break
                yield record

    def _one_by_one(self, found: list[Record]) -> Iterator[Record]:
        """Records of a poll. The position moves with each; those that are not used come again."""
        position = self._positions.get(_partition_of(found[0])) if found else None
        if position is None:
            return
        behind, seek_count, used = position.offset, position.seek_count, 0
        try:
            for record in found:
                position.offset = record.offset + 1
                used += 1
                yield record
                if position.seek_count != seek_count:
                    return
        finally:
            if position.seek_count == seek_count:
                if used < len(found):
                    position.give_back(found[used:])
                else:
                    position.offset = behind

    def wakeup(self) -> None:
        """Let a waiting :meth:`poll`, or the next one, end with ``RetriableError``. From any thread."""
        self._is_woken_up = True
        self._woken.set()

    def _fetch_some(self, wait_ms: int) -> bool:
        """Fetch, and wait for the answer for so long. Whether anything was learned."""
        self._look_for_partitions()
        if self._fetch is None:
            self._find_positions()
            wanted = self._positions.to_fetch()
            self._fetch = (
                self._broker.fetch(self._fetch_request(wanted, wait_ms)),
                [(p, p.fetch_offset) for p in wanted],
            )
        pending, wanted_at = self._fetch
        result = self._wait(pending, wait_ms)
        if result is None:
            return False
        self._fetch = None
        learned = False
        failure: LogstoreError | None = None
        for (position, offset), fetched in zip(wanted_at, result.partitions, strict=True):
            if self._positions.get(position.partition) is position and position.fetch_offset == offset:
                try:
                    learned = self._take(position, fetched) or learned
                except LogstoreError as error:  # the others' records are there all the same
                    failure = failure or error
        if failure is not None:
            raise failure
        return learned

    def _fetch_request(self, wanted: list[Position], wait_ms: int) -> FetchRequest:
        limit = self.config.max_partition_fetch_bytes
        return FetchRequest(
            tuple(FetchPartition(each.partition, each.fetch_offset, limit) for each in wanted),
            max_wait_ms=wait_ms
            if self.config.fetch_min_bytes <= 1
            else min(wait_ms, self.config.fetch_max_wait_ms),
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            isolation=self.isolation,
        )

    def _wait(self, pending: Pending[FetchResult], wait_ms: int) -> FetchResult | None:
        result = pending.poll()
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        while result is None:
            self._woken.clear()
            self._check_woken_up()
            pending.on_wake(self._woken.set)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return pending.poll()
            if self._may_wait:
                self._woken.wait(left_ms / 1000)
            elif not self._woken.is_set():
                return None
            result = pending.poll()
        return result

    def _take(self, position: Position, fetched: FetchedPartition) -> bool:
        """Keep what was fetched of a partition. Whether that is something.

        Raises:
            LogstoreError: it could not be fetched.
        """
        if fetched.error is ErrorCode.NONE:
            began = position.fetch_offset
            self.counts.fetched_bytes += len(fetched.data)
            position.put(received_records(fetched, began), fetched.next_offset)
            return position.fetch_offset > began
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE and self.config.auto_offset_reset != "none":
            position.seek(NO_POSITION)
            self._reset([position])
            return True
        message = fetched.message or fetched.error.name
        error = error_of(fetched.error, f"{position.partition} at offset {position.fetch_offset}: {message}")
        if isinstance(error, CorruptionError):
            error.base_offset = position.fetch_offset
        raise error

    def _drop_fetch(self) -> None:
        if self._fetch is not None:
            self._fetch[0].cancel()
            self._fetch = None

    # Positions

    def _find_positions(self) -> None:
        """Begin where the group has committed an offset; else as ``auto_offset_reset`` says."""
        unknown = [each for each in self._positions if each.offset == NO_POSITION]
        if unknown and self.group is not None:
            committed = self.committed([each.partition for each in unknown])
            for position in unknown:
                value = committed.get(position.partition)
                if value is not None:
                    position.seek(value.offset)
        self._reset([each for each in unknown if each.offset == NO_POSITION])

    def _reset(self, positions: list[Position]) -> None:
        if not positions:
            return
        reset = self.config.auto_offset_reset
        if reset == "none":
            names = ", ".join(str(each.partition) for each in positions[:8])
            raise OffsetOutOfRangeError(
                f"there is no committed offset for {names}, and auto_offset_reset is 'none'; seek() sets one"
            )
        if isinstance(reset, timedelta):
            when: int = self._clock.now_ms() - reset // timedelta(milliseconds=1)
        else:
            when = EARLIEST if reset == "earliest" else LATEST
        self._seek_to([(each, when) for each in positions])

    def _seek_to(self, wanted: list[tuple[Position, int]]) -> None:
        found = self._list_offsets([(position.partition, when) for position, when in wanted])
        missing = [position for position, _ in wanted if found[position.partition] == NO_OFFSET]
        ends = self._list_offsets([(each.partition, LATEST) for each in missing])
        for position, _ in wanted:
            offset = found[position.partition]
            position.seek(ends[position.partition] if offset == NO_OFFSET else offset)

    def _list_offsets(self, wanted: list[tuple[TopicPartition, int]]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        request = ListOffsetsRequest(tuple(ListOffsetsPartition(*each) for each in wanted), self.isolation)
        answer = self._ask(self._broker.list_offsets(request), "look up offsets")
        for each in answer.partitions:
            if each.error is not ErrorCode.NONE:
                raise error_of(each.error, f"{each.partition}: {each.message or each.error.name}")
        return {each.partition: each.offset for each in answer.partitions}

    def _of(self, partition: PartitionName) -> Position:
        """
        Raises:
            UsageError: the consumer does not have the partition.
        """
        name = check_partition(partition)
        position = self._positions.get(name)
        if position is None:
            have = ", ".join(map(str, self.assignment[:8])) or "none"
            raise UsageError(f"the consumer does not read {name}; it reads {have}")
        return position

    def _at(self, position: Position) -> int:
        if position.offset == NO_POSITION:
            self._find_positions()
        return position.offset

    def position(self, partition: PartitionName) -> int:
        """The offset of the next record of a partition.

        Raises:
            UsageError: the consumer does not read it.
        """
        self._check_usable()
        return self._at(self._of(partition))

    def seek(self, partition: PartitionName, offset: int) -> None:
        """Go on at an offset. Offsets outside of the log are found out by the next poll, as in Kafka.

        Raises:
            UsageError: the consumer does not read the partition, or this is no offset.
        """
        self._check_usable()
        check_offset(offset, "offset")
        self._of(partition).seek(offset)
        self._drop_fetch()

    def seek_to_beginning(self, *partitions: PartitionName) -> None:
        """Go to the log start of these partitions; of all, if none is named."""
        self._seek_all(partitions, EARLIEST)

    def seek_to_end(self, *partitions: PartitionName) -> None:
        """Go to the end of these partitions; of all, if none is named."""
        self._seek_all(partitions, LATEST)

    def seek_to_time(self, timestamp_ms: Moment, *partitions: PartitionName) -> None:
        """Go to the first record at or after a time; to the end where there is none.

        Args:
            timestamp_ms: milliseconds since the epoch, or a datetime with its time zone.

        Raises:
            UsageError: no time, or a partition that the consumer does not read.
        """
        if isinstance(timestamp_ms, datetime):
            timestamp_ms = milliseconds_of(timestamp_ms, "timestamp_ms")
        if type(timestamp_ms) is not int or timestamp_ms < 0:
            raise UsageError(f"timestamp_ms is {shown(timestamp_ms)}; it must be milliseconds, or a datetime")
        self._seek_all(partitions, timestamp_ms)

    def _seek_all(self, partitions: tuple[PartitionName, ...], when: int) -> None:
        self._check_usable()
        wanted = [self._of(each) for each in partitions] if partitions else list(self._positions)
        self._drop_fetch()
        self._seek_to([(each, when) for each in wanted])

    def pause(self, *partitions: PartitionName) -> None:
        """Return no records of these partitions for now; of all, if none is named."""
        for each in [self._of(each) for each in partitions] if partitions else list(self._positions):
            each.is_paused = True

    def resume(self, *partitions: PartitionName) -> None:
        """Return records of these partitions again; of all, if none is named."""
        for each in [self._of(each) for each in partitions] if partitions else list(self._positions):
            each.is_paused = False
        self._drop_fetch()

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return tuple(sorted(each.partition for each in self._positions if each.is_paused))

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """The log start offset of each of its partitions."""
        self._check_usable()
        return self._list_offsets([(each.partition, EARLIEST) for each in self._positions])

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The end of each of its partitions, as the isolation shows it."""
        self._check_usable()
        return self._list_offsets([(each.partition, LATEST) for each in self._positions])

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind its end."""
        ends = self.end_offsets()
        return {each.partition: max(ends[each.partition] - self._at(each), 0) for each in self._positions}

    # Commits

    def commit(self, offsets: Mapping[Any, int | OffsetAndMetadata] | Record | None = None) -> None:
        """Commit where the group is, atomically over partitions. What was returned by :meth:`poll` counts as
        read.

        Args:
            offsets: partition -> the next offset to read; or a record: the offset behind it, for its
                partition. By default the positions of all partitions.

        Raises:
            UsageError: the consumer has no group, or does not read a partition.
            LogstoreError: the commit was refused.
        """
        self._check_usable()
        if self.group is None:
            raise UsageError(
                "the consumer has no group to commit offsets for; consumer(..., group='billing')"
            )
        if isinstance(offsets, Record):
            values = {_partition_of(offsets): offsets.offset + 1}
        elif offsets is None:
            values = {each.partition: each.offset for each in self._positions if each.offset != NO_POSITION}
        else:
            values = dict(offsets)
        wanted = {
            self._of(each).partition: value
            if isinstance(value, OffsetAndMetadata)
            else OffsetAndMetadata(_checked_offset(value))
            for each, value in values.items()
        }
        if not wanted:
            return
        self._commit(wanted)

    def _commit(self, wanted: dict[TopicPartition, OffsetAndMetadata]) -> None:
        assert self.group is not None
        request = OffsetCommitRequest(self.group, wanted)
        membership = self._membership
        if membership is not None:
            request = request._replace(
                generation=membership.generation,
                member_id=membership.member_id,
                instance_id=self.config.group_instance_id,
            )
        result = self._ask(self._broker.offset_commit(request), "commit offsets")
        if membership is not None and result.error in _NO_MEMBER:
            membership.refused(result.error)
            raise RetriableError(
                f"group {self.group!r} rebalances, and nothing was committed; what was read since the last "
                "commit comes again, here or to another member"
            )
        if result.error is not ErrorCode.NONE:
            failed = [str(each) for each, code in result.errors.items() if code is not ErrorCode.NONE]
            what = result.message or result.error.name
            raise error_of(
                result.error, f"group {self.group!r}: no offset was committed for {', '.join(failed)}: {what}"
            )
        self.counts.commit_count += 1
        self._committed.update({each: value.offset for each, value in wanted.items()})
        self._committed_ms = self._clock.monotonic_ms()

    def _commit_if_due(self) -> None:
        if self._clock.monotonic_ms() - self._committed_ms >= self.config.auto_commit_interval_ms:
            self._commit_changed()

    def _commit_changed(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        if self.group is None:
            return
        wanted = set(self._positions.partitions if partitions is None else partitions)
        changed = {
            each.partition: OffsetAndMetadata(each.offset)
            for each in self._positions
            if each.partition in wanted
            and each.offset not in (NO_POSITION, self._committed.get(each.partition))
        }
        self._committed_ms = self._clock.monotonic_ms()
        if changed:
            self._commit(changed)

    def committed(
        self, partitions: Iterable[PartitionName] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed for these partitions; for its own, if none are named.

        Raises:
            UsageError: the consumer has no group.
        """
        if self.group is None:
            raise UsageError("the consumer has no group; consumer(..., group='billing')")
        names = self.assignment if partitions is None else tuple(check_partitions(partitions))
        is_committed = self.isolation is Isolation.COMMITTED
        while True:
            request = OffsetFetchRequest(self.group, names, is_committed)
            result = self._ask(self._broker.offset_fetch(request), "tell of committed offsets")
            if result.error is ErrorCode.NONE and not result.unstable:
                return dict(result.offsets)
            if result.error is not ErrorCode.NONE and result.error not in RETRIABLE:
                raise error_of(result.error, result.message or result.error.name)
            raise RetriableError(
                f"group {self.group!r} has offsets in an open transaction"
                if result.unstable
                else f"group {self.group!r}: {result.message or result.error.name}"
            )

    # The end

    def close(self) -> None:
        """Commit, if that is automatic, leave the group, and stop. You may call it again."""
        if self._is_closed:
            return
        try:
            if self.config.enable_auto_commit:
                self._commit_changed()
        finally:
            self._stop()

    def _stop(self) -> None:
        self._is_closed = True
        self.counts.positions = None
        self._drop_fetch()
        if self._membership is not None:
            self._membership.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if not self._is_closed:
                self._stop()  # what was being worked on when the error came is not committed
            return
        self.close()

    def _ask(self, pending: Pending[Any], what: str) -> Any:
        result = wait_for(pending, self.config.request_timeout_ms / 1000)
        if result is None:
            raise RetriableError(f"the broker did not {what} within request_timeout_ms")
        return result

    def _check_usable(self) -> None:
        self._fork_flag.check_usable("the consumer", is_closed=self._is_closed)

    def __repr__(self) -> str:
        of = "" if self.group is None else f" of group {self.group!r}"
        return f"<Consumer{of}: {len(self._positions)} partitions>"


def _partition_of(record: Record) -> TopicPartition:
    """
    Raises:
        UsageError: the record does not say where it was read.
    """
    if record.topic is None or record.partition is None:
        raise UsageError("the record does not say of which partition it is; commit a mapping of offsets")
    return TopicPartition(record.topic, record.partition)


def _checked_offset(offset: object) -> int:
    check_offset(offset, "offset")  # type: ignore[arg-type]
    return offset  # type: ignore[return-value]


def _names(topics: Iterable[str]) -> tuple[str, ...]:
    """
    Raises:
        UsageError: these are no names of topics.
    """
    if isinstance(topics, str):
        topics = (topics,)
    names = tuple(plain_text(each) for each in topics)
    for name in names:
        if type(name) is not str:
            raise UsageError(f"{shown(name)} is no name of a topic")
    return tuple(dict.fromkeys(names))
