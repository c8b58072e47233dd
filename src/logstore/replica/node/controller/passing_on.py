"""Changes of the cluster's topics through any node: the controller makes them, and other nodes pass on to it
what clients ask, as Kafka's brokers do (KIP-590). A client may have heard of another controller, and most of
them change settings at any broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    TopicsResult,
)
from logstore.replica.coordination.interface import Session, View
from logstore.replica.node.controller.changing import ClusterTopics
from logstore.replica.node.peers import Peers
from logstore.wire.handlers.then import then
from logstore.wire.remote.translate.topics import (
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    altering,
    creating,
    first_code,
)
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")

_ITS_OWN_WORD: Final = -1
"""In place of a replication factor: the controller chooses one."""
_NOT_TAKEN: Final = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""The controller was not reached; or this node may not change topics there, though the client may here."""


class ThroughController:
    """See the module. The client's rights are looked at before."""

    def __init__(
        self,
        node_id: int,
        topics: ClusterTopics,
        view: Callable[[], View],
        session: Callable[[], Session | None],
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._topics = topics
        self._view = view
        self._session = session
        self._peers = peers

    def create_topics(self, request: CreateTopicsRequest) -> Pending[TopicsResult]:
        return self._ask(self._topics.create_topics, creating(_ITS_OWN_WORD), request)

    def delete_topics(self, request: DeleteTopicsRequest) -> Pending[TopicsResult]:
        return self._ask(self._topics.delete_topics, DELETE_TOPICS, request)

    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]:
        return self._ask(self._topics.create_partitions, CREATE_PARTITIONS, request)

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]:
        return self._ask(self._topics.alter_configs, altering(request), request)

    def _ask(
        self,
        change: Callable[[Q], TopicsResult],
        translation: Translation[Q, TopicsResult],
        request: Q,
    ) -> Pending[TopicsResult]:
        done = change(request)
        controller_id = self._controller_id()
        if controller_id is None or first_code(done) is not ErrorCode.NOT_CONTROLLER:
            return Answered(done)
        asked = self._peers.ask(controller_id, translation, request)
        return then(asked, lambda found: done if _was_not_taken(found) else found)

    def _controller_id(self) -> int | None:
        """Another node that is the controller. None if nobody is, or if this node is not in touch: two that
        each take the other for the controller would pass a request to and fro."""
        seat, session = self._view().controller, self._session()
        if seat is None or seat.member.node_id == self._node_id or session is None or not session.has_lease:
            return None
        return seat.member.node_id


def _was_not_taken(found: TopicsResult) -> bool:
    return any(each.error in _NOT_TAKEN for each in found.topics)
