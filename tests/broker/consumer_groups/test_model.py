"""Any sequence of events in a group of the newer protocol: its members join, leave, crash, stall, restart
and subscribe to other things; answers are lost; topics come, grow and go; the storage fails, or the broker
dies in the middle of a write.

Checked all the time: no partition has two owners, epochs only rise, and a coordinator that starts now would
know the same group. Checked when things calm down: the group is stable, its members are the processes that
live, and each partition has an owner that wants it.

4 s.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)

from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from tests.broker.consumer_groups.stage import GROUP
from tests.broker.consumer_groups.world import Process, World
from tests.broker.process_rules import ProcessRules, choices, run_in_turn

names = ["orders", "bills", "jobs", "later"]
topics = st.frozensets(st.sampled_from(names), min_size=1)
patterns = st.sampled_from(["", "", "", "s", "er"])
instance_ids = st.sampled_from([None, None, "x", "y"])


class GroupModel(ProcessRules):
    @initialize(number=st.integers(0, 2**32))
    def begin(self, number):
        self.world = World(number)
        for name in ("orders", "bills", "jobs"):
            Process(self.world, frozenset({"orders", name}))
        self.world.pass_time(20_000)

    @rule(topics=topics, pattern=patterns, instance_id=instance_ids)
    def start(self, topics, pattern, instance_id):
        Process(self.world, topics, pattern=pattern, instance_id=instance_id)
        self.world.pass_time(3_000)

    @precondition(lambda model: model.world.live)
    @rule(choice=choices, topics=topics, pattern=patterns)
    def subscribe(self, choice, topics, pattern):
        self.pick(choice).subscribe(topics, pattern)
        self.world.pass_time(3_000)

    @precondition(lambda model: model.world.live)
    @rule(choice=choices, count=st.integers(1, 3))
    def lose_answers(self, choice, count):
        self.pick(choice).losing = count

    @rule(choice=choices)
    def restart_static(self, choice):
        static = [process for process in self.world.live if process.instance_id]
        if static:
            old = self.pick(choice, static)
            old.leave(for_a_while=True)
            Process(self.world, old.topics, pattern=old.pattern, instance_id=old.instance_id)

    @rule(instance_id=instance_ids.filter(bool))
    def remove(self, instance_id):
        """By an administrator. The process, if it lives, joins again."""
        leaves = LeaveGroup(GROUP, (LeavingMember(instance_id=instance_id),))
        self.world.stage.coordinator.leave_group(leaves)

    @rule(name=st.sampled_from(names), count=st.integers(1, 3))
    def grow(self, name, count):
        known = self.world.stage.topics.get(name)
        self.world.stage.set_topic(name, count + (known.partition_count if known else 0))

    @rule(name=st.sampled_from(names))
    def delete_topic(self, name):
        self.world.stage.set_topic(name, 0)

    @rule(ms=st.sampled_from([1_000, 5_000, 5_000, 10_000, 30_000, 60_000]))
    def pass_time(self, ms):
        self.world.pass_time(ms)

    @rule(is_failing=st.sampled_from([False, False, True]))
    def change_storage(self, is_failing):
        self.world.stage.storage.is_failing = is_failing
        self.world.pass_time(3_000)

    @rule(kept=st.integers(0, 6))
    def die_while_storing(self, kept):
        """The next change is stored in part, and the broker starts again. Nobody hears of the change."""
        storage = self.world.stage.storage
        storage.is_failing, storage.keeps = False, kept
        for _ in range(10):
            if storage.keeps is None:
                break
            self.world.stage.wait(1_000)
            for process in self.world.live:
                if storage.keeps is not None:
                    process.act()
        storage.keeps = None
        self.world.restart()

    @rule()
    def restart_broker(self):
        before = self.world.stage.group
        self.world.restart()
        assert before is None or self.world.stage.group == before or not before.epoch

    @rule()
    def settle(self):
        self.world.settle()

    @invariant()
    def timers_are_few(self):
        group = getattr(self, "world", None) and self.world.stage.group
        if group:
            assert len(self.world.stage.timers.armed) <= 2 * len(group.members)

    def teardown(self):
        world = self.world
        world.settle()
        for process in world.processes:
            process.is_stalled = False
            process.leave()
        world.pass_time(60_000)
        assert not world.stage.timers.armed
        assert world.stage.group is None or not world.stage.group.members


def test_any_sequence_of_events():
    run_in_turn(GroupModel, examples=60, steps=40)
