"""What the rules say of the partitions of a view, with the settings of their topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from logstore.replica.coordination.interface import TopicPartition, View
from logstore.replica.rules.electing import Election, elect, prefer
from logstore.replica.rules.partition_state import Living, PartitionState
from logstore.replica.rules.reassigning import arrive, is_moving, reassign


class _Rule(Protocol):
    def __call__(
        self, state: PartitionState, living: Living, *, min_isr: int, is_durable: bool
    ) -> PartitionState | None: ...


class TopicRules(NamedTuple):
    """What elections ask of a topic's settings."""

    min_isr: int
    is_durable: bool
    allows_unclean: bool


class Decisions:
    """Each is None if there is no such partition, or nothing to change."""

    def __init__(self, rules_of: Callable[[str], TopicRules | None]) -> None:
        self._rules_of = rules_of

    def elect(
        self, view: View, partition: TopicPartition, *, allows_unclean: bool = False
    ) -> Election | None:
        """See :func:`.electing.elect`; also if nothing changes."""
        state, rules = view.partitions.get(partition), self._rules_of(partition[0])
        if state is None or rules is None:
            return None
        return elect(
            state,
            view.registrations,
            min_isr=rules.min_isr,
            is_durable=rules.is_durable,
            allows_unclean=allows_unclean or rules.allows_unclean,
        )

    def prefer(self, view: View, partition: TopicPartition) -> PartitionState | None:
        """See :func:`.electing.prefer`."""
        return self._change(prefer, view, partition)

    def arrive(self, view: View, partition: TopicPartition) -> PartitionState | None:
        """See :func:`.reassigning.arrive`. Cost: nothing is looked up of a partition that does not move, as
        all are asked about whenever a node comes or goes."""
        return self._change(arrive, view, partition) if is_moving(view.partitions[partition]) else None

    def _change(self, rule: _Rule, view: View, partition: TopicPartition) -> PartitionState | None:
        rules = self._rules_of(partition[0])
        if rules is None:
            return None
        state = view.partitions[partition]
        return rule(state, view.registrations, min_isr=rules.min_isr, is_durable=rules.is_durable)

    def reassign(
        self, view: View, topic: str, state: PartitionState, wanted: tuple[int, ...]
    ) -> PartitionState | None:
        """See :func:`.reassigning.reassign`."""
        rules = self._rules_of(topic)
        if rules is None:
            return None
        return reassign(state, wanted, view.registrations, min_isr=rules.min_isr, is_durable=rules.is_durable)
