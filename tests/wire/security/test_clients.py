"""Other people's clients log in, add users and ACLs, and look at them: over connections, also with TLS."""

import asyncio
import contextlib
import logging
import warnings
from types import SimpleNamespace

import pytest

from logstore.broker.local import LocalBroker
from logstore.broker.requests import CreateTopicsRequest, NewTopic
from logstore.logdir.acls import Acl, Operation, PatternType, Permission, ResourceType
from logstore.wire.apis import ApiKey
from logstore.wire.listener.listener import Listener
from logstore.wire.security.acls import Acls
from logstore.wire.security.security import Security
from logstore.wire.security.tls import ServerTls
from logstore.wire.security.users import Users
from tests.wire.security.certificates import OPENSSL, Authority
from tests.wire.security.rig import PASSWORD, open_directory

BEFORE = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
needs_openssl = pytest.mark.skipif(
    OPENSSL is None, reason="the program openssl, which makes certificates, is missing"
)


@pytest.fixture
def serve():
    """Starts listeners, which end with the test. They note who asks."""
    with contextlib.ExitStack() as stack:

        def start(security):
            broker = LocalBroker(open_directory())
            broker.create_topics(CreateTopicsRequest((NewTopic("orders"),)))
            principals = []
            listener = Listener(
                broker,
                "127.0.0.1:0",
                security=security,
                intercept=lambda asked: principals.append((asked.key, asked.principal)),
            )
            stack.enter_context(listener)
            return SimpleNamespace(
                address=listener.address,
                principals=lambda: {who for key, who in principals if key not in BEFORE},
            )

        yield start


@pytest.fixture(scope="module")
def users():
    users = Users(open_directory())
    users.set_password("al=i,ce", PASSWORD)
    return users


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("clients") / "ca")


class Confluent:
    """librdkafka."""

    def __init__(self, listener, **settings):
        admin = pytest.importorskip("confluent_kafka.admin")
        self.errors = []
        common = {
            "bootstrap.servers": listener.address,
            "error_cb": self.errors.append,
            "log_level": 0,
        }
        self.client = admin.AdminClient(
            {**common, **{name.replace("_", "."): value for name, value in settings.items()}}
        )

    def topics(self):
        return list(self.client.list_topics(timeout=20).topics)


def by_sasl(mechanism, name, password, protocol="SASL_PLAINTEXT"):
    return {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_username": name,
        "sasl_password": password,
    }


class TestLogins:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_confluent_kafka(self, serve, users, mechanism):
        listener = serve(Security(users, mechanisms=MECHANISMS))
        client = Confluent(listener, **by_sasl(mechanism, "al=i,ce", PASSWORD))
        assert client.topics() == ["orders"]
        assert listener.principals() == {"User:al=i,ce"}

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_confluent_kafka_with_a_wrong_password(self, serve, users, mechanism):
        """1 s: it goes on trying."""
        listener = serve(Security(users, mechanisms=MECHANISMS))
        client = Confluent(listener, **by_sasl(mechanism, "al=i,ce", PASSWORD[:-1]))
        with pytest.raises(Exception, match=r"timed out|failure|Authentication"):
            client.client.list_topics(timeout=1)
        client.client.poll(1)
        assert any("invalid credentials" in str(each) for each in client.errors)
        assert listener.principals() == set()

    @needs_openssl
    def test_confluent_kafka_over_tls(self, serve, users, authority):
        tls = ServerTls(*authority.certify("server", "/CN=localhost"))
        listener = serve(Security(users, tls=tls, mechanisms=MECHANISMS))
        client = Confluent(
            listener,
            **by_sasl("SCRAM-SHA-512", "al=i,ce", PASSWORD, "SASL_SSL"),
            ssl_ca_location=str(authority.root),
            ssl_endpoint_identification_algorithm="none",
        )
        assert client.topics() == ["orders"]
        assert listener.principals() == {"User:al=i,ce"}

    @needs_openssl
    def test_confluent_kafka_with_a_certificate(self, serve, authority):
        tls = ServerTls(
            *authority.certify("server", "/CN=localhost"),
            client_ca=authority.root,
            require_client_certificate=True,
        )
        listener = serve(Security(tls=tls))
        certificate, key = authority.certify("bob", "/C=DE/O=Größe GmbH/CN=bob")
        client = Confluent(
            listener,
            security_protocol="SSL",
            ssl_ca_location=str(authority.root),
            ssl_certificate_location=str(certificate),
            ssl_key_location=str(key),
            ssl_endpoint_identification_algorithm="none",
        )
        assert client.topics() == ["orders"]
        assert listener.principals() == {"User:CN=bob,O=Größe GmbH,C=DE"}

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")
    def test_kafka_python(self, serve, mechanism, caplog):
        """It does not escape names. 1 s."""
        caplog.set_level(logging.CRITICAL, "kafka")
        kafka = pytest.importorskip("kafka")
        users = Users(open_directory())
        users.set_password("alice", PASSWORD)
        listener = serve(Security(users, mechanisms=MECHANISMS))
        client = kafka.KafkaAdminClient(
            bootstrap_servers=listener.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        )
        try:
            assert client.list_topics() == ["orders"]
        finally:
            client.close()
        assert listener.principals() == {"User:alice"}

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_aiokafka(self, serve, users, mechanism):
        client_module = pytest.importorskip("aiokafka.client", reason="aiokafka is not installed")
        listener = serve(Security(users, mechanisms=MECHANISMS))

        async def topics():
            client = client_module.AIOKafkaClient(
                bootstrap_servers=listener.address,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=mechanism,
                sasl_plain_username="al=i,ce",
                sasl_plain_password=PASSWORD,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                await client.bootstrap()
                try:
                    return set((await client.fetch_all_metadata()).topics())
                finally:
                    await client.close()

        assert asyncio.run(topics()) == {"orders"}
        assert listener.principals() == {"User:al=i,ce"}


class TestAdministration:
    @pytest.fixture
    def security(self):
        directory = open_directory()
        users = Users(directory)
        users.set_password("admin", PASSWORD)
        users.set_password("eve", PASSWORD)
        return Security(users, Acls(directory), mechanisms=MECHANISMS, super_users=["User:admin"])

    @pytest.fixture
    def admin(self, serve, security):
        self.listener = serve(security)
        return Confluent(self.listener, **by_sasl("SCRAM-SHA-256", "admin", PASSWORD)).client

    def test_users_of_confluent_kafka(self, admin, security):
        from confluent_kafka import admin as kinds

        change = kinds.UserScramCredentialUpsertion(
            "bob", kinds.ScramCredentialInfo(kinds.ScramMechanism.SCRAM_SHA_512, 5000), b"hunter2"
        )
        for each in admin.alter_user_scram_credentials([change]).values():
            each.result(20)
        found = admin.describe_user_scram_credentials().result(20)
        assert {
            name: [(each.mechanism.name, each.iterations) for each in user.scram_credential_infos]
            for name, user in found.items()
        } == {
            "admin": [("SCRAM_SHA_256", 8192), ("SCRAM_SHA_512", 8192)],
            "bob": [("SCRAM_SHA_512", 5000)],
            "eve": [("SCRAM_SHA_256", 8192), ("SCRAM_SHA_512", 8192)],
        }
        bob = Confluent(self.listener, **by_sasl("SCRAM-SHA-512", "bob", "hunter2"))
        assert bob.topics() == []  # no ACL shows him any
        assert "User:bob" in self.listener.principals()
        assert security.users.is_password("bob", b"hunter2")
        gone = kinds.UserScramCredentialDeletion("bob", kinds.ScramMechanism.SCRAM_SHA_512)
        for each in admin.alter_user_scram_credentials([gone]).values():
            each.result(20)
        assert security.users.names() == ["admin", "eve"]

    def test_acls_of_confluent_kafka(self, admin, security):
        from confluent_kafka import admin as kinds

        def binding(kind=kinds.AclBinding, *, name="orders", operation=kinds.AclOperation.READ):
            allow = kinds.AclPermissionType.ALLOW
            topic, prefixed = kinds.ResourceType.TOPIC, kinds.ResourcePatternType.PREFIXED
            return kind(topic, name, prefixed, "User:eve", "*", operation, allow)

        rules = [binding(), binding(operation=kinds.AclOperation.WRITE), binding(name="other")]
        for each in admin.create_acls(rules).values():
            each.result(20)
        stored = Acl(
            ResourceType.TOPIC,
            "orders",
            PatternType.PREFIXED,
            "User:eve",
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
        assert security.acls.matching() == (
            stored,
            stored._replace(operation=Operation.WRITE),
            stored._replace(resource_name="other"),
        )
        every = binding(kinds.AclBindingFilter, operation=kinds.AclOperation.ANY)
        assert set(admin.describe_acls(every).result(20)) == set(rules[:2])
        (deleted,) = admin.delete_acls([every]).values()
        assert set(deleted.result(20)) == set(rules[:2])
        assert security.acls.matching() == (stored._replace(resource_name="other"),)

    def test_those_who_may_not_are_told_so(self, admin, security):
        """Its describe_acls shows no ACLs then, and does not tell why."""
        from confluent_kafka import admin as kinds

        eve = Confluent(self.listener, **by_sasl("SCRAM-SHA-256", "eve", PASSWORD)).client
        rule = kinds.AclBinding(
            kinds.ResourceType.TOPIC,
            "orders",
            kinds.ResourcePatternType.LITERAL,
            "User:eve",
            "*",
            kinds.AclOperation.READ,
            kinds.AclPermissionType.ALLOW,
        )
        gone = kinds.UserScramCredentialDeletion("admin", kinds.ScramMechanism.SCRAM_SHA_512)
        for futures in (
            eve.describe_user_scram_credentials(["admin", "eve"]),
            eve.alter_user_scram_credentials([gone]),
            eve.create_acls([rule]),
        ):
            for each in futures.values():
                assert "CLUSTER_AUTHORIZATION_FAILED" in repr(each.exception(20))
        assert security.acls.matching() == ()
        assert security.users.described()["admin"] == {1: 8192, 2: 8192}
