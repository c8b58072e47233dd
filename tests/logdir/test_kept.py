"""What a small file of a store says, alone and as a node's copy of what a cluster has."""

import json
import threading

import pytest

from logstore.errors import ClosedError, CorruptionError, RetriableError, StorageError, UsageError
from logstore.files import read_small_file, write_small_file
from logstore.logdir.directory import LogDirectory
from logstore.logdir.kept import Kept
from logstore.logdir.quotas import QUOTAS_FILE, QuotaEntity, decode_quotas, encode_quotas
from logstore.logdir.users import ScramCredential, ScramMechanism, StoredUsers, encode_users
from logstore.logdir.verify import verify_store_files
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles, explore
from logstore.wire.security.users import Users, kept_users

PATH = "/data/quotas.json"
BESIDE = PATH + ".replaced"


def quotas_of(**rates):
    return {QuotaEntity(user): {"producer_byte_rate": rate} for user, rate in rates.items()}


def with_rate(user, rate):
    return lambda quotas: {**quotas, **quotas_of(**{user: rate})}


class Cluster:
    """What nodes have in common, in memory."""

    def __init__(self, data=None):
        self.data, self.version, self.tries = data, -1 if data is None else 0, 1
        self.refusal = None

    def replace(self, change):
        if self.refusal is not None:
            raise self.refusal
        for _ in range(self.tries):
            changed = change(self.data)
        if changed != self.data:
            self.data, self.version = changed, self.version + 1
        return self.data, self.version


class Rig:
    def __init__(self, files=None):
        self.files = files or MemoryFiles()
        self.directory = LogDirectory("/data", files=self.files, clock=ManualClock(), seed=1)
        self.used = []

    def kept(self, shared=None):
        made = Kept(self.directory, QUOTAS_FILE, {}, self.used.append)
        made.load()
        if shared is not None:
            made.share(shared, "c")
        return made

    def stored(self, path=PATH):
        data = read_small_file(self.files, path, 1 << 20)
        return None if data is None else decode_quotas(data)

    def is_copy(self):
        return json.loads(read_small_file(self.files, PATH, 1 << 20)).get("copy_of") == "c"


@pytest.fixture
def rig():
    return Rig(FaultyFiles(MemoryFiles()))


# Alone


def test_a_change_is_written_before_it_is_used(rig):
    kept = rig.kept()
    assert (kept.value, rig.used, rig.stored()) == ({}, [], None)
    kept.change(with_rate("alice", 1))
    assert kept.value == rig.stored() == rig.used[-1] == quotas_of(alice=1)
    rig.files.fail(FAULTS["ENOSPC"], kinds=["write"], path="quotas.json")
    with pytest.raises(StorageError):
        kept.change(with_rate("bob", 2))
    assert kept.value == rig.stored() == rig.used[-1] == quotas_of(alice=1)
    assert rig.kept().value == quotas_of(alice=1)
    rig.directory.close()
    with pytest.raises(ClosedError):
        kept.change(with_rate("bob", 2))


# In a cluster


def test_a_change_goes_to_the_cluster_first_and_is_computed_on_the_newest(rig):
    cluster = Cluster(encode_quotas(quotas_of(bob=2)))
    kept = rig.kept(cluster)
    cluster.tries = 3
    kept.change(with_rate("alice", 1))
    both = quotas_of(alice=1, bob=2)
    assert decode_quotas(cluster.data) == kept.value == rig.stored() == both
    assert rig.is_copy()
    cluster.refusal = RetriableError("away")
    with pytest.raises(RetriableError):
        kept.change(with_rate("carol", 3))
    assert kept.value == rig.stored() == both


def test_an_older_one_is_passed_over(rig):
    cluster = Cluster()
    kept = rig.kept(cluster)
    kept.change(with_rate("alice", 1))
    first = cluster.data, cluster.version
    kept.change(with_rate("alice", 2))
    kept.take(*first)
    assert kept.value == rig.stored() == quotas_of(alice=2)
    kept.forget_version()  # somebody has removed it from the cluster
    kept.take(*first)
    assert kept.value == rig.stored() == quotas_of(alice=1)


def test_a_disk_that_refuses_holds_up_nothing_and_gets_its_copy_later(rig, caplog):
    """The cluster has the change, and other nodes go by it already."""
    cluster = Cluster()
    kept = rig.kept(cluster)
    kept.change(with_rate("alice", 1))
    rig.files.fail(FAULTS["ENOSPC"], kinds=["write"], path="quotas.json", times=2)
    kept.change(with_rate("alice", 2))
    kept.write_copy()
    assert rig.stored() == quotas_of(alice=1)
    assert kept.value == rig.used[-1] == quotas_of(alice=2)
    assert len([each for each in caplog.records if "is older than what the cluster has" in each.message]) == 1
    kept.write_copy()
    assert rig.stored() == quotas_of(alice=2)
    rig.files.fail(FAULTS["ENOSPC"], kinds=["write"])
    kept.write_copy()
    assert len(caplog.records) == 1, "nothing is written again"


def test_what_the_cluster_has_in_a_form_that_nobody_knows_changes_nothing(rig):
    kept = rig.kept(Cluster(b"{"))
    with pytest.raises(CorruptionError):
        kept.take(b"{", 5)
    with pytest.raises(CorruptionError):
        kept.change(with_rate("alice", 1))
    kept.take(encode_quotas(quotas_of(bob=2)), 4)
    assert kept.value == rig.stored() == quotas_of(bob=2)


# A store of its own in a cluster


def test_a_cluster_that_has_nothing_is_given_what_the_store_has(rig):
    kept = rig.kept()
    kept.change(with_rate("alice", 1))
    cluster = Cluster()
    kept.share(cluster, "c")
    assert not rig.is_copy()
    kept.give(is_first=True)
    assert decode_quotas(cluster.data) == quotas_of(alice=1)
    assert rig.is_copy()
    assert rig.stored(BESIDE) is None
    other, empty = Rig(), Cluster()
    other.kept(empty).give(is_first=True)
    assert decode_quotas(empty.data) == {}, "a store without the file has nothing to give"


def test_who_comes_later_brings_nothing_into_a_cluster_that_has_nothing(rig, caplog):
    kept = rig.kept()
    kept.change(with_rate("mallory", 1))
    cluster = Cluster()
    kept.share(cluster, "c")
    kept.give(is_first=False)
    assert decode_quotas(cluster.data) == kept.value == rig.stored() == {}
    assert rig.stored(BESIDE) == quotas_of(mallory=1)
    assert "users/mallory" in caplog.text


def test_what_was_removed_alone_is_told_when_it_is_back_and_each_file_is_kept(rig, caplog):
    cluster = Cluster(encode_quotas(quotas_of(alice=1)))
    for number, beside in enumerate((BESIDE, f"{BESIDE}-2", f"{BESIDE}-3"), 1):
        rig.kept(cluster).take(cluster.data, cluster.version)
        rig.kept().change(lambda _, number=number: quotas_of(bob=number))
        caplog.clear()
        rig.kept(cluster).take(cluster.data, cluster.version)
        assert rig.stored() == quotas_of(alice=1)
        assert rig.stored(beside) == quotas_of(bob=number)
        assert "users/alice, users/bob" in caplog.text
    rig.kept().change(lambda _: {})
    caplog.clear()
    rig.kept(cluster).take(cluster.data, cluster.version)
    assert "in users/alice. The cluster's counts" in caplog.text


def test_a_change_before_anything_was_given_takes_along_what_the_store_has(rig):
    kept = rig.kept()
    kept.change(with_rate("alice", 1))
    cluster = Cluster()
    kept.share(cluster, "c")
    kept.change(with_rate("bob", 2))
    assert decode_quotas(cluster.data) == quotas_of(alice=1, bob=2)


@pytest.mark.parametrize("way", ["take", "give", "change"])
def test_a_file_that_says_something_else_is_kept_beside(rig, caplog, way):
    kept = rig.kept()
    own = quotas_of(**{f"user{number}": 1 for number in range(7)}, bob=2)
    kept.change(lambda _: own)
    cluster = Cluster(encode_quotas(quotas_of(bob=2)))
    kept.share(cluster, "c")
    if way == "take":
        kept.take(cluster.data, cluster.version)
    elif way == "give":
        kept.give(is_first=True)
    else:
        kept.change(lambda quotas: quotas)
    assert decode_quotas(cluster.data) == kept.value == rig.stored() == quotas_of(bob=2)
    assert rig.stored(BESIDE) == own
    (said,) = [each.getMessage() for each in caplog.records]
    assert "users/user0, users/user1, users/user2, users/user3, users/user4 and 2 more" in said
    assert said.endswith(f"is kept as {BESIDE}")
    assert verify_store_files(rig.directory).is_sound


def test_a_file_is_not_lost_if_it_cannot_be_kept_beside(rig, caplog):
    kept = rig.kept()
    kept.change(with_rate("alice", 1))
    cluster = Cluster(encode_quotas(quotas_of(bob=2)))
    kept.share(cluster, "c")
    rig.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".replaced")
    kept.take(cluster.data, cluster.version)
    assert kept.value == quotas_of(bob=2)
    assert rig.stored() == quotas_of(alice=1)
    kept.change(with_rate("bob", 3))
    assert rig.stored() == quotas_of(bob=3)
    assert rig.stored(BESIDE) == quotas_of(alice=1)


def test_nothing_is_kept_beside_that_the_cluster_has_or_had(rig, caplog):
    kept = rig.kept()
    cluster = Cluster(encode_quotas(quotas_of(alice=1, bob=2)))
    kept.share(cluster, "c")
    kept.take(cluster.data, cluster.version)
    again = rig.kept(Cluster())
    assert again.value == quotas_of(alice=1, bob=2)
    again.take(encode_quotas({}), 7)
    assert rig.stored() == {}
    assert rig.stored(BESIDE) is None
    assert not caplog.records


class Joining:
    """A store with something of its own becomes a node of a cluster that has something else."""

    OWN, THEIRS = quotas_of(alice=1), quotas_of(bob=2)

    def session(self, files, said, rng):
        rig = Rig(files)
        rig.kept().change(lambda _: self.OWN)
        files.note("own")
        kept = rig.kept(Cluster())
        kept.take(encode_quotas(self.THEIRS), 0)
        files.note("taken")
        rig.directory.close()

    def check(self, files, said):
        if not said:
            return
        rig = Rig(files)
        present, beside = rig.stored(), rig.stored(BESIDE)
        assert (present, beside) in ((self.OWN, None), (self.OWN, self.OWN), (self.THEIRS, self.OWN))
        assert "taken" not in said or present == self.THEIRS
        assert rig.kept()._copy == (("c", 0) if present == self.THEIRS else None)
        rig.directory.close()


def test_a_power_cut_never_takes_what_a_store_had_of_its_own():
    assert explore(Joining(), seed=1, max_states=100).state_count >= 10


@pytest.mark.parametrize(("cluster_id", "version"), [("c", 6), ("another", 8)])
def test_what_the_cluster_has_lost_is_kept_beside(rig, caplog, cluster_id, version):
    """It is an older one than the node knew, or another cluster."""
    rig.kept(Cluster()).take(encode_quotas(quotas_of(alice=1)), 7)
    kept = rig.kept()
    kept.share(Cluster(), cluster_id)
    kept.take(encode_quotas(quotas_of(bob=2)), version)
    assert rig.stored() == quotas_of(bob=2)
    assert rig.stored(BESIDE) == quotas_of(alice=1)
    assert "users/alice" in caplog.text


def test_a_change_that_was_made_alone_makes_the_file_the_stores_own_again(rig, caplog):
    cluster = Cluster(encode_quotas(quotas_of(bob=2)))
    rig.kept(cluster).take(cluster.data, cluster.version)
    rig.kept().change(with_rate("alice", 1))
    rig.kept(cluster).take(cluster.data, cluster.version)
    assert rig.stored(BESIDE) == quotas_of(alice=1, bob=2)
    assert "users/alice" in caplog.text


@pytest.mark.damaged
def test_a_damaged_file_is_not_given_and_is_kept_beside(rig, caplog):
    write_small_file(rig.files, PATH, b"{")
    kept = Kept(rig.directory, QUOTAS_FILE, {}, rig.used.append)
    with pytest.raises(CorruptionError):
        kept.load()
    cluster = Cluster()
    kept.share(cluster, "c")
    kept.give(is_first=True)
    with pytest.raises(CorruptionError, match="Restore the file, or move it away"):
        kept.change(with_rate("alice", 1))
    assert cluster.data is None
    kept.take(encode_quotas(quotas_of(bob=2)), 0)
    assert rig.stored() == quotas_of(bob=2)
    assert read_small_file(rig.files, BESIDE, 100) == b"{"
    assert "what cannot be read" in caplog.text


def test_a_login_waits_for_nobody_while_the_cluster_is_asked(rig):
    """Nor does what the cluster tells of meanwhile."""
    asked, answered = threading.Event(), threading.Event()

    class Slow(Cluster):
        def replace(self, change):
            asked.set()
            answered.wait(20)
            return super().replace(change)

    users = Users(rig.directory)
    users.set_password("alice", "a")
    kept = kept_users(users)
    kept.share(slow := Slow(), "c")
    thread = threading.Thread(target=users.set_password, args=("bob", "b"))
    thread.start()
    asked.wait(20)
    assert users.is_password("alice", b"a")
    credential = ScramCredential(4096, b"salt", bytes(32), bytes(32))
    slow.data = encode_users(StoredUsers(bytes(32), {"carol": {ScramMechanism.SHA_256: credential}}))
    slow.version = 3
    kept.take(slow.data, 3)
    assert users.names() == ["carol"]
    answered.set()
    thread.join()
    assert users.names() == ["bob", "carol"]


def test_what_the_cluster_refuses_for_its_size_is_a_usage_error(rig):
    cluster = Cluster()
    kept = rig.kept(cluster)
    cluster.refusal = UsageError("too large")
    with pytest.raises(UsageError, match="too large"):
        kept.change(with_rate("alice", 1))
    assert rig.stored() is None
