"""The topics that a consumer reads, and the partitions that they have now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import Pending
from logstore.broker.requests import MetadataRequest, MetadataResult, TopicMetadata
from logstore.clients.asking import ask
from logstore.clients.polling import LONG_MS
from logstore.clients.settings import ConsumerConfig
from logstore.clock import Clock
from logstore.model import TopicPartition

_LEAST_AGE_MS: Final = 50
"""A poll that waits looks no more often, with ``metadata_max_age_ms=0``."""


class SubscribedTopics:
    """Of one consumer; none, if it reads partitions that it was given."""

    def __init__(self, broker: Broker, names: tuple[str, ...], config: ConsumerConfig, clock: Clock) -> None:
        self.names = names
        self._broker = broker
        self._config = config
        self._clock = clock
        self._looked_ms = -(2**62)
        self._looking: Pending[MetadataResult] | None = None

    @property
    def waits_for(self) -> Pending[MetadataResult] | None:
        """The look that was not answered yet."""
        return self._looking

    def partitions(self) -> list[TopicPartition]:
        """All that they have and a broker serves. Waits for the broker.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        found = self._found(self._described(self.names))
        self._looked_ms = self._clock.monotonic_ms()
        return found

    def _found(self, described: Iterable[TopicMetadata]) -> list[TopicPartition]:
        found = []
        for topic in described:
            if topic.error is not ErrorCode.NONE:
                raise error_of(topic.error, topic.message or f"topic {topic.name!r}: {topic.error.name}")
            found += [
                TopicPartition(topic.name, each.partition) for each in topic.partitions if each.is_somewhere
            ]
        return found

    def partitions_if_due(self) -> list[TopicPartition] | None:
        """The same, once in each ``metadata_max_age_ms``; None meanwhile, without topics, and until it
        is answered: a poll has its own time, which a cluster that is gone must not lengthen. Raises as
        :meth:`partitions`."""
        now_ms = self._clock.monotonic_ms()
        if self._looking is None:
            if not self.names or now_ms - self._looked_ms < self._config.metadata_max_age_ms:
                return None
            self._looking = self._broker.metadata(MetadataRequest(self.names))
        result = self._looking.poll()
        if result is None:
            return None
        self._looking = None
        found = self._found(result.topics)
        self._looked_ms = now_ms
        return found

    def due_ms(self) -> int:
        """In how many milliseconds to look again, however long a poll waits."""
        if not self.names or self._looking is not None:
            return LONG_MS
        age_ms = max(self._config.metadata_max_age_ms, _LEAST_AGE_MS)
        return max(self._looked_ms + age_ms - self._clock.monotonic_ms(), 0)

    def count_partitions(self, names: Iterable[str]) -> dict[str, int]:
        """Of the topics among these that there are, for the leader of a group."""
        described = self._described(names)
        return {topic.name: len(topic.partitions) for topic in described if topic.error is ErrorCode.NONE}

    def _described(self, names: Iterable[str]) -> tuple[TopicMetadata, ...]:
        request = MetadataRequest(tuple(names))
        return ask(self._broker.metadata(request), "tell of the topics", self._config).topics
