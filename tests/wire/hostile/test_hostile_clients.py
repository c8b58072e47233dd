"""Clients that stall, reset, send garbage and take no answers: those beside them lose nothing, and the
process that serves them grows neither in memory nor in descriptors."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import logstore
from tests.figures import report
from tests.rotation import seed_of_turn
from tests.wire.hostile.serving import CHECKED_TOPIC
from tests.wire.hostile.workload import Seen, Workload

pytest.importorskip("confluent_kafka")

ROOT = Path(__file__).parents[3]
MIB = 2**20
MOST_KEPT_BYTES = 48 * MIB
"""Of what the hostile have taken, when they are gone."""
MOST_KEPT_LATER_BYTES = 192 * MIB
"""The same after minutes of them: some ask for long times to join their group, so that thousands of members
that are never heard of again are remembered for five minutes, as in Kafka."""
QUIET_SECONDS = 60


class Size(NamedTuple):
    """What the process that serves takes."""

    memory_bytes: int
    descriptor_count: int
    thread_count: int


def size_of(pid: int) -> Size:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    return Size(
        int(facts["RssAnon"].split()[0]) * 1024, len(os.listdir(f"/proc/{pid}/fd")), int(facts["Threads"])
    )


class Watching:
    """Notes the sizes of a process while it runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.sizes: list[Size] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.25):
            self.sizes.append(size_of(self._pid))

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def memory_between(self, first: float, last: float) -> int:
        """The median in a part of the time: 0 is its beginning, 1 its end."""
        count = len(self.sizes)
        return int(
            statistics.median(
                each.memory_bytes for each in self.sizes[int(first * count) : int(last * count)]
            )
        )


@contextlib.contextmanager
def program(name, *arguments):
    """Another process of the tests, which ends with its input."""
    with subprocess.Popen(
        [sys.executable, "-m", f"tests.wire.hostile.{name}", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as popen:
        yield popen
        popen.stdin.close()
        assert popen.wait(60) == 0, name


def run(directory, *, count, seconds, most_kept_bytes):
    """The hostile beside the workload. Returns what the hostile have done, and the sizes before, meanwhile
    and afterwards, in bytes and numbers."""
    with program("serving", directory) as serving:
        address = serving.stdout.readline().strip()
        workload = Workload(address)
        workload.start()
        before = size_of(serving.pid)
        with Watching(serving.pid) as watching, program("clients", address, count, seed_of_turn()) as hostile:
            assert hostile.stdout.readline() == "coming\n"
            time.sleep(seconds)
            hostile.stdin.close()
            done = json.loads(hostile.stdout.readline())
        after = _when_quiet(serving.pid, before, most_kept_bytes)
        workload.finish()
    check(directory, workload)
    return done, before, watching, after, workload


def _when_quiet(pid, before, most_kept_bytes):
    """The size when all connections of the hostile have ended, and what they took was given back; or at the
    latest when that should be so."""
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        size = size_of(pid)
        has_kept = size.memory_bytes > before.memory_bytes + most_kept_bytes
        if size.descriptor_count <= before.descriptor_count and not has_kept:
            break
        time.sleep(0.1)
    return size_of(pid)


def check(directory, workload):
    """The store has what was acknowledged, once and in order, and is sound."""
    seen = Seen()
    with logstore.open(directory, read_only=True) as store:
        for record in store[CHECKED_TOPIC].read():
            seen.note(record.value)
        assert store.verify().is_sound
    assert dict(seen.counts) == workload.acknowledged
    assert all(count > 100 for count in workload.acknowledged.values())


def tell(done, before, watching, after, workload, seconds):
    tries = sum(each for name, each in done.items() if name != "reset")
    waited = sorted(workload.seconds)
    detail = (
        f"{sum(workload.acknowledged.values()):,} records of others; memory "
        f"{before.memory_bytes / MIB:.0f} MiB before, at most "
        f"{max(each.memory_bytes for each in watching.sizes) / MIB:.0f}, {after.memory_bytes / MIB:.0f} "
        f"afterwards; a small request of others took {waited[len(waited) * 99 // 100] * 1000:.0f} ms (p99)"
    )
    print(done, detail, watching.sizes[:: max(len(watching.sizes) // 12, 1)])
    report("hostile clients of a listener", count=tries, failures=0, seconds=seconds, detail=detail)


def check_sizes(done, before, after, most_kept_bytes):
    assert after.descriptor_count <= before.descriptor_count
    assert after.memory_bytes <= before.memory_bytes + most_kept_bytes
    assert done.get("not let in", 0) == 0


def test_hostile_clients_cost_the_others_nothing(tmp_path):
    """8 s."""
    done, before, watching, after, workload = run(
        tmp_path / "store", count=60, seconds=4, most_kept_bytes=MOST_KEPT_BYTES
    )
    tell(done, before, watching, after, workload, 4)
    check_sizes(done, before, after, MOST_KEPT_BYTES)
    assert min(done[name] for name in ("stall", "send_garbage", "be_deaf", "reset")) > 5


@pytest.mark.soak
def test_200_hostile_clients_for_ten_minutes(tmp_path):
    """11 min. Memory levels off in the first half: see ``MOST_KEPT_LATER_BYTES``."""
    done, before, watching, after, workload = run(
        tmp_path / "store", count=200, seconds=600, most_kept_bytes=MOST_KEPT_LATER_BYTES
    )
    tell(done, before, watching, after, workload, 600)
    check_sizes(done, before, after, MOST_KEPT_LATER_BYTES)
    assert sum(done.values()) > 10_000
    growth = watching.memory_between(0.8, 1) - watching.memory_between(0.5, 0.7)
    assert growth < 32 * MIB, f"{growth / MIB:.1f} MiB in three minutes"
