"""Groups of a cluster: the node that leads the partition of ``__consumer_offsets`` coordinates them. What it
answers, all in-sync replicas have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.coordinating import ConsumerGroups
from logstore.broker.pending import Answered, Pending, Promise
from logstore.format.names import OFFSETS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.terms import Term, Terms
from logstore.schedule import Task
from logstore.wire.handlers.then import then_ask

T = TypeVar("T")

GROUPS: Final = TopicPartition(OFFSETS_TOPIC, 0)
"""The topic of a cluster has one partition: a node coordinates all groups or none."""
_PATIENCE_MS: Final = 5_000
"""How long an answer waits for the replicas: Kafka's ``offsets.commit.timeout.ms``."""


class GroupTerms:
    """The groups, while this node leads them."""

    def __init__(
        self,
        directory: LogDirectory,
        replicas: Mapping[TopicPartition, PartitionReplica],
        use: Callable[[ConsumerGroups], None],
        topics: Callable[[], Topics],
    ) -> None:
        """``use``: takes the groups of a new term. ``topics``: those of the cluster."""
        self._directory = directory
        self._use = use
        self._in_use: ConsumerGroups | None = None
        self._terms = Terms(
            replicas, GROUPS, lambda *_: ConsumerGroups(directory, topics), ConsumerGroups.leave
        )

    def look(self) -> Term[ConsumerGroups] | None:
        """The term in which this node leads the groups now; None if it does not."""
        term = self._terms.look()
        if term is not None and term.coordinator is not self._in_use:
            self._in_use = term.coordinator
            self._use(term.coordinator)
        return term

    def ask(self, ask: Callable[[], Pending[T]], refusal: Callable[[ErrorCode], T]) -> Pending[T]:
        """What the coordinator answers, once all in-sync replicas have what it has written."""
        term = self.look()
        if term is None:
            return Answered(refusal(self._terms.refusal))
        return then_ask(ask(), lambda result: self._when_replicated(term, result, refusal))

    def _when_replicated(
        self, term: Term[ConsumerGroups], result: T, refusal: Callable[[ErrorCode], T]
    ) -> Pending[T]:
        replica = term.replica
        log = replica.log
        end = log.log_end_offset
        if log.high_watermark >= end and replica.leader_epoch == term.epoch:
            return Answered(result)
        promise: Promise[T] = Promise()
        late = Task(
            "answer for a group",
            lambda: promise.complete(refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
            None,
        )

        def done(code: ErrorCode) -> None:
            late.cancel()
            promise.complete(result if code is NONE else refusal(ErrorCode.NOT_COORDINATOR))

        self._directory.context.scheduler.promptly(_PATIENCE_MS, late)
        replica.when_replicated(end, term.epoch, done)
        return promise

    def close(self) -> None:
        """The node ends: store nothing."""
        self._terms.close()
