"""The requests about transactions, as a node of a cluster answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.records.producing import Doorkeeper
from logstore.broker.requests import (
    OffsetCommitRequest,
    OffsetCommitResult,
    ProduceRequest,
)
from logstore.broker.storing.transactions import begin_coordinator
from logstore.broker.transactions.coordinator import TransactionCoordinator
from logstore.broker.transactions.requests import (
    AddOffsetsToTransaction,
    AddPartitionsResult,
    AddPartitionsToTransaction,
    ListTransactions,
    ListTransactionsResult,
    TransactionalProducer,
    TransactionMarker,
    WriteMarkersResult,
)
from logstore.errors import LogstoreError
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import View
from logstore.replica.node.admitting import Admission, Refused
from logstore.replica.node.coordinating import GROUPS
from logstore.replica.node.group_requests import GroupBroker
from logstore.replica.node.marking import ClusterLogs, LedMarkers
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.peers import Peers
from logstore.replica.node.telling import leader_of
from logstore.replica.node.terms import Terms
from logstore.replica.node.transacting import TRANSACTIONS, ReplicatedStorage
from logstore.wire.handlers.then import gather, then, then_ask
from logstore.wire.remote.translate.transactions import ADD_FOR_CLIENTS, VERIFY

T = TypeVar("T")

_ON_THE_WAY: Final = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""The coordinator was not reached, or does not know yet of the partition, or of another of the request."""


class TransactionBroker(GroupBroker):
    """A broker that coordinates transactions while it leads them, and lets those of any coordinator into the
    partitions that it leads."""

    def __init__(
        self,
        directory: LogDirectory,
        node_id: int,
        replicas: Mapping[TopicPartition, PartitionReplica],
        view: Callable[[], View],
        is_coming: Callable[[str], bool | None],
        peers: Peers,
    ) -> None:
        """``is_coming``: whether there is a topic of which this node has not heard yet; None if nobody can
        say."""
        super().__init__(directory)
        self._node_id = node_id
        self._view = view
        self._is_coming = is_coming
        self._peers = peers
        self._admission = Admission(replicas)
        self._markers = LedMarkers(replicas, self._admission)
        self.transaction_terms = Terms(
            replicas, TRANSACTIONS, self._begin_transactions, TransactionCoordinator.close
        )

    def _begin_transactions(self, replica: PartitionReplica, epoch: int) -> TransactionCoordinator:
        storage = ReplicatedStorage(self._directory, replica, epoch)
        logs = ClusterLogs(self._node_id, epoch, self._view, self._is_coming, self._markers, self._peers)
        return begin_coordinator(self._directory, storage, logs, storage.load(), self._new_producer_id)

    def why_no_groups(self) -> ErrorCode:
        return self._why_none(GROUPS)

    def _why_none(self, partition: TopicPartition) -> ErrorCode:
        """Why this node, which coordinates nothing by ``partition`` now, lists nothing; ``NONE`` if another
        node does. One that leads it, but whose lease is over or which still reads it, knows of no other."""
        view = self._view()
        is_missing = partition in view.partitions and leader_of(view, partition) in (None, self._node_id)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_missing else NONE

    def forget_partition(self, partition: TopicPartition) -> None:
        """The node does not hold it any more."""
        self._admission.forget(partition)

    # The coordinator

    def _ask_transactions(
        self,
        ask: Callable[[TransactionCoordinator, Callable[[T], object]], object],
        refusal: Callable[[ErrorCode, str], T],
    ) -> Pending[T]:
        try:
            term = self.transaction_terms.look()
        except LogstoreError as error:
            return Answered(refusal(code_of(error), str(error)))
        if term is None:
            code = self.transaction_terms.refusal
            return Answered(refusal(code, "another node coordinates transactions"))
        promise: Promise[T] = Promise()
        ask(term.coordinator, promise.complete)
        return promise

    def list_transactions(self, request: ListTransactions) -> Pending[ListTransactionsResult]:
        """Clients ask all nodes, each for its own."""
        ask = super().list_transactions
        return then(
            ask(request),
            lambda found: (
                ListTransactionsResult(self._why_none(TRANSACTIONS))
                if found.error is ErrorCode.NOT_COORDINATOR
                else found
            ),
        )

    def add_partitions_to_transaction(
        self, request: AddPartitionsToTransaction
    ) -> Pending[AddPartitionsResult]:
        if request.is_implied:
            return self._admit(request.producer, request.partitions, adds=True)
        return super().add_partitions_to_transaction(request)

    def add_offsets_to_transaction(self, request: AddOffsetsToTransaction) -> Pending[ErrorCode]:
        if request.is_implied:
            added = self._admit(request.producer, (GROUPS,), adds=True)
            return then(added, lambda result: result.errors[GROUPS])
        return super().add_offsets_to_transaction(request)

    # What is led here

    def _doorkeeper(self) -> Doorkeeper:
        return self._admission

    def _admit(
        self, producer: TransactionalProducer, partitions: tuple[TopicPartition, ...], *, adds: bool
    ) -> Pending[AddPartitionsResult]:
        """Ask the coordinator, wherever it is, whether the transaction has the partitions, or to add them."""
        request = AddPartitionsToTransaction(producer, partitions)
        return self._admission.admit(producer, partitions, lambda: self._ask_coordinator(request, adds=adds))

    def _ask_coordinator(
        self, request: AddPartitionsToTransaction, *, adds: bool
    ) -> Pending[AddPartitionsResult]:
        node_id = leader_of(self._view(), TRANSACTIONS)
        if node_id is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Answered(AddPartitionsResult(dict.fromkeys(request.partitions, code)))
        if node_id != self._node_id:
            found = self._peers.ask(node_id, ADD_FOR_CLIENTS if adds else VERIFY, request)
            return then(found, _as_coordinators)
        if adds:
            return super().add_partitions_to_transaction(request)
        return self._ask_transactions(
            lambda transactions, done: done(
                AddPartitionsResult(
                    {each: transactions.check_batch(request.producer, each) for each in request.partitions}
                )
            ),
            lambda code, _: AddPartitionsResult(dict.fromkeys(request.partitions, code)),
        )

    def _admit_batches(self, request: ProduceRequest) -> Pending[Refused] | None:
        """Ask of what transactions have not begun here; the result is what their coordinators refuse. None if
        there is nothing to ask."""
        missing = self._admission.missing(request)
        if not missing:
            return None
        asked = [self._admit(producer, partitions, adds=False) for producer, partitions in missing.items()]
        return then(gather(asked), _refused)

    def offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        ask = super().offset_commit
        if request.transaction is None:
            return ask(request)

        def go_on(admitted: AddPartitionsResult) -> Pending[OffsetCommitResult]:
            if admitted.error is NONE:
                return ask(request)
            return Answered(OffsetCommitResult(dict.fromkeys(request.offsets, admitted.error)))

        if self._admission.check_batch(request.transaction, GROUPS) is NONE:
            return ask(request)
        return then_ask(self._admit(request.transaction, (GROUPS,), adds=False), go_on)

    def write_transaction_markers(
        self, markers: tuple[TransactionMarker, ...]
    ) -> Pending[WriteMarkersResult]:
        return self._markers.write(markers)


def _as_coordinators(result: AddPartitionsResult) -> AddPartitionsResult:
    """Whatever was wrong on the way, the batch may be sent again."""
    return AddPartitionsResult(
        {
            each: ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _ON_THE_WAY else code
            for each, code in result.errors.items()
        }
    )


def _refused(results: tuple[AddPartitionsResult, ...]) -> Refused:
    return {each: code for result in results for each, code in result.errors.items() if code is not NONE}
