"""The table against a dict, through commits, transactions, deletes, expiry, compaction and opens."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import logstore
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.model import ProducerIdentity, TopicPartition
from tests.broker.offsets.helpers import DAY_MS, MINUTE_MS, World

GROUPS = st.sampled_from(["a", "b", "with members", "grüße"])
PARTITIONS = st.sampled_from([TopicPartition(topic, number) for topic in "xy" for number in range(2)])
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**62), min_size=1, max_size=3)
WEEK_MS = 7 * DAY_MS


class Committed(RuleBasedStateMachine):
    """``expected``: (group, partition) -> (offset, when it was committed, its number among all changes)."""

    def __init__(self):
        super().__init__()
        self.world = World(offsets_topic_num_partitions=2)
        self.world.empty_since = lambda group: None if group == "with members" else -1
        self.world.reopen()
        self.reader = logstore.open("/store", files=self.world.files, clock=self.world.clock, read_only=True)
        self.watched = CommittedOffsets(self.reader._directory)
        self.expected = {}
        self.pending = {}
        self.removed = {}
        """When each was last removed, in that order."""
        self.number = 0

    def teardown(self):
        self.reader.close()
        self.world.store.close()

    def note(self, table, group, offsets):
        self.number += 1
        for partition, offset in offsets.items():
            table[group, partition] = (offset, self.world.clock.now_ms(), self.number)

    @rule(group=GROUPS, offsets=OFFSETS, flush=st.booleans())
    def commit(self, group, offsets, flush):
        self.world.commit(group, offsets, flush=flush)
        self.note(self.expected, group, offsets)

    @rule(group=GROUPS, offsets=OFFSETS, producer_id=st.integers(0, 2))
    def commit_in_transaction(self, group, offsets, producer_id):
        self.world.commit(group, offsets, producer=ProducerIdentity(producer_id, 0, -1, True))
        self.note(self.pending.setdefault(producer_id, {}), group, offsets)

    @rule(producer_id=st.integers(0, 2), committed=st.booleans())
    def end_transaction(self, producer_id, committed):
        records = self.pending.pop(producer_id, {})
        partitions = {self.world.committed.partition_of(group) for group, _ in records}
        for number in partitions:
            self.world.log(number).append_end_marker(producer_id, 0, committed=committed)
        for key, value in records.items():
            last = self.removed_or_committed(key)
            if committed and value[2] > last:
                self.expected[key] = value

    def removed_or_committed(self, key):
        """When the key was last changed outside of this transaction."""
        return max(self.expected.get(key, (0, 0, 0))[2], self.removed.get(key, 0))

    def remove(self, keys, pending=()):
        """``pending``: what was removed of open transactions."""
        self.number += 1
        self.removed |= dict.fromkeys([*keys, *pending], self.number)
        for key in keys:
            del self.expected[key]

    @rule(group=GROUPS, partitions=st.none() | st.sets(PARTITIONS))
    def delete(self, group, partitions):
        keys = [
            key for key in self.expected if key[0] == group and (partitions is None or key[1] in partitions)
        ]
        assert set(self.world.committed.delete(group, partitions)) == {key[1] for key in keys}
        self.remove(
            keys,
            [
                key
                for key in self.all_pending()
                if key[0] == group and (partitions is None or key[1] in partitions)
            ],
        )

    def all_pending(self):
        return {key for records in self.pending.values() for key in records}

    @rule(topic=st.sampled_from("xy"))
    def forget_topic(self, topic):
        self.world.committed.forget_topic(topic)
        self.remove(
            [key for key in self.expected if key[1].topic == topic],
            [key for key in self.all_pending() if key[1].topic == topic],
        )

    @rule(days=st.integers(0, 8))
    def wait(self, days):
        self.world.clock.advance(days * DAY_MS + MINUTE_MS)

    @rule()
    def expire(self):
        now_ms = self.world.clock.now_ms()
        unstable = {key for records in self.pending.values() for key in records}
        keys = [
            key
            for key, value in self.expected.items()
            if key[0] != "with members" and now_ms - value[1] >= WEEK_MS and key not in unstable
        ]
        expired = self.world.committed.expire()
        assert {(group, each) for group, found in expired.items() for each in found} == set(keys)
        self.remove(keys)

    @rule()
    def compact(self):
        if "__consumer_offsets" in self.world.store:
            for log in self.world.store["__consumer_offsets"]:
                log.compact(now=True)

    @rule()
    def reopen(self):
        self.world.reopen()

    @rule()
    def look_beside(self):
        self.check(self.watched)

    @invariant()
    def table_is_the_dict(self):
        self.check(self.world.committed)

    def check(self, committed):
        found = {
            (group, partition): (value.offset, value.commit_timestamp_ms)
            for group in ("a", "b", "with members", "grüße")
            for partition, value in committed.fetch(group).items()
        }
        assert found == {key: value[:2] for key, value in self.expected.items()}
        assert committed.groups() == {group for group, _ in self.expected}
        unstable = {key for records in self.pending.values() for key in records}
        for group in ("a", "b"):
            assert committed.unstable(group) == {each for owner, each in unstable if owner == group}


TestCommitted = Committed.TestCase
TestCommitted.settings = settings(max_examples=40, stateful_step_count=30)
