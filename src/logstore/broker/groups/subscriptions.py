"""The one thing a coordinator reads in a member's metadata: the topics that a consumer subscribes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from logstore.errors import CorruptionError
from logstore.format.messages.fields import Int16, String
from logstore.format.messages.message import Message

CONSUMER: Final = "consumer"
"""The protocol type of consumers."""


class _Subscription(NamedTuple):
    """How Kafka's ConsumerProtocolSubscription begins, in each version; more fields follow."""

    version: Int16 = 0
    topics: tuple[String, ...] = ()


_SUBSCRIPTION: Final = Message(_Subscription, 0, 0)


def decode_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if it is no such thing."""
    try:
        return frozenset(_SUBSCRIPTION.decode(metadata, 0)[0].topics)
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
