"""Requests that change topics. A controller answers them when it has decided, and the brokers hear of it a
little later: the result is given when a broker has, so that the next request finds what it needs.
"""

from __future__ import annotations

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
from logstore.wire.remote.connections.questions import RemotePending, Reply, throttle_of
from logstore.wire.remote.routing.asking import ask
from logstore.wire.remote.routing.attempt import Attempt
from logstore.wire.remote.routing.cluster import AnyNode, Cluster, Controller
from logstore.wire.remote.translate import topics
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")

_LOOK_AGAIN_MS = 20
_LONGEST_LOOK_MS = 10_000
"""After so long the result is given in any case."""
_SHARE_OF_TIMEOUT: Final = 0.9
"""The caller waits for ``request_timeout_ms``: what is done must be told before."""

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
        self._ask_metadata(request, lambda reply: done(self._result_of(request, reply), throttle_of(reply)))

    def _result_of(self, request: MetadataRequest, reply: Reply) -> MetadataResult:
        if reply.error is ErrorCode.NONE:
            self._cluster.learn(reply.response)
        return topics.METADATA.result_of(request, reply)

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
            until = min(time.monotonic() + _LONGEST_LOOK_MS / 1000, told_by)
            self._await(changed, is_seen, until, lambda: pending.complete_throttled(result, throttle_ms))

        ask(self._cluster, Controller(self._cluster), translation, request, self._client_id, done)
        return pending

    def _await(
        self, names: tuple[str, ...], is_seen: _IsSeen, until: float, then: Callable[[], object]
    ) -> None:
        """Look until a broker has heard of the change, or until it is late. Then call ``then``, which may be
        called again: nobody may answer until then."""
        request, loop = MetadataRequest(names), self._cluster.dialer.loop

        def look() -> None:
            self._ask_metadata(request, heard)

        def heard(reply: Reply) -> None:
            found = self._result_of(request, reply)
            is_late = time.monotonic() >= until or loop.is_closed
            if is_late or all(is_seen(name, found) for name in names):
                then()
            else:
                loop.try_later(_LOOK_AGAIN_MS, look)

        look()
        loop.try_later(max(until - time.monotonic(), 0.0) * 1000, then)


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
