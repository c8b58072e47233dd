"""Who leads what this node does not lead, told together with the refusal: the client need not ask for
metadata first (KIP-951)."""

from __future__ import annotations

from typing import Final, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.messages.parts import CurrentLeader, NodeEndpoint
from logstore.wire.messages.records.fetch import FetchResponse
from logstore.wire.messages.records.produce import ProduceResponse

_LED_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

R = TypeVar("R", ProduceResponse, FetchResponse)


def with_leaders(call: Call, response: R) -> R:
    """The response, with the leaders of the partitions that it refuses. A node that is alone has none."""
    cluster = call.node.cluster
    if cluster is None:
        return response
    endpoints: dict[int, NodeEndpoint] = {}
    topics = list(response.topics)
    for at, topic in enumerate(topics):
        refused = [n for n, each in enumerate(topic.partitions) if each.error_code in _LED_ELSEWHERE]
        name = (topic.name or call.node.topics.name_of(topic.topic_id)) if refused else None
        if name is None:
            continue
        partitions = list(topic.partitions)
        for number in refused:
            part = partitions[number]
            leader = cluster.leader_of(TopicPartition(name, part.partition))
            if leader is not None and leader.node_id != call.node.node_id:
                told = CurrentLeader(leader.node_id, leader.leader_epoch)
                partitions[number] = part._replace(current_leader=told)
                endpoints[leader.node_id] = NodeEndpoint(*leader.endpoint)
        topics[at] = topic._replace(partitions=tuple(partitions))
    if not endpoints:
        return response
    return response._replace(topics=tuple(topics), node_endpoints=tuple(endpoints.values()))
