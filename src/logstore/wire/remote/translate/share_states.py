"""Requests of nodes to the share coordinator (KIP-932): InitializeShareGroupState, ReadShareGroupState,
WriteShareGroupState, DeleteShareGroupState; and ListGroups, for the groups that it knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.broker.share.kept import STORED, Beginning, Codes, Names, Reading, ReadState, Writing
from logstore.broker.share.stored import ShareState
from logstore.format.messages.share_records import UNKNOWN_COUNT, ShareBatch, ShareKey
from logstore.wire.apis import ApiKey
from logstore.wire.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from logstore.wire.messages.shares import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
)
from logstore.wire.messages.shares.initialize_share_group_state import BEGINS_ANEW
from logstore.wire.messages.shares.kept import Partition, StateBatch, Topic
from logstore.wire.remote.connections.codes import code_of_number
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.translate.translation import Translation

I = TypeVar("I")  # noqa: E741 - an item
P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


def _request(
    request: Callable[[str, tuple[T, ...]], R],
    topic: Callable[[UUID, tuple[P, ...]], T],
    partition: Callable[[I], P],
    items: Sequence[I],
    key_of: Callable[[I], ShareKey],
) -> R:
    """A request about items, which are all of one group, topic by topic."""
    found: dict[UUID, list[P]] = {}
    for item in items:
        found.setdefault(key_of(item).topic_id, []).append(partition(item))
    topics = tuple(topic(topic_id, tuple(some)) for topic_id, some in found.items())
    return request(key_of(items[0]).group_id, topics)


def _key(item: Any) -> ShareKey:
    key: ShareKey = item.key
    return key


def _answers(topics: Iterable[Any]) -> dict[tuple[UUID, int], Any]:
    return {(topic.topic_id, each.partition): each for topic in topics for each in topic.partitions}


def _parse_codes(keys: Iterable[ShareKey], response: Any) -> Codes:
    found = _answers(response.topics)
    codes = {}
    for key in keys:
        answer = found.get((key.topic_id, key.partition))
        codes[key] = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else code_of_number(answer.error_code)
    return codes


BEGIN: Final = Translation[Sequence[Beginning], Codes](
    key=ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    build=lambda wanted, version: _request(
        initialize_share_group_state.InitializeShareGroupStateRequest,
        initialize_share_group_state.Topic,
        lambda each: initialize_share_group_state.Partition(
            each.key.partition, BEGINS_ANEW if each.anew else 0, each.start_offset
        ),
        wanted,
        _key,
    ),
    parse=lambda wanted, response: _parse_codes(map(_key, wanted), response),
    refuse=lambda wanted, code, message: {each.key: code for each in wanted},
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
)


def _parse_states(
    wanted: Sequence[Reading], response: read_share_group_state.ReadShareGroupStateResponse
) -> Mapping[ShareKey, ReadState]:
    answers = _answers(response.topics)
    found = {}
    for key, epoch in wanted:
        answer = answers.get((key.topic_id, key.partition))
        if answer is None:
            found[key] = ReadState(ErrorCode.UNKNOWN_SERVER_ERROR)
            continue
        batches = tuple([ShareBatch(*each) for each in answer.state_batches])
        state = ShareState(answer.state_epoch, epoch, answer.start_offset, batches)
        found[key] = ReadState(code_of_number(answer.error_code), state, answer.last_epoch)
    return found


READ: Final = Translation[Sequence[Reading], Mapping[ShareKey, ReadState]](
    key=ApiKey.READ_SHARE_GROUP_STATE,
    build=lambda wanted, version: _request(
        read_share_group_state.ReadShareGroupStateRequest,
        Topic,
        lambda each: Partition(each.key.partition, each.leader_epoch),
        wanted,
        _key,
    ),
    parse=_parse_states,
    refuse=lambda wanted, code, message: {each.key: ReadState(code) for each in wanted},
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
)


def _written(item: Writing) -> write_share_group_state.Partition:
    (_, _, number), state_epoch, change = item
    return write_share_group_state.Partition(
        number,
        state_epoch,
        change.leader_epoch,
        change.start_offset,
        UNKNOWN_COUNT,
        tuple(StateBatch(*each[:4]) for each in change.batches),
    )


WRITE: Final = Translation[Sequence[Writing], Codes](
    key=ApiKey.WRITE_SHARE_GROUP_STATE,
    build=lambda wanted, version: _request(
        write_share_group_state.WriteShareGroupStateRequest,
        write_share_group_state.Topic,
        _written,
        wanted,
        _key,
    ),
    parse=lambda wanted, response: _parse_codes(map(_key, wanted), response),
    refuse=lambda wanted, code, message: {each.key: code for each in wanted},
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
)

DELETE: Final = Translation[Sequence[ShareKey], Codes](
    key=ApiKey.DELETE_SHARE_GROUP_STATE,
    build=lambda keys, version: _request(
        delete_share_group_state.DeleteShareGroupStateRequest,
        delete_share_group_state.Topic,
        lambda key: delete_share_group_state.Partition(key.partition),
        keys,
        lambda key: key,
    ),
    parse=_parse_codes,
    refuse=lambda keys, code, message: dict.fromkeys(keys, code),
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
)


def _parse_names(_: None, response: ListGroupsResponse) -> Names:
    return Names(code_of_number(response.error_code), tuple(each.group_id for each in response.groups))


NAMES: Final = Translation[None, Names](
    key=ApiKey.LIST_GROUPS,
    build=lambda _, version: ListGroupsRequest((STORED,)),
    parse=_parse_names,
    refuse=lambda _, code, message: Names(code),
    first=4,
)
