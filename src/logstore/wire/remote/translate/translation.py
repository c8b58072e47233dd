"""What it takes to carry a request of the seam over the protocol."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.connections.peer import Peer
from logstore.wire.remote.connections.questions import ANY_VERSION, Reply

Q = TypeVar("Q")
R = TypeVar("R")
P = TypeVar("P")

Key = tuple[str, int]


def _error_of(result: Any) -> ErrorCode:
    code: ErrorCode = result.error
    return code


def _no_wait(_: object) -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class Translation(Generic[Q, R]):
    """One request of the seam, ``Q``, and its result, ``R``."""

    key: ApiKey
    build: Callable[[Q, int], Any]
    """The request in a version of the protocol."""
    parse: Callable[[Q, Any], R]
    """The result, from the request and the response to it."""
    refuse: Callable[[Q, ErrorCode, str | None], R]
    """The result if there is no response."""
    judge: Callable[[R], ErrorCode] = _error_of
    """The code in a result that says whether asking again helps."""
    first: int = 0
    last: int | Callable[[Peer], int] = ANY_VERSION
    lane: Lane = Lane.SOON
    may_repeat: bool = True
    """Whether it may be carried out twice."""
    wait_ms: Callable[[Q], int] = _no_wait
    """How long the broker may take, by the request's own word."""

    def result_of(self, request: Q, reply: Reply) -> R:
        """What a reply means. A response can be read and mean nothing all the same: what it has is a broker's
        word, and may be anything."""
        if reply.error is not ErrorCode.NONE:
            return self.refuse(request, reply.error, reply.message)
        try:
            return self.parse(request, reply.response)
        except Exception as error:
            message = f"the broker's answer means nothing: {type(error).__name__}: {error}"
            return self.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, message)


def by_topic(items: Iterable[P], key: Callable[[P], TopicPartition]) -> dict[str, list[P]]:
    """Items of partitions, topic by topic, in their order."""
    found: dict[str, list[P]] = {}
    for item in items:
        found.setdefault(key(item).topic, []).append(item)
    return found


def partition_of(item: Any) -> TopicPartition:
    """Of an item that has one."""
    partition: TopicPartition = item.partition
    return partition


class Answers:
    """What a response has, by partition: each is taken once. Responses name partitions in any order."""

    def __init__(self, topics: Iterable[Any]) -> None:
        self._found: dict[Key, deque[Any]] = {}
        for topic in topics:
            for each in topic.partitions:
                self._found.setdefault((topic.name, each.partition), deque()).append(each)

    def take(self, partition: TopicPartition) -> Any | None:
        """The answer for a partition; None if the broker has left it out."""
        found = self._found.get(tuple(partition))  # type: ignore[arg-type]  # a pair
        return found.popleft() if found else None


def codes_of(wanted: Iterable[TopicPartition], topics: Iterable[Any]) -> Mapping[TopicPartition, int]:
    """The number of the error of each partition; -1 where the broker has left it out."""
    answers = Answers(topics)
    found = {}
    for each in wanted:
        answer = answers.take(each)
        found[each] = -1 if answer is None else int(answer.error_code)
    return found
