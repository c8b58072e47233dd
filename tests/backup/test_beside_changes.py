"""Backups while threads append, cut, compact, erase, delete and create: each one opens, and each partition is
a prefix of what was appended, with all that was appended before the call."""

from __future__ import annotations

import random
import threading
import time

import pytest

import logstore
from logstore import StoreConfig, TopicConfig
from tests.backup.helpers import read_all
from tests.rotation import seed_of_turn

CONFIG = StoreConfig(
    topic=TopicConfig(segment_bytes=2_000, index_interval_bytes=200, file_delete_delay_ms=0), linger_ms=1
)
PARTITIONS = 3


class Life:
    """What goes on in a store while it is backed up."""

    def __init__(self, path, seed):
        self.store = logstore.open(path, config=CONFIG)
        self.rng = random.Random(seed)
        self.is_over = False
        self.failures = []
        self.appended = [0] * PARTITIONS
        """Of the topic that only grows: values are their offsets."""
        self.store.create_topic("grows", partitions=PARTITIONS)
        self.store.create_topic("cut", config=CONFIG.topic)
        latest = TopicConfig(cleanup_policy="compact", segment_bytes=2_000, file_delete_delay_ms=0)
        self.store.create_topic("latest", config=latest)
        self.store.create_topic("comes-and-goes")

    def threads(self):
        kinds = (self.grow, self.cut, self.compact, self.come_and_go)
        return [threading.Thread(target=self.run, args=(kind, self.rng.random())) for kind in kinds]

    def run(self, kind, seed):
        rng = random.Random(seed)
        try:
            while not self.is_over:
                kind(rng)
                time.sleep(rng.random() * 0.02)  # on few cores a busy thread stops the others
        except Exception as error:
            self.failures.append(error)

    def grow(self, rng):
        number = rng.randrange(PARTITIONS)
        log, at = self.store["grows"][number], self.appended[number]
        if rng.random() < 0.5:
            log.append(b"%d" % at)
            self.appended[number] = at + 1
        else:
            count = rng.randrange(1, 20)
            log.extend([b"%d" % (at + i) for i in range(count)])
            self.appended[number] = at + count

    def cut(self, rng):
        """Records say what they are the how manieth of, in the whole life of the log."""
        log = self.store["cut"][0]
        for _ in range(rng.randrange(30)):
            log.append(b"at %d" % log.log_end_offset * 9)
        start, end = log.log_start_offset, log.log_end_offset
        what = rng.randrange(5)
        if what == 0:
            log.truncate_to(rng.randint((start + end) // 2, end))
        elif what == 1:
            log.delete_before(rng.randint(start, (start + end) // 2))
        elif what == 2:
            log.roll()
        elif what == 3:
            log.erase(offsets=[rng.randint(start, end)])

    def compact(self, rng):
        log = self.store["latest"][0]
        log.extend([(b"%d" % rng.randrange(9), b"%d" % (log.log_end_offset + i) * 9) for i in range(20)])
        log.compact(now=True)

    def come_and_go(self, rng):
        name = "comes-and-goes"
        if name in self.store and rng.random() < 0.5:
            self.store.delete_topic(name)
        else:
            topic = self.store.require_topic(name)
            topic[0].extend([b"here"] * rng.randrange(1, 40))


def check(path, least):
    with logstore.open(path, config=CONFIG, read_only=True) as copy:
        report = copy.verify()
        assert report, str(report)
        for number, log in enumerate(copy["grows"]):
            values = [record.value for record in log.read()]
            assert values == [b"%d" % i for i in range(len(values))]
            assert len(values) >= least[number]
        assert all(r.value == b"at %d" % r.offset * 9 for r in copy["cut"][0].read())
        latest = list(copy["latest"][0].read())
        assert all(r.value == b"%d" % r.offset * 9 for r in latest)
        assert {r.value for log in copy.get("comes-and-goes", ()) for r in log.read()} <= {b"here"}
        return {log.partition: log.log_end_offset for topic in copy.values() for log in topic}


def backups(tmp_path, seed, *, count, links):
    life = Life(tmp_path / "data", seed)
    threads = life.threads()
    reports = []
    with life.store:
        for thread in threads:
            thread.start()
        try:
            for _ in range(count):
                least = list(life.appended)
                report = life.store.backup(tmp_path / "backup", links=links)
                reports.append(report)
                ends = check(tmp_path / "backup", least)
                assert {p.partition: p.log_end_offset for p in report.partitions} == ends
        finally:
            life.is_over = True
            for thread in threads:
                thread.join()
        assert not life.failures, life.failures
        life.store.backup(tmp_path / "backup", links=links)
        last = {name: [list(log.read()) for log in topic] for name, topic in life.store.items()}
        assert life.store.verify()
    with logstore.open(tmp_path / "backup", config=CONFIG) as copy:
        assert {name: [list(log.read()) for log in topic] for name, topic in copy.items()} == last
        for topic in copy.values():
            for log in topic:
                log.truncate_to((log.log_start_offset + log.log_end_offset) // 2)
                log.append(b"more", key=b"1", flush=True)
        assert copy.verify()
    assert read_all(tmp_path / "data")["grows"][3] != {}
    with logstore.open(tmp_path / "data", config=CONFIG) as store:
        assert store.was_clean
        assert {name: [list(log.read()) for log in topic] for name, topic in store.items()} == last
        assert store.verify()
    assert sum(report.kept_bytes for report in reports) > 0


@pytest.mark.parametrize("links", [True, False])
def test_each_backup_is_a_prefix(tmp_path, links):
    backups(tmp_path, seed_of_turn(), count=8, links=links)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("links", [True, False])
def test_each_of_many_backups_is_a_prefix(tmp_path, links, seed):
    backups(tmp_path, seed, count=60, links=links)
