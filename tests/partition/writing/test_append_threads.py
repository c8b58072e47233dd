"""Threads that append single records, many at once, and wait for the disk, side by side."""

import contextlib
import random
import sys
import threading

import pytest

from logstore.clock import SystemClock
from logstore.errors import ClosedError
from tests.partition.helpers_rules import open_log


def run(actions):
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_each_thread_finds_its_records_at_the_offsets_it_was_told(tmp_path):
    log = open_log(
        tmp_path / "t-0", clock=SystemClock(), batch_bytes=2_000, segment_bytes=20_000, linger_ms=1
    )
    told = [{} for _ in range(6)]
    not_durable = []

    def append(name):
        chance = random.Random(name)
        for number in range(120):
            flush = chance.random() < 0.2
            if chance.random() < 0.5:
                value = b"%d single %d" % (name, number)
                end = log.append(value, flush=flush) + 1
                told[name][end - 1] = value
            else:
                values = [b"%d many %d-%d" % (name, number, n) for n in range(chance.randrange(1, 30))]
                offsets = log.extend(values, flush=flush)
                end = offsets.stop
                told[name].update(zip(offsets, values, strict=True))
            if flush and log.durable_offset < end:
                not_durable.append(end)

    run([lambda name=name: append(name) for name in range(6)])
    stored = {record.offset: record.value for record in log}
    log.close()
    assert not_durable == []
    assert [list(of_thread) == sorted(of_thread) for of_thread in told] == [True] * 6
    assert {offset: value for of_thread in told for offset, value in of_thread.items()} == stored
    assert list(stored) == list(range(len(stored)))


@pytest.fixture
def hurried_switches():
    """Threads take turns a hundred times as often as they do by themselves."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00005)
    yield
    sys.setswitchinterval(before)


def test_appends_that_take_no_lock_keep_their_offsets_while_the_log_is_changed(tmp_path, hurried_switches):
    log = open_log(
        tmp_path / "t-0", clock=SystemClock(), batch_bytes=3_000, segment_bytes=30_000, linger_ms=1
    )
    told = [{} for _ in range(5)]
    *appenders, changer = told
    is_over = threading.Event()

    def append(own, name):
        for number in range(3_000):
            value = b"%d single %d" % (name, number)
            own[log.append(value)] = value

    def change():
        changes = (
            lambda: changer.update(zip(log.extend([b"x", b"y"]), (b"x", b"y"), strict=True)),
            log.roll,
            log.flush,
            lambda: log.reconfigure(log.config),
            lambda: list(log.read(max(log.log_end_offset - 3, 0))),
            lambda: log.truncate_to(1 << 40),
        )
        chance = random.Random(1)
        while not is_over.is_set():
            chance.choice(changes)()

    other = threading.Thread(target=change)
    other.start()
    run([lambda own=own, name=name: append(own, name) for name, own in enumerate(appenders)])
    is_over.set()
    other.join()
    stored = {record.offset: record.value for record in log}
    log.close()
    assert [list(own) == sorted(own) for own in told] == [True] * 5
    assert {offset: value for own in told for offset, value in own.items()} == stored
    assert list(stored) == list(range(len(stored)))
    assert len(stored) == 12_000 + len(changer)


def test_what_was_appended_while_the_log_was_closed_is_stored_or_refused(tmp_path, hurried_switches):
    for name in range(20):
        log = open_log(tmp_path / f"{name}-0", clock=SystemClock())
        told = []
        has_begun = threading.Event()

        def append(log=log, told=told, has_begun=has_begun):
            with contextlib.suppress(ClosedError):
                while True:
                    told.append(log.append(b"x" * 100))
                    has_begun.set()

        thread = threading.Thread(target=append)
        thread.start()
        has_begun.wait(10)
        log.close()
        thread.join()
        again = open_log(tmp_path / f"{name}-0", clock=SystemClock())
        assert told == list(range(again.log_end_offset))
        again.close()
