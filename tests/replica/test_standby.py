"""A follower of one leader, and its promotion."""

from __future__ import annotations

import time
from functools import partial

import pytest

import logstore
from logstore import replica
from logstore.errors import ClosedError, UsageError
from logstore.model import Role


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
    assert epochs[-1] > epochs[-2]
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


def test_a_topic_that_is_deleted_at_the_leader_stays(leader, copy, caplog, monkeypatch):
    monkeypatch.setattr("logstore.bridge.pull_topics.REFRESH_MS", 50)
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


@pytest.mark.parametrize("topics", [(), ["__consumer_offsets"]])
def test_topics_that_cannot_be_followed(copy, topics):
    with pytest.raises(UsageError):
        replica.follow(copy, "127.0.0.1:1", topics=topics)
