"""The seam: what producers, consumers and a network listener ask of a broker."""

from __future__ import annotations

from typing import Protocol

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
from logstore.broker.pending import Pending
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
from logstore.model import TopicPartition


class Broker(Protocol):
    """Takes requests from any thread. No call blocks for longer than its work takes, and none raises an error
    of this package: each partition or topic of a result has its own error code.

    Requests of one caller that change the same partition take effect in the order of the calls.
    """

    # Records

    def produce(self, request: ProduceRequest) -> Pending[ProduceResult]:
        """Append batches."""
        ...

    def fetch(self, request: FetchRequest) -> Pending[FetchResult]:
        """Read batches, and wait for some if there are none."""
        ...

    def list_offsets(self, request: ListOffsetsRequest) -> Pending[ListOffsetsResult]:
        """Look up the start, the end, or a time."""
        ...

    def offsets_for_leader_epoch(
        self, request: OffsetsForLeaderEpochRequest
    ) -> Pending[OffsetsForLeaderEpochResult]:
        """Look up where leader epochs ended."""
        ...

    def delete_records(self, request: DeleteRecordsRequest) -> Pending[DeleteRecordsResult]:
        """Delete the beginning of partitions."""
        ...

    def init_producer_id(self, request: InitProducerIdRequest) -> Pending[InitProducerIdResult]:
        """Give a producer its id."""
        ...

    # Topics

    def metadata(self, request: MetadataRequest) -> Pending[MetadataResult]:
        """What topics and partitions there are."""
        ...

    def create_topics(self, request: CreateTopicsRequest) -> Pending[TopicsResult]:
        """Create topics."""
        ...

    def delete_topics(self, request: DeleteTopicsRequest) -> Pending[TopicsResult]:
        """Delete topics with all their records."""
        ...

    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]:
        """Give topics more partitions."""
        ...

    def describe_configs(self, request: DescribeConfigsRequest) -> Pending[DescribeConfigsResult]:
        """The settings of topics, and of the store."""
        ...

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]:
        """Change settings of topics."""
        ...

    def describe_log_dirs(self, request: DescribeLogDirsRequest) -> Pending[DescribeLogDirsResult]:
        """How much room partitions take, and how much there is."""
        ...

    # Quotas

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest
    ) -> Pending[DescribeClientQuotasResult]:
        """The quotas of clients."""
        ...

    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> Pending[AlterClientQuotasResult]:
        """Change quotas, durably."""
        ...

    # Transactions

    def add_partitions_to_transaction(
        self, request: AddPartitionsToTransaction
    ) -> Pending[AddPartitionsResult]:
        """Let a transaction write to partitions. The first ones begin it."""
        ...

    def add_offsets_to_transaction(self, request: AddOffsetsToTransaction) -> Pending[ErrorCode]:
        """Let a transaction commit offsets of a group."""
        ...

    def end_transaction(self, request: EndTransaction) -> Pending[EndTransactionResult]:
        """Commit or abort; answered when readers see the outcome."""
        ...

    def list_transactions(self, request: ListTransactions) -> Pending[ListTransactionsResult]:
        """The transactional ids, and how far their transactions have come."""
        ...

    def describe_transactions(
        self, transactional_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedTransaction, ...]]:
        """All that is known of transactional ids."""
        ...

    def describe_producers(self, partitions: tuple[TopicPartition, ...]) -> Pending[DescribeProducersResult]:
        """The producers that partitions remember."""
        ...

    def write_transaction_markers(
        self, markers: tuple[TransactionMarker, ...]
    ) -> Pending[WriteMarkersResult]:
        """End transactions in partitions, durably, without their coordinator: those that hang."""
        ...

    # Groups

    def offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        """Commit a group's offsets."""
        ...

    def offset_fetch(self, request: OffsetFetchRequest) -> Pending[OffsetFetchResult]:
        """What a group has committed."""
        ...

    def offset_delete(self, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResult]:
        """Delete offsets of a group, except of topics that its members subscribe to. A group without members
        that has none left is deleted, too."""
        ...

    def join_group(self, request: JoinGroup) -> Pending[JoinGroupResult]:
        """Join a group; answered when its next generation begins."""
        ...

    def sync_group(self, request: SyncGroup) -> Pending[SyncGroupResult]:
        """Get the assignment of a generation; answered when its leader has brought it."""
        ...

    def heartbeat(self, request: Heartbeat) -> Pending[ErrorCode]:
        """A member is alive."""
        ...

    def leave_group(self, request: LeaveGroup) -> Pending[LeaveGroupResult]:
        """Members leave."""
        ...

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat
    ) -> Pending[ConsumerGroupHeartbeatResult]:
        """A member of the newer protocol joins, is alive, or leaves (KIP-848)."""
        ...

    def list_groups(self) -> Pending[ListGroupsResult]:
        """All groups of both protocols: those with members, and those with committed offsets."""
        ...

    def describe_groups(self, group_ids: tuple[str, ...]) -> Pending[tuple[DescribedGroup, ...]]:
        """The states and members of groups. Those of the newer protocol are ``Dead`` here."""
        ...

    def describe_consumer_groups(
        self, group_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedConsumerGroup, ...]]:
        """The states and members of groups of the newer protocol. Others are not found."""
        ...

    def delete_groups(self, group_ids: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        """Delete groups without members, with their offsets."""
        ...

    # Share groups

    def share_group_heartbeat(self, request: ShareGroupHeartbeat) -> Pending[ShareGroupHeartbeatResult]:
        """A worker joins, is alive, or leaves."""
        ...

    def share_fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        """Take records that no other worker has, and wait for some if there are none."""
        ...

    def share_acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        """Say what became of records that a worker has taken."""
        ...

    def list_share_groups(self) -> Pending[ListShareGroupsResult]:
        """All share groups."""
        ...

    def describe_share_groups(self, names: tuple[str, ...]) -> Pending[tuple[DescribedShareGroup, ...]]:
        """The members of share groups, and how far they are."""
        ...

    def delete_share_groups(self, names: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        """Delete share groups without members, with what they know of records."""
        ...

    def share_group_offsets(self, query: ShareOffsetsQuery) -> Pending[ShareGroupOffsets]:
        """How far a share group is."""
        ...

    def alter_share_group_offsets(self, request: AlterShareOffsets) -> Pending[AlterShareOffsetsResult]:
        """Set how far a share group without members is."""
        ...

    def delete_share_group_offsets(self, request: DeleteShareOffsets) -> Pending[DeleteShareOffsetsResult]:
        """Forget what a share group without members has done of topics."""
        ...
