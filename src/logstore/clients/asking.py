"""Requests of a client whose answers it waits for in the calling thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

from logstore.broker.broker import Broker
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import CreateTopicsRequest, NewTopic, TopicsResult
from logstore.errors import RetriableError

T = TypeVar("T")

_TOPICS_AT_A_TIME: Final = 100
_PARTITIONS_AT_A_TIME: Final = 5_000
"""With one request that creates topics: half of what brokers take."""


class HasTimeout(Protocol):
    """Settings of a client."""

    @property
    def request_timeout_ms(self) -> int: ...


def ask(pending: Pending[T], what: str, config: HasTimeout) -> T:
    """The answer to a request; ``what`` says in an error what the broker did not do.

    Raises:
        RetriableError: there was none within ``request_timeout_ms``.
    """
    result = wait_for(pending, config.request_timeout_ms / 1000)
    if result is None:
        raise late(what, config)
    return result


def late(what: str, config: HasTimeout) -> RetriableError:
    """A broker has not done ``what`` in time."""
    return RetriableError(
        f"the broker did not {what} within request_timeout_ms ({config.request_timeout_ms}): its process may "
        "be stopped or overloaded, or the network slow; try again, or give it longer"
    )


def create_topics(broker: Broker, topics: Iterable[NewTopic], config: HasTimeout) -> Iterator[TopicsResult]:
    """Ask for topics, with as many requests as it takes; the answer to each comes before the next is asked.

    Raises:
        RetriableError: as :func:`ask`.
    """
    for some in at_a_time(topics):
        others = f" and {len(some) - 1} others" if len(some) > 1 else ""
        pending = broker.create_topics(CreateTopicsRequest(tuple(some)))
        yield ask(pending, f"create topic {some[0].name!r}{others}", config)


def at_a_time(topics: Iterable[NewTopic]) -> Iterator[list[NewTopic]]:
    """As many topics as one request may create."""
    some: list[NewTopic] = []
    count = 0
    for each in topics:
        if some and (len(some) == _TOPICS_AT_A_TIME or count + each.partition_count > _PARTITIONS_AT_A_TIME):
            yield some
            some, count = [], 0
        some.append(each)
        count += each.partition_count
    if some:
        yield some
