"""How a follower waits: told of changes by a file system, by one that tells nothing, and by none."""

from __future__ import annotations

import errno
import os
from collections import Counter

import pytest

from logstore.errors import storage_error
from logstore.partition.watching import waiting
from logstore.partition.watching.waiting import PATIENCE_MS, POLL_MS, SAFETY_MS, Waiting


class World:
    """Time, which passes only where somebody sleeps, and a log that changes at given times (ms)."""

    def __init__(self, changes=(), told=(), refusals=()):
        self.now = 1_000.0
        self.changes, self.told = sorted(changes), sorted(told)
        self.refusals = list(refusals)
        self.seen = 0
        self.looks = []
        self.sleeps = Counter()
        self.open_watches = 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.sleeps["sleep"] += 1
        self.now += seconds

    @property
    def ms(self):
        return round((self.now - 1_000) * 1000, 3)

    def has_news(self):
        self.looks.append(self.ms)
        return sum(change <= self.ms for change in self.changes) > self.seen

    # Files, and the watch that it gives

    def watch(self, directories):
        if self.refusals:
            number = self.refusals.pop(0)
            raise storage_error(OSError(number, os.strerror(number)), directories[0], "watching")
        self.told = [at for at in self.told if at >= self.ms]
        self.open_watches += 1
        return self

    def wait(self, timeout_ms):
        self.sleeps[timeout_ms] += 1
        end = self.ms + timeout_ms
        came = [at for at in self.told if at <= end]
        self.now = 1_000 + max(min([end, *came]), self.ms) / 1000
        self.told = [at for at in self.told if at > self.ms]
        return bool(came)

    def close(self):
        self.open_watches -= 1


@pytest.fixture
def follow(monkeypatch):
    """Wait for each change; returns when each was found."""

    def run(world, until_ms=60_000):
        monkeypatch.setattr(waiting, "time", world)
        found = []
        follower = Waiting(world, ["somewhere"])
        while world.ms < until_ms:
            follower.wait(world.has_news, SAFETY_MS)
            if world.has_news():
                world.seen += 1
                found.append(world.ms)
        follower.end()
        assert world.open_watches == 0
        return found

    return run


def test_an_idle_follower_looks_once_a_second(follow):
    world = World()
    assert follow(world, until_ms=100_000) == []
    assert len(world.looks) < PATIENCE_MS / POLL_MS + 5 + 3 * 100


def test_what_is_told_is_found_at_once(follow):
    times = [5_000.5, 5_800, 9_999]
    assert follow(World(times, told=times)) == times


def test_what_comes_while_nobody_has_asked_yet_is_found(follow):
    times = [float(at) for at in range(1, 60)]
    found = follow(World(times, told=times))
    assert len(found) == len(times)
    assert all(after - at <= POLL_MS for at, after in zip(times, found, strict=True))


def test_a_short_wait_does_not_ask(follow):
    world = World(refusals=[errno.EIO])
    follow(world, until_ms=0)
    assert world.refusals == [errno.EIO]
    assert not world.sleeps


def test_a_log_that_changes_all_the_time_is_not_looked_at_all_the_time(follow):
    world = World(told=[float(at) / 10 for at in range(1_000, 5_000)])
    follow(world, until_ms=500)
    assert len(world.looks) <= 2 * 500 / POLL_MS


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOSYS, errno.ENOENT])
def test_refused_it_looks_for_itself_and_asks_again_later(follow, number):
    times = [500.0, 2_500.0, 9_000.0]
    world = World(times, told=times, refusals=[number] * 3)
    found = follow(world, until_ms=20_000)
    assert all(0 <= after - at <= POLL_MS for at, after in zip(times, found, strict=True))
    assert world.refusals == []
    assert found[-1] == times[-1]  # the fourth time there was a watch
    assert sum(look > 10_000 for look in world.looks) < 50


def test_where_nothing_is_told_only_the_first_change_is_late(follow):
    times = [5_000.0 + 300 * number for number in range(20)]
    found = follow(World(times))
    late = [after - at for at, after in zip(times, found, strict=True)]
    assert late[0] <= SAFETY_MS
    later = [each for at, each in zip(times, late, strict=True) if at > found[0]]
    assert len(later) > 10
    assert max(later) <= POLL_MS + 0.01


def test_who_was_told_nothing_looks_for_himself_until_he_is(follow):
    untold, told = [5_000.0, 7_000.0], [9_000.0, 11_000.0]
    world = World(untold + told, told=told)
    found = follow(world, until_ms=30_000)
    assert found[0] - untold[0] <= SAFETY_MS
    assert found[1] - untold[1] <= POLL_MS + 0.01
    assert found[2:] == pytest.approx(told, abs=POLL_MS)
    assert sum(look > 12_000 for look in world.looks) < 100


def test_the_end_of_the_timeout_is_not_news(follow, monkeypatch):
    world = World()
    monkeypatch.setattr(waiting, "time", world)
    follower = Waiting(world, ["somewhere"])
    for timeout_ms in (0, 1, 30, 3_000):
        before = world.ms
        follower.wait(world.has_news, timeout_ms)
        assert timeout_ms <= world.ms - before <= timeout_ms + POLL_MS
    follower.end()
