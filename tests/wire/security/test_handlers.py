"""The requests about logins, users and ACLs, through the bytes that go over the wire."""

import logging
import random
import re
from types import SimpleNamespace

import pytest

from logstore.broker.codes import ErrorCode
from logstore.errors import UsageError
from logstore.logdir.acls import Acl, Operation, PatternType, Permission, ResourceType
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.security import alter_user_scram_credentials as altering
from logstore.wire.messages.security import create_acls as creating
from logstore.wire.messages.security import delete_acls as deleting
from logstore.wire.messages.security import describe_acls as describing
from logstore.wire.messages.security import describe_user_scram_credentials as describing_users
from logstore.wire.messages.security.sasl_authenticate import SaslAuthenticateRequest
from logstore.wire.messages.security.sasl_handshake import SaslHandshakeRequest
from logstore.wire.security.acls import Acls
from logstore.wire.security.audit import LOGGER
from logstore.wire.security.sasl import MECHANISMS
from logstore.wire.security.security import Security
from logstore.wire.security.users import Users
from tests.rotation import seed_of_turn
from tests.wire.drawn import Case, Chance
from tests.wire.security.rig import HANDLERS, PASSWORD, Client, Connection, open_directory


def secured(directory):
    return Security(Users(directory), Acls(directory), mechanisms=MECHANISMS, super_users=["User:admin"])


@pytest.fixture
def files():
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def security(files):
    directory = open_directory(files)
    return secured(directory)


@pytest.fixture
def admin(security):
    return Connection(security)


@pytest.fixture
def audit(caplog):
    caplog.set_level(logging.INFO, logger=LOGGER)
    return SimpleNamespace(
        lines=lambda: [each.getMessage() for each in caplog.records if each.name == LOGGER]
    )


class TestLogin:
    def test_scram(self, security):
        security.users.set_password("alice", PASSWORD)
        here = Connection(security)
        shaken = here.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("SCRAM-SHA-256"))
        assert shaken == (ErrorCode.NONE, ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"))
        client = Client("alice", PASSWORD)
        first = here.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(client.first))
        assert (first.error_code, first.session_lifetime_ms) == (0, 0)
        final = here.ask(
            ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(client.final(bytes(first.auth_bytes)))
        )
        client.check(bytes(final.auth_bytes))
        assert (final.error_code, final.session_lifetime_ms) == (0, 60_000)
        assert here.principal == "User:alice"

    def test_a_wrong_password(self, security, audit):
        here = Connection(security)
        here.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"))
        answer = here.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b"\0alice\0x"))
        assert answer[:2] == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed: invalid credentials",
        )
        assert here.sasl.has_failed
        assert audit.lines() == ["login failed: 'alice' from 10.0.0.1 by 'PLAIN': invalid credentials"]

    def test_names_that_are_claimed_cannot_fake_a_line(self, security, audit):
        here = Connection(security)
        here.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("SCRAM-SHA-512"))
        client = Client("x\nlogin failed", "y", hash_name="sha512")
        first = here.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(client.first))
        here.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(client.final(bytes(first.auth_bytes))))
        assert audit.lines() == [
            r"login failed: 'x\nlogin failed' from 10.0.0.1 by 'SCRAM-SHA-512': invalid credentials"
        ]

    def test_an_unknown_mechanism(self, admin, audit):
        answer = admin.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("GSSAPI"))
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == admin.sasl.mechanisms
        (line,) = audit.lines()
        assert line.endswith("from 10.0.0.1 by 'GSSAPI': UNSUPPORTED_SASL_MECHANISM")

    def test_without_a_handshake(self, admin):
        answer = admin.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b""))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE

    def test_where_nobody_has_to(self):
        here = Connection(Security())
        assert (
            here.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"))[0] == ErrorCode.ILLEGAL_SASL_STATE
        )
        assert (
            here.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b""))[0]
            == ErrorCode.ILLEGAL_SASL_STATE
        )

    def test_mechanisms_are_checked_before_anyone_calls(self):
        with pytest.raises(UsageError, match="unknown SASL mechanism 'PLAINN'; did you mean 'PLAIN'"):
            Security(mechanisms=["PLAINN"])


class TestUsers:
    UPSERTION = altering.Upsertion("alice", 1, 4096, b"salt", b"x" * 32)

    def alter(self, connection, *, deletions=(), upsertions=()):
        request = altering.AlterUserScramCredentialsRequest(deletions, upsertions)
        answer = connection.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
        return [(each.user, each.error_code) for each in answer.users]

    def describe(self, connection, *names):
        request = describing_users.DescribeUserScramCredentialsRequest(
            tuple(describing_users.User(name) for name in names) if names else None
        )
        return connection.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request)

    def test_they_are_set_described_and_deleted(self, admin):
        admin.users.set_password("bob", "x")
        assert self.alter(admin, upsertions=(self.UPSERTION,)) == [("alice", 0)]
        rows = self.describe(admin).users
        assert rows == (("alice", 0, None, ((1, 4096),)), ("bob", 0, None, ((1, 8192), (2, 8192))))
        assert self.describe(admin, "alice").users == rows[:1]
        codes = [(each.user, each.error_code) for each in self.describe(admin, "bob", "eve", "bob").users]
        assert codes == [("bob", ErrorCode.DUPLICATE_RESOURCE), ("eve", ErrorCode.RESOURCE_NOT_FOUND)]
        wrong = altering.Deletion("eve", 1)
        assert self.alter(admin, deletions=(altering.Deletion("alice", 1), wrong)) == [
            ("alice", 0),
            ("eve", ErrorCode.RESOURCE_NOT_FOUND),
        ]
        assert admin.users.names() == ["bob"]

    def test_those_who_may_not(self, security, audit):
        alice = Connection(security, "User:alice")
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert self.alter(alice, upsertions=(self.UPSERTION,)) == [("alice", refused)]
        assert self.describe(alice).error_code == refused
        assert security.users.names() == []
        assert audit.lines() == [
            f"refused: 'User:alice' from 10.0.0.1 may not {each} the CLUSTER 'kafka-cluster'"
            for each in ("ALTER", "DESCRIBE")
        ]

    def test_where_there_are_none(self):
        here = Connection(Security())
        assert self.alter(here, upsertions=(self.UPSERTION,)) == [("alice", ErrorCode.SECURITY_DISABLED)]
        assert self.describe(here).error_code == ErrorCode.SECURITY_DISABLED


RULE = creating.Acl(2, "orders", 4, "User:alice", "*", 3, 3)
STORED = Acl(
    ResourceType.TOPIC, "orders", PatternType.PREFIXED, "User:alice", "*", Operation.READ, Permission.ALLOW
)
EVERYTHING = (1, None, 1, None, None, 1, 1)


class TestAcls:
    def create(self, connection, *rules):
        answer = connection.ask(ApiKey.CREATE_ACLS, creating.CreateAclsRequest(rules))
        return [each.error_code for each in answer.results]

    def describe(self, connection, *wanted):
        return connection.ask(ApiKey.DESCRIBE_ACLS, describing.DescribeAclsRequest(*wanted))

    def delete(self, connection, *filters):
        request = deleting.DeleteAclsRequest(tuple(deleting.Filter(*each) for each in filters))
        return connection.ask(ApiKey.DELETE_ACLS, request).filters

    def test_they_are_created_described_and_deleted(self, security, admin):
        alice = Connection(security, "User:alice")
        assert not alice.allows(Operation.READ, ResourceType.TOPIC, "orders-1")
        other = RULE._replace(operation=8, host="10.0.0.9")
        assert self.create(admin, RULE, other, RULE._replace(resource_name="")) == [
            0,
            0,
            ErrorCode.INVALID_REQUEST,
        ]
        assert alice.allows(Operation.READ, ResourceType.TOPIC, "orders-1")
        answer = self.describe(admin, *EVERYTHING)
        rules = (("User:alice", "*", 3, 3), ("User:alice", "10.0.0.9", 8, 3))
        assert answer.resources == ((2, "orders", 4, rules),)
        assert self.describe(admin, *EVERYTHING[:3], "User:bob", None, 1, 1).resources == ()
        found, wrong, none = self.delete(
            admin, (2, "orders-7", 2, None, None, 3, 1), (0, *EVERYTHING[1:]), (3, *EVERYTHING[1:])
        )
        assert found.acls == ((0, None, *RULE),)
        assert (wrong.error_code, none.error_code, none.acls) == (ErrorCode.INVALID_REQUEST, 0, ())
        assert [each.operation for each in admin.acls.matching()] == [Operation.DESCRIBE]

    def test_a_filter_that_is_wrong(self, admin):
        answer = self.describe(admin, 9, *EVERYTHING[1:])
        assert answer[1:3] == (ErrorCode.INVALID_REQUEST, "unknown resource type 9")

    def test_those_who_may_not(self, security):
        alice = Connection(security, "User:alice")
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        security.acls.add([STORED])
        assert self.create(alice, RULE, RULE) == [refused] * 2
        assert self.describe(alice, *EVERYTHING)[1:] == (refused, "it takes DESCRIBE on the cluster", ())
        assert [each.error_code for each in self.delete(alice, EVERYTHING, EVERYTHING)] == [refused] * 2
        assert security.acls.matching() == (STORED,)

    def test_where_there_are_none_everyone_may_do_everything_but_ask_for_them(self):
        here = Connection(Security(), "User:alice")
        assert here.allows(Operation.WRITE, ResourceType.TOPIC, "t")
        disabled = ErrorCode.SECURITY_DISABLED
        assert self.create(here, RULE) == [disabled]
        assert self.describe(here, *EVERYTHING).error_code == disabled
        assert [each.error_code for each in self.delete(here, EVERYTHING)] == [disabled]

    def test_a_disk_that_refuses(self, files, admin):
        admin.acls.add([STORED])
        refused = ErrorCode.KAFKA_STORAGE_ERROR
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="acls.json")
        assert self.create(admin, RULE._replace(host="h")) == [refused]
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="acls.json")
        assert [each.error_code for each in self.delete(admin, EVERYTHING)] == [refused]
        assert admin.acls.matching() == (STORED,)


@pytest.mark.parametrize("key", HANDLERS)
def test_a_refusal_can_be_sent_in_each_version(key):
    requests = {
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: altering.AlterUserScramCredentialsRequest(
            (altering.Deletion("a", 1),), (TestUsers.UPSERTION,)
        ),
        ApiKey.CREATE_ACLS: creating.CreateAclsRequest((RULE,)),
        ApiKey.DELETE_ACLS: deleting.DeleteAclsRequest((deleting.Filter(),)),
    }
    api = APIS[key]
    for version in range(api.first, api.last + 1):
        request = requests.get(key, api.request.kind())
        answer = HANDLERS[key].refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, version)
        decoded, _ = api.response.decode(api.response.encode(answer, version), version)
        assert "error_code=-1" in repr(decoded)


ROUNDS = 60


@pytest.mark.parametrize("principal", ["User:admin", "User:eve"])
def test_whatever_is_asked_is_answered(principal):
    """Random requests, one after another: each answer can be sent, and says what became of each thing
    that was asked. Those who may nothing change nothing. 2 s."""
    chance = Chance(random.Random(seed_of_turn()))
    directory = open_directory()
    security = secured(directory)
    changed = 0
    for number in range(ROUNDS * len(HANDLERS)):
        key = tuple(HANDLERS)[number % len(HANDLERS)]
        api = APIS[key]
        case = Case(key, api.request, chance.random.randint(api.first, api.last))
        request, _ = api.request.decode(api.request.encode(chance.message(case), case.version), case.version)
        before = security.users.described(), security.acls.matching()
        answer = HANDLERS[key].answer(Connection(security, principal), request, case.version)
        api.response.encode(answer, case.version)
        changed += before != (security.users.described(), security.acls.matching())
        for asked, answered in (("creations", "results"), ("filters", "filters")):
            if hasattr(request, asked):
                assert len(getattr(request, asked)) == len(getattr(answer, answered))
    assert changed == 0 or principal == "User:admin"


@pytest.mark.parametrize("granted", [Operation.DESCRIBE, Operation.ALTER, Operation.ALTER_CONFIGS])
def test_changes_take_alter_and_looking_takes_describe(security, granted):
    """On the cluster; ALTER is enough for both."""
    security.acls.add(
        [
            Acl(
                ResourceType.CLUSTER,
                "kafka-cluster",
                PatternType.LITERAL,
                "User:alice",
                "*",
                granted,
                Permission.ALLOW,
            )
        ]
    )
    alice = Connection(security, "User:alice")
    may_look = granted is not Operation.ALTER_CONFIGS
    may_change = granted is Operation.ALTER
    refused = repr(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    for key, request, is_allowed in (
        (ApiKey.DESCRIBE_ACLS, describing.DescribeAclsRequest(*EVERYTHING), may_look),
        (
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            describing_users.DescribeUserScramCredentialsRequest(),
            may_look,
        ),
        (ApiKey.CREATE_ACLS, creating.CreateAclsRequest((RULE,)), may_change),
        (
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            altering.AlterUserScramCredentialsRequest((), (TestUsers.UPSERTION,)),
            may_change,
        ),
        (ApiKey.DELETE_ACLS, deleting.DeleteAclsRequest((deleting.Filter(*EVERYTHING),)), may_change),
    ):
        answer = repr(alice.ask(key, request))
        assert (f"error_code={refused}" not in answer) is is_allowed, answer
        assert bool(re.search("it takes [A-Z]+ on the cluster", answer)) is not is_allowed, answer


def test_what_only_filters_a_list_is_not_noted(security, audit):
    asked = ("User:eve\n", "::1", Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert not security.allows(*asked, is_noted=False)
    assert audit.lines() == []
    assert not security.allows(*asked)
    assert audit.lines() == [r"refused: 'User:eve\n' from ::1 may not DESCRIBE the TOPIC 't'"]


def test_a_handler_of_the_program_that_fails_does_not_let_anyone_in(security, monkeypatch):
    logger = logging.getLogger(LOGGER)

    class Broken(logging.Handler):
        def handle(self, record):
            raise OSError

    broken = Broken()
    logger.addHandler(broken)
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.manager._clear_cache()
    try:
        assert not security.allows("User:eve", "::1", Operation.READ, ResourceType.TOPIC, "t")
    finally:
        logger.removeHandler(broken)
        logger.manager._clear_cache()
