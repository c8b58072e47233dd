"""A follower's fetches: where logs have parted, what it reads, and through whom."""

from __future__ import annotations

import random
import time

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Answered, wait_for
from logstore.broker.records.diverging import find_divergence
from logstore.broker.requests import (
    ACKS_LEADER,
    CreateTopicsRequest,
    DivergingEpoch,
    FetchedPartition,
    Fetcher,
    FetchPartition,
    FetchRequest,
    FetchResult,
    NewTopic,
    ProducePartition,
    ProduceRequest,
)
from logstore.format.batch import encode_batch
from logstore.logdir.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from logstore.model import Isolation, Role, TopicPartition
from logstore.wire.addresses import parse_address
from logstore.wire.remote.broker import RemoteBroker
from logstore.wire.remote.fetches.following import Links

T = TopicPartition("t", 0)
FOLLOWER = Fetcher(2, 5)


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "leader") as store:
        store.create_topic("t")
        yield store


class ByLink:
    """A follower's link, which is asked anew each time."""

    def __init__(self, link):
        self._link = link

    def fetch(self, asked):
        self._link.change(asked.partitions, [each.partition for each in asked.partitions])
        news = wait_for(self._link.fetch(asked), 10)
        if news.error is not ErrorCode.NONE:
            return Answered(FetchResult((FetchedPartition(T, news.error),)))
        return Answered(FetchResult(news.partitions))


@pytest.fixture(params=["here", "remote", "link"])
def ask(request, store):
    """Fetches through the broker itself, through a client of the cluster, and through a follower's link; in
    the last two in a session."""
    topic_id = store.directory.topic("t").topic_id
    with store.listen() as listener:
        if request.param == "here":
            broker, close = LocalBroker(store.directory), lambda: None
        elif request.param == "remote":
            broker = RemoteBroker(listener.address)
            close = broker.close
        else:
            links = Links("follower")
            broker, close = ByLink(links.to(parse_address(listener.address))), links.close

        def ask(offset, last_fetched_epoch=-1, *, leader_epoch=-1, replica=FOLLOWER, max_wait_ms=0):
            wanted = FetchPartition(T, offset, 2**20, leader_epoch, topic_id, last_fetched_epoch)
            isolation = Isolation.HIGH_WATERMARK if replica is None else Isolation.LOG_END
            asked = FetchRequest((wanted,), max_wait_ms, isolation=isolation, replica=replica)
            (found,) = wait_for(broker.fetch(asked), 10).partitions
            return found

        yield ask
        close()


def test_where_logs_have_parted(store, ask):
    """As the rule says, for random leaders and followers, in one session. Some 0.5 s."""
    rng = random.Random(7)
    log = store["t"][0]
    for epoch in (0, 2, 3, 5, 6, 9):
        log.assign_leader_epoch(epoch)
        if epoch != 6:  # which has no record
            log.extend([b"x"] * rng.randint(1, 4))
    told = set()
    for _ in range(150):
        offset, epoch = rng.randint(0, log.log_end_offset), rng.randint(-1, 9)
        found = ask(offset, epoch, leader_epoch=9)
        expected = find_divergence(log, offset, epoch)
        assert found.error is ErrorCode.NONE
        assert found.diverging == expected, (offset, epoch)
        assert bool(found.data) == (expected is None and offset < log.log_end_offset)
        told.add(expected is None)
    assert told == {True, False}


def test_a_leader_that_knows_no_epochs(store, ask):
    """Then the follower's log cannot be a beginning of it."""
    assert find_divergence(store["t"][0], 0, 2) == DivergingEpoch(-1, -1)
    found = ask(0, 2)
    assert (found.error, found.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)


def test_it_is_told_at_once_and_again(store, ask):
    log = store["t"][0]
    log.assign_leader_epoch(3)
    log.extend([b"x", b"y"])
    for _ in range(3):
        found = ask(2, 1, max_wait_ms=20_000)
        assert found.diverging == find_divergence(log, 2, 1)
    assert ask(2, 3).diverging is None


def test_another_epoch_of_the_leader_comes_first(store, ask):
    store["t"][0].assign_leader_epoch(3)
    assert ask(0, 1, leader_epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(0, 1, leader_epoch=4).error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_reads_up_to_the_end_and_a_consumer_does_not(store, ask):
    log = store["t"][0]
    log.set_role(Role.LEADER)
    log.extend([b"x"])
    assert ask(0).data
    assert not ask(0, replica=None).data
    log.update_high_watermark(1)
    assert ask(0, replica=None).data


def test_what_the_leader_has_deleted(store, ask):
    log = store["t"][0]
    log.extend([b"x"] * 10)
    log.delete_before(5)
    found = ask(2)
    assert (found.error, found.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 5)


def test_batches_of_a_leader_that_was_replaced_are_refused(store):
    log = store["t"][0]
    log.assign_leader_epoch(4)
    broker = LocalBroker(store.directory)
    for epoch, expected in (
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, ErrorCode.NONE),
    ):
        wanted = ProducePartition(T, bytes(encode_batch([None], [b"x"], 0)), epoch)
        (done,) = wait_for(broker.produce(ProduceRequest(ACKS_LEADER, 1_000, (wanted,)))).partitions
        assert done.error is expected
    assert log.log_end_offset == 1


def test_a_link_goes_on_after_its_leader_was_away(store):
    """1 s."""
    topic_id = store.directory.topic("t").topic_id
    store["t"][0].append(b"x")
    links = Links("follower")
    asked = FetchRequest((FetchPartition(T, 0, 2**20, -1, topic_id),), 0, replica=FOLLOWER)
    with store.listen() as listener:
        address = listener.address
        link = ByLink(links.to(parse_address(address)))
        assert wait_for(link.fetch(asked), 10).partitions[0].data
    codes = {wait_for(link.fetch(asked), 10).partitions[0].error for _ in range(3)}
    assert ErrorCode.NONE not in codes
    with store.listen(address):
        deadline = time.monotonic() + 10  # it waits between tries
        while (found := wait_for(link.fetch(asked), 10).partitions[0]).error is not ErrorCode.NONE:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert found.data
    links.close()


def test_only_who_may_is_a_follower(store):
    """Who may not is refused before anything is kept for it; who may needs no right for each topic."""
    store["t"][0].append(b"x")
    topic_id = store.directory.topic("t").topic_id
    asked = FetchRequest((FetchPartition(T, 0, 2**20, -1, topic_id),), 0, replica=FOLLOWER)
    with store.listen(authorize=True) as listener:
        links = Links("follower")
        link = ByLink(links.to(parse_address(listener.address)))
        for _ in range(3):
            (found,) = wait_for(link.fetch(asked), 10).partitions
            assert found.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert len(listener._node.fetch_sessions) == 0
        everyone = ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:*", "*"
        store.acls.add([Acl(*everyone, Operation.CLUSTER_ACTION, Permission.ALLOW)])
        (found,) = wait_for(link.fetch(asked), 10).partitions
        assert found.data
        links.close()


def test_a_node_that_is_alone_has_no_replicas(store):
    broker = LocalBroker(store.directory)
    for topic, expected in (
        (NewTopic("u", 1, {}, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("u", 1, {}, -1, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("u", 1, {}, 1, ((0,),)), ErrorCode.NONE),
    ):
        (done,) = wait_for(broker.create_topics(CreateTopicsRequest((topic,)))).topics
        assert done.error is expected
