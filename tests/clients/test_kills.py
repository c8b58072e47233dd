"""Processes that produce and consume, and are killed: what was acknowledged is there, no work is left out (at
least once) or done twice (at most once), and the order of each key is kept."""

from __future__ import annotations

import itertools
import os
import random
import signal

import pytest

from logstore.clients.outgoing import Delivered
from logstore.clients.producer import Producer
from tests.clients.kill import Tried, kill_in_directory
from tests.clients.lives import LEAST, MOST, Member
from tests.figures import report
from tests.kernel.programs import memory_directory, run_program
from tests.rotation import seed_of_turn

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
SOAK_KILLS = int(os.environ.get("LOGSTORE_SOAK_CLIENT_KILLS", "500"))


def kill(count, seed):
    with memory_directory() as path:
        tried = run_program("kill", "--kills", count, "--seed", seed, f"{path}/kills", folder="clients")
    assert tried["kills"] == count
    assert tried["acknowledged"] > 5 * count
    assert tried["work"] > tried["acknowledged"]  # two groups
    detail = f"{tried['acknowledged']:,} records acknowledged, work on {tried['work_again']:,} repeated"
    report(
        "kill -9, producers and consumers",
        count=tried["kills"],
        failures=0,
        seconds=tried["seconds"],
        detail=detail,
    )
    return tried


@pytest.mark.slow
@pytest.mark.every_turn
def test_some_kills():
    """Others in each turn."""
    kill(30, seed_of_turn())


@pytest.mark.soak
def test_kills():
    tried = kill(SOAK_KILLS, random.randrange(2**32))
    assert min(tried["moments"].values()) > SOAK_KILLS // 5
    assert tried["work_again"] > 0


def test_a_commit_before_the_work_is_noticed(tmp_path, monkeypatch):
    def step(self, timeout):
        found = self.consumer.poll(timeout=timeout)
        if found and self._commit(found):
            die_sometimes(self, LEAST)
            self._do(found)

    monkeypatch.setattr(Member, "step", step)
    with pytest.raises(AssertionError, match=r"LEFT OUT|and work was done on"):
        kill_until_noticed(tmp_path)


def test_a_commit_after_the_work_is_noticed(tmp_path, monkeypatch):
    def step(self, timeout):
        found = self.consumer.poll(timeout=timeout)
        if found:
            self._do(found)
            die_sometimes(self, MOST)
            self._commit(found)

    monkeypatch.setattr(Member, "step", step)
    with pytest.raises(AssertionError, match=r"TWICE|and work was done on more"):
        kill_until_noticed(tmp_path)


def die_sometimes(member, group):
    if member._group == group and member._chance.random() < 0.2:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_record_that_is_sent_twice_is_noticed(tmp_path, monkeypatch):
    send = Producer.send

    def send_twice(self, topic, value, **options):
        send(self, topic, value, **options)
        send(self, topic, value, key=options["key"])

    monkeypatch.setattr(Producer, "send", send_twice)
    with pytest.raises(AssertionError, match="the next of its key is"):
        kill_until_noticed(tmp_path)


def test_an_acknowledgement_of_a_record_that_is_not_there_is_noticed(tmp_path, monkeypatch):
    numbers = itertools.count()

    def send(self, topic, value, *, key, on_delivery):
        on_delivery(Delivered(topic, 0, next(numbers), 0), None)

    monkeypatch.setattr(Producer, "send", send)
    with pytest.raises(AssertionError, match="LOST"):
        kill_until_noticed(tmp_path)


def kill_until_noticed(path):
    for seed in range(20):
        kill_in_directory(str(path / str(seed)), seed, 12, Tried())
