"""Any answer that can be read at all: each request of the seam ends, with a result of the right shape.

Costs 6 s: answers that ask for patience get 60 ms of it.
"""

from __future__ import annotations

import random

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from logstore.broker.pending import wait_for
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
)
from logstore.broker.requests import (
    ACKS_LEADER,
    EARLIEST,
    AlterConfigsRequest,
    ConfigChange,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    EpochPartition,
    FetchPartition,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    MorePartitions,
    NewTopic,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetsForLeaderEpochRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    JOINING,
    AcknowledgeBatch,
    AcknowledgePartition,
    AlterShareOffsets,
    DeleteShareOffsets,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeat,
    ShareOffsetsQuery,
    TopicIdPartition,
)
from logstore.broker.transactions.requests import (
    AddOffsetsToTransaction,
    AddPartitionsToTransaction,
    EndTransaction,
    ListTransactions,
    TransactionalProducer,
)
from logstore.model import OffsetAndMetadata
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.groups.find_coordinator import Coordinator, FindCoordinatorResponse
from logstore.wire.remote.broker import RemoteBroker
from logstore.wire.remote.connections.settings import RemoteConfig
from tests.broker.rig import T0, T1, batch_of
from tests.wire.drawn import Case, Chance
from tests.wire.remote.peers import Peer, tell_of, topic_id_of

SECONDS = 10
BRIEF = RemoteConfig(
    request_timeout_ms=60, retry_backoff_ms=10, reconnect_backoff_ms=1, reconnect_backoff_max_ms=2
)
BOTH = (T0, T1)
SHARED = tuple(TopicIdPartition(each, topic_id_of("t")) for each in BOTH)
ACCEPTED = (AcknowledgeBatch(0, 1, Acknowledgement.ACCEPT),)
ME = TransactionalProducer("shop", 7, 0)


REQUESTS = [
    (
        "produce",
        ProduceRequest(ACKS_LEADER, 0, tuple(ProducePartition(p, batch_of([b"a"], 0)) for p in BOTH)),
    ),
    ("fetch", FetchRequest(tuple(FetchPartition(p, 0) for p in BOTH), max_wait_ms=0)),
    ("list_offsets", ListOffsetsRequest(tuple(ListOffsetsPartition(p, EARLIEST) for p in BOTH))),
    ("offsets_for_leader_epoch", OffsetsForLeaderEpochRequest(tuple(EpochPartition(p, 0) for p in BOTH))),
    ("delete_records", DeleteRecordsRequest(tuple(DeleteRecordsPartition(p, 1) for p in BOTH))),
    ("init_producer_id", InitProducerIdRequest()),
    ("create_topics", CreateTopicsRequest((NewTopic("a"), NewTopic("t")), validate_only=True)),
    ("delete_topics", DeleteTopicsRequest(("a", "b"))),
    ("create_partitions", CreatePartitionsRequest((MorePartitions("t", 3),), validate_only=True)),
    ("describe_configs", DescribeConfigsRequest(("t", "u"))),
    ("alter_configs", AlterConfigsRequest((ConfigChange("t", {"retention.ms": None}),))),
    ("describe_client_quotas", DescribeClientQuotasRequest()),
    ("alter_client_quotas", AlterClientQuotasRequest((QuotaAlteration({"user": "a"}, (("b", 1.0),)),))),
    ("add_partitions_to_transaction", AddPartitionsToTransaction(ME, BOTH)),
    ("add_offsets_to_transaction", AddOffsetsToTransaction(ME, "g")),
    ("end_transaction", EndTransaction(ME, True, True)),
    ("list_transactions", ListTransactions()),
    ("describe_transactions", ("shop", "other")),
    ("offset_commit", OffsetCommitRequest("g", dict.fromkeys(BOTH, OffsetAndMetadata(1)))),
    ("offset_commit", OffsetCommitRequest("g", dict.fromkeys(BOTH, OffsetAndMetadata(1)), transaction=ME)),
    ("offset_fetch", OffsetFetchRequest("g")),
    ("offset_delete", OffsetDeleteRequest("g", BOTH)),
    ("join_group", JoinGroup("g", "consumer", (GroupProtocol("range", b""),), 60, 0)),
    ("sync_group", SyncGroup("g", 1, "m")),
    ("heartbeat", Heartbeat("g", 1, "m")),
    ("leave_group", LeaveGroup("g", (LeavingMember("m"),))),
    ("list_groups", None),
    ("describe_groups", ("g", "h")),
    ("delete_groups", ("g", "h")),
    ("share_group_heartbeat", ShareGroupHeartbeat("g", "m", 3, ("t",))),
    ("share_fetch", ShareFetchRequest("g", "m", SHARED, max_wait_ms=0)),
    (
        "share_fetch",
        ShareFetchRequest(
            "g",
            "m",
            SHARED,
            max_wait_ms=0,
            acknowledgements=tuple(AcknowledgePartition(each, ACCEPTED) for each in SHARED),
        ),
    ),
    (
        "share_acknowledge",
        ShareAcknowledgeRequest("g", "m", (AcknowledgePartition(SHARED[0], ACCEPTED),)),
    ),
    ("list_share_groups", None),
    ("describe_share_groups", ("g", "h")),
    ("delete_share_groups", ("g", "h")),
    ("share_group_offsets", ShareOffsetsQuery("g")),
    ("share_group_offsets", ShareOffsetsQuery("g", BOTH)),
    ("alter_share_group_offsets", AlterShareOffsets("g", tuple((each, 0) for each in BOTH))),
    ("delete_share_group_offsets", DeleteShareOffsets("g", ("t", "u"))),
]
WANTED = {
    "produce": list(BOTH),
    "fetch": list(BOTH),
    "list_offsets": list(BOTH),
    "offsets_for_leader_epoch": list(BOTH),
    "delete_records": list(BOTH),
    "create_topics": ["a", "t"],
    "delete_topics": ["a", "b"],
    "create_partitions": ["t"],
    "describe_configs": ["t", "u"],
    "alter_configs": ["t"],
}
"""What the results are about, in this order."""


def about(result):
    if hasattr(result, "topics"):
        return [each.name for each in result.topics]
    return [each.partition for each in result.partitions]


@pytest.fixture
def peer():
    with Peer() as made:
        tell_of([made], {"t": [0, 0]})

        def find(request, version):
            named = (Coordinator(key, made.node_id, "127.0.0.1", made.port) for key in request.keys)
            return FindCoordinatorResponse(coordinators=tuple(named))

        made.answers[ApiKey.FIND_COORDINATOR] = find
        yield made


@pytest.fixture
def broker(peer):
    made = RemoteBroker(peer.address, config=BRIEF)
    yield made
    made.close()


def drawn(chance, key):
    def answer(request, version):
        return Chance(chance).message(Case(key, APIS[key].response, version))

    return answer


def ask(broker, name, request):
    method = getattr(broker, name)
    result = wait_for(method() if request is None else method(request), SECONDS)
    assert result is not None, name
    return result


@pytest.mark.parametrize(("name", "request_"), REQUESTS, ids=[name for name, _ in REQUESTS])
def test_any_answer_to_a_request(peer, broker, name, request_):
    """Of the partitions or topics that were asked for there is one result each, in order."""
    broker_knows = set(peer.answers)
    for seed in range(12):
        chance = random.Random(seed)
        for key in APIS:
            if key not in broker_knows:
                peer.answers[key] = drawn(chance, key)
        if name.startswith("share_") and seed % 2:
            ask(broker, "share_group_heartbeat", ShareGroupHeartbeat("g", "m", JOINING, ("t",)))
        result = ask(broker, name, request_)
        assert name not in WANTED or about(result) == WANTED[name]


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.API_VERSIONS])
def test_any_answer_about_where_to_ask(peer, key):
    """Brokers that are nowhere, names that are none, versions below 0."""
    good = peer.answers[key]
    for seed in range(25):
        peer.answers[key] = drawn(random.Random(seed), key)
        broker = RemoteBroker(peer.address, config=BRIEF)
        ask(broker, "metadata", MetadataRequest(("t",)))
        ask(broker, "list_offsets", ListOffsetsRequest((ListOffsetsPartition(T0, EARLIEST),)))
        assert isinstance(ask(broker, "heartbeat", Heartbeat("g", 1, "m")), ErrorCode)
        broker.close()
    peer.answers[key] = good
