"""What a leader knows of its followers, and what follows from it: the ISR and the high watermark.

* A follower is *caught up* if it has asked for the log end within ``replica_lag_time_max_ms``: for what was
  the end when it asked before, if that had to be fetched first.
* The **high watermark** is up to where all members of the ISR have the log. A member that is about to join
  counts at once, one that is about to leave until it has left: whatever becomes of the proposal, all that the
  next leader may be chosen from have it. One that has left, or whose node is gone, is about to join only when
  it asks again. Below ``min_insync_replicas`` it stands still (KIP-966), and there
  those count that have joined, not those that are about to.
* The **ISR** is changed by a proposal at a time, against the version of the partition's state: a leader that
  was replaced proposes in vain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from logstore.replica.rules.actions import Action, Propose, RaiseHighWatermark
from logstore.replica.rules.partition_state import Member, PartitionState

_NEVER_MS: Final = -(10**15)
_NOTHING: Final = -1


class LogFacts(Protocol):
    """What the rules ask of a log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def durable_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def last_epoch(self) -> int:
        """The newest epoch, also if it has no batch yet; -1 if there is none."""
        ...

    def end_offset_for_epoch(self, epoch: int, /) -> tuple[int, int]:
        """See :meth:`.LeaderEpochs.end_offset_for`."""
        ...


class ReplicaConfig(NamedTuple):
    """The settings that the rules need."""

    replica_lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    is_durable: bool = False
    """A record counts as replicated where it is durable."""


@dataclass(slots=True)
class _Follower:
    """What its fetches have told."""

    life: int
    end_offset: int
    fetched_ms: int
    leader_end_then: int
    """Where the leader's log ended at its last fetch."""
    caught_up_ms: int
    settled: tuple[int, int, int] | None = None
    """With which life, offset and newest epoch it asked for the end, when there was nothing left to do."""


class Leading:
    """One term of a leader."""

    def __init__(
        self, node_id: int, state: PartitionState, log: LogFacts, config: ReplicaConfig, now_ms: int
    ) -> None:
        self.node_id = node_id
        self.state = state
        self.config = config
        self._log = log
        self._epoch_start = log.log_end_offset
        self._followers: dict[int, _Follower] = {}
        self._proposed: PartitionState | None = None
        self._began_ms = now_ms
        self._tried_ms = now_ms

    # What happens

    def on_same_fetch(self, follower: Member, offset: int, last_epoch: int, now_ms: int) -> bool:
        """A follower asks. Returns whether that was all: it had everything, asks for the same again, and
        nobody waits for it. So it is with most of a thousand partitions, twice a second."""
        known = self._followers.get(follower.node_id)
        if known is None or known.settled != (follower.life, offset, last_epoch):
            return False
        if self.end_offset != offset:
            return False
        known.fetched_ms = known.caught_up_ms = now_ms
        return True

    def on_fetch(self, follower: Member, offset: int, last_epoch: int, now_ms: int) -> list[Action]:
        """A follower has everything below ``offset`` as it is here, and asks for more."""
        if follower.node_id not in self.state.replicas or follower.node_id == self.node_id:
            return []
        end = self.end_offset
        known = self._followers.get(follower.node_id)
        if known is not None and known.life > follower.life:
            return []  # a request of an earlier life, late
        if known is None or known.life != follower.life:
            caught_up_ms = now_ms if offset >= end else _NEVER_MS
            known = _Follower(follower.life, offset, now_ms, end, caught_up_ms)
            self._followers[follower.node_id] = known
        else:
            if offset >= end:
                known.caught_up_ms = now_ms
            elif offset >= known.leader_end_then:
                known.caught_up_ms = max(known.caught_up_ms, known.fetched_ms)
            known.end_offset, known.fetched_ms, known.leader_end_then = offset, now_ms, end
        actions = [] if follower in self.state.isr else self._propose(self._joined(now_ms))
        actions += self._advance(now_ms)
        is_settled = not actions and offset == end and self._log.high_watermark >= end
        known.settled = (follower.life, offset, last_epoch) if is_settled else None
        return actions

    def on_growth(self, now_ms: int) -> list[Action]:
        """The log has grown here; or more of it is durable."""
        return self._advance(now_ms)

    def on_tick(self, now_ms: int) -> list[Action]:
        """Time has passed: who is too late leaves the ISR. A proposal of which nothing was heard is made
        again: its version says whether it was taken already."""
        if self._tried_ms + self._patience_ms > now_ms:
            return []
        self._tried_ms = now_ms
        if self._proposed is not None:
            return [Propose(self._proposed)]
        isr = [each for each in self.state.isr if not self._is_late(each, now_ms)]
        return self._propose(isr)

    def on_state(self, state: PartitionState, now_ms: int) -> list[Action]:
        """The coordinator has this state, of the same term."""
        for follower in self._followers.values():
            follower.settled = None
        if state.version > self.state.version:
            gone = {each.node_id for each in self.state.isr} - {each.node_id for each in state.isr}
            self.state = state
            self._forget(gone)
        if self._proposed is not None and state.version > self._proposed.version:
            self._proposed = None
        return self._advance(now_ms)

    def on_gone(self, node_ids: Iterable[int], now_ms: int) -> list[Action]:
        """These nodes do not live any more."""
        self._forget(node_ids)
        return self._advance(now_ms)

    # What follows

    def _forget(self, node_ids: Iterable[int]) -> None:
        """What their fetches have told, but for the life: a late request of that is still late."""
        for node_id in node_ids:
            follower = self._followers.get(node_id)
            if follower is not None:
                follower.end_offset, follower.caught_up_ms = _NOTHING, _NEVER_MS
                follower.settled = None

    @property
    def end_offset(self) -> int:
        """Up to where the leader counts as having the log."""
        return self._log.durable_offset if self.config.is_durable else self._log.log_end_offset

    @property
    def has_enough(self) -> bool:
        """Whether the ISR is large enough for ``acks=all``."""
        return len(self.state.isr) >= self.state.least(self.config.min_insync_replicas)

    @property
    def goes_by_growth(self) -> bool:
        """Whether the high watermark may rise because the log grows here, or more of it is durable. A member
        of the ISR has no more than what is here: as long as there is one, it rises when that asks."""
        return self.config.is_durable or len(self.state.isr) == 1

    def have(self, offset: int) -> dict[int, int]:
        """Up to where the followers in the ISR have the log, of those that have all below ``offset``."""
        members = {each.node_id for each in self.state.isr}
        return {
            node_id: follower.end_offset
            for node_id, follower in self._followers.items()
            if node_id in members and follower.end_offset >= offset
        }

    @property
    def lags(self) -> dict[int, int]:
        """How many records each other replica lacks, as far as it has told in this term."""
        start, end = self._log.log_start_offset, self._log.log_end_offset
        told = {node_id: follower.end_offset for node_id, follower in self._followers.items()}
        others = [node_id for node_id in self.state.replicas if node_id != self.node_id]
        return {node_id: max(end - max(told.get(node_id, start), start), 0) for node_id in others}

    @property
    def awaited(self) -> set[int]:
        """The followers of which the next leader may be one."""
        return self._maximal_isr() - {self.node_id}

    @property
    def _patience_ms(self) -> int:
        return self.config.replica_lag_time_max_ms // 2

    def _maximal_isr(self) -> set[int]:
        members = {each.node_id for each in self.state.isr}
        if self._proposed is not None:
            members |= {each.node_id for each in self._proposed.isr}
        return members

    def _advance(self, now_ms: int) -> list[Action]:
        if not self.has_enough:
            return []
        offset, high_watermark = self.end_offset, self._log.high_watermark
        members = self._maximal_isr()
        for node_id in self.state.replicas:
            follower = self._followers.get(node_id)
            if node_id in members and node_id != self.node_id:
                offset = min(offset, high_watermark if follower is None else follower.end_offset)
            elif follower is not None and self._is_caught_up(follower, now_ms):
                offset = min(offset, follower.end_offset)  # it is about to join, and should not have to wait
        return [RaiseHighWatermark(offset)] if offset > high_watermark else []

    def _is_caught_up(self, follower: _Follower, now_ms: int) -> bool:
        if follower.end_offset >= self.end_offset:
            return True
        return now_ms - follower.caught_up_ms <= self.config.replica_lag_time_max_ms

    def _is_late(self, member: Member, now_ms: int) -> bool:
        if member.node_id == self.node_id:
            return False
        follower = self._followers.get(member.node_id)
        if follower is None:
            return now_ms - self._began_ms > self.config.replica_lag_time_max_ms
        return not self._is_caught_up(follower, now_ms)

    def _joined(self, now_ms: int) -> Iterable[Member]:
        """The ISR with those who may join: they have what is below the high watermark, and something of this
        term's beginning, so that nothing in them can differ."""
        least = max(self._log.high_watermark, self._epoch_start)
        isr = {each.node_id: each for each in self.state.isr}
        for node_id, follower in self._followers.items():
            if follower.end_offset >= least and self._is_caught_up(follower, now_ms):
                isr[node_id] = Member(node_id, follower.life)
        return isr.values()

    def _propose(self, isr: Iterable[Member]) -> list[Action]:
        state = self.state.with_isr(isr, self.config.min_insync_replicas)
        if self._proposed is not None or set(state.isr) == set(self.state.isr):
            return []
        self._proposed = state
        return [Propose(state)]
