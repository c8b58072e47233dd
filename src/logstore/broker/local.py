"""The broker of a directory that this process has open: it answers from the logs themselves.

Knows no sockets and no clients. A request is carried out in the thread that makes it; what has to wait is an
entry in the logs that it waits for.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from logstore.broker.administering import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
)
from logstore.broker.broker import Broker
from logstore.broker.client_view import ClientView
from logstore.broker.cluster_state import ClusterState
from logstore.broker.codes import ErrorCode
from logstore.broker.committing import forget_topics
from logstore.broker.consumer_groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerGroup,
)
from logstore.broker.coordinating import ConsumerGroups
from logstore.broker.counting import (
    RequestCounts,
    counted,
    of_code,
    of_codes,
    of_each,
    of_entries,
    of_partitions,
    of_result,
    of_topics,
)
from logstore.broker.failures import code_of
from logstore.broker.groups.requests import (
    DescribedGroup,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListGroupsResult,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.quotas.precedence import Client
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    AlterClientQuotasResult,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResult,
)
from logstore.broker.records.fetching import Shelf, fetch
from logstore.broker.records.looking_up import (
    NODE_ID,
    describe_configs,
    describe_log_dirs,
    list_offsets,
    metadata,
    offsets_for_leader_epoch,
)
from logstore.broker.records.producers import describe_producers, write_markers
from logstore.broker.records.producing import Doorkeeper, produce
from logstore.broker.requests import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteRecordsResult,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResult,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    FetchRequest,
    FetchResult,
    InitProducerIdRequest,
    InitProducerIdResult,
    ListOffsetsRequest,
    ListOffsetsResult,
    MetadataRequest,
    MetadataResult,
    OffsetCommitRequest,
    OffsetCommitResult,
    OffsetDeleteRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
    OffsetFetchResult,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResult,
    ProduceRequest,
    ProduceResult,
    TopicsResult,
)
from logstore.broker.share.coordinator import ShareCoordinator
from logstore.broker.share.exchanging import refused
from logstore.broker.share.kept import ShareStates
from logstore.broker.share.requests import (
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    DescribedShareGroup,
    ListShareGroupsResult,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupOffsets,
    ShareOffsetsQuery,
)
from logstore.broker.storing.group_settings import StoredGroupSettings
from logstore.broker.storing.quotas import StoredQuotas
from logstore.broker.storing.share_groups import open_share_groups, set_share_groups_back
from logstore.broker.storing.transactions import open_transactions
from logstore.broker.topic_ids import TopicIds
from logstore.broker.transactions.coordinator import TransactionCoordinator
from logstore.broker.transactions.requests import (
    AddOffsetsToTransaction,
    AddPartitionsResult,
    AddPartitionsToTransaction,
    DescribedTransaction,
    DescribeProducersResult,
    EndTransaction,
    EndTransactionResult,
    ListTransactions,
    ListTransactionsResult,
    TransactionMarker,
    WriteMarkersResult,
)
from logstore.broker.transactions.transaction import Producer
from logstore.errors import LogstoreError
from logstore.format.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.partition.state.home import lower_of
from logstore.warning import warn

T = TypeVar("T")

_PRODUCER_ID_BITS = 62


class LocalBroker:
    """See :class:`~logstore.broker.broker.Broker`."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self.group_settings = StoredGroupSettings(directory, self._configure_share_group)
        """The settings that groups were given."""
        self._groups = ConsumerGroups(directory, self.group_settings.own)
        self.committed = self._groups.committed
        """The offsets that groups have committed."""
        self._shelf = Shelf(directory)
        """Where fetches read."""
        self.topics = TopicIds(directory)
        """The names and ids of topics."""
        self.requests = RequestCounts()
        """The requests that were answered."""
        self._quotas = StoredQuotas(directory)
        self._last_view: ClientView | None = None
        self._transactions: TransactionCoordinator | None = None
        self._share_groups: ShareCoordinator | None = None
        self._ends: Mapping[TopicPartition, int] | None = None
        """What share groups are still to be set back to."""
        self._lock = threading.Lock()
        """Guards the making of the coordinators, which read what is stored."""

    @property
    def node_id(self) -> int:
        """The directory's number among the brokers of its cluster: it is the only one."""
        return NODE_ID

    @property
    def cluster_id(self) -> str:
        """Which cluster the directory is of."""
        return self._directory.identity.cluster_id or ""

    @property
    def cluster(self) -> None:
        """The other nodes: a broker that has its topics for itself has none."""
        return None

    @property
    def share_states(self) -> ShareStates | None:
        """The states of queues, for other nodes of its cluster: there are none."""
        return None

    @property
    def follower_sign_seconds(self) -> float:
        """How often it wants to hear of a follower that asks for the same again: nothing depends on it."""
        return math.inf

    @property
    def path(self) -> str:
        """The directory."""
        return self._directory.path

    def as_client(self, client: Client) -> Broker:
        """This broker, for what one client asks: it is held to its quotas, and answers say how long it is to
        wait. What is asked of the broker itself is not measured."""
        view = self._last_view
        if view is None or view.client != client:  # thousands of producers may be the same client
            view = self._last_view = ClientView(self, client, self._quotas.limits, self.requests)
        return view

    def cluster_state(self) -> ClusterState | None:
        """How the cluster is to which this broker belongs; None: it is alone. Cost: 2 µs per partition."""
        return None

    def group_states(self) -> dict[str, str]:
        """The state of each group. Before the first request of a group: those that are stored, as they were
        then; nothing is begun by this.

        Raises:
            CorruptionError, UnsupportedVersionError: the groups cannot be read.
        """
        return self._groups.states()

    def _transaction_coordinator(self) -> TransactionCoordinator:
        """
        Raises:
            LogstoreError: the transactions cannot be read.
        """
        if self._transactions is None:
            with self._lock:
                if self._transactions is None:
                    self._transactions = open_transactions(self._directory, self._new_producer_id)
        return self._transactions

    def _doorkeeper(self) -> Doorkeeper:
        """Who lets batches of transactions in. Raises as :meth:`_transaction_coordinator`."""
        return self._transaction_coordinator()

    def _share_coordinator(self) -> ShareCoordinator:
        """
        Raises:
            LogstoreError: the share groups cannot be read.
        """
        context = self._directory.context
        if context.lost_ends.coming or context.home.lost_ends:
            context.lost_ends.go_on()
        if self._share_groups is None:
            with self._lock:
                if self._share_groups is None:
                    self._finish_setting_back_locked()
                    self._share_groups = open_share_groups(self._directory)
        elif self._ends is not None:
            with self._lock:
                self._finish_setting_back_locked()
        return self._share_groups

    def _configure_share_group(self, name: str, before: ShareGroupConfig, after: ShareGroupConfig) -> None:
        if self._share_groups is not None:  # else it has no members
            self._share_groups.configure(name, before, after)

    def share_groups(self) -> tuple[DescribedShareGroup, ...]:
        """All share groups. The first call reads what is stored of them.

        Raises:
            LogstoreError: it cannot be read.
        """
        groups = self._share_coordinator()
        return tuple(map(groups.describe, groups.names()))

    def share_groups_in_use(self) -> tuple[DescribedShareGroup, ...]:
        """The share groups, once one was asked for: nothing is begun by this."""
        groups = self._share_groups
        return () if groups is None else tuple(map(groups.describe, groups.names()))

    def set_share_groups_back(self, ends: Mapping[TopicPartition, int]) -> None:
        """See :func:`.set_share_groups_back`; also for groups that are in use. What cannot be done now, as on
        a full disk, is done before anything is asked of them; until then they raise why."""
        with self._lock:
            self._ends = lower_of(self._ends or {}, ends)
            try:
                self._finish_setting_back_locked()
            except LogstoreError as error:
                warn("queues cannot be used yet: they say something of records that were lost: %s", error)
        groups = self._share_groups  # those that have begun meanwhile, too
        if groups is not None:
            groups.set_back(ends)

    @property
    def are_share_groups_to_be_set_back(self) -> bool:
        """Whether one has not gone back to the end of a log that was cut."""
        groups = self._share_groups
        return self._ends is not None or (groups is not None and groups.is_to_be_set_back)

    def _finish_setting_back_locked(self) -> None:
        """
        Raises:
            LogstoreError: the states cannot be read or written.
        """
        if self._ends is not None:
            if self._share_groups is None:
                set_share_groups_back(self._directory, self._ends)
            else:
                self._share_groups.set_others_back(self._ends)
            self._ends = None

    def forget_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        """A topic was deleted: what share groups know of it goes, too.

        Raises:
            LogstoreError: the share groups cannot be read.
        """
        return self._share_coordinator().forget_topic(topic_id)

    def finish_transactions(self) -> None:
        """Go on with what the last process has left: transactions that were to be ended get their markers.

        Raises:
            LogstoreError: the transactions cannot be read.
        """
        if TRANSACTIONS_TOPIC in self._directory.topic_names():
            self._transaction_coordinator()

    def close(self) -> None:
        """Store what has changed in groups, and answer what waits in them and in transactions. The directory
        is closed by its owner. What cannot be set back now, the next open does."""
        self._groups.close()
        if self._transactions is not None:
            self._transactions.close()
        try:  # after a clean stop the next opening does not look for it
            self.committed.finish_setting_back()
        except LogstoreError as error:
            warn("committed offsets above the ends of their logs could not be set back: %s", error)
        with self._lock, suppress(LogstoreError):  # it was told
            self._finish_setting_back_locked()
        if self._share_groups is not None:
            self._share_groups.close()
        if self.committed.is_to_be_set_back or self.are_share_groups_to_be_set_back:
            self._directory.is_settled = False  # the next open is to be one after a crash

    # Records

    @counted(of_partitions)
    def produce(self, request: ProduceRequest) -> Pending[ProduceResult]:
        return produce(self._directory, request, self._doorkeeper)

    @counted(of_partitions)
    def fetch(self, request: FetchRequest) -> Pending[FetchResult]:
        return fetch(self._shelf, request)

    @counted(of_partitions)
    def list_offsets(self, request: ListOffsetsRequest) -> Pending[ListOffsetsResult]:
        return Answered(list_offsets(self._directory, request))

    @counted(of_partitions)
    def offsets_for_leader_epoch(
        self, request: OffsetsForLeaderEpochRequest
    ) -> Pending[OffsetsForLeaderEpochResult]:
        return Answered(offsets_for_leader_epoch(self._directory, request))

    @counted(of_partitions)
    def delete_records(self, request: DeleteRecordsRequest) -> Pending[DeleteRecordsResult]:
        return Answered(delete_records(self._directory, request))

    @counted(of_result)
    def init_producer_id(self, request: InitProducerIdRequest) -> Pending[InitProducerIdResult]:
        """The id is drawn at random from 62 bits. Kafka's brokers count theirs up from 0: an id of theirs, in
        a directory that goes from one to the other, is never given a second time here."""
        if request.transactional_id is None:
            return Answered(InitProducerIdResult(ErrorCode.NONE, self._new_producer_id(), 0))
        name, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        asks = Producer(request.producer_id, request.producer_epoch)
        return self._ask_transactions(
            lambda transactions, done: transactions.init_producer_id(
                name, timeout_ms, asks, lambda found: done(InitProducerIdResult(found[0], *found[1]))
            ),
            lambda code, why: InitProducerIdResult(code, message=why),
        )

    def _new_producer_id(self) -> int:
        return self._directory.context.random.getrandbits(_PRODUCER_ID_BITS)

    # Topics

    @counted(of_topics)
    def metadata(self, request: MetadataRequest) -> Pending[MetadataResult]:
        return Answered(metadata(self._directory, request))

    @counted(of_topics)
    def create_topics(self, request: CreateTopicsRequest) -> Pending[TopicsResult]:
        return Answered(create_topics(self._directory, request))

    @counted(of_topics)
    def delete_topics(self, request: DeleteTopicsRequest) -> Pending[TopicsResult]:
        has_offsets = OFFSETS_TOPIC in self._directory.topic_names()
        result = delete_topics(self._directory, request)
        if has_offsets:
            deleted = [each.name for each in result.topics if each.error is ErrorCode.NONE]
            forget_topics(self.committed, deleted)
        return Answered(result)

    @counted(of_topics)
    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]:
        return Answered(create_partitions(self._directory, request))

    @counted(of_topics)
    def describe_configs(self, request: DescribeConfigsRequest) -> Pending[DescribeConfigsResult]:
        return Answered(describe_configs(self._directory, request))

    @counted(of_topics)
    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]:
        return Answered(alter_configs(self._directory, request))

    @counted(of_result)
    def describe_log_dirs(self, request: DescribeLogDirsRequest) -> Pending[DescribeLogDirsResult]:
        return Answered(describe_log_dirs(self._directory, request))

    # Quotas

    @counted(of_result)
    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest
    ) -> Pending[DescribeClientQuotasResult]:
        return Answered(self._quotas.describe(request))

    @counted(of_entries)
    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> Pending[AlterClientQuotasResult]:
        return Answered(self._quotas.alter(request))

    # Transactions

    @counted(of_result)
    def add_partitions_to_transaction(
        self, request: AddPartitionsToTransaction
    ) -> Pending[AddPartitionsResult]:
        return self._ask_transactions(
            lambda transactions, done: transactions.add_partitions(request, done),
            lambda code, _: AddPartitionsResult(dict.fromkeys(request.partitions, code)),
        )

    @counted(of_code)
    def add_offsets_to_transaction(self, request: AddOffsetsToTransaction) -> Pending[ErrorCode]:
        partition = self.committed.partition_for(request.group)
        adds = AddPartitionsToTransaction(request.producer, (partition,), request.is_implied)
        return self._ask_transactions(
            lambda transactions, done: transactions.add_partitions(
                adds, lambda result: done(result.errors[partition])
            ),
            lambda code, _: code,
        )

    @counted(of_result)
    def end_transaction(self, request: EndTransaction) -> Pending[EndTransactionResult]:
        return self._ask_transactions(
            lambda transactions, done: transactions.end(request, done),
            lambda code, why: EndTransactionResult(code, message=why),
        )

    @counted(of_result)
    def list_transactions(self, request: ListTransactions) -> Pending[ListTransactionsResult]:
        return self._ask_transactions(
            lambda transactions, done: done(
                ListTransactionsResult(ErrorCode.NONE, transactions.find(request))
            ),
            lambda code, why: ListTransactionsResult(code, message=why),
        )

    @counted(of_each)
    def describe_transactions(
        self, transactional_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedTransaction, ...]]:
        return self._ask_transactions(
            lambda transactions, done: done(tuple(map(transactions.describe, transactional_ids))),
            lambda code, why: tuple(
                DescribedTransaction(code, each, message=why) for each in transactional_ids
            ),
        )

    @counted(of_partitions)
    def describe_producers(self, partitions: tuple[TopicPartition, ...]) -> Pending[DescribeProducersResult]:
        return Answered(describe_producers(self._directory, partitions))

    @counted(of_partitions)
    def write_transaction_markers(
        self, markers: tuple[TransactionMarker, ...]
    ) -> Pending[WriteMarkersResult]:
        return write_markers(self._directory, markers)

    # Groups

    @counted(of_result)
    def offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        if request.transaction is None:
            return Answered(self._groups.offset_commit(request))
        try:
            keeper = self._doorkeeper()
        except LogstoreError as error:
            return Answered(OffsetCommitResult(dict.fromkeys(request.offsets, code_of(error)), str(error)))
        partition = self.committed.partition_for(request.group)
        with keeper.writing(request.transaction.transactional_id, partition):
            code = keeper.check_batch(request.transaction, partition)
            if code is ErrorCode.NONE:
                return Answered(self._groups.offset_commit(request))
        return Answered(OffsetCommitResult(dict.fromkeys(request.offsets, code)))

    @counted(of_result)
    def offset_fetch(self, request: OffsetFetchRequest) -> Pending[OffsetFetchResult]:
        return Answered(self._groups.offset_fetch(request))

    @counted(of_result)
    def offset_delete(self, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResult]:
        return self._groups.offset_delete(request)

    @counted(of_result)
    def join_group(self, request: JoinGroup) -> Pending[JoinGroupResult]:
        return self._groups.join_group(request)

    @counted(of_result)
    def sync_group(self, request: SyncGroup) -> Pending[SyncGroupResult]:
        return self._groups.sync_group(request)

    @counted(of_code)
    def heartbeat(self, request: Heartbeat) -> Pending[ErrorCode]:
        return self._groups.heartbeat(request)

    @counted(of_result)
    def leave_group(self, request: LeaveGroup) -> Pending[LeaveGroupResult]:
        return self._groups.leave_group(request)

    @counted(of_result)
    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat
    ) -> Pending[ConsumerGroupHeartbeatResult]:
        return self._groups.consumer_group_heartbeat(request)

    @counted(of_result)
    def list_groups(self) -> Pending[ListGroupsResult]:
        return self._groups.list_groups()

    @counted(of_each)
    def describe_groups(self, group_ids: tuple[str, ...]) -> Pending[tuple[DescribedGroup, ...]]:
        return self._groups.describe_groups(group_ids)

    @counted(of_each)
    def describe_consumer_groups(
        self, group_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedConsumerGroup, ...]]:
        return self._groups.describe_consumer_groups(group_ids)

    @counted(of_codes)
    def delete_groups(self, group_ids: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        return self._groups.delete_groups(group_ids)

    # Share groups

    @counted(of_result)
    def share_group_heartbeat(self, request: ShareGroupHeartbeat) -> Pending[ShareGroupHeartbeatResult]:
        return self._ask_share_groups(
            lambda groups: Answered(groups.heartbeat(request)),
            lambda code, why: ShareGroupHeartbeatResult(code, message=why),
        )

    @counted(of_result)
    def share_fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        return self._ask_share_groups(
            lambda groups: groups.fetch(request), lambda code, why: ShareFetchResult(code, message=why)
        )

    @counted(of_partitions)
    def share_acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        return self._ask_share_groups(
            lambda groups: groups.acknowledge(request), lambda code, _: refused(request, code)
        )

    @counted(of_result)
    def list_share_groups(self) -> Pending[ListShareGroupsResult]:
        return self._ask_share_groups(
            lambda groups: Answered(ListShareGroupsResult(ErrorCode.NONE, groups.names())),
            lambda code, why: ListShareGroupsResult(code, message=why),
        )

    @counted(of_each)
    def describe_share_groups(self, names: tuple[str, ...]) -> Pending[tuple[DescribedShareGroup, ...]]:
        return self._ask_share_groups(
            lambda groups: Answered(tuple(map(groups.describe, names))),
            lambda code, why: tuple(DescribedShareGroup(code, each, message=why) for each in names),
        )

    @counted(of_codes)
    def delete_share_groups(self, names: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        return self._ask_share_groups(
            lambda groups: Answered({each: groups.delete(each) for each in names}),
            lambda code, _: dict.fromkeys(names, code),
        )

    @counted(of_result)
    def share_group_offsets(self, query: ShareOffsetsQuery) -> Pending[ShareGroupOffsets]:
        return self._ask_share_groups(
            lambda groups: Answered(groups.offsets(query)),
            lambda code, why: ShareGroupOffsets(code, query.group, message=why),
        )

    @counted(of_result)
    def alter_share_group_offsets(self, request: AlterShareOffsets) -> Pending[AlterShareOffsetsResult]:
        return self._ask_share_groups(
            lambda groups: Answered(groups.alter_offsets(request)),
            lambda code, why: AlterShareOffsetsResult(code, message=why),
        )

    @counted(of_result)
    def delete_share_group_offsets(self, request: DeleteShareOffsets) -> Pending[DeleteShareOffsetsResult]:
        return self._ask_share_groups(
            lambda groups: Answered(groups.delete_offsets(request)),
            lambda code, why: DeleteShareOffsetsResult(code, message=why),
        )

    def _ask_share_groups(
        self, ask: Callable[[ShareCoordinator], Pending[T]], refusal: Callable[[ErrorCode, str], T]
    ) -> Pending[T]:
        """What the coordinator of share groups answers, or its refusal if they cannot be read."""
        try:
            return ask(self._share_coordinator())
        except LogstoreError as error:
            return Answered(refusal(code_of(error), str(error)))

    def _ask_transactions(
        self,
        ask: Callable[[TransactionCoordinator, Callable[[T], object]], object],
        refusal: Callable[[ErrorCode, str], T],
    ) -> Pending[T]:
        """The same of transactions."""
        try:
            coordinator = self._transaction_coordinator()
        except LogstoreError as error:
            return Answered(refusal(code_of(error), str(error)))
        promise: Promise[T] = Promise()
        ask(coordinator, promise.complete)
        return promise
