"""A follower of one leader, and its promotion."""

from __future__ import annotations

import time
from functools import partial

import pytest

import logstore
from logstore import TopicConfig, bridge, replica
from logstore.connected import Sasl
from logstore.errors import (
    ClosedError,
    DiskFullError,
    RetriableError,
    StorageError,
    UnknownTopicError,
    UsageError,
)
from logstore.logdir.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from logstore.logdir.followed import Followed, read_followed
from logstore.model import Isolation, ProducerIdentity, Role, TopicPartition
from logstore.partition.log import Log
from logstore.partition.state.leader_epochs import EPOCHS_ELSEWHERE
from logstore.partition.writing.core import LogCore
from logstore.replica import promotion
from logstore.replica import standby as standby_module
from logstore.replica.coordination.files import FileCoordinator
from tests.replica.node.cluster import Cluster

NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("logstore.bridge.pull_topics.REFRESH_MS", 50)


@pytest.fixture
def leader(tmp_path):
    with logstore.open(tmp_path / "leader") as store:
        store.create_topic("t", partitions=2)
        store["t"][0].extend([b"1", b"2"])
        yield store


@pytest.fixture
def copy(tmp_path):
    with logstore.open(tmp_path / "copy") as store:
        yield store


def eventually(check):
    deadline = time.monotonic() + 20
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


def values(store, topic, partition=0):
    return [record.value for record in store[topic][partition].read()] if topic in store else None


def test_all_topics_are_followed_also_those_that_come(leader, copy):
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        leader["t"][0].append(b"3")
        eventually(lambda: values(copy, "t") == [b"1", b"2", b"3"])
        leader.create_topic("u")
        leader["u"][0].append(b"4")
        with leader.producer() as producer:
            producer.send("u", value=b"5")
        eventually(lambda: values(copy, "u") == [b"4", b"5"])
        assert set(copy) == {"t", "u"}
        assert {each.position for each in standby.progress.partitions} == {0, 2, 3}


def test_a_copy_that_has_just_begun_does_not_look_complete(leader, copy):
    """Nothing is left of a partition that was not looked at yet."""
    leader.create_topic("many", partitions=20)
    for log in leader["many"]:
        log.append(b"x")
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        deadline = time.monotonic() + 20
        while (progress := standby.progress).trouble is not None or progress.lag:
            assert time.monotonic() < deadline, progress
        assert sum(log.log_end_offset for topic in copy.values() for log in topic) == 22


def test_a_promoted_copy_goes_on_in_an_epoch_of_its_own(leader, copy):
    with leader.listen() as listener:
        standby = replica.follow(copy, listener.address, topics=["t"])
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        log = copy["t"][0]
        with pytest.raises(UsageError, match="copy of a leader"), copy.producer() as producer:
            producer.send("t", value=b"no", partition=0).result()
    began = time.monotonic()
    assert standby.promote() == ["t"]
    assert time.monotonic() - began < 10, "it waits for no answer of a leader that is gone"
    assert standby.failure is None
    assert log.role is Role.ALONE
    with copy.producer() as producer:
        producer.send("t", value=b"3", partition=0).result()
    assert values(copy, "t") == [b"1", b"2", b"3"]
    epochs = [record.leader_epoch for record in log.read()]
    assert epochs[-1] - epochs[-2] == EPOCHS_ELSEWHERE, "the leader may have begun some that were not copied"
    with pytest.raises(ClosedError, match="promoted before"):
        standby.promote()
    standby.close()


def _is_copied(store, leader):
    return values(store, "t") == values(leader, "t")


def test_who_followed_goes_on_after_a_reopen(leader, tmp_path):
    with leader.listen() as listener:
        for number in range(3, 6):
            with logstore.open(tmp_path / "copy") as store, replica.follow(store, listener.address):
                leader["t"][0].append(b"%d" % number)
                eventually(partial(_is_copied, store, leader))


def test_a_topic_that_is_deleted_at_the_leader_stays(leader, copy, caplog):
    leader.create_topic("gone")
    leader["gone"][0].append(b"here")
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: values(copy, "gone") == [b"here"])
        leader.delete_topic("gone")
        eventually(lambda: "was deleted at the cluster" in caplog.text)
        leader["t"][1].append(b"on")
        eventually(lambda: values(copy, "t", 1) == [b"on"])
        assert values(copy, "gone") == [b"here"]
        assert standby.failure is None


def test_why_it_copies_no_more(leader, copy):
    copy.create_topic("t", partitions=2)
    copy["t"][0].append(b"its own")
    with leader.listen() as listener, replica.follow(copy, listener.address, topics=["t"]) as standby:
        assert isinstance(eventually(lambda: standby.failure), UsageError)
        assert values(copy, "t") == [b"its own"]


def test_two_do_not_copy_the_same(leader, copy):
    leader.create_topic("u")
    with leader.listen() as listener:
        address = listener.address
        for one, two in (None, None), (None, ["t"]), (["t"], None), (["t", "u"], ["u"]):
            with replica.follow(copy, address, topics=one) as first:
                with pytest.raises(UsageError, match=r"close\(\) it first"):
                    replica.follow(copy, NOBODY, address, topics=two)
                eventually(lambda: first.progress.partitions)
        with replica.follow(copy, address, topics=["t"]), replica.follow(copy, address, topics=["u"]):
            eventually(lambda: "u" in copy and values(copy, "t") == [b"1", b"2"])
        first = replica.follow(copy, address, topics=["t"])
        first.promote()
        with replica.follow(copy, address), replica.follow(copy, NOBODY):  # those of another leader
            pass


@pytest.mark.parametrize("topics", [(), ["__consumer_offsets"]])
def test_topics_that_cannot_be_followed(copy, topics):
    with pytest.raises(UsageError):
        replica.follow(copy, "127.0.0.1:1", topics=topics)


def copied(leader, copy, topics=None):
    """The address of a leader that was copied."""
    with leader.listen() as listener, replica.follow(copy, listener.address, topics=topics) as standby:
        names = topics or list(leader)
        eventually(lambda: {each.partition.topic for each in standby.progress.partitions} == set(names))
        eventually(lambda: all(values(copy, name) == values(leader, name) for name in names))
        eventually(lambda: all(log.role is Role.FOLLOWER for name in names for log in copy[name]))
        return listener.address


# Promotion --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anew", [False, True])
def test_what_a_leader_has_lost_is_promoted(leader, copy, tmp_path, caplog, anew):
    """It has lost its disk, and is back at its address with nothing: the case that a standby is for."""
    address = copied(leader, copy)
    if anew:
        copied(leader, copy)
    listener = leader.listen(address)
    standby = replica.follow(copy, address)
    eventually(lambda: len(standby.progress.partitions) == 2)
    listener.close()
    with logstore.open(tmp_path / "empty") as empty, empty.listen(address):
        if anew:
            standby.close()
            standby = replica.follow(copy, address)
        else:
            eventually(lambda: "was deleted at the cluster" in caplog.text)
        assert standby.promote() == ["t"]
    assert {log.role for log in copy["t"]} == {Role.ALONE}
    copy["t"][0].append(b"own")
    assert values(copy, "t") == [b"1", b"2", b"own"]


def test_a_leader_that_is_dead_is_followed_and_the_copy_promoted(leader, copy, caplog, monkeypatch):
    monkeypatch.setattr("logstore.bridge.cluster._REACH_SECONDS", 0.05)
    address = copied(leader, copy)
    standby = replica.follow(copy, address)
    eventually(lambda: "no broker listens there" in (standby.progress.trouble or ""))
    assert "waits, and tries again" in caplog.text
    assert standby.failure is None
    assert standby.promote() == ["t"]
    assert {log.role for log in copy["t"]} == {Role.ALONE}


def test_a_promotion_tells_what_was_not_copied(leader, copy, caplog, monkeypatch):
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: values(copy, "t") == [b"1", b"2"] and standby.progress.trouble is None)
        t0, t1 = standby._bridge._copies.values()
        standby._end()
        t0.end_offset, t1.is_end_known = 5, False
        assert standby.promote() == ["t"]
    (told,) = [each.getMessage() for each in caplog.records if "before all was copied" in each.getMessage()]
    assert "3 offsets of 1 partitions were not copied, such as those from 2 on of t-0" in told
    assert "1 partitions were not compared with the cluster's, such as t-1, which ends at 0 here" in told


def test_a_promotion_before_the_leader_has_told_its_topics_says_so(leader, copy, caplog, monkeypatch):
    monkeypatch.setattr("logstore.bridge.cluster._REACH_SECONDS", 0.05)
    standby = replica.follow(copy, copied(leader, copy))
    assert standby.promote() == ["t"]
    assert "topics may be missing" in caplog.text


def test_a_promotion_of_a_whole_copy_warns_of_nothing(leader, copy, caplog):
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: values(copy, "t") == [b"1", b"2"] and standby.progress.trouble is None)
        standby.promote()
    assert "before all was copied" not in caplog.text


def test_a_leader_that_comes_later_is_followed(leader, copy, monkeypatch):
    monkeypatch.setattr("logstore.bridge.cluster._REACH_SECONDS", 0.05)
    with leader.listen() as listener:
        address = listener.address
    with replica.follow(copy, address) as standby:
        eventually(lambda: standby.progress.trouble)
        with leader.listen(address):
            eventually(lambda: values(copy, "t") == [b"1", b"2"])
            eventually(lambda: standby.progress.trouble is None)


@pytest.mark.parametrize("before", ["t", "u", None])
def test_a_promotion_that_was_killed_is_completed(leader, tmp_path, monkeypatch, before):
    """Before a topic, or when all is done but for the note of it; the leader is back meanwhile, and gone."""
    leader.create_topic("u")[0].append(b"1")

    def make_own(log):
        if log.partition.topic == before:
            raise KeyboardInterrupt
        plain(log)

    plain = promotion._make_own
    with logstore.open(tmp_path / "copy") as copy:
        address = copied(leader, copy)
        with monkeypatch.context() as patched:
            patched.setattr(promotion, "_make_own", make_own)
            patched.setattr(promotion, "flushed_at_a_time", lambda _: 1)  # an interrupt comes to this thread
            patched.setattr(standby_module, "end_promotion", interrupted)
            standby = replica.follow(copy, NOBODY, address)
            with pytest.raises(KeyboardInterrupt):
                standby.promote()
    with logstore.open(tmp_path / "copy") as copy:
        with leader.listen(address), replica.follow(copy, address) as standby:
            leader["u"][0].append(b"late", flush=True)
            failure = eventually(lambda: standby.failure)
            assert "promote() completes it" in str(failure)
        assert replica.follow(copy, address).promote() == ["t", "u"]
        assert {log.role for name in "tu" for log in copy[name]} == {Role.ALONE}
        assert values(copy, "u") == [b"1"]
        assert replica.follow(copy, address).promote() == []


def test_a_disk_that_fails_for_one_topic_does_not_keep_the_others(leader, copy, monkeypatch):
    leader.create_topic("u")[0].append(b"1")

    def make_own(log):
        if log.partition.topic == "t":
            raise StorageError("no")
        plain(log)

    plain = promotion._make_own
    standby = replica.follow(copy, copied(leader, copy))
    with monkeypatch.context() as patched:
        patched.setattr(promotion, "_make_own", make_own)
        with pytest.raises(StorageError):
            standby.promote()
    assert copy["u"][0].role is Role.ALONE
    assert standby.promote() == ["t", "u"]
    assert {log.role for log in copy["t"]} == {Role.ALONE}


def test_what_was_promoted_is_not_copied_again(leader, copy):
    address = copied(leader, copy)
    replica.follow(copy, address).promote()
    leader["t"][0].append(b"of the old leader", flush=True)
    with leader.listen(address), replica.follow(copy, address) as standby:
        failure = eventually(lambda: standby.failure)
        assert isinstance(failure, UsageError)
        assert "'t' of" in str(failure)
        assert "was promoted, and is the store's own" in str(failure)
        assert {log.role for log in copy["t"]} == {Role.ALONE}
        with logstore.connect(address) as remote, pytest.raises(UsageError, match="was promoted"):
            bridge.pull(remote, copy, "t").run(until_end=True)
        copy["t"][0].append(b"own")
        assert standby.promote() == []
        assert values(copy, "t") == [b"1", b"2", b"own"]


def test_a_named_topic_that_the_leader_does_not_have_yet_is_waited_for(leader, copy, monkeypatch):
    monkeypatch.setattr("logstore.bridge.pull_topics.REFRESH_MS", 50)
    listener = leader.listen("127.0.0.1:0")
    with listener, replica.follow(copy, listener.address, topics=["later"]) as standby:
        error = eventually(lambda: standby.progress.stopped.get("later"))
        assert "has no topic 'later'; it is copied as soon as it is created there" in str(error)
        assert standby.failure is None
        leader.create_topic("later")[0].append(b"1", flush=True)
        eventually(lambda: "later" in copy and values(copy, "later") == [b"1"])
        assert (standby.failure, dict(standby.progress.stopped)) == (None, {})


def test_what_was_promoted_is_copied_again_when_it_was_deleted(leader, copy):
    address = copied(leader, copy)
    replica.follow(copy, address).promote()
    leader["t"][0].append(b"3")
    with leader.listen(address), replica.follow(copy, address) as standby:
        eventually(lambda: standby.failure)
        copy.delete_topic("t")
        eventually(lambda: values(copy, "t") == [b"1", b"2", b"3"])
        assert standby.failure is None
        assert standby.promote() == ["t"]


def transactions_of_three(leader):
    """One is committed, one is open in two partitions, and one was committed before and is open again."""
    identity = partial(ProducerIdentity, transactional=True)
    one, other = leader["t"]
    one.extend([b"committed"], producer=identity(7, 0, 0))
    one.append_end_marker(7, 0, committed=True)
    for log in leader["t"]:
        log.extend([b"open"], producer=identity(8, 2, 0))
    other.extend([b"committed, too"], producer=identity(9, 1, 0))
    other.append_end_marker(9, 1, committed=True, coordinator_epoch=5)
    other.extend([b"open"], producer=identity(9, 1, 1))
    other.extend([b"behind"])


def interrupted(*_):
    raise KeyboardInterrupt


def committed(log):
    return [record.value for record in log.read(isolation=Isolation.COMMITTED)]


@pytest.mark.parametrize("is_cut_short", [False, True])
def test_transactions_that_are_open_are_aborted(leader, tmp_path, caplog, monkeypatch, is_cut_short):
    transactions_of_three(leader)
    with logstore.open(tmp_path / "copy") as copy:
        address = copied(leader, copy)
        standby = replica.follow(copy, address)
        if is_cut_short:  # the process is killed after the markers of the first partition
            plain = promotion._prepare
            with monkeypatch.context() as patched:
                patched.setattr(promotion, "flushed_at_a_time", lambda _: 1)
                patched.setattr(
                    promotion,
                    "_prepare",
                    lambda log: interrupted() if log.partition.partition else plain(log),
                )
                with pytest.raises(KeyboardInterrupt):
                    standby.promote()
    with logstore.open(tmp_path / "copy") as copy:
        replica.follow(copy, address).promote()
        assert "2 transactions were open in them, and are aborted" in caplog.text
        one, other = copy["t"]
        one.append(b"own", flush=True)
        other.append(b"own", flush=True)
        assert committed(one) == [b"1", b"2", b"committed", b"own"]
        assert committed(other) == [b"committed, too", b"behind", b"own"]
        assert copy.transactions() == []
    with logstore.open(tmp_path / "copy") as copy:
        assert committed(copy["t"][1]) == [b"committed, too", b"behind", b"own"]
        assert copy.verify()


def test_what_is_open_in_a_copy_is_left_open_when_it_is_closed(leader, copy):
    transactions_of_three(leader)
    copied(leader, copy)
    assert len(copy["t"][1].open_transactions()) == 2


def test_only_the_named_topics_are_promoted(leader, copy):
    leader.create_topic("u")[0].append(b"1")
    address = copied(leader, copy)
    assert replica.follow(copy, address, topics=["u"]).promote() == ["u"]
    assert copy["u"][0].role is Role.ALONE
    assert {log.role for log in copy["t"]} == {Role.FOLLOWER}
    assert replica.follow(copy, address).promote() == ["t"]


def test_what_is_of_others_is_not_promoted(leader, copy, tmp_path):
    address = copied(leader, copy)
    with logstore.open(tmp_path / "other") as other, logstore.open(tmp_path / "third") as third:
        other.create_topic("pulled")[0].append(b"1")
        third.create_topic("followed")[0].append(b"1")
        with other.listen() as listener, logstore.connect(listener.address) as remote:
            bridge.pull(remote, copy, "pulled").run(until_end=True)
        elsewhere = copied(third, copy)
    assert replica.follow(copy, address).promote() == ["t"]
    assert copy["pulled"][0].role is copy["followed"][0].role is Role.FOLLOWER
    with pytest.raises(UsageError, match=f"'followed' is a copy of {elsewhere}: follow"):
        replica.follow(copy, NOBODY).promote()
    with pytest.raises(UsageError, match="'followed' is a copy of"):
        replica.follow(copy, NOBODY, topics=["followed"]).promote()
    assert copy["followed"][0].role is Role.FOLLOWER
    assert replica.follow(copy, NOBODY, elsewhere).promote() == ["followed"]


def test_a_leader_that_has_moved(leader, copy):
    """What it has deleted before is promoted, too."""
    leader.create_topic("gone")[0].append(b"1")
    copied(leader, copy)
    leader.delete_topic("gone")
    address = copied(leader, copy)
    assert replica.follow(copy, address).promote() == ["gone", "t"]


def test_who_was_promoted_can_be_followed(leader, copy, tmp_path):
    address = copied(leader, copy)
    replica.follow(copy, address).promote()
    copy["t"][0].append(b"3")
    with logstore.open(tmp_path / "again") as again:
        copied(copy, again)
        assert values(again, "t") == [b"1", b"2", b"3"]


def test_what_is_noted_of_copies(leader, copy):
    address = copied(leader, copy)
    files, noted = copy.directory.context.files, Followed(leader.cluster_id, leader["t"].topic_id, (address,))
    assert read_followed(files, copy.path) == {"t": noted}
    replica.follow(copy, address).promote()
    assert read_followed(files, copy.path) == {"t": noted._replace(leader=(), is_promoted=True)}


# Topics that stop, and others that go on --------------------------------------------------------------------


def test_a_topic_that_is_deleted_here_is_copied_again(leader, copy):
    leader.create_topic("u")
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: "u" in copy and values(copy, "t") == [b"1", b"2"])
        copy.delete_topic("t")
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        leader["u"][0].append(b"3")
        eventually(lambda: values(copy, "u") == [b"3"])
        assert (standby.failure, dict(standby.progress.stopped)) == (None, {})


def test_a_topic_that_is_deleted_here_and_there_is_let_go(leader, copy):
    leader.create_topic("u")
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: "u" in copy and values(copy, "t") == [b"1", b"2"])
        leader.delete_topic("t")
        copy.delete_topic("t")
        eventually(lambda: {each.partition.topic for each in standby.progress.partitions} == {"u"})
        leader["u"][0].append(b"3")
        eventually(lambda: values(copy, "u") == [b"3"])
        assert standby.failure is None
        if "t" in copy:  # it was made again here just before the leader's was gone
            copy.delete_topic("t")
        assert standby.promote() == ["u"]


def test_a_topic_that_was_made_again_stops_alone(leader, copy, caplog):
    leader.create_topic("u")
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: "u" in copy and values(copy, "t") == [b"1", b"2"])
        leader.delete_topic("t")
        leader.create_topic("t")[0].append(b"new")
        error = eventually(lambda: standby.progress.stopped.get("t"))
        assert "made again" in str(error)
        assert "topic 't' is not copied: " in caplog.text
        assert "Delete the topic here to copy the new one" in caplog.text
        leader["u"][0].append(b"3")
        eventually(lambda: values(copy, "u") == [b"3"])
        assert standby.failure is None
        assert values(copy, "t") == [b"1", b"2"]
        assert caplog.text.count("is not copied") == 1
        progress = standby.progress
        assert (progress.lag, progress.trouble) == (0, f"topic 't' is not copied: {error}")
        assert str(progress).endswith("Delete the topic here to copy the new one")
        copy.delete_topic("t")
        eventually(lambda: values(copy, "t") == [b"new"])
        assert dict(standby.progress.stopped) == {}
        eventually(lambda: standby.progress.trouble is None)


def test_a_promotion_tells_of_topics_that_were_not_copied(leader, copy, caplog):
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        leader.delete_topic("t")
        leader.create_topic("t")[0].append(b"new")
        eventually(lambda: standby.progress.stopped)
        assert standby.promote() == ["t"]
    assert "promoted before all was copied, as far as is known: topic 't' is not copied" in caplog.text


def test_a_topic_that_may_not_be_read_stops_alone(leader, copy):
    for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ):
        topic = ResourceType.TOPIC, "t", PatternType.LITERAL
        leader.acls.add([Acl(*topic, "User:ANONYMOUS", "*", operation, Permission.ALLOW)])
    leader.create_topic("secret")
    with (
        leader.listen("127.0.0.1:0", authorize=True) as listener,
        replica.follow(copy, listener.address, topics=["t", "secret"]) as standby,
    ):
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        leader["t"][0].append(b"3")
        eventually(lambda: values(copy, "t") == [b"1", b"2", b"3"])
        assert "does not allow it" in str(standby.progress.stopped["secret"])
        assert standby.failure is None
        leader.acls.add(
            [
                Acl(
                    ResourceType.TOPIC,
                    "secret",
                    PatternType.LITERAL,
                    "User:ANONYMOUS",
                    "*",
                    each,
                    Permission.ALLOW,
                )
                for each in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ)
            ]
        )
        eventually(lambda: values(copy, "secret") == [])
        assert standby.progress.stopped == {}


def test_a_topic_that_may_not_be_read_for_a_while_goes_on(leader, copy, caplog):
    """Costs 1 s."""
    topic = ResourceType.TOPIC, "t", PatternType.LITERAL, "User:ANONYMOUS", "*"
    describe, configs, read = (
        Acl(*topic, each, Permission.ALLOW)
        for each in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ)
    )
    leader.acls.add([describe, configs, read])
    with (
        leader.listen("127.0.0.1:0", authorize=True) as listener,
        replica.follow(copy, listener.address, topics=["t"]) as standby,
    ):
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        leader.acls.remove([AclFilter(*read)])
        eventually(lambda: "does not allow it" in (standby.progress.trouble or ""))
        leader["t"][0].append(b"3")
        assert standby.failure is None
        leader.acls.add([read])
        eventually(lambda: values(copy, "t") == [b"1", b"2", b"3"])
        eventually(lambda: standby.progress.trouble is None)
        assert caplog.text.count("a part of the copy waits, and tries again: t-") == 1


def test_a_standby_that_ends_says_what_to_do(leader, copy, caplog):
    leader.users.set_password("standby", "old")
    with leader.listen("127.0.0.1:0", sasl_enabled_mechanisms="SCRAM-SHA-256") as listener:
        login = Sasl(username="standby", password="wrong")
        with replica.follow(copy, listener.address, topics=["t"], sasl=login) as standby:
            eventually(lambda: standby.failure)
    assert "When that is mended, close() the standby, and follow again" in caplog.text


def test_no_topic_is_to_blame_for_a_password_that_was_changed(leader, copy, caplog, monkeypatch):
    """It is a fetch that is refused first, and then nothing is copied: the warning says what to do. 0.7 s."""
    monkeypatch.setattr("logstore.bridge.pull_topics.REFRESH_MS", 60_000)
    leader.create_topic("u")
    leader.users.set_password("standby", "old")
    login = Sasl(username="standby", password="old")
    listener = leader.listen("127.0.0.1:0", sasl_enabled_mechanisms="SCRAM-SHA-256")
    with replica.follow(copy, listener.address, sasl=login, request_timeout_ms=5_000) as standby:
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        leader.users.set_password("standby", "new")
        listener.close()
        with leader.listen(listener.address, sasl_enabled_mechanisms="SCRAM-SHA-256"):
            failure = eventually(lambda: standby.failure)
            assert str(failure).startswith(f"{listener.address}: the broker refuses user 'standby'")
            assert standby.progress.stopped == {}
            assert standby.progress.trouble == str(failure), "the copy would look complete"
            standby.promote()
            assert "promoted before all was copied, as far as is known: the copy had ended" in caplog.text
    assert "is not copied" not in caplog.text
    assert caplog.text.count("When that is mended, close() the standby, and follow again") == 1


def test_a_partition_that_nobody_leads_holds_up_no_others(tmp_path, copy, caplog):
    """Costs 3 s."""
    cluster = Cluster(tmp_path / "cluster")
    with logstore.connect(*cluster.addresses, request_timeout_ms=2_000) as remote:
        remote.create_topic("t", partitions=3, replication_factor=1)
        places = [TopicPartition("t", number) for number in range(3)]
        led_by = {cluster.leader_of(place).node_id: place.partition for place in places}
        with (
            remote.producer(acks="all") as producer,
            replica.follow(copy, ",".join(cluster.addresses), topics=["t"]) as standby,
        ):
            for number in range(3):
                producer.send("t", b"1", partition=number).result()
            eventually(lambda: all(values(copy, "t", number) == [b"1"] for number in range(3)))
            cluster.crash(3)
            eventually(lambda: standby.progress.trouble)
            assert standby.progress.trouble == f"t-{led_by[3]}: nobody leads it at the cluster"
            for value in (b"2", b"3"):
                producer.send("t", value, partition=led_by[1]).result()
                eventually(lambda value=value: values(copy, "t", led_by[1])[-1] == value)
            with logstore.open(tmp_path / "other") as other:
                pull = bridge.pull(remote, other, "t")
                with pytest.raises(RetriableError, match=f"t-{led_by[3]}: nobody leads it"):
                    pull.run(until_end=True)
                assert values(other, "t", led_by[1]) == [b"1", b"2", b"3"]
            cluster.start(3)
            producer.send("t", b"4", partition=led_by[3]).result()
            eventually(lambda: values(copy, "t", led_by[3]) == [b"1", b"4"])
            eventually(lambda: standby.progress.trouble is None)
    cluster.close()
    told = [each for each in caplog.records if "a part of the copy waits" in each.message]
    assert len(told) < 6, "not again and again"


def _loses_power(path, kept, new):
    """A leader comes back with only the first records of t-0, and goes on."""
    with logstore.open(path) as store:
        store["t"][0].truncate_to(kept)
        for value in new:
            store["t"][0].extend([value])


@pytest.mark.parametrize("new", [[b"other 2", b"other 3", b"4"], [b"other 2"], []])
def test_a_leader_that_went_on_without_what_it_had_not_flushed_is_followed(tmp_path, copy, caplog, new):
    """1.2 s each. It goes on in a new epoch, which shows what it has no more."""
    path, address = tmp_path / "leader", str(tmp_path / "socket")
    with logstore.open(path) as leader:
        leader.create_topic("t")
        for value in (b"1", b"2", b"3"):
            leader["t"][0].extend([value])
        standby = replica.follow(copy, leader.listen(address).address)
        eventually(lambda: values(copy, "t") == [b"1", b"2", b"3"])
    _loses_power(path, 1, new)
    with standby, logstore.open(path) as leader, leader.listen(address):
        eventually(lambda: values(copy, "t") == [b"1", *new])
        leader["t"][0].extend([b"next"])
        eventually(lambda: values(copy, "t") == [b"1", *new, b"next"])
        assert standby.progress.truncated_count == 2
        assert not standby.progress.stopped
    assert "the cluster has lost or replaced the records from 1 on; 2 offsets are cut off here" in caplog.text


@pytest.mark.parametrize("new", [[b"other 2", b"other 3", b"4"], [b"other 2"]])
def test_a_leader_that_did_so_in_the_same_epoch_is_noticed(tmp_path, copy, caplog, monkeypatch, new):
    """1.2 s each. As one of an earlier version. When it answers again, its log may be longer than the copy:
    what came next would be copied behind records that the leader does not have."""
    monkeypatch.setattr(LogCore, "_epoch_after_cut", lambda core: core.leader_epoch)
    path, address = tmp_path / "leader", str(tmp_path / "socket")
    with logstore.open(path) as leader:
        for name in ("t", "u", "empty"):
            leader.create_topic(name)
        for value in (b"1", b"2", b"3"):
            leader["t"][0].extend([value])
            leader["u"][0].extend([value])
        listener = leader.listen(address)
        standby = replica.follow(copy, listener.address)
        eventually(lambda: values(copy, "t") == values(copy, "u") == [b"1", b"2", b"3"])
        eventually(lambda: "empty" in copy and standby.progress.trouble is None)
    _loses_power(path, 1, new)
    with standby, logstore.open(path) as leader, leader.listen(address):
        eventually(lambda: list(standby.progress.stopped) == ["t"])
        last = min(len(new), 2)
        assert f"t-0 has diverged: the batch with offset {last}" in str(standby.progress.stopped["t"])
        for name in ("u", "empty"):
            leader[name][0].extend([b"next"])
        eventually(lambda: values(copy, "u") == [b"1", b"2", b"3", b"next"])
        eventually(lambda: values(copy, "empty") == [b"next"])
        assert values(copy, "t") == [b"1", b"2", b"3"]
        assert standby.progress.truncated_count == 0
    assert "topic 't' is not copied: t-0 has diverged" in caplog.text


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_leader_that_comes_back_whole_is_gone_on_with(tmp_path, copy, caplog, policy):
    """1.2 s each. Compaction may have joined the batch that was copied last with the next."""
    path, address = tmp_path / "leader", str(tmp_path / "socket")
    with logstore.open(path) as leader:
        leader.create_topic("t", config=TopicConfig(cleanup_policy=policy))
        leader["t"][0].extend([(b"a", b"1"), (b"b", b"2")])
        listener = leader.listen(address)
        standby = replica.follow(copy, listener.address)
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
    with logstore.open(path) as leader:
        leader["t"][0].extend([(b"b", b"3")])
        if policy == "compact":
            leader["t"][0].roll()
            leader["t"][0].compact()
            assert values(leader, "t") == [b"1", b"3"]
    with standby, logstore.open(path) as leader, leader.listen(address):
        leader["t"][0].extend([(b"a", b"4")])
        eventually(lambda: copy["t"][0].log_end_offset == 4)
        assert values(copy, "t") == values(leader, "t")
        assert not standby.progress.stopped
    assert "diverged" not in caplog.text


def test_a_topic_that_was_appended_to_stops_alone_and_is_promoted(leader, copy):
    leader.create_topic("u")
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: "u" in copy and values(copy, "t") == [b"1", b"2"])
        copy["t"][0].append(b"own")
        assert "has diverged" in str(eventually(lambda: standby.progress.stopped.get("t")))
        leader["u"][0].append(b"3")
        eventually(lambda: values(copy, "u") == [b"3"])
        time.sleep(0.2)  # it is not looked at again, which would cut it off
        assert standby.promote() == ["t", "u"]
        assert values(copy, "t") == [b"1", b"2", b"own"]


def test_a_named_topic_that_is_not_there_yet(leader, copy):
    with leader.listen() as listener, replica.follow(copy, listener.address, topics=["t", "u"]) as standby:
        assert isinstance(eventually(lambda: standby.progress.stopped.get("u")), UnknownTopicError)
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        leader.create_topic("u")[0].append(b"3")
        eventually(lambda: values(copy, "u") == [b"3"])
        assert (standby.failure, dict(standby.progress.stopped)) == (None, {})


def test_a_store_that_is_closed_ends_it(leader, tmp_path):
    copy = logstore.open(tmp_path / "copy")
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        copy.close()
        assert isinstance(eventually(lambda: standby.failure), ClosedError)


@pytest.mark.parametrize("end", ["close", "promote"])
def test_its_end_says_nothing_of_trouble(leader, copy, caplog, end):
    with leader.listen() as listener:
        standby = replica.follow(copy, listener.address)
        eventually(lambda: values(copy, "t") == [b"1", b"2"])
        time.sleep(0.05)  # it waits for records
        getattr(standby, end)()
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == []


def test_a_node_is_no_standby(copy, tmp_path):
    coordinator = FileCoordinator(tmp_path / "cluster", cluster_id=copy.cluster_id)
    node = replica.Node(copy, 1, coordinator=coordinator)
    try:
        with pytest.raises(UsageError, match="a node of a cluster"):
            replica.follow(copy, NOBODY)
    finally:
        node.close()
        coordinator.close()


def test_a_full_disk_is_waited_for(leader, copy, monkeypatch):
    """It copies on when there is room, and says meanwhile what is wrong."""
    append, is_full = Log.append_replicated, [True]

    def append_or_refuse(log, *args, **named):
        if is_full:
            raise DiskFullError("no space left")
        return append(log, *args, **named)

    monkeypatch.setattr(Log, "append_replicated", append_or_refuse)
    with leader.listen() as listener, replica.follow(copy, listener.address) as standby:
        eventually(lambda: "no space left" in (standby.progress.trouble or ""))
        assert standby.failure is None
        leader["t"].extend([b"3"])
        eventually(lambda: standby.progress.lag == 3)  # how far it is behind is seen all the same
        is_full.clear()
        eventually(lambda: values(copy, "t") == [b"1", b"2", b"3"])
        eventually(lambda: standby.progress.trouble is None)


def test_topics_are_a_list(copy):
    with pytest.raises(UsageError, match=r"topics is 'orders'; give a list of names, such as \['orders'\]"):
        replica.follow(copy, NOBODY, topics="orders")
