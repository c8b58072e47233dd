"""A store in memory, and what is committed in it."""

from __future__ import annotations

import logstore
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.config import StoreConfig
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.testing import ManualClock, MemoryFiles

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
BILLS = TopicPartition("bills", 0)


class World:
    """A store, opened again at will. ``committed`` is what a coordinator works with."""

    def __init__(self, **settings):
        self.files = MemoryFiles()
        self.clock = ManualClock()
        settings = {"log_cleaner_enable": False, "offsets_retention_minutes": 10_080, **settings}
        self.config = StoreConfig(**settings)
        self.empty_since = None
        self.open()

    def open(self):
        self.store = logstore.open("/store", files=self.files, clock=self.clock, config=self.config)
        self.committed = CommittedOffsets(self.store._directory, empty_since=self.empty_since)

    def reopen(self):
        self.store.close()
        self.open()

    def commit(self, group, offsets, **options):
        self.committed.commit(
            group, {each: OffsetAndMetadata(offset) for each, offset in offsets.items()}, **options
        )

    def offsets(self, group):
        return {each: value.offset for each, value in self.committed.fetch(group).items()}

    def log(self, number=0):
        return self.store["__consumer_offsets"][number]
