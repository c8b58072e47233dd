"""Logins with SCRAM: the examples of the RFCs, other people's clients, and what must be refused."""

import base64
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import UsageError
from logstore.logdir.users import ScramMechanism
from logstore.wire.messages.security.alter_user_scram_credentials import Upsertion
from logstore.wire.security.hashing import salt_password
from logstore.wire.security.scram import INVALID, ScramExchange, decode_final, decode_first
from logstore.wire.security.users import Users
from tests.wire.security.rig import PASSWORD, Client, open_directory

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its schemas in a way that Python calls old
    from kafka.net.sasl.scram import ScramClient

SHA_256, SHA_512 = ScramMechanism

RFC_7677 = (
    SHA_256,
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
"""The example of RFC 7677, section 3, with the password ``pencil``."""


@pytest.fixture(scope="module")
def users():
    users = Users(open_directory())
    for name in ("alice", "b=o,b", "größe"):
        users.set_password(name, PASSWORD, iterations=4096)
    return users


def exchange(users, mechanism=SHA_256):
    return ScramExchange(users, mechanism)


def test_the_example_of_rfc_7677():
    mechanism, salt, client_first, nonce, server_first, client_final, server_final = RFC_7677
    users = Users(open_directory())
    salt = base64.b64decode(salt)
    salted = salt_password(mechanism, b"pencil", salt, 4096)
    (outcome,) = users.alter((), (Upsertion("user", mechanism, 4096, salt, salted),))
    assert outcome.code == 0
    login = ScramExchange(users, mechanism, make_nonce=lambda: nonce)
    assert login.evaluate(client_first) == server_first
    assert login.evaluate(client_final) == server_final
    assert login.user == "user"


def test_what_is_kept_for_the_example_of_rfc_7677():
    """PostgreSQL and others publish the keys of this password, which do not depend on nonces."""
    salt = base64.b64decode(RFC_7677[1])
    salted = salt_password(SHA_256, b"pencil", salt, 4096)
    assert base64.b64encode(salted) == b"xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0="


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["alice", "b=o,b", "größe"])
def test_a_client_by_the_letter_of_the_rfc(users, mechanism, name):
    login = exchange(users, mechanism)
    client = Client(name, PASSWORD, hash_name=mechanism.hash_name)
    client.check(login.evaluate(client.final(login.evaluate(client.first))))
    assert login.user == name


class KafkaPython:
    def __init__(self, name, password, sasl_name):
        self.client = ScramClient(name.replace("=", "=3D").replace(",", "=2C"), password, sasl_name)
        self.first = self.client.first_message()

    def final(self, server_first):
        self.client.process_server_first_message(server_first)
        return self.client.final_message()

    def check(self, server_final):
        self.client.process_server_final_message(server_final)


class Aiokafka:
    def __init__(self, name, password, sasl_name):
        conn = pytest.importorskip("aiokafka.conn", reason="aiokafka is not installed")
        self.client = conn.ScramAuthenticator(
            loop=None, sasl_plain_password=password, sasl_plain_username=name, sasl_mechanism=sasl_name
        )
        self.first = self.client.first_message().encode()

    def final(self, server_first):
        self.client.process_server_first_message(server_first.decode())
        return self.client.final_message().encode()

    def check(self, server_final):
        self.client.process_server_final_message(server_final.decode())


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@pytest.mark.parametrize("library", [KafkaPython, Aiokafka])
@settings(max_examples=25)
@given(
    name=NAMES,
    password=NAMES,
    wrong=NAMES,
    mechanism=st.sampled_from(ScramMechanism),
    iterations=st.integers(4096, 5000),
)
def test_other_peoples_clients_log_in_with_the_password_alone(
    library, name, password, wrong, mechanism, iterations
):
    """2 s."""
    users = Users(open_directory())
    users.set_password(name, password, iterations=iterations)
    login = exchange(users, mechanism)
    client = library(name, password, mechanism.sasl_name)
    client.check(login.evaluate(client.final(login.evaluate(client.first))))
    assert login.user == name
    if wrong != password:
        login = exchange(users, mechanism)
        client = library(name, wrong, mechanism.sasl_name)
        with pytest.raises(UsageError, match=f"^{INVALID}$"):
            login.evaluate(client.final(login.evaluate(client.first)))
        assert login.user is None


def test_the_nonce_of_an_older_librdkafka(users):
    """Before 2.6.1 it put its own nonce in front of the whole one."""
    login = exchange(users)
    client = Client("alice", PASSWORD)
    client.check(login.evaluate(client.final(login.evaluate(client.first), nonce_prefix=client.nonce)))
    assert login.user == "alice"


def test_extensions_are_part_of_what_is_proved(users):
    login = exchange(users)
    client = Client("alice", PASSWORD)
    client.bare += ",x=1,tokenauth=false"
    client.check(login.evaluate(client.final(login.evaluate(client.first), extensions=",ext=a b")))
    assert login.user == "alice"


def test_another_user_of_the_same_password_has_another_salt(users):
    salts = {
        users.scram_login(name, mechanism).credential.salt
        for name in users.names()
        for mechanism in ScramMechanism
    }
    assert len(salts) == 6


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "malformed"),
        (b"n,,n=alice", "malformed"),
        (b"n,,n=,r=abc", "malformed"),
        (b"n,,n=alice,r=", "malformed"),
        (b"n,,r=abc,n=alice", "malformed"),
        (b"n,,m=x,n=alice,r=abc", "malformed, or has an extension"),
        (b"n,,n=alice,r=a\x7f", "malformed"),
        (b"n,,n=ali\0ce,r=abc", "malformed"),
        (b"n,,n=alice,r=abc,", "malformed"),
        (b"n,,n=alice,r=abc\n", "malformed"),
        (b"y,,n=alice,r=abc", "no channel binding"),
        (b"p=tls-unique,,n=alice,r=abc", "no channel binding"),
        (b"n,a=bob,n=alice,r=abc", "rights of another user"),
        (b"n,a=,n=alice,r=abc", "malformed"),
        (b"n,,n=al=ice,r=abc", "bare '='"),
        (b"n,,n=al=2cice,r=abc", "bare '='"),
        (b"n,,n=alice,r=abc,tokenauth=true", "no delegation tokens"),
        (b"n,,n=alice,r=abc,x=1,tokenauth=yes", "no delegation tokens"),
        (b"n,,n=\xff,r=abc", "not UTF-8"),
    ],
)
def test_first_messages_that_are_refused(users, message, reason):
    with pytest.raises(UsageError, match=reason):
        exchange(users).evaluate(message)


def test_ones_own_rights_may_be_asked_for(users):
    login = exchange(users)
    client = Client("b=o,b", PASSWORD)
    client.header = "n,a=b=3Do=2Cb,"
    client.check(login.evaluate(client.final(login.evaluate(client.first))))
    assert login.user == "b=o,b"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.replace(b"c=biws", b"c=eSws"), "another header"),  # y,,
        (lambda m: m.replace(b",r=f", b",r=g"), "another nonce"),
        (lambda m: re.sub(rb",r=[^,]+", b",r=fyko+d2lbbFgONRv9qkxdawL", m), "another nonce"),
        (lambda m: m[: m.index(b",p=")], "malformed"),
        (lambda m: m + b",x=1", "malformed"),
        (lambda m: m[:-4], "not Base64|credentials"),
        (lambda m: m[: m.index(b",p=")] + b",p=AAAA", INVALID),
        (lambda m: m.replace(b"c=biws", b"c=b!ws"), "not Base64"),
        (lambda m: m.replace(b"c=biws", "c=bü".encode()), "not Base64"),
        (lambda m: b"", "malformed"),
        (lambda m: b"\xff", "not UTF-8"),
    ],
)
def test_second_messages_that_are_refused(users, change, reason):
    login = exchange(users)
    client = Client("alice", PASSWORD)
    with pytest.raises(UsageError, match=reason):
        login.evaluate(change(client.final(login.evaluate(client.first))))
    assert login.user is None


def test_each_bit_of_the_proof_counts(users):
    client = Client("alice", PASSWORD)
    for bit in range(0, 256, 17):
        login = exchange(users)
        message, _, proof = client.final(login.evaluate(client.first)).rpartition(b",p=")
        changed = bytearray(base64.b64decode(proof))
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(UsageError, match=INVALID):
            login.evaluate(message + b",p=" + base64.b64encode(changed))


@given(data=st.binary(max_size=80) | st.from_regex(rb"(n,,)?[nrcpam=,biws\x00-\x30]{0,40}", fullmatch=True))
def test_bytes_that_no_client_means(data):
    for decode in (decode_first, decode_final):
        try:
            decode(data)
        except UsageError:
            continue


def test_many_extensions_take_no_longer_than_their_bytes():
    """The patterns do not try each way to divide them: half a megabyte takes milliseconds."""
    many = b",x=1" * 100_000
    assert decode_first(b"n,,n=a,r=b" + many).name == "a"
    for message in (b"n,,n=a,r=b" + many + b",", b"n,,n=a,r=b" + many + b"\0"):
        with pytest.raises(UsageError):
            decode_first(message)
    with pytest.raises(UsageError):
        decode_final(b"c=biws,r=b" + many + b",p")


class TestUnknownUsers:
    """What a client is shown must not tell whether there is such a user."""

    def first_answer(self, users, name, mechanism=SHA_256):
        answer = exchange(users, mechanism).evaluate(Client(name, "x").first).decode()
        _, salt, iterations = answer.split(",")
        return len(base64.b64decode(salt[2:])), iterations, salt

    def test_a_login_goes_on_to_the_end(self, users):
        for name in ("mallory", "alice"):
            login = exchange(users)
            client = Client(name, "wrong")
            with pytest.raises(UsageError, match=f"^{INVALID}$"):
                login.evaluate(client.final(login.evaluate(client.first)))

    def test_the_salt_looks_like_others_and_stays_the_same(self, users):
        for mechanism in ScramMechanism:
            real = self.first_answer(users, "alice", mechanism)
            mocks = [self.first_answer(users, f"mallory-{each}", mechanism) for each in range(20)]
            assert {each[:2] for each in mocks} == {real[:2]}
            assert len({each[2] for each in mocks}) == 20
            assert mocks == [self.first_answer(users, f"mallory-{each}", mechanism) for each in range(20)]

    def test_it_stays_the_same_after_a_restart_and_with_more_users(self):
        directory = open_directory()
        users = Users(directory)
        users.set_password("alice", "x")
        shown = self.first_answer(users, "mallory")
        users.set_password("bob", "x")
        assert self.first_answer(users, "mallory") == shown
        assert self.first_answer(Users(directory), "mallory") == shown

    def test_users_of_kafkas_own_tools_are_imitated_too(self):
        """Their salts are digits and small letters, 25 or 26 of them."""
        users = Users(open_directory())
        for number in range(40):
            salt = f"{36**24 * (number + 1):x}"[:24].encode() + b"z" * (1 + number % 2)
            users.alter((), (Upsertion(f"u{number}", 1, 4096, salt, b"x" * 32),))
        mocks = [users.scram_login(f"m{each}", SHA_256).credential for each in range(200)]
        assert {len(each.salt) for each in mocks} == {25, 26}
        assert all(re.fullmatch(rb"[0-9a-z]+", each.salt) for each in mocks)
        assert len({each.salt for each in mocks}) == 200

    def test_a_user_of_the_other_mechanism_is_unknown_here(self):
        users = Users(open_directory())
        salted = salt_password(SHA_512, b"x", b"salt", 4096)
        users.alter((), (Upsertion("alice", SHA_512, 4096, b"salt", salted),))
        login = exchange(users, SHA_256)
        client = Client("alice", "x")
        with pytest.raises(UsageError, match=INVALID):
            login.evaluate(client.final(login.evaluate(client.first)))

    def test_the_keys_of_a_mock_cannot_be_guessed_from_its_salt(self, users):
        """They come from a secret, so that they cannot be computed from what clients see."""
        one, other = (Users(open_directory()).scram_login("m", SHA_256).credential for _ in range(2))
        assert one.iterations == other.iterations
        assert (
            len({one.salt, other.salt, one.stored_key, other.stored_key, one.server_key, other.server_key})
            == 6
        )

    def test_even_who_knows_the_keys_of_a_mock_is_nobody(self, monkeypatch):
        users = Users(open_directory())
        users.set_password("alice", PASSWORD)
        known = users.scram_login("alice", SHA_256)
        monkeypatch.setattr(
            "logstore.wire.security.users.mock_credential", lambda *_: (known.mechanism, known.credential)
        )
        login = exchange(users)
        client = Client("mallory", PASSWORD)
        with pytest.raises(UsageError, match=INVALID):
            login.evaluate(client.final(login.evaluate(client.first)))
        assert login.user is None
        assert not users.is_password("mallory", PASSWORD.encode())
        assert users.is_password("alice", PASSWORD.encode())


def test_secrets_are_not_shown(users):
    for text in (repr(users._known.stored), repr(users.scram_login("alice", SHA_256).credential)):
        assert "salt" not in text
        assert "key" not in text
