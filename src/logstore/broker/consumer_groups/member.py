"""A member of a group: what it says of itself, what it has, and its next step towards a target.

Members are values: a change makes another one. No clock, no storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final, NamedTuple

from logstore.broker.consumer_groups.requests import (
    JOINING,
    NO_TIMEOUT,
    PAUSING,
    ConsumerGroupHeartbeat,
    TopicIdPartition,
)
from logstore.broker.consumer_groups.states import Event, MemberState, next_state
from logstore.format.messages.consumer_group_records import ClassicMemberMetadata

Epochs = Mapping[TopicIdPartition, int]
"""Partitions, each with the member's epoch in which it was assigned."""

_NOTHING: Final[Epochs] = {}


class Member(NamedTuple):
    """One member. Its mappings are never changed."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """What a member of the classic protocol says beside that; None of one of the newer protocol."""
    state: MemberState = MemberState.STABLE
    epoch: int = JOINING
    """``PAUSING`` while it is away."""
    previous_epoch: int = JOINING
    """A heartbeat with it is accepted: the answer with the present one may be lost."""
    assigned: Epochs = _NOTHING
    """What it may use, or will be told that it may."""
    revoking: Epochs = _NOTHING
    """What it was told to give up, and has not yet."""

    def updated(self, beat: ConsumerGroupHeartbeat, classic: ClassicMemberMetadata | None = None) -> Member:
        """With what a heartbeat says. The same member if that is nothing new."""
        after = self._replace(
            instance_id=_given(beat.instance_id, self.instance_id),
            rack_id=_given(beat.rack_id, self.rack_id),
            client_id=beat.client_id,
            client_host=beat.client_host,
            topics=self.topics if beat.topics is None else frozenset(beat.topics),
            pattern=_given(beat.pattern, self.pattern) or None,
            rebalance_timeout_ms=self.rebalance_timeout_ms
            if beat.rebalance_timeout_ms == NO_TIMEOUT
            else beat.rebalance_timeout_ms,
            assignor=_given(beat.assignor, self.assignor),
            classic=classic,
        )
        return self if after == self else after

    def subscribes_as(self, other: Member) -> bool:
        """Whether it subscribes to the same."""
        return self.topics == other.topics and self.pattern == other.pattern

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has the whole target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def held(self) -> Epochs:
        """All that nobody else may have."""
        return {**self.assigned, **self.revoking} if self.revoking else self.assigned

    def away(self) -> Member:
        """A static member leaves for a while: it keeps what it may use."""
        state = next_state(self.state, Event.PAUSES)
        return self._replace(state=state, epoch=PAUSING, revoking=_NOTHING)

    def returned(self, member_id: str) -> Member:
        """It is back, under another id."""
        state = next_state(self.state, Event.RETURNS)
        return self._replace(member_id=member_id, state=state, epoch=JOINING, previous_epoch=JOINING)

    def reconciled(
        self,
        target: Set[TopicIdPartition],
        target_epoch: int,
        owned: Set[TopicIdPartition] | None,
        is_free: Callable[[TopicIdPartition], bool],
    ) -> Member:
        """Its next step. The same member if there is none.

        Args:
            owned: what the member says that it has; None if it does not say.
            is_free: whether no other member has a partition.
        """
        if self.is_reconciled_to(target_epoch):
            return self
        epoch = self.epoch
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if _has_any(owned, self.revoking):
                return self
            epoch += 1
        kept = {each: since for each, since in self.assigned.items() if each in target}
        revoking = {each: since for each, since in self.assigned.items() if each not in target}
        if revoking and _has_any(owned, revoking):
            return self._stepped(Event.MUST_REVOKE, epoch, kept, revoking)
        lacking = [each for each in target if each not in kept]
        free = [each for each in lacking if is_free(each)]
        event = Event.HAS_ALL if len(free) == len(lacking) else Event.MUST_WAIT
        return self._stepped(event, target_epoch, {**kept, **dict.fromkeys(free, target_epoch)}, _NOTHING)

    def _stepped(self, event: Event, epoch: int, assigned: Epochs, revoking: Epochs) -> Member:
        state = next_state(self.state, event)
        same = (self.state, self.epoch, self.assigned, self.revoking) == (state, epoch, assigned, revoking)
        if same:
            return self
        return self._replace(
            state=state, epoch=epoch, previous_epoch=self.epoch, assigned=assigned, revoking=revoking
        )


def _has_any(owned: Set[TopicIdPartition] | None, revoking: Epochs) -> bool:
    """Whether the member may still have something of what it is to give up."""
    return owned is None or not owned.isdisjoint(revoking)


def _given(text: str | None, otherwise: str | None) -> str | None:
    return otherwise if text is None else text
