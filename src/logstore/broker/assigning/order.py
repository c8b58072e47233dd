"""Topics, partitions and members in the order in which they are divided: the same everywhere, and Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from logstore.model import TopicPartition


class Subscriber(Protocol):
    """What is known of a member."""

    @property
    def topics(self) -> frozenset[str]:
        """What it subscribes to."""
        ...

    @property
    def instance_id(self) -> str | None:
        """The group instance id of a static member (KIP-345)."""
        ...


def known_counts(partition_counts: Mapping[str, int], members: Mapping[str, Subscriber]) -> dict[str, int]:
    """The topics that have partitions and a subscriber, by name."""
    subscribed = set().union(*(subscription.topics for subscription in members.values()))
    return {
        topic: partition_counts[topic] for topic in sorted(subscribed) if partition_counts.get(topic, 0) > 0
    }


def partitions_of(counts: Mapping[str, int]) -> list[TopicPartition]:
    """All partitions of some topics, in the order of the topics and of their numbers."""
    return [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]


def in_java_order(names: Iterable[str]) -> list[str]:
    """Strings sorted as Java does: by UTF-16 code units, which beyond U+FFFF is not Python's order."""
    return sorted(names, key=java_key)


def java_key(name: str) -> bytes:
    """What Java's order of strings compares."""
    return name.encode("utf-16-be", "surrogatepass")


def in_static_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Member ids: static members first, by group instance id, so that a restart, which changes the member id,
    changes no assignment (KIP-345)."""

    def key(member: str) -> tuple[bool, bytes]:
        instance_id = members[member].instance_id
        return instance_id is None, java_key(member if instance_id is None else instance_id)

    return sorted(members, key=key)
