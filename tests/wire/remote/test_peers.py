"""A broker elsewhere that misbehaves: each request ends, with the right answer if one can be had.

Costs 4 s together.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from dataclasses import replace

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
)
from logstore.broker.pending import wait_for
from logstore.broker.quotas.precedence import Client
from logstore.broker.requests import (
    ACKS_LEADER,
    ACKS_NONE,
    LATEST,
    FetchPartition,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.model import TopicPartition
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.headers import encode_response
from logstore.wire.messages.cluster import api_versions
from logstore.wire.messages.groups import find_coordinator, heartbeat, join_group, leave_group
from logstore.wire.messages.records import fetch, list_offsets, produce
from logstore.wire.remote.broker import RemoteBroker
from logstore.wire.remote.connections.settings import RemoteConfig
from tests.broker.rig import T0, T1, batch_of
from tests.replica.node.cluster import eventually
from tests.wire.remote.peers import HASTY, Peer, Silence, framed, tell_of

SECONDS = 10
WHERE = ListOffsetsRequest((ListOffsetsPartition(T0, LATEST), ListOffsetsPartition(T1, LATEST)))


@pytest.fixture
def peer():
    with Peer() as made:
        tell_of([made], {"t": [0, 0]})
        made.answers[ApiKey.LIST_OFFSETS] = listed
        yield made


@pytest.fixture
def broker(peer):
    made = RemoteBroker(peer.address, config=HASTY)
    yield made
    made.close()


def listed(request, version):
    """Partition n ends at 100 + n."""
    topics = tuple(
        list_offsets.TopicResult(
            topic.name,
            tuple(
                list_offsets.PartitionResult(each.partition, 0, -1, 100 + each.partition)
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return list_offsets.ListOffsetsResponse(0, topics)


def ends(broker):
    result = wait_for(broker.list_offsets(WHERE), SECONDS)
    assert result is not None, "no answer comes"
    return [(each.error, each.offset) for each in result.partitions]


GOOD = [(ErrorCode.NONE, 100), (ErrorCode.NONE, 101)]


class TestBytes:
    def test_a_connection_breaks_after_each_byte_of_an_answer(self, peer, broker):
        """The request is repeated over the next connection."""
        assert ends(broker) == GOOD
        cuts, seen = iter(range(60)), []

        def chop(data):
            cut = next(cuts, None)
            if cut is None or cut >= len(data):
                return [data]
            seen.append(cut)
            return [data[:cut]]

        peer.chop = chop
        while len(seen) < 40:
            assert ends(broker) == GOOD
        assert seen == list(range(len(seen)))

    def test_an_answer_comes_byte_by_byte(self, peer, broker):
        peer.chop = lambda data: [data[at : at + 1] for at in range(len(data))]
        assert ends(broker) == GOOD

    @pytest.mark.parametrize("seed", range(20))
    def test_garbage_ends_the_request(self, peer, broker, seed):
        """Any bytes: in the frame's size, in the header, in the message. The next answer is right."""
        chance = random.Random(seed)
        assert ends(broker) == GOOD
        left = [3]

        def spoil(data):
            if not left[0]:
                return [data]
            left[0] -= 1
            spoiled = bytearray(data)
            for _ in range(chance.randint(1, 8)):
                spoiled[chance.randrange(4, len(data))] = chance.randrange(256)
            if chance.random() < 0.5:
                spoiled[:4] = chance.randbytes(4)
            return [bytes(spoiled), b""] if len(spoiled) == len(data) else [bytes(spoiled)]

        peer.chop = spoil
        quick = RemoteBroker(
            peer.address,
            config=RemoteConfig(request_timeout_ms=200, retry_backoff_ms=1, reconnect_backoff_ms=1),
        )
        try:
            for _ in range(4):
                found = wait_for(quick.list_offsets(WHERE), SECONDS)
                assert found is not None
                assert [each.partition for each in found.partitions] == [T0, T1]
            left[0] = 0
            deadline = time.monotonic() + SECONDS
            while ends(quick) != GOOD:
                assert time.monotonic() < deadline
        finally:
            quick.close()

    def test_a_size_that_is_too_large_takes_no_memory(self, peer, broker):
        assert ends(broker) == GOOD
        sizes = iter([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
        peer.answers[ApiKey.LIST_OFFSETS] = lambda request, version: (
            next(sizes, None) or listed(request, version)
        )
        assert ends(broker) == GOOD

    def test_a_size_that_is_not_allowed_behind_an_answer(self, peer, broker):
        """The answer counts, and the next request goes over another connection."""
        assert ends(broker) == GOOD
        before, connection_count = peer.count(ApiKey.LIST_OFFSETS), peer.connection_count
        wrong = iter([b"\xff\xff\xff\xff"])
        peer.chop = lambda data: [data + next(wrong, b"")]
        assert ends(broker) == GOOD
        assert peer.count(ApiKey.LIST_OFFSETS) == before + 1
        assert ends(broker) == GOOD
        assert peer.count(ApiKey.LIST_OFFSETS) == before + 2
        assert peer.connection_count == connection_count + 1

    def test_the_answer_to_another_request(self, peer, broker):
        wrong = iter([7_777])
        peer.answers[ApiKey.LIST_OFFSETS] = lambda request, version: (
            framed(
                encode_response(listed(request, version), ApiKey.LIST_OFFSETS, version, correlation_id=number)
            )
            if (number := next(wrong, None))
            else listed(request, version)
        )
        assert ends(broker) == GOOD
        assert peer.count(ApiKey.LIST_OFFSETS) == 2

    def test_requests_go_out_before_the_answers_come(self, peer, broker):
        """Ten on one connection: nothing waits for an answer to be sent."""
        assert ends(broker) == GOOD
        before = peer.connection_count
        gate = threading.Event()

        def wait(request, version):
            gate.wait(SECONDS)
            return listed(request, version)

        peer.answers[ApiKey.LIST_OFFSETS] = wait
        pendings = [broker.list_offsets(WHERE) for _ in range(10)]
        assert [each.poll() for each in pendings] == [None] * 10
        gate.set()
        assert all(wait_for(each, SECONDS).partitions[1].offset == 101 for each in pendings)
        assert peer.connection_count == before

    def test_a_large_batch_goes_out_as_it_is(self, peer, broker):
        """8 MB, more than a socket takes at once."""
        data = batch_of([bytes(8 * 2**20)], 0)
        arrived = []

        def take(request, version):
            arrived.append(bytes(request.topics[0].partitions[0].records))
            return produce.ProduceResponse(
                (produce.TopicResult("t", partitions=(produce.PartitionResult(0, 0, 5),)),)
            )

        peer.answers[ApiKey.PRODUCE] = take
        pending = broker.produce(ProduceRequest(ACKS_LEADER, 1000, (ProducePartition(T0, data),)))
        assert wait_for(pending, SECONDS).partitions[0].base_offset == 5
        assert arrived == [data]

    def test_the_batches_of_one_client_do_not_wait_for_those_of_another(self, peer, broker):
        """A broker answers the requests of a connection in turn. Those of one client stay on one."""
        gate = threading.Event()

        def answer(request, version):
            if request.transactional_id == "slow":
                gate.wait(SECONDS)
            return produce.ProduceResponse(
                (produce.TopicResult("t", partitions=(produce.PartitionResult(0, 0, 5),)),)
            )

        peer.answers[ApiKey.PRODUCE] = answer
        batch = ProducePartition(T0, batch_of([b"a"], 0))
        one, other = broker.as_client(Client(client_id="one")), broker.as_client(Client(client_id="other"))
        slow = [one.produce(ProduceRequest(ACKS_LEADER, 1000, (batch,), name)) for name in ("slow", None)]
        for _ in range(3):
            fast = other.produce(ProduceRequest(ACKS_LEADER, 1000, (batch,)))
            assert wait_for(fast, SECONDS).partitions[0].base_offset == 5
        assert [each.poll() for each in slow] == [None, None]
        gate.set()
        assert all(wait_for(each, SECONDS).partitions[0].base_offset == 5 for each in slow)
        before = peer.connection_count
        del one
        gc.collect()
        third = broker.as_client(Client(client_id="third"))
        assert wait_for(third.produce(ProduceRequest(ACKS_LEADER, 1000, (batch,))), SECONDS)
        deadline = time.monotonic() + SECONDS
        while peer.open_count > before:  # the one of the client that is gone is closed
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def test_acks_none_waits_for_nothing(self, peer, broker):
        peer.answers[ApiKey.PRODUCE] = lambda request, version: Silence()
        request = ProduceRequest(ACKS_NONE, 1000, (ProducePartition(T0, batch_of([b"a"], 0)),))
        assert wait_for(broker.produce(request), SECONDS).partitions[0].error is ErrorCode.NONE
        assert ends(broker) == GOOD


class TestBeginning:
    def test_an_older_broker_names_the_versions_of_apiversions(self, peer, broker):
        def answer(request, version):
            served = api_versions.ServedApi
            if version > 2:
                old = api_versions.ApiVersionsResponse(35, (served(ApiKey.API_VERSIONS, 0, 2),))
                return framed(encode_response(old, ApiKey.API_VERSIONS, 0, correlation_id=-1))
            apis = tuple(served(key, api.first, api.first) for key, api in APIS.items())
            found = api_versions.ApiVersionsResponse(0, apis)
            return found._replace(apis=(*apis[:3], served(ApiKey.METADATA, 0, 5), *apis[4:]))

        peer.answers[ApiKey.API_VERSIONS] = answer
        assert ends(broker) == GOOD
        versions = {key: version for key, version, _ in peer.asked}
        assert (versions[ApiKey.API_VERSIONS], versions[ApiKey.METADATA]) == (2, 5)
        assert versions[ApiKey.LIST_OFFSETS] == APIS[ApiKey.LIST_OFFSETS].first

    def test_a_request_that_the_broker_does_not_serve(self, peer, broker):
        known = api_versions.ServedApi(ApiKey.METADATA, 0, 12), api_versions.ServedApi(ApiKey.FETCH, 0, 3)
        peer.answers[ApiKey.API_VERSIONS] = lambda request, version: api_versions.ApiVersionsResponse(
            0, known
        )
        assert ends(broker) == [(ErrorCode.UNSUPPORTED_VERSION, -1)] * 2
        request = FetchRequest((FetchPartition(T0, 0),), max_wait_ms=0)
        (found,) = wait_for(broker.fetch(request), SECONDS).partitions
        assert found.error is ErrorCode.UNSUPPORTED_VERSION
        assert "Fetch in versions 0 to 3" in found.message

    def test_no_broker_listens(self):
        with Peer() as gone:
            address = gone.address
        config = RemoteConfig(request_timeout_ms=500, retry_backoff_ms=1, reconnect_backoff_ms=1)
        broker = RemoteBroker(address, config=config)
        result = wait_for(broker.list_offsets(WHERE), SECONDS)
        broker.close()
        assert {each.error for each in result.partitions} == {ErrorCode.BROKER_NOT_AVAILABLE}
        assert "connection is refused" in result.partitions[0].message

    def test_one_of_several_addresses_is_enough(self, peer):
        with Peer() as gone:
            address = gone.address
        broker = RemoteBroker([address, "127.0.0.1:1", peer.address], config=HASTY)
        assert ends(broker) == GOOD
        broker.close()

    def test_after_it_is_closed(self, peer):
        before = threading.active_count()
        broker = RemoteBroker(peer.address, config=HASTY)
        assert ends(broker) == GOOD
        peer.answers[ApiKey.LIST_OFFSETS] = lambda request, version: Silence()
        pending = broker.list_offsets(WHERE)
        broker.close()
        found = wait_for(pending, SECONDS)
        assert {each.error for each in found.partitions} <= {
            ErrorCode.BROKER_NOT_AVAILABLE,
            ErrorCode.NETWORK_EXCEPTION,
        }
        deadline = time.monotonic() + SECONDS
        while threading.active_count() > before + 1:  # the peer's own goes when it sees the end
            assert time.monotonic() < deadline
            time.sleep(0.01)


class TestCodes:
    def test_a_code_that_is_not_known(self, peer, broker):
        peer.answers[ApiKey.LIST_OFFSETS] = lambda request, version: list_offsets.ListOffsetsResponse(
            0, (list_offsets.TopicResult("t", (list_offsets.PartitionResult(0, 9_999),)),)
        )
        first, second = wait_for(broker.list_offsets(WHERE), SECONDS).partitions
        assert first.error is second.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "9999" in first.message
        assert "left the partition out" in second.message

    def test_no_answer_in_time(self, peer):
        """The request whose time is over, and those behind it."""
        config = RemoteConfig(request_timeout_ms=150, retry_backoff_ms=1, reconnect_backoff_ms=1)
        broker = RemoteBroker(peer.address, config=config)
        data = batch_of([b"a"], 0)
        assert ends(broker) == GOOD
        peer.answers[ApiKey.PRODUCE] = lambda request, version: Silence()
        requests = [
            ProduceRequest(ACKS_LEADER, wait_ms, (ProducePartition(T0, data),)) for wait_ms in (0, 900)
        ]
        pendings = [broker.produce(each) for each in requests]
        found = [wait_for(each, SECONDS) for each in pendings]
        broker.close()
        assert [each.partitions[0].error for each in found] == [
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NETWORK_EXCEPTION,
        ]

    def test_how_long_to_ask_for_nothing(self, peer, broker):
        peer.answers[ApiKey.PRODUCE] = lambda request, version: produce.ProduceResponse(
            (produce.TopicResult("t", partitions=(produce.PartitionResult(0),)),), throttle_time_ms=321
        )
        request = ProduceRequest(ACKS_LEADER, 1000, (ProducePartition(T0, batch_of([b"a"], 0)),))
        pending = broker.produce(request)
        wait_for(pending, SECONDS)
        assert pending.throttle_time_ms == 321


class TestWhere:
    """Leaders and coordinators that move."""

    @pytest.fixture
    def two(self):
        with Peer(1) as one, Peer(2) as other:
            tell_of([one, other], {"t": [1, 2]})
            for each in (one, other):
                each.answers[ApiKey.LIST_OFFSETS] = listed
            yield one, other

    @pytest.fixture
    def cluster(self, two):
        broker = RemoteBroker(two[0].address, config=HASTY)
        yield broker
        broker.close()

    def test_each_leader_is_asked_for_its_own(self, two, cluster):
        assert ends(cluster) == GOOD
        for number, peer in enumerate(two):
            ((*_, request),) = [each for each in peer.asked if each[0] is ApiKey.LIST_OFFSETS]
            assert [each.partition for each in request.topics[0].partitions] == [number]

    def test_a_leader_that_has_moved(self, two, cluster):
        assert ends(cluster) == GOOD
        one, other = two

        def refuse(request, version):
            tell_of(two, {"t": [2, 2]})
            found = list_offsets.PartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return list_offsets.ListOffsetsResponse(0, (list_offsets.TopicResult("t", (found,)),))

        one.answers[ApiKey.LIST_OFFSETS] = refuse
        assert ends(cluster) == GOOD
        assert other.count(ApiKey.LIST_OFFSETS) == 3

    def test_a_leader_that_dies(self, two, cluster):
        assert ends(cluster) == GOOD
        one, other = two
        tell_of([other], {"t": [2, 2]})
        one.close()
        assert ends(cluster) == GOOD

    def test_a_batch_for_a_leader_that_has_moved_is_its_producers_to_send_again(self, two, cluster):
        one, other = two
        moved = produce.PartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        there = produce.PartitionResult(0, 0, 3)
        for peer, result in ((one, moved), (other, there)):
            peer.answers[ApiKey.PRODUCE] = lambda request, version, result=result: produce.ProduceResponse(
                (produce.TopicResult("t", partitions=(result,)),)
            )
        request = ProduceRequest(ACKS_LEADER, 1000, (ProducePartition(T0, batch_of([b"a"], 0)),))
        (first,) = wait_for(cluster.produce(request), SECONDS).partitions
        assert first.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        tell_of(two, {"t": [2, 2]})
        (second,) = wait_for(cluster.produce(request), SECONDS).partitions
        assert second[1:3] == (ErrorCode.NONE, 3)

    def test_a_topic_that_its_leader_does_not_know_yet_is_asked_for_again(self, two, cluster):
        one, _ = two
        codes = iter([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3)
        one.answers[ApiKey.LIST_OFFSETS] = lambda request, version: (
            listed(request, version)
            if (code := next(codes, None)) is None
            else list_offsets.ListOffsetsResponse(
                0, (list_offsets.TopicResult("t", (list_offsets.PartitionResult(0, code),)),)
            )
        )
        assert ends(cluster) == GOOD
        nowhere = TopicPartition("nowhere", 0)
        request = ListOffsetsRequest((ListOffsetsPartition(nowhere, LATEST),))
        (found,) = wait_for(cluster.list_offsets(request), SECONDS).partitions
        assert found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_coordinator_that_has_moved(self, two, cluster):
        one, other = two
        where = iter([one, one, other])

        def find(request, version):
            peer = next(where, other)
            named = find_coordinator.Coordinator("g", peer.node_id, "127.0.0.1", peer.port)
            return find_coordinator.FindCoordinatorResponse(coordinators=(named,))

        codes = {one: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] + [ErrorCode.NOT_COORDINATOR] * 2, other: [0]}
        for peer in two:
            peer.answers[ApiKey.FIND_COORDINATOR] = find
            peer.answers[ApiKey.HEARTBEAT] = lambda request, version, peer=peer: heartbeat.HeartbeatResponse(
                0, codes[peer].pop(0)
            )
        assert wait_for(cluster.heartbeat(Heartbeat("g", 1, "m")), SECONDS) is ErrorCode.NONE
        assert (one.count(ApiKey.HEARTBEAT), other.count(ApiKey.HEARTBEAT)) == (3, 1)

    def test_one_that_hangs_is_left_alone_while_another_answers(self, two):
        one, other = two
        tell_of(two, {"t": [1, 1]})
        other.answers[ApiKey.API_VERSIONS] = lambda request, version: Silence()
        broker = RemoteBroker(one.address, config=replace(HASTY, socket_connection_setup_timeout_ms=50))
        for _ in range(8):
            assert wait_for(broker.metadata(MetadataRequest(("t",))), SECONDS).topics
            time.sleep(0.005)  # longer than the back-off: a connection may be made
        broker.close()
        assert other.connection_count == 1

    def test_a_broker_that_is_new_is_found(self, two, cluster):
        found = wait_for(cluster.metadata(MetadataRequest(("t",))), SECONDS)
        assert [each.leader_id for each in found.topics[0].partitions] == [1, 2]


class TestFetch:
    """Long polls at two leaders."""

    @pytest.fixture
    def two(self):
        with Peer(1) as one, Peer(2) as other:
            tell_of([one, other], {"t": [1, 2]})
            yield one, other

    @pytest.fixture
    def cluster(self, two):
        broker = RemoteBroker(two[0].address, config=HASTY)
        yield broker
        broker.close()

    @staticmethod
    def fetched(request, data=b"", code=0):
        """The one partition that is asked for."""
        (topic,) = request.topics
        (wanted,) = topic.partitions
        result = fetch.PartitionResult(wanted.partition, code, 10, 10, 0, records=data)
        return fetch.FetchResponse(topics=(fetch.TopicResult(topic.name, topic.topic_id, (result,)),))

    def test_one_that_has_some_ends_the_wait_and_the_other_is_not_asked_twice(self, two, cluster):
        one, other = two
        data, gate = batch_of([b"a"], 0), threading.Event()
        one.answers[ApiKey.FETCH] = lambda request, version: self.fetched(request, data)

        def wait(request, version):
            gate.wait(SECONDS)
            return self.fetched(request, data)

        other.answers[ApiKey.FETCH] = wait
        both = FetchRequest((FetchPartition(T0, 0), FetchPartition(T1, 0)), max_wait_ms=4_000)
        first, second = wait_for(cluster.fetch(both), SECONDS).partitions
        assert (bytes(first.data), first.next_offset) == (data, 1)
        assert (bytes(second.data), second.error, second.next_offset) == (b"", ErrorCode.NONE, 0)
        one.answers[ApiKey.FETCH] = lambda request, version: Silence()
        moved = both._replace(partitions=(FetchPartition(T0, 1), FetchPartition(T1, 0)))
        pending = cluster.fetch(moved)
        gate.set()
        first, second = wait_for(pending, SECONDS).partitions
        assert (bytes(first.data), bytes(second.data)) == (b"", data)
        assert other.count(ApiKey.FETCH) == 1

    def test_what_came_for_none_is_given_to_the_next(self, two, cluster):
        _, other = two
        data = batch_of([b"a"], 0)
        gate, sent = threading.Event(), threading.Event()

        def wait(request, version):
            sent.set()
            gate.wait(SECONDS)
            return self.fetched(request, data)

        other.answers[ApiKey.FETCH] = wait
        request = FetchRequest((FetchPartition(T1, 0),), max_wait_ms=4_000)
        cluster.fetch(request).poll()
        dropped = cluster.fetch(request._replace(max_bytes=5))
        dropped.cancel()
        assert sent.wait(SECONDS)
        gate.set()
        (found,) = wait_for(cluster.fetch(request._replace(max_wait_ms=0)), SECONDS).partitions
        assert bytes(found.data) == data

    def test_an_answer_without_records_is_asked_for_again_until_the_time_is_over(self, two, cluster):
        one, _ = two
        one.answers[ApiKey.FETCH] = lambda request, version: (
            time.sleep(request.max_wait_ms / 4_000) or self.fetched(request)
        )
        request = FetchRequest((FetchPartition(T0, 7),), max_wait_ms=200)

        def asks_again():
            """Not if the first answer takes all of the time."""
            started, before = time.monotonic(), one.count(ApiKey.FETCH)
            (found,) = wait_for(cluster.fetch(request), SECONDS).partitions
            assert (found.error, bytes(found.data), found.next_offset) == (ErrorCode.NONE, b"", 7)
            assert time.monotonic() - started >= 0.2
            return one.count(ApiKey.FETCH) - before > 1

        eventually(asks_again)

    def test_an_error_that_stays_is_told_and_one_that_goes_away_is_not(self, two, cluster):
        one, other = two
        codes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
        data = batch_of([b"a"], 0)
        one.answers[ApiKey.FETCH] = lambda request, version: (
            self.fetched(request, data)
            if (code := next(codes, None)) is None
            else self.fetched(request, b"", code)
        )
        other.answers[ApiKey.FETCH] = lambda request, version: self.fetched(
            request, b"", ErrorCode.OFFSET_OUT_OF_RANGE
        )
        (found,) = wait_for(cluster.fetch(FetchRequest((FetchPartition(T0, 0),))), SECONDS).partitions
        assert bytes(found.data) == data
        (found,) = wait_for(cluster.fetch(FetchRequest((FetchPartition(T1, 99),))), SECONDS).partitions
        assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(self, two, cluster):
        one, _ = two
        whole, cut = batch_of([b"a", b"b"], 0), batch_of([b"c"], 0)
        one.answers[ApiKey.FETCH] = lambda request, version: self.fetched(request, whole + cut[:-1])
        (found,) = wait_for(cluster.fetch(FetchRequest((FetchPartition(T0, 0),))), SECONDS).partitions
        assert (bytes(found.data), found.next_offset) == (whole, 2)


class TestMembers:
    @pytest.fixture
    def coordinator(self, peer):
        def find(request, version):
            named = find_coordinator.Coordinator("g", peer.node_id, "127.0.0.1", peer.port)
            return find_coordinator.FindCoordinatorResponse(coordinators=(named,))

        def join(request, version):
            if not request.member_id:
                return join_group.JoinGroupResponse(0, ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
            return join_group.JoinGroupResponse(0, 0, 3, "consumer", "range", "m", member_id="m")

        peer.answers[ApiKey.FIND_COORDINATOR] = find
        peer.answers[ApiKey.JOIN_GROUP] = join
        peer.answers[ApiKey.LEAVE_GROUP] = lambda request, version: leave_group.LeaveGroupResponse()
        peer.answers[ApiKey.HEARTBEAT] = lambda request, version: heartbeat.HeartbeatResponse()
        return peer

    @staticmethod
    def joined(broker, session_ms, patience_ms):
        request = JoinGroup("g", "consumer", (GroupProtocol("range", b""),), session_ms, patience_ms)
        return wait_for(broker.join_group(request), SECONDS)

    def test_a_new_member_is_given_an_id(self, coordinator, broker):
        result = self.joined(broker, 60_000, 600_000)
        assert (result.error, result.member_id, result.generation) == (ErrorCode.NONE, "m", 3)
        joins = [request for key, _, request in coordinator.asked if key is ApiKey.JOIN_GROUP]
        assert [each.member_id for each in joins] == ["", "m"]
        assert {(each.session_timeout_ms, each.rebalance_timeout_ms) for each in joins} == {(45_000, 600_000)}

    def test_a_coordinator_that_wants_ids_without_end(self, coordinator, broker):
        coordinator.answers[ApiKey.JOIN_GROUP] = lambda request, version: join_group.JoinGroupResponse(
            0, ErrorCode.MEMBER_ID_REQUIRED, member_id="m"
        )
        assert self.joined(broker, 1, 1).error is ErrorCode.MEMBER_ID_REQUIRED
        assert coordinator.count(ApiKey.JOIN_GROUP) == 2

    def test_signs_of_life_are_given_while_the_client_may_be_silent(self, coordinator, broker):
        """And no longer: then its partitions go to others. 0.6 s."""
        self.joined(broker, 60, 300)
        time.sleep(0.6)
        count = coordinator.count(ApiKey.HEARTBEAT)
        assert 3 <= count <= 16
        time.sleep(0.1)
        assert coordinator.count(ApiKey.HEARTBEAT) == count

    def test_none_after_it_has_left(self, coordinator, broker):
        self.joined(broker, 30, 60_000)
        while not coordinator.count(ApiKey.HEARTBEAT):
            time.sleep(0.005)
        wait_for(broker.leave_group(LeaveGroup("g", (LeavingMember("m"),))), SECONDS)
        count = coordinator.count(ApiKey.HEARTBEAT)
        time.sleep(0.1)
        assert coordinator.count(ApiKey.HEARTBEAT) == count

    def test_none_for_one_that_is_not_known_any_more(self, coordinator, broker):
        coordinator.answers[ApiKey.HEARTBEAT] = lambda request, version: heartbeat.HeartbeatResponse(
            0, ErrorCode.UNKNOWN_MEMBER_ID
        )
        self.joined(broker, 30, 60_000)
        while not coordinator.count(ApiKey.HEARTBEAT):
            time.sleep(0.005)
        time.sleep(0.1)
        assert coordinator.count(ApiKey.HEARTBEAT) == 1
