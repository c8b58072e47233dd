"""Groups of a cluster: the node that leads the partition of ``__consumer_offsets`` coordinates them. What it
answers, all in-sync replicas have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.coordinating import ConsumerGroups
from logstore.broker.pending import Answered, Pending
from logstore.format.names import OFFSETS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.replicated import when_replicated
from logstore.replica.node.terms import Term, Terms
from logstore.wire.handlers.then import then, then_ask

T = TypeVar("T")

GROUPS: Final = TopicPartition(OFFSETS_TOPIC, 0)
"""The topic of a cluster has one partition: a node coordinates all groups or none."""


class GroupTerms:
    """The groups, while this node leads them."""

    def __init__(
        self,
        directory: LogDirectory,
        replicas: Mapping[TopicPartition, PartitionReplica],
        use: Callable[[ConsumerGroups], None],
        topics: Callable[[], Topics],
        own_settings: Callable[[str], Mapping[str, str]],
    ) -> None:
        """
        Args:
            use: takes the groups of a new term.
            topics: those of the cluster.
            own_settings: the settings that a group was given.
        """
        self._directory = directory
        self._use = use
        self._in_use: ConsumerGroups | None = None
        self._terms = Terms(
            replicas,
            GROUPS,
            lambda *_: ConsumerGroups(directory, own_settings, topics),
            ConsumerGroups.leave,
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
        certain = when_replicated(term.replica, term.epoch, self._directory.context.scheduler)
        return then(certain, lambda code: result if code is NONE else refusal(code))

    def close(self) -> None:
        """The node ends: store nothing."""
        self._terms.close()
