"""Processes of twenty workers that are killed: each job is done, none is with two workers while a lock holds,
each delivery is counted, and what was accepted and sent does not come again."""

from __future__ import annotations

import os
import random

import pytest

import logstore
from logstore.broker.share import held
from logstore.broker.share.dead_letters import OwnLetters, ended
from logstore.broker.share.partition import SharePartition
from logstore.broker.share.states import RecordState
from tests.figures import report
from tests.kernel.programs import memory_directory, run_program
from tests.kernel.victim import Victim
from tests.queues.kill import Tried, kill_in_directory, warm_up
from tests.queues.lives import LOCK_MS
from tests.rotation import rotating, seed_of_turn

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
SOAK_KILLS = int(os.environ.get("LOGSTORE_SOAK_QUEUE_KILLS", "500"))
LIMIT = 3


def kill(count, seed):
    with memory_directory() as path:
        tried = run_program("kill", "--kills", count, "--seed", seed, f"{path}/kills", folder="queues")
    assert tried["kills"] == count
    assert tried["deliveries"] > 10 * count
    assert tried["done"] + tried["dead"] >= tried["records"]
    report(
        "kill -9, workers of a queue",
        count=tried["kills"],
        failures=0,
        seconds=tried["seconds"],
        detail=f"{tried['done']:,} jobs done, {tried['again']:,} deliveries repeated",
    )
    return tried


@pytest.mark.slow
@pytest.mark.every_turn
def test_some_kills():
    """Others in each turn. 6 s."""
    kill(12, seed_of_turn())


@pytest.mark.soak
def test_kills():
    """4 minutes."""
    tried = kill(SOAK_KILLS, random.randrange(2**32))
    assert min(tried["moments"].values()) > SOAK_KILLS // 5
    assert tried["taken_over"] > 0
    assert tried["dead"] > 0


@pytest.mark.parametrize("lock_ms", [LOCK_MS, 30_000])
def test_a_job_that_kills_its_process_comes_to_the_dead_letter_topic(tmp_path, lock_ms):
    """After exactly ``delivery_count_limit`` deliveries, and its neighbours are done."""

    def work(say):
        with open_queue(tmp_path / "store", lock_ms) as queue:
            for job in queue.drain():
                say((job.offset, job.delivery_count))
                if job.value == b"poison":
                    os.kill(os.getpid(), 9)
                job.accept()

    with logstore.open(tmp_path / "store") as store:
        store.create_topic("jobs").extend([b"1", b"poison", b"3"])
        store.create_topic("dead")
    said = [Victim(work).stop_itself() for _ in range(LIMIT + 1)]
    assert said[0] == [(0, 1), (1, 1)]
    assert [each for some in said[1:] for each in some if each[0] == 1] == [(1, 2), (1, 3)]
    assert said[-1] in ([(2, 1)], [(2, 2)])  # taken once with the one that killed, if time allowed
    with logstore.open(tmp_path / "store") as store:
        (letter,) = store["dead"].read()
        assert letter.value == b"poison"
        headers = dict(letter.headers)
        assert headers["logstore.error"] == b"each process that had it was killed"
        assert headers["logstore.delivery_count"] == b"%d" % LIMIT


def open_queue(path, lock_ms):
    return logstore.open(path).queue(
        "jobs",
        group="g",
        dead_letter_topic="dead",
        delivery_count_limit=LIMIT,
        record_lock_duration_ms=lock_ms,
        linger_ms=0,
    )


# The rig notices


def a_delivery_that_is_not_stored(patch):
    stored = held._is_stored
    patch.setattr(held, "_is_stored", lambda span: span.state is not RecordState.ACQUIRED and stored(span))


def a_lock_that_two_have(patch):
    plan = SharePartition.plan_expire
    patch.setattr(SharePartition, "plan_expire", lambda self, now_ms: plan(self, now_ms + LOCK_MS // 2))


def an_acceptance_that_is_not_stored(patch):
    stored = held._is_stored
    patch.setattr(
        held, "_is_stored", lambda span: span.state is not RecordState.ACKNOWLEDGED and stored(span)
    )


def jobs_that_fail_and_are_not_buried(patch):
    def passed_over(_self, failed, _done):
        return ended(failed, None)

    patch.setattr(OwnLetters, "bury", passed_over)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "message"),
    rotating(
        [
            (a_delivery_that_is_not_stored, "WRONG COUNT"),
            (a_lock_that_two_have, "TWO HAVE IT|WRONG COUNT"),  # what two give back is counted as one
            (
                an_acceptance_that_is_not_stored,
                "DONE, and given again|was accepted, and then came|NOT ALL DONE",
            ),
            (jobs_that_fail_and_are_not_buried, "LOST"),
        ],
        4,
    ),
)
def test_planted_bugs_are_noticed(tmp_path, monkeypatch, plant, message):
    plant(monkeypatch)
    warm_up()
    with pytest.raises(AssertionError, match=message):
        kill_until_noticed(tmp_path)


def kill_until_noticed(path):
    for seed in range(20):
        kill_in_directory(str(path / str(seed)), seed, 12, Tried())
