"""The consumer: reads records of topics or partitions from a broker, and remembers where it is.

It has no thread. A call fetches what is there, and waits in the calling thread if there is nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from logstore.arguments import check_callback, milliseconds_of, shown
from logstore.broker.broker import Broker
from logstore.broker.pending import Wake, call_wake
from logstore.broker.requests import EARLIEST, LATEST, NO_EPOCH, ListedOffset, OffsetCommitRequest
from logstore.clients.assignors import Assignor, choose_assignors
from logstore.clients.commits import Commits
from logstore.clients.counts import ConsumerCounts
from logstore.clients.fetches import Fetches
from logstore.clients.interceptors import Arrival, ConsumerInterceptor
from logstore.clients.membership import Membership
from logstore.clients.offsets import PartitionName, check_group, check_partitions, check_topics
from logstore.clients.polling import Polling, wake_none
from logstore.clients.positions import NO_POSITION, Position, Positions, partition_of
from logstore.clients.seats import Seats
from logstore.clients.seeking import Seeking
from logstore.clients.settings import ConsumerConfig
from logstore.clients.subscription import SubscribedTopics
from logstore.clients.usable import Usable
from logstore.clock import Clock, SystemClock
from logstore.errors import InvalidConfigError, LogstoreError, RetriableError, UsageError
from logstore.model import BoundToProcess, Isolation, Moment, OffsetAndMetadata, Record, TopicPartition
from logstore.partition.arguments import check_isolation, check_offset, check_timeout
from logstore.serializing import DecoderChoice, SerializedRecord

if TYPE_CHECKING:
    import pyarrow

OnRebalance = Callable[[tuple[TopicPartition, ...]], object]
"""Called in :meth:`Consumer.poll` with partitions that the consumer got, or has to give up; and in
:meth:`Consumer.close`."""

T = TypeVar("T")
U = TypeVar("U")
F = TypeVar("F", bound=Sized)

_UNSTABLE_MS = 20
"""How often to look whether a transaction that commits offsets is over."""


class Consumer(BoundToProcess):
    """Reads records. Made by :meth:`.Store.consumer`. Use it in a ``with`` statement, or call :meth:`close`.

    For one thread at a time: while one polls, calls of another raise ``UsageError``. :meth:`wakeup` and
    :meth:`close` may be called from any.
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
        key_deserializer: DecoderChoice | None = None,
        value_deserializer: DecoderChoice | None = None,
        interceptors: Iterable[ConsumerInterceptor] = (),
        seats: Seats | None = None,
    ) -> None:
        """``seats``: of the consumers of the same store. Without, one that is dropped stays in its group."""
        check_isolation(isolation)
        callbacks = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        for name, callback in callbacks.items():
            check_callback(callback, name)
        chosen = choose_assignors(assignors)
        self._arrival = Arrival(key_deserializer, value_deserializer, interceptors)
        self.config = config or ConsumerConfig()
        """The settings."""
        self.isolation = isolation
        """How far it sees."""
        self.group = _group_of(group, self.config)
        """The group that its offsets are committed for."""
        self._broker = broker
        self._clock = clock or SystemClock()
        self._may_wait = isinstance(self._clock, SystemClock)
        """With a clock set by hand nothing would come while this thread waits."""
        self._usable = Usable("consumer")
        self._positions = Positions()
        self.counts = ConsumerCounts(self._positions)
        self._topics = SubscribedTopics(broker, check_topics(topics), self.config, self._clock)
        self._commits = Commits(broker, self.group, self._positions, self.config, self._clock, self.counts)
        commits = None if self.group is None else self._commits
        self._seeking = Seeking(broker, self._positions, commits, isolation, self.config, self._clock)
        self._fetches = Fetches(
            broker, self._positions, self._seeking, isolation, self.config, self._clock, self.counts
        )
        self._giving: tuple[Position | None, int] = None, 0
        """Whose records an iterator gives, if its ``seek_count`` is still that."""
        self._taking: tuple[Position, int, int] | None = None
        """Of what a poll takes records that its caller does not have yet, with the offset and the
        ``seek_count`` before."""
        self._wake: Wake | None = None
        self._is_woken_up = False
        assigned = check_partitions(partitions)
        if assigned and self._topics.names:
            raise UsageError("a consumer has topics or partitions, not both")
        self._positions.assign(assigned)
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._on_lost = on_revoked if on_lost is None else on_lost
        self._membership: Membership | None = None
        self._seats = seats
        if self._topics.names:
            self._subscribe(chosen)

    def _subscribe(self, assignors: tuple[Assignor, ...]) -> None:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """
        found = self._topics.partitions()
        if self.group is None:
            self._positions.assign(found)
            return
        self._membership = self._commits.membership = self._new_membership(self.group, assignors)
        self.counts.is_member = True
        if self._seats is not None and self.config.group_instance_id is None:
            self._seats.keep(self, self._membership.seat)

    def _new_membership(self, group: str, assignors: tuple[Assignor, ...]) -> Membership:
        return Membership(
            self._broker,
            group,
            self._topics.names,
            assignors=assignors,
            instance_id=self.config.group_instance_id,
            config=self.config,
            clock=self._clock,
            count_partitions=self._topics.count_partitions,
            give_up=_weakly(self._give_up),
            take=_weakly(self._take_over),
        )

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
        if self._topics.names:
            raise UsageError("the consumer subscribes to topics; it finds their partitions itself")
        self._fetches.drop()
        self._positions.assign(check_partitions(partitions))

    def _look_for_partitions(self) -> None:
        """Find the partitions of the topics, from time to time. In a group they are assigned.

        Raises:
            UnknownTopicError: a topic is gone.
        """
        partitions = self._topics.partitions_if_due()
        if partitions is None or self._membership is not None:
            return
        if set(partitions) != set(self._positions.partitions):
            self._fetches.drop()
            self._positions.assign(partitions)

    # Its group

    def _give_up(self, partitions: Sequence[TopicPartition], is_lost: bool) -> None:
        """Partitions are no longer its own."""
        try:
            if not is_lost:
                self._commits.commit_changed(partitions)
        finally:
            is_removed = self._membership is not None and self._membership.is_removed
            self._tell_and_forget(partitions, is_lost or is_removed)

    def _tell_and_forget(self, partitions: Sequence[TopicPartition], is_lost: bool) -> None:
        tell = self._on_lost if is_lost else self._on_revoked
        try:
            if tell is not None:
                tell(tuple(partitions))
        finally:  # whatever it raises, others may have them now
            self._fetches.drop()
            gone = set(partitions)
            self._positions.assign([each for each in self._positions.partitions if each not in gone])

    def _take_over(self, partitions: Sequence[TopicPartition]) -> None:
        self._fetches.drop()
        self._positions.assign([*self._positions.partitions, *partitions])
        if self._on_assigned is not None:
            self._on_assigned(tuple(partitions))

    def _take_part(self) -> bool:
        """Do what membership in the group asks for now. Whether it is a member, or needs no group."""
        membership = self._membership
        if membership is None:
            return True
        if self._seats:
            self._seats.give_back()
        while membership.step():
            pass
        return membership.is_member

    # Reading

    def poll(self, timeout: float | None = None, *, max_records: int | None = None) -> list[Any]:
        """The next records, of one partition; its partitions take turns. Waits for some if there are none.

        They are :class:`~logstore.model.Record`, or with deserializers
        :class:`~logstore.serializing.SerializedRecord`.

        Args:
            timeout: how many seconds to wait at most: then the list is empty. By default without end.
            max_records: the most records; by default ``max_poll_records``.

        Raises:
            OffsetOutOfRangeError: what is next was deleted, and ``auto_offset_reset`` is ``"none"``.
            CorruptionError: a batch is damaged; names the partition and the offsets. The position stays: each
                poll that comes to it raises, until you :meth:`seek` past it.
            UnknownTopicError: a topic or partition is gone.
            InvalidRecordError: a deserializer refuses a record; names it. The records before it were given by
                the poll before. The position stays, as with damage.
            RetriableError: :meth:`wakeup` was called.
            StorageError: the group cannot be stored, as on a full disk, and so has no members. The next poll
                joins again.
            UsageError: there is nothing to read, or another thread polls.
            ClosedError, ForkedError: the consumer cannot be used; it or its store was closed, also while this
                call waits.
            Exception: what an interceptor raises. The records come again.
        """
        return self._wait_for(self.begin_poll(timeout, max_records=max_records))

    def begin_poll(
        self, timeout: float | None = None, *, max_records: int | None = None
    ) -> Polling[list[Any]]:
        """Begin a :meth:`poll`, and do not wait: for an event loop that drives many consumers without a
        thread for each. Arguments and errors are those of :meth:`poll`; what goes wrong later is raised by
        the :class:`~logstore.clients.polling.Polling`.

        Records, rebalances and new partitions are waited for without a thread. Where a partition begins (its
        committed offset, its ends) a broker in this process says at once; the calling thread waits for any
        other.
        """
        self._check_usable()
        most = self.config.max_poll_records if max_records is None else max_records
        if type(most) is not int or most < 1:
            raise UsageError(f"max_records is {shown(most)}; it must be a whole number, 1 or above")
        return self._begin(lambda position: self._given(position, position.take(most)), list, timeout)

    def poll_fetched(self, max_records: int) -> list[Any]:
        """Records of the next partition, if they were fetched already; none if not. The group cannot
        rebalance meanwhile: what earlier polls gave still is this consumer's.

        Raises:
            LogstoreError: as :meth:`poll`.
        """
        self._check_usable()
        polling = self._polling(
            lambda _: self._take_fetched(lambda position: self._given(position, position.take(max_records))),
            list,
            0,
        )
        return self._wait_for(polling)

    def poll_arrow(
        self, timeout: float | None = None, *, columns: Iterable[str] | None = None
    ) -> pyarrow.RecordBatch:
        """Like :meth:`poll`, as columns: a batch of up to ``max_partition_fetch_bytes`` of one partition, of
        which its schema's metadata have the ``topic`` and ``partition``; no rows when the time is over.
        ``columns``: as :meth:`.Log.read_arrow`. Needs pyarrow. Cost: 0.04 µs per record of 100 bytes.

        Raises:
            UsageError: an unknown column; or the consumer has deserializers or interceptors.
            LogstoreError: as :meth:`poll`. What comes before damage was given by the poll before.
        """
        from logstore.clients.columns import ColumnTaker  # pyarrow is optional, and slow to import

        self._check_usable()
        if self._arrival.is_needed:
            raise UsageError("poll_arrow() gives bytes: use it without deserializers and interceptors")
        taker = ColumnTaker(columns)
        return self._wait_for(self._begin(taker.take, taker.nothing, timeout))

    def _begin(
        self, take: Callable[[Position], F], nothing: Callable[[], F], timeout: float | None
    ) -> Polling[F]:
        self._check_has_partitions()
        self.counts.poll_count += 1
        timeout = None if timeout is None else check_timeout(timeout)
        self._taking = None
        self._take_back()
        self._commits.commit_if_due()
        return self._polling(lambda left_ms: self._poll_now(left_ms, take), nothing, timeout)

    def _polling(
        self, step: Callable[[int], T | None], nothing: Callable[[], T], timeout: float | None
    ) -> Polling[T]:
        timeout_ms = None if timeout is None else int(timeout * 1000)
        return Polling(step, nothing, self._clock, timeout_ms, self._on_wake, self._due_ms)

    def _poll_now(self, left_ms: int, take: Callable[[Position], F]) -> F | None:
        """The next records that are there. None: it waits for something."""
        until_ms = self._clock.monotonic_ms() + left_ms
        while True:
            self._usable.check_open()
            self._check_woken_up()
            if not self._take_part():
                return None
            self._look_for_partitions()
            found = self._take_fetched(take)
            if found is not None:
                return found
            if not self._fetches.step(max(until_ms - self._clock.monotonic_ms(), 0)):
                return None

    def _take_fetched(self, take: Callable[[Position], F]) -> F | None:
        """The next records that were fetched. None: there are none."""
        while (position := self._positions.with_records()) is not None:
            self._taking = position, position.offset, position.seek_count
            try:
                found = take(position)
            finally:
                if not position.has_records:
                    self._positions.move_last(position)
            if len(found):
                self.counts.record_count += len(found)
                return found
        return None

    def _given(self, position: Position, taken: list[Record]) -> list[Any]:
        """Records as the caller gets them. What he cannot get comes again."""
        if not self._arrival.is_needed:
            return taken
        found, error = self._arrival.decode(taken)
        try:
            if error is not None and not found:
                raise error
            given = self._arrival.intercept(found)
        except BaseException:
            position.give_back()
            self._positions.move_last(position)
            raise
        if error is not None:
            position.give_back(taken[len(found)].offset)
        return given

    def _due_ms(self) -> int:
        """In how many milliseconds there is something to do, although nothing has come."""
        due_ms = self._topics.due_ms() if self._membership is None else self._membership.wait_ms()
        if self._fetches.is_throttled:
            due_ms = min(due_ms, self._fetches.throttle_ms)
        return min(due_ms, _UNSTABLE_MS) if self._seeking.is_waiting else due_ms

    def _on_wake(self, wake: Wake | None) -> None:
        self._wake = wake
        joins = None if self._membership is None else self._membership.waits_for
        pending = joins or self._fetches.waits_for
        for each in (pending, self._topics.waits_for):
            if each is not None:
                each.on_wake(wake or wake_none)
        if self._is_woken_up or self._usable.is_over:
            call_wake(wake)

    def _has_begun(self) -> bool:
        """Whether it has its partitions, and knows where it is in each."""
        if not self._take_part():
            return False
        self._look_for_partitions()
        self._seeking.find()
        return not self._seeking.is_waiting

    def _wait_for(self, polling: Polling[T]) -> T:
        """Wait in this thread."""
        return self._wait_and(polling, _same)

    def _wait_and(self, polling: Polling[T], use: Callable[[T], U]) -> U:
        """Wait in this thread, and make something of what comes."""
        try:
            used = use(self._usable.alone(polling.wait))
        except LogstoreError:
            raise
        except BaseException:  # an interrupt, such as Ctrl-C, comes in the middle of anything
            self._fetch_anew()
            raise
        self._taking = None
        return used

    def _fetch_anew(self) -> None:
        """What was fetched and did not get to the caller comes again, also what was about to."""
        self._fetches.drop()
        if self._taking is not None:
            position, offset, seek_count = self._taking
            if position.seek_count == seek_count:
                position.offset = offset
            self._positions.keep(position)
        for position in self._positions:
            position.go_to(position.offset)

    def _check_woken_up(self) -> None:
        """
        Raises:
            RetriableError: :meth:`wakeup` was called.
        """
        if self._is_woken_up:
            self._is_woken_up = False
            raise RetriableError("wakeup() was called; poll again to go on")

    def __iter__(self) -> Iterator[Any]:
        """Every record from here on, without end; waits for more. A :meth:`commit` in the loop covers the
        records up to the present one, and so does the position when the loop is left. A :meth:`poll` or
        :meth:`drain` meanwhile takes what is next, and the loop goes on behind that."""
        while True:
            yield from self._wait_and(self.begin_poll(), self.one_by_one)

    def drain(self) -> Iterator[Any]:
        """Every record from here to the ends that the partitions have now, as the isolation shows them.

        Raises:
            RetriableError: the group rebalanced, or had offsets in an open transaction, for longer than
                ``request_timeout_ms``.
            LogstoreError: as :meth:`poll`.
        """
        self._check_usable()
        self._check_has_partitions()
        beginning = self._polling(
            lambda _: self._has_begun() or None, lambda: False, self.config.request_timeout_ms / 1000
        )
        if not self._wait_for(beginning) and not self._seeking.is_waiting:
            raise RetriableError(f"group {self.group!r} still rebalances; try again, or poll()")
        listed = self._seeking.look_up(self._positions.partitions, LATEST)
        self._leave_what_is_gone(listed)
        ends = {partition: found.offset for partition, found in listed.items()}
        while any(
            self._at(each) < ends.get(each.partition, 0) and not each.is_paused for each in self._positions
        ):
            polling = self.begin_poll(self.config.fetch_max_wait_ms / 1000)
            found, records = self._wait_and(polling, lambda found: (found, self.one_by_one(found)))
            if not found and self._fetches.is_throttled and not self._may_wait:
                raise RetriableError("a quota is exceeded; let the clock go on, and drain again")
            if not found:
                self._pass_gaps(ends)
                continue
            partition = partition_of(found[0])
            end = ends.get(partition, 0)
            if found[-1].offset < end:
                yield from records
                continue
            for record in records:
                if record.offset >= end:
                    self._positions.of(partition).go_to(max(end, found[0].offset))
                    break
                yield record

    def _leave_what_is_gone(self, ends: Mapping[TopicPartition, ListedOffset]) -> None:
        """Go back where a log was cut and has not grown beyond a position since: no fetch would follow there.
        The epoch of its leader is another one then."""
        doubtful = [
            each
            for each in self._positions
            if (end := ends.get(each.partition)) is not None
            and not each.is_paused
            and self._at(each) >= end.offset
            and each.epoch not in (NO_EPOCH, end.leader_epoch)
        ]
        if doubtful:
            self._fetches.leave_what_is_gone(doubtful)

    def _pass_gaps(self, ends: dict[TopicPartition, int]) -> None:
        """Go to the ends that no record is in front of."""
        for each in list(self._positions):
            end = ends.get(each.partition, 0)
            if self._at(each) < end and not each.is_paused and self._fetches.are_none_left(each, end):
                each.go_to(end)

    def one_by_one(self, found: list[Any]) -> Iterator[Any]:
        """Records of a poll. The position moves with each; those that are not used come again."""
        position = self._positions.get(partition_of(found[0])) if found else None
        if position is None:
            return iter(())
        position.begin_one_by_one(found[0].offset)
        self._giving = position, position.seek_count
        return self._each(found, *self._giving)

    def _each(self, found: list[Any], position: Position, seek_count: int) -> Iterator[Any]:
        if position.seek_count != seek_count:
            return
        try:
            for record in found:
                position.offset = record.offset + 1
                yield record
                if position.seek_count != seek_count:
                    return
        finally:
            if position.seek_count == seek_count:
                position.end_one_by_one()

    def _take_back(self) -> None:
        """What an iterator that still lives has not given yet is what comes next."""
        position, seek_count = self._giving
        if position is not None and position.seek_count == seek_count:
            position.end_one_by_one()

    def give_back(self, given: list[Any]) -> None:
        """Records of the last poll that its caller has not used, from the first of them on: they come again,
        and the position is before them. Does no more than that."""
        position = self._positions.get(partition_of(given[0])) if given else None
        if position is not None:
            position.give_back(given[0].offset)

    def wakeup(self) -> None:
        """Let a waiting :meth:`poll`, or the next one, end with ``RetriableError``. From any thread."""
        self._is_woken_up = True
        call_wake(self._wake)

    # Positions

    def _at(self, position: Position) -> int:
        if position.offset == NO_POSITION:
            self._seeking.find()
        if position.offset == NO_POSITION:
            raise RetriableError(
                f"the group's offset of {position.partition} is in an open transaction; poll() waits for it"
            )
        return position.offset

    def position(self, partition: PartitionName) -> int:
        """The offset of the next record of a partition.

        Raises:
            UsageError: the consumer does not read it.
            RetriableError: the group's offset is in an open transaction; :meth:`poll` waits for it.
        """
        self._check_usable()
        return self._at(self._positions.of(partition))

    def seek(self, partition: PartitionName, offset: int) -> None:
        """Go on at an offset. Offsets outside of the log are found out by the next poll, as in Kafka.

        Raises:
            UsageError: the consumer does not read the partition, or this is no offset.
        """
        self._check_usable()
        check_offset(offset, "offset")
        self._positions.of(partition).seek(offset)
        self._fetches.drop()

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
        wanted = self._positions.named(partitions)
        self._fetches.drop()
        self._seeking.seek_to(wanted, when)

    def pause(self, *partitions: PartitionName) -> None:
        """Return no records of these partitions for now; of all, if none is named."""
        self._check_usable()
        for each in self._positions.named(partitions):
            each.is_paused = True

    def resume(self, *partitions: PartitionName) -> None:
        """Return records of these partitions again; of all, if none is named."""
        self._check_usable()
        for each in self._positions.named(partitions):
            each.is_paused = False
        self._fetches.drop()

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return tuple(sorted(each.partition for each in self._positions if each.is_paused))

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """The log start offset of each of its partitions."""
        self._check_usable()
        return self._seeking.offsets(self._positions.partitions, EARLIEST)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The end of each of its partitions, as the isolation shows it."""
        self._check_usable()
        return self._seeking.offsets(self._positions.partitions, LATEST)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind its end.

        Raises:
            RetriableError: as :meth:`position`.
        """
        ends = self.end_offsets()
        return {each.partition: max(ends[each.partition] - self._at(each), 0) for each in self._positions}

    # Commits

    def commit(
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | Record | SerializedRecord | None = None
    ) -> None:
        """Commit where the group is, atomically over partitions. What was returned by :meth:`poll` counts as
        read.

        Args:
            offsets: partition -> the next offset to read; or a record: the offset behind it, for its
                partition. By default the positions of all partitions.

        Raises:
            UsageError: the consumer has no group, or does not read a partition.
            UnknownTopicError: a topic is gone, or was made again since the consumer has read in it: the
                offset is one of the old topic. The other partitions are committed.
            RetriableError: the group rebalances; what was read since the last commit comes again.
            LogstoreError: the commit was refused.
        """
        self._check_usable()
        self._commits.commit(offsets)

    def commit_request(
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | Record | SerializedRecord | None = None
    ) -> OffsetCommitRequest:
        """What :meth:`commit` would ask the broker for: for :meth:`.Transaction.commit_offsets`.

        Raises:
            UsageError: the consumer has no group, or does not read a partition.
        """
        self._check_usable()
        return self._commits.request_for(offsets)

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition of which that is known."""
        self._check_usable()
        return self._positions.offsets()

    def committed(
        self, partitions: Iterable[PartitionName] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed for these partitions; for its own, if none are named.

        Raises:
            UsageError: the consumer has no group.
            RetriableError: an open transaction is about to commit offsets of one.
        """
        self._check_usable()
        names = self.assignment if partitions is None else tuple(check_partitions(partitions))
        return self._commits.committed(names)

    # The end

    def close(self) -> None:
        """Commit, if that is automatic, call ``on_revoked``, leave the group, and stop. A poll that waits in
        another thread ends with ``ClosedError``. You may call it again. A ``with`` block that ends with an
        error neither commits nor calls ``on_revoked``: what was being worked on comes again.

        Raises:
            Exception: what ``on_revoked`` raises. The consumer has left all the same.
        """
        if self._usable.is_closed:
            return
        self._usable.close(self._wake_poll)
        membership, usable = self._membership, self._usable
        try:
            if membership is None or usable.is_forked or usable.is_store_closed:
                self._commits.commit_changed(self._positions.partitions)
            else:
                usable.one_last_time(membership.give_up_all)
        finally:
            self._stop()

    def note_closed_store(self) -> None:
        """Its store is closed: from now on calls raise ``ClosedError``, and so does a poll that waits. From
        any thread."""
        self._usable.is_store_closed = True
        self._wake_poll()

    def _wake_poll(self) -> None:
        call_wake(self._wake)

    def _stop(self) -> None:
        self.counts.positions = None
        self._fetches.drop()
        if self._membership is not None and not self._usable.is_forked:
            self._membership.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if not self._usable.is_closed:
                self._usable.close(self._wake_poll)
                self._stop()  # what was being worked on when the error came is not committed
            return
        self.close()

    def _check_usable(self) -> None:
        self._usable.check()

    def _check_has_partitions(self) -> None:
        """
        Raises:
            UsageError: nothing would ever come.
        """
        if not self._topics.names and not len(self._positions):
            raise UsageError(
                "the consumer has no topics and no partitions to read: store.consumer('orders'), or "
                "assign([('orders', 0)])"
            )

    def __repr__(self) -> str:
        of = "" if self.group is None else f" of group {self.group!r}"
        return f"<Consumer{of}: {len(self._positions)} partitions>"


def _group_of(group: str | None, config: ConsumerConfig) -> str | None:
    """
    Raises:
        InvalidConfigError: there is no group to commit for, and the settings say so.
        UsageError: it is no name of a group.
    """
    if group is not None:
        return check_group(group)
    if config.enable_auto_commit:
        raise InvalidConfigError(
            "enable_auto_commit is True, and there is no group to commit for; group='billing' names one"
        )
    return None


def _weakly(method: Callable[..., object]) -> Callable[..., None]:
    """As long as its consumer is there: one that its program drops is to be gone at once."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> None:
        found = reference()
        if found is not None:
            found(*arguments)

    return call


def _same(found: T) -> T:
    return found
