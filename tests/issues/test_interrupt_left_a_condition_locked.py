"""``Condition.__enter__`` and ``Event.set`` are Python: Ctrl-C inside them left their lock held by a thread
that knew nothing of it. The background thread then waited for that lock for ever, and ``close()`` for the
thread."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import pytest

import logstore
from logstore.turns import Latch, take_turns


class _Interrupted(threading.Condition):
    """Where a ``with`` statement of ours enters it, Ctrl-C strikes after the lock was taken, each time."""

    def __enter__(self) -> bool:
        super().__enter__()
        if sys._getframe(1).f_globals["__name__"].startswith("logstore."):
            raise KeyboardInterrupt
        return True


def test_no_condition_of_an_open_store_is_entered(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Condition", _Interrupted)
        config = logstore.StoreConfig(linger_ms=5, log_cleaner_backoff_ms=10)
        with contextlib.closing(logstore.open(tmp_path / "store", config=config)) as store:
            topic = store.create_topic("t", config=logstore.TopicConfig(cleanup_policy="compact"))
            topic[0].append(b"1", key=b"k")
            assert [record.value for record in topic[0].follow(0, timeout=0.5)] == [b"1"]
            store.cleaner.wake()
            store.flush()
            topic[0].compact()


def test_a_latch_opens_where_an_interrupt_kept_its_lock():
    latch = Latch()
    latch.open()
    latch._closed.acquire()  # as if the one who waits was interrupted behind this
    latch.open()
    latch.wait()
    latch = Latch()
    latch.is_open = True  # as if the one who opens was interrupted before the release
    latch.wait()


def test_nobody_waits_for_a_thread_that_never_comes(monkeypatch):
    done: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    take_turns(done.append, range(4), at_a_time=2)
    assert done == [0, 1, 2, 3]


PROGRAM = """
import contextlib, random, signal, sys
import logstore
from logstore.errors import LogstoreError

signal.signal(signal.SIGALRM, signal.default_int_handler)
chance = random.Random(int(sys.argv[2]))
acknowledged, given = {}, set()
store = logstore.open(sys.argv[1], config=logstore.StoreConfig(linger_ms=5))
config = logstore.TopicConfig(segment_bytes=3000, flush_ms=10)
topic = store.create_topic("t", partitions=3, config=config)
for number in range(int(sys.argv[3])):
    partition = chance.randrange(3)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.choice([3e-4, 3e-3]) * chance.random() + 1e-6)
            kind = chance.random()
            values = [b"%d %d" % (number, place) for place in range(chance.choice([1, 3, 50]))]
            if kind < 0.4:
                given.update(values)
                for value in values:
                    topic[partition].append(value)
            elif kind < 0.7:
                given.update(values)
                for offset, value in zip(topic[partition].extend(values), values):
                    acknowledged[partition, offset] = value
            else:
                chance.choice([store.flush, store.checkpoint, topic[partition].roll])()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    except LogstoreError:
        with contextlib.suppress(KeyboardInterrupt):
            topic.reopen(partition)
with contextlib.suppress(LogstoreError):
    store.close()
with logstore.open(sys.argv[1]) as store:
    found = {}
    for partition in range(3):
        values = [record.value for record in store["t"][partition].read()]
        assert len(values) == len(set(values)) and given >= set(values)
        found.update({(partition, offset): value for offset, value in enumerate(values)})
    assert acknowledged.items() <= found.items()
print("ended")
"""


@pytest.mark.parametrize("seed", range(2))  # 3 s each
def test_interrupts_at_random_moments_lose_no_extend_and_close_ends(tmp_path, seed):
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(seed), "2000"]
    program = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (program.returncode, program.stdout) == (0, "ended\n"), program.stderr
