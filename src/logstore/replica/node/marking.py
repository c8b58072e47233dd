"""The ends of transactions in partitions: markers of a coordinator, here and at the other leaders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.transactions.requests import (
    Done,
    MarkedPartition,
    TransactionMarker,
    WriteMarkersResult,
)
from logstore.broker.transactions.states import TransactionState
from logstore.broker.transactions.transaction import Transaction
from logstore.errors import LeaderFencedError, LogstoreError
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import View
from logstore.replica.node.admitting import Admission
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.peers import Peers
from logstore.wire.handlers.then import gather, then
from logstore.wire.remote.translate.inspecting import WRITE_MARKERS, MarkOne, WriteMarkers

_IS_MARKED: Final = frozenset(
    {
        NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Also if a later marker is there, or another coordinator has taken over."""


class LedMarkers:
    """Markers in the partitions that this node leads. All in-sync replicas have what is answered."""

    def __init__(self, replicas: Mapping[TopicPartition, PartitionReplica], admission: Admission) -> None:
        self._replicas = replicas
        self._admission = admission

    def write(self, markers: tuple[TransactionMarker, ...]) -> Pending[WriteMarkersResult]:
        """In the order of the request."""
        outcomes = _Outcomes(markers)
        for number, (marker, partition) in enumerate(outcomes.wanted):
            self._write(marker, partition, lambda code, number=number: outcomes.note(number, code))  # type: ignore[misc]
        return outcomes.promise

    def _write(self, marker: TransactionMarker, partition: TopicPartition, done: Done[ErrorCode]) -> None:
        replica = self._replicas.get(partition)
        if replica is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        code, epoch = replica.check_produce(by_all=True)
        if code is not NONE:
            done(code)
            return
        try:
            with self._admission.lock_of(partition):
                self._admission.withdraw(partition, marker.producer_id)
                result = replica.log.append_end_marker(
                    marker.producer_id,
                    marker.producer_epoch,
                    committed=marker.committed,
                    coordinator_epoch=max(marker.coordinator_epoch, 0),
                )
        except LeaderFencedError:  # a marker's epoch is its coordinator's
            done(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        except LogstoreError as error:
            done(code_of(error))
        else:
            replica.when_replicated(result.last_offset + 1, epoch, done)


class _Outcomes:
    """What becomes of each partition of each marker.

    Lock: ``_lock`` guards how many are left. Nothing is called with it held.
    """

    def __init__(self, markers: tuple[TransactionMarker, ...]) -> None:
        self.wanted = [(marker, partition) for marker in markers for partition in marker.partitions]
        self.promise: Promise[WriteMarkersResult] = Promise()
        self._codes: dict[int, ErrorCode] = {}
        self._lock = threading.Lock()
        if not self.wanted:
            self.promise.complete(WriteMarkersResult(()))

    def note(self, number: int, code: ErrorCode) -> None:
        with self._lock:
            self._codes[number] = code
            is_last = len(self._codes) == len(self.wanted)
        if is_last:
            self.promise.complete(
                WriteMarkersResult(
                    tuple(
                        MarkedPartition(marker.producer_id, partition, self._codes[at])
                        for at, (marker, partition) in enumerate(self.wanted)
                    )
                )
            )


class ClusterLogs:
    """The logs of a cluster; see :class:`~logstore.broker.transactions.coordinator.TransactionLogs`. What a
    producer has been told is in all in-sync replicas, and so is each marker when it is answered."""

    def __init__(
        self,
        node_id: int,
        coordinator_epoch: int,
        view: Callable[[], View],
        is_coming: Callable[[str], bool | None],
        here: LedMarkers,
        peers: Peers,
    ) -> None:
        """``is_coming``: whether there is a topic of which this node has not heard yet; None if nobody can
        say."""
        self._node_id = node_id
        self._coordinator_epoch = coordinator_epoch
        self._view = view
        self._is_coming = is_coming
        self._here = here
        self._peers = peers

    @property
    def refusal(self) -> ErrorCode:
        """Leaders change, or this node coordinates no more: the client asks again, here or elsewhere."""
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def make_durable(self, partitions: Collection[TopicPartition], done: Done[ErrorCode]) -> None:
        done(NONE)

    def flush(self, partitions: Collection[TopicPartition]) -> ErrorCode:
        return NONE

    def open_transactions(self) -> None:
        return None

    def append_markers(
        self, transaction: Transaction, partitions: Collection[TopicPartition]
    ) -> Pending[frozenset[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        refused = []
        view = self._view()
        for partition in sorted(partitions):
            state = view.partitions.get(partition)
            if state is None and self._is_coming(partition.topic) is False:
                continue  # it was deleted
            if state is None or state.leader is None:
                refused.append(partition)
            else:
                by_leader.setdefault(state.leader.node_id, []).append(partition)
        asked = [self._ask(node_id, transaction, led) for node_id, led in by_leader.items()]
        if not asked:
            return Answered(frozenset(refused))
        return then(
            gather(asked),
            lambda results: frozenset(refused).union(
                each.partition
                for result in results
                for each in result.partitions
                if each.error not in _IS_MARKED
            ),
        )

    def _ask(
        self, node_id: int, transaction: Transaction, partitions: list[TopicPartition]
    ) -> Pending[WriteMarkersResult]:
        marker = TransactionMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            tuple(partitions),
            self._coordinator_epoch,
        )
        if node_id == self._node_id:
            return self._here.write((marker,))
        request = WriteMarkers(tuple([MarkOne(each, marker) for each in partitions]))
        return self._peers.ask(node_id, WRITE_MARKERS, request)
