"""A partition in a share group: its records' states, held against its log and kept in storage.

Lock: ``_lock`` guards the states. While it is held a log may be read and appended to, but no lock of another
partition in a share group is taken, and none of a group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.share.dead_letters import Failed, FailedLines, Letters, Outcomes
from logstore.broker.share.partition import NEVER, Acknowledgement, SharePartition, Span, without
from logstore.broker.share.requests import (
    AcknowledgeBatch,
    AcknowledgedPartition,
    AcknowledgePartition,
    AcquiredRecords,
    ShareFetchedPartition,
    ShareGroupConfig,
    SharePartitionState,
    TopicIdPartition,
)
from logstore.broker.share.states import RecordState
from logstore.broker.share.stored import ShareChange, ShareState
from logstore.broker.share.stretch import Stretch
from logstore.clock import Clock
from logstore.errors import CorruptionError, LogstoreError, StorageError
from logstore.format.messages.share_records import NO_TIME, ShareBatch, ShareKey
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, TopicPartition
from logstore.partition.log import Log
from logstore.partition.writing.waits import Wait
from logstore.warning import warn

_RECORD_BYTES: Final = 1024
"""What a record is taken to need before any was read."""
_LEAST_BYTES: Final = 16 * 1024
_BURY_AGAIN_MS: Final = 1_000
"""How long to wait after the dead-letter topic could not be written."""
_LONGEST_BURY_AGAIN_MS: Final = 60_000
"""How long until it is tried again if no worker asks for anything, after many times; that is where others
lead the topic."""

NO_LIMIT: Final = 2**31
"""As ``delivery_count_limit``: for those who only look."""

_STORED_AS: Final = {
    RecordState.AVAILABLE: RecordState.AVAILABLE,
    RecordState.ACQUIRED: RecordState.AVAILABLE,  # their workers end with this process
    RecordState.ACKNOWLEDGED: RecordState.ACKNOWLEDGED,
    RecordState.ARCHIVED: RecordState.ARCHIVED,
}

_WAITING: Final = (RecordState.AVAILABLE, RecordState.FAILED)
"""Jobs that are not done, and that no worker has."""
_MAKE_NOTHING_AVAILABLE: Final = {Acknowledgement.GAP, Acknowledgement.ACCEPT, Acknowledgement.RENEW}

_TAKEN_IN: Final = {ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE}
"""Of what a worker says, all or a part."""

_READ_AS: Final[dict[int, RecordState]] = {
    int(state): state for state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
}


_NOT_CUT: Final = 2**63
"""Above each offset."""


class ShareStorage(Protocol):
    """Where the states of records are kept."""

    def write(
        self, changes: Iterable[tuple[ShareKey, ShareState | ShareChange | None]], *, flush: bool = False
    ) -> None:
        """Store whole states, changes, or that there is none any more. When it returns they survive the
        death of the process; with ``flush`` also a power cut.

        Raises:
            LogstoreError: nothing was stored of a partition.
        """
        ...


class Exchanged(NamedTuple):
    """What a worker gets of a partition, and what became of what it had."""

    fetched: ShareFetchedPartition | None
    """None: nothing is available."""
    acknowledged: AcknowledgedPartition


class _Unstored:
    """What a worker says of records that it has, planned and not stored yet."""

    def __init__(self, plan: list[Span]) -> None:
        self.plan = plan

    @property
    def freed_count(self) -> int:
        """How many offsets it has no more then."""
        return sum(span.last - span.first + 1 for span in self.plan if span.state is not RecordState.ACQUIRED)

    def clear(self) -> None:
        """It was stored."""
        self.plan = []


class HeldPartition:
    """One partition in one group."""

    def __init__(
        self,
        directory: LogDirectory,
        storage: ShareStorage,
        key: ShareKey,
        partition: TopicPartition,
        records: SharePartition,
        config: ShareGroupConfig,
        letters: Letters,
    ) -> None:
        self.key = key
        self.partition = partition
        self.shared = TopicIdPartition(partition, key.topic_id)
        """As requests and results name it."""
        self._directory = directory
        self._failed_lines = FailedLines()
        self._clock: Clock = directory.context.clock
        self._storage = storage
        self._records = records
        self._config = config
        self._letters = letters
        self._is_burying = False
        """Failed records are on their way."""
        self._bury_again_ms = _BURY_AGAIN_MS
        self._set_aside: list[Span] = []
        """Failed records that the dead-letter topic could not take, unlike others: not now."""
        self._lock = threading.Lock()
        self._ended = ErrorCode.NONE
        self._bury_from_ms = -NEVER
        self._cut_at = _NOT_CUT
        """Where the log was cut, if that is still to be noted: it may have grown since."""
        self._stretch: Stretch | None = None
        """What was read last, and not all of it taken."""
        self._record_bytes = _RECORD_BYTES
        """What each record needed that was read last, about."""
        self._waiting: dict[object, Callable[[], object]] = {}
        """Who wants to know when something may have become available."""
        records.apply(records.plan_exhausted())

    def configure(self, config: ShareGroupConfig) -> None:
        """Go on with other settings."""
        with self._lock:
            self._config = config
            self._records.delivery_count_limit = config.delivery_count_limit
            self._records.apply(self._records.plan_exhausted())

    @property
    def is_current(self) -> bool:
        """Whether its topic was not deleted since, or made again under the same name."""
        try:
            return self._directory.topic(self.partition.topic).topic_id == self.key.topic_id
        except LogstoreError:
            return False

    @property
    def _refusal(self) -> ErrorCode:
        """Why nothing is to be done with it, if so."""
        if self._ended is not ErrorCode.NONE:
            return self._ended
        return ErrorCode.NONE if self.is_current else ErrorCode.UNKNOWN_TOPIC_ID

    @property
    def has_ended(self) -> bool:
        """Whether it is held elsewhere now."""
        return self._ended is not ErrorCode.NONE

    def end(self, code: ErrorCode) -> None:
        """It is held elsewhere now: ``code`` says so to all who still ask for it here."""
        self._ended = code
        self.wake()

    def give_up(self, code: ErrorCode) -> None:
        """The same; when it returns, nothing is being stored of it any more."""
        self.end(code)
        with self._lock:
            pass

    def set_back(self, end: int) -> None:
        """The log was cut at ``end``. The records that come there are new: nobody has had them.

        Raises:
            LogstoreError: it could not be stored. It is stored before anything else is done here.
        """
        with self._lock:
            self._stretch = None
            self._cut_at = min(end, self._cut_at)
            if not self.has_ended:
                self._keep_up_locked(self._directory.log(self.partition))
        self.wake()

    @property
    def is_to_be_set_back(self) -> bool:
        """Whether a cut of the log could not be stored yet."""
        return self._cut_at != _NOT_CUT and not self.has_ended

    # Taking

    def exchange(
        self, member_id: str, about: AcknowledgePartition | None, most: int, max_bytes: int
    ) -> Exchanged:
        """Take in what a worker says, then give it what is available, at most so many records. Both are
        stored in one step where what it says does not change what is available: jobs that are done."""
        said: Sequence[AcknowledgeBatch] = () if about is None else about.batches
        if about is not None and not all(batch.kind in _MAKE_NOTHING_AVAILABLE for batch in said):
            acknowledged, about, said = self.acknowledge(member_id, about), None, ()
        else:
            acknowledged = AcknowledgedPartition(self.shared, ErrorCode.NONE)
        fetched: ShareFetchedPartition | None = None
        with self._lock:
            if (refusal := self._refusal) is not ErrorCode.NONE:
                fetched = ShareFetchedPartition(self.shared, refusal) if most > 0 else None
                return Exchanged(fetched, self._all_refused(refusal, said) if said else acknowledged)
            log = self._settled_log_locked()  # first: it changes what holds of what a worker says
            plan, refused = self._plan_said_locked(
                member_id, said, is_whole=about is not None and about.is_whole
            )
            done = _Unstored(plan)
            if most > 0:
                fetched = self._try_to_take_locked(log, member_id, most, max_bytes, done)
            if said:
                acknowledged = self._store_locked(done, refused)
                if acknowledged.error not in _TAKEN_IN and not (fetched and fetched.acquired):
                    fetched = None  # the same error
        if said:
            self.wake()
        return Exchanged(fetched, acknowledged)

    def _all_refused(self, code: ErrorCode, said: Iterable[AcknowledgeBatch]) -> AcknowledgedPartition:
        """The topic is gone, say, and with it what was said of its records."""
        return AcknowledgedPartition(self.shared, code, tuple(said))

    def _settled_log_locked(self) -> Log | LogstoreError:
        """The partition's log, with which the states agree now; or why it cannot be read."""
        try:
            log = self._directory.log(self.partition)
            self._settle_locked(log)
        except LogstoreError as error:
            return error
        return log

    def _try_to_take_locked(
        self, log: Log | LogstoreError, member_id: str, most: int, max_bytes: int, done: _Unstored
    ) -> ShareFetchedPartition | None:
        try:
            if isinstance(log, LogstoreError):
                raise log
            return self._take_locked(log, member_id, most, max_bytes, done)
        except LogstoreError as error:
            return ShareFetchedPartition(self.shared, code_of(error), message=str(error))

    def _take_locked(
        self, log: Log, member_id: str, most: int, max_bytes: int, done: _Unstored
    ) -> ShareFetchedPartition | None:
        """``done`` is stored with the first records that are taken, and empty then.

        Raises:
            LogstoreError: nothing was taken; ``done`` says whether it was stored.
        """
        records = self._records
        limit = self._config.partition_max_record_locks + done.freed_count
        most = min(most, limit - records.acquired_count)
        while most > 0:
            now_ms = self._clock.now_ms()
            start = records.next_to_read(now_ms, limit)
            if start is None:
                return None
            stretch = self._read_locked(log, start, most, max_bytes)
            if stretch.next_offset <= start:
                return None
            batches, read_to = stretch.piece(start, most)
            plan = records.plan_acquire(
                member_id,
                batches,
                start,
                read_to,
                most=most,
                deadline_ms=self._clock.monotonic_ms() + self._config.record_lock_duration_ms,
                now_ms=now_ms,
            )
            if not plan:
                return None
            self._change_locked([*done.plan, *plan])
            done.clear()
            limit = self._config.partition_max_record_locks
            acquired = [span for span in plan if span.state is RecordState.ACQUIRED]
            if acquired:
                first, last = acquired[0].first, acquired[-1].last
                self._stretch = stretch if stretch.is_worth_keeping(last + 1) else None
                return ShareFetchedPartition(
                    self.shared,
                    ErrorCode.NONE,
                    stretch.data(first, last),
                    tuple(AcquiredRecords(span.first, span.last, span.delivery_count) for span in acquired),
                    stretch.aborted,
                )
        return None

    def available_bytes(self, most: int, max_bytes: int) -> int:
        """How many bytes a worker would get, about, that takes so many records; 0 if they cannot be read."""
        with self._lock:
            log = self._settled_log_locked()
            limit = self._config.partition_max_record_locks
            start = self._records.next_to_read(self._clock.now_ms(), limit)
            if isinstance(log, LogstoreError) or start is None:
                return 0
            try:
                stretch = self._read_locked(log, start, most, max_bytes)
            except LogstoreError:
                return 0
            return len(stretch.data(start, stretch.next_offset - 1))

    def _read_locked(self, log: Log, start: int, most: int, max_bytes: int) -> Stretch:
        """Batches from ``start`` on, of which one is enough."""
        isolation = self._config.isolation
        kept = self._stretch
        if kept is not None and kept.covers(log, start, most, max_bytes=max_bytes, isolation=isolation):
            return kept
        limit_bytes = min(max_bytes, max(_LEAST_BYTES, most * self._record_bytes))
        stretch = Stretch(log, start, max_bytes=limit_bytes, isolation=isolation)
        self._record_bytes = stretch.record_bytes or self._record_bytes
        return stretch

    def _settle_locked(self, log: Log) -> None:
        """Do what time and the log have brought: locks run out, records were deleted, others are to be
        buried."""
        records = self._records
        self._keep_up_locked(log)
        if expired := records.plan_expire(self._clock.monotonic_ms()):
            records.apply(expired)
        self._bury_locked()

    def _keep_up_locked(self, log: Log) -> None:
        """Do what the log has brought: records were deleted, or it was truncated.

        Raises:
            LogstoreError: it was truncated, and that could not be stored; nothing has changed.
        """
        records = self._records
        if deleted := records.plan_deleted(log.log_start_offset):
            records.apply(deleted)
        end, old_end = min(log.log_end_offset, self._cut_at), records.end_offset
        if old_end > end:
            again = _stored(Span(end, old_end - 1, RecordState.AVAILABLE))
            self._storage.write([(self.key, ShareChange(min(records.start_offset, end), (again,)))])
            records.cut(end)
        self._cut_at = _NOT_CUT

    # Burying

    def _bury_locked(self) -> None:
        while not self._is_burying and (failed := self._to_bury_locked()):
            try:
                log = self._directory.log(self.partition)
            except LogstoreError as error:
                self._put_off_burial_locked(str(error))
                return
            handed_over = Failed(log, failed, self.key.group_id, self._config)
            outcomes = self._letters.bury(handed_over, self._note_buried)
            if outcomes is None:
                self._is_burying = True
            else:
                self._take_in_burial_locked(outcomes)

    def _to_bury_locked(self) -> list[Span]:
        if self.has_ended or not self._records.has_failed:
            return []
        if self._clock.monotonic_ms() >= self._bury_from_ms:
            self._set_aside = []
        elif not self._set_aside:
            return []
        self._records.apply(self._records.plan_deleted(self._log_start()))
        return list(without(self._records.failed(), self._set_aside))

    def _note_buried(self, outcomes: Outcomes) -> None:
        with self._lock:
            self._is_burying = False
            if not self.has_ended:  # else another has them, and buries them again
                self._take_in_burial_locked(outcomes)
                self._bury_locked()
        self.wake()

    def _take_in_burial_locked(self, outcomes: Outcomes) -> None:
        records, buried = self._records, [span for span, why in outcomes if why is None]
        there = [part for span in buried for part in records.failed(span.first, span.last)]
        why = next((why for _, why in outcomes if why is not None), None)
        try:
            self._change_locked([each for span in there for each in records.plan_buried(span)])
        except LogstoreError as error:
            buried, why = [], str(error)
        else:
            now_ms = self._clock.monotonic_ms()
            self._failed_lines.tell(self.partition, there, self.key.group_id, self._config, now_ms)
        if why is not None:
            self._put_off_burial_locked(why)
        else:
            self._bury_again_ms = _BURY_AGAIN_MS
        if buried:  # then what was refused is no reason to wait with the rest
            refused = [span for span, why in outcomes if why is not None]
            self._set_aside = sorted([*self._set_aside, *refused])
        else:
            self._set_aside = []

    def _put_off_burial_locked(self, why: str) -> None:
        self._bury_from_ms = self._clock.monotonic_ms() + _BURY_AGAIN_MS
        self._letters.later(self._bury_again_ms, self._bury_again)
        self._bury_again_ms = min(self._bury_again_ms * 2, _LONGEST_BURY_AGAIN_MS)
        kept = next((span.first for span in self._records.failed()), None)
        warn(
            "queue %r: a failed job could not go to topic %r: %s%s: %s; it is kept, and tried again",
            self.key.group_id,
            self._config.dead_letter_topic,
            self.partition,
            "" if kept is None else f" offset {kept}",
            why,
        )

    def _bury_again(self) -> None:
        with self._lock:
            if not self.has_ended:
                self._bury_locked()

    # What became of records

    def acknowledge(self, member_id: str, said: AcknowledgePartition) -> AcknowledgedPartition:
        """Take in what a worker says. What it no longer has is refused, and does not touch the rest, unless
        the worker wants it so."""
        batches = said.batches
        unused = [batch for batch in batches if batch.kind is Acknowledgement.UNUSED]
        with self._lock:
            if (refusal := self._refusal) is not ErrorCode.NONE:
                return self._all_refused(refusal, batches)
            plan, refused = self._plan_said_locked(
                member_id,
                [batch for batch in batches if batch.kind is not Acknowledgement.UNUSED],
                is_whole=said.is_whole,
            )
            back, not_had = self._plan_said_locked(member_id, unused)
            found = self._store_locked(_Unstored(plan), [*refused, *not_had])
            if found.error in _TAKEN_IN:
                self._take_back_locked(back)
                self._bury_locked()
        self.wake()
        return found

    def _plan_said_locked(
        self, member_id: str, batches: Sequence[AcknowledgeBatch], *, is_whole: bool = False
    ) -> tuple[list[Span], list[AcknowledgeBatch]]:
        """What holds of what a worker says, and what does not."""
        plan: list[Span] = []
        refused: list[AcknowledgeBatch] = []
        monotonic_ms = self._clock.monotonic_ms()
        for batch in batches:
            planned = self._plan_locked(member_id, batch, monotonic_ms)
            if isinstance(planned, ErrorCode):
                planned, lost = self._plan_parts_locked(member_id, batch, monotonic_ms)
                refused += lost
            plan += planned
        return ([], list(batches)) if is_whole and refused else (plan, refused)

    def _store_locked(self, said: _Unstored, refused: Sequence[AcknowledgeBatch]) -> AcknowledgedPartition:
        """Take in what is not stored yet."""
        try:
            self._change_locked(said.plan)
        except LogstoreError as error:
            return AcknowledgedPartition(self.shared, code_of(error), message=str(error))
        code = ErrorCode.INVALID_RECORD_STATE if refused else ErrorCode.NONE
        return AcknowledgedPartition(self.shared, code, tuple(refused))

    def _plan_locked(
        self, member_id: str, batch: AcknowledgeBatch, monotonic_ms: int
    ) -> list[Span] | ErrorCode:
        return self._records.plan_acknowledge(
            member_id,
            batch.first,
            batch.last,
            batch.kind,
            monotonic_ms=monotonic_ms,
            deadline_ms=monotonic_ms + self._config.record_lock_duration_ms,
            available_at_ms=batch.available_at_ms,
            reason=batch.reason,
        )

    def _plan_parts_locked(
        self, member_id: str, batch: AcknowledgeBatch, monotonic_ms: int
    ) -> tuple[list[Span], list[AcknowledgeBatch]]:
        """What holds of a batch that is refused as a whole, and what does not. Of records that were deleted
        nothing is to be said."""
        plan: list[Span] = []
        refused: list[AcknowledgeBatch] = []
        for first, last in self._records.parts(max(batch.first, self._log_start()), batch.last):
            part = batch._replace(first=first, last=last)
            planned = self._plan_locked(member_id, part, monotonic_ms)
            if not isinstance(planned, ErrorCode):
                plan += planned
            elif refused and refused[-1].last == first - 1:
                refused[-1] = refused[-1]._replace(last=last)
            else:
                refused.append(part)
        return plan, refused

    def _log_start(self) -> int:
        try:
            return self._directory.log(self.partition).log_start_offset
        except LogstoreError:
            return 0

    def release(self, member_id: str) -> None:
        """What a worker has goes back to the others."""
        with self._lock:
            self._records.apply(self._records.plan_release(member_id))
            self._stretch = None
            self._bury_locked()
        self.wake()

    def close(self) -> None:
        """Bury what failed, and store what could not be stored of a cut: the process may end."""
        with self._lock:
            if self.is_to_be_set_back:
                with suppress(LogstoreError):  # is_to_be_set_back tells
                    self._keep_up_locked(self._directory.log(self.partition))
            self._bury_from_ms = -NEVER
            self._bury_locked()

    def _change_locked(self, plan: Sequence[Span]) -> None:
        """Store what is planned, then have it.

        Raises:
            LogstoreError: it could not be stored; nothing has changed.
        """
        batches = tuple([_stored(span) for span in plan if _is_stored(span)])
        if batches:
            self._storage.write([(self.key, ShareChange(self._records.start_offset, batches))])
        self._records.apply(plan)

    def _take_back_locked(self, unused: Sequence[Span]) -> None:
        """What was taken and not used counts as it did before. If that cannot be stored, it counts as one
        delivery more after a restart."""
        if not unused:
            return
        change = ShareChange(self._records.start_offset, tuple(_stored(span) for span in unused))
        try:
            self._storage.write([(self.key, change)])
        except LogstoreError as error:
            warn("queue %r: %s: %s", self.key.group_id, self.partition, error)
        self._records.apply(unused)

    # Waiting

    def wait(self, waiter: object, note: Callable[[], object]) -> list[Wait]:
        """Call ``note`` when it is worth trying again: something was released, done or appended. ``waiter``
        names it for :meth:`forget`."""
        with self._lock:
            self._waiting[waiter] = note
            start = self._records.next_to_read(self._clock.now_ms(), self._config.partition_max_record_locks)
        if self._refusal is not ErrorCode.NONE:
            note()  # the next try tells of it
            return []
        if start is None:
            return []
        try:
            log = self._directory.log(self.partition)
            return [log.when(start + 1, lambda _: note(), isolation=self._config.isolation)]
        except LogstoreError:  # the next try tells of it
            note()
            return []

    def forget(self, waiter: object) -> None:
        """Call it no more."""
        with self._lock:
            self._waiting.pop(waiter, None)

    def next_due_ms(self) -> int:
        """In how many milliseconds a lock runs out, or something put off is due, at the earliest."""
        with self._lock:
            due_ms = self._records.next_due_ms(self._clock.monotonic_ms(), self._clock.now_ms())
            return min(due_ms, _BURY_AGAIN_MS) if self._records.has_failed else due_ms

    def wake(self) -> None:
        """Tell those who wait."""
        if not self._waiting:
            return
        with self._lock:
            waiting = list(self._waiting.values())
        for note in waiting:
            note()

    # For administrators

    def describe(self) -> SharePartitionState:
        """How far the group is."""
        with self._lock:
            records = self._records
            try:
                log = self._directory.log(self.partition)
                records.apply(records.plan_deleted(log.log_start_offset))
                high_watermark = log.high_watermark
            except (CorruptionError, StorageError):
                high_watermark = records.end_offset
            records.apply(records.plan_expire(self._clock.monotonic_ms()))
            return state_of(self.partition, records, high_watermark)


def first_offset(log: Log, config: ShareGroupConfig, *, at_end: bool) -> int:
    """Where a group begins that has not read a partition yet: behind what its members may see, or with the
    first record."""
    if not at_end:
        return log.log_start_offset
    return log.last_stable_offset if config.isolation is Isolation.COMMITTED else log.high_watermark


def state_of(partition: TopicPartition, records: SharePartition, high_watermark: int) -> SharePartitionState:
    """How far the group is in a partition with these records."""
    available = sum(span.last - span.first + 1 for span in records.spans if span.state in _WAITING)
    return SharePartitionState(
        partition,
        records.start_offset,
        records.end_offset,
        records.acquired_count,
        available,
        high_watermark,
    )


def records_of(state: ShareState, delivery_count_limit: int) -> SharePartition:
    """The records of a partition as they were stored."""
    spans = [
        Span(
            each.first_offset,
            each.last_offset,
            _READ_AS.get(each.state, RecordState.AVAILABLE),
            each.delivery_count,
            available_at_ms=max(each.available_at_ms, 0),
        )
        for each in state.batches
    ]
    return SharePartition(max(state.start_offset, 0), spans, delivery_count_limit=delivery_count_limit)


def _is_stored(span: Span) -> bool:
    """Whether a change has to be stored. What is released is stored as that already, since it was taken."""
    if span.state is RecordState.AVAILABLE:
        return span.available_at_ms > 0
    return span.state is not RecordState.FAILED


def _stored(span: Span) -> ShareBatch:
    available_at_ms = span.available_at_ms or NO_TIME
    return ShareBatch(span.first, span.last, _STORED_AS[span.state], span.delivery_count, available_at_ms)
