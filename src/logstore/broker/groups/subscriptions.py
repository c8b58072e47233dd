"""What a coordinator reads in a member's metadata: the topics that a consumer subscribes to, and what it
owned when it joined."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.consumer_protocol import (
    SUBSCRIPTION,
    decode_assignment,
    decode_subscription,
    ungrouped,
)

_VERSION_BYTES = 2


def decode_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if it is no such thing. It is read as version 0, with
    which all versions begin, so that clients may use newer ones than are known here; so does Kafka."""
    try:
        return frozenset(SUBSCRIPTION.decode(metadata, 0, _VERSION_BYTES)[0].topics)
    except CorruptionError:
        return None


def decode_all_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of several; None if one of them cannot be decoded."""
    topics: set[str] = set()
    for metadata in subscriptions:
        found = decode_topics(metadata)
        if found is None:
            return None
        topics |= found
    return frozenset(topics)


def has_to_give_up(metadata: bytes, assignment: bytes) -> bool:
    """Whether a consumer owned a partition when it joined that its assignment lacks. As soon as it has given
    that up it joins again, and another member gets it (KIP-429). False if they are no such things."""
    if not metadata or not assignment:
        return False
    try:
        owned = ungrouped(decode_subscription(metadata).owned_partitions)
        assigned = ungrouped(decode_assignment(assignment).assigned_partitions)
    except (CorruptionError, UnsupportedVersionError):
        return False
    return not set(owned) <= set(assigned)
