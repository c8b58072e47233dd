"""A store with a queue, in memory, on a clock set by hand."""

from __future__ import annotations

import pytest

import logstore
from logstore.testing import FaultyFiles, ManualClock, MemoryFiles


class World:
    """A store with the topic ``jobs`` of one partition, on a disk that can fail."""

    def __init__(self):
        self.files, self.clock = FaultyFiles(MemoryFiles()), ManualClock()
        self.reopen()
        self.log = self.store.create_topic("jobs")[0]
        self.store.create_topic("dead")

    def reopen(self):
        self.store = logstore.open("/store", files=self.files, clock=self.clock)

    def queue(self, *topics, **settings):
        return self.store.queue(*(topics or ("jobs",)), group="workers", **settings)

    def extend(self, count):
        self.log.extend([b"%d" % number for number in range(count)])

    def dead(self):
        return [record.value for record in self.store["dead"][0].read()]


@pytest.fixture
def world():
    world = World()
    yield world
    world.files.heal()
    world.store.close()
