"""Any sequence of events in a group: its members join, leave, crash, stall and restart; topics change, the
storage fails, the broker restarts.

Checked all the time: no two live members of a generation have the same partition, no request is answered
twice, and there are no more timers than members and rounds. Checked when things calm down: the members are
the processes that live, and each partition has one owner. Checked at the end: nothing waits, and no timer is
armed.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from tests.broker.groups.world import GROUP, SETTLED_MS, Process, World
from tests.broker.process_rules import ProcessRules, choices, run_in_turn

topics = st.frozensets(st.sampled_from(["orders", "bills", "jobs"]), min_size=1)
instance_ids = st.sampled_from([None, None, "x", "y", "z"])


class GroupModel(ProcessRules):
    @initialize(number=st.integers(0, 2**32))
    def begin(self, number):
        self.world = World(number)

    def has_static(self):
        return any(process.instance_id for process in self.world.live)

    @rule(topics=topics, instance_id=instance_ids, requires_member_id=st.booleans())
    def start(self, topics, instance_id, requires_member_id):
        """With an instance id that is taken, this fences the process that has it."""
        Process(self.world, topics, instance_id, requires_member_id=requires_member_id)

    @precondition(lambda model: model.world.live)
    @rule(choice=choices, topics=topics)
    def change_topics(self, choice, topics):
        process = self.pick(choice)
        process.topics = topics
        process.rejoin()

    @precondition(has_static)
    @rule(choice=choices, topics=topics)
    def restart_with_topics(self, choice, topics):
        old = self.pick(choice, [process for process in self.world.live if process.instance_id])
        old.crash()
        Process(self.world, topics, old.instance_id, requires_member_id=True)

    @rule(instance_id=instance_ids.filter(bool))
    def remove(self, instance_id):
        """By an administrator. The process, if it lives, joins again."""
        leaves = LeaveGroup(GROUP, (LeavingMember(instance_id=instance_id),))
        self.world.stage.coordinator.leave_group(leaves, self.world.stage.once(lambda _: None))

    @rule(topic=st.sampled_from(["orders", "bills", "jobs"]))
    def add_partition(self, topic):
        self.world.partitions[topic] += 1
        self.world.metadata_version += 1

    @rule(ms=st.sampled_from([500, 500, 1000, 3000, 8000, 15000]))
    def pass_time(self, ms):
        self.world.pass_time(ms)

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def change_storage(self, error):
        self.world.stage.storage.error = error

    @rule()
    def hold_storage(self):
        self.world.stage.storage.is_holding = True

    @rule()
    def release_storage(self):
        self.world.stage.storage.release()

    @rule()
    def restart_broker(self):
        self.world.stage.coordinator.close()
        assert not self.world.stage.timers.armed
        self.world.stage.start()

    @rule()
    def settle(self):
        self.world.settle()

    @precondition(has_static)
    @rule(choice=choices)
    def restart_unnoticed(self, choice):
        """The generation stays, the part stays, and nobody else joins again."""
        self.world.settle()
        static = [process for process in self.world.live if process.instance_id]
        if not static:  # all were fenced by others that have stalled since
            return
        old = self.pick(choice, static)
        others = {process: process.join_count for process in self.world.live if process is not old}
        old.crash()
        new = Process(self.world, old.topics, old.instance_id, requires_member_id=True)
        self.world.pass_time(20_000)
        assert (new.generation, new.owned) == (old.generation, old.owned)
        assert others == {process: process.join_count for process in others}
        assert new.join_count == 1

    @invariant()
    def timers_are_few(self):
        group = getattr(self, "world", None) and self.world.group
        if group is not None:
            most = len(group.members) + len(group.pending) + 1
            assert len(self.world.stage.timers.armed) <= most

    def teardown(self):
        world = self.world
        world.settle()
        for process in world.live:
            process.leave()
        for process in world.processes:
            process.crash()
        world.pass_time(SETTLED_MS)
        assert not world.stage.timers.armed
        assert not world.stage.unanswered_count
        assert world.group is None or (not world.group.members and not world.group.pending)


def test_any_sequence_of_events():
    run_in_turn(GroupModel, examples=100, steps=40)
