"""The broker of a directory that this process has open: it answers from the logs themselves.

Knows no sockets and no clients. A request is carried out in the thread that makes it; what has to wait is an
entry in the logs that it waits for.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
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
from logstore.broker.codes import ErrorCode
from logstore.broker.committing import offset_commit, offset_delete, offset_fetch
from logstore.broker.counting import (
    RequestCounts,
    counted,
    of_code,
    of_codes,
    of_each,
    of_entries,
    of_none,
    of_partitions,
    of_result,
    of_topics,
)
from logstore.broker.failures import code_of
from logstore.broker.fetching import fetch
from logstore.broker.group_storage import TopicStorage, open_coordinator, stored_states
from logstore.broker.groups.coordinator import GroupCoordinator
from logstore.broker.groups.requests import (
    DescribedGroup,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListedGroup,
    ListGroupsResult,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.looking_up import describe_configs, list_offsets, metadata, offsets_for_leader_epoch
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.offsets.expiry import NO_GROUP
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.producing import produce
from logstore.broker.quota_storage import StoredQuotas
from logstore.broker.quotas.precedence import Client
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    AlterClientQuotasResult,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResult,
)
from logstore.broker.requests import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteRecordsResult,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResult,
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
    TopicOutcome,
    TopicsResult,
)
from logstore.broker.share.coordinator import ShareCoordinator, refused
from logstore.broker.share.requests import (
    DescribedShareGroup,
    ListShareGroupsResult,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
)
from logstore.broker.share_groups import open_share_groups, set_share_groups_back
from logstore.broker.transaction_storage import open_transactions
from logstore.broker.transactions.coordinator import TransactionCoordinator
from logstore.broker.transactions.requests import (
    AddOffsetsToTransaction,
    AddPartitionsResult,
    AddPartitionsToTransaction,
    DescribedTransaction,
    EndTransaction,
    EndTransactionResult,
    ListedTransaction,
    ListTransactions,
    TransactionalProducer,
)
from logstore.broker.transactions.transaction import Producer
from logstore.errors import LogstoreError
from logstore.format.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.warning import warn

T = TypeVar("T")

_PRODUCER_ID_BITS = 62


class LocalBroker:
    """See :class:`~logstore.broker.broker.Broker`."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self.committed = CommittedOffsets(directory, empty_since=self._empty_since)
        """The offsets that groups have committed."""
        self._storage = TopicStorage(self.committed, directory.context.scheduler)
        self.requests = RequestCounts()
        """The requests that were answered."""
        self._quotas = StoredQuotas(directory)
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._share_groups: ShareCoordinator | None = None
        self._ends: Mapping[TopicPartition, int] | None = None
        """What share groups are still to be set back to."""
        self._lock = threading.Lock()
        """Guards the making of the coordinators, which read what is stored."""

    def as_client(self, client: Client) -> Broker:
        """This broker, for what one client asks: it is held to its quotas, and answers say how long it is to
        wait. What is asked of the broker itself is not measured."""
        return ClientView(self, client, self._quotas.limits, self.requests)

    def _empty_since(self, group_id: str) -> int | None:
        return NO_GROUP if self._groups is None else self._groups.empty_since(group_id)

    def group_states(self) -> dict[str, str]:
        """The state of each group. Before the first request of a group: those that are stored, ``Stable``
        with members and ``Empty`` without; nothing is begun by this.

        Raises:
            CorruptionError, UnsupportedVersionError: the groups cannot be read.
        """
        if self._groups is None:
            return stored_states(self.committed)
        self._groups.match_offsets(self.committed.all_groups())
        found: list[tuple[ListedGroup, ...]] = []
        self._groups.list_groups((), found.append)
        return {each.group_id: each.state for each in found[0]}

    def _coordinator(self) -> GroupCoordinator:
        """
        Raises:
            LogstoreError: the groups cannot be read.
        """
        if self._groups is None:
            with self._lock:
                if self._groups is None:
                    self._groups = open_coordinator(self.committed, self._storage)
        return self._groups

    def _coordinator_of(self, group_ids: Collection[str] | None) -> GroupCoordinator:
        """The coordinator, which knows then which of these groups, or of all, have committed offsets: those
        who need no members commit and delete beside it.

        Raises:
            LogstoreError: the groups cannot be read.
        """
        coordinator, committed = self._coordinator(), self.committed
        with_offsets = (
            committed.all_groups() if group_ids is None else set(filter(committed.has_any, group_ids))
        )
        coordinator.match_offsets(with_offsets, group_ids)
        return coordinator

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

    def _share_coordinator(self) -> ShareCoordinator:
        """
        Raises:
            LogstoreError: the share groups cannot be read.
        """
        if self._share_groups is None:
            with self._lock:
                if self._share_groups is None:
                    self._finish_setting_back()
                    self._share_groups = open_share_groups(self._directory)
        return self._share_groups

    def share_groups_in_use(self) -> tuple[DescribedShareGroup, ...]:
        """The share groups, once one was asked for: nothing is begun by this."""
        groups = self._share_groups
        return () if groups is None else tuple(map(groups.describe, groups.names()))

    def set_share_groups_back(self, ends: Mapping[TopicPartition, int]) -> None:
        """See :func:`.set_share_groups_back`. What cannot be done now, as on a full disk, is done before
        anything is asked of share groups; until then they raise why."""
        self._ends = ends
        try:
            self._finish_setting_back()
        except LogstoreError as error:
            warn("queues cannot be used yet: they say something of records that a crash took: %s", error)

    def _finish_setting_back(self) -> None:
        """
        Raises:
            LogstoreError: the states cannot be read or written.
        """
        if self._ends is not None:
            set_share_groups_back(self._directory, self._ends)
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
        is closed by its owner."""
        if self._groups is not None:
            self._storage.write_all()
            self._groups.close()
        if self._transactions is not None:
            self._transactions.close()
        try:  # after a clean stop the next opening does not look for it
            self.committed.finish_setting_back()
        except LogstoreError as error:
            warn("committed offsets above the ends of their logs could not be set back: %s", error)
        if self._share_groups is not None:
            self._share_groups.close()
        elif self._ends is not None:  # after a clean stop the next opening does not look for it
            self.set_share_groups_back(self._ends)

    # Records

    @counted(of_partitions)
    def produce(self, request: ProduceRequest) -> Pending[ProduceResult]:
        return produce(self._directory, request, self._let)

    @contextmanager
    def _let(self, producer: TransactionalProducer, partition: TopicPartition) -> Iterator[ErrorCode]:
        try:
            coordinator = self._transaction_coordinator()
        except LogstoreError as error:
            yield code_of(error)
            return
        with coordinator.writing(producer, partition) as code:
            yield code

    @counted(of_partitions)
    def fetch(self, request: FetchRequest) -> Pending[FetchResult]:
        return fetch(self._directory, request)

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
            InitProducerIdResult,
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
        if not has_offsets:
            return Answered(result)
        return Answered(TopicsResult(tuple(map(self._without_offsets, result.topics))))

    def _without_offsets(self, outcome: TopicOutcome) -> TopicOutcome:
        """The offsets that groups have committed for a topic go with it."""
        if outcome.error is ErrorCode.NONE and outcome.name != OFFSETS_TOPIC:
            try:
                self.committed.forget_topic(outcome.name)
            except LogstoreError as error:  # the topic is deleted all the same
                warn("topic %r was deleted, but not its committed offsets: %s", outcome.name, error)
        return outcome

    @counted(of_topics)
    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]:
        return Answered(create_partitions(self._directory, request))

    @counted(of_topics)
    def describe_configs(self, request: DescribeConfigsRequest) -> Pending[DescribeConfigsResult]:
        return Answered(describe_configs(self._directory, request))

    @counted(of_topics)
    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]:
        return Answered(alter_configs(self._directory, request))

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
            lambda code: AddPartitionsResult(dict.fromkeys(request.partitions, code)),
        )

    @counted(of_code)
    def add_offsets_to_transaction(self, request: AddOffsetsToTransaction) -> Pending[ErrorCode]:
        partition = self.committed.partition_for(request.group)
        adds = AddPartitionsToTransaction(request.producer, (partition,))
        return self._ask_transactions(
            lambda transactions, done: transactions.add_partitions(
                adds, lambda result: done(result.errors[partition])
            ),
            lambda code: code,
        )

    @counted(of_result)
    def end_transaction(self, request: EndTransaction) -> Pending[EndTransactionResult]:
        return self._ask_transactions(
            lambda transactions, done: transactions.end(request, done), EndTransactionResult
        )

    @counted(of_none)
    def list_transactions(self, request: ListTransactions) -> Pending[tuple[ListedTransaction, ...]]:
        return self._ask_transactions(
            lambda transactions, done: done(transactions.find(request)), lambda _: ()
        )

    @counted(of_each)
    def describe_transactions(
        self, transactional_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedTransaction, ...]]:
        return self._ask_transactions(
            lambda transactions, done: done(tuple(map(transactions.describe, transactional_ids))),
            lambda code: tuple(DescribedTransaction(code, each) for each in transactional_ids),
        )

    # Groups

    @counted(of_result)
    def offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        if request.transaction is None:
            return self._offset_commit(request)
        partition = self.committed.partition_for(request.group)
        with self._let(request.transaction, partition) as code:
            if code is ErrorCode.NONE:
                return self._offset_commit(request)
        return Answered(OffsetCommitResult(dict.fromkeys(request.offsets, code)))

    def _offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        try:
            code = self._coordinator().check_commit(
                request.group, request.generation, request.member_id, request.instance_id
            )
        except LogstoreError as error:
            return Answered(OffsetCommitResult(dict.fromkeys(request.offsets, code_of(error)), str(error)))
        if code is not ErrorCode.NONE:
            return Answered(OffsetCommitResult(dict.fromkeys(request.offsets, code)))
        return Answered(offset_commit(self._directory, self.committed, request))

    @counted(of_result)
    def offset_fetch(self, request: OffsetFetchRequest) -> Pending[OffsetFetchResult]:
        return Answered(offset_fetch(self.committed, request))

    @counted(of_result)
    def offset_delete(self, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResult]:
        topics = {each.topic for each in request.partitions}
        try:
            coordinator = self._coordinator_of((request.group,))
        except LogstoreError as error:
            return Answered(OffsetDeleteResult(code_of(error), message=str(error)))
        code, refused = coordinator.check_offset_delete(request.group, topics)
        if code is not ErrorCode.NONE:
            return Answered(OffsetDeleteResult(code))
        result = offset_delete(self._directory, self.committed, request, refused)
        is_done = ErrorCode.NONE in result.errors.values()
        if not is_done or refused or self.committed.has_any(request.group):
            return Answered(result)
        promise: Promise[OffsetDeleteResult] = Promise()
        coordinator.delete_groups(
            (request.group,), lambda _: promise.complete(result)
        )  # unless it has members
        return promise

    @counted(of_result)
    def join_group(self, request: JoinGroup) -> Pending[JoinGroupResult]:
        return self._promise(lambda groups, done: groups.join_group(request, done), JoinGroupResult)

    @counted(of_result)
    def sync_group(self, request: SyncGroup) -> Pending[SyncGroupResult]:
        return self._promise(lambda groups, done: groups.sync_group(request, done), SyncGroupResult)

    @counted(of_code)
    def heartbeat(self, request: Heartbeat) -> Pending[ErrorCode]:
        return self._promise(lambda groups, done: groups.heartbeat(request, done), lambda code: code)

    @counted(of_result)
    def leave_group(self, request: LeaveGroup) -> Pending[LeaveGroupResult]:
        return self._promise(lambda groups, done: groups.leave_group(request, done), LeaveGroupResult)

    @counted(of_result)
    def list_groups(self) -> Pending[ListGroupsResult]:
        try:
            coordinator = self._coordinator_of(None)
        except LogstoreError as error:
            return Answered(ListGroupsResult(code_of(error), message=str(error)))
        promise: Promise[ListGroupsResult] = Promise()
        coordinator.list_groups((), lambda found: promise.complete(ListGroupsResult(ErrorCode.NONE, found)))
        return promise

    @counted(of_each)
    def describe_groups(self, group_ids: tuple[str, ...]) -> Pending[tuple[DescribedGroup, ...]]:
        try:
            coordinator = self._coordinator_of(group_ids)
        except LogstoreError as error:
            code, message = code_of(error), str(error)
            return Answered(tuple(DescribedGroup(code, each, "", message=message) for each in group_ids))
        promise: Promise[tuple[DescribedGroup, ...]] = Promise()
        coordinator.describe_groups(group_ids, promise.complete)
        return promise

    @counted(of_codes)
    def delete_groups(self, group_ids: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        return self._promise(
            lambda groups, done: groups.delete_groups(group_ids, done),
            lambda code: dict.fromkeys(group_ids, code),
            group_ids,
        )

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
        refusal: Callable[[ErrorCode], T],
    ) -> Pending[T]:
        """The same of transactions."""
        try:
            coordinator = self._transaction_coordinator()
        except LogstoreError as error:
            return Answered(refusal(code_of(error)))
        promise: Promise[T] = Promise()
        ask(coordinator, promise.complete)
        return promise

    def _promise(
        self,
        ask: Callable[[GroupCoordinator, Callable[[T], object]], None],
        refusal: Callable[[ErrorCode], T],
        with_offsets_of: Collection[str] = (),
    ) -> Pending[T]:
        """What the coordinator answers, or its refusal if the groups cannot be read."""
        try:
            coordinator = self._coordinator_of(with_offsets_of) if with_offsets_of else self._coordinator()
        except LogstoreError as error:
            return Answered(refusal(code_of(error)))
        promise: Promise[T] = Promise()
        ask(coordinator, promise.complete)
        return promise
