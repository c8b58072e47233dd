"""Memory that the answers of a crowd have taken goes back to the system."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

PROGRAM = """
import random, threading
from logstore.wire.listener.spare_memory import SpareMemory, private_bytes

spare = SpareMemory()
left = []
together = threading.Barrier(8)

def answer():
    chance = random.Random(1)
    blocks = [bytes(chance.randrange(100_000, 400_000)) for _ in range(60)]
    left.append(bytes(1_000))  # behind them: what is freed is not at the end of the pool
    together.wait()
    blocks.clear()

bytes(16 << 20)  # after a large block is freed, glibc keeps smaller ones
for _ in range(4):
    threads = [threading.Thread(target=answer) for _ in range(8)]
    for each in threads: each.start()
    for each in threads: each.join()
before = private_bytes()
spare.give_back()
print(before, private_bytes())
"""


def test_memory_that_was_freed_is_given_back():
    """0.4 s."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("no malloc_trim here")
    made = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(int, made.stdout.split())
    assert before > 80 << 20
    assert after < before / 2


POOLS = """
import ctypes, sys, threading
from logstore.wire.listener.spare_memory import share_pools

share_pools()
together = threading.Barrier(12)

def allocate():
    block = bytes(10_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for each in threads: each.start()
for each in threads: each.join()
c = ctypes.CDLL(None)
c.fdopen.restype = ctypes.c_void_p
c.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
c.malloc_info(0, c.fdopen(1, b"w"))
c.fflush(None)
"""


@pytest.mark.parametrize(("said", "most"), [({}, 1), ({"MALLOC_ARENA_MAX": "3"}, 3)])
def test_threads_share_one_pool_unless_the_user_has_said_how_many(said, most):
    """A process that serves keeps the ends of others. 0.2 s."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("no malloc_info here")
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | said
    made = subprocess.run(
        [sys.executable, "-c", POOLS], capture_output=True, text=True, check=True, env=environment
    )
    assert made.stdout.count("<heap nr=") == most


KEPT = """
import resource, threading
from logstore.wire.listener.spare_memory import SpareMemory, private_bytes, share_pools

spare = SpareMemory()
share_pools()

def answer():
    for _ in range(2):
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(100):
            blocks = [bytearray(1 << 20) for _ in range(8)]
            blocks.clear()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)

thread = threading.Thread(target=answer)
thread.start()
thread.join()
before = private_bytes()
spare._least_bytes = before - (16 << 20)
spare.give_back()
print(before - private_bytes())
"""


@pytest.mark.parametrize("said", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}])
def test_answers_use_the_memory_of_those_before_them(said):
    """Of 800 MiB that are taken again and again no page is made anew; and then they go. 0.3 s."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("no malloc_trim here")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | said
    made = subprocess.run(
        [sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, env=environment
    )
    faults, given_back = map(int, made.stdout.split())
    assert (faults < 2_000) == (not said)
    assert said or given_back > 6 << 20
