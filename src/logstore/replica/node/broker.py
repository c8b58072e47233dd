"""The broker of a node: the store's own for what the node leads, and a word about who leads the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from logstore.broker.cluster_state import ClusterState
from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Answered, Pending
from logstore.broker.records.fetching import Shelf
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.broker.records.producing import why_not_in_transaction
from logstore.broker.requests import (
    ACKS_ALL,
    ACKS_LEADER,
    NO_EPOCH,
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeletedRecords,
    DeleteRecordsRequest,
    DeleteRecordsResult,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResult,
    DescribedConfig,
    EpochEnd,
    FetchRequest,
    FetchResult,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResult,
    MetadataRequest,
    MetadataResult,
    NewTopic,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResult,
    PartitionMetadata,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    TopicMetadata,
    TopicsResult,
)
from logstore.broker.settings import settings_of
from logstore.broker.transactions.requests import DescribedProducers, DescribeProducersResult
from logstore.errors import LogstoreError
from logstore.format.header import decode_header
from logstore.logdir.directory import LogDirectory
from logstore.logdir.kept import Kept
from logstore.logdir.quotas import Quotas
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import Session, View
from logstore.replica.node.acknowledging import Acknowledgement, Awaited
from logstore.replica.node.admitting import Refused
from logstore.replica.node.arriving import when_so
from logstore.replica.node.assigning import config_of, described
from logstore.replica.node.controller.administering import Administering
from logstore.replica.node.coordinating import GroupTerms
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.peers import Peers
from logstore.replica.node.reading import Places
from logstore.replica.node.replicated import when_deleted
from logstore.replica.node.share_requests import ShareBroker
from logstore.replica.node.telling import ClusterTopicIds, LivingNodes, TopicsOfCluster
from logstore.replica.rules.partition_state import Member, PartitionState
from logstore.wire.handlers.call import ClusterNodes
from logstore.wire.handlers.then import gather, then, then_ask

T = TypeVar("T")
R = TypeVar("R")


class _OfPartition(Protocol):
    @property
    def partition(self) -> TopicPartition: ...


class _One(NamedTuple):
    partition: TopicPartition


W = TypeVar("W", bound=_OfPartition)

_LEADS_NO_MORE = frozenset(
    {ErrorCode.POLICY_VIOLATION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""What the log says if its role has changed since the look at it."""
_NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_SIGNS = 15
"""So often it is heard that a follower still asks, in the time after which it would be late."""
_WHY_NOT = "this node does not lead the partition"
_HAS_NONE = "this node has no replica of the partition"


class Changing(Protocol):
    """Changes topics of the cluster."""

    def create_topics(self, request: CreateTopicsRequest) -> Pending[TopicsResult]: ...

    def delete_topics(self, request: DeleteTopicsRequest) -> Pending[TopicsResult]: ...

    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]: ...

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]: ...


class NodeBroker(ShareBroker):
    """See :class:`~logstore.broker.broker.Broker`."""

    def __init__(
        self,
        directory: LogDirectory,
        node_id: int,
        replicas: Mapping[TopicPartition, PartitionReplica],
        view: Callable[[], View],
        changing: Changing,
        is_coming: Callable[[str], bool | None],
        peers: Peers,
        session: Callable[[], Session | None],
        was_deleted: Callable[[UUID], bool],
        administering: Administering,
        *,
        read_from_followers: bool,
        lag_ms: int,
    ) -> None:
        """``is_coming``: whether there is a topic of which this node has not heard yet; None if nobody can
        say. ``lag_ms``: after which time without a fetch a follower leaves the in-sync replicas."""
        super().__init__(directory, node_id, replicas, view, is_coming, peers, session, was_deleted)
        self._groups.leave()  # each term has its own
        self.topics = ClusterTopicIds(view)  # type: ignore[assignment]  # it has the same methods
        places = Places(node_id, replicas, view, self._why_not_here, names_followers=read_from_followers)
        self._shelf = Shelf(directory, places.look)
        self._replicas = replicas
        self._lag_ms = lag_ms
        self._session = session
        self._changing = changing
        self._cluster = LivingNodes(
            view,
            administering,
            lambda name: changing.create_topics(CreateTopicsRequest((NewTopic(name),))),
        )
        self.terms = GroupTerms(
            directory,
            replicas,
            self.use_groups,
            TopicsOfCluster(view),
            lambda group: view().groups.get(group, {}),
        )

    @property
    def follower_sign_seconds(self) -> float:
        """How often it wants to hear of a follower that asks for the same again."""
        return self._lag_ms / 1000 / _SIGNS

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def cluster(self) -> ClusterNodes:  # type: ignore[override]
        return self._cluster

    @property
    def kept_quotas(self) -> Kept[Quotas]:
        """Where the quotas of clients are kept."""
        return self._quotas.kept

    def look(self) -> None:
        """Coordinate what this node has begun to lead, and no more what others lead now."""
        self.terms.look()
        self.transaction_terms.look()
        self.look_at_shares()

    def close(self) -> None:
        self.terms.close()
        self.transaction_terms.close()
        self.close_shares()

    def cluster_state(self) -> ClusterState:
        view = self._view()
        standings = [replica.standing() for replica in list(self._replicas.values())]
        led = [each for each in standings if each is not None]
        lags: dict[int, int] = {}
        for standing in led:
            for node_id, lag in standing.lags.items():
                lags[node_id] = max(lags.get(node_id, 0), lag)
        return ClusterState(
            len(view.living),
            self._cluster.controller_id() == self._node_id,
            sum(state.leader is None for state in view.partitions.values()),
            len(led),
            sum(not each.is_whole for each in led),
            sum(not each.has_enough for each in led),
            lags,
        )

    # Records

    def produce(self, request: ProduceRequest) -> Pending[ProduceResult]:
        return self._admit_and_append(request, waits=True)

    def _admit_and_append(self, request: ProduceRequest, *, waits: bool) -> Pending[ProduceResult]:
        """``waits``: whether for what this node is about to lead."""
        asked = self._admit_batches(request)
        if asked is None:
            return self._append(request, {}, waits=waits)
        return then_ask(asked, lambda refused: self._append(request, refused, waits=waits))

    def _append(self, request: ProduceRequest, refused: Refused, *, waits: bool) -> Pending[ProduceResult]:
        by_all = request.acks == ACKS_ALL
        outcomes: list[ProducedPartition] = []
        taken: list[tuple[int, PartitionReplica, ProducePartition]] = []
        for number, each in enumerate(request.partitions):
            replica = self._replicas.get(each.partition)
            if replica is not None:
                code, epoch = replica.check_produce(by_all=by_all)
            else:
                code, epoch = self._why_not_here(each.partition), NO_EPOCH
            if code is NONE:
                code = refused.get(each.partition, NONE)
            outcomes.append(ProducedPartition(each.partition, code, message=_why(code)))
            if replica is not None and code is NONE:
                taken.append((number, replica, each._replace(leader_epoch=epoch)))
        if waits and len(taken) < len(outcomes):
            refused_here = [
                each.partition for each in outcomes if each.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            ]
            are_led = self._when_led(refused_here)
            if are_led is not None:
                return then_ask(are_led, lambda _: self._admit_and_append(request, waits=False))
        if not taken:
            return Answered(ProduceResult(tuple(outcomes)))
        passed = request._replace(
            partitions=tuple([each for _, _, each in taken]), acks=ACKS_LEADER if by_all else request.acks
        )
        appended = LocalBroker.produce(self, passed).poll()
        assert appended is not None  # it waits only for all
        awaited = []
        for (number, replica, each), outcome in zip(taken, appended.partitions, strict=True):
            outcomes[number] = outcome
            if outcome.error in _LEADS_NO_MORE:
                outcomes[number] = ProducedPartition(
                    each.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, message=_WHY_NOT
                )
            if outcome.error is NONE or outcome.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                awaited.append(Awaited(number, replica, _end_of(each, outcome, replica), each.leader_epoch))
        if not by_all or not awaited:
            for one in awaited:
                one.replica.on_growth()
            return Answered(ProduceResult(tuple(outcomes)))
        scheduler = self._directory.context.scheduler
        return Acknowledgement(scheduler, outcomes, awaited, request.timeout_ms).promise

    def _when_led(self, refused: Iterable[TopicPartition]) -> Pending[bool] | None:
        """When this node has begun to lead those of which the coordinator has said that it does; None if
        there are none that it has yet to begin with."""
        session, states = self._session(), self._view().partitions
        if session is None or not session.has_lease:
            return None
        soon = [each for each in refused if self._is_chosen(states.get(each)) and self.refuses(each)]
        if not soon:
            return None
        return when_so(
            lambda: all(self.refuses(each) is NONE for each in soon), self._directory.context.scheduler
        )

    def _once_led(self, asked: Iterable[TopicPartition], answer: Callable[[], T]) -> Pending[T]:
        """The answer, when this node leads those that it is about to lead."""
        are_led = self._when_led(asked)
        return Answered(answer()) if are_led is None else then(are_led, lambda _: answer())

    def _is_chosen(self, state: PartitionState | None) -> bool:
        return state is not None and state.leader is not None and state.leader.node_id == self._node_id

    def fetch(self, request: FetchRequest) -> Pending[FetchResult]:
        if request.replica is not None:
            follower = Member(*request.replica)
            for each in request.partitions:
                replica = self._replicas.get(each.partition)
                if replica is not None:
                    replica.on_fetch(follower, each)
        return super().fetch(request)

    def refuses(self, partition: TopicPartition) -> ErrorCode:
        replica = self._replicas.get(partition)
        if replica is None:
            return self._why_not_here(partition)
        return NONE if replica.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _why_not_here(self, partition: TopicPartition) -> ErrorCode:
        is_known = partition in self._view().partitions
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _of_led(
        self,
        wanted: tuple[W, ...],
        ask: Callable[[tuple[W, ...]], tuple[R, ...]],
        refused: Callable[[TopicPartition, ErrorCode], R],
    ) -> tuple[R, ...]:
        """What the store says of the partitions that are led here, and a refusal of the others, in order."""
        codes = [self.refuses(each.partition) for each in wanted]
        led = tuple(each for each, code in zip(wanted, codes, strict=True) if code is NONE)
        found = iter(ask(led) if led else ())
        return tuple(
            next(found) if code is NONE else refused(each.partition, code)
            for each, code in zip(wanted, codes, strict=True)
        )

    def list_offsets(self, request: ListOffsetsRequest) -> Pending[ListOffsetsResult]:
        """Of what this node is about to lead, as for :meth:`metadata`: another node has named it."""
        asked = (each.partition for each in request.partitions)
        return self._once_led(asked, lambda: self._list_led(request))

    def _list_led(self, request: ListOffsetsRequest) -> ListOffsetsResult:
        ask = super().list_offsets
        found = self._of_led(
            request.partitions,
            lambda led: _now(ask(request._replace(partitions=led))).partitions,
            lambda partition, code: ListedOffset(partition, code, message=_WHY_NOT),
        )
        return ListOffsetsResult(found)

    def offsets_for_leader_epoch(
        self, request: OffsetsForLeaderEpochRequest
    ) -> Pending[OffsetsForLeaderEpochResult]:
        ask = super().offsets_for_leader_epoch
        found = self._of_led(
            request.partitions,
            lambda led: _now(ask(request._replace(partitions=led))).partitions,
            lambda partition, code: EpochEnd(partition, code, message=_WHY_NOT),
        )
        return Answered(OffsetsForLeaderEpochResult(found))

    def describe_producers(self, partitions: tuple[TopicPartition, ...]) -> Pending[DescribeProducersResult]:
        """A follower is asked, too: for what hangs there (``kafka-transactions.sh find-hanging``)."""
        held = tuple([each for each in partitions if each in self._replicas])
        found = iter(_now(super().describe_producers(held)).partitions)
        return Answered(
            DescribeProducersResult(
                tuple(
                    next(found)
                    if each in self._replicas
                    else DescribedProducers(each, self._why_not_here(each), message=_HAS_NONE)
                    for each in partitions
                )
            )
        )

    def delete_records(self, request: DeleteRecordsRequest) -> Pending[DeleteRecordsResult]:
        ask = super().delete_records
        found = self._of_led(
            request.partitions,
            lambda led: _now(ask(request._replace(partitions=led))).partitions,
            lambda partition, code: DeletedRecords(partition, code, message=_WHY_NOT),
        )
        return then(gather([self._deleted_by_all(each) for each in found]), DeleteRecordsResult)

    def _deleted_by_all(self, deleted: DeletedRecords) -> Pending[DeletedRecords]:
        """As Kafka: a record that was deleted does not come back with another leader."""
        replica = self._replicas.get(deleted.partition)
        if deleted.error is not NONE or replica is None:
            return Answered(deleted)
        done = when_deleted(replica, deleted.log_start_offset, self._directory.context.scheduler)
        return then(done, lambda code: deleted if code is NONE else _not_by_all(deleted, code))

    # Topics

    def metadata(self, request: MetadataRequest) -> Pending[MetadataResult]:
        """Of topics that are named it waits for those that this node is about to lead: who hears of a leader
        asks it at once, and not all clients ask again when they are refused."""
        names = frozenset(request.topics or ())
        asked = (TopicPartition(*each) for each in self._view().partitions if each[0] in names)
        return self._once_led(asked if names else (), lambda: self._metadata(request))

    def _metadata(self, request: MetadataRequest) -> MetadataResult:
        view = self._view()
        names = sorted(view.topics) if request.topics is None else request.topics
        parts: dict[str, list[tuple[int, PartitionState]]] = {name: [] for name in names}
        for (name, number), state in view.partitions.items():
            if name in parts:
                parts[name].append((number, state))
        topics = tuple(
            _topic(view, name, parts[name])
            if name in view.topics or not self._is_coming(name)
            else TopicMetadata(name, ErrorCode.LEADER_NOT_AVAILABLE)
            for name in names
        )
        return MetadataResult(self.cluster_id, topics)

    def describe_configs(self, request: DescribeConfigsRequest) -> Pending[DescribeConfigsResult]:
        """Those of the cluster's topics, whether they are here or elsewhere."""
        store = _now(super().describe_configs(request._replace(names=())))
        found = tuple(
            self._described(name, with_documentation=request.with_documentation) for name in request.names
        )
        return Answered(DescribeConfigsResult(found, store.store))

    def _described(self, name: str, *, with_documentation: bool) -> DescribedConfig:
        topic = self._view().topics.get(name)
        if topic is None:
            code = ErrorCode.LEADER_NOT_AVAILABLE if self._is_coming(name) else _NO_TOPIC
            return DescribedConfig(name, code, message=f"topic {name!r} is not known here")
        try:
            config = config_of(self._directory, topic)
        except LogstoreError as error:
            return DescribedConfig(name, code_of(error), message=str(error))
        new = self._directory.config.topic
        settings = settings_of(config, with_documentation=with_documentation, for_new_topics=new)
        return DescribedConfig(name, NONE, described(topic.config, settings))

    def create_topics(self, request: CreateTopicsRequest) -> Pending[TopicsResult]:
        return self._changing.create_topics(request)

    def delete_topics(self, request: DeleteTopicsRequest) -> Pending[TopicsResult]:
        return self._changing.delete_topics(request)

    def create_partitions(self, request: CreatePartitionsRequest) -> Pending[TopicsResult]:
        return self._changing.create_partitions(request)

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[TopicsResult]:
        return self._changing.alter_configs(request)


def _not_by_all(deleted: DeletedRecords, code: ErrorCode) -> DeletedRecords:
    why = "the records are deleted at the leader, and not by all in-sync replicas in time: delete them again"
    return deleted._replace(error=code, message=why)


def _now(pending: Pending[T]) -> T:
    """Of what is answered at once."""
    result = pending.poll()
    assert result is not None
    return result


def _why(code: ErrorCode) -> str | None:
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return "fewer replicas are in sync than min.insync.replicas; nothing was appended"
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return _WHY_NOT
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "there is no such partition"
    return None if code is NONE else why_not_in_transaction(code)


def _end_of(wanted: ProducePartition, outcome: ProducedPartition, replica: PartitionReplica) -> int:
    """Behind the batch. Of one that was there already, the end of the log."""
    if outcome.error is NONE and outcome.base_offset >= 0:
        return outcome.base_offset + decode_header(wanted.data).last_offset_delta + 1
    return replica.log.log_end_offset


def _topic(view: View, name: str, parts: Iterable[tuple[int, PartitionState]]) -> TopicMetadata:
    topic = view.topics.get(name)
    if topic is None:
        return TopicMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = dict(parts)
    partitions = tuple(
        _partition(view, number, known[number]) if number in known else _unknown(number)
        for number in range(max(known, default=-1) + 1)
    )
    return TopicMetadata(name, NONE, topic.topic_id, name in INTERNAL_TOPICS, partitions)


def _unknown(number: int) -> PartitionMetadata:
    """Of a partition of which the coordinator's text is damaged. Without it clients would count one fewer:
    keys would go elsewhere."""
    return PartitionMetadata(number, ErrorCode.LEADER_NOT_AVAILABLE, -1, NO_EPOCH, (), ())


def _partition(view: View, number: int, state: PartitionState) -> PartitionMetadata:
    leader = state.leader
    has_leader = leader is not None and leader.node_id in view.living
    return PartitionMetadata(
        number,
        NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        leader.node_id if leader is not None and has_leader else -1,
        state.leader_epoch,
        state.replicas,
        tuple(each.node_id for each in state.isr),
        tuple(each.node_id for each in state.eligible),
    )
