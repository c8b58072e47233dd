"""Consumers of a group, on a clock set by hand unless a test says otherwise."""

from __future__ import annotations

import random
import threading
import time
from itertools import chain

import pytest

import logstore
from logstore.broker.local import LocalBroker
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.clients.consumer import Consumer
from logstore.clients.settings import ConsumerConfig
from logstore.config import StoreConfig
from logstore.errors import (
    ClosedError,
    FencedError,
    InvalidConfigError,
    RetriableError,
    UnknownTopicError,
    UsageError,
)
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.testing import ManualClock, MemoryFiles

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class World:
    """A store with a topic, and members that are known by their names."""

    def __init__(self, *, partitions=6, assignors=("cooperative-sticky",), files=None):
        self.files = files or MemoryFiles()
        self.clock = ManualClock()
        self.assignors = assignors
        self.members = {}
        self.told = []
        self.open()
        if "t" not in self.directory.topic_names():
            self.directory.create_topic("t", partitions, None)

    def open(self):
        self.directory = LogDirectory("/data", files=self.files, clock=self.clock, config=StoreConfig())
        self.broker = LocalBroker(self.directory)

    def join(self, name, *, group="g", topics=("t",), **settings):
        def tell(what):
            return lambda partitions: self.told.append((name, what, sorted(p.partition for p in partitions)))

        self.members[name] = Consumer(
            self.broker,
            topics,
            group=group,
            config=ConsumerConfig(**settings),
            clock=self.clock,
            assignors=self.assignors,
            on_assigned=tell("assigned"),
            on_revoked=tell("revoked"),
            on_lost=tell("lost"),
        )
        return self.members[name]

    def pass_time(self, ms):
        self.clock.advance(ms)
        self.directory.context.scheduler.run_due()

    def settle(self, *names):
        """Let these members, or all, poll until nothing changes any more."""
        for _ in range(12):
            for name in names or list(self.members):
                self.members[name].poll(timeout=0)
            self.pass_time(3_000)

    def owned(self):
        """The partitions' numbers by member."""
        return {
            name: sorted(each.partition for each in member.assignment)
            for name, member in self.members.items()
        }

    def append(self, count, start=0):
        for number in range(start, start + count):
            log = self.directory.log(TopicPartition("t", number % 6))
            log.extend([b"%d" % number])


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_divide_the_partitions_and_get_others_when_some_come_and_go(assignor):
    world = World(assignors=[assignor])
    world.join("a")
    world.settle()
    assert world.owned() == {"a": [0, 1, 2, 3, 4, 5]}
    world.join("b")
    world.settle()
    world.join("c")
    world.settle()
    owned = world.owned()
    assert sorted(chain(*owned.values())) == [0, 1, 2, 3, 4, 5]
    assert {len(each) for each in owned.values()} == {2}
    world.members.pop("b").close()
    world.settle()
    owned = world.owned()
    assert sorted(chain(*owned.values())) == [0, 1, 2, 3, 4, 5]
    assert {len(each) for each in owned.values()} == {3}


def test_cooperative_members_keep_what_they_keep():
    world = World()
    world.join("a")
    world.settle()
    world.told.clear()
    world.join("b")
    world.settle()
    kept = world.owned()["a"]
    assert len(kept) == 3
    revoked = [set(partitions) for name, what, partitions in world.told if (name, what) == ("a", "revoked")]
    assert revoked == [set(range(6)) - set(kept)]


def test_eager_members_give_up_everything_first():
    world = World(assignors=["range"])
    world.join("a")
    world.settle()
    world.told.clear()
    world.join("b")
    world.settle()
    assert world.told[0] == ("a", "revoked", [0, 1, 2, 3, 4, 5])
    assigned = {name: partitions for name, what, partitions in world.told if what == "assigned"}
    assert sorted(assigned.values()) == [[0, 1, 2], [3, 4, 5]]  # in the order of the members' ids
    assert sorted(assigned) == ["a", "b"]


def test_a_member_that_does_not_poll_loses_its_partitions():
    world = World()
    for name in "ab":
        world.join(name, max_poll_interval_ms=10_000)
    world.settle()
    stalled = world.members.pop("b")
    world.settle("a")
    assert world.owned() == {"a": [0, 1, 2, 3, 4, 5]}
    with pytest.raises(RetriableError, match="rebalances"):
        stalled.commit(dict.fromkeys(stalled.assignment, 0))
    assert [what for name, what, _ in world.told if name == "b"][-1] == "lost"
    assert stalled.assignment == ()


@pytest.mark.parametrize("ends", [False, True])
def test_a_member_with_automatic_commits_that_was_removed_says_so_and_goes_on(ends, caplog):
    world = World()
    stalled = world.join("stalled", enable_auto_commit=True, max_poll_interval_ms=6_000)
    other = world.join("other")
    world.settle()
    world.append(60)
    assert stalled.poll(timeout=0)
    before = other.committed(stalled.assignment)
    world.told.clear()
    world.settle("other")
    assert world.owned()["other"] == [0, 1, 2, 3, 4, 5]
    if ends:
        stalled.close()
        assert not stalled.assignment
    else:
        assert stalled.poll(timeout=0) == []
        assert not stalled.assignment
        world.settle()
        assert len(stalled.assignment) == 3
    assert next(what for name, what, _ in world.told if name == "stalled") == "lost"
    assert any("max_poll_interval_ms" in each.message for each in caplog.records)
    assert other.committed(before) == before


class TestClose:
    """What ``on_revoked`` may do there."""

    def test_it_is_told_and_may_commit_before_the_consumer_leaves(self):
        world = World()
        world.append(60)
        member = world.join("a")
        other = world.join("b")
        world.settle()
        world.append(60)
        record = member.poll(timeout=0)[0]
        done = []

        def finish(partitions):
            assert member.assignment == partitions
            member.commit(record)
            done.append(partitions)
            with pytest.raises(ClosedError):
                member.poll(timeout=0)

        member._on_revoked = finish
        owned = member.assignment
        member.close()
        member.close()
        assert done == [owned]
        assert other.committed([(record.topic, record.partition)]).popitem()[1].offset == record.offset + 1
        with pytest.raises(ClosedError):
            member.commit()
        del world.members["a"]
        world.settle()
        assert len(other.assignment) == 6

    def test_what_it_raises_is_raised_and_the_consumer_has_left(self):
        world = World()
        member = world.join("a")
        world.settle()

        def fail(partitions):
            raise KeyError("finish")

        member._on_revoked = fail
        with pytest.raises(KeyError, match="finish"):
            world.members.pop("a").close()
        world.join("b")
        world.settle()
        assert world.owned() == {"b": [0, 1, 2, 3, 4, 5]}

    def test_it_is_not_told_after_an_error_in_the_block(self):
        world = World()
        member = world.join("a")
        world.settle()
        world.told.clear()
        with pytest.raises(KeyError), member:
            raise KeyError
        assert world.told == []

    @pytest.mark.parametrize("assignor", ASSIGNORS)
    def test_everyone_is_told_once(self, assignor):
        world = World(assignors=[assignor])
        for name in "ab":
            world.join(name)
        world.settle()
        world.told.clear()
        for name in "ab":
            owned = [each.partition for each in world.members[name].assignment]
            world.members.pop(name).close()
            assert world.told.pop() == (name, "revoked", owned)
            world.settle()
            world.told.clear()


def test_new_partitions_are_assigned():
    world = World(partitions=2)
    for name in "ab":
        world.join(name)
    world.settle()
    world.directory.add_partitions("t", 6)
    world.settle()
    assert sorted(chain(*world.owned().values())) == [0, 1, 2, 3, 4, 5]


def test_a_static_member_comes_back_without_a_rebalance():
    world = World()
    for name in "ab":
        world.join(name, group_instance_id=name)
    world.settle()
    before = world.owned()
    world.members.pop("b").close()
    world.told.clear()
    world.settle("a")
    world.join("b", group_instance_id="b")
    world.settle()
    assert world.owned() == before
    assert [each for each in world.told if each[0] == "a"] == []


@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("while_away", [True, False])
def test_new_partitions_are_assigned_where_the_leader_is_static_and_came_back(names, while_away):
    """It is told to leave the assignment as it is, and nobody else looks."""
    world = World(partitions=2)
    for name in names:
        world.join(name, group_instance_id=name)
    world.settle()
    for name in names:
        world.members.pop(name).close()
    if while_away:
        world.directory.add_partitions("t", 6)
    for name in names:
        world.join(name, group_instance_id=name)
    world.settle()
    if not while_away:
        world.directory.add_partitions("t", 6)
        world.settle()
    assert sorted(chain(*world.owned().values())) == [0, 1, 2, 3, 4, 5]


def test_a_second_member_with_the_same_instance_id_fences_the_first():
    world = World()
    first = world.join("a", group_instance_id="x")
    world.settle()
    world.join("b", group_instance_id="x")
    world.settle("b")
    for _ in range(2):  # it does not fence the other in turn
        with pytest.raises(FencedError, match="group_instance_id 'x'"):
            world.settle("a")
    assert first.assignment == ()
    world.settle("b")
    assert len(world.owned()["b"]) == 6


def test_the_group_goes_on_after_a_restart():
    world = World()
    world.append(60)
    member = world.join("a", auto_offset_reset="earliest")
    seen = []
    while len(seen) < 30:
        seen += member.poll(timeout=0, max_records=5)
    member.commit()
    world.members.clear()
    world.directory.close()  # the member is not closed: its process has died
    world.open()
    member = world.join("b")
    world.pass_time(0)
    seen += member.drain()
    assert sorted(int(record.value) for record in seen) == list(range(60))


def test_commits_of_members_name_their_generation():
    world = World()
    member = world.join("a")
    world.append(6)
    world.settle()
    member.commit()
    assert {each.partition: value.offset for each, value in member.committed().items()} == dict.fromkeys(
        range(6), 1
    )
    alone = Consumer(world.broker, partitions=[("t", 0)], group="g", clock=world.clock)
    alone.poll(timeout=0)
    with pytest.raises(UsageError, match="group 'g'"):
        alone.commit()


def test_what_is_wrong_is_said_at_once():
    world = World()
    with pytest.raises(UnknownTopicError, match="no topic 'x'"):
        world.join("a", topics=["x"])
    world.assignors = ["best"]
    with pytest.raises(InvalidConfigError, match="no assignor 'best'"):
        world.join("a")


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("seed", range(6))
def test_whatever_members_do_no_record_is_missed_and_no_partition_has_two(seed, assignor):
    """At least once: each record is read by somebody, and what was committed does not come again."""
    chance = random.Random(seed)
    world = World(assignors=[assignor])
    names = iter(range(1000))
    read, count, committed = {}, 0, set()
    for _ in range(150):
        action = chance.random()
        if action < 0.15 and len(world.members) < 5:
            world.join(str(next(names)), max_poll_interval_ms=20_000)
        elif action < 0.2 and world.members:
            world.members.pop(chance.choice(list(world.members))).close()
        elif action < 0.23 and world.members:
            world.members.pop(chance.choice(list(world.members)))  # is never heard of again
        elif action < 0.4:
            new = chance.randint(1, 10)
            world.append(new, count)
            count += new
        elif world.members:
            member = world.members[chance.choice(list(world.members))]
            found = member.poll(timeout=0, max_records=chance.randint(1, 10))
            for record in found:
                assert record.value not in committed
                read[record.value] = read.get(record.value, 0) + 1
            if chance.random() < 0.5 and found:
                try:
                    member.commit(found[-1])
                    committed |= {record.value for record in found}
                except (RetriableError, UsageError):  # they are another's by now
                    pass
        world.pass_time(chance.choice([0, 10, 1000, 3000]))
        owned = [each for one in world.members.values() for each in _current(one)]
        assert len(owned) == len(set(owned))
    if not world.members:
        world.join("last")
    world.pass_time(30_000)
    for _ in range(60):
        for member in world.members.values():
            for record in member.poll(timeout=0, max_records=100):
                read[record.value] = read.get(record.value, 0) + 1
        world.pass_time(3_000)
    assert sorted(read, key=int) == [b"%d" % number for number in range(count)]
    assert sorted(chain(*world.owned().values())) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_poll_that_has_nothing_to_do_waits(assignor):
    """Whatever it waits for, be it the other members, an answer or records: if not, it would keep a processor
    busy, and in a process with others their threads idle."""
    chance = random.Random(assignor)
    world = World(assignors=[assignor])
    waited_for = set()
    for number in range(60):
        world.join(str(number), heartbeat_interval_ms=5)
        if len(world.members) > 3:
            world.members.pop(chance.choice(list(world.members))).close()
        for _ in range(4):
            member = world.members[chance.choice(list(world.members))]
            polling, woken = member.begin_poll(1.0), []
            for _ in range(10):
                if polling.poll() is not None:
                    break
                polling.on_wake(lambda woken=woken: woken.append(True))
                if not woken:
                    assert polling.wait_ms() > 0
                    waited_for.add(type(member._membership.waits_for))
                    break
                woken.clear()
            else:
                pytest.fail("it is woken again and again")
            polling.cancel()
            world.pass_time(chance.choice([0, 1, 5, 20]))
    assert len(waited_for) > 1, "members waited for each other, and as members for records"


def _current(member):
    """What a member owns in the generation that the group is in."""
    membership = member._membership
    groups = member._broker._groups._coordinators().classic._groups
    group = groups[member.group].group if member.group in groups else None
    is_current = group is not None and membership.generation == group.generation
    return (
        member.assignment
        if is_current and membership.is_member and membership.member_id in group.members
        else ()
    )


def test_threads_share_the_work(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t", partitions=4)
        broker = LocalBroker(store._directory)
        seen, stop = [], threading.Event()
        settings = {"heartbeat_interval_ms": 20}

        def work():
            with Consumer(broker, ["t"], group="g", config=ConsumerConfig(**settings)) as consumer:
                while not stop.is_set():
                    found = consumer.poll(timeout=0.05)
                    seen.extend(record.value for record in found)
                    if found:
                        try:
                            consumer.commit()
                        except RetriableError:
                            continue

        threads = [threading.Thread(target=work) for _ in range(3)]
        for number, thread in enumerate(threads):
            thread.start()
            store["t"].extend([(b"%d" % n, b"%d" % n) for n in range(number * 100, number * 100 + 100)])
        deadline = time.monotonic() + 20
        while len(set(seen)) < 300 and time.monotonic() < deadline:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        assert {int(value) for value in seen} == set(range(300))


def test_a_group_whose_members_have_left_is_stored_before_the_store_is_closed(tmp_path, caplog):
    for _ in range(10):
        with logstore.open(tmp_path) as store:
            store.require_topic("t")
            with store.consumer("t", group="g") as consumer:
                consumer.poll(timeout=0)
        with logstore.open(tmp_path, read_only=True) as reader:
            assert CommittedOffsets(reader._directory).load_group("g").members == ()
    assert caplog.text == ""
