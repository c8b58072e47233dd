"""Records of share groups in the partitions that this node leads.

A partition is taken up for a group when a member first asks for its records in a leader epoch: its state is
read from the share coordinator, which fences the leaders before. What is taken up is let go when another node
leads, or when a change of it could not be stored; members are told to ask again. Whenever a member
begins, the state is read again, as the group may have been deleted and begun anew.

Lock: ``_lock`` guards what is taken up. With it held, nothing is called but the writer, which takes note of
something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.dead_letters import Letters
from logstore.broker.share.exchanging import Exchange, Found
from logstore.broker.share.held import HeldPartition, first_offset, records_of
from logstore.broker.share.kept import AS_SET, NOT_TAKEN_UP, Reading, ReadState
from logstore.broker.share.requests import (
    AcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupConfig,
    SharePartitionState,
    TopicIdPartition,
)
from logstore.broker.share.states import RecordState
from logstore.broker.share.stored import ShareChange, ShareState, cut_back, is_above
from logstore.errors import LogstoreError
from logstore.format.messages.share_records import UNCHANGED, ShareBatch, ShareKey
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.sharing.asking import StateAsker
from logstore.replica.node.sharing.writing import KeptThere, StateWriter
from logstore.wire.handlers.then import then, then_ask

_GONE = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""What members hear of a partition that is not held here, or not yet: they look for its leader, and ask
again."""


class _Taken(NamedTuple):
    """A partition that is taken up for a group."""

    held: HeldPartition
    kept: KeptThere
    config: ShareGroupConfig


class LedShares:
    """Of one node. All methods may be called from many threads."""

    def __init__(
        self,
        directory: LogDirectory,
        replicas: Mapping[TopicPartition, PartitionReplica],
        states: StateAsker,
        config_of: Callable[[str], ShareGroupConfig],
        letters: Letters,
    ) -> None:
        self._directory = directory
        self._replicas = replicas
        self._states = states
        self._writer = StateWriter(states)
        self._config_of = config_of
        self._letters = letters
        self._exchange = Exchange(directory.context.scheduler, lambda _, done: done(NONE))
        self._lock = threading.Lock()
        self._taken: dict[ShareKey, _Taken] = {}

    # Requests

    def fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        """See :meth:`.Broker.share_fetch`."""
        config = self._config_of(request.group)
        missing = [
            (each, epoch)
            for each in request.partitions
            if type(epoch := self._epoch_in(each)) is int
            and (request.begins or self._find(request.group, each, epoch, config) is None)
        ]
        if not missing:
            return self._fetch(request)
        wanted = [
            Reading(ShareKey(request.group, each.topic_id, each.partition.partition), epoch)
            for each, epoch in missing
        ]

        def take_up(found: Mapping[ShareKey, ReadState]) -> Pending[ShareFetchResult]:
            for (partition, _), reading in zip(missing, wanted, strict=True):
                self._take_up(partition, reading, found[reading.key])
            return self._fetch(request)

        return then_ask(self._states.read(wanted), take_up)

    def _fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        config = self._config_of(request.group)
        places = [(each, self._place(request.group, each, config)) for each in request.partitions]
        said = [
            (each, self._place(request.group, each.partition, config)) for each in request.acknowledgements
        ]
        used = dict(places) | {each.partition: place for each, place in said}

        def stored(result: ShareFetchResult) -> ShareFetchResult:
            partitions = tuple(
                ShareFetchedPartition(each.partition, _GONE) if _is_lost(used[each.partition]) else each
                for each in result.partitions
            )
            acknowledged = _certain(result.acknowledged, used)
            return result._replace(partitions=partitions, acknowledged=acknowledged)

        fetched = self._exchange.fetch(request, config.record_lock_duration_ms, places, said)
        return then_ask(
            fetched, lambda result: then(self._writer.when_stored(request.group), lambda _: stored(result))
        )

    def acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        """See :meth:`.Broker.share_acknowledge`."""
        rest: list[HeldPartition] = []
        if request.releases_rest:
            with self._lock:
                rest = [each.held for key, each in self._taken.items() if key.group_id == request.group]
        config = self._config_of(request.group)
        said = [(each, self._place(request.group, each.partition, config)) for each in request.partitions]
        used = {each.partition: place for each, place in said}

        def stored(result: ShareAcknowledgeResult) -> ShareAcknowledgeResult:
            return result._replace(partitions=_certain(result.partitions, used))

        done = self._exchange.acknowledge(request, config.record_lock_duration_ms, said, rest)
        return then_ask(
            done, lambda result: then(self._writer.when_stored(request.group), lambda _: stored(result))
        )

    # What is taken up

    def _epoch_in(self, wanted: TopicIdPartition) -> int | ErrorCode:
        """The epoch in which the partition is led here."""
        replica = self._replicas.get(wanted.partition)
        if replica is None:
            return _GONE
        code, epoch = replica.check_produce(by_all=False)
        if code is not NONE:
            return _GONE
        try:
            is_same = self._directory.topic(wanted.partition.topic).topic_id == wanted.topic_id
        except LogstoreError:
            return _GONE
        return epoch if is_same else ErrorCode.UNKNOWN_TOPIC_ID

    def _find(
        self, group: str, wanted: TopicIdPartition, epoch: int, config: ShareGroupConfig
    ) -> HeldPartition | None:
        key = ShareKey(group, wanted.topic_id, wanted.partition.partition)
        with self._lock:
            taken = self._taken.get(key)
        if taken is None:
            return None
        if taken.kept.is_lost or taken.kept.leader_epoch != epoch:
            self._let_go(key, taken)
            return None
        if config != taken.config:
            with self._lock:
                if self._taken.get(key) is taken:
                    self._taken[key] = taken._replace(config=config)
            taken.held.configure(config)
        return taken.held

    def _place(self, group: str, wanted: TopicIdPartition, config: ShareGroupConfig) -> Found:
        epoch = self._epoch_in(wanted)
        if isinstance(epoch, ErrorCode):
            return epoch
        return self._find(group, wanted, epoch, config) or _GONE

    def _let_go(self, key: ShareKey, taken: _Taken) -> None:
        with self._lock:
            if self._taken.get(key) is taken:
                del self._taken[key]
        taken.kept.lose()

    def _take_up(self, wanted: TopicIdPartition, reading: Reading, found: ReadState) -> None:
        """Unless something has come in between: the member asks again."""
        if found.error is ErrorCode.GROUP_ID_NOT_FOUND:  # it was deleted
            with self._lock:
                taken = self._taken.get(reading.key)
            if taken is not None:
                self._let_go(reading.key, taken)
        if found.error is not NONE or self._epoch_in(wanted) != reading.leader_epoch:
            return
        config = self._config_of(reading.key.group_id)
        try:
            log = self._directory.log(wanted.partition)
            state, change = _fitted(found, log, config)
        except LogstoreError:
            return
        records = records_of(state, config.delivery_count_limit)
        kept = KeptThere(self._writer, reading.key, state.state_epoch, reading.leader_epoch)
        held = HeldPartition(
            self._directory, kept, reading.key, wanted.partition, records, config, self._letters
        )
        kept.on_lost = lambda: held.end(_GONE)
        with self._lock:
            known = self._taken.get(reading.key)
            is_new = known is None or known.kept.is_lost or known.kept.epochs < kept.epochs
            if is_new:
                self._taken[reading.key] = _Taken(held, kept, config)
                if change is not None:  # before anything that is made of the state
                    kept.write([(reading.key, change)])
        if is_new and known is not None:
            known.kept.lose()

    # The node

    def describe(self) -> dict[str, list[SharePartitionState]]:
        """How far groups are in what is taken up here."""
        with self._lock:
            taken = list(self._taken.items())
        found: dict[str, list[SharePartitionState]] = {}
        for key, each in taken:
            if not each.kept.is_lost:
                found.setdefault(key.group_id, []).append(each.held.describe())
        return found

    def look(self) -> None:
        """Let go what other nodes lead now: who waits for it here is told."""
        with self._lock:
            taken = list(self._taken.items())
        for key, each in taken:
            if self._epoch_in(each.held.shared) != each.kept.leader_epoch:
                self._let_go(key, each)

    def close(self) -> None:
        """The node ends."""
        with self._lock:
            taken, self._taken = self._taken, {}
        for each in taken.values():
            each.kept.lose()


def _is_lost(place: Found) -> bool:
    """Whether what was done there may not be stored, whatever is held of the partition by now."""
    return isinstance(place, HeldPartition) and place.has_ended


def _certain(
    said: Iterable[AcknowledgedPartition], used: Mapping[TopicIdPartition, Found]
) -> tuple[AcknowledgedPartition, ...]:
    """What became of what was said, once it is stored; of some it could not be."""
    return tuple(
        each._replace(error=_GONE, message="it could not be stored")
        if each.error is NONE and _is_lost(used[each.partition])
        else each
        for each in said
    )


def _fitted(found: ReadState, log: Log, config: ShareGroupConfig) -> tuple[ShareState, ShareChange | None]:
    """The state as it is taken up, and what has changed in it: a group that has not begun yet does now; and
    what is said of records that are not there any more, after an election that has cost some, is taken
    back. Others may have taken their offsets in this epoch."""
    state = found.state
    if state.start_offset == AS_SET:
        start = first_offset(log, config, at_end=config.auto_offset_reset == "latest")
        return state._replace(start_offset=start), ShareChange(start)
    end = log.log_end_offset
    if NOT_TAKEN_UP < found.last_epoch < state.leader_epoch:
        _, before = log.end_offset_for_epoch(state.leader_epoch - 1)
        end = min(end, before) if before >= 0 else end
    if not is_above(state, end):
        return state, None
    above = [each for each in state.batches if each.last_offset >= end]
    back = [
        ShareBatch(max(each.first_offset, end), each.last_offset, RecordState.AVAILABLE, 0) for each in above
    ]
    start = end if state.start_offset > end else UNCHANGED
    return cut_back(state, end), ShareChange(start, tuple(back))
