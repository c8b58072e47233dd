"""What settings are of, and who may see and change which; with the numbers of Kafka's protocol."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call


class ConfigResource(IntEnum):
    """What settings are of."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_RESOURCES: Final = frozenset(ConfigResource)


class Refusal(NamedTuple):
    """Why nothing is done."""

    code: ErrorCode
    message: str | None = None
    """For people, where it says more than the code."""


def invalid(message: str) -> Refusal:
    """The request is wrong, or asks for what there is not."""
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def denied(call: Call, operation: Operation, resource_type: int, name: str) -> Refusal | None:
    """Why the client may not; None if it may."""
    if resource_type == ConfigResource.TOPIC:
        is_allowed, code = call.allows_topic(operation, name), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif resource_type == ConfigResource.GROUP:
        is_allowed, code = call.allows_group(operation, name), ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif resource_type in _RESOURCES:
        is_allowed, code = call.allows_cluster(operation), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        return invalid(f"resource type {resource_type} is unknown")
    return None if is_allowed else Refusal(code)


def not_this_node(call: Call, name: str) -> Refusal | None:
    """Why a broker's name is wrong; None if it is this node's, or stands for all brokers."""
    if name in ("", str(call.node.node_id)):
        return None
    return invalid(f"there is no broker {name!r}; the only one is {call.node.node_id}")
