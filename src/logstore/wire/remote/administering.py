"""Requests that change topics. A controller answers them when it has decided, and the brokers hear of it a
little later: the result is given when a broker has, so that the next request finds what it needs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
    MetadataResult,
    TopicsResult,
)
from logstore.wire.remote.asking import ask
from logstore.wire.remote.attempt import Attempt
from logstore.wire.remote.cluster import AnyNode, Cluster, Controller
from logstore.wire.remote.loop import Loop
from logstore.wire.remote.questions import RemotePending, Reply, throttle_of
from logstore.wire.remote.translate import topics
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")

_LOOK_AGAIN_MS = 20
_LONGEST_LOOK_MS = 10_000
"""After so long the result is given in any case."""
_SHARE_OF_TIMEOUT: Final = 0.9
"""The caller waits for ``request_timeout_ms``: what is done must be told before."""
_ASK_ANOTHER_MS = 500
"""A broker that has not answered a look in this time is perhaps stopped."""

_IsSeen = Callable[[str, MetadataResult], bool]


class Administering:
    """Of one client."""

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        self._cluster = cluster
        self._client_id = client_id

    def metadata(self, request: MetadataRequest) -> RemotePending[MetadataResult]:
        """See :meth:`.Broker.metadata`. What it says is kept."""
        pending: RemotePending[MetadataResult] = RemotePending()
        self._look(request, pending.complete_throttled)
        return pending

    def reach(self) -> RemotePending[tuple[ErrorCode, str | None]]:
        """See :meth:`.RemoteBroker.reach`."""
        pending: RemotePending[tuple[ErrorCode, str | None]] = RemotePending()

        def take(reply: Reply) -> None:
            if reply.error is ErrorCode.NONE:
                self._cluster.learn(reply.response)
            pending.complete((reply.error, reply.message))

        self._ask_metadata(MetadataRequest(()), take)
        return pending

    def _look(self, request: MetadataRequest, done: Callable[[MetadataResult, int], object]) -> None:
        translation = topics.METADATA

        def take(reply: Reply) -> None:
            if reply.error is ErrorCode.NONE:
                self._cluster.learn(reply.response)
            done(translation.result_of(request, reply), throttle_of(reply))

        self._ask_metadata(request, take)

    def _ask_metadata(self, request: MetadataRequest, take: Callable[[Reply], object]) -> None:
        translation = topics.METADATA
        Attempt(
            self._cluster,
            AnyNode(self._cluster),
            translation.key,
            lambda version: translation.build(request, version),
            take,
            client_id=self._client_id,
            timeout_ms=self._cluster.config.request_timeout_ms,
            first=translation.first,
        ).begin()

    def create_topics(self, request: CreateTopicsRequest) -> RemotePending[TopicsResult]:
        """See :meth:`.Broker.create_topics`."""
        counts = {each.name: each.partition_count for each in request.topics}
        translation = topics.creating(self._cluster.config.replication_factor)
        return self._change(translation, request, request.validate_only, _has(counts))

    def delete_topics(self, request: DeleteTopicsRequest) -> RemotePending[TopicsResult]:
        """See :meth:`.Broker.delete_topics`."""
        return self._change(topics.DELETE_TOPICS, request, False, _is_gone)

    def create_partitions(self, request: CreatePartitionsRequest) -> RemotePending[TopicsResult]:
        """See :meth:`.Broker.create_partitions`."""
        counts = {each.name: each.partition_count for each in request.topics}
        return self._change(topics.CREATE_PARTITIONS, request, request.validate_only, _has(counts))

    def _change(
        self,
        translation: Translation[Q, TopicsResult],
        request: Q,
        is_rehearsal: bool,
        is_seen: _IsSeen,
    ) -> RemotePending[TopicsResult]:
        pending: RemotePending[TopicsResult] = RemotePending()
        told_by = time.monotonic() + _SHARE_OF_TIMEOUT * self._cluster.config.request_timeout_ms / 1000

        def done(result: TopicsResult, throttle_ms: int) -> None:
            changed = tuple(each.name for each in result.topics if each.error is ErrorCode.NONE)
            if is_rehearsal or not changed:
                pending.complete_throttled(result, throttle_ms)
                return
            _Sighting(
                lambda take: self._look(MetadataRequest(changed), take),
                self._cluster.dialer.loop,
                lambda found: all(is_seen(name, found) for name in changed),
                min(time.monotonic() + _LONGEST_LOOK_MS / 1000, told_by),
                lambda: pending.complete_throttled(result, throttle_ms),
            ).look()

        ask(self._cluster, Controller(self._cluster), translation, request, self._client_id, done)
        return pending


class _Sighting:
    """Looks until a broker has heard of a change. If one does not answer, another is asked.

    Lock: ``_lock`` guards the number of looks, and whether it is over. Nothing is called with it held.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[MetadataResult, int], object]], object],
        loop: Loop,
        is_seen: Callable[[MetadataResult], bool],
        until: float,
        then: Callable[[], object],
    ) -> None:
        """``then`` is called once, ``until`` at the latest."""
        self._ask = ask
        self._loop = loop
        self._is_seen = is_seen
        self._until = until
        self._then = then
        self._lock = threading.Lock()
        self._number = 0
        self._is_over = False

    def look(self, after: int = 0) -> None:
        """Unless one has looked since the look with the number ``after``."""
        with self._lock:
            if self._is_over or self._number != after:
                return
            self._number = number = after + 1
        self._ask(lambda found, _: self._take(found, number))
        left_ms = max(self._until - time.monotonic(), 0.0) * 1000
        self._loop.try_later(min(left_ms, _ASK_ANOTHER_MS), lambda: self._go_on(number))

    def _take(self, found: MetadataResult, number: int) -> None:
        if self._is_seen(found):
            self._end()
        else:
            self._loop.try_later(_LOOK_AGAIN_MS, lambda: self._go_on(number))

    def _go_on(self, number: int) -> None:
        if time.monotonic() >= self._until or self._loop.is_closed:
            self._end()
        else:
            self.look(number)

    def _end(self) -> None:
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if not was_over:
            self._then()


_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""What is told of a topic that is gone; the second to who may not know of topics."""


def _has(counts: Mapping[str, int]) -> _IsSeen:
    """Whether a topic has so many partitions, and each a leader. Who may not know takes it for so."""

    def is_seen(name: str, found: MetadataResult) -> bool:
        topic = next((each for each in found.topics if each.name == name), None)
        if topic is not None and topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return True
        if topic is None or topic.error is not ErrorCode.NONE:
            return False
        led = [each for each in topic.partitions if each.leader_id >= 0]
        return len(led) >= max(counts[name], 1)

    return is_seen


def _is_gone(name: str, found: MetadataResult) -> bool:
    return any(each.name == name and each.error in _NOT_THERE for each in found.topics)
