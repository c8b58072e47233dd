"""Groups of a cluster: the node that leads the partition of ``__consumer_offsets`` coordinates them.

When it begins to lead, it reads what the log has; when it leads no more, it forgets all of it and writes
nothing. What it answers, all in-sync replicas have.

Lock: ``_lock`` guards in which term the groups are. Nothing is asked of a log with it held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.coordinating import ConsumerGroups
from logstore.broker.pending import Answered, Pending, Promise
from logstore.format.names import OFFSETS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.replica.node.partition import PartitionReplica
from logstore.schedule import Task
from logstore.wire.handlers.then import then_ask

T = TypeVar("T")

GROUPS: Final = TopicPartition(OFFSETS_TOPIC, 0)
"""The topic of a cluster has one partition: a node coordinates all groups or none."""
_PATIENCE_MS: Final = 5_000
"""How long an answer waits for the replicas: Kafka's ``offsets.commit.timeout.ms``."""
_NO_TERM: Final = -1


class GroupTerms:
    """The groups, while this node leads them."""

    def __init__(
        self,
        directory: LogDirectory,
        replicas: Mapping[TopicPartition, PartitionReplica],
        use: Callable[[ConsumerGroups], None],
    ) -> None:
        """``use``: takes the groups of a new term."""
        self._directory = directory
        self._replicas = replicas
        self._use = use
        self._lock = threading.Lock()
        self._term = _NO_TERM
        self._groups: ConsumerGroups | None = None

    def look(self) -> int | None:
        """The leader epoch in which this node leads the groups now; None if it does not. Ends what is over,
        and begins what is new."""
        replica = self._replicas.get(GROUPS)
        code, epoch = ErrorCode.NOT_COORDINATOR, _NO_TERM
        if replica is not None:
            code, epoch = replica.check_produce(by_all=False)
        term = epoch if code is NONE else _NO_TERM
        if term != self._term:
            with self._lock:
                gone, self._groups = self._groups, None
                self._term = term
                if term != _NO_TERM:
                    self._groups = ConsumerGroups(self._directory)
                    self._use(self._groups)
            if gone is not None:
                gone.leave()
        return None if term == _NO_TERM else term

    def ask(self, ask: Callable[[], Pending[T]], refusal: Callable[[ErrorCode], T]) -> Pending[T]:
        """What the coordinator answers, once all in-sync replicas have what it has written."""
        term = self.look()
        if term is None:
            return Answered(refusal(ErrorCode.NOT_COORDINATOR))
        return then_ask(ask(), lambda result: self._when_replicated(term, result, refusal))

    def _when_replicated(self, term: int, result: T, refusal: Callable[[ErrorCode], T]) -> Pending[T]:
        replica = self._replicas.get(GROUPS)
        if replica is None:
            return Answered(refusal(ErrorCode.NOT_COORDINATOR))
        log = replica.log
        end = log.log_end_offset
        if log.high_watermark >= end and replica.leader_epoch == term:
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
        replica.when_replicated(end, term, done)
        return promise

    def close(self) -> None:
        """The node ends: store nothing."""
        with self._lock:
            gone, self._groups, self._term = self._groups, None, _NO_TERM
        if gone is not None:
            gone.leave()
