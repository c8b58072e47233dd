"""ReadShareGroupState."""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.kept import Reading, ReadState
from logstore.format.messages.share_records import ShareKey
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.share_coordinator import ask
from logstore.wire.handlers.shares.kept import by_topic, keys_of, parts_of
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
    parts = parts_of(request.group_id, request.topics)
    wanted = [Reading(key, each.leader_epoch) for key, each in parts]

    def refusal(code: ErrorCode) -> _States:
        return {key: ReadState(code) for key, _ in parts}

    return then(ask(call, lambda states: states.read(wanted), refusal), _response)


def _response(found: _States) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        tuple(
            TopicResult(topic_id, tuple(_result(key, each) for key, each in items))
            for topic_id, items in by_topic(found)
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
        last_epoch=found.last_epoch,
    )


def refuse(request: ReadShareGroupStateRequest, code: ErrorCode, version: int) -> ReadShareGroupStateResponse:
    """The error."""
    return _response(dict.fromkeys(keys_of(request.group_id, request.topics), ReadState(code)))
