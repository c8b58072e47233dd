"""One partition at one node: what the rules ask for, done with its log.

Lock: ``_turn`` is held while something happens to the replica and what follows from that is done with the
log, so that it happens in an order. A log's own lock comes within it; nothing that a log calls may take it.
Who waits for the high watermark is told after it was let go.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.requests import NO_OFFSET, FetchedPartition, FetchPartition
from logstore.errors import LogstoreError, UnknownTopicError
from logstore.format.header import NO_EPOCH
from logstore.logdir.directory import LogDirectory
from logstore.model import Bytes, Role, TopicPartition
from logstore.partition.log import Log
from logstore.replica.node.facts import StoredFacts
from logstore.replica.rules.actions import (
    Action,
    BeginEpoch,
    DeleteBefore,
    Fetch,
    FetchAnswer,
    Propose,
    RaiseHighWatermark,
    StartAt,
    StepDown,
    Take,
    TruncateTo,
)
from logstore.replica.rules.leading import ReplicaConfig
from logstore.replica.rules.partition_state import Member, PartitionState
from logstore.replica.rules.replica import Replica
from logstore.replica.rules.states import ReplicaState
from logstore.warning import inform, warn

_NAMED_MS: Final = 600_000
"""Twice as long as consumers read at a follower before they ask the leader again, by their defaults."""

Done = Callable[[ErrorCode], object]
"""Told what became of records: in all in-sync replicas, or why not known."""

_NOT_TOLD: Final = (
    "Not all in-sync replicas had them, as far as this node knows: with acks=all nobody was told that they "
    "are stored, unless an unclean election or an older copy of the coordinator has cost them"
)
_TOLD: Final = (
    "Some were below the high watermark: consumers may have seen them, and their writers may have been told "
    "that they are stored. That comes of an unclean election, of disks that have lost records, or of an "
    "older copy of the coordinator"
)


class Host(Protocol):
    """What a replica asks of its node."""

    @property
    def directory(self) -> LogDirectory: ...

    @property
    def member(self) -> Member:
        """The node in its present life."""
        ...

    @property
    def has_lease(self) -> bool:
        """Whether the node may lead now."""
        ...

    def now_ms(self) -> int:
        """By a clock that is never set."""
        ...

    def propose(self, replica: PartitionReplica, state: PartitionState) -> None:
        """Let the coordinator store it, soon."""
        ...

    def note_growth(self, replica: PartitionReplica) -> None:
        """Look at its log soon. Called with the log's lock held."""
        ...


class _Waiting(NamedTuple):
    offset: int
    number: int
    done: Done


class _Deleting(NamedTuple):
    offset: int
    done: Done


class _Turn:
    """Something happens to a replica: its lock, and who is told when that is free."""

    __slots__ = ("_lock", "told")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.told: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        told = self.told
        if told:
            self.told = []
        self._lock.release()
        for call in told:
            call()


class Standing(NamedTuple):
    """How the followers of a partition are."""

    is_whole: bool
    """Whether all replicas are in sync."""
    has_enough: bool
    """Whether enough are for ``acks=all``."""
    lags: dict[int, int]
    """How many records each of them lacks, by node."""


class PartitionReplica:
    """See the module."""

    def __init__(self, host: Host, partition: TopicPartition, topic_id: UUID, config: ReplicaConfig) -> None:
        self.partition = partition
        self.topic_id: Final = topic_id
        """Of the topic whose log it is. By its name there may be another one by now."""
        self._host = host
        self._facts = StoredFacts(host.directory, partition)
        self._turn = _Turn()
        self._newest: PartitionState | None = None
        """What the coordinator has told last."""
        self._replica = Replica(host.member, self._facts, config)
        self._waiting: list[_Waiting] = []
        self._deleting: list[_Deleting] = []
        """Those who wait for the followers to delete what is below an offset."""
        self._starts: dict[int, int] = {}
        """Where the logs of followers begin, as they have told in this term."""
        self._named: dict[int, int] = {}
        """When consumers were last told to read at a follower."""
        self._numbers = itertools.count()
        self._was_read = False
        """Whether consumers may wait here, while another leads."""
        self._trouble: str | None = None
        self._watched: Log | None = None
        self._unwatch: Callable[[], None] | None = None

    # What is known

    @property
    def log(self) -> Log:
        """
        Raises:
            LogstoreError: it cannot be used.
        """
        return self._facts.log

    @property
    def log_start_offset(self) -> int:
        """-1 while the log cannot be used."""
        try:
            return self.log.log_start_offset
        except LogstoreError:
            return NO_OFFSET  # what is wrong is told of the next fetch

    @property
    def config(self) -> ReplicaConfig:
        return self._replica.config

    @property
    def leader_epoch(self) -> int:
        return self._replica.leader_epoch

    @property
    def newest_version(self) -> int:
        """Of the states of which it was told."""
        newest = self._newest
        return -1 if newest is None else newest.version

    @property
    def leads(self) -> bool:
        """Whether it may answer clients."""
        return self._replica.leads and self._host.has_lease

    @property
    def is_in_sync(self) -> bool:
        """Whether it is in the ISR, as far as the node was told."""
        newest = self._newest
        return newest is not None and newest.member(self._host.member.node_id) is not None

    @property
    def has_failed(self) -> bool:
        """Whether its log can be used no more until it is opened again."""
        try:
            return self.log.needs_reopen
        except LogstoreError:
            return False  # it is not there, which was told

    @property
    def follows(self) -> Member | None:
        """Whom it has to ask for what comes next."""
        replica = self._replica
        state = replica.partition_state
        if state is None or replica.state not in (ReplicaState.COMPARING, ReplicaState.FOLLOWING):
            return None
        return state.leader

    # The coordinator

    def on_state(self, state: PartitionState) -> None:
        """The coordinator has this state of the partition."""
        with self._turn:
            if self._newest is None or state.version >= self._newest.version:
                self._newest = state
            self._catch_up()
            self._tell_deleted()
            self._tell_readers()

    def begin_life(self) -> None:
        """The node has registered again."""
        with self._turn:
            self._lose_lease()
            self._replica = Replica(self._host.member, self._facts, self._replica.config)
            self._catch_up()

    def configure(self, config: ReplicaConfig) -> None:
        """The topic has other settings."""
        with self._turn:
            self._replica.config = config
            if self._replica.leading is not None:
                self._replica.leading.config = config
            if self._check_lease():  # fewer may be enough now
                self._do(self._replica.on_growth(self._host.now_ms()))

    def _catch_up(self) -> None:
        """Without a lease nothing begins: what is known may be old."""
        if self._newest is None or not self._host.has_lease:
            return
        before = self._replica.state, self._replica.leader_epoch
        try:
            self._do(self._replica.on_state(self._newest, self._host.now_ms()))
            if not self._replica.leads:
                self._be_follower()
        except BaseException:  # the log is not what the replica is: the next tick begins again
            self._replica = Replica(self._host.member, self._facts, self._replica.config)
            raise
        if (self._replica.state, self._replica.leader_epoch) != before:
            now = self._replica.state.value.lower(), self._replica.leader_epoch
            self._turn.told.append(lambda: inform("%s: %s in leader epoch %d", self.partition, *now))

    def _be_follower(self) -> None:
        log = self.log
        if log.role is Role.ALONE:
            log.set_role(Role.FOLLOWER)
        elif log.role is Role.LEADER:
            log.stop_leading()

    def _lose_lease(self) -> None:
        self._do(self._replica.on_lease_ended())
        self._be_follower()

    def _check_lease(self) -> bool:
        """In front of what only a leader may do. Returns whether it leads."""
        if not self._replica.leads:
            return False
        if self._host.has_lease:
            return True
        self._lose_lease()
        return False

    def close(self) -> None:
        """The node ends, or does not hold the partition any more."""
        with self._turn:
            has_led = self._replica.leads
            self._newest = None
            self._do(self._replica.on_lease_ended())
            if self._unwatch is not None:
                self._unwatch()
                self._unwatch = None
            if has_led:  # the store may stay open: what is appended there would be cut off later
                self._be_follower()

    # Time

    def on_tick(self) -> None:
        """Time has passed."""
        with self._turn:
            if self._tell_readers():  # again: one may have come while the last state did
                self._was_read = False
            self._catch_up()
            if self._check_lease():
                self._do(self._replica.on_tick(self._host.now_ms()))

    # As a leader

    def check_produce(self, *, by_all: bool) -> tuple[ErrorCode, int]:
        """Whether records may be appended now, and the epoch in which."""
        with self._turn:
            leading = self._replica.leading
            if not self._check_lease() or leading is None:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_EPOCH
            if by_all and not leading.has_enough:
                return ErrorCode.NOT_ENOUGH_REPLICAS, NO_EPOCH
            return NONE, self._replica.leader_epoch

    def followers_with(self, offset: int) -> dict[int, int]:
        """See :meth:`.Leading.have`, of those whose logs do not begin behind the offset: they may have
        deleted more than this one. Of a replica that does not lead there are none."""
        with self._turn:
            leading = self._replica.leading
            if leading is None:
                return {}
            starts = self._starts
            return {
                node_id: end_offset
                for node_id, end_offset in leading.have(offset).items()
                if starts.get(node_id, NO_OFFSET) <= offset
            }

    def note_named(self, node_id: int) -> None:
        """A consumer was told to read at this follower."""
        self._named[node_id] = self._host.now_ms()

    def is_named(self, node_id: int) -> bool:
        """Whether consumers may read at this follower, as they were told in this term. They ask again, within
        five minutes."""
        named_ms = self._named.get(node_id)
        return named_ms is not None and self._host.now_ms() - named_ms < _NAMED_MS

    def standing(self) -> Standing | None:
        """How its followers are; None if it does not lead."""
        with self._turn:
            leading = self._replica.leading
            if not self._check_lease() or leading is None:
                return None
            is_whole = len(leading.state.isr) >= len(leading.state.replicas)
            return Standing(is_whole, leading.has_enough, leading.lags)

    def on_growth(self) -> None:
        """The log has grown, or more of it is durable."""
        with self._turn:
            leading = self._replica.leading
            if self._check_lease() and leading is not None and leading.goes_by_growth:
                self._do(leading.on_growth(self._host.now_ms()))

    def on_gone(self, node_ids: Iterable[int]) -> None:
        """These nodes do not live any more."""
        with self._turn:
            if self._check_lease():
                self._do(self._replica.on_gone(node_ids, self._host.now_ms()))

    def when_replicated(self, offset: int, leader_epoch: int, done: Done) -> None:
        """Call ``done`` when all in-sync replicas have what is below ``offset``, or when this one leads no
        more."""
        with self._turn:
            leading = self._replica.leading
            if not self._check_lease() or leading is None or self._replica.leader_epoch != leader_epoch:
                self._turn.told.append(lambda: done(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                return
            if self._replica.config.is_durable:
                self._flush_soon(offset)
            if leading.goes_by_growth:
                self._do(leading.on_growth(self._host.now_ms()))
            if self._facts.high_watermark >= offset:
                self._turn.told.append(lambda: done(NONE))
            else:
                heapq.heappush(self._waiting, _Waiting(offset, next(self._numbers), done))

    def when_deleted(self, offset: int, leader_epoch: int, done: Done) -> None:
        """Call ``done`` when the logs of all in-sync replicas begin at ``offset`` or behind it, or when this
        one leads no more."""
        with self._turn:
            if not self._check_lease() or self._replica.leader_epoch != leader_epoch:
                self._turn.told.append(lambda: done(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                return
            self._deleting.append(_Deleting(offset, done))
            self._tell_deleted()

    def _tell_deleted(self) -> None:
        leading = self._replica.leading
        if not self._deleting or leading is None:
            return
        starts = [self._starts.get(node_id, NO_OFFSET) for node_id in leading.awaited]
        waiting, self._deleting = self._deleting, []
        for each in waiting:
            if all(start >= each.offset for start in starts):
                self._turn.told.append(lambda each=each: each.done(NONE))  # type: ignore[misc]
            else:
                self._deleting.append(each)

    def _flush_soon(self, offset: int) -> None:
        log = self.log
        if log.durable_offset < offset:
            log.writer.durability.hurry()

    def on_fetch(self, follower: Member, wanted: FetchPartition) -> None:
        """A follower asks: it has what is below the offset."""
        if wanted.topic_id not in (None, self.topic_id):
            return  # what it has is of another topic of the name
        with self._turn:
            if not self._check_lease() or wanted.leader_epoch != self._replica.leader_epoch:
                return
            check = self._replica.on_fetch(
                follower, wanted.offset, wanted.last_fetched_epoch, self._host.now_ms()
            )
            if check.actions:
                self._do(check.actions)
            self._starts[follower.node_id] = wanted.log_start_offset
            self._tell_deleted()

    # As a follower

    def check_read(self, offset: int, leader_epoch: int) -> ErrorCode:
        """Whether consumers may read here what is below the high watermark. ``leader_epoch``: in which they
        think that the partition is led.

        An offset that this log does not have is the leader's to judge: there it may be, and a consumer that
        is told here that it is nowhere gives its position up."""
        with self._turn:
            if not self._gives:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._was_read = True
            epoch = self._replica.leader_epoch
            if leader_epoch not in (NO_EPOCH, epoch):
                is_old = leader_epoch < epoch
                return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            log = self.log
            has_offset = log.log_start_offset <= offset <= log.log_end_offset
            return NONE if has_offset else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def _gives(self) -> bool:
        """Whether consumers may read here, though another leads: one that is not in sync may have nothing new
        for them for as long as they wait."""
        return self._replica.state is ReplicaState.FOLLOWING and self.is_in_sync and self._host.has_lease

    def _tell_readers(self) -> bool:
        """Let consumers ask again that wait here and may not read here any more. Returns whether there may be
        such."""
        if not self._was_read or self._gives:
            return False
        with suppress(LogstoreError):  # it cannot be used: nobody waits
            self._turn.told.append(self.log.writer.waits.let_ask_again)
        return True

    def plan_fetch(self, *, anew: bool = False) -> Fetch | None:
        """What to ask the leader for; None if an answer is awaited. ``anew``: it counts no more."""
        with self._turn:
            if self._replica.leads:
                return None
            if anew:
                self._replica.give_up()
            if self._replica.config.is_durable and self.follows is not None:
                log = self.log
                if log.durable_offset < log.log_end_offset:
                    log.flush()
            for action in self._replica.on_tick(self._host.now_ms()):
                if isinstance(action, Fetch):
                    return action
        return None

    def asks(self, fetch: Fetch) -> bool:
        """Whether it waits for the answer to this."""
        return self._replica.asks(fetch)

    def on_answer(self, fetch: Fetch, found: FetchedPartition | None) -> bool:
        """The leader has answered, or will not. Returns whether it brought anything forward."""
        with self._turn:
            answer = None if found is None else _answer(fetch, found)
            actions = self._replica.on_answer(fetch, answer)
            self._do(actions, b"" if found is None else found.data)
        return answer is not None

    # What the rules ask for

    def _do(self, actions: list[Action], data: Bytes = b"") -> None:
        for action in actions:
            self._do_one(action, data)

    def _do_one(self, action: Action, data: Bytes) -> None:
        log = self.log
        match action:
            case RaiseHighWatermark(offset):
                self._raise_high_watermark(log, offset)
            case Take(epoch):
                self._be_follower()
                log.append_replicated(data, leader_epoch=epoch)
            case TruncateTo(offset):
                self._cut(log, offset, lambda: log.truncate_to(offset))
            case StartAt(offset):
                self._cut(log, offset, lambda: log.truncate_fully_and_start_at(offset))
            case BeginEpoch(epoch):
                self._begin_epoch(log, epoch)
            case DeleteBefore(offset):
                log.delete_before(min(offset, log.high_watermark))
            case Propose(state):
                self._host.propose(self, state)
            case StepDown():
                self._step_down()
            case Fetch():  # plan_fetch() takes it
                raise AssertionError("a fetch is planned")

    def _begin_epoch(self, log: Log, epoch: int) -> None:
        self._be_follower()
        self._starts.clear()
        self._named.clear()
        log.lead(epoch)
        if self._watched is not log:
            if self._unwatch is not None:
                self._unwatch()
            self._watched, self._unwatch = log, log.on_change(self._note_change)

    def _note_change(self) -> None:
        """Called with the log's lock held."""
        leading = self._replica.leading
        if leading is not None and leading.goes_by_growth:
            self._host.note_growth(self)

    def _cut(self, log: Log, offset: int, cut: Callable[[], object]) -> None:
        self._be_follower()
        before, seen = log.log_end_offset, log.high_watermark
        cut()
        end = log.log_end_offset
        if before > offset:
            self._turn.told.append(
                lambda: warn(
                    "%s: the leader has other records from %d on; the offsets to %d are cut off here. %s",
                    self.partition,
                    end,
                    before - 1,
                    _TOLD if end < seen else _NOT_TOLD,
                )
            )

    def _raise_high_watermark(self, log: Log, offset: int) -> None:
        if self._replica.leads and not self._host.has_lease:
            return  # another may lead: what it has is not known
        reached = log.update_high_watermark(offset)
        while self._waiting and self._waiting[0].offset <= reached and self._replica.leads:
            done = heapq.heappop(self._waiting).done
            self._turn.told.append(lambda done=done: done(NONE))  # type: ignore[misc]

    def _step_down(self) -> None:
        waiting: list[_Waiting | _Deleting] = [*self._waiting, *self._deleting]
        self._waiting, self._deleting = [], []
        for each in waiting:
            self._turn.told.append(lambda each=each: each.done(ErrorCode.NOT_LEADER_OR_FOLLOWER))  # type: ignore[misc]
        self._be_follower()

    # Trouble

    def note_trouble(self, error: LogstoreError) -> None:
        """Say what went wrong, once while it goes wrong in the same way."""
        text = f"{type(error).__name__}: {error}"
        say = inform if isinstance(error, UnknownTopicError) else warn  # it is about to go, or to come
        if text != self._trouble:
            say("%s cannot go on: %s", self.partition, text)
        self._trouble = text

    def note_well(self) -> None:
        self._trouble = None


def _answer(fetch: Fetch, found: FetchedPartition) -> FetchAnswer | None:
    """What a leader has said; None if it refuses."""
    if found.error is ErrorCode.OFFSET_OUT_OF_RANGE and found.log_start_offset >= 0:
        return FetchAnswer(fetch.leader_epoch, 0, found.log_start_offset, is_out_of_range=True)
    if found.error is not NONE or found.high_watermark < 0:
        return None
    return FetchAnswer(
        fetch.leader_epoch,
        found.high_watermark,
        found.log_start_offset,
        found.diverging,
        has_batches=bool(found.data),
    )
