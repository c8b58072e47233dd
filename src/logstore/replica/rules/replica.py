"""One replica: what one node does with one partition. Events in, actions out.

Drive it like this: tell it what happened, carry out the actions that it returns, in that order, and tell it
of what follows from them. It looks at the log, and never changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from logstore.broker.records.diverging import find_divergence
from logstore.broker.requests import DivergingEpoch
from logstore.format.header import NO_EPOCH
from logstore.replica.rules.actions import (
    Action,
    BeginEpoch,
    Fetch,
    FetchAnswer,
    StepDown,
)
from logstore.replica.rules.following import apply_answer, plan_fetch
from logstore.replica.rules.leading import Leading, LogFacts, ReplicaConfig
from logstore.replica.rules.partition_state import Member, PartitionState
from logstore.replica.rules.states import Event, ReplicaState, next_state


class FetchCheck(NamedTuple):
    """What a leader finds out about a follower's fetch."""

    diverging: DivergingEpoch | None
    is_out_of_range: bool
    actions: list[Action]


_NOTHING_NEW: Final = FetchCheck(None, False, [])


class Replica:
    """Of one partition, at one node, in one life of the node."""

    def __init__(self, member: Member, log: LogFacts, config: ReplicaConfig) -> None:
        self.member = member
        self.config = config
        self.state = ReplicaState.IDLE
        self.partition_state: PartitionState | None = None
        """The newest that the coordinator has told."""
        self.leading: Leading | None = None
        """Its term, if it leads."""
        self._log = log
        self._asked: Fetch | None = None
        self._needs_word = False
        """Whether it led until its lease ended. It may be the leader still: what the coordinator says next
        tells."""

    @property
    def leader_epoch(self) -> int:
        """The epoch in which it leads or follows."""
        return NO_EPOCH if self.partition_state is None else self.partition_state.leader_epoch

    @property
    def leads(self) -> bool:
        return self.state is ReplicaState.LEADING

    def _meet(self, event: Event) -> None:
        self.state = next_state(self.state, event)

    # What the coordinator tells

    def on_state(self, state: PartitionState, now_ms: int) -> list[Action]:
        """The coordinator has this state of the partition. One that is older than what is known has no
        effect."""
        known, is_again = self.partition_state, self._needs_word
        if known is not None and (state.version < known.version or (state == known and not is_again)):
            return []
        self.partition_state, self._needs_word = state, False
        if known is not None and state.leader_epoch == known.leader_epoch and not is_again:
            return [] if self.leading is None else self.leading.on_state(state, now_ms)
        return self._begin_term(state, now_ms)

    def _begin_term(self, state: PartitionState, now_ms: int) -> list[Action]:
        before = None if self.leading is None else self.leading.state.leader_epoch
        goes_on = state.leader == self.member and before == state.leader_epoch - 1
        # No other node has led in between, so records may go on waiting for their replication.
        actions: list[Action] = [StepDown()] if self.leads and not goes_on else []
        self.leading = self._asked = None
        if state.leader == self.member:
            self._meet(Event.ELECTED)
            self.leading = Leading(self.member.node_id, state, self._log, self.config, now_ms)
            actions.append(BeginEpoch(state.leader_epoch))
        elif state.leader is None or state.leader.node_id == self.member.node_id:
            self._meet(
                Event.NO_LEADER
            )  # or it was elected in an earlier life, which has lost what it may need
        else:
            self._meet(Event.OTHER_LEADS)
        return actions

    def on_lease_ended(self) -> list[Action]:
        """The coordinator was not heard of for so long that it may have let another lead. What was the
        node's is led no more, until the coordinator has said again that it leads."""
        was_leading = self.leads
        self._meet(Event.LEASE_ENDED)
        if not was_leading:
            return []
        self.leading, self._needs_word = None, True
        return [StepDown()]

    # As a leader

    def on_fetch(self, follower: Member, offset: int, last_fetched_epoch: int, now_ms: int) -> FetchCheck:
        """A follower asks, in the leader's epoch."""
        assert self.leading is not None
        if self.leading.on_same_fetch(follower, offset, last_fetched_epoch, now_ms):
            return _NOTHING_NEW
        diverging = find_divergence(self._log, offset, last_fetched_epoch)
        is_out_of_range = offset < self._log.log_start_offset or offset > self._log.log_end_offset
        if diverging is not None or is_out_of_range:
            return FetchCheck(diverging, is_out_of_range and diverging is None, [])
        actions = self.leading.on_fetch(follower, offset, last_fetched_epoch, now_ms)
        return FetchCheck(None, False, actions)

    def on_gone(self, node_ids: Iterable[int], now_ms: int) -> list[Action]:
        """These nodes do not live any more."""
        return [] if self.leading is None else self.leading.on_gone(node_ids, now_ms)

    def on_growth(self, now_ms: int) -> list[Action]:
        """The log has grown, or more of it is durable."""
        return [] if self.leading is None else self.leading.on_growth(now_ms)

    # As a follower

    def on_tick(self, now_ms: int) -> list[Action]:
        """Time has passed, or a follower may ask again."""
        if self.leading is not None:
            return self.leading.on_tick(now_ms)
        state = self.partition_state
        follows = self.state in (ReplicaState.COMPARING, ReplicaState.FOLLOWING)
        if not follows or self._asked is not None or state is None or state.leader is None:
            return []
        fetch = plan_fetch(
            state.leader.node_id, state.leader_epoch, self._log, is_durable=self.config.is_durable
        )
        self._asked = fetch
        return [fetch]

    def asks(self, fetch: Fetch) -> bool:
        """Whether this is what it has asked, and still wants to know."""
        return fetch is self._asked

    def give_up(self) -> None:
        """An answer to what it has asked counts no more: it may ask again."""
        self._asked = None

    def on_answer(self, fetch: Fetch, answer: FetchAnswer | None) -> list[Action]:
        """The leader has answered, or will not. An answer to what was asked before a change counts no
        more."""
        if fetch is not self._asked:
            return []
        self._asked = None
        if answer is None or answer.leader_epoch != fetch.leader_epoch:
            return []
        has_parted = answer.diverging is not None or answer.is_out_of_range
        self._meet(Event.PARTED if has_parted else Event.AGREED)
        return apply_answer(self._log, answer)
