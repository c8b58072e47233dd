"""Commits of offsets that know in which topic they were read: another one of that name does not get them.

OffsetCommit names topics by their ids in its newest version. Where the broker does not serve that, and in
transactions, the ids are compared here with those that the cluster has just told.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.codes import ErrorCode
from logstore.broker.committing import IS_OF_ANOTHER
from logstore.broker.requests import MetadataRequest, MetadataResult, OffsetCommitRequest, OffsetCommitResult
from logstore.model import TopicPartition
from logstore.wire.remote.connections.questions import RemotePending
from logstore.wire.remote.routing.asking import ask
from logstore.wire.remote.routing.attempt import Target
from logstore.wire.remote.routing.cluster import AnyNode, Cluster
from logstore.wire.remote.translate import groups
from logstore.wire.remote.translate.topics import METADATA


class Commit(RemotePending[OffsetCommitResult]):
    """One of them."""

    __slots__ = ("_client_id", "_cluster", "_request", "_target")

    def __init__(
        self, cluster: Cluster, target: Target, request: OffsetCommitRequest, client_id: str
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._target = target
        self._request = request
        self._client_id = client_id

    def begin(self) -> None:
        """Ask."""
        request = self._request
        if not request.topic_ids:
            self._ask_by_name(request, {})
        elif request.transaction is None and request.topic_ids.keys() == request.offsets.keys():
            ask(
                self._cluster,
                self._target,
                groups.OFFSET_COMMIT_BY_ID,
                request,
                self._client_id,
                self._take_answer_by_id,
            )
        else:
            self._compare()

    def _take_answer_by_id(self, result: OffsetCommitResult, throttle_ms: int) -> None:
        if result.error is ErrorCode.UNSUPPORTED_VERSION:
            self._compare()
        else:
            self.complete_throttled(result, throttle_ms)

    def _compare(self) -> None:
        """Cost: a request for metadata."""
        names = sorted({each.topic for each in self._request.topic_ids})
        ask(
            self._cluster,
            AnyNode(self._cluster),
            METADATA,
            MetadataRequest(tuple(names)),
            self._client_id,
            self._compare_with,
        )

    def _compare_with(self, result: MetadataResult, _: int) -> None:
        request = self._request
        topic_ids = {topic.name: topic.topic_id for topic in result.topics}
        of_another = {
            each: ErrorCode.UNKNOWN_TOPIC_ID
            for each, read_id in request.topic_ids.items()
            if topic_ids.get(each.topic) not in (None, read_id)
        }
        offsets = {each: value for each, value in request.offsets.items() if each not in of_another}
        if offsets:
            self._ask_by_name(request._replace(offsets=offsets), of_another)
        else:
            self.complete(OffsetCommitResult(of_another, IS_OF_ANOTHER))

    def _ask_by_name(
        self, request: OffsetCommitRequest, of_another: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        def take(result: OffsetCommitResult, throttle_ms: int) -> None:
            message = IS_OF_ANOTHER if of_another else result.message
            self.complete_throttled(OffsetCommitResult({**of_another, **result.errors}, message), throttle_ms)

        is_plain = request.transaction is None
        translation = groups.OFFSET_COMMIT if is_plain else groups.TXN_OFFSET_COMMIT
        ask(self._cluster, self._target, translation, request, self._client_id, take)
