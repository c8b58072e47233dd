"""Random histories of a queue and a group whose logs are cut, on a disk that fails, in a process that is
killed. Of the records that are in the topic at the end none is lost: as a job each was accepted, or is in the
dead-letter topic, or is given by the next worker, and the group has read it or does so next. Also where
others were done, or read, at its offset before a cut."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

import logstore
from logstore.clients.queues.queue import Queue
from logstore.errors import LogstoreError
from logstore.partition.state.lost_ends import LostEnds
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.damaged  # a log may end with its disk failed

STEP_COUNT = 120
LOCK_MS = 30_000
NAMES = ("EIO", "ENOSPC", "short write", "late EIO", "failed flush", "EMFILE")
PLACES = ("__share", "__share", "__consumer", "__consumer", "jobs-", "dead", "")


class History:
    """One, drawn by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock, self.disk = ManualClock(), MemoryFiles()
        self.open()
        self.store.create_topic("jobs", partitions=2)
        self.store.create_topic("dead")
        self.accepted: set[bytes] = set()
        self.read_values: set[bytes] = set()
        self.count = 0
        self.steps = {
            self.extend: 20,
            self.join: 8,
            self.poll: 25,
            self.say: 25,
            self.flush: 5,
            self.read: 10,
            self.fail: 6,
            self.heal: 3,
            self.cut: 5,
            self.reopen: 3,
            self.kill: 3,
            self.wait: 3,
        }

    def open(self) -> None:
        self.files = FaultyFiles(self.disk)
        self.store = logstore.open("/store", files=self.files, clock=self.clock)
        self.queues: list[Queue] = []
        self.held: list[logstore.Job] = []
        for partition in self.store.damaged:
            self.store[partition.topic].reopen(partition.partition, accept_loss=True)

    def run(self) -> set[bytes]:
        """Returns the records that are lost, as jobs or for the group."""
        for _ in range(STEP_COUNT):
            (step,) = self.rng.choices(list(self.steps), list(self.steps.values()))
            with suppress(LogstoreError):
                step()
        self.kill()
        given = {job.value for _ in range(2) for job in self.drain()}
        dead = {record.value for record in self.store["dead"].read()}
        there = {record.value for record in self.store["jobs"].read()}
        self.read()
        self.store.close()
        return (there - self.accepted - dead - given) | (there - self.read_values)

    def extend(self) -> None:
        values = [b"%d" % (self.count + number) for number in range(self.rng.randrange(1, 6))]
        self.count += len(values)
        self.store["jobs"][self.rng.randrange(2)].extend(values, flush=True)

    def join(self) -> None:
        if len(self.queues) < 3:
            self.queues.append(self.queue())

    def queue(self) -> Queue:
        return self.store.queue(
            "jobs", group="g", record_lock_duration_ms=LOCK_MS, linger_ms=5, dead_letter_topic="dead"
        )

    def poll(self) -> None:
        for queue in self.chosen():
            self.held += queue.poll(0, max_jobs=self.rng.randrange(1, 6))

    def chosen(self) -> list[Queue]:
        return self.rng.sample(self.queues, min(len(self.queues), 1))

    def say(self) -> None:
        self.rng.shuffle(self.held)
        for job in [self.held.pop()] if self.held else []:
            if self.rng.random() < 0.8:
                self.accepted.add(job.value)
                job.accept()
            else:
                self.rng.choice([job.release, job.reject])()

    def flush(self) -> None:
        for queue in self.chosen():
            queue.flush()

    def read(self) -> None:
        with self.store.consumer("jobs", group="readers", auto_offset_reset="earliest") as consumer:
            self.read_values.update(record.value for record in consumer.drain())
            consumer.commit()

    def fail(self) -> None:
        self.files.fail(
            FAULTS[self.rng.choice(NAMES)],
            at=self.rng.randrange(1, 6),
            times=self.rng.choice([1, 2, None]),
            path=self.rng.choice(PLACES),
        )

    def heal(self) -> None:
        self.files.heal()

    def cut(self) -> None:
        log = self.store["jobs"][self.rng.randrange(2)]
        log.truncate_to(self.rng.randrange(log.log_end_offset + 1))

    def reopen(self) -> None:
        for topic in self.store.values():
            for number in topic.held_partitions:
                with suppress(LogstoreError):
                    topic.reopen(number)

    def wait(self) -> None:
        self.clock.advance(self.rng.choice([1_000, LOCK_MS]))
        self.store.run_background()

    def kill(self) -> None:
        self.files.heal()
        self.store.directory.abandon()
        self.open()

    def drain(self) -> list[logstore.Job]:
        self.clock.advance(LOCK_MS)
        with self.queue() as queue:
            jobs = [*queue.drain()]
            for job in jobs:
                job.accept()
        return jobs


def test_no_job_is_lost():
    """2 s."""
    first = seed_of_turn() * 50
    for seed in range(first, first + 50):
        lost = History(seed).run()
        assert not lost, f"History({seed}) has lost {lost}"


def test_it_finds_a_store_that_does_not_tell_groups_of_cuts(monkeypatch):
    """0.2 s; one history in four finds it."""
    monkeypatch.setattr(LostEnds, "tell", lambda *_: None)
    assert any(History(seed).run() for seed in range(100))
