"""Connections: what arrives, in any pieces, is answered in order, or closes that connection alone."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import struct
import threading
import time

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.errors import InvalidConfigError, ReadOnlyError, StorageError, UsageError
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.headers import decode_response
from logstore.wire.listener import answering
from logstore.wire.listener.intercepting import Refuse
from logstore.wire.messages.cluster import describe_topic_partitions
from logstore.wire.messages.cluster.api_versions import ApiVersionsRequest
from logstore.wire.messages.cluster.metadata import MetadataRequest, TopicWanted
from logstore.wire.messages.groups import join_group, leave_group, offset_commit
from logstore.wire.messages.records import fetch, list_offsets, produce
from tests.rotation import seed_of_turn
from tests.wire.raw_client import RawClient, frame_of

LIST_OFFSETS = 7
FETCH = 11


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def metadata_of(*names):
    return MetadataRequest(tuple(TopicWanted(name=each) for each in names))


def fetch_from(offset, *, topic="t", max_wait_ms=0, min_bytes=1, **fields):
    partition = fetch.Partition(0, fetch_offset=offset, max_bytes=1 << 20)
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=(fetch.Topic(topic, partitions=(partition,)),),
        **fields,
    )


def batch_of(store, *values):
    """A batch as a producer makes it."""
    with logstore.open(store.path + "-batches") as other:
        log = other.require_topic("made")[0]
        start = log.log_end_offset
        log.extend(values)
        return bytes(log.fetch(start).data)


def produce_to(topic, data, acks=1):
    part = produce.Partition(0, data)
    return produce.ProduceRequest(
        acks=acks, timeout_ms=1000, topics=(produce.Topic(topic, partitions=(part,)),)
    )


def join(member_id=""):
    protocols = (join_group.Protocol("range", b""),)
    return join_group.JoinGroupRequest("g", 60_000, 60_000, member_id, None, "consumer", protocols)


def test_the_bytes_of_requests_may_come_in_any_pieces(listener, store):
    """The same requests cut at random places get the same answers, in their order."""
    chance = random.Random(seed_of_turn())
    store.create_topic("t")[0].extend([b"a", b"b"])
    requests = [
        frame_of(metadata_of("t"), ApiKey.METADATA, 12, correlation_id=1),
        frame_of(fetch_from(0), ApiKey.FETCH, FETCH, correlation_id=2),
        frame_of(ApiVersionsRequest("x", "1"), ApiKey.API_VERSIONS, 3, correlation_id=3),
        frame_of(fetch_from(1), ApiKey.FETCH, 12, correlation_id=4),
    ]
    everything = b"".join(requests)
    seen = set()
    for turn in range(20):
        with RawClient(listener.address) as client:
            cuts = sorted(chance.sample(range(len(everything)), 5)) if turn else []
            for start, stop in zip([0, *cuts], [*cuts, len(everything)], strict=True):
                client.socket.sendall(everything[start:stop])
                if chance.random() < 0.5:
                    time.sleep(0.001)
            seen.add(tuple(client.receive_frame() for _ in requests))
    assert len(seen) == 1
    assert [struct.unpack(">i", each[:4])[0] for each in seen.pop()] == [1, 2, 3, 4]


def test_what_is_produced_is_fetched(client, store):
    store.create_topic("t")
    data = batch_of(store, b"one", b"two")
    for version in range(APIS[ApiKey.PRODUCE].first, 13):
        answer = client.ask(ApiKey.PRODUCE, produce_to("t", data), version)
        (part,) = answer.topics[0].partitions
        assert part.error_code == ErrorCode.NONE
        assert part.base_offset == 2 * (version - 3)
    for version in range(APIS[ApiKey.FETCH].first, 13):
        (part,) = client.ask(ApiKey.FETCH, fetch_from(4), version).topics[0].partitions
        assert bytes(part.records)[61:] == store["t"][0].fetch(4).data[61:]
        assert part.high_watermark == 20


def test_topics_are_named_by_ids_in_the_newest_versions(client, store):
    topic_id = store.create_topic("t").topic_id
    data = batch_of(store, b"one")
    part = produce.Partition(0, data)
    asked = produce.ProduceRequest(
        acks=-1, timeout_ms=1000, topics=(produce.Topic(topic_id=topic_id, partitions=(part,)),)
    )
    assert client.ask(ApiKey.PRODUCE, asked, 13).topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = fetch.Partition(0, max_bytes=1000)
    request = fetch.FetchRequest(topics=(fetch.Topic(topic_id=topic_id, partitions=(wanted,)),))
    answer = client.ask(ApiKey.FETCH, request, 17)
    assert answer.topics[0].topic_id == topic_id
    assert answer.topics[0].partitions[0].records
    store.delete_topic("t")
    answer = client.ask(ApiKey.FETCH, request, 17)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    answer = client.ask(ApiKey.PRODUCE, asked, 13)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_acks_0_has_no_answer_and_a_refusal_closes(listener, store):
    store.create_topic("t")
    data = batch_of(store, b"one")
    with RawClient(listener.address) as client:
        client.send(ApiKey.PRODUCE, produce_to("t", data, acks=0), 9)
        assert client.ask(ApiKey.METADATA, metadata_of("t"), 12).topics[0].error_code == 0
        assert store["t"][0].log_end_offset == 1
        client.send(ApiKey.PRODUCE, produce_to("nothing", data, acks=0), 9)
        assert client.is_hung_up()


def test_acks_0_has_no_answer_either_where_a_test_refuses_it(store):
    store.create_topic("t")
    with (
        store.listen("127.0.0.1:0", intercept=lambda _: Refuse("NOT_LEADER_OR_FOLLOWER")) as listener,
        RawClient(listener.address) as client,
    ):
        client.send(ApiKey.PRODUCE, produce_to("t", batch_of(store, b"one"), acks=0), 9)
        assert client.is_hung_up()
    assert store["t"][0].log_end_offset == 0


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest(client):
    frame = bytearray(frame_of(ApiVersionsRequest("x", "1"), ApiKey.API_VERSIONS, 4, correlation_id=7))
    frame[6:8] = struct.pack(">h", 99)
    client.socket.sendall(frame)
    answer = decode_response(client.receive_frame(), ApiKey.API_VERSIONS, 0, correlation_id=7)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {each.api_key for each in answer.apis} == set(APIS)
    assert client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("x", "1"), 4).error_code == ErrorCode.NONE


def test_produce_is_said_to_begin_with_version_0(client):
    """Else librdkafka 2.0 sends gzip, snappy and LZ4 uncompressed."""
    answer = client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0)
    (found,) = [each for each in answer.apis if each.api_key == ApiKey.PRODUCE]
    assert found.min_version == 0


def test_bytes_after_a_request_are_passed_over(client, store):
    """librdkafka asks for all topics with three bytes too many."""
    frame = frame_of(MetadataRequest(None), ApiKey.METADATA, 9)
    size = struct.pack(">i", len(frame) - 4 + 3)
    client.socket.sendall(size + frame[4:] + bytes(3))
    client.last_id = 1
    assert client.receive(ApiKey.METADATA, 9).topics == ()


HOSTILE = {
    "unknown key": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1),
    "old version": struct.pack(">ihhih", 10, ApiKey.FETCH, 0, 1, -1),
    "negative size": struct.pack(">i", -5),
    "large size": struct.pack(">i", 2**31 - 1),
    "short header": struct.pack(">ihh", 4, 3, 0),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("160301020001000001fc0303") + bytes(100),
    "huge array": struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 2**31 - 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_close_that_connection_alone(listener, name):
    with RawClient(listener.address) as other, RawClient(listener.address) as client:
        assert other.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
        client.socket.sendall(HOSTILE[name])
        assert client.is_hung_up()
        assert other.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0


def test_garbage_never_ends_the_listener(listener, store):
    """Half of the requests are valid ones with bytes changed. 1 s."""
    chance = random.Random(seed_of_turn())
    store.create_topic("t")[0].extend([b"a"])
    valid = [
        frame_of(metadata_of("t"), ApiKey.METADATA, 12),
        frame_of(fetch_from(0), ApiKey.FETCH, 12),
        frame_of(list_offsets.ListOffsetsRequest(-1, 0, ()), ApiKey.LIST_OFFSETS, LIST_OFFSETS),
        frame_of(produce_to("t", batch_of(store, b"x")), ApiKey.PRODUCE, 9),
    ]
    with RawClient(listener.address) as other:
        for _ in range(150):
            data = bytearray(chance.choice(valid) if chance.random() < 0.5 else chance.randbytes(60))
            for _ in range(chance.randrange(4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with RawClient(listener.address) as client:
                client.socket.sendall(data)
                if chance.random() < 0.5:
                    client.socket.shutdown(socket.SHUT_WR)
            if chance.random() < 0.2:
                assert other.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
        wait_until(lambda: listener.connection_count == 1)


def test_long_polls_take_no_thread_and_see_the_next_record(listener, store):
    log = store.create_topic("t")[0]
    clients = [RawClient(listener.address) for _ in range(200)]
    for each in clients:
        each.send(ApiKey.FETCH, fetch_from(0, max_wait_ms=20_000), FETCH)
    wait_until(lambda: listener.connection_count == 200)
    time.sleep(0.1)
    mine = [each for each in threading.enumerate() if each.name.endswith(listener.address)]
    assert len(mine) <= 1 + 32
    log.extend([b"news"])
    for each in clients:
        assert each.receive(ApiKey.FETCH, FETCH).topics[0].partitions[0].records
        each.close()


def test_a_client_that_hangs_up_in_a_long_poll_is_forgotten(listener, store):
    store.create_topic("t")
    with RawClient(listener.address) as client:
        client.send(ApiKey.FETCH, fetch_from(0, max_wait_ms=60_000), FETCH)
        wait_until(lambda: listener.connection_count == 1)
        time.sleep(0.05)
    wait_until(lambda: listener.connection_count == 0)


def test_what_a_client_sent_behind_a_long_poll_counts_when_it_hangs_up(listener, store):
    """Kafka reads it, too, when it has answered the poll."""
    store.create_topic("t")
    commit = offset_commit.OffsetCommitRequest(
        "g", topics=(offset_commit.Topic("t", partitions=(offset_commit.Partition(0, 7),)),)
    )
    with RawClient(listener.address) as client:
        client.send(ApiKey.FETCH, fetch_from(0, max_wait_ms=60_000), FETCH)
        client.send(ApiKey.FETCH, fetch_from(0, max_wait_ms=60_000), FETCH)
        client.send(ApiKey.OFFSET_COMMIT, commit, 8)
    groups = store.groups()
    wait_until(lambda: "g" in groups and [each.offset for each in groups["g"].offsets.values()] == [7])
    wait_until(lambda: listener.connection_count == 0)


def test_a_request_without_memory_for_it_closes_its_connection_and_says_what_limits_them(
    listener, store, monkeypatch, caplog
):
    def fail(*_):
        raise MemoryError

    store.create_topic("t")
    with RawClient(listener.address) as client, RawClient(listener.address) as other:
        assert client.ask(ApiKey.METADATA, metadata_of("t"), 12).topics[0].error_code == 0
        with monkeypatch.context() as patch:
            patch.setattr(answering, "answer", fail)
            client.send(ApiKey.METADATA, metadata_of("t"), 12)
            assert client.is_hung_up()
        assert other.ask(ApiKey.METADATA, metadata_of("t"), 12).topics[0].error_code == 0
    (said,) = [each.getMessage() for each in caplog.records if "memory" in each.getMessage()]
    assert said.startswith("the connection of 127.0.0.1 is closed: no memory is left for its request")


def test_a_consumer_that_closes_in_a_rebalance_leaves_its_group(listener, store):
    """It says so behind its JoinGroup, which waits. Without that its group waits for it for a session."""
    store.create_topic("t")
    with RawClient(listener.address) as first, RawClient(listener.address) as second:
        for client in (first, second):
            member_id = client.ask(ApiKey.JOIN_GROUP, join(), 5).member_id
            client.send(ApiKey.JOIN_GROUP, join(member_id), 5)
            if client is first:
                client.receive(ApiKey.JOIN_GROUP, 5)
        wait_until(lambda: len(store.groups()["g"].members) == 2)
        second.send(ApiKey.LEAVE_GROUP, leave_group.LeaveGroupRequest("g", member_id), 2)
        second.close()
        wait_until(lambda: len(store.groups()["g"].members) == 1)


def test_a_client_that_comes_while_the_listener_closes_is_not_forgotten(listener):
    listener.close()
    ours, theirs = socket.socketpair()
    with theirs:
        listener._welcome(ours, ("127.0.0.1", 1))
        assert ours.fileno() == -1
        assert listener.connection_count == 0


def test_a_poll_without_news_ends_in_time(client, store):
    store.create_topic("t")
    began = time.monotonic()
    (part,) = client.ask(ApiKey.FETCH, fetch_from(0, max_wait_ms=200), FETCH).topics[0].partitions
    assert not part.records
    assert 0.19 < time.monotonic() - began < 5


def test_a_slow_request_and_an_idle_client_are_closed(store):
    store.create_topic("t")
    with store.listen(socket_step_timeout_ms=300) as listener, RawClient(listener.address) as slow:
        slow.socket.sendall(frame_of(metadata_of("t"), ApiKey.METADATA, 12)[:-2])
        assert slow.is_hung_up()
    with store.listen(connections_max_idle_ms=300) as listener, RawClient(listener.address) as idle:
        assert idle.ask(ApiKey.METADATA, metadata_of("t"), 12).topics[0].error_code == 0
        assert idle.is_hung_up()


def test_a_client_that_takes_no_answers_is_closed_and_costs_the_others_nothing(store):
    log = store.create_topic("t")[0]
    log.extend([bytes(100_000)] * 100)
    with (
        store.listen(socket_step_timeout_ms=400) as listener,
        RawClient(listener.address) as client,
        RawClient(listener.address) as other,
    ):
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(50):
            client.send(ApiKey.FETCH, fetch_from(0), FETCH)
        for _ in range(20):
            began = time.monotonic()
            assert other.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
            assert time.monotonic() - began < 5
        wait_until(lambda: listener.connection_count == 1)


def test_clients_that_take_no_answers_share_the_memory_for_records(store, tmp_path):
    """Each asks for 8 MiB. What is left goes to the reader beside them, in small pieces. Through a Unix
    socket: of those the system itself holds little."""
    most_bytes = 4 << 20
    log = store.create_topic("t")[0]
    log.extend([bytes(100_000)] * 80)
    part = fetch.Partition(0, fetch_offset=0, max_bytes=8 << 20)
    much = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, topics=(fetch.Topic("t", partitions=(part,)),)
    )
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(store.listen(str(tmp_path / "s"), fetch_memory_bytes=most_bytes))
        lent = listener._node.answer_memory
        deaf = [stack.enter_context(RawClient(listener.address)) for _ in range(10)]
        for client in deaf:
            client.send(ApiKey.FETCH, much, FETCH)
        wait_until(lambda: lent.lent_bytes > most_bytes // 2)
        with (
            stack.enter_context(logstore.connect(listener.address)) as remote,
            remote.consumer("t") as reader,
        ):
            assert len(list(reader.drain())) == 80
        assert lent.lent_bytes <= most_bytes + len(deaf) * (512 << 10)
        for client in deaf:
            client.close()
        wait_until(lambda: lent.lent_bytes == 0)


def test_too_many_clients_are_turned_away(store):
    with (
        store.listen(max_connections=2) as listener,
        RawClient(listener.address) as first,
        RawClient(listener.address) as second,
    ):
        for each in (first, second):
            assert each.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
        with RawClient(listener.address) as third:
            assert third.is_hung_up()
        first.close()
        wait_until(lambda: listener.connection_count == 1)
        with RawClient(listener.address) as third:
            assert third.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0


def test_the_log_hears_once_a_minute_of_clients_that_are_not_let_in(store, caplog, monkeypatch):
    """Nobody fills the disk with that."""
    with store.listen(max_connections=1) as listener, RawClient(listener.address):
        wait_until(lambda: listener.connection_count == 1)
        for _ in range(3):
            with RawClient(listener.address) as another:
                assert another.is_hung_up()
        tries = []
        with monkeypatch.context() as patched:

            def accept(self):
                tries.append(1)
                raise OSError(errno.EMFILE, "Too many open files")

            patched.setattr(socket.socket, "accept", accept)
            waits = socket.create_connection(listener.address.rsplit(":", 1))
            wait_until(lambda: len(tries) > 3)
        waits.close()
    assert [each.getMessage() for each in caplog.records] == [
        "a client is turned away: 1 are connected (max_connections)",
        "a client could not be let in: [Errno 24] Too many open files",
    ]


def test_a_request_larger_than_allowed_closes(store):
    with store.listen(socket_request_max_bytes=2000) as listener, RawClient(listener.address) as client:
        client.socket.sendall(frame_of(metadata_of("t" * 3000), ApiKey.METADATA, 12))
        assert client.is_hung_up()


@pytest.mark.parametrize("size", [2_001, -1])
def test_what_is_in_front_of_what_cannot_be_read_is_answered(store, size):
    """Also if all came at once: Kafka reads nothing of it before."""
    store.create_topic("t")
    batch = batch_of(store, b"x")
    with store.listen(socket_request_max_bytes=2000) as listener, RawClient(listener.address) as client:
        request = frame_of(produce_to("t", batch), ApiKey.PRODUCE, 9)
        client.socket.sendall(2 * request + size.to_bytes(4, "big", signed=True))
        for offset in range(2):
            (part,) = client.receive(ApiKey.PRODUCE, 9, 1).topics[0].partitions
            assert part.base_offset == offset
        assert client.is_hung_up()
    assert store["t"][0].log_end_offset == 2


def test_closing_answers_what_was_asked(store):
    log = store.create_topic("t")[0]
    with store.listen() as listener, RawClient(listener.address) as client:
        client.send(ApiKey.FETCH, fetch_from(0, max_wait_ms=400), FETCH)
        wait_until(lambda: listener.connection_count == 1)
        time.sleep(0.05)
        listener.close()
        (part,) = client.receive(ApiKey.FETCH, FETCH).topics[0].partitions
        assert part.error_code == ErrorCode.NONE
        assert client.is_hung_up()
        with pytest.raises(ConnectionRefusedError):
            RawClient(listener.address)
    assert log.log_end_offset == 0


def test_closing_waits_for_half_a_second_for_those_who_wait_for_records(store):
    store.create_topic("t")
    with store.listen() as listener, RawClient(listener.address) as client:
        client.send(ApiKey.FETCH, fetch_from(0, max_wait_ms=60_000), FETCH)
        wait_until(lambda: listener.connection_count == 1)
        time.sleep(0.05)
        began = time.monotonic()
        listener.close(timeout=60)
        assert time.monotonic() - began < 30
        assert client.is_hung_up()


def test_closing_the_store_closes_its_listeners(tmp_path):
    store = logstore.open(tmp_path / "other")
    listeners = [store.listen() for _ in range(3)]
    clients = [RawClient(each.address) for each in listeners]
    names = {f"logstore-listener-{each.address}" for each in listeners}
    assert names <= {each.name for each in threading.enumerate()}
    store.close()
    assert all(each.is_hung_up() for each in clients)
    wait_until(lambda: not names & {each.name for each in threading.enumerate()})
    for each in clients:
        each.close()


def test_a_throttled_client_is_muted(listener, store):
    store.create_topic("t")
    store.quotas.set(client_id="raw", producer_byte_rate=2000)
    data = batch_of(store, bytes(22_000))
    with RawClient(listener.address) as client:
        answer = client.ask(ApiKey.PRODUCE, produce_to("t", data), 9)
        assert answer.throttle_time_ms > 300
        began = time.monotonic()
        client.ask(ApiKey.METADATA, metadata_of("t"), 12)
        assert time.monotonic() - began > answer.throttle_time_ms / 1000 * 0.9
    with RawClient(listener.address, client_id="other") as client:
        assert client.ask(ApiKey.PRODUCE, produce_to("t", data), 9).throttle_time_ms == 0


BAD_ADDRESSES = ["", "localhost", "127.0.0.1:x", "127.0.0.1:99999", "::1:80", 9092, None]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_what_is_no_address(store, address):
    with pytest.raises(UsageError, match="address"):
        store.listen(address)


def test_addresses_that_are_refused(store, listener):
    with pytest.raises(UsageError, match="other machines"):
        store.listen("0.0.0.0:0")
    with pytest.raises(StorageError, match="cannot listen on"):
        store.listen(listener.address)
    with pytest.raises(InvalidConfigError, match="max_connections"):
        store.listen(max_conections=3)
    with pytest.raises(UsageError, match="advertised is"):
        store.listen("127.0.0.1:0", advertised="0.0.0.0:0")
    with store.listen("0.0.0.0:0", allow_anonymous=True, advertised="localhost:0") as other:
        assert other.address.startswith("localhost:")


def test_a_read_only_store_does_not_listen(store):
    store.create_topic("t")
    with logstore.open(store.path, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.listen()


def test_topics_are_created_for_those_who_ask_unless_told_otherwise(store):
    with store.listen(num_partitions=3) as listener, RawClient(listener.address) as client:
        assert len(client.ask(ApiKey.METADATA, metadata_of("new"), 12).topics[0].partitions) == 3
        quiet = metadata_of("other")._replace(allow_auto_topic_creation=False)
        answer = client.ask(ApiKey.METADATA, quiet, 12)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with store.listen(auto_create_topics_enable=False) as listener, RawClient(listener.address) as client:
        answer = client.ask(ApiKey.METADATA, metadata_of("third"), 12)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(store) == ["new"]


@pytest.mark.parametrize("name", ["no/topic", "", "..", "x" * 250])
def test_a_name_that_no_topic_can_have_is_said_to_be_none(store, name):
    """Clients give up then. For a topic that is only not there they wait, a producer for a minute."""
    for settings in ({}, {"auto_create_topics_enable": False}):
        with store.listen(**settings) as listener, RawClient(listener.address) as client:
            for version in (1, 12):
                (topic,) = client.ask(ApiKey.METADATA, metadata_of(name), version).topics
                assert (topic.name, topic.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)
            asked = describe_topic_partitions.DescribeTopicPartitionsRequest(
                (describe_topic_partitions.TopicWanted(name),)
            )
            (topic,) = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, asked).topics
            assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert list(store) == []
