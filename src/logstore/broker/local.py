"""The broker of a directory that this process has open: it answers from the logs themselves.

Knows no sockets and no clients. A request is carried out in the thread that makes it; what has to wait is an
entry in the logs that it waits for.
"""

from __future__ import annotations

from logstore.broker.administering import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
)
from logstore.broker.codes import ErrorCode
from logstore.broker.committing import offset_commit, offset_fetch
from logstore.broker.fetching import fetch
from logstore.broker.looking_up import describe_configs, list_offsets, metadata, offsets_for_leader_epoch
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.pending import Answered, Pending
from logstore.broker.producing import produce
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
    OffsetFetchRequest,
    OffsetFetchResult,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResult,
    ProduceRequest,
    ProduceResult,
    TopicsResult,
)
from logstore.logdir.directory import LogDirectory

_PRODUCER_ID_BITS = 62


class LocalBroker:
    """See :class:`~logstore.broker.broker.Broker`."""

    def __init__(self, directory: LogDirectory, committed: CommittedOffsets | None = None) -> None:
        self._directory = directory
        self._committed = committed or CommittedOffsets(directory)

    # Records

    def produce(self, request: ProduceRequest) -> Pending[ProduceResult]:
        return produce(self._directory, request)

    def fetch(self, request: FetchRequest) -> Pending[FetchResult]:
        return fetch(self._directory, request)

    def list_offsets(self, request: ListOffsetsRequest) -> Pending[ListOffsetsResult]:
        return Answered(list_offsets(self._directory, request))

    def offsets_for_leader_epoch(
        self, request: OffsetsForLeaderEpochRequest
    ) -> Pending[OffsetsForLeaderEpochResult]:
        return Answered(offsets_for_leader_epoch(self._directory, request))

    def delete_records(self, request: DeleteRecordsRequest) -> Pending[DeleteRecordsResult]:
        return Answered(delete_records(self._directory, request))

    def init_producer_id(self, request: InitProducerIdRequest) -> Pending[InitProducerIdResult]:
        """The id is drawn at random from 62 bits. Kafka's brokers count theirs up from 0: an id of theirs, in
        a directory that goes from one to the other, is never given a second time here."""
        producer_id = self._directory.context.random.getrandbits(_PRODUCER_ID_BITS)
        return Answered(InitProducerIdResult(ErrorCode.NONE, producer_id, 0))

    # Topics

    def metadata(self, request: MetadataRequest) -> Pending[MetadataResult]:
        return Answered(metadata(self._directory, request))

    def create_topics(self, request: CreateTopicsRequest) -> Pending[TopicsResult]:
        return Answered(create_topics(self._directory, request))

    def delete_topics(self, request: DeleteTopicsRequest) -> Pending[TopicsResult]:
        return Answered(delete_topics(self._directory, request))

    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]:
        return Answered(create_partitions(self._directory, request))

    def describe_configs(self, request: DescribeConfigsRequest) -> Pending[DescribeConfigsResult]:
        return Answered(describe_configs(self._directory, request))

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]:
        return Answered(alter_configs(self._directory, request))

    # Groups

    def offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        return Answered(offset_commit(self._directory, self._committed, request))

    def offset_fetch(self, request: OffsetFetchRequest) -> Pending[OffsetFetchResult]:
        return Answered(offset_fetch(self._committed, request))
