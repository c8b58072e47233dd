"""The parts of a client of brokers elsewhere that need no broker: bytes in, values out."""

from __future__ import annotations

import os
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchPartition, FetchRequest
from logstore.errors import InvalidConfigError, LogstoreError, UnsupportedVersionError, UsageError
from logstore.model import TopicPartition
from logstore.wire.addresses import Address, parse_address
from logstore.wire.apis import ApiKey
from logstore.wire.messages.records.fetch import FetchResponse, PartitionResult, TopicResult
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.loop import Loop
from logstore.wire.remote.connections.nodes import Dialer
from logstore.wire.remote.connections.peer import Peer
from logstore.wire.remote.connections.questions import Reply
from logstore.wire.remote.connections.scram import ScramClient
from logstore.wire.remote.connections.settings import RemoteConfig, Sasl
from logstore.wire.remote.fetches.consumer_session import FetchSession
from logstore.wire.remote.translate.records import whole_batches
from tests.broker.rig import batch_of


class TestScram:
    """The examples of RFC 7677 and RFC 5802's rules."""

    FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"

    @pytest.fixture
    def client(self):
        return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")

    def test_the_example(self, client):
        assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        assert client.final(self.FIRST) == (
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    @pytest.mark.parametrize(
        "challenge",
        [
            b"",
            b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # nothing of the server's own
            FIRST.replace(b"4096", b"4095"),
            FIRST.replace(b"4096", b"99999999"),
            FIRST.replace(b"W22Z", b"!!!!"),
            FIRST.replace(b"s=", b"x="),
            b"\xff\xff",
        ],
    )
    def test_a_server_that_breaks_the_rules(self, client, challenge):
        with pytest.raises(UsageError, match="SCRAM"):
            client.final(challenge)

    @pytest.mark.parametrize("outcome", [b"", b"v=AAAA", b"e=invalid-proof", b"v=!"])
    def test_a_server_that_does_not_know_the_password(self, client, outcome):
        client.final(self.FIRST)
        with pytest.raises(UsageError, match="SCRAM"):
            client.check(outcome)

    def test_a_server_that_skips_a_step(self, client):
        with pytest.raises(UsageError, match="does not prove"):
            client.check(b"v=")

    @given(st.binary(max_size=80))
    def test_any_bytes(self, challenge):
        client = ScramClient("SCRAM-SHA-512", "a=b,c", "p", nonce="n")
        assert client.first() == b"n,,n=a=3Db=2Cc,r=n"
        with pytest.raises(LogstoreError):
            client.final(challenge)


class TestBatches:
    @given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 2**62), st.data())
    def test_what_is_cut_off_is_left(self, counts, base, data):
        """Cut at any byte: the batches that are whole, and the offset after them."""
        batches, epochs, offset = [], [], base
        for count in counts:
            batch = bytearray(batch_of([b"v"] * count, 0))
            batch[:8] = offset.to_bytes(8, "big")
            epochs.append(data.draw(st.integers(-1, 2**31 - 1)))
            batch[12:16] = epochs[-1].to_bytes(4, "big", signed=True)
            batches.append(bytes(batch))
            offset += count
        every = b"".join(batches)
        cut = data.draw(st.integers(0, len(every)))
        whole = 0
        while sum(map(len, batches[: whole + 1])) <= cut and whole < len(batches):
            whole += 1
        found, next_offset, last_epoch = whole_batches(every[:cut], base)
        assert last_epoch == (epochs[whole - 1] if whole else -1)
        assert bytes(found) == b"".join(batches[:whole])
        assert next_offset == base + sum(counts[:whole])

    @given(st.binary(max_size=200), st.integers(0, 2**62))
    def test_any_bytes(self, data, offset):
        found, next_offset, _ = whole_batches(data, offset)
        assert data.startswith(bytes(found))
        assert next_offset >= offset


def test_an_answer_without_partitions_is_of_a_client_that_is_over_its_quota():
    """Else a partition that is missing is an error."""
    request = FetchRequest((FetchPartition(TopicPartition("t", 0), 7),))
    found = []
    for response in (FetchResponse(throttle_time_ms=100), FetchResponse()):
        session = FetchSession()
        session.build(request, 12)
        found += session.result_of(request, Reply(response, 12)).partitions
    waits, missing = found
    assert (waits.error, waits.next_offset, waits.data) == (ErrorCode.NONE, 7, b"")
    assert missing.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_quota_does_not_make_a_partition_look_as_if_it_had_nothing_new():
    """In a session a broker that has not looked answers as one that has found nothing. It goes on."""
    session, partition = FetchSession(), TopicPartition("t", 0)
    told = PartitionResult(0, high_watermark=9, last_stable_offset=9, log_start_offset=0)
    found = []
    rows = (TopicResult("t", partitions=(told,)),)
    for offset, topics, throttle_ms in ((5, rows, 0), (6, (), 9), (7, (), 0)):
        request = FetchRequest((FetchPartition(partition, offset),))
        built = session.build(request, 12)
        response = FetchResponse(throttle_time_ms=throttle_ms, session_id=3, topics=topics)
        (outcome,) = session.result_of(request, Reply(response, 12)).partitions
        found.append((built.session_epoch, outcome.error, outcome.high_watermark, outcome.next_offset))
    assert found == [(0, ErrorCode.NONE, 9, 5), (1, ErrorCode.NONE, -1, 6), (2, ErrorCode.NONE, 9, 7)]


def test_addresses():
    assert parse_address("127.0.0.1:9092") == Address("127.0.0.1", 9092)
    assert parse_address("[::1]:9092") == Address("::1", 9092)
    assert str(parse_address("[::1]:9092")) == "[::1]:9092"
    assert parse_address("./broker.sock") == Address("", 0, "./broker.sock")
    for wrong in (
        "",
        "host",
        "host:",
        ":1",
        "host:0",
        "host:65536",
        "host:x",
        "a\0b/c",
        b"h:1",
        None,
        9092,
        "PLAINTEXT://h:1",
    ):
        with pytest.raises(UsageError, match="is no address"):
            parse_address(wrong)


@pytest.mark.parametrize("wrong", [("alice", "secret"), {"password": "secret"}, "secret", True])
def test_what_is_no_login_is_told_at_once(wrong):
    """Without its value, in which a password may be."""
    with pytest.raises(UsageError, match=r"sasl is a \w+; it must be logstore.connected.Sasl") as caught:
        logstore.connect("127.0.0.1:9", sasl=wrong)
    assert "secret" not in str(caught.value)


def test_settings():
    assert "secret" not in repr(Sasl(username="me", password="secret"))
    for wrong in ({"mechanism": "GSSAPI"}, {"username": ""}, {"password": "a\0"}, {"password": b"a"}):
        with pytest.raises(InvalidConfigError):
            Sasl(**{"username": "me", "password": "secret"} | wrong)
    with pytest.raises(InvalidConfigError, match="did you mean 'request_timeout_ms'"):
        RemoteConfig(request_timeout=1)


def test_versions():
    peer = Peer({ApiKey.FETCH: (4, 11), ApiKey.PRODUCE: (0, 2), ApiKey.METADATA: (0, 99)})
    assert peer.common(ApiKey.FETCH, 0, 12) == 11
    assert peer.common(ApiKey.METADATA, 4, 9) == 9
    with pytest.raises(UnsupportedVersionError, match="Produce in versions 0 to 2"):
        peer.common(ApiKey.PRODUCE, 0, 12)
    with pytest.raises(UnsupportedVersionError, match="does not serve ListOffsets"):
        peer.common(ApiKey.LIST_OFFSETS, 0, 12)


def test_codes():
    assert code_of_number(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of_number(100) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of_number(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert why_of_number(31_000) == "the broker answers with error code 31000"
    assert (why_of_number(3), why_of_number(3, "why")) == (None, "why")


def test_the_wait_before_a_connection_grows_with_failures():
    """Doubled, 20 % up or down by chance, up to the longest."""
    loop = Loop("test")
    config = RemoteConfig(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1_000)
    dialer = Dialer(loop, config, client_id="", chance=random.Random(1))
    for failures, expected in ((1, 50), (2, 100), (3, 200), (6, 1_000), (500, 1_000)):
        waits = [dialer.backoff_seconds(failures) * 1_000 for _ in range(50)]
        assert expected * 0.8 <= min(waits) < expected < max(waits) <= expected * 1.2
    loop.close()


class TestLoop:
    @pytest.fixture
    def loop(self):
        made = Loop("test")
        yield made
        made.close()

    def test_times_come_in_their_order(self, loop):
        came, over = [], threading.Event()
        loop.call_soon(lambda: came.append("soon"))
        for ms in (300, 100, 200):
            loop.call_later(ms, lambda ms=ms: came.append(ms))
        loop.call_later(150, lambda: came.append("never")).cancel()
        loop.call_later(350, over.set)
        assert over.wait(5)
        assert came == ["soon", 100, 200, 300]

    def test_a_fault_does_not_end_the_thread(self, loop, caplog):
        over = threading.Event()
        loop.call_soon(lambda: 1 // 0)
        loop.call_soon(over.set)
        assert over.wait(5)
        assert "ZeroDivisionError" in caplog.text

    def test_what_waits_is_done_at_the_end(self):
        loop, came = Loop("test"), []
        loop.call_later(60_000, lambda: came.append(loop.is_closed))
        loop.close()
        assert came == [True]
        loop.call_soon(lambda: came.append("never"))


def test_a_path_that_cannot_be_told():
    """A directory may have such a name, and clients are told of addresses as UTF-8."""
    with pytest.raises(UsageError, match="no UTF-8; rename it"):
        parse_address(os.fsdecode(b"/run/caf\xe9/.socket"))
