"""What consumers of a group tell each other through the coordinator: Kafka's "consumer" embedded protocol.

A member sends a subscription when it joins; the leader of the group answers with an assignment for each
member. Both begin with their version. Kafka's rule for later versions is that they only add fields at the
end, so a version that is not known yet is read as the newest known one, and bytes after it are ignored.

The sticky assignors put data of their own into the subscription's ``user_data``; that is declared here too.
The coordinator stores all of it, and reads only the topics and partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.fields import Data, Int32, String, since
from logstore.format.messages.message import Message
from logstore.model import Bytes, TopicPartition

T = TypeVar("T", bound=tuple[Any, ...])

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type with which consumers join a group."""

NO_GENERATION: Final = -1
"""The generation of a member that has had no assignment yet, or has lost it."""

_VERSION: Final = struct.Struct(">h")


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class ConsumerProtocolSubscription(NamedTuple):
    """What a member wants and has. Kafka sorts the topics, and the owned partitions by topic and number."""

    topics: tuple[String, ...] = ()
    user_data: Data | None = None
    """What the assignor of the member adds."""
    owned_partitions: Annotated[tuple[TopicPartitions, ...], since(1)] = ()
    """What the member keeps while it joins; empty in the eager protocol (KIP-429)."""
    generation_id: Annotated[Int32, since(2)] = NO_GENERATION
    """The generation in which it got ``owned_partitions`` (KIP-792)."""
    rack_id: Annotated[String | None, since(3)] = None
    """Where it runs (KIP-881)."""


class ConsumerProtocolAssignment(NamedTuple):
    """What a member gets. All versions have the same fields."""

    assigned_partitions: tuple[TopicPartitions, ...] = ()
    user_data: Data | None = None


class StickyAssignorUserData(NamedTuple):
    """What a member had before it revoked everything, for the assignor "sticky" (KIP-54, KIP-341)."""

    previous_assignment: tuple[TopicPartitions, ...] = ()
    generation: Annotated[Int32, since(1)] = NO_GENERATION


class CooperativeStickyAssignorUserData(NamedTuple):
    """The generation of the owned partitions, for "cooperative-sticky" with subscriptions below version 2."""

    generation: Int32 = NO_GENERATION


SUBSCRIPTION: Final = Message(ConsumerProtocolSubscription, 0, 3)
ASSIGNMENT: Final = Message(ConsumerProtocolAssignment, 0, 3)
STICKY_USER_DATA: Final = Message(StickyAssignorUserData, 0, 1)
COOPERATIVE_STICKY_USER_DATA: Final = Message(CooperativeStickyAssignorUserData, 0, 0)


def encode_subscription(
    subscription: ConsumerProtocolSubscription, version: int = SUBSCRIPTION.last
) -> bytes:
    """A subscription after its version; fields that the version does not have are left out.

    Raises:
        UnsupportedVersionError: it has no such version.
        UsageError: a field does not fit.
    """
    return _VERSION.pack(version) + SUBSCRIPTION.encode(subscription, version)


def decode_subscription(data: Bytes) -> ConsumerProtocolSubscription:
    """What a member sent when it joined.

    Raises:
        UnsupportedVersionError: its version is negative.
        CorruptionError: it ends early, or a length is out of bounds, or text is not UTF-8.
    """
    return _decode(SUBSCRIPTION, data)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = ASSIGNMENT.last) -> bytes:
    """An assignment after its version; fails as :func:`encode_subscription`."""
    return _VERSION.pack(version) + ASSIGNMENT.encode(assignment, version)


def decode_assignment(data: Bytes) -> ConsumerProtocolAssignment:
    """What the leader of the group assigned; fails as :func:`decode_subscription`."""
    return _decode(ASSIGNMENT, data)


def _decode(message: Message[T], data: Bytes) -> T:
    if len(data) < _VERSION.size:
        raise CorruptionError(f"{message.name} has {len(data)} bytes; its version takes 2", position=0)
    version = _VERSION.unpack_from(data)[0]
    if version < message.first:
        raise UnsupportedVersionError(f"{message.name} has version {version}; {message.first} is the first")
    return message.decode(data, min(version, message.last), _VERSION.size)[0]


def encode_sticky_user_data(previous: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of the assignor "sticky", in version 1, which is what Kafka writes."""
    return STICKY_USER_DATA.encode(StickyAssignorUserData(by_topic(previous), generation), 1)


def decode_sticky_user_data(data: Bytes) -> StickyAssignorUserData:
    """The user data of the assignor "sticky".

    It does not say which version it has: what ends before the generation is version 0. What is neither, such
    as the data of another assignor, counts as nothing, as in Kafka.
    """
    for version in (1, 0):
        try:
            return STICKY_USER_DATA.decode(data, version)[0]
        except CorruptionError:
            continue
    return StickyAssignorUserData()


def encode_cooperative_sticky_user_data(generation: int) -> bytes:
    """The user data of the assignor "cooperative-sticky"."""
    return COOPERATIVE_STICKY_USER_DATA.encode(CooperativeStickyAssignorUserData(generation), 0)


def decode_cooperative_sticky_user_data(data: Bytes) -> CooperativeStickyAssignorUserData:
    """The user data of the assignor "cooperative-sticky"; bytes that are none count as no generation."""
    try:
        return COOPERATIVE_STICKY_USER_DATA.decode(data, 0)[0]
    except CorruptionError:
        return CooperativeStickyAssignorUserData()


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Partitions grouped by topic; topics and partitions stay in the order of their first mention."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in grouped.items())


def ungrouped(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """The single partitions of what :func:`by_topic` made."""
    return tuple(TopicPartition(topic, number) for topic, numbers in topics for number in numbers)
