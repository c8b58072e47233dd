"""The one thing a coordinator reads in a member's metadata: the topics that a consumer subscribes to."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.errors import CorruptionError
from logstore.format.messages.consumer_protocol import SUBSCRIPTION

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
