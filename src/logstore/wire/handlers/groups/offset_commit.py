"""OffsetCommit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import OffsetCommitRequest as ToCommit
from logstore.broker.requests import OffsetCommitResult as Committed
from logstore.logdir.acls import Operation
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    Partition,
    PartitionResult,
    Topic,
    TopicResult,
)

_WITH_MEMBER_EPOCHS: Final = 9
"""From this version on clients know STALE_MEMBER_EPOCH (KIP-848)."""
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""What is not there is told whoever commits: the group is not asked."""
_BY_ID: Final = 10
"""From this version on topics are named by their ids."""


def answer(call: Call, request: OffsetCommitRequest, version: int) -> Pending[OffsetCommitResponse]:
    """Commit the offsets of the topics that the client may read. How long they are kept is up to the store,
    as in Kafka's later versions: what old versions ask for is passed over."""
    if not call.allows_group(Operation.READ, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    named = [(topic, *_resolved(call, topic, version)) for topic in request.topics]
    offsets = {
        TopicPartition(name, each.partition): _committed(each)
        for topic, name, code in named
        if code is ErrorCode.NONE
        for each in topic.partitions
        if call.node.topics.has(TopicPartition(name, each.partition))
    }
    if not offsets:
        return Answered(_response(named, {}))
    asked = ToCommit(
        request.group_id,
        offsets,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    return then(
        call.broker.offset_commit(asked),
        lambda result: _response(named, _known(call, result, version)),
    )


_Named = list[tuple[Topic, str, ErrorCode]]


def _resolved(call: Call, topic: Topic, version: int) -> tuple[str, ErrorCode]:
    return resolve(call, Operation.READ, topic.name, topic.topic_id if version >= _BY_ID else None)


def _committed(each: Partition) -> OffsetAndMetadata:
    epoch = each.leader_epoch if each.leader_epoch >= 0 else None
    return OffsetAndMetadata(each.offset, each.metadata or "", epoch)


def _known(call: Call, result: Committed, version: int) -> dict[TopicPartition, ErrorCode]:
    known = {each: as_told(call, code, result.message) for each, code in result.errors.items()}
    if version < _WITH_MEMBER_EPOCHS:
        for each, code in known.items():
            if code is ErrorCode.STALE_MEMBER_EPOCH:
                known[each] = ErrorCode.UNSUPPORTED_VERSION
    return known


def _response(named: _Named, errors: Mapping[TopicPartition, ErrorCode]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            TopicResult(
                topic.name,
                topic.topic_id,
                tuple(
                    PartitionResult(
                        each.partition,
                        errors.get(TopicPartition(name, each.partition), _UNKNOWN)
                        if code is ErrorCode.NONE
                        else code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic, name, code in named
        )
    )


def refuse(request: OffsetCommitRequest, code: ErrorCode, version: int) -> OffsetCommitResponse:
    """The same error for every partition."""
    return _response([(topic, topic.name, code) for topic in request.topics], {})
