"""Whether topics that a producer knows have changed: asked while it sends, by what is known meanwhile.

A broker that tells within a moment is waited for, so that the record that asks goes by the answer. One that
is far away, or gone, must not stop the program: its answer is found by a later call.

Lock: ``_lock`` is held by the one thread that asks. Others do not wait for it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending, wait_for
from logstore.broker.requests import (
    DescribeConfigsRequest,
    DescribeConfigsResult,
    DescribedConfig,
    MetadataRequest,
    MetadataResult,
    TopicMetadata,
)
from logstore.clock import Clock

_MOMENT_SECONDS: Final = 0.1
_DENIED_MS: Final = 300_000
"""After so long somebody who may not know the settings of a topic asks again: brokers note each such question
in their audit. As often as Kafka's producers look."""


class _Look(NamedTuple):
    metadata: Pending[MetadataResult]
    settings: Pending[DescribeConfigsResult]
    asked_ms: int


class Looks:
    """The questions of one producer."""

    def __init__(self, broker: Broker, clock: Clock, max_age_ms: int) -> None:
        self._broker = broker
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._lock = threading.Lock()
        self._under_way: dict[str, _Look] = {}
        self._denied: dict[str, tuple[DescribedConfig, int]] = {}
        """Topics whose settings we may not know, the answer that said so, and when to ask again."""

    def look(self, topic: str) -> tuple[TopicMetadata, DescribedConfig] | None:
        """What the broker says of a topic; None if it has not answered, or another thread asks."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            earlier = self._under_way.pop(topic, None)
            found = None if earlier is None else self._answer(topic, earlier, 0)
            if earlier is None or (found is not None and self._is_old(earlier)):
                found = self._answer(topic, self._ask(topic), _MOMENT_SECONDS) or found
            return found
        finally:
            self._lock.release()

    def _is_old(self, look: _Look) -> bool:
        return self._clock.monotonic_ms() - look.asked_ms >= self._max_age_ms

    def _ask(self, topic: str) -> _Look:
        return _Look(
            self._broker.metadata(MetadataRequest((topic,))),
            self._ask_for_settings(topic),
            self._clock.monotonic_ms(),
        )

    def _ask_for_settings(self, topic: str) -> Pending[DescribeConfigsResult]:
        denied, until_ms = self._denied.get(topic, (None, 0))
        if denied is not None and self._clock.monotonic_ms() < until_ms:
            return Answered(DescribeConfigsResult((denied,)))
        return self._broker.describe_configs(DescribeConfigsRequest((topic,)))

    def _answer(
        self, topic: str, look: _Look, seconds: float
    ) -> tuple[TopicMetadata, DescribedConfig] | None:
        metadata = wait_for(look.metadata, seconds)
        settings = None if metadata is None else wait_for(look.settings, seconds)
        if metadata is None or settings is None:
            self._under_way[topic] = look
            return None
        self._note_denied(topic, settings.topics[0], look.asked_ms)
        return metadata.topics[0], settings.topics[0]

    def _note_denied(self, topic: str, found: DescribedConfig, asked_ms: int) -> None:
        if found.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._denied.pop(topic, None)
        elif topic not in self._denied or self._denied[topic][1] <= asked_ms:
            self._denied[topic] = found, asked_ms + _DENIED_MS
