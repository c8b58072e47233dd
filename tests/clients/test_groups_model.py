"""Random joins, leaves, commits, transactions, deletions, resets and restarts, and a model of what the groups
of a store must then say: here, and to a reader beside the process.

A group is there as long as it has members, or offsets (an open transaction's count), or has had members and
was not deleted.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import logstore
from logstore import TopicPartition
from logstore.errors import RetriableError, UnknownGroupError
from logstore.testing import ManualClock, MemoryFiles
from tests.rotation import seed_of_turn

GROUPS = st.sampled_from(["a", "b", "grüße"])
TOPICS = {"t": 2, "u": 1}
PARTITIONS = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
SOME = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True)
TURNS = 8


class Member:
    """A consumer, and the one topic that it reads."""

    def __init__(self, store, group, topic):
        self.topic = topic
        self.consumer = store.consumer(topic, group=group)

    @property
    def partitions(self):
        return tuple(sorted(self.consumer.assignment))


class Expected:
    """A group."""

    def __init__(self):
        self.members = []
        self.had_members = False
        """Since it was deleted last."""
        self.offsets = {}
        self.number = {}
        """Partition -> when its offset was changed last, by number."""
        self.unstable = {}
        """Partition -> offset and number, of the open transaction."""

    @property
    def is_there(self):
        return bool(self.members or self.had_members or self.offsets or self.unstable)


class GroupsModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.files, self.clock = MemoryFiles(), ManualClock()
        self.expected = {}
        self.number = 0
        self.open()
        for name, count in TOPICS.items():
            self.store.create_topic(name, partitions=count)
        self.append()
        self.reader = logstore.open("/s", files=self.files, clock=self.clock, read_only=True)

    def open(self):
        self.store = logstore.open("/s", files=self.files, clock=self.clock)
        self.groups = self.store.groups()
        self.transaction = None

    def teardown(self):
        self.reader.close()
        self.store.close()

    def of(self, name):
        return self.expected.setdefault(name, Expected())

    def pass_time(self, ms):
        self.clock.advance(ms)
        self.store.run_background()

    def settle(self, group):
        """Until its members have divided the partitions."""
        for _ in range(TURNS):
            for member in group.members:
                member.consumer.poll(timeout=0)
            self.pass_time(3_000)
        for other in self.expected.values():  # their sessions go on
            for member in other.members:
                member.consumer.poll(timeout=0)

    def end(self, partition):
        return self.store[partition.topic][partition.partition].log_end_offset

    def set(self, group, offsets):
        self.number += 1
        for each in offsets:
            group.unstable.pop(each, None)
        group.offsets |= offsets
        group.number |= dict.fromkeys(offsets, self.number)

    def unset(self, group, partitions):
        self.number += 1
        for each in partitions:
            group.offsets.pop(each, None)
            group.unstable.pop(each, None)
            group.number[each] = self.number

    # What happens

    @rule()
    def append(self):
        for topic in TOPICS:
            for log in self.store[topic]:
                log.extend([b"x"] * 3)

    @rule(name=GROUPS, topic=st.sampled_from(sorted(TOPICS)))
    def join(self, name, topic):
        group = self.of(name)
        if len(group.members) < 3:
            group.members.append(Member(self.store, name, topic))
            group.had_members = True
            self.settle(group)

    @rule(name=GROUPS, which=st.integers(0, 2))
    def leave(self, name, which):
        group = self.of(name)
        if group.members:
            group.members.pop(which % len(group.members)).consumer.close()
            self.settle(group)

    @rule(name=GROUPS, which=st.integers(0, 2))
    def commit_as_member(self, name, which):
        group = self.of(name)
        if group.members:
            member = group.members[which % len(group.members)]
            offsets = {each: self.end(each) - 1 for each in member.partitions}
            member.consumer.commit(offsets)
            self.set(group, offsets)

    @rule(name=GROUPS, partitions=SOME)
    def commit(self, name, partitions):
        offsets = dict.fromkeys(partitions, 2)
        self.store.offsets(name).commit(offsets)
        self.set(self.of(name), offsets)

    @rule(name=GROUPS, partitions=SOME)
    def commit_in_transaction(self, name, partitions):
        """At most one is open, and one of the group's offsets in it."""
        group = self.of(name)
        if self.transaction is not None or group.members:
            return
        producer = self.store.producer(transactional_id="t", transaction_timeout_ms=900_000)
        transaction = producer.transaction()
        transaction.__enter__()
        transaction.commit_offsets(name, dict.fromkeys(partitions, 1))
        self.transaction = producer, transaction
        self.number += 1
        group.unstable = dict.fromkeys(partitions, (1, self.number))

    @precondition(lambda self: self.transaction is not None)
    @rule(committed=st.booleans())
    def end_transaction(self, committed):
        producer, transaction = self.transaction
        self.transaction = None
        transaction.commit() if committed else transaction.abort()
        producer.close()
        self.ended(committed)

    def ended(self, committed):
        for group in self.expected.values():
            for each, (offset, number) in group.unstable.items():
                if committed and group.number.get(each, 0) < number:
                    group.offsets[each] = offset
                    group.number[each] = number
            group.unstable = {}

    @rule(name=GROUPS, partitions=SOME)
    def delete_without_asking_the_group(self, name, partitions):
        group = self.of(name)
        removed = self.store.offsets(name).delete(partitions)
        assert set(removed) == {each for each in partitions if each in group.offsets}
        self.unset(group, partitions)

    # What is asked of the groups

    @rule(name=GROUPS, partitions=SOME)
    def delete_offsets(self, name, partitions):
        group = self.of(name)
        if not group.is_there:
            with pytest.raises(UnknownGroupError):
                self.groups.delete_offsets(name, partitions)
            return
        subscribed = {member.topic for member in group.members}
        free = [each for each in partitions if each.topic not in subscribed]
        if len(free) < len(partitions):
            with pytest.raises(RetriableError, match="were not deleted"):
                self.groups.delete_offsets(name, partitions)
        else:
            removed = self.groups.delete_offsets(name, partitions)
            assert set(removed) == {each for each in partitions if each in group.offsets}
        self.unset(group, free)
        if not group.members and not group.offsets and not group.unstable:
            group.had_members = False

    @rule(name=GROUPS)
    def delete(self, name):
        group = self.of(name)
        if group.members:
            with pytest.raises(RetriableError, match="was not deleted"):
                self.groups.delete(name)
        elif not group.is_there:
            with pytest.raises(UnknownGroupError):
                self.groups.delete(name)
        else:
            self.groups.delete(name)
            self.unset(group, PARTITIONS)
            group.had_members = False

    @rule(name=GROUPS, to=st.sampled_from(["earliest", "latest"]), dry_run=st.booleans())
    def reset(self, name, to, dry_run):
        group = self.of(name)
        if not group.is_there:
            with pytest.raises(UnknownGroupError):
                self.groups.reset(name, to, topics=["t"], dry_run=dry_run)
            return
        if group.members:
            with pytest.raises(RetriableError, match="were not reset"):
                self.groups.reset(name, to, topics=["t"], dry_run=dry_run)
            return
        after = {each: 0 if to == "earliest" else self.end(each) for each in PARTITIONS if each.topic == "t"}
        changed = self.groups.reset(name, to, topics=["t"], dry_run=dry_run)
        assert changed == {each: (group.offsets.get(each), offset) for each, offset in after.items()}
        if not dry_run:
            self.set(group, after)

    @rule(is_killed=st.booleans())
    def restart(self, is_killed):
        """Members end with their process. An open transaction is aborted when its producer comes again."""
        if is_killed:
            self.reader.close()
            self.files = MemoryFiles(self.files.now())
            self.reader = logstore.open("/s", files=self.files, clock=self.clock, read_only=True)
            self.check(self.reader.groups())  # what is stored: also its members
        self.store.close()
        for group in self.expected.values():
            group.members = []
        is_open = self.transaction is not None
        self.open()
        len(self.groups)  # the first look of the new process takes the members out that have died
        if is_open:
            self.store.producer(transactional_id="t").close()
            self.ended(committed=False)

    # What must be so

    @rule()
    def look(self):
        self.check(self.groups)
        self.check(self.reader.groups())
        lag = self.store.metrics()["logstore_group_lag"]
        assert lag == {
            (name, *each): behind
            for name, status in self.groups.items()
            for each, behind in status.lag.items()
        }
        states = [status.state for status in self.groups.values()]
        counted = self.store.metrics()["logstore_groups"]
        assert counted == {(state,): states.count(state) for state in states}

    def check(self, groups):
        there = {name: group for name, group in self.expected.items() if group.is_there}
        found = dict(groups.items())
        assert list(found) == list(groups) == sorted(there)
        for name, group in there.items():
            status = found[name]
            assert groups[name] == status
            assert {each: value.offset for each, value in status.offsets.items()} == group.offsets
            assert status.lag == {each: self.end(each) - offset for each, offset in group.offsets.items()}
            assert status.state == ("Stable" if group.members else "Empty")
            assert status.protocol_type == ("consumer" if group.had_members else "")
            found_parts = [each.partitions for each in status.members]
            assert sorted(found_parts) == sorted(each.partitions for each in group.members)
            topics = {member.topic for member in group.members}
            assert sorted(sum(found_parts, ())) == [each for each in PARTITIONS if each.topic in topics]
        for name in self.expected.keys() - there.keys():
            assert name not in groups


def test_groups_are_what_was_done_to_them():
    run_state_machine_as_test(
        seed(seed_of_turn())(GroupsModel),
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
