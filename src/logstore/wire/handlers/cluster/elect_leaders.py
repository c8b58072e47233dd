"""ElectLeaders."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import MetadataRequest, MetadataResult, PartitionMetadata, TopicMetadata
from logstore.errors import LogstoreError
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call, ClusterNodes, told
from logstore.wire.handlers.then import then
from logstore.wire.messages.cluster.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from logstore.wire.messages.parts import PartitionResult, TopicResult

_NOT_POSSIBLE: Final = {
    0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
"""Of each type of election: the error if there is nothing to elect."""
_WHY: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.ELECTION_NOT_NEEDED: "it is led as it should be",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the first of its replicas is not in sync, or not there",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "none of its replicas lives",
    ErrorCode.REQUEST_TIMED_OUT: "it was changed meanwhile; ask again",
}


def answer(call: Call, request: ElectLeadersRequest, version: int) -> Pending[ElectLeadersResponse]:
    """Let preferred leaders lead, or anybody in place of nobody. A node that is alone has nothing to elect:
    a partition has one replica, which leads it if it can be used."""
    if not call.allows_cluster(Operation.ALTER):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    if request.election_type not in _NOT_POSSIBLE:
        return Answered(refuse(request, ErrorCode.INVALID_REQUEST, version))
    if call.node.cluster is not None:
        return Answered(_elect(call.node.cluster, request, version))
    names = None if request.topics is None else tuple(dict.fromkeys(each.name for each in request.topics))
    return then(call.broker.metadata(MetadataRequest(names)), lambda found: _response(request, found))


def _elect(cluster: ClusterNodes, request: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    wanted = (
        None
        if request.topics is None
        else [TopicPartition(topic.name, each) for topic in request.topics for each in topic.partitions]
    )
    try:
        found = cluster.elect(wanted, is_unclean=bool(request.election_type))
    except LogstoreError as error:
        return refuse(request, code_of(error), version)
    if found is None:
        return refuse(request, ErrorCode.NOT_CONTROLLER, version)
    if wanted is None:  # of all partitions, those are named of which there was anything to elect
        found = {each: code for each, code in found.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
    by_topic: dict[str, list[PartitionResult]] = {}
    for each, code in found.items():
        result = PartitionResult(each.partition, code, _WHY.get(code))
        by_topic.setdefault(each.topic, []).append(result)
    return ElectLeadersResponse(
        topics=tuple(TopicResult(name, tuple(results)) for name, results in by_topic.items())
    )


def _response(request: ElectLeadersRequest, found: MetadataResult) -> ElectLeadersResponse:
    if request.topics is None:
        topics = [_failed(each, request.election_type) for each in found.topics]
        return ElectLeadersResponse(topics=tuple(each for each in topics if each.partitions))
    known = {each.name: each for each in found.topics}
    return ElectLeadersResponse(
        topics=tuple(
            TopicResult(
                topic.name,
                tuple(
                    _outcome(known[topic.name], number, request.election_type) for number in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _failed(topic: TopicMetadata, kind: int) -> TopicResult:
    """Of all partitions, those are named that have no leader."""
    outcomes = (_outcome(topic, each.partition, kind) for each in topic.partitions)
    return TopicResult(
        topic.name, tuple(each for each in outcomes if each.error_code != ErrorCode.ELECTION_NOT_NEEDED)
    )


def _outcome(topic: TopicMetadata, number: int, kind: int) -> PartitionResult:
    if topic.error is not ErrorCode.NONE:
        return PartitionResult(number, topic.error, told(topic.name, topic.error, topic.message))
    if not 0 <= number < len(topic.partitions):
        why = f"topic {topic.name!r} has {len(topic.partitions)} partitions, from 0 on"
        return PartitionResult(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    if _has_leader(topic.partitions[number]):
        return PartitionResult(number, ErrorCode.ELECTION_NOT_NEEDED, "the only replica is the leader")
    return PartitionResult(number, _NOT_POSSIBLE[kind], "the only replica cannot be used")


def _has_leader(partition: PartitionMetadata) -> bool:
    return partition.error is ErrorCode.NONE and partition.leader_id >= 0


def refuse(request: ElectLeadersRequest, code: ErrorCode, version: int) -> ElectLeadersResponse:
    """The error, of the whole request and of each partition that is named."""
    topics = tuple(
        TopicResult(topic.name, tuple(PartitionResult(each, code) for each in topic.partitions))
        for topic in request.topics or ()
    )
    return ElectLeadersResponse(error_code=code, topics=topics)
