"""ReadShareGroupState."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.kept import Reading, ReadState
from logstore.format.messages.share_records import ShareKey
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.share_coordinator import ask
from logstore.wire.handlers.shares.kept import keys_of
from logstore.wire.handlers.then import then
from logstore.wire.messages.shares.kept import StateBatch
from logstore.wire.messages.shares.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    TopicResult,
)

_States = Mapping[ShareKey, ReadState]


def answer(
    call: Call, request: ReadShareGroupStateRequest, version: int
) -> Pending[ReadShareGroupStateResponse]:
    """A leader takes partitions up."""
    keys = keys_of(request.group_id, request.topics)
    parts = [each for topic in request.topics for each in topic.partitions]
    wanted = [Reading(key, each.leader_epoch) for key, each in zip(keys, parts, strict=True)]

    def refusal(code: ErrorCode) -> _States:
        return {key: ReadState(code) for key in keys}

    return then(ask(call, lambda states: states.read(wanted), refusal), _response)


def _response(found: _States) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        tuple(
            TopicResult(topic_id, tuple(_result(key, each) for key, each in items))
            for topic_id, items in groupby(found.items(), key=lambda item: item[0].topic_id)
        )
    )


def _result(key: ShareKey, found: ReadState) -> PartitionResult:
    if found.error is not NONE:
        return PartitionResult(key.partition, found.error, found.error.name)
    state = found.state
    batches = tuple([StateBatch(*each[:4]) for each in state.batches])
    return PartitionResult(
        key.partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=batches,
    )


def refuse(request: ReadShareGroupStateRequest, code: ErrorCode, version: int) -> ReadShareGroupStateResponse:
    """The error."""
    return _response(dict.fromkeys(keys_of(request.group_id, request.topics), ReadState(code)))
