"""``on_revoked`` raised. The consumer went on reading the partitions that it had given up, and did not join
again, so that no other member ever got them. What the callback raises is raised by ``poll()``; the partitions
go to the others all the same."""

from __future__ import annotations

import pytest

from logstore.broker.local import LocalBroker
from logstore.clients.consumer import Consumer
from logstore.clients.settings import ConsumerConfig
from logstore.config import StoreConfig
from logstore.logdir.directory import LogDirectory
from logstore.testing import ManualClock, MemoryFiles

PARTITIONS = 6


class World:
    """A group of two, of which the first has a callback that raises."""

    def __init__(self, assignor, **callbacks):
        self.clock = ManualClock()
        self.directory = LogDirectory("/data", files=MemoryFiles(), clock=self.clock, config=StoreConfig())
        self.directory.create_topic("t", PARTITIONS, None)
        self.broker = LocalBroker(self.directory)
        self.assignor = assignor
        self.first = self.consumer(**callbacks)
        self.raised = 0

    def consumer(self, **callbacks):
        return Consumer(
            self.broker,
            ("t",),
            group="g",
            clock=self.clock,
            assignors=[self.assignor],
            config=ConsumerConfig(),
            **callbacks,
        )

    def settle(self, *consumers):
        for _ in range(12):
            for consumer in consumers:
                try:
                    consumer.poll(timeout=0)
                except ZeroDivisionError:
                    self.raised += 1
            self.clock.advance(3_000)
            self.directory.context.scheduler.run_due()


def fail(partitions):
    raise ZeroDivisionError


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("callback", ["on_revoked", "on_assigned"])
def test_the_group_divides_its_partitions_all_the_same(assignor, callback):
    world = World(assignor, **{callback: fail})
    world.settle(world.first)
    assert len(world.first.assignment) == PARTITIONS
    second = world.consumer()
    world.settle(world.first, second)
    assert world.raised
    assert len(world.first.assignment) == len(second.assignment) == PARTITIONS // 2
    assert not set(world.first.assignment) & set(second.assignment)
