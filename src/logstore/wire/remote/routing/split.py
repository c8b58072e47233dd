"""A request about partitions goes to their leaders, in parts, and the results come together in its order."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import NO_EPOCH
from logstore.model import TopicPartition
from logstore.wire.remote.connections.codes import ABOUT_EPOCHS, STALE
from logstore.wire.remote.connections.nodes import Node
from logstore.wire.remote.connections.questions import Question, RemotePending, Reply, throttle_of
from logstore.wire.remote.routing.cluster import Cluster, Leader
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")
R = TypeVar("R")


def expected_epoch(wanted: Any) -> int:
    """The leader epoch that the caller of a request expects of a partition."""
    epoch: int = getattr(wanted, "current_leader_epoch", getattr(wanted, "leader_epoch", NO_EPOCH))
    return epoch


class Split(Generic[Q, R]):
    """One request. Parts that a leader refuses as none of its own are sent again, if they may be."""

    def __init__(
        self,
        cluster: Cluster,
        translation: Translation[Q, R],
        request: Any,
        *,
        client_id: str,
        is_answered: bool = True,
        owner: object = None,
    ) -> None:
        self.pending: RemotePending[R] = RemotePending()
        self._cluster = cluster
        self._translation = translation
        self._request = request
        self._client_id = client_id
        self._is_answered = is_answered
        self._owner = owner
        self._lock = threading.Lock()
        """Guards the outcomes, and how many parts are missing."""
        self._outcomes: list[Any] = [None] * len(request.partitions)
        self._missing = 0
        self._throttle_ms = 0
        self._deadline = time.monotonic() + cluster.config.request_timeout_ms / 1000

    def begin(self) -> RemotePending[R]:
        """Ask, when the leaders are known."""
        self._ask(range(len(self._outcomes)))
        return self.pending

    def _ask(self, places: Sequence[int]) -> None:
        partitions = [self._request.partitions[at].partition for at in places]
        if not places:
            self._finish()
            return
        self._cluster.when_known(partitions, lambda leaders: self._send(places, leaders))

    def _send(self, places: Sequence[int], leaders: dict[TopicPartition, Leader]) -> None:
        parts: dict[tuple[int, Node], list[int]] = {}
        refused: list[tuple[int, Leader]] = []
        seen: dict[TopicPartition, int] = {}
        for at in places:
            partition = self._request.partitions[at].partition
            leader = leaders[partition]
            if leader.node is None:
                refused.append((at, leader))
                continue
            turn = seen[partition] = seen.get(partition, -1) + 1  # a request has each partition once
            parts.setdefault((turn, leader.node), []).append(at)
        with self._lock:
            self._missing = len(parts) + bool(refused)
        if refused:
            answered = self._refusals(refused)
            self._take([at for at, _ in refused], answered, 0)
        for (_, node), part in sorted(parts.items(), key=lambda item: item[0][0]):
            self._send_part(node, part)

    def _refusals(self, refused: list[tuple[int, Leader]]) -> list[Any]:
        found = []
        for at, leader in refused:
            one = self._request._replace(partitions=(self._request.partitions[at],))
            result: Any = self._translation.refuse(one, leader.error, leader.message)
            found.append(result.partitions[0])
        return found

    def _send_part(self, node: Node, places: list[int]) -> None:
        translation = self._translation
        part = self._request
        if len(places) != len(self._outcomes):
            part = part._replace(partitions=tuple(self._request.partitions[at] for at in places))

        def done(reply: Reply) -> None:
            result: Any = translation.result_of(part, reply)
            self._take(places, result.partitions, throttle_of(reply))

        node.ask(
            translation.lane,
            Question(
                translation.key,
                lambda version: translation.build(part, version),
                done,
                client_id=self._client_id,
                timeout_ms=self._cluster.config.request_timeout_ms + translation.wait_ms(part),
                first=translation.first,
                last=translation.last,
                is_answered=self._is_answered,
                owner=self._owner,
            ),
        )

    def _take(self, places: Sequence[int], outcomes: Sequence[Any], throttle_ms: int) -> None:
        with self._lock:
            for at, outcome in zip(places, outcomes, strict=True):
                self._outcomes[at] = outcome
            self._throttle_ms = max(self._throttle_ms, throttle_ms)
            self._missing -= 1
            if self._missing:
                return
        self._look()

    def _look(self) -> None:
        """All parts are answered: ask again for some, or finish."""
        stale = [at for at, each in enumerate(self._outcomes) if each.error in STALE]
        if stale:
            self._cluster.note_stale({self._outcomes[at].partition.topic for at in stale})
        again = [at for at in stale if self._may_ask_again(self._outcomes[at])]
        backoff_ms, loop = self._cluster.config.retry_backoff_ms, self._cluster.dialer.loop
        if again and time.monotonic() + backoff_ms / 1000 < self._deadline and not loop.is_closed:
            loop.try_later(backoff_ms, lambda: self._ask(again))
        else:
            self._finish()

    def _may_ask_again(self, outcome: Any) -> bool:
        """A partition that the metadata do not have is not there. One that they have, and that its leader
        does not know yet, is about to be."""
        if outcome.error in ABOUT_EPOCHS and self._names_epoch(outcome.partition):
            return False
        if outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            (leader,) = self._cluster.leaders((outcome.partition,)).values()
            if leader.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
        return self._translation.may_repeat

    def _names_epoch(self, partition: TopicPartition) -> bool:
        """Whether the caller expects a leader epoch, and is to hear that it is another."""
        wanted = (each for each in self._request.partitions if each.partition == partition)
        return any(expected_epoch(each) != NO_EPOCH for each in wanted)

    def _finish(self) -> None:
        empty: Any = self._translation.refuse(self._request, ErrorCode.NONE, None)
        result = empty._replace(partitions=tuple(map(self._told, self._outcomes)))
        self.pending.complete_throttled(result, self._throttle_ms)

    def _told(self, outcome: Any) -> Any:
        """A leader that does not know the partition yet will; a client may send what it could not take."""
        if outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._translation.may_repeat:
            (leader,) = self._cluster.leaders((outcome.partition,)).values()
            if leader.error is ErrorCode.NONE:
                return outcome._replace(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return outcome
