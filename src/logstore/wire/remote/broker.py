"""A broker elsewhere: an Apache Kafka cluster, or another process of this package that listens.

Implements the seam (:class:`~logstore.broker.broker.Broker`) over sockets. Each method hands its request
over, and returns at once; one thread brings the answers.

Requests are asked again as long as they may succeed, up to ``request_timeout_ms``: after a leader or a
coordinator has moved, and after a connection broke, if nothing is done twice. Batches are the exception:
their producer sends them again, as only it can keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerGroup,
)
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
from logstore.broker.pending import Answered, Pending
from logstore.broker.quotas.precedence import Client
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    AlterClientQuotasResult,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResult,
)
from logstore.broker.requests import (
    ACKS_NONE,
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
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupOffsets,
    ShareOffsetsQuery,
)
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
from logstore.errors import UsageError
from logstore.model import TopicPartition
from logstore.wire.addresses import Address, parse_address
from logstore.wire.remote.administering import Administering
from logstore.wire.remote.committing import Commit
from logstore.wire.remote.connections.dialing import Tls
from logstore.wire.remote.connections.loop import Loop
from logstore.wire.remote.connections.nodes import Dialer
from logstore.wire.remote.connections.questions import RemotePending
from logstore.wire.remote.connections.settings import RemoteConfig, Sasl
from logstore.wire.remote.fetches.fetching import Fetching
from logstore.wire.remote.keeping import Keeping
from logstore.wire.remote.routing.asking import ask, ask_all, ask_coordinators, pending_of
from logstore.wire.remote.routing.attempt import Target
from logstore.wire.remote.routing.cluster import AnyNode, Cluster, Controller
from logstore.wire.remote.routing.coordinators import Coordinators, Kind
from logstore.wire.remote.routing.split import Split
from logstore.wire.remote.shares.sharing import ShareMembers
from logstore.wire.remote.translate import (
    consumer_groups,
    groups,
    inspecting,
    moving,
    quotas,
    records,
    share_offsets,
    shares,
    topics,
    transactions,
)
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")
R = TypeVar("R")

_THREAD: Final = "logstore-remote"
_FAREWELL_SECONDS: Final = 0.5
CLIENT_ID: Final = "logstore"
"""What a client is called that says no name."""


class RemoteBroker:
    """See :class:`~logstore.broker.broker.Broker`. Connections are made when they are needed. Close it."""

    def __init__(
        self,
        addresses: str | Address | Sequence[str | Address],
        *,
        client_id: str = CLIENT_ID,
        tls: Tls | None = None,
        sasl: Sasl | None = None,
        config: RemoteConfig | None = None,
    ) -> None:
        """
        Args:
            addresses: ``"host:port"`` or the path of a Unix socket; several, of which any may answer. The
                brokers of the cluster tell where they all are.
            client_id: what the program is called: in brokers' logs, in groups, and for quotas.
            tls: how to check the brokers, and what to show them; no TLS by default.
            sasl: who we are; nobody in particular by default.

        Raises:
            UsageError: there is no address, or one is none.
        """
        named = [addresses] if isinstance(addresses, (str, Address)) else list(addresses)
        if not named:
            raise UsageError("no address is given; give 'host:port', such as '127.0.0.1:9092'")
        bootstrap = [parse_address(each) for each in named]
        loop = Loop(_THREAD)
        dialer = Dialer(loop, config or RemoteConfig(), client_id=client_id, tls=tls, sasl=sasl)
        cluster = Cluster(dialer, bootstrap)
        self._begin(cluster, Coordinators(cluster), client_id)

    def _begin(self, cluster: Cluster, coordinators: Coordinators, client_id: str) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._client_id = client_id
        self._fetching = Fetching(cluster, client_id)
        self._sharing = ShareMembers(cluster, coordinators, client_id)
        self._administering = Administering(cluster, client_id)
        self._keeping = Keeping(cluster.dialer.loop, self._beat)

    def as_client(self, client: Client) -> RemoteBroker:
        """The same broker, asked under another client id, and over another connection for batches. Who a user
        is, brokers find out by themselves."""
        view = RemoteBroker.__new__(RemoteBroker)
        view._begin(self._cluster, self._coordinators, client.client_id or self._client_id)
        return view

    def close(self) -> None:
        """Close all connections, also those of :meth:`as_client`. What was said last, such as that a member
        leaves, is given half a second to be answered. All else that waits ends with
        ``BROKER_NOT_AVAILABLE``."""
        self._cluster.wait_until_quiet(_FAREWELL_SECONDS)
        self._cluster.close()
        self._cluster.dialer.loop.close()

    def reach(self) -> Pending[tuple[ErrorCode, str | None]]:
        """Whether a broker answers; and if none does, why."""
        return self._administering.reach()

    @property
    def trouble(self) -> str:
        """Of each broker that is known, why it has not answered."""
        return "; ".join(each.trouble for each in self._cluster.nodes())

    @property
    def broken_count(self) -> int:
        """Grows when a connection to a broker breaks: what answers next may be another process."""
        return self._cluster.dialer.broken_count

    # Records

    def produce(self, request: ProduceRequest) -> Pending[ProduceResult]:
        """Append batches. With ``acks=0`` the offsets are not known."""
        is_answered = request.acks != ACKS_NONE
        split = Split(
            self._cluster,
            records.PRODUCE,
            request,
            client_id=self._client_id,
            is_answered=is_answered,
            owner=self,
        )
        return split.begin()

    def fetch(self, request: FetchRequest) -> Pending[FetchResult]:
        """Read batches. Answered when one of the leaders has some."""
        return self._fetching.fetch(request)

    def list_offsets(self, request: ListOffsetsRequest) -> Pending[ListOffsetsResult]:
        return Split(self._cluster, records.LIST_OFFSETS, request, client_id=self._client_id).begin()

    def offsets_for_leader_epoch(
        self, request: OffsetsForLeaderEpochRequest
    ) -> Pending[OffsetsForLeaderEpochResult]:
        return Split(self._cluster, records.EPOCHS, request, client_id=self._client_id).begin()

    def delete_records(self, request: DeleteRecordsRequest) -> Pending[DeleteRecordsResult]:
        return Split(self._cluster, records.DELETE_RECORDS, request, client_id=self._client_id).begin()

    def init_producer_id(self, request: InitProducerIdRequest) -> Pending[InitProducerIdResult]:
        target: Target = AnyNode(self._cluster)
        if request.transactional_id is not None:
            target = self._coordinators.of(Kind.TRANSACTION, request.transactional_id)
        return self._ask(target, transactions.INIT_PRODUCER_ID, request)

    # Topics

    def metadata(self, request: MetadataRequest) -> Pending[MetadataResult]:
        return self._administering.metadata(request)

    def create_topics(self, request: CreateTopicsRequest) -> Pending[TopicsResult]:
        """Create topics. Answered when a broker knows them, too."""
        return self._administering.create_topics(request)

    def delete_topics(self, request: DeleteTopicsRequest) -> Pending[TopicsResult]:
        """Delete topics. Answered when a broker does not know them any more."""
        return self._administering.delete_topics(request)

    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]:
        """Give topics more partitions. Answered when a broker knows them, too."""
        return self._administering.create_partitions(request)

    def describe_configs(self, request: DescribeConfigsRequest) -> Pending[DescribeConfigsResult]:
        return self._ask(AnyNode(self._cluster), topics.DESCRIBE_CONFIGS, request)

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]:
        return self._ask(Controller(self._cluster), topics.altering(request), request)

    def reassign(self, request: moving.Reassign) -> Pending[moving.Reassigned]:
        """Move partitions to other nodes."""
        return self._ask(Controller(self._cluster), moving.REASSIGN, request)

    def reassignments(self) -> Pending[moving.Reassignments]:
        """The partitions that move."""
        return self._ask(Controller(self._cluster), moving.REASSIGNMENTS, None)

    def describe_log_dirs(self, request: DescribeLogDirsRequest) -> Pending[DescribeLogDirsResult]:
        """How much room partitions take, at all brokers."""
        pending: RemotePending[DescribeLogDirsResult] = RemotePending()
        ask_all(
            self._cluster,
            inspecting.DESCRIBE_LOG_DIRS,
            request,
            self._client_id,
            lambda found: pending.complete(inspecting.joined_sizes(found)),
        )
        return pending

    # Quotas

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest
    ) -> Pending[DescribeClientQuotasResult]:
        return self._ask(AnyNode(self._cluster), quotas.DESCRIBE, request)

    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> Pending[AlterClientQuotasResult]:
        return self._ask(Controller(self._cluster), quotas.ALTER, request)

    # Transactions

    def add_partitions_to_transaction(
        self, request: AddPartitionsToTransaction
    ) -> Pending[AddPartitionsResult]:
        target = self._coordinators.of(Kind.TRANSACTION, request.producer.transactional_id)
        return self._ask(target, transactions.ADD_PARTITIONS, request)

    def add_offsets_to_transaction(self, request: AddOffsetsToTransaction) -> Pending[ErrorCode]:
        target = self._coordinators.of(Kind.TRANSACTION, request.producer.transactional_id)
        return self._ask(target, transactions.ADD_OFFSETS, request)

    def end_transaction(self, request: EndTransaction) -> Pending[EndTransactionResult]:
        target = self._coordinators.of(Kind.TRANSACTION, request.producer.transactional_id)
        return self._ask(target, transactions.ending(request), request)

    def list_transactions(self, request: ListTransactions) -> Pending[ListTransactionsResult]:
        pending: RemotePending[ListTransactionsResult] = RemotePending()

        def done(found: list[ListTransactionsResult]) -> None:
            failed = next((each for each in found if each.error is not ErrorCode.NONE), None)
            every = tuple(sorted(each for part in found for each in part.transactions))
            pending.complete(failed or ListTransactionsResult(ErrorCode.NONE, every))

        ask_all(self._cluster, transactions.LIST_TRANSACTIONS, request, self._client_id, done)
        return pending

    def describe_transactions(
        self, transactional_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedTransaction, ...]]:
        return self._of_coordinators(
            Kind.TRANSACTION, transactions.DESCRIBE_TRANSACTIONS, transactional_ids, _values
        )

    def describe_producers(self, partitions: tuple[TopicPartition, ...]) -> Pending[DescribeProducersResult]:
        asked = inspecting.DescribeProducers(tuple(map(inspecting.OfPartition, partitions)))
        return Split(self._cluster, inspecting.DESCRIBE_PRODUCERS, asked, client_id=self._client_id).begin()

    def write_transaction_markers(
        self, markers: tuple[TransactionMarker, ...]
    ) -> Pending[WriteMarkersResult]:
        parts = [inspecting.MarkOne(each, marker) for marker in markers for each in marker.partitions]
        asked = inspecting.WriteMarkers(tuple(parts))
        return Split(self._cluster, inspecting.WRITE_MARKERS, asked, client_id=self._client_id).begin()

    # Groups

    def offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        if not request.offsets:
            return Answered(OffsetCommitResult({}))
        target = self._coordinators.of(Kind.GROUP, request.group)
        commit = Commit(self._cluster, target, request, self._client_id)
        commit.begin()
        return commit

    def offset_fetch(self, request: OffsetFetchRequest) -> Pending[OffsetFetchResult]:
        return self._ask(self._coordinators.of(Kind.GROUP, request.group), groups.OFFSET_FETCH, request)

    def offset_delete(self, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResult]:
        return self._ask(self._coordinators.of(Kind.GROUP, request.group), groups.OFFSET_DELETE, request)

    def join_group(self, request: JoinGroup) -> Pending[JoinGroupResult]:
        """Join a group. A broker gives a new member an id first; then it is joined with that (KIP-394)."""
        pending: RemotePending[JoinGroupResult] = RemotePending()
        target = self._coordinators.of(Kind.GROUP, request.group_id)
        client_id = request.client_id or self._client_id
        self._keeping.end(request.group_id, request.member_id)

        def join(asked: JoinGroup) -> None:
            asked = Keeping.with_session(asked)
            ask(
                self._cluster,
                target,
                groups.JOIN_GROUP,
                asked,
                client_id,
                lambda result, throttle_ms: done(asked, result, throttle_ms),
            )

        def done(asked: JoinGroup, result: JoinGroupResult, throttle_ms: int) -> None:
            is_new = not asked.member_id and not request.requires_member_id
            if result.error is ErrorCode.MEMBER_ID_REQUIRED and is_new:
                join(request._replace(member_id=result.member_id))
                return
            if result.error is ErrorCode.NONE:
                self._keeping.begin(request, result)
            pending.complete_throttled(result, throttle_ms)

        join(request)
        return pending

    def sync_group(self, request: SyncGroup) -> Pending[SyncGroupResult]:
        target = self._coordinators.of(Kind.GROUP, request.group_id)
        return self._ask(target, groups.syncing(request), request)

    def heartbeat(self, request: Heartbeat) -> Pending[ErrorCode]:
        """A member is alive. Between two of these, signs of life are given for it."""
        self._keeping.note(request.group_id, request.member_id)
        return self._ask(self._coordinators.of(Kind.GROUP, request.group_id), groups.HEARTBEAT, request)

    def _beat(self, beat: Heartbeat, done: Callable[[ErrorCode], object]) -> None:
        target = self._coordinators.of(Kind.GROUP, beat.group_id)
        ask(self._cluster, target, groups.HEARTBEAT, beat, self._client_id, lambda code, _: done(code))

    def leave_group(self, request: LeaveGroup) -> Pending[LeaveGroupResult]:
        for member in request.members:
            self._keeping.end(request.group_id, member.member_id)
        pending: RemotePending[LeaveGroupResult] = RemotePending()

        def done(result: LeaveGroupResult, throttle_ms: int) -> None:
            self._cluster.note_farewells(-1)
            pending.complete_throttled(result, throttle_ms)

        self._cluster.note_farewells(1)
        target = self._coordinators.of(Kind.GROUP, request.group_id)
        ask(self._cluster, target, groups.LEAVE_GROUP, request, self._client_id, done)
        return pending

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat
    ) -> Pending[ConsumerGroupHeartbeatResult]:
        target = self._coordinators.of(Kind.GROUP, request.group_id)
        client_id = request.client_id or self._client_id
        return pending_of(self._cluster, target, consumer_groups.HEARTBEAT, request, client_id)

    def describe_consumer_groups(
        self, group_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedConsumerGroup, ...]]:
        return self._of_coordinators(Kind.GROUP, consumer_groups.DESCRIBE, group_ids, _values)

    def list_groups(self) -> Pending[ListGroupsResult]:
        pending: RemotePending[ListGroupsResult] = RemotePending()
        ask_all(
            self._cluster,
            groups.LIST_GROUPS,
            None,
            self._client_id,
            lambda found: pending.complete(_joined(found)),
        )
        return pending

    def describe_groups(self, group_ids: tuple[str, ...]) -> Pending[tuple[DescribedGroup, ...]]:
        return self._of_coordinators(Kind.GROUP, groups.DESCRIBE_GROUPS, group_ids, _values)

    def delete_groups(self, group_ids: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        return self._of_coordinators(Kind.GROUP, groups.DELETE_GROUPS, group_ids, dict)

    # Share groups

    def share_group_heartbeat(self, request: ShareGroupHeartbeat) -> Pending[ShareGroupHeartbeatResult]:
        return self._sharing.heartbeat(request)

    def share_fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        return self._sharing.fetch(request)

    def share_acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        return self._sharing.acknowledge(request)

    def list_share_groups(self) -> Pending[ListShareGroupsResult]:
        pending: RemotePending[ListShareGroupsResult] = RemotePending()

        def done(found: list[ListGroupsResult]) -> None:
            every = _joined(found)
            names = tuple(sorted(each.group_id for each in every.groups))
            pending.complete(ListShareGroupsResult(every.error, names, every.message))

        ask_all(self._cluster, groups.LIST_SHARE_GROUPS, None, self._client_id, done)
        return pending

    def describe_share_groups(self, names: tuple[str, ...]) -> Pending[tuple[DescribedShareGroup, ...]]:
        """The members of share groups. How far they are, brokers elsewhere do not tell here."""
        return self._of_coordinators(Kind.GROUP, shares.DESCRIBE, names, _values)

    def delete_share_groups(self, names: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        return self._of_coordinators(Kind.GROUP, groups.DELETE_GROUPS, names, dict)

    def share_group_offsets(self, query: ShareOffsetsQuery) -> Pending[ShareGroupOffsets]:
        return self._ask(self._coordinators.of(Kind.GROUP, query.group), share_offsets.DESCRIBE, query)

    def alter_share_group_offsets(self, request: AlterShareOffsets) -> Pending[AlterShareOffsetsResult]:
        return self._ask(self._coordinators.of(Kind.GROUP, request.group), share_offsets.ALTER, request)

    def delete_share_group_offsets(self, request: DeleteShareOffsets) -> Pending[DeleteShareOffsetsResult]:
        return self._ask(self._coordinators.of(Kind.GROUP, request.group), share_offsets.DELETE, request)

    # Asking

    def _ask(self, target: Target, translation: Translation[Q, R], request: Q) -> Pending[R]:
        return pending_of(self._cluster, target, translation, request, self._client_id)

    def _of_coordinators(
        self,
        kind: Kind,
        translation: Translation[tuple[str, ...], dict[str, Q]],
        keys: tuple[str, ...],
        shape: Callable[[dict[str, Q]], R],
    ) -> Pending[R]:
        pending: RemotePending[R] = RemotePending()
        ask_coordinators(
            self._cluster,
            self._coordinators,
            kind,
            translation,
            keys,
            self._client_id,
            lambda found: pending.complete(shape(found)),
        )
        return pending


def _values(found: dict[str, Q]) -> tuple[Q, ...]:
    return tuple(found.values())


def _joined(found: Sequence[ListGroupsResult]) -> ListGroupsResult:
    """What all brokers list; the first error, if one could not be asked."""
    failed = next((each for each in found if each.error is not ErrorCode.NONE), None)
    if failed is not None:
        return ListGroupsResult(failed.error, message=failed.message)
    return ListGroupsResult(ErrorCode.NONE, tuple(sorted(each for part in found for each in part.groups)))
