"""A consumer of a log whose end is taken away, and that goes on with other records (KIP-320)."""

from __future__ import annotations

import itertools
import logging
import random

import pytest

from logstore.broker.codes import ErrorCode
from logstore.clients.consumer import Consumer
from logstore.clients.settings import ConsumerConfig
from logstore.errors import OffsetOutOfRangeError
from logstore.model import Isolation
from tests.broker.rig import T0, Rig, Transactional
from tests.rotation import seed_of_turn


class Here:
    """A log, and a consumer in its process."""

    def __init__(self, isolation=Isolation.HIGH_WATERMARK, reset="earliest", **settings):
        self.rig = Rig(partitions=1, segment_bytes=600, file_delete_delay_ms=0, **settings)
        self.consumer = self.reader(isolation, auto_offset_reset=reset)
        self.numbers = itertools.count()

    def reader(self, isolation=Isolation.HIGH_WATERMARK, **settings):
        config = ConsumerConfig(**{"auto_offset_reset": "earliest"} | settings)
        return Consumer(
            self.rig.broker, (), partitions=[T0], group=None, isolation=isolation, config=config,
            clock=self.rig.clock,
        )  # fmt: skip

    @property
    def log(self):
        return self.rig.directory.log(T0)

    def append(self, rng):
        rows = [(b"k%d" % rng.randrange(5), b"%d" % next(self.numbers)) for _ in range(rng.randrange(1, 6))]
        self.log.extend(rows)

    def transact(self, rng):
        values = [b"%d" % next(self.numbers) for _ in range(rng.randrange(1, 4))]
        producer = Transactional(self.rig)
        assert producer.start() is ErrorCode.NONE
        assert producer.send(*values) is ErrorCode.NONE
        assert producer.end(committed=rng.random() < 0.5) is ErrorCode.NONE

    def new_epoch(self, rng):
        self.log.assign_leader_epoch(self.log.leader_epoch + rng.choice((1, 3)))

    def delete(self, rng):
        self.log.delete_before(rng.randrange(self.log.log_start_offset, self.log.high_watermark + 1))

    def roll(self, _):
        self.log.roll()

    def compact(self, _):
        self.rig.pass_time(1_000)
        self.rig.directory.compact("t", now=True, dry_run=False, on_progress=None)

    def reopen(self, _):
        self.rig.directory.reopen(T0)

    def cut(self, rng):
        self.log.truncate_to(rng.randrange(self.log.log_start_offset, self.log.log_end_offset + 1))
        for producer_id, (epoch, _) in self.log.open_transactions().items():  # whose marker is gone
            self.log.append_end_marker(producer_id, epoch, committed=False)

    def poll(self, rng):
        return self.consumer.poll(timeout=0) if rng.random() < 0.8 else []


def drain(consumer):
    found = []
    while some := consumer.poll(timeout=0):
        found += some
    return found


class View:
    """What a program knows that applies each record that it gets, in their order."""

    def __init__(self):
        self.values = {}

    def apply(self, records):
        for record in records:
            self.values = {at: value for at, value in self.values.items() if at < record.offset}
            self.values[record.offset] = record.value


QUIET = ("append", "append", "transact", "new_epoch", "delete", "roll")


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.COMMITTED])
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_nothing_is_told_of_a_log_that_only_grows(policy, isolation, caplog):
    """0.5 s each. Whatever leader epochs begin, and whatever gaps there are."""
    steps = [each for each in QUIET if each != "transact"] + ["compact"] if "compact" in policy else QUIET
    for seed in range(5 * seed_of_turn(), 5 * seed_of_turn() + 5):
        rng = random.Random(f"grows {seed} {policy} {isolation}")
        here = Here(isolation, cleanup_policy=policy)
        offsets = []
        for _ in range(60):
            getattr(here, rng.choice(steps))(rng)
            offsets += [record.offset for record in here.poll(rng)]
        offsets += [record.offset for record in drain(here.consumer)]
        assert offsets == sorted(set(offsets)), seed
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.COMMITTED])
def test_what_takes_the_place_of_lost_records_is_read(isolation, caplog):
    """1 s each."""
    caplog.set_level(logging.ERROR)  # it warns often
    for seed in range(10 * seed_of_turn(), 10 * seed_of_turn() + 10):
        rng = random.Random(f"parted {seed} {isolation}")
        reset = rng.choice(("earliest", "latest"))
        here, view = Here(isolation, reset), View()
        assert drain(here.consumer) == []
        steps = (*QUIET, "cut", "cut", "reopen")
        if reset == "latest":  # a consumer that finds its place deleted passes over what comes next
            steps = tuple(each for each in steps if each != "delete")
        for _ in range(60):
            getattr(here, rng.choice(steps))(rng)
            view.apply(here.poll(rng))
        here.append(rng)
        view.apply(drain(here.consumer))
        start = here.log.log_start_offset
        held = {record.offset: record.value for record in here.log.read(start, isolation=isolation)}
        assert {at: view.values.get(at) for at in held} == held, seed  # others: nothing took their place


def test_a_consumer_that_is_not_to_begin_elsewhere_is_told():
    here = Here()
    here.log.extend([b"a", b"b", b"c"])
    consumer = here.reader(auto_offset_reset="none")
    consumer.seek(T0, 0)
    assert len(drain(consumer)) == 3
    here.log.truncate_to(1)
    here.log.extend([b"x", b"y", b"z"])
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match=r"from offset 1 to 2 is gone.*seek\(\) to offset 1"):
            consumer.poll(timeout=0)
    consumer.seek(T0, 1)
    assert [record.value for record in drain(consumer)] == [b"x", b"y", b"z"]


def test_what_was_cut_off_behind_its_position_is_nothing_to_it(caplog):
    here = Here()
    here.log.extend([b"a", b"b", b"c"])
    here.consumer.seek(T0, 0)
    assert [record.value for record in drain(here.consumer)] == [b"a", b"b", b"c"]
    here.new_epoch(random.Random(0))
    here.log.extend([b"d"])
    here.log.truncate_to(3)
    here.log.extend([b"e"])
    assert [record.value for record in drain(here.consumer)] == [b"e"]
    assert caplog.records == []


def test_what_is_not_gone_is_not_read_again():
    """Nothing of the leader epoch in which it has read is left, and nothing of the next is there."""
    here = Here()
    here.log.extend([b"a", b"b"])
    here.log.assign_leader_epoch(1)
    here.log.extend([b"c"])
    assert len(drain(here.consumer)) == 3
    here.log.truncate_to(2)
    assert drain(here.consumer) == []
    here.log.extend([b"x"])
    assert [record.value for record in drain(here.consumer)] == [b"x"]


def test_a_leader_with_all_that_was_read_is_gone_on_with(caplog):
    """The consumer knows an epoch that the log does not, as after another leader's end."""
    here = Here()
    here.log.extend([b"a", b"b", b"c"])
    assert len(drain(here.consumer)) == 3
    position = here.consumer._positions.of(T0)
    position.epoch = 5
    here.log.assign_leader_epoch(9)
    here.log.extend([b"d"])
    assert [record.value for record in drain(here.consumer)] == [b"d"]
    assert (position.epoch, caplog.records) == (9, [])
