"""The topics that a consumer reads, and the partitions that they have now."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.requests import MetadataRequest, TopicMetadata
from logstore.clients.asking import ask
from logstore.clients.settings import ConsumerConfig
from logstore.clock import Clock
from logstore.model import TopicPartition


class SubscribedTopics:
    """Of one consumer; none, if it reads partitions that it was given."""

    def __init__(self, broker: Broker, names: tuple[str, ...], config: ConsumerConfig, clock: Clock) -> None:
        self.names = names
        self._broker = broker
        self._config = config
        self._clock = clock
        self._looked_ms = -(2**62)

    def partitions(self) -> list[TopicPartition]:
        """All that they have and a broker serves.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        found = []
        for topic in self._described(self.names):
            if topic.error is not ErrorCode.NONE:
                raise error_of(topic.error, topic.message or f"topic {topic.name!r}: {topic.error.name}")
            found += [
                TopicPartition(topic.name, each.partition) for each in topic.partitions if each.leader_id >= 0
            ]
        return found

    def partitions_if_due(self) -> list[TopicPartition] | None:
        """The same, once in each ``metadata_max_age_ms``; None meanwhile, and without topics. Raises as
        :meth:`partitions`."""
        now_ms = self._clock.monotonic_ms()
        if not self.names or now_ms - self._looked_ms < self._config.metadata_max_age_ms:
            return None
        found = self.partitions()
        self._looked_ms = now_ms
        return found

    def count_partitions(self, names: Iterable[str]) -> dict[str, int]:
        """Of the topics among these that there are, for the leader of a group."""
        described = self._described(names)
        return {topic.name: len(topic.partitions) for topic in described if topic.error is ErrorCode.NONE}

    def _described(self, names: Iterable[str]) -> tuple[TopicMetadata, ...]:
        request = MetadataRequest(tuple(names))
        return ask(self._broker.metadata(request), "tell of the topics", self._config).topics
