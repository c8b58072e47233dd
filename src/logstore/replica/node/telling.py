"""What a node tells clients of its cluster: which nodes and which topics there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from logstore.format.names import SHARE_STATE_TOPIC
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import LivingNode, View
from logstore.replica.node.controller.administering import Administering
from logstore.replica.node.coordinating import GROUPS
from logstore.replica.node.transacting import TRANSACTIONS
from logstore.wire.handlers.call import BrokerEndpoint, CoordinatorKind, LeaderElsewhere

GetView = Callable[[], View]

SHARE_STATES: Final = TopicPartition(SHARE_STATE_TOPIC, 0)
"""The topic of a cluster has one partition: a node keeps all states or none."""
_COORDINATED: Final = {
    CoordinatorKind.GROUP: GROUPS,
    CoordinatorKind.TRANSACTION: TRANSACTIONS,
    CoordinatorKind.SHARE: SHARE_STATES,
}


def leader_of(view: View, partition: TopicPartition) -> int | None:
    """The node that leads the partition, if it is there."""
    state = view.partitions.get(partition)
    if state is None or state.leader is None or state.leader.node_id not in view.living:
        return None
    return state.leader.node_id


class LivingNodes:
    """See :class:`~logstore.wire.handlers.call.ClusterNodes`."""

    def __init__(
        self, view: GetView, administering: Administering, make_topic: Callable[[str], object]
    ) -> None:
        """``make_topic``: begins to make an internal topic."""
        self._view = view
        self._make_topic = make_topic
        self.elect = administering.elect
        self.reassign = administering.reassign
        self.moving = administering.moving
        self.throttle = administering.limit.change
        self.throttles = administering.limit.settings

    def brokers(self) -> tuple[BrokerEndpoint, ...]:
        living = self._view().living
        return tuple(
            [_endpoint_of(node_id, each) for node_id, each in sorted(living.items()) if each.endpoints]
        )

    def leader_of(self, partition: TopicPartition) -> LeaderElsewhere | None:
        view = self._view()
        node_id = leader_of(view, partition)
        if node_id is None or not view.living[node_id].endpoints:
            return None
        endpoint = _endpoint_of(node_id, view.living[node_id])
        return LeaderElsewhere(node_id, view.partitions[partition].leader_epoch, endpoint)

    def controller_id(self) -> int:
        seat = self._view().controller
        return -1 if seat is None else seat.member.node_id

    def coordinator_of(self, kind: CoordinatorKind, key: str) -> int:
        """The leader of the partition that has all groups, all transactions, or all states of queues. Its
        topic is made if there is none, as in Kafka: the client asks again."""
        view, partition = self._view(), _COORDINATED[kind]
        if partition.topic not in view.topics:
            self._make_topic(partition.topic)
        found = leader_of(view, partition)
        return -1 if found is None else found


def _endpoint_of(node_id: int, node: LivingNode) -> BrokerEndpoint:
    first = node.endpoints[0]
    return BrokerEndpoint(node_id, first.host, first.port, node.registration.rack)


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


class ClusterTopic(NamedTuple):
    """A topic, as far as groups know it."""

    topic_id: UUID
    partition_count: int


class TopicsOfCluster:
    """See :class:`~logstore.broker.storing.consumer_groups.TopicsOfDirectory`: all topics, whichever nodes
    have them. Cost: 1 µs, unless a partition has another state; then 0.1 µs for each."""

    def __init__(self, view: GetView) -> None:
        self._view = view
        self._seen: object = None
        self._topics: dict[str, ClusterTopic] = {}

    def __call__(self) -> dict[str, ClusterTopic]:
        view = self._view()
        if view.partitions is not self._seen:
            counts = Counter(name for name, _ in view.partitions)
            topics = {name: ClusterTopic(topic.topic_id, counts[name]) for name, topic in view.topics.items()}
            if topics != self._topics:
                self._topics = topics
            self._seen = view.partitions
        return self._topics
