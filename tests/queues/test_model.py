"""Queues against a model, on a clock set by hand: workers join, take, accept, release, reject, renew, stall,
leave and die, while records are appended, aborted, compacted and deleted, and topics made again.

What a worker gets must be available to it, the lowest offsets first, with its delivery count; and nothing
that is available is kept from one who asks. Costs 6 s.
"""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import logstore
from logstore import Isolation, NewRecord
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import JobLostError
from logstore.model import ProducerIdentity, TopicPartition
from logstore.testing import ManualClock, MemoryFiles
from tests.queues.model import Group, Place

LOCK_MS = 1_000
TOPICS = {"a": 2, "b": 1}
PARTITIONS = [TopicPartition(name, number) for name, count in TOPICS.items() for number in range(count)]
COMMON = {
    "record_lock_duration_ms": LOCK_MS,
    "delivery_count_limit": 3,
    "linger_ms": 0,
    "metadata_max_age_ms": 0,
}
GROUPS = {
    "one": (("a",), {"dead_letter_topic": "dead"}),
    "both": (("a", "b"), {"dead_letter_topic": "dead", "isolation": Isolation.COMMITTED}),
    "late": (("b",), {"auto_offset_reset": "latest"}),
}
NAMES = st.sampled_from(list(GROUPS))
ANY = st.integers(0, 10**6)


class Queues(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.files, self.clock = MemoryFiles(), ManualClock()
        self.config = StoreConfig(log_cleaner_enable=False, topic=TopicConfig(segment_bytes=1_000))
        self.open()
        self.lives = dict.fromkeys(TOPICS, 0)
        for name, count in TOPICS.items():
            policy = "compact,delete" if name == "b" else "delete"
            self.store.create_topic(name, partitions=count, config=TopicConfig(cleanup_policy=policy))
        self.store.create_topic("dead")
        self.groups = {name: self.new_group() for name in GROUPS}
        self.workers = {}
        self.jobs = []
        """Jobs that workers have, or had: worker, place, job."""
        self.number = 0
        self.sequences = Counter()
        self.open_transactions = set()

    def open(self):
        self.store = logstore.open("/store", files=self.files, clock=self.clock, config=self.config)

    @staticmethod
    def new_group():
        return Group(COMMON["delivery_count_limit"], LOCK_MS)

    def teardown(self):
        self.all_is_done_in_the_end()
        for worker in self.workers.values():
            worker.close()
        self.store.close()

    def log(self, partition):
        return self.store[partition.topic][partition.partition]

    def place(self, partition, offset):
        return Place(self.lives[partition.topic], partition, offset)

    def visible(self, name, partition):
        """What is there for a group to see."""
        log = self.log(partition)
        isolation = GROUPS[name][1].get("isolation", Isolation.HIGH_WATERMARK)
        return [self.place(partition, record.offset) for record in log.read(isolation=isolation)]

    def of_group(self, name):
        return [each for each in PARTITIONS if each.topic in GROUPS[name][0]]

    @initialize()
    def begin(self):
        for name in GROUPS:
            self.join(name)
        for partition in PARTITIONS:
            self.append(partition, 4)

    # Records

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 8))
    def append(self, partition, count):
        self.log(partition).extend([self.record() for _ in range(count)])

    def record(self):
        self.number += 1
        return NewRecord(b"%d" % self.number, key=b"%d" % (self.number % 3))

    @rule(partition=st.sampled_from(PARTITIONS[:2]), count=st.integers(1, 3))
    def append_in_transaction(self, partition, count):
        producer = ProducerIdentity(7, 0, self.sequences[partition], transactional=True)
        self.log(partition).extend([self.record() for _ in range(count)], producer=producer)
        self.sequences[partition] += count
        self.open_transactions.add(partition)

    @rule(partition=st.sampled_from(PARTITIONS[:2]), is_committed=st.booleans())
    def end_transaction(self, partition, is_committed):
        if partition in self.open_transactions:
            self.log(partition).append_end_marker(7, 0, committed=is_committed)
            self.open_transactions.remove(partition)

    @rule(
        what=st.sampled_from(
            [
                "compact",
                "leave",
                "leave",
                "be_killed",
                "be_killed",
                "delete_before",
                "make_topic_again",
                "delete_queue",
            ]
        ),
        at=ANY,
    )
    def disturb(self, what, at):
        getattr(self, what)(at)

    def compact(self, at):
        self.settle()
        log = self.store["b"][0]
        log.roll()
        log.compact(now=True)
        self.note_what_is_gone()

    def delete_before(self, at):
        self.settle()
        log = self.log(PARTITIONS[at % len(PARTITIONS)])
        log.delete_before(log.log_start_offset + at % (log.high_watermark - log.log_start_offset + 1))
        self.note_what_is_gone()

    def make_topic_again(self, at):
        self.settle()
        topic = list(TOPICS)[at % len(TOPICS)]
        config = self.store[topic].config
        self.store.delete_topic(topic)
        self.store.create_topic(topic, partitions=TOPICS[topic], config=config)
        self.lives[topic] += 1
        self.jobs = [each for each in self.jobs if each[1].partition.topic != topic]
        for partition in [each for each in self.open_transactions if each.topic == topic]:
            self.open_transactions.remove(partition)
        for partition in PARTITIONS:
            if partition.topic == topic:
                self.sequences[partition] = 0
        self.note_what_is_gone()

    # Workers

    @precondition(lambda self: len(self.workers) < 5)
    @rule(name=NAMES)
    def join(self, name):
        if sum(key[0] == name for key in self.workers) < 3:
            self.number += 1
            self.workers[name, self.number] = self.queue(name)
            self.take_up(name)

    def queue(self, name):
        topics, options = GROUPS[name]
        return self.store.queue(*topics, group=name, **COMMON, **options)

    def take_up(self, name):
        """A worker hears of the partitions that there are."""
        group = self.groups[name]
        for partition in self.of_group(name):
            log = self.log(partition)
            start = log.high_watermark if name == "late" else log.log_start_offset
            group.starts.setdefault((self.lives[partition.topic], partition), start)

    @precondition(lambda self: self.workers)
    @rule(at=ANY, most=st.sampled_from([1, 2, 3, 10]))
    def poll(self, at, most):
        key = self.any_worker(at)
        self.take(key, self.workers[key].poll(0, max_jobs=most), most)

    @precondition(lambda self: self.workers)
    @rule(at=ANY)
    def poll_all(self, at):
        """Nothing is kept from one who asks."""
        key = self.any_worker(at)
        while found := self.workers[key].poll(0):
            self.take(key, found, 500)
        name = key[0]
        for partition in self.of_group(name):
            assert self.available(name, partition) == []

    def any_worker(self, at):
        key = list(self.workers)[at % len(self.workers)]
        self.take_up(key[0])
        self.groups[key[0]].pass_time(self.clock.monotonic_ms())
        return key

    def available(self, name, partition):
        group, monotonic_ms, now_ms = self.groups[name], self.clock.monotonic_ms(), self.clock.now_ms()
        return [
            each for each in self.visible(name, partition) if group.is_available(each, monotonic_ms, now_ms)
        ]

    def take(self, key, jobs, most):
        name, worker = key
        assert len(jobs) <= most
        for partition in self.of_group(name):
            available = self.available(name, partition)
            mine = [job for job in jobs if job.partition == partition]
            places = [self.place(partition, job.offset) for job in mine]
            assert places == available[: len(places)]
            for place, job in zip(places, mine, strict=True):
                known = self.groups[name].take(place, worker, self.clock.monotonic_ms())
                assert job.delivery_count == known.delivery_count
                self.jobs.append((key, place, job))

    @precondition(lambda self: self.jobs)
    @rule(
        at=ANY,
        what=st.lists(
            st.sampled_from(["accept", "accept", "release", "release", "reject", "renew", "put off"]),
            min_size=1,
            max_size=4,
        ),
        delay_ms=st.sampled_from([1, 500, 3_000]),
    )
    def settle_jobs(self, at, what, delay_ms):
        for number, each in enumerate(what):
            if self.jobs:
                self.settle_a_job(at + number, each, delay_ms)

    def settle_a_job(self, at, what, delay_ms):
        (name, worker), place, job = self.jobs[at % len(self.jobs)]
        group = self.groups[name]
        group.pass_time(self.clock.monotonic_ms())
        if not group.has(place, worker, job.delivery_count):
            self.jobs.remove(((name, worker), place, job))
            with pytest.raises(JobLostError, match=f"{place.partition} offset {place.offset}"):
                job.accept()
            return
        if what == "renew":
            job.renew()
            group.known(place).deadline_ms = self.clock.monotonic_ms() + LOCK_MS
            return
        self.jobs.remove(((name, worker), place, job))
        if what == "accept":
            job.accept()
            group.accept(place)
            return
        self.note_what_is_gone()
        if what == "reject":
            job.reject("why")
            group.reject(place)
        else:
            job.release(delay_ms / 1000 if what == "put off" else None)
            group.give_back(place, self.clock.now_ms() + delay_ms if what == "put off" else 0)

    def leave(self, at):
        if not self.workers:
            return
        self.settle()
        name, worker = key = list(self.workers)[at % len(self.workers)]
        self.workers.pop(key).close()
        self.jobs = [each for each in self.jobs if each[0] != key]
        self.groups[name].leave(worker)

    def be_killed(self, at=0):
        self.settle()
        self.store._directory.abandon()
        self.open()
        self.workers.clear()
        self.jobs.clear()
        for group in self.groups.values():
            group.leave()

    @rule(ms=st.sampled_from([1, 400, 600, 1_000, 5_000]))
    def wait(self, ms):
        self.clock.advance(ms)
        self.store.run_background()

    def delete_queue(self, at):
        name = list(GROUPS)[at % len(GROUPS)]
        has_workers = any(key[0] == name for key in self.workers)
        if not has_workers and any(each.group == name for each in self.store.queues()):
            self.settle()
            self.store.delete_queue(name)
            dead = self.groups[name].dead
            self.groups[name] = self.new_group()
            self.groups[name].dead = dead

    # What must hold

    def settle(self):
        """What has died by now is buried, by a worker that looks and takes nothing that it keeps."""
        self.note_what_is_gone()
        for group in self.groups.values():
            group.pass_time(self.clock.monotonic_ms())
        for name in {each.group for each in self.store.queues()} - {key[0] for key in self.workers}:
            self.queue(name).close()  # buries what killed the last processes
            self.take_up(name)
        for held in self.store._open_broker(self.store._directory)._share_coordinator()._all_held():
            held.close()

    def note_what_is_gone(self):
        there = {place for partition in PARTITIONS for place in self.visible("one", partition)}
        for group in self.groups.values():
            group.gone.update(set(group.records) - there)

    @invariant()
    def nothing_undone_is_passed_over(self):
        for status in self.store.queues():
            group = self.groups[status.group]
            group.pass_time(self.clock.monotonic_ms())
            for each in status.partitions:
                start = group.starts.get((self.lives[each.partition.topic], each.partition))
                if start is None:
                    continue
                places = [
                    place for place in self.visible(status.group, each.partition) if place.offset >= start
                ]
                lowest = group.lowest_undone(places)
                assert lowest is None or each.start_offset <= lowest
                assert each.start_offset >= min(start, self.log(each.partition).log_start_offset)

    def all_is_done_in_the_end(self):
        """All that is there can be done by new workers, and what died is in the dead-letter topic, once."""
        self.be_killed()
        for name in GROUPS:
            self.join(name)
            (key,) = (each for each in self.workers if each[0] == name)
            self.clock.advance(5_000)
            self.groups[name].pass_time(self.clock.monotonic_ms())
            while found := self.workers[key].poll(0):
                self.take(key, found, 500)
                for job in found:
                    job.accept()
            self.workers[key].flush()
            for partition in self.of_group(name):
                assert self.available(name, partition) == []
        letters = Counter()
        for record in self.store["dead"].read():
            headers = dict(record.headers)
            partition = TopicPartition(headers["logstore.topic"].decode(), int(headers["logstore.partition"]))
            letters[headers["logstore.group"].decode(), partition, int(headers["logstore.offset"])] += 1
        dead = Counter(
            (name, place.partition, place.offset)
            for name, group in self.groups.items()
            for place in group.dead
            if name != "late"
        )
        assert letters == dead


class TestQueues(Queues.TestCase):
    settings = settings(max_examples=50, stateful_step_count=60)
