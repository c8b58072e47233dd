"""The logins of a connection: which step may follow which, PLAIN, and logging in again."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.broker.codes import ErrorCode
from logstore.errors import UsageError
from logstore.logdir.users import ScramMechanism
from logstore.wire.messages.security.alter_user_scram_credentials import Deletion, Upsertion
from logstore.wire.security.hashing import salt_password
from logstore.wire.security.sasl import MAX_AUTH_BYTES, SaslServer
from logstore.wire.security.scram import INVALID
from logstore.wire.security.users import Users
from tests.rotation import seed_of_turn
from tests.wire.security.rig import PASSWORD, Client, log_in, open_directory

PLAIN, SHA_256, SHA_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
HASH_NAMES = {SHA_256: "sha256", SHA_512: "sha512"}


@pytest.fixture(scope="module")
def users():
    users = Users(open_directory())
    users.set_password("alice", PASSWORD, iterations=4096)
    users.set_password("bob", "hunter2", iterations=4096)
    return users


@pytest.fixture
def sasl(users):
    return SaslServer(users)


def plain(name, password, authzid=""):
    return "\0".join((authzid, name, password)).encode()


@pytest.mark.parametrize("mechanism", HASH_NAMES)
def test_scram(sasl, mechanism):
    assert sasl.handshake(mechanism) is ErrorCode.NONE
    assert (sasl.is_begun, sasl.is_complete, sasl.principal) == (True, False, None)
    log_in(sasl, Client("alice", PASSWORD, hash_name=HASH_NAMES[mechanism]))
    assert (sasl.is_begun, sasl.is_complete, sasl.principal) == (False, True, "User:alice")


@pytest.mark.parametrize("authzid", ["", "alice"])
def test_plain(sasl, authzid):
    assert sasl.handshake(PLAIN) is ErrorCode.NONE
    assert sasl.evaluate(plain("alice", PASSWORD, authzid)) == b""
    assert (sasl.is_complete, sasl.principal) == (True, "User:alice")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (plain("alice", "wrong"), f"^{INVALID}$"),
        (plain("mallory", PASSWORD), f"^{INVALID}$"),
        (plain("bob", PASSWORD), f"^{INVALID}$"),
        (plain("alice", PASSWORD + " "), f"^{INVALID}$"),
        (plain("alice", ""), "no name, or no password"),
        (plain("", PASSWORD), "no name, or no password"),
        (plain("alice", PASSWORD, "bob"), "rights of another user"),
        (b"alice\0secret", "has 2 parts"),
        (plain("alice", PASSWORD) + b"\0", "has 4 parts"),
        (b"", "has 1 parts"),
        (b"\0\xff\0x", "not UTF-8"),
        (b"\0alice\0\xff", f"^{INVALID}$"),
        (b"\0" * 3 + b"x" * MAX_AUTH_BYTES, "bytes; 524288 are allowed"),
    ],
)
def test_plain_refused(sasl, message, reason):
    sasl.handshake(PLAIN)
    with pytest.raises(UsageError, match=reason):
        sasl.evaluate(message)
    assert (sasl.has_failed, sasl.is_complete, sasl.principal) == (True, False, None)


def test_plain_with_a_credential_for_one_mechanism_of_scram():
    """PLAIN takes the one that a user has, of SCRAM-SHA-512 if there are both."""
    users = Users(open_directory())
    users.set_password("alice", "old")
    users.alter((Deletion("alice", 2),), ())
    assert users.is_password("alice", b"old")
    salted = salt_password(ScramMechanism.SHA_512, b"new", b"salt", 4096)
    users.alter((), (Upsertion("alice", 2, 4096, b"salt", salted),))
    assert users.is_password("alice", b"new")
    assert not users.is_password("alice", b"old")


# Which step may follow which


def test_only_chosen_mechanisms(users):
    sasl = SaslServer(users, [SHA_512])
    assert sasl.mechanisms == (SHA_512,)
    assert sasl.handshake(SHA_256) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sasl.has_failed


@pytest.mark.parametrize(
    "mechanisms", [(), ["GSSAPI"], ["scram-sha-256"], [SHA_256, ""], "PLAINTEXT", [None]]
)
def test_mechanisms_that_do_not_exist(users, mechanisms):
    with pytest.raises(UsageError, match="SASL mechanism"):
        SaslServer(users, mechanisms)


def test_a_message_without_a_handshake(sasl):
    with pytest.raises(UsageError, match="without a handshake"):
        sasl.evaluate(plain("alice", PASSWORD))
    assert sasl.has_failed
    assert sasl.handshake(PLAIN) is ErrorCode.ILLEGAL_SASL_STATE


def test_a_second_handshake_during_a_login(sasl):
    sasl.handshake(SHA_256)
    assert sasl.handshake(SHA_256) is ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(UsageError):
        sasl.evaluate(Client("alice", PASSWORD).first)


def test_a_message_after_the_login(sasl):
    sasl.handshake(PLAIN)
    sasl.evaluate(plain("alice", PASSWORD))
    with pytest.raises(UsageError):
        sasl.evaluate(plain("alice", PASSWORD))
    assert not sasl.is_complete


def test_the_first_message_of_scram_twice(sasl):
    sasl.handshake(SHA_256)
    client = Client("alice", PASSWORD)
    sasl.evaluate(client.first)
    with pytest.raises(UsageError):
        sasl.evaluate(client.first)


def test_a_login_cannot_be_replayed(sasl, users):
    sasl.handshake(SHA_256)
    client = Client("alice", PASSWORD)
    final = client.final(sasl.evaluate(client.first))
    sasl.evaluate(final)
    other = SaslServer(users)
    other.handshake(SHA_256)
    other.evaluate(client.first)
    with pytest.raises(UsageError, match="another nonce"):
        other.evaluate(final)


STEPS = {
    "handshake PLAIN": lambda sasl: sasl.handshake(PLAIN),
    "handshake SCRAM": lambda sasl: sasl.handshake(SHA_256),
    "handshake other": lambda sasl: sasl.handshake("GSSAPI"),
    "right": lambda sasl: sasl.evaluate(plain("alice", PASSWORD)),
    "bob": lambda sasl: sasl.evaluate(plain("bob", "hunter2")),
    "wrong": lambda sasl: sasl.evaluate(plain("alice", "x")),
}


def expected(steps):
    """A plain reading of the table in the module: (is_complete, principal, has_failed)."""
    state, principal, mechanism = "new", None, None
    for step in steps:
        if state == "failed":
            break
        word, _, what = step.partition(" ")
        if word == "handshake":
            is_known = what in ("PLAIN", "SCRAM") and mechanism in (None, what)
            state = "begun" if is_known and state in ("new", "complete") else "failed"
            mechanism = what if state == "begun" else mechanism
        else:
            who = {"right": "User:alice", "bob": "User:bob"}.get(word)
            is_right = state == "begun" and mechanism == "PLAIN" and who and principal in (None, who)
            state, principal = ("complete", who) if is_right else ("failed", principal)
    return state == "complete", principal, state == "failed"


def test_each_order_of_four_steps(monkeypatch):
    """1 s."""
    users = Users(open_directory())
    passwords = {"alice": PASSWORD.encode(), "bob": b"hunter2"}
    monkeypatch.setattr(users, "is_password", lambda name, password: passwords.get(name) == password)
    for steps in itertools.product(STEPS, repeat=4):
        sasl = SaslServer(users)
        for step in steps:
            try:
                STEPS[step](sasl)
            except UsageError:
                assert sasl.has_failed
        assert (sasl.is_complete, sasl.principal, sasl.has_failed) == expected(steps), steps


class TestAgain:
    """KIP-368."""

    @pytest.fixture
    def sasl(self, sasl):
        sasl.handshake(SHA_256)
        log_in(sasl, Client("alice", PASSWORD))
        return sasl

    def test_the_same_user(self, sasl):
        for _ in range(3):
            assert sasl.handshake(SHA_256) is ErrorCode.NONE
            assert not sasl.is_complete
            assert sasl.principal == "User:alice"
            log_in(sasl, Client("alice", PASSWORD))
            assert sasl.is_complete

    def test_another_user(self, sasl):
        sasl.handshake(SHA_256)
        with pytest.raises(UsageError, match="must stay the same user"):
            log_in(sasl, Client("bob", "hunter2"))
        assert (sasl.is_complete, sasl.has_failed, sasl.principal) == (False, True, "User:alice")

    def test_another_mechanism(self, sasl):
        assert sasl.handshake(PLAIN) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert not sasl.is_complete

    def test_a_user_that_was_removed_meanwhile(self):
        users = Users(open_directory())
        users.set_password("alice", PASSWORD)
        sasl = SaslServer(users)
        sasl.handshake(SHA_256)
        log_in(sasl, Client("alice", PASSWORD))
        users.remove("alice")
        assert sasl.is_complete
        sasl.handshake(SHA_256)
        with pytest.raises(UsageError, match=INVALID):
            log_in(sasl, Client("alice", PASSWORD))


# Bytes that no client means

_USERS = Users(open_directory())


@given(
    mechanism=st.sampled_from((PLAIN, SHA_256, SHA_512)),
    messages=st.lists(st.binary(max_size=60) | st.just(Client("alice", "x").first), min_size=1, max_size=3),
)
def test_only_a_usage_error_comes_out(mechanism, messages):
    sasl = SaslServer(_USERS)
    sasl.handshake(mechanism)
    for message in messages:
        try:
            sasl.evaluate(message)
        except UsageError:
            assert sasl.has_failed
        assert not sasl.is_complete


def test_changed_logins_are_refused_or_are_the_same_user(users):
    """Whatever is changed of a login that succeeds: no client becomes another user. 1 s."""
    rng = random.Random(seed_of_turn())
    refused = 0
    for _ in range(300):
        sasl = SaslServer(users)
        sasl.handshake(SHA_256)
        client = Client("alice", PASSWORD)
        try:
            first = client.first if rng.random() < 0.5 else changed(rng, client.first)
            server_first = sasl.evaluate(first)
            final = client.final(server_first)
            sasl.evaluate(final if first != client.first else changed(rng, final))
        except UsageError:
            refused += 1
        else:
            assert sasl.principal == "User:alice"
    assert refused > 200


def changed(rng, message):
    data = bytearray(message)
    at = rng.randrange(len(data))
    how = rng.randrange(3)
    if how == 0:
        data[at] = rng.randrange(256)
    elif how == 1:
        del data[at : at + rng.choice((1, 3))]
    else:
        data[at:at] = rng.choice((b",", b"=", b"\0", b"n=bob", b",r=", bytes(data[:5])))
    return bytes(data)
