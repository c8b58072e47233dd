"""Workers of a queue in sessions: a scenario of the crash explorer.

After a cut every job that is there, and that no worker has accepted, is given again or is in the dead-letter
topic; so is every job that is appended from then on. What was durable holds: acceptances, counts of
deliveries, and times before which a job is not given.

Jobs are known by their values: after a cut others may have their offsets.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import logstore
from logstore.clients.queues.job import Job
from logstore.clients.queues.queue import Queue
from logstore.config import StoreConfig, TopicConfig
from logstore.store import Store
from logstore.testing import ManualClock, MemoryFiles
from tests.crash.scenario import RandomScenario

LIMIT = 3
LOCK_MS = 10_000
DELAY_SECONDS = 3_600
CONFIG = StoreConfig(
    log_cleaner_enable=False,
    num_recovery_threads_per_data_dir=1,
    share_coordinator_state_topic_num_partitions=1,
    topic=TopicConfig(segment_bytes=600, flush_ms=1_000),
)

Value = bytes


class Kept(NamedTuple):
    """No power cut takes this record."""

    value: Value


class Given(NamedTuple):
    """A worker has got it."""

    value: Value
    delivery_count: int


class Ending(NamedTuple):
    """It may be done from now on."""

    value: Value


class Ended(NamedTuple):
    """It is done, as soon as that is durable."""

    value: Value


class Done(NamedTuple):
    """It is done, and no power cut takes that."""

    value: Value


class PutOff(NamedTuple):
    """It comes again after an hour, as soon as that is durable."""

    value: Value


class Forgetting(NamedTuple):
    """The group may have forgotten everything from now on."""


class Forgotten(NamedTuple):
    """It has, and no power cut takes that."""


class TopicIsGone(NamedTuple):
    """Its records may be gone from now on."""


class Durable(NamedTuple):
    """A call has returned that promises all changes before it."""


class Session(NamedTuple):
    """A session begins, maybe after a cut."""


class Expected:
    """What must hold, by what was said."""

    def __init__(self, said: Sequence[Any]) -> None:
        self.kept: set[Value] = set()
        self.may_be_done: set[Value] = set()
        self.done: set[Value] = set()
        self.put_off: set[Value] = set()
        self.least: dict[Value, int] = {}
        """How often jobs were delivered, at least."""
        self.session_count = 0
        self._ended: set[Value] = set()
        self._put_off: set[Value] = set()
        self.counts: dict[Value, int] = {}
        for note in said:
            self._hear(note)

    def _hear(self, note: Any) -> None:
        if isinstance(note, Kept):
            self.kept.add(note.value)
        elif isinstance(note, Given):
            assert note.value not in self.done, f"DONE, and given again: {note}"
            for some in (self.may_be_done, self._ended, self.put_off, self._put_off):
                some.discard(note.value)
            self.counts[note.value] = note.delivery_count
        elif isinstance(note, Ending):
            self.may_be_done.add(note.value)
        elif isinstance(note, Ended):
            self._ended.add(note.value)
        elif isinstance(note, Done):
            self.done.add(note.value)
        elif isinstance(note, PutOff):
            self._put_off.add(note.value)
        elif isinstance(note, Forgetting | TopicIsGone):
            if isinstance(note, TopicIsGone):
                self.kept.clear()
            for some in (self.done, self.put_off, self._ended, self._put_off, self.least, self.counts):
                some.clear()
        elif isinstance(note, Forgotten):
            self.may_be_done.clear()
        elif isinstance(note, Durable):
            self.done |= self._ended
            self.put_off |= self._put_off
            self.least |= self.counts
        elif isinstance(note, Session):
            self.session_count += 1
            self._ended.clear()  # a cut may have taken what was not durable
            self._put_off.clear()
            self.counts.clear()


class QueuesSession:
    """A store that is open on a disk, and a worker."""

    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self.rng = rng
        self.say = files.note
        self._files = files
        self._number = 1_000 * len(said)
        self._clock = ManualClock()
        self._open()

    def _open(self) -> None:
        self.say(Session())
        self.store = open_store(self._files, self._clock)
        self._jobs: list[Job] = []
        self._queue: Queue | None = None

    def append(self, *, flush: bool = False) -> None:
        values = []
        for _ in range(self.rng.randint(1, 4)):
            self._number += 1
            values.append(b"%d" % self._number)
        self.store["jobs"][0].extend(values, flush=flush)
        if flush:
            for value in values:
                self.say(Kept(value))

    def take(self) -> None:
        if self._queue is None:
            self._queue = join(self.store)
        found = self._queue.poll(0, max_jobs=self.rng.randint(1, 4))
        for job in found:
            self.say(Given(job.record.value or b"", job.delivery_count))
        self._jobs += found

    def _any(self) -> Job | None:
        jobs = [job for job in self._jobs if job.seconds_left > 0]
        if not jobs:
            return None
        job = self.rng.choice(jobs)
        self._jobs.remove(job)
        return job

    def accept(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            job = self._any()
            if job is not None:
                self.say(Ending(job.value))
                job.accept()
                self.say(Ended(job.value))

    def accept_durably(self) -> None:
        """By a worker of its own."""
        with join(self.store, acks="all") as queue:
            for job in queue.poll(0, max_jobs=2):
                self.say(Given(job.value, job.delivery_count))
                self.say(Ending(job.value))
                job.accept()
                self.say(Done(job.value))

    def release(self) -> None:
        job = self._any()
        if job is not None:
            job.release()

    def put_off(self) -> None:
        job = self._any()
        if job is not None:
            job.release(DELAY_SECONDS, reason="later")
            self.say(PutOff(job.value))

    def reject(self) -> None:
        job = self._any()
        if job is not None:
            job.reject("no")

    def run_out(self) -> None:
        """Locks run out."""
        self._clock.advance(LOCK_MS)
        self.store.run_background()

    def leave(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = None
            self._jobs.clear()

    def delete_queue(self) -> None:
        self.leave()
        if self.store.queues():
            self.say(Forgetting())
            self.store.delete_queue("g")
            self.say(Forgotten())

    def make_topic_again(self) -> None:
        self.leave()
        self.say(TopicIsGone())
        self.store.delete_topic("jobs")
        self.store.require_topic("jobs")

    def wait(self) -> None:
        """Let flushes be done, and replaced files go."""
        self._clock.advance(1_000)
        self.store.run_background()

    def flush_states(self) -> None:
        """The background flushes topics in any order."""
        self.store["__share_group_state"][0].flush()

    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.say(Durable())

    def reopen(self) -> None:
        self.leave()
        self.store.close()
        self.say(Durable())
        self._open()


ACTIONS: dict[str, tuple[int, Callable[[QueuesSession], None]]] = {
    "append": (3, lambda session: session.append()),
    "append and flush": (3, lambda session: session.append(flush=True)),
    "take": (6, QueuesSession.take),
    "accept": (5, QueuesSession.accept),
    "accept durably": (3, QueuesSession.accept_durably),
    "release": (2, QueuesSession.release),
    "put off": (2, QueuesSession.put_off),
    "reject": (3, QueuesSession.reject),
    "run out": (1, QueuesSession.run_out),
    "leave": (1, QueuesSession.leave),
    "delete queue": (1, QueuesSession.delete_queue),
    "make topic again": (1, QueuesSession.make_topic_again),
    "wait": (1, QueuesSession.wait),
    "flush states": (2, QueuesSession.flush_states),
    "checkpoint": (2, QueuesSession.checkpoint),
    "reopen": (1, QueuesSession.reopen),
}


class QueuesScenario(RandomScenario):
    """Sessions of workers."""

    table = ACTIONS
    first = ("append", "take")

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> QueuesSession:
        return QueuesSession(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        expected = Expected(said)
        clock = ManualClock()
        clock.advance(LOCK_MS)
        with open_store(files, clock) as store:
            fresh = [b"fresh %d" % number for number in range(3)]
            store["jobs"][0].extend(fresh)
            there = {record.value or b"" for record in store["jobs"][0].read()}
            assert expected.kept <= there, f"LOST: {expected.kept - there}"
            now, later = drain(store, clock)
            dead = {record.value or b"" for record in store["dead"].read()}
        check(expected, there, now, later, dead)


def check(
    expected: Expected,
    there: set[Value],
    now: dict[Value, int],
    later: dict[Value, int],
    dead: set[Value],
) -> None:
    """``now`` and ``later``: the jobs that are given, with their counts."""
    given = {**later, **now}
    lost = there - set(given) - dead - expected.may_be_done
    assert not lost, f"LOST: {lost}; given are {given}, dead {dead}"
    assert set(given) <= there, f"given are {given}; there are {there}"
    assert not expected.done & set(given), f"DONE, and given again: {expected.done & set(given)}"
    assert not expected.put_off & set(now), f"TOO EARLY: {expected.put_off & set(now)}"
    for value, count in given.items():
        assert 1 <= count <= LIMIT, f"{value!r} is delivered {count} times"
        least = expected.least.get(value, 0)
        assert count > least, f"NOT COUNTED: {value!r} comes as delivery {count}, and had {least}"
        most = expected.counts.get(value, least) + expected.session_count + 1
        assert count <= most or not expected.counts, f"{value!r} comes as delivery {count}, at most {most}"


def open_store(files: MemoryFiles, clock: ManualClock) -> Store:
    store = logstore.open("/store", files=files, clock=clock, config=CONFIG)
    store.require_topic("jobs")
    store.require_topic("dead")
    return store


def join(store: Store, **settings: Any) -> Queue:
    return store.queue(
        "jobs",
        group="g",
        record_lock_duration_ms=LOCK_MS,
        delivery_count_limit=LIMIT,
        dead_letter_topic="dead",
        linger_ms=0,
        **settings,
    )


def drain(store: Store, clock: ManualClock) -> tuple[dict[Value, int], dict[Value, int]]:
    """What is given now, and what only after an hour."""
    found: list[dict[Value, int]] = []
    with join(store) as queue:
        for _ in range(2):
            found.append({})
            while jobs := queue.poll(0):
                for job in jobs:
                    found[-1][job.value] = job.delivery_count
                    job.accept()
            clock.advance(DELAY_SECONDS * 1000 + 10**6)
    return found[0], found[1]
