"""Logins, certificates and ACLs, as real clients meet them."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from logstore.broker.codes import ErrorCode
from logstore.errors import CorruptionError, InvalidConfigError, UsageError
from logstore.wire.apis import ApiKey
from logstore.wire.listener import connection
from logstore.wire.messages.cluster.api_versions import ApiVersionsRequest
from logstore.wire.messages.cluster.metadata import MetadataRequest
from logstore.wire.messages.security.sasl_authenticate import SaslAuthenticateRequest
from logstore.wire.messages.security.sasl_handshake import SaslHandshakeRequest
from logstore.wire.security.tls import ServerTls
from tests.replica.node.cluster import eventually
from tests.wire.raw_client import RawClient
from tests.wire.security.certificates import OPENSSL, Authority

PASSWORD = "a secret of some length"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
QUICK = {
    "socket.timeout.ms": 3000,
    "message.timeout.ms": 3000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
}


@pytest.fixture
def secured(store):
    store.users.set_password("alice", PASSWORD)
    store.create_topic("t")
    with store.listen(sasl_enabled_mechanisms=",".join(MECHANISMS)) as listener:
        yield listener


def settings(listener, user="alice", password=PASSWORD, mechanism="SCRAM-SHA-256", **more):
    return {
        "bootstrap.servers": listener.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **QUICK,
        **more,
    }


def send(config, topic="t"):
    """The error, or the offset."""
    told = []
    producer = Producer(config | {"error_cb": lambda error: told.append(error.code())})
    producer.produce(topic, b"v", on_delivery=lambda error, message: told.append(error or message.offset()))
    producer.flush(10)
    return told


class TestStrangers:
    """Who is to say who it is. Listeners look around once a second."""

    def test_who_does_not_log_in_holds_no_place(self, store):
        """2 s."""
        settings = {"sasl_enabled_mechanisms": "PLAIN", "socket_step_timeout_ms": 100}
        with store.listen(**settings) as listener:
            with RawClient(listener.address) as silent:
                assert silent.is_hung_up()
            with RawClient(listener.address) as looks:
                assert looks.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
                assert looks.is_hung_up()

    def test_who_is_logged_in_may_be_idle(self, store):
        """1.6 s."""
        store.users.set_password("alice", PASSWORD)
        settings = {"sasl_enabled_mechanisms": "PLAIN", "socket_step_timeout_ms": 100}
        with store.listen(**settings) as listener, RawClient(listener.address) as client:
            client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 1)
            message = b"\0alice\0" + PASSWORD.encode()
            assert client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(message), 2).error_code == 0
            time.sleep(1.5)
            assert client.ask(ApiKey.METADATA, MetadataRequest(None), 12).topics is not None

    def test_who_need_not_log_in_may_be_idle_from_the_first(self, store):
        """1.6 s."""
        with store.listen(socket_step_timeout_ms=100) as listener, RawClient(listener.address) as client:
            time.sleep(1.5)
            assert client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0

    @pytest.mark.skipif(OPENSSL is None, reason="the program openssl, which makes certificates, is missing")
    def test_who_does_not_begin_with_tls_holds_no_place(self, store, tmp_path):
        """1 s."""
        certified = Authority(tmp_path / "ca").certify("one", "/CN=one")
        with (
            store.listen(tls=ServerTls(*certified), socket_step_timeout_ms=100) as listener,
            RawClient(listener.address) as silent,
            RawClient(listener.address) as stops,
        ):
            stops.socket.sendall(bytes.fromhex("160301020001"))  # half a greeting
            assert silent.is_hung_up()
            assert stops.is_hung_up()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_knows_the_password_is_let_in(secured, mechanism):
    assert send(settings(secured, mechanism=mechanism)) == [0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_does_not_is_not(secured, store, mechanism):
    """2 s: a client tries until its time is over, which may be before it has an answer."""
    for wrong in ({"password": "wrong"}, {"user": "bob"}):
        config = settings(secured, mechanism=mechanism, **wrong) | {"message.timeout.ms": 300}
        eventually(lambda config=config: KafkaError._AUTHENTICATION in send(config))
    assert store["t"][0].log_end_offset == 0


def test_nothing_is_answered_before_a_login(secured):
    with RawClient(secured.address) as client:
        assert client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
        client.send(ApiKey.METADATA, MetadataRequest(), 12)
        assert client.is_hung_up()
    with RawClient(secured.address) as client:
        client.socket.sendall(struct.pack(">i", 1_000_000))  # large frames are for those who are known
        assert client.is_hung_up()


def test_steps_out_of_order_and_unknown_mechanisms(secured):
    with RawClient(secured.address) as client:
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b"\0alice\0x"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_hung_up()
    with RawClient(secured.address) as client:
        answer = client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert set(answer.mechanisms) == set(MECHANISMS)
        assert client.is_hung_up()


def test_a_login_without_headers(secured):
    """What clients from before SaslAuthenticate do."""
    for password, is_known in ((PASSWORD, True), ("wrong", False)):
        with RawClient(secured.address) as client:
            assert client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 0).error_code == 0
            token = b"\0alice\0" + password.encode()
            client.socket.sendall(struct.pack(">i", len(token)) + token)
            if not is_known:
                assert client.is_hung_up()
                continue
            assert client.receive_frame() == b""
            assert client.ask(ApiKey.METADATA, MetadataRequest(None), 12).topics


@pytest.mark.parametrize("version", [0, 2])
def test_who_does_not_know_the_password_waits_for_the_answer(store, version):
    store.users.set_password("alice", PASSWORD)
    login = b"\0alice\0wrong"
    delay_ms = 300
    with (
        store.listen(
            sasl_enabled_mechanisms="PLAIN", connection_failed_authentication_delay_ms=delay_ms
        ) as listener,
        RawClient(listener.address) as client,
        RawClient(listener.address) as other,
    ):
        handshake_version = 0 if version == 0 else 1
        client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), handshake_version)
        started = time.monotonic()
        if version:
            client.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(login), version)
        else:
            client.socket.sendall(struct.pack(">i", len(login)) + login)
        other.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 1)
        assert time.monotonic() - started < delay_ms / 1000  # nobody else waits
        if version:
            assert client.receive(ApiKey.SASL_AUTHENTICATE, version).error_code
        assert client.is_hung_up()
        assert time.monotonic() - started >= delay_ms / 1000


def test_a_client_logs_in_again_in_time(store):
    store.users.set_password("alice", PASSWORD)
    store.create_topic("t")
    login = SaslAuthenticateRequest(b"\0alice\0" + PASSWORD.encode())
    with (
        store.listen(sasl_enabled_mechanisms="PLAIN", connections_max_reauth_ms=300) as listener,
        RawClient(listener.address) as client,
    ):
        for _ in range(3):
            assert client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 1).error_code == 0
            answer = client.ask(ApiKey.SASL_AUTHENTICATE, login, 2)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 300)
            assert client.ask(ApiKey.METADATA, MetadataRequest(None), 12).topics
        client.socket.settimeout(0.4)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(5)
        client.send(ApiKey.METADATA, MetadataRequest(None), 12)
        assert client.is_hung_up()


def test_clients_may_do_what_acls_allow(store, caplog):
    """5 s."""
    caplog.set_level(logging.INFO, logger="logstore.audit")
    for name in ("admin", "alice"):
        store.users.set_password(name, PASSWORD)
    store.create_topic("t")
    store.create_topic("secret")

    def was_refused(what):
        told = [each.getMessage() for each in caplog.records if each.name == "logstore.audit"]
        return any(f"'User:alice' from 127.0.0.1 may not {what}" in each for each in told)

    with store.listen(
        sasl_enabled_mechanisms="SCRAM-SHA-256",
        authorize=True,
        super_users="User:admin",
        auto_create_topics_enable=False,
    ) as listener:
        assert send(settings(listener, "admin")) == [0]

        def write():
            (refused,) = send(settings(listener) | {"message.timeout.ms": 1000})[-1:]
            assert refused.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._MSG_TIMED_OUT)
            return was_refused("DESCRIBE the TOPIC 't'")

        eventually(write)  # a client that is slow has given up before it asks
        admin = AdminClient(settings(listener, "admin"))
        rules = [
            AclBinding(kind, "t", pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
            for kind, pattern, operation in (
                (ResourceType.TOPIC, ResourcePatternType.LITERAL, AclOperation.WRITE),
                (ResourceType.TOPIC, ResourcePatternType.LITERAL, AclOperation.READ),
                (ResourceType.GROUP, ResourcePatternType.PREFIXED, AclOperation.READ),
            )
        ]
        for made in admin.create_acls(rules).values():
            made.result(10)
        assert send(settings(listener)) == [1]
        alice = AdminClient(settings(listener))
        assert set(alice.list_topics(timeout=10).topics) == {"t"}
        consumer = Consumer(settings(listener) | {"group.id": "t1", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert len(consumer.consume(2, 10)) == 2
        consumer.close()
        other = Consumer(settings(listener) | {"group.id": "other"})

        def look():
            with pytest.raises(KafkaException):  # librdkafka goes on asking
                other.committed([TopicPartition("t", 0)], 0.5)
            return was_refused("DESCRIBE the GROUP 'other'")

        eventually(look)
        other.close()
        kinds = ResourceType.ANY, None, ResourcePatternType.ANY, None, None
        everything = AclBindingFilter(*kinds, AclOperation.ANY, AclPermissionType.ANY)
        assert len(admin.describe_acls(everything).result(10)) == 3
        (deleted,) = admin.delete_acls([everything]).values()
        assert len(deleted.result(10)) == 3
        assert len(store.acls.matching()) == 0


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    if OPENSSL is None:
        pytest.skip("the program openssl, which makes certificates, is missing")
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def certified(authority):
    return authority.certify("server", "/CN=localhost")


def tls_settings(listener, authority, **more):
    return {
        "bootstrap.servers": listener.address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.root),
        "ssl.endpoint.identification.algorithm": "none",
        **QUICK,
        **more,
    }


def test_tls(store, authority, certified):
    store.create_topic("t")[0].extend([bytes(200_000)] * 20)
    with store.listen(tls=ServerTls(*certified)) as listener:
        assert send(tls_settings(listener, authority)) == [20]
        consumer = Consumer(tls_settings(listener, authority) | {"group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        got = []
        while len(got) < 21:
            got += consumer.consume(21 - len(got), 10)
        consumer.close()
        assert [len(each.value()) for each in got] == [200_000] * 20 + [1]
        with RawClient(listener.address) as plain:  # it is no TLS that it speaks
            plain.send(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0)
            with pytest.raises((EOFError, OSError, CorruptionError)):
                plain.receive(ApiKey.API_VERSIONS, 0)
        assert send(tls_settings(listener, authority)) == [21]


def test_what_a_client_without_tls_is_answered(store, certified):
    """An alert, as by Kafka, by which some clients know what is wrong; and the end, not a reset. 10 ms."""
    with store.listen(tls=ServerTls(*certified)) as listener, RawClient(listener.address) as plain:
        plain.send(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0)
        assert plain.socket.recv(100) == bytes.fromhex("15030300020250")
        assert plain.socket.recv(100) == b""


def test_a_connection_with_tls_ends_as_tls_does(store, authority, certified):
    """In the words of TLS: what ends without them may have been cut off by somebody else. 20 ms."""
    with store.listen(tls=ServerTls(*certified), sasl_enabled_mechanisms="PLAIN") as listener:
        context = ssl.create_default_context(cafile=authority.root)
        context.check_hostname = False
        with RawClient(listener.address) as client:
            # No EOF is taken that comes without the words for it.
            client.socket = context.wrap_socket(client.socket, suppress_ragged_eofs=False)
            client.send(ApiKey.METADATA, MetadataRequest(), 12)
            assert client.socket.recv(100) == b""


def test_clients_that_are_set_up_wrongly_are_warned_of_once_a_minute(
    store, authority, certified, caplog, monkeypatch
):
    """40 ms."""
    monkeypatch.setattr(connection, "_told_at", {})
    caplog.set_level(logging.INFO, logger=connection.__name__)
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(506)
    context = ssl.create_default_context()  # which does not trust our authority
    context.check_hostname = False
    with (
        store.listen(tls=ServerTls(*certified)) as tls,
        store.listen() as plain,
        store.listen(sasl_enabled_mechanisms="PLAIN") as sasl,
    ):
        for _ in range(2):
            for listener, sent in ((tls, bytes(20)), (plain, hello)):
                with RawClient(listener.address) as client:
                    client.socket.sendall(sent)
                    client.socket.recv(100)
            with RawClient(sasl.address) as client:
                client.send(ApiKey.METADATA, MetadataRequest(), 12)
                client.socket.recv(100)
            with RawClient(tls.address) as client, pytest.raises(ssl.SSLError, match="verify failed"):
                context.wrap_socket(client.socket)
        eventually(lambda: len(caplog.records) == 8)
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert sorted(each.partition("is closed: ")[2] for each in warned) == [
        "METADATA without a login",
        "TLS: TLSV1_ALERT_UNKNOWN_CA, says the client",
        "TLS: WRONG_VERSION_NUMBER; it may speak without TLS",
        "a frame of 369295618 bytes; 0 to 104857600 are allowed; it looks like TLS",
    ]


def test_a_certificate_that_is_not_taken_is_a_login_that_fails(
    store, authority, certified, tmp_path_factory, caplog
):
    """Who looks after the listener is told why, as the client may not be."""
    caplog.set_level(logging.INFO, logger="logstore")
    stranger = Authority(tmp_path_factory.mktemp("tls") / "other").certify("eve", "/CN=eve")
    tls = ServerTls(*certified, client_ca=authority.root, require_client_certificate=True)

    def told(name):
        return [each.getMessage() for each in caplog.records if each.name == name]

    with store.listen(tls=tls) as listener:
        host, port = listener.address.split(":")
        for shown, reason in (
            (None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
            (stranger, "unable to get local issuer"),
        ):
            context = ssl.create_default_context(cafile=authority.root)
            context.check_hostname = False
            if shown is not None:
                context.load_cert_chain(*shown)
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, int(port))) as connected,
                context.wrap_socket(connected) as secure,
            ):
                secure.recv(1)
            eventually(lambda reason=reason: any(reason in each for each in told("logstore.audit")))
        with socket.create_connection((host, int(port))) as plain:
            plain.sendall(bytes(20))
            eventually(
                lambda: any(
                    "is closed: TLS: " in each for each in told("logstore.wire.listener.connection")[2:]
                )
            )
    assert all(
        each.startswith("login failed: None from 127.0.0.1 by 'TLS': ") for each in told("logstore.audit")
    )
    assert len(told("logstore.audit")) == 2


def test_a_certificate_says_who_a_client_is(store, authority, certified):
    store.create_topic("t")
    tls = ServerTls(*certified, client_ca=authority.root, require_client_certificate=True)
    certificate, key = authority.certify("alice", "/C=US/O=Acme/CN=alice")
    shown = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    with store.listen(tls=tls, authorize=True, super_users="User:CN=alice,O=Acme,C=US") as listener:
        assert send(tls_settings(listener, authority, **shown)) == [0]
        told = send(tls_settings(listener, authority) | {"message.timeout.ms": 500})
        assert KafkaError._SSL in told or KafkaError._TRANSPORT in told
    assert store["t"][0].log_end_offset == 1


def test_what_is_refused(store):
    with pytest.raises(UsageError, match="SCRAM-SHA-256"):
        store.listen(sasl_enabled_mechanisms="SCRAM-SHA-265")
    with pytest.raises(UsageError, match="principal"):
        store.listen(super_users="admin")
    with pytest.raises(InvalidConfigError, match="semicolons"):
        store.listen(super_users="User:admin, User:CN=alice,O=Acme")
    with pytest.raises(InvalidConfigError, match="authorize"):
        store.listen(authorize="yes")
    with store.listen("0.0.0.0:0", sasl_enabled_mechanisms="PLAIN"):
        pass  # clients have to say who they are
