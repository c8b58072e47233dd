"""What the handlers of requests to the share coordinator have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.kept import Codes, ShareStates
from logstore.format.messages.share_records import ShareKey
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.share_coordinator import ask
from logstore.wire.handlers.then import then
from logstore.wire.messages.shares.kept import PartitionResult, TopicResult

F = TypeVar("F")
R = TypeVar("R")


def parts_of(group: str, topics: Iterable[Any]) -> list[tuple[ShareKey, Any]]:
    """The share-partitions of a request, each with what it says of it."""
    return [
        (ShareKey(group, topic.topic_id, each.partition), each)
        for topic in topics
        for each in topic.partitions
    ]


def keys_of(group: str, topics: Iterable[Any]) -> list[ShareKey]:
    """The share-partitions of a request."""
    return [key for key, _ in parts_of(group, topics)]


def by_topic(found: Mapping[ShareKey, F]) -> Iterator[tuple[UUID, Iterator[tuple[ShareKey, F]]]]:
    """What was found of each share-partition, topic by topic, in the order of the request."""
    return groupby(found.items(), key=lambda item: item[0].topic_id)


def results_of(codes: Codes) -> tuple[TopicResult, ...]:
    """What became of each, topic by topic."""
    return tuple(
        TopicResult(
            topic_id,
            tuple(
                PartitionResult(key.partition, code, None if code is NONE else code.name)
                for key, code in items
            ),
        )
        for topic_id, items in by_topic(codes)
    )


def refused(group: str, topics: Iterable[Any], code: ErrorCode) -> tuple[TopicResult, ...]:
    """The same of all."""
    return results_of(dict.fromkeys(keys_of(group, topics), code))


def answer_codes(
    call: Call,
    keys: Iterable[ShareKey],
    asked: Callable[[ShareStates], Pending[Codes]],
    response: Callable[[tuple[TopicResult, ...]], R],
) -> Pending[R]:
    """The response that has a code for each share-partition."""
    found = ask(call, asked, lambda code: dict.fromkeys(keys, code))
    return then(found, lambda codes: response(results_of(codes)))
