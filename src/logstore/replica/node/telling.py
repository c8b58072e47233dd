"""What a node tells clients of its cluster: which nodes and which topics there are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import View
from logstore.replica.node.coordinating import GROUPS
from logstore.replica.node.transacting import TRANSACTIONS
from logstore.wire.handlers.call import BrokerEndpoint, CoordinatorKind

GetView = Callable[[], View]


class Elect(Protocol):
    """See :meth:`.Controlling.elect_now`."""

    def __call__(
        self, partitions: Collection[tuple[str, int]] | None, /, *, is_unclean: bool
    ) -> Mapping[tuple[str, int], ErrorCode] | None: ...


_COORDINATED: Final = {CoordinatorKind.GROUP: GROUPS, CoordinatorKind.TRANSACTION: TRANSACTIONS}


def leader_of(view: View, partition: TopicPartition) -> int | None:
    """The node that leads the partition, if it is there."""
    state = view.partitions.get(partition)
    if state is None or state.leader is None or state.leader.node_id not in view.living:
        return None
    return state.leader.node_id


class LivingNodes:
    """See :class:`~logstore.wire.handlers.call.ClusterNodes`."""

    def __init__(self, view: GetView, elect: Elect) -> None:
        self._view = view
        self._elect = elect

    def elect(
        self, partitions: Collection[TopicPartition] | None, *, is_unclean: bool
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        found = self._elect(partitions, is_unclean=is_unclean)
        return None if found is None else {TopicPartition(*each): code for each, code in found.items()}

    def brokers(self) -> tuple[BrokerEndpoint, ...]:
        return tuple(
            [
                BrokerEndpoint(
                    node_id, each.endpoints[0].host, each.endpoints[0].port, each.registration.rack
                )
                for node_id, each in sorted(self._view().living.items())
                if each.endpoints
            ]
        )

    def controller_id(self) -> int:
        seat = self._view().controller
        return -1 if seat is None else seat.member.node_id

    def coordinator_of(self, kind: CoordinatorKind, key: str) -> int:
        """The leader of the partition that has all groups, or all transactions. Queues are not there yet
        where topics are replicated: any node says so."""
        view = self._view()
        partition = _COORDINATED.get(kind)
        if partition is None:
            return min(view.living, default=-1)
        found = leader_of(view, partition)
        return -1 if found is None else found


class ClusterTopicIds:
    """See :class:`~logstore.wire.handlers.call.TopicIds`: also of topics that other nodes have."""

    def __init__(self, view: GetView) -> None:
        self._view = view
        self._known: tuple[object, dict[UUID, str]] = (None, {})

    @property
    def stamp(self) -> object:
        return self._view().topics

    def id_of(self, name: str) -> UUID | None:
        topic = self._view().topics.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: UUID) -> str | None:
        topics = self._view().topics
        stamp, names = self._known
        if stamp is not topics:
            names = {each.topic_id: name for name, each in topics.items()}
            self._known = topics, names
        return names.get(topic_id)

    def has(self, partition: TopicPartition) -> bool:
        return partition in self._view().partitions
