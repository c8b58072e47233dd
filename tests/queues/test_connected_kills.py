"""Workers in processes of their own, over a socket or a port, that are killed: each job is done, none is with
two workers at a time while its lock holds, and each delivery counts. Figures of a quiet machine: 2 s each."""

from __future__ import annotations

import os
import random
import time
from itertools import pairwise

import pytest

import logstore
from logstore.errors import JobLostError, RetriableError
from tests.figures import report
from tests.kernel.victim import Failed, Victim
from tests.queues.kill import warm_up
from tests.rotation import seed_of_turn

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
JOBS = 80
WORKERS = 3
KILLS = 5
PATIENCE_SECONDS = 60
LONG = {"record_lock_duration_ms": 600_000, "delivery_count_limit": 1_000}


def make(path):
    with logstore.open(path) as store:
        store.create_topic("jobs", partitions=1)[0].extend([b"%d" % number for number in range(JOBS)])


def serve(path, way):
    """An owner of the directory, and where it is reached."""

    def life(say):
        with logstore.open(path) as store:
            listener = store.share() if way == "socket" else store.listen("127.0.0.1:0")
            say(str(path) if way == "socket" else listener.address)
            time.sleep(PATIENCE_SECONDS)

    owner = Victim(life)
    owner.wait_for_word()
    (address,) = owner.said_so_far()
    return owner, address


def worker(opened, seed, *, may_lose, until_empty=False):
    """Says of each job when it has come, and when it was done. ``may_lose``: the owner of the directory may
    be killed, and what workers have goes with it."""
    chance = random.Random(seed)

    def life(say):
        with opened() as store, store.queue("jobs", group="g", **LONG) as queue:
            say(("joined", -1, 0, time.monotonic()))
            while True:
                try:
                    for job in queue.drain() if until_empty else queue:
                        say(("taken", job.offset, job.delivery_count, time.monotonic()))
                        time.sleep(chance.uniform(0, 0.01))
                        say(("done", job.offset, job.delivery_count, time.monotonic()))
                        job.accept()
                    return
                except (JobLostError, RetriableError):
                    assert may_lose

    return Victim(life)


def done_of(lives):
    said = [each for some in lives for each in some]
    failed = [each for each in said if isinstance(each, Failed)]
    assert not failed, failed[0].trace
    return {offset for word, offset, _, _ in said if word == "done"}


def run(opened, seed, *, may_lose=False):
    """Workers are killed, and others come, until all jobs are done and ``KILLS`` are dead; one more finds
    what was not said. Returns what each has said, and when it was killed."""
    chance = random.Random(seed)
    running = [worker(opened, seed + number, may_lose=may_lose) for number in range(WORKERS)]
    ended = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while True:
            assert time.monotonic() < deadline
            lives = [*(said for said, _ in ended), *(each.said_so_far() for each in running)]
            is_done = len(done_of(lives)) == JOBS
            if is_done and len(ended) == KILLS:
                break
            time.sleep(chance.uniform(0.02, 0.1))
            victim = chance.choice(running)
            is_at_work = len(victim.said_so_far()) > chance.randrange(2, 10)
            if len(ended) < KILLS and (is_at_work or is_done):  # a quick machine may be done before that
                running.remove(victim)
                at = time.monotonic()
                ended.append((victim.kill(), at))
                running.append(worker(opened, seed + WORKERS + len(ended), may_lose=may_lose))
    except BaseException:
        for each in running:
            each.kill()
        raise
    for each in running:
        at = time.monotonic()
        ended.append((each.kill(), at))
    last = worker(opened, seed, may_lose=may_lose, until_empty=True)
    ended.append((last.stop_itself(), float("inf")))
    assert done_of(said for said, _ in ended) == set(range(JOBS))
    return ended


def stretches(ended):
    """When each worker had each job: from when it came to when it was done, or its worker was killed."""
    found = {}
    for said, killed_at in ended:
        taken = {}
        for word, offset, count, at in said:
            if word == "taken":
                taken[offset, count] = at
            elif word == "done":
                found.setdefault(offset, []).append((count, taken.pop((offset, count)), at))
        for (offset, count), at in taken.items():
            found.setdefault(offset, []).append((count, at, killed_at))
    return found


@pytest.mark.parametrize("way", ["socket", "port"])
def test_no_job_is_with_two_workers_at_a_time(tmp_path, way):
    """A worker that is killed loses its jobs at once, long before their locks run out. 2 s each."""
    warm_up()
    began = time.monotonic()
    path = tmp_path / "store"
    make(path)
    owner, address = serve(path, way)
    try:
        ended = run(lambda: logstore.connect(address), seed_of_turn())
    finally:
        owner.kill()
    again = 0
    for offset, had in stretches(ended).items():
        had.sort()
        counts = [count for count, _, _ in had]
        assert counts == sorted(set(counts)), (offset, had)
        for (_, _, end), (_, begin, _) in pairwise(had):
            assert begin >= end, (offset, had)
        again += len(had) - 1
    with logstore.open(path) as store:
        (status,) = store.queues()
        assert (status.waiting_count, status.taken_count) == (0, 0)
    report(
        f"kill -9, workers over a {way}",
        count=KILLS,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"{JOBS} jobs done, {again} deliveries repeated",
    )


def test_whoever_owns_the_directory_may_be_killed(tmp_path):
    """Locks end with the owner; each job is done all the same. 4 s."""
    warm_up()
    path = tmp_path / "store"
    make(path)
    run(lambda: logstore.open_or_connect(path, request_timeout_ms=20_000), seed_of_turn(), may_lose=True)
