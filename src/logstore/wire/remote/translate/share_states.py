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
from logstore.wire.messages.shares.kept import Partition, StateBatch, Topic
from logstore.wire.remote.codes import code_of_number
from logstore.wire.remote.nodes import Lane
from logstore.wire.remote.translate.translation import Translation

I = TypeVar("I")  # noqa: E741 - an item


def _by_topic(items: Iterable[I], key_of: Callable[[I], ShareKey]) -> dict[UUID, list[I]]:
    found: dict[UUID, list[I]] = {}
    for item in items:
        found.setdefault(key_of(item).topic_id, []).append(item)
    return found


def _group_of(items: Sequence[Any], key_of: Callable[[Any], ShareKey]) -> str:
    """All of them are of one."""
    return key_of(items[0]).group_id


def _key(item: Any) -> ShareKey:
    key: ShareKey = item.key
    return key


def _itself(key: ShareKey) -> ShareKey:
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
    build=lambda wanted, version: initialize_share_group_state.InitializeShareGroupStateRequest(
        _group_of(wanted, _key),
        tuple(
            initialize_share_group_state.Topic(
                topic_id,
                tuple(
                    initialize_share_group_state.Partition(key.partition, 0, start) for key, start in items
                ),
            )
            for topic_id, items in _by_topic(wanted, _key).items()
        ),
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
        found[key] = ReadState(code_of_number(answer.error_code), state)
    return found


READ: Final = Translation[Sequence[Reading], Mapping[ShareKey, ReadState]](
    key=ApiKey.READ_SHARE_GROUP_STATE,
    build=lambda wanted, version: read_share_group_state.ReadShareGroupStateRequest(
        _group_of(wanted, _key),
        tuple(
            Topic(topic_id, tuple(Partition(key.partition, epoch) for key, epoch in items))
            for topic_id, items in _by_topic(wanted, _key).items()
        ),
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
    build=lambda wanted, version: write_share_group_state.WriteShareGroupStateRequest(
        _group_of(wanted, _key),
        tuple(
            write_share_group_state.Topic(topic_id, tuple(map(_written, items)))
            for topic_id, items in _by_topic(wanted, _key).items()
        ),
    ),
    parse=lambda wanted, response: _parse_codes(map(_key, wanted), response),
    refuse=lambda wanted, code, message: {each.key: code for each in wanted},
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
)

DELETE: Final = Translation[Sequence[ShareKey], Codes](
    key=ApiKey.DELETE_SHARE_GROUP_STATE,
    build=lambda keys, version: delete_share_group_state.DeleteShareGroupStateRequest(
        _group_of(keys, _itself),
        tuple(
            delete_share_group_state.Topic(
                topic_id, tuple(delete_share_group_state.Partition(each.partition) for each in items)
            )
            for topic_id, items in _by_topic(keys, _itself).items()
        ),
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
