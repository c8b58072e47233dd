"""Memory that the answers of a crowd have taken goes back to the system."""

from __future__ import annotations

import ctypes
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
