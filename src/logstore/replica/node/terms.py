"""Terms of a coordinator: who leads the partition with its records coordinates, in that leader epoch.

When a node begins to lead, it reads what the log has; when it leads no more, it forgets all of it and writes
nothing.

Lock: ``_lock`` guards in which term the coordinator is. Nothing is called with it held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.model import TopicPartition
from logstore.replica.node.partition import PartitionReplica

C = TypeVar("C")

_NO_TERM: Final = -1


class Term(NamedTuple, Generic[C]):
    """The coordinator of one leader epoch."""

    epoch: int
    replica: PartitionReplica
    coordinator: C


class Terms(Generic[C]):
    """The terms at one node, of which at most one lasts."""

    def __init__(
        self,
        replicas: Mapping[TopicPartition, PartitionReplica],
        partition: TopicPartition,
        begin: Callable[[PartitionReplica, int], C],
        end: Callable[[C], object],
    ) -> None:
        """``begin`` makes the coordinator of a leader epoch, from what the log has; ``end`` makes one forget
        it."""
        self.partition = partition
        self._replicas = replicas
        self._begin = begin
        self._end = end
        self._lock = threading.Lock()
        self._epoch = _NO_TERM
        self._term: Term[C] | None = None
        self._is_closed = False

    @property
    def refusal(self) -> ErrorCode:
        """What to answer while there is no term."""
        is_reading = self._epoch != _NO_TERM and self._term is None
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_reading else ErrorCode.NOT_COORDINATOR

    def look(self) -> Term[C] | None:
        """The term that lasts now. Ends what is over, and begins what is new.

        Raises:
            LogstoreError: the records cannot be read. The next look tries again.
        """
        replica = self._replicas.get(self.partition)
        code, epoch = ErrorCode.NOT_COORDINATOR, _NO_TERM
        if replica is not None and not self._is_closed:
            code, epoch = replica.check_produce(by_all=False)
        if replica is None or code is not NONE:
            epoch = _NO_TERM
        if epoch == self._epoch:
            return self._term
        gone = None
        with self._lock:
            is_new = epoch != self._epoch
            if is_new:
                gone, self._term, self._epoch = self._term, None, epoch
        if gone is not None:
            self._end(gone.coordinator)
        if replica is None or not is_new or epoch == _NO_TERM:
            return self._term
        return self._enter(replica, epoch)

    def _enter(self, replica: PartitionReplica, epoch: int) -> Term[C] | None:
        try:
            begun = Term(epoch, replica, self._begin(replica, epoch))
        except BaseException:
            with self._lock:
                if self._epoch == epoch:
                    self._epoch = _NO_TERM
            raise
        with self._lock:
            is_on = self._epoch == epoch and not self._is_closed
            if is_on:
                self._term = begun
        if not is_on:
            self._end(begun.coordinator)
            return None
        return begun

    def close(self) -> None:
        """The node ends: store nothing."""
        with self._lock:
            self._is_closed = True
            gone, self._term, self._epoch = self._term, None, _NO_TERM
        if gone is not None:
            self._end(gone.coordinator)
