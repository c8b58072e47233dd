"""Every operation of the disk that workers of a queue cause fails once, or until the disk is mended: the
error says so, no job is lost, none that was accepted comes again, and all goes on when the cause is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

import pytest

import logstore
from logstore.clients.queues.queue import Queue
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import JobLostError, LogstoreError, RetriableError, StorageError
from logstore.testing import FAULTS, FaultyFiles, Image, ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.operations import Note
from tests.figures import report
from tests.rotation import rotating

pytestmark = pytest.mark.damaged  # a log may end with its disk failed

JOBS = [b"%d" % number for number in range(12)]
HOUR_MS = 3_600_000
CONFIG = StoreConfig(
    log_cleaner_enable=False,
    share_coordinator_state_topic_num_partitions=1,
    share_coordinator_snapshot_update_records_per_snapshot=3,
    topic=TopicConfig(segment_bytes=700),
)


class Story:
    """A store, two workers one after the other, and what they said."""

    def __init__(self) -> None:
        self.memory, self.clock = MemoryFiles(), ManualClock()
        self.files = FaultyFiles(self.memory)
        self.store = logstore.open("/store", files=self.files, clock=self.clock, config=CONFIG)
        self.store.create_topic("jobs")[0].extend(JOBS, flush=True)
        self.store.create_topic("dead")
        self.errors: list[LogstoreError] = []
        self.done: set[bytes] = set()
        self.rejected: set[bytes] = set()

    def tell(self) -> None:
        for _ in range(2):
            queue = self.until_it_works(self.join)
            for number, job in enumerate(self.until_it_works(partial(queue.poll, 0, max_jobs=6))):
                value = job.value
                if number in (1, 5) or job.delivery_count > 1:
                    self.say(queue, partial(job.reject, "no"))
                    self.rejected.add(value)
                elif number == 2:
                    self.say(queue, job.release)
                elif number == 3:
                    self.say(queue, partial(job.release, 60, reason="later"))
                else:
                    self.say(queue, job.accept)
                    self.done.add(value)
            try:
                queue.close()
            except LogstoreError as error:
                self.mend(error)  # what was said before was flushed
            self.store.run_background()

    def join(self) -> Queue:
        return self.store.queue("jobs", group="g", linger_ms=0, dead_letter_topic="dead")

    def say(self, queue: Queue, call: Callable[[], object]) -> None:
        try:
            call()
        except LogstoreError as error:
            self.mend(error)
        self.until_it_works(queue.flush)

    def until_it_works(self, call: Callable[[], object]):  # type: ignore[no-untyped-def]
        for _ in range(3):
            try:
                return call()
            except LogstoreError as error:
                self.mend(error)
        return call()

    def mend(self, error: LogstoreError) -> None:
        """The cause is gone; what must be reopened is."""
        assert not isinstance(error, JobLostError), error
        assert isinstance(error, StorageError | RetriableError), repr(error)
        self.errors.append(error)
        self.files.heal()
        for name, topic in self.store.items():
            for number in topic.held_partitions:
                if (name, number) in self.store.damaged or topic[number].needs_reopen:
                    topic.reopen(number)

    def check(self) -> None:
        self.files.heal()
        if any(log.needs_reopen for topic in self.store.values() for log in topic):
            self.mend(StorageError(None, "found at the end"))
        assert self.values("jobs") == set(JOBS)
        self.clock.advance(HOUR_MS)
        given = self.drain()
        dead = self.values("dead")
        assert not self.done & given, f"DONE, and given again: {self.done & given}"
        assert self.rejected <= dead | given
        assert self.done | given | dead == set(JOBS)
        self.store.close()
        self.store = logstore.open("/store", files=self.memory, clock=self.clock, config=CONFIG)
        assert self.drain() == set()
        self.store.close()

    def values(self, topic: str) -> set[bytes]:
        return {record.value or b"" for log in self.store[topic] for record in log.read()}

    def drain(self) -> set[bytes]:
        given = set()
        with self.join() as queue:
            for job in queue.drain():
                given.add(job.value)
                job.accept()
        return given


def fail_each(name, times):
    """Returns how many operations failed, and how many of them were told."""
    told = 0
    at = 0
    while True:
        at += 1
        story = Story()
        story.files.fail(FAULTS[name], at=at, times=times)
        try:
            story.tell()
            story.check()
        except Exception as error:
            error.add_note(f"operation {at} failed with {name}: {story.files.failures[:3]}")
            raise
        if not story.files.failures:
            return at - 1, told
        told += bool(story.errors)


@pytest.mark.slow
@pytest.mark.every_turn
@pytest.mark.parametrize(
    ("name", "times"), rotating([(name, times) for name in FAULTS for times in (1, None)], 8)
)
def test_every_operation_fails(name, times):
    started = perf_counter()
    failed, told = fail_each(name, times)
    assert failed > 5
    assert told > 0
    report(
        "failing file operations under workers of a queue",
        count=failed,
        failures=0,
        seconds=perf_counter() - started,
        detail=name,
    )


def test_what_an_error_says():
    story = Story()
    queue = story.join()
    job = queue.poll(0, max_jobs=1)[0]
    story.files.fail(FAULTS["ENOSPC"], kinds=["write"], path="__share_group_state", times=None)
    with pytest.raises(
        StorageError, match=r"jobs-0: .*No space left on device \(make room, then try again\)"
    ):
        job.accept()
    with pytest.raises(StorageError, match="No space left on device"):
        queue.poll(0)
    story.files.heal()
    queue.flush()
    assert [each.value for each in queue.poll(0)] == JOBS[1:]
    queue.close()
    story.store.close()


def test_jobs_that_cannot_be_buried_wait_for_it(caplog):
    story = Story()
    queue = story.join()
    story.files.fail(FAULTS["ENOSPC"], kinds=["write"], path="dead-0", times=None)
    for job in queue.poll(0, max_jobs=2):
        job.reject("no")
    assert "a failed job could not go to topic 'dead': jobs-0 offset 0: " in caplog.text
    assert "it is kept, and tried again" in caplog.text
    assert story.store.queues()[0].partitions[0].start_offset == 0
    story.files.heal()
    story.clock.advance(1_000)
    queue.poll(0, max_jobs=1)
    assert story.values("dead") == {b"0", b"1"}
    assert story.store.queues()[0].partitions[0].start_offset == 2
    queue.close()
    story.store.close()


def test_jobs_that_could_not_be_buried_come_again_after_a_kill():
    story = Story()
    story.files.fail(FAULTS["ENOSPC"], kinds=["write"], path="dead-0", times=None)
    queue = story.join()
    for job in queue.poll(0, max_jobs=2):
        job.reject("no")
    story.store._directory.abandon()  # type: ignore[union-attr]
    story.store = logstore.open("/store", files=story.memory, clock=story.clock, config=CONFIG)
    with story.join() as queue:
        assert [(job.value, job.delivery_count) for job in queue.poll(0, max_jobs=2)] == [
            (b"0", 2),
            (b"1", 2),
        ]
    story.store.close()


def cut_power(story):
    """Everything is lost that was not flushed."""
    crash = CrashStates(Image(), 1)
    for entry in story.memory.trace:
        if not isinstance(entry, Note):
            crash.follow(entry)
    story.memory = MemoryFiles(crash.image((0,) * len(crash.domains())))
    story.files = FaultyFiles(story.memory)


def open_again(story):
    story.store = logstore.open("/store", files=story.files, clock=story.clock, config=CONFIG)


@pytest.mark.parametrize("path", ["__share_group_state", "__share_group_state-0/0000"])
@pytest.mark.parametrize("stops_first", [False, True])
def test_a_full_disk_at_the_opening_after_a_power_cut_costs_no_job(path, stops_first, caplog):
    """What is said of records that the cut took is to be taken back, which needs room."""
    story = Story()
    log = story.store["jobs"][0]
    with story.join() as queue:
        log.extend([b"not flushed"] * 3)
        for job in queue.poll(0):
            job.accept()
    story.store["__share_group_state"][0].flush()
    cut_power(story)
    story.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=path, times=None)
    open_again(story)
    assert "queues cannot be used yet" in caplog.text
    with pytest.raises(StorageError, match="No space left on device"):
        story.join()
    story.store["jobs"][0].extend([b"new"] * 3)
    story.files.heal()
    for topic, number in story.store.damaged:
        story.store[topic].reopen(number)
    if stops_first:
        story.store.close()
        open_again(story)
    with story.join() as queue:
        assert [job.value for job in queue.poll(0)] == [b"new"] * 3
    story.store.close()


def test_as_many_jobs_as_may_be_taken_can_be_in_different_states():
    """The state of a partition must fit into a record. Takes 1 s."""
    story = Story()
    most = 20_000
    story.store["jobs"][0].extend([b"x"] * most)
    settings = {"partition_max_record_locks": most, "max_poll_records": most, "linger_ms": 10**6}
    with story.store.queue("jobs", group="many", **settings) as queue:
        jobs = []
        while found := queue.poll(0):
            jobs += found
        assert len(jobs) == most
        for job in jobs[::2]:
            job.accept()
            if job.offset % 4_000 == 0:
                queue.flush()
        queue.flush()
        assert story.store.queues()[0].taken_count == most // 2
    story.store.close()
