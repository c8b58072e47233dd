"""What docs/groups.md and docs/offsets.md say and no test of a part holds: here and for readers beside,
before and after a kill, in transactions, and with 1 and 1,000 partitions."""

from __future__ import annotations

import logging
from dataclasses import fields

import pytest

import logstore
from logstore import StoreConfig
from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.groups.config import GroupConfig
from logstore.errors import LogstoreError, OffsetOutOfRangeError, RetriableError, UnknownPartitionError
from logstore.model import TopicPartition
from logstore.testing import ManualClock, MemoryFiles
from tests.rotation import rotating

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
T = [TopicPartition("t", number) for number in range(4)]


class World:
    """A store, and a reader beside it."""

    def __init__(self, partitions=4, **settings):
        self.files, self.clock, self.settings = MemoryFiles(), ManualClock(), settings
        self.open()
        self.store.create_topic("t", partitions=partitions)

    def open(self):
        config = StoreConfig(**self.settings)
        self.store = logstore.open("/s", files=self.files, clock=self.clock, config=config)
        self.reader = logstore.open("/s", files=self.files, clock=self.clock, read_only=True)

    def close(self):
        self.reader.close()
        self.store.close()

    def kill(self):
        """Go on as another process, with what the files have now."""
        files = MemoryFiles(self.files.now())
        self.close()
        self.files = files
        self.open()

    def pass_time(self, ms):
        self.clock.advance(ms)
        self.store.run_background()

    def join(self, *instance_ids, group="g"):
        """Members, with their parts."""
        members = [self.store.consumer("t", group=group, group_instance_id=each) for each in instance_ids]
        for _ in range(8):
            for member in members:
                member.poll(timeout=0)
            self.pass_time(3_000)
        return members

    def generation(self):
        """Of one that joins, and leaves again."""
        (member,) = self.join(None)
        member.close()
        return self.store._committed_offsets().load_group("g").generation - 1  # that of the empty group

    def both(self):
        """What the group has committed, as the store and the reader say."""
        found = [
            {each.partition: value.offset for each, value in store.offsets("g").items()}
            for store in (self.store, self.reader)
        ]
        assert found[0] == found[1]
        return found[0]


@pytest.fixture
def world():
    world = World()
    yield world
    world.close()


# Groups -----------------------------------------------------------------------------------------------------


def test_static_members_that_restart_have_what_they_had(world):
    """After a kill of their process, too: same parts, same generation."""
    before = [(each.assignment, each._membership.generation) for each in world.join("a", "b")]
    assert sorted(sum((partitions for partitions, _ in before), ())) == T
    world.kill()
    assert [(each.assignment, each._membership.generation) for each in world.join("a", "b")] == before
    assert [each.instance_id for each in world.reader.groups()["g"].members] == ["a", "b"]


def test_the_generation_goes_up_until_the_group_is_deleted(world):
    first = world.generation()
    second = world.generation()
    world.close()
    world.open()
    third = world.generation()
    world.kill()
    assert 0 < first < second < third < world.generation()
    world.store.groups().delete("g")
    assert world.generation() == first


def test_members_end_with_their_process_and_readers_see_it_when_the_next_one_looks(world):
    world.join(None, "static")
    world.kill()
    assert [world.reader.groups()["g"].state, len(world.reader.groups()["g"].members)] == ["Stable", 2]
    (member,) = world.store.groups()["g"].members
    assert member.instance_id == "static"
    world.pass_time(300_000)  # max_poll_interval_ms, which is its session
    assert (world.store.groups()["g"].state, world.reader.groups()["g"].state) == ("Empty", "Empty")


def test_the_settings_of_the_coordinator_are_those_of_the_store():
    names = [
        "group_min_session_timeout_ms",
        "group_max_session_timeout_ms",
        "group_max_size",
        "group_initial_rebalance_delay_ms",
    ]
    assert [getattr(StoreConfig(), name) for name in names] == [
        getattr(GroupConfig(), name) for name in names
    ]
    config = StoreConfig(group_max_size=1)
    with logstore.open("/store", files=MemoryFiles(), config=config) as store:
        store.create_topic("t")
        with store.consumer("t", group="g") as first, store.consumer("t", group="g") as second:
            while not first.assignment:
                first.poll(timeout=0.1)
            with pytest.raises(LogstoreError, match="GROUP_MAX_SIZE_REACHED"):
                second.poll(timeout=1)


def test_so_are_those_of_the_newer_protocol():
    for each in fields(ConsumerGroupConfig):
        assert getattr(StoreConfig(), each.name) == each.default
    config = StoreConfig(
        group_consumer_session_timeout_ms=3_000,
        group_consumer_heartbeat_interval_ms=1_000,
        group_consumer_max_size=1,
    )
    clock = ManualClock()
    with logstore.open("/store", files=MemoryFiles(), config=config, clock=clock) as store:
        store.create_topic("t")
        broker = store._open_broker(store._directory)

        def join(member_id):
            request = ConsumerGroupHeartbeat(
                "g", member_id, rebalance_timeout_ms=60_000, topics=("t",), owned=frozenset()
            )
            return broker.consumer_group_heartbeat(request).poll()

        assert join("first").heartbeat_interval_ms == 1_000
        assert join("second").error is ErrorCode.GROUP_MAX_SIZE_REACHED
        clock.advance(3_001)
        store.run_background()
        assert join("second").error is ErrorCode.NONE


@pytest.mark.parametrize("count", [1, *rotating([1000], 4)])
def test_any_number_of_partitions(count):
    """8 s for 1,000, which are made and verified."""
    world = World(partitions=count)
    groups, partitions = world.store.groups(), [TopicPartition("t", number) for number in range(count)]
    for log in world.store["t"]:
        log.extend([b"x"])
    (member,) = world.join(None)
    member.commit(dict.fromkeys(partitions, 1))
    for each in (groups, world.reader.groups()):
        status = each["g"]
        assert status.members[0].partitions == tuple(status.offsets) == tuple(partitions)
        assert status.lag == dict.fromkeys(partitions, 0)
    with pytest.raises(RetriableError):
        groups.reset("g", "earliest")
    member.close()
    with pytest.raises(OffsetOutOfRangeError):
        groups.reset("g", dict.fromkeys(partitions, 0) | {partitions[-1]: 2})
    with pytest.raises(UnknownPartitionError):
        world.store.offsets("g").commit(dict.fromkeys(partitions, 0) | {("t", count): 0})
    assert world.both() == dict.fromkeys(range(count), 1)  # all or nothing
    assert groups.reset("g", "earliest") == dict.fromkeys(partitions, (1, 0))
    assert world.both() == dict.fromkeys(range(count), 0)
    assert groups.delete_offsets("g", partitions[1:]) == tuple(partitions[1:])
    assert world.both() == {0: 0}
    groups.delete("g")
    assert (world.both(), list(world.reader.groups())) == ({}, [])
    world.close()


# Offsets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "abort", "kill", "time is up"])
def test_offsets_of_transactions_count_when_the_transaction_is_committed(world, end):
    for log in world.store["t"]:
        log.extend([b"x"] * 9)
    world.store.offsets("g").commit({T[0]: 1, T[1]: 1})
    producer = world.store.producer(transactional_id="x", transaction_timeout_ms=10_000)
    transaction = producer.transaction()
    transaction.__enter__()
    transaction.commit_offsets("g", {T[0]: 5, T[1]: 5, T[2]: 5})
    transaction.commit_offsets("only", {T[0]: 5})
    assert world.both() == {0: 1, 1: 1}
    for store in (world.store, world.reader):
        assert (list(store.groups()), dict(store.groups()["only"].offsets)) == (["g", "only"], {})
    world.store.offsets("g").commit({T[1]: 7})  # later in the log
    if end in ("commit", "abort"):
        getattr(transaction, end)()
    elif end == "kill":
        world.kill()
        assert world.both() == {0: 1, 1: 7}
        world.store.producer(transactional_id="x").close()
    else:
        for _ in range(4):
            world.pass_time(10_000)
    is_committed = end == "commit"
    assert world.both() == ({0: 5, 1: 7, 2: 5} if is_committed else {0: 1, 1: 7})
    for store in (world.store, world.reader):
        assert list(store.groups()) == ["g", "only"][: 1 + is_committed]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_topic_takes_its_offsets_with_it(world, is_committed):
    """Those of a transaction that is still open, too: a topic that is made again begins at 0."""
    world.store["t"][0].extend([b"x"] * 9)
    world.store.offsets("g").commit({T[0]: 9})
    producer = world.store.producer(transactional_id="x")
    transaction = producer.transaction()
    transaction.__enter__()
    transaction.commit_offsets("g", {T[0]: 9})
    transaction.commit_offsets("other", {T[0]: 9})
    world.store.delete_topic("t")
    world.store.create_topic("t", partitions=4)
    (transaction.commit if is_committed else transaction.abort)()
    assert (world.both(), list(world.store.groups()), list(world.reader.groups())) == ({}, [], [])


def test_offsets_of_a_group_with_members_are_kept():
    """With offsets_retention_minutes: until so long after the last member has left. A reader without members
    has until so long after each commit."""
    world = World(offsets_retention_minutes=7 * 24 * 60)
    (member,) = world.join("static", group="members")
    member.commit({T[0]: 0})
    world.store.offsets("alone").commit({T[0]: 0})
    groups = world.store.groups()
    for hour in range(10 * 24):
        world.pass_time(60 * MINUTE_MS)
        assert bool(world.store.offsets("alone")) is (hour < 7 * 24 - 1), hour
        # A static member stays if a consumer comes back with its id within the session.
        member = world.store.consumer("t", group="members", group_instance_id="static")
        for _ in range(4):
            member.poll(timeout=0)
    assert dict(groups["members"].offsets)
    world.close()


def test_offsets_expire_once_clients_or_groups_are_used(caplog):
    """Each of them begins to look for expired offsets, every ten minutes; the removal is logged."""
    for begin in (
        lambda store: store.offsets("g"),
        lambda store: store.groups(),
        lambda store: store.consumer("t"),
        lambda store: store.producer(),
        lambda store: None,
    ):
        world = World(offsets_retention_minutes=60)
        world.store.offsets("g").commit({T[0]: 0})
        world.close()
        world.open()
        caplog.clear()
        used = begin(world.store)
        with caplog.at_level(logging.INFO, "logstore"):
            world.pass_time(2 * 60 * MINUTE_MS)
        said = [
            record.getMessage() for record in caplog.records if "committed offsets" in record.getMessage()
        ]
        assert bool(said) is (used is not None)
        assert not said or (caplog.records[-1].levelname, world.both()) == ("INFO", {})
        world.close()
