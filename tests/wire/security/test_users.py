"""Users: what may be set, what Kafka's tools may ask for, and the file."""

import json
import os
import stat
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.broker.codes import ErrorCode
from logstore.errors import ClosedError, CorruptionError, StorageError, UnsupportedVersionError, UsageError
from logstore.files import OsFiles
from logstore.logdir.directory import LogDirectory
from logstore.logdir.users import (
    USERS_FILE,
    ScramCredential,
    ScramMechanism,
    StoredUsers,
    decode_users,
    encode_users,
    read_users,
)
from logstore.testing import FAULTS, CrashError, FaultyFiles, ManualClock, MemoryFiles, explore
from logstore.wire.messages.security.alter_user_scram_credentials import Deletion, Upsertion
from logstore.wire.security.hashing import salt_password
from logstore.wire.security.users import Users
from tests.wire.security.rig import open_directory

SHA_256, SHA_512 = ScramMechanism
SALTED = salt_password(SHA_256, b"x", b"salt", 4096)


@pytest.fixture
def users():
    return Users(open_directory())


def upsertion(name, mechanism=1, iterations=4096, salt=b"salt", salted=SALTED):
    return Upsertion(name, mechanism, iterations, salt, salted)


class TestPeople:
    def test_passwords_are_set_changed_and_removed(self, users):
        users.set_password("bob", "b")
        users.set_password("alice", "a")
        assert users.names() == ["alice", "bob"]
        users.set_password("alice", "c")
        assert users.is_password("alice", b"c")
        assert not users.is_password("alice", b"a")
        assert users.is_password("bob", b"b")
        users.remove("bob")
        assert users.names() == ["alice"]
        assert not users.is_password("bob", b"b")

    def test_they_are_there_after_a_restart(self):
        directory = open_directory()
        Users(directory).set_password("alice", "a")
        assert Users(directory).is_password("alice", b"a")

    @pytest.mark.parametrize("name", ["", "a\0b", 7, None, "x" * 32_768, "\ud800"])
    def test_names_that_are_none(self, users, name):
        for call in (lambda: users.set_password(name, "x"), lambda: users.remove(name)):
            with pytest.raises(UsageError, match="the name of a user is"):
                call()
        assert users.names() == []

    @pytest.mark.parametrize("password", ["", "a\0b", b"bytes", None, 7, "\ud800"])
    def test_passwords_that_are_none_are_not_shown(self, users, password):
        with pytest.raises(UsageError, match="the password") as caught:
            users.set_password("alice", password)
        assert "\\ud800" not in str(caught.value)
        assert "bytes" not in str(caught.value).replace("is a bytes", "")

    @pytest.mark.parametrize("iterations", [0, 4095, 16_385, 4096.0, True, None])
    def test_iterations_that_kafka_refuses(self, users, iterations):
        with pytest.raises(UsageError, match="iterations"):
            users.set_password("alice", "x", iterations=iterations)

    def test_removing_what_is_not_there(self, users):
        users.set_password("alice", "x")
        with pytest.raises(UsageError, match="no user 'alcie'; did you mean 'alice'"):
            users.remove("alcie")

    def test_a_closed_store(self):
        directory = open_directory()
        users = Users(directory)
        directory.close()
        with pytest.raises(ClosedError):
            users.set_password("alice", "x")


class TestTools:
    """KIP-554."""

    def altered(self, users, deletions=(), upsertions=()):
        return {each.name: each.code for each in users.alter(deletions, upsertions)}

    def test_credentials_are_set_and_deleted(self, users):
        salted = salt_password(SHA_512, b"x", b"salt", 5000)
        more = upsertion("alice", 2, 5000, salted=salted)
        assert self.altered(users, (), (upsertion("alice"), more)) == {"alice": ErrorCode.NONE}
        assert users.described() == {"alice": {SHA_256: 4096, SHA_512: 5000}}
        assert users.is_password("alice", b"x")
        assert self.altered(users, (Deletion("alice", 1),)) == {"alice": ErrorCode.NONE}
        assert users.described() == {"alice": {SHA_512: 5000}}
        assert self.altered(users, (Deletion("alice", 2),)) == {"alice": ErrorCode.NONE}
        assert users.names() == []

    @pytest.mark.parametrize(
        ("deletions", "upsertions", "code"),
        [
            ((Deletion("alice", 1),), (), ErrorCode.RESOURCE_NOT_FOUND),
            ((Deletion("bob", 2),), (), ErrorCode.RESOURCE_NOT_FOUND),
            ((Deletion("bob", 0),), (), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            ((Deletion("bob", 3),), (), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            ((Deletion("", 1),), (), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ((), (upsertion(""),), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ((), (upsertion("alice", 3),), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            ((), (upsertion("alice", iterations=4095),), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ((), (upsertion("alice", iterations=16_385),), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ((), (upsertion("alice", salt=b""),), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ((), (upsertion("alice", salt=b"x" * 1025),), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ((), (upsertion("alice", salted=b""),), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ((), (upsertion("alice"), upsertion("alice")), ErrorCode.DUPLICATE_RESOURCE),
            ((Deletion("bob", 1),), (upsertion("bob"),), ErrorCode.DUPLICATE_RESOURCE),
            ((Deletion("bob", 1), Deletion("bob", 1)), (), ErrorCode.DUPLICATE_RESOURCE),
            (
                (),
                (upsertion("alice"), upsertion("alice", 2, iterations=1)),
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
            ),
        ],
    )
    def test_what_is_wrong_of_a_user_changes_nothing_of_it(self, users, deletions, upsertions, code):
        users.alter((), (upsertion("bob"),))
        before = users.described()
        (wrong,) = self.altered(users, deletions, upsertions).items()
        assert wrong[1] is code
        assert users.described() == before
        beside = self.altered(users, deletions, (*upsertions, upsertion("carol")))
        assert beside == {wrong[0]: code, "carol": ErrorCode.NONE}
        assert users.described() == {**before, "carol": {SHA_256: 4096}}

    def test_a_disk_that_refuses(self):
        files = FaultyFiles(MemoryFiles())
        users = Users(open_directory(files))
        users.alter((), (upsertion("alice"),))
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="users.json")
        outcome = self.altered(users, (Deletion("bob", 1),), (upsertion("carol"),))
        assert outcome == {"bob": ErrorCode.RESOURCE_NOT_FOUND, "carol": ErrorCode.KAFKA_STORAGE_ERROR}
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="users.json")
        with pytest.raises(StorageError):
            users.set_password("carol", "x")
        assert users.names() == ["alice"]
        assert self.altered(users, (), (upsertion("carol"),)) == {"carol": ErrorCode.NONE}

    def test_nothing_is_written_if_nothing_changes(self):
        files = MemoryFiles()
        users = Users(open_directory(files))
        users.alter((), (upsertion("alice"),))
        written = len(files.trace)
        users.alter((Deletion("bob", 1),), (upsertion("alice"),))
        assert len(files.trace) == written


# The file

bytes_of = st.binary
credentials = st.fixed_dictionaries(
    {},
    optional={
        mechanism: st.builds(
            ScramCredential,
            iterations=st.integers(4096, 16_384),
            salt=bytes_of(min_size=1, max_size=40),
            stored_key=bytes_of(min_size=size, max_size=size),
            server_key=bytes_of(min_size=size, max_size=size),
        )
        for mechanism, size in ((SHA_256, 32), (SHA_512, 64))
    },
).filter(bool)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=9)


class TestFile:
    @given(
        users=st.builds(StoredUsers, bytes_of(min_size=32, max_size=32), st.dictionaries(names, credentials))
    )
    @settings(max_examples=50)
    def test_it_holds_what_was_set(self, users):
        assert decode_users(encode_users(users)) == users

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda content: content.update(version=True), "has no version"),
            (lambda content: content.pop("users"), "no list of users"),
            (lambda content: content.pop("mock_key"), "has no mock_key"),
            (lambda content: content.update(mock_key="AAAA"), "a mock_key of 3 bytes"),
            (lambda content: content["users"].append(5), "user 1: has no credentials"),
            (lambda content: content["users"].append(content["users"][0]), "the user 'alice' twice"),
            (lambda content: content["users"][0].pop("name"), "user 0: the name of a user is None"),
            (lambda content: content["users"][0].update(credentials={}), "user 0: has no credentials"),
            (
                lambda content: content["users"][0].update(credentials={"PLAIN": {}}),
                "unknown mechanism 'PLAIN'",
            ),
            (lambda content: credential(content).pop("iterations"), "has no iterations"),
            (lambda content: credential(content).update(iterations=1), "1 iterations; 4096 to"),
            (lambda content: credential(content).update(salt=""), "a salt of 0 bytes"),
            (lambda content: credential(content).update(salt="é"), "has no salt, or one that is not Base64"),
            (lambda content: credential(content).update(stored_key="AAAA"), "a key of 3 bytes"),
            (lambda content: credential(content).update(server_key=None), "has no server_key"),
        ],
    )
    def test_damage_is_named(self, change, message):
        key = "A" * 43 + "="
        good = {"iterations": 4096, "salt": "AAAA", "stored_key": key, "server_key": key}
        user = {"name": "alice", "credentials": {"SCRAM-SHA-256": good}}
        content = {"version": 1, "mock_key": key, "users": [user]}
        assert list(decode_users(json.dumps(content).encode()).credentials) == ["alice"]
        change(content)
        with pytest.raises(CorruptionError, match=message):
            decode_users(json.dumps(content).encode())

    @pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"[]", b"null", b"\xff"])
    def test_what_is_no_json_or_no_object(self, data):
        with pytest.raises(CorruptionError, match=r"is not JSON|has no version"):
            decode_users(data)

    def test_a_newer_version_is_refused(self):
        with pytest.raises(UnsupportedVersionError, match="version 2; only 1"):
            decode_users(b'{"version": 2, "users": []}')

    def test_a_damaged_file_lets_nobody_in_and_says_what_to_do(self):
        """Also not everybody: without it a listener cannot begin."""
        files = MemoryFiles()
        directory = open_directory(files)
        Users(directory).set_password("alice", "x")
        file = files.open("/data/users.json", write=True)
        file.truncate(10)
        with pytest.raises(CorruptionError, match=r"Restore the file, or move it away.*users\.json"):
            Users(directory)

    def test_a_file_that_may_not_be_read_is_not_taken_for_none(self):
        files = FaultyFiles(MemoryFiles())
        directory = open_directory(files)
        Users(directory).set_password("alice", "x")
        files.fail(FAULTS["EACCES"], kinds=["open"], path="users.json")
        with pytest.raises(StorageError, match="this process's user needs the permission"):
            Users(directory)

    def test_too_many_are_refused_and_leave_the_file(self, monkeypatch):
        small = replace(USERS_FILE, limit_bytes=1000)
        monkeypatch.setattr("logstore.wire.security.users.USERS_FILE", small)
        users = Users(open_directory())
        users.set_password("alice", "x")
        with pytest.raises(UsageError, match=r"users\.json would have \d+ bytes; 1000 are allowed"):
            users.set_password("bob", "x")
        assert users.names() == ["alice"]


def credential(content):
    return content["users"][0]["credentials"]["SCRAM-SHA-256"]


class TestMode:
    """Only the owner may read the file."""

    @pytest.fixture
    def path(self, tmp_path):
        with logstore.open(tmp_path / "s"):
            pass
        return tmp_path / "s"

    def mode(self, path):
        return stat.S_IMODE(os.stat(path).st_mode)

    @pytest.mark.parametrize("umask", [0, 0o022])
    def test_whatever_the_mask_and_what_was_there(self, path, umask):
        for name in ("users.json", "users.json.tmp"):
            (path / name).write_bytes(b"")
            (path / name).chmod(0o644)
        (path / "users.json").unlink()
        before = os.umask(umask)
        try:
            directory = LogDirectory(str(path))
            Users(directory).set_password("alice", "x")
            assert self.mode(path / "users.json") == 0o600
            directory.close()
        finally:
            os.umask(before)

    def test_others_who_may_read_it_are_warned_of(self, path, caplog):
        directory = LogDirectory(str(path))
        Users(directory).set_password("alice", "x")
        read_users(OsFiles(), str(path))
        assert caplog.text == ""
        (path / "users.json").chmod(0o640)
        Users(directory)
        assert "can be read by other users of this machine" in caplog.text
        directory.close()

    def test_a_backup_has_the_users_as_private_as_they_were(self, path, tmp_path):
        directory = LogDirectory(str(path))
        Users(directory).set_password("alice", "x")
        directory.close()
        with logstore.open(path) as store:
            store.backup(tmp_path / "b")
            store.backup(tmp_path / "b")
        assert self.mode(tmp_path / "b" / "users.json") == 0o600
        copy = LogDirectory(str(tmp_path / "b"))
        assert Users(copy).is_password("alice", b"x")
        copy.close()

    def test_verify_and_backup_tell_of_damage(self, path, tmp_path):
        (path / "users.json").write_bytes(b"{")
        (path / "acls.json").write_bytes(b"{}")
        with logstore.open(path) as store:
            found = [os.path.basename(finding.path) for finding in store.verify().problems]
            assert found == ["users.json", "acls.json"]
            with pytest.raises(CorruptionError, match=r"users\.json"):
                store.backup(tmp_path / "b")
            report = store.backup(tmp_path / "b", accept_damage=True)
            assert len(report.damaged) == 2


class Changes:
    """A program that changes a password, and notes before and after each change what it is to be."""

    def session(self, files, said, rng):
        directory = LogDirectory("/s", files=files, clock=ManualClock())
        users = Users(directory)
        for _ in range(3):
            name = f"u{rng.randrange(10**6)}"
            files.note(("begin", name))
            for old in users.names():
                users.alter(tuple(Deletion(old, each) for each in ScramMechanism), ())
            users.set_password(name, "x", iterations=4096)
            files.note(("done", name))
        directory.close()

    def check(self, files, said):
        done = [name for word, name in said if word == "done"][-1:]
        begun = [name for word, name in said[-1:] if word == "begin"]
        if said:
            directory = LogDirectory("/s", files=files, clock=ManualClock())
            found = Users(directory).names()
            directory.close()
            assert found in ([done, [], begun] if begun else [done])


def test_a_power_cut_leaves_the_users_before_the_change_or_after_it():
    assert explore(Changes(), seed=1, max_states=100).state_count >= 30


def test_a_change_that_is_not_durable_is_noticed(monkeypatch):
    monkeypatch.setattr(MemoryFiles, "flush_directory", lambda self, path: None)
    with pytest.raises(CrashError):
        explore(Changes(), seed=1, max_states=100)
