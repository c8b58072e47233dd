"""What a process does until it is killed: twenty workers of a queue, as threads on one directory, and one
that appends jobs. Each job's begin and end go to a file of their own, which outlives the process."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import logstore
from logstore.broker.share.held import Exchanged, HeldPartition
from logstore.clients.queues.job import Job
from logstore.clients.queues.queue import Queue
from logstore.clock import SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import JobLostError, StorageError
from logstore.files import Files
from logstore.store import Store
from tests.kernel.victim import Failed

Say = Callable[[Any], None]

TOPIC, DEAD, GROUP = "jobs", "dead", "workers"
PARTITION_COUNT = 3
WORKER_COUNT = 20
LIFE_SECONDS = 0.4
DELIVERY_LIMIT = 4
LOCK_MS = 150
DRAIN_SECONDS = 30
DRAINED = "drained"
POISON, BAD = b"poison", b"bad"
"""How the values of jobs begin that kill their process, and that are rejected."""


class Settings(NamedTuple):
    """How one directory is used by all its processes."""

    store: StoreConfig
    lock_ms: int
    acks: str | int
    linger_ms: int

    @classmethod
    def draw(cls, chance: random.Random) -> Settings:
        topic = TopicConfig(
            segment_bytes=chance.choice((4_000, 300_000)), flush_ms=chance.choice((1, 50, 1_000))
        )
        store = StoreConfig(topic=topic, log_flush_offset_checkpoint_interval_ms=chance.choice((5, 60_000)))
        return cls(
            store,
            chance.choice((LOCK_MS, LOCK_MS, 30_000)),
            chance.choice((1, 1, "all")),
            chance.choice((0, 5, 100)),
        )


class Diary:
    """What was done, a line each, appended in one write."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, worker: str, *numbers: int) -> None:
        os.write(self._descriptor, " ".join(map(str, (what, worker, *numbers))).encode() + b"\n")

    def of_job(self, what: str, worker: str, job: Job) -> None:
        self.note(what, worker, job.partition.partition, job.offset, now_ms())


def now_ms() -> int:
    return SystemClock().monotonic_ms()


def note_what_is_given(diary: Diary) -> None:
    """Note each delivery, when it is stored and before the worker knows of it, with the time before that."""
    exchange = HeldPartition.exchange

    def noting(self: HeldPartition, member_id: str, said: Any, most: int, max_bytes: int) -> Exchanged:
        began_ms = now_ms()
        exchanged = exchange(self, member_id, said, most, max_bytes)
        if exchanged.fetched is not None:
            for each in exchanged.fetched.acquired:
                diary.note("given", member_id, self.partition.partition, *each, began_ms, now_ms())
        return exchanged

    HeldPartition.exchange = noting  # type: ignore[method-assign]


def open_store(path: str, settings: Settings, files: Files | None = None) -> Store:
    store = logstore.open(f"{path}/store", config=settings.store, files=files)
    store.require_topic(TOPIC, partitions=PARTITION_COUNT)
    store.require_topic(DEAD)
    return store


def join(store: Store, settings: Settings) -> Queue:
    return store.queue(
        TOPIC,
        group=GROUP,
        record_lock_duration_ms=settings.lock_ms,
        delivery_count_limit=DELIVERY_LIMIT,
        dead_letter_topic=DEAD,
        acks=settings.acks,
        linger_ms=settings.linger_ms,
    )


def live(path: str, settings: Settings, life: int, files: Files | None, say: Say) -> None:
    """Work for a while; then die, maybe in the middle of a clean stop."""
    chance = random.Random(life)
    diary = Diary(f"{path}/diary")
    note_what_is_given(diary)
    store = open_store(path, settings, files)
    say(None)
    stop = threading.Event()
    work: list[Callable[[], None]] = [lambda: _append(store, random.Random(life), life, stop)]
    for number in range(WORKER_COUNT):
        work.append(_Worker(store, settings, diary, life * 100 + number, stop).work)
    threads = [threading.Thread(target=_or_die, args=(each, say), daemon=True) for each in work]
    for thread in threads:
        thread.start()
    stop.wait(LIFE_SECONDS)
    stop.set()
    if chance.random() < 0.5:
        for thread in threads:
            thread.join()
        store.close()


def _or_die(work: Callable[[], None], say: Say) -> None:
    try:
        work()
    except BaseException as error:
        say(Failed(isinstance(error, StorageError), traceback.format_exc()))
        os.kill(os.getpid(), signal.SIGKILL)


def _append(store: Store, chance: random.Random, life: int, stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        log = store[TOPIC][chance.randrange(PARTITION_COUNT)]
        values = []
        for _ in range(chance.choice((1, 5, 20))):
            number += 1
            kind = BAD if chance.random() < 0.02 else b"job"
            if life % 5 == 0 and number == 10:
                kind = POISON
            values.append(b"%s %d %d" % (kind, life, number))
        log.extend(values)
        time.sleep(chance.choice((0.001, 0.01, 0.02)))


class _Worker:
    """One thread."""

    def __init__(
        self, store: Store, settings: Settings, diary: Diary, number: int, stop: threading.Event
    ) -> None:
        self._store, self._settings, self._diary = store, settings, diary
        self._stop = stop
        self._chance = random.Random(number)
        self._queue = join(store, settings)

    @property
    def _me(self) -> str:
        return self._queue.member_id

    def work(self) -> None:
        """Come and go."""
        while not self._stop.is_set():
            for _ in range(self._chance.choice((3, 20, 1_000))):
                if not self._stop.is_set():
                    self._step()
            self._leave()
            self._queue = join(self._store, self._settings)

    def _step(self) -> None:
        try:
            for job in self._queue.poll(0.01, max_jobs=self._chance.choice((1, 1, 5, 20))):
                self._do(job)
            if self._chance.random() < 0.3:
                self._queue.flush()
                self._diary.note("sent", self._me)
        except JobLostError:  # of which, the message says; what else was said counts
            self._diary.note("lost", self._me)

    def _leave(self) -> None:
        self._diary.note("leave", self._me)
        try:
            self._queue.close()
            self._diary.note("sent", self._me)
        except JobLostError:
            self._diary.note("lost", self._me)

    def _do(self, job: Job) -> None:
        if job.seconds_left == 0:
            return
        self._diary.of_job("begin", self._me, job)
        if job.value.startswith(POISON):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._chance.random() < 0.01:  # stall
            time.sleep(self._settings.lock_ms / 1000 * 1.5 if self._settings.lock_ms == LOCK_MS else 0.05)
        drawn = self._chance.random()
        if job.value.startswith(BAD):
            self._diary.of_job("reject", self._me, job)
            job.reject("bad")
        elif drawn < 0.03:
            self._diary.of_job("release", self._me, job)
            job.release(self._chance.choice((None, 0.02)), reason="again")
        else:
            if drawn < 0.06:
                self._diary.of_job("renew", self._me, job)
                job.renew()
            self._diary.of_job("end", self._me, job)  # the work is done; then it is said
            job.accept()


def drain(path: str, settings: Settings, say: Say) -> None:
    """Let one worker do all that is left. The delays and locks of the others are waited for."""
    settings = settings._replace(lock_ms=30_000)
    diary = Diary(f"{path}/diary")
    note_what_is_given(diary)
    with open_store(path, settings) as store:
        until = time.monotonic() + DRAIN_SECONDS
        with join(store, settings) as queue:
            while True:
                assert time.monotonic() < until, store.queues()
                for job in queue.poll(0.03):
                    diary.of_job("begin", queue.member_id, job)
                    if job.value.startswith(POISON):
                        os.kill(os.getpid(), signal.SIGKILL)
                    diary.of_job("end", queue.member_id, job)
                    job.accept()
                queue.flush()
                diary.note("sent", queue.member_id)
                (status,) = store.queues()
                if not status.waiting_count and not status.taken_count:
                    break
    say(DRAINED)


class Seen(NamedTuple):
    """What a directory has."""

    records: list[list[bytes]]
    """The values of each partition."""
    starts: list[int]
    """Below these all is done."""
    letters: list[tuple[int, int, int, str]]
    """Partition, offset, delivery count and reason of what is in the dead-letter topic."""


def look(path: str, settings: Settings) -> Seen:
    """What is there. Leaves the directory as a crash does."""
    store = open_store(path, settings)
    records = [[record.value or b"" for record in log.read()] for log in store[TOPIC]]
    starts = [0] * PARTITION_COUNT
    for status in store.queues():
        for each in status.partitions:
            starts[each.partition.partition] = each.start_offset
    letters = []
    for record in store[DEAD].read():
        told = {name: (value or b"").decode() for name, value in record.headers}
        letters.append(
            (
                int(told["logstore.partition"]),
                int(told["logstore.offset"]),
                int(told["logstore.delivery_count"]),
                told["logstore.error"],
            )
        )
    return Seen(records, starts, letters)
