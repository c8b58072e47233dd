"""Partitions that move to other nodes (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.requests import Reassignment
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import alter_partition_reassignments as altering
from logstore.wire.messages.cluster import list_partition_reassignments as listing
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.translate.translation import Translation, by_topic

_TIMEOUT_MS: Final = 30_000


class Reassign(NamedTuple):
    """Where partitions are to be: their nodes, the preferred leader first; None calls a move off."""

    wanted: Mapping[TopicPartition, tuple[int, ...] | None]


class Reassigned(NamedTuple):
    """What became of it."""

    error: ErrorCode
    """The first one of all."""
    message: str | None = None


class Reassignments(NamedTuple):
    """All of them."""

    error: ErrorCode
    message: str | None = None
    moving: Mapping[TopicPartition, Reassignment] = {}


def _build(request: Reassign, version: int) -> altering.AlterPartitionReassignmentsRequest:
    topics = by_topic(request.wanted, lambda each: each)
    return altering.AlterPartitionReassignmentsRequest(
        _TIMEOUT_MS,
        topics=tuple(
            altering.Topic(
                name, tuple(altering.Partition(each.partition, request.wanted[each]) for each in partitions)
            )
            for name, partitions in topics.items()
        ),
    )


def _parse(request: Reassign, response: Any) -> Reassigned:
    for topic in response.responses:
        for each in topic.partitions:
            if each.error_code:
                return _failed(each.error_code, each.error_message, f"{topic.name}-{each.partition}")
    if response.error_code:
        return _failed(response.error_code, response.error_message, "partitions cannot be moved")
    return Reassigned(NONE)


def _failed(number: int, message: str | None, what: str) -> Reassigned:
    code = code_of_number(number)
    return Reassigned(code, f"{what}: {why_of_number(number, message) or code.name}")


REASSIGN: Final = Translation[Reassign, Reassigned](
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    build=_build,
    parse=_parse,
    refuse=lambda request, code, message: Reassigned(code, message),
    lane=Lane.WAITS,
    wait_ms=lambda _: _TIMEOUT_MS,
)


def _parse_listed(request: None, response: Any) -> Reassignments:
    if response.error_code:
        code, why = response.error_code, response.error_message
        return Reassignments(code_of_number(code), why_of_number(code, why))
    return Reassignments(
        NONE,
        moving={
            TopicPartition(topic.name, each.partition): Reassignment(
                each.replicas, each.adding_replicas, each.removing_replicas
            )
            for topic in response.topics
            for each in topic.partitions
        },
    )


REASSIGNMENTS: Final = Translation[None, Reassignments](
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    build=lambda request, version: listing.ListPartitionReassignmentsRequest(_TIMEOUT_MS),
    parse=_parse_listed,
    refuse=lambda request, code, message: Reassignments(code, message),
    lane=Lane.WAITS,
    wait_ms=lambda _: _TIMEOUT_MS,
)
