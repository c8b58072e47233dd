"""Any sequence of events in a group that members of both protocols share: they come, leave, crash, stall,
change over, also as static members under the same name; the topic grows; the broker is killed.

Checked all the time: the group has one protocol, in memory and in what is stored; no partition has two
owners; and a member that acts is never removed. Checked when things calm down: the group is of the newer
protocol if one of its members is, and each partition has an owner.

6 s.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
)

from tests.broker.consumer_groups.mixed import Classic, Newer, World
from tests.broker.process_rules import ProcessRules, choices, run_in_turn

flags = st.booleans()
instance_ids = st.sampled_from([None, None, "x", "y"])


class MixedModel(ProcessRules):
    @initialize(number=st.integers(0, 2**32), cooperative=flags)
    def begin(self, number, cooperative):
        self.world = World(number)
        for _ in range(2):
            Classic(self.world, cooperative=cooperative)
        self.world.pass_time(10_000)

    @rule(instance_id=instance_ids)
    def start_newer(self, instance_id):
        Newer(self.world, instance_id)
        self.world.pass_time(3_000)

    @rule(instance_id=instance_ids, cooperative=flags, requires_member_id=flags)
    def start_classic(self, instance_id, cooperative, requires_member_id):
        Classic(self.world, instance_id, cooperative=cooperative, requires_member_id=requires_member_id)
        self.world.pass_time(3_000)

    @precondition(lambda model: model.world.live)
    @rule(choice=choices, cooperative=flags, leaves=flags)
    def change_over(self, choice, cooperative, leaves):
        """A process starts again, with the other protocol."""
        old = self.pick(choice)
        if leaves:
            old.leave()
        old.is_alive = False
        if isinstance(old, Newer):
            Classic(self.world, old.instance_id, cooperative=cooperative)
        else:
            Newer(self.world, old.instance_id)

    @rule()
    def grow(self):
        if self.world.partition_count < 12:
            self.world.grow()

    @rule(ms=st.sampled_from([1_000, 2_000, 5_000, 5_000, 10_000, 20_000, 60_000]))
    def pass_time(self, ms):
        self.world.pass_time(ms)

    @rule()
    def restart_broker(self):
        self.world.restart()

    @rule()
    def settle(self):
        self.world.settle()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.settle()


def test_any_sequence_of_events():
    run_in_turn(MixedModel, examples=40, steps=30)
