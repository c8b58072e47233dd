"""A real process that is killed while it commits: no commit that returned is lost, and none is halved."""

from __future__ import annotations

import random
import signal
import subprocess
import sys

import logstore
from tests.rotation import seed_of_turn

PROGRAM = """
import sys
import logstore

with logstore.open(sys.argv[1]) as store:
    orders = store.require_topic("orders", partitions=3)
    offsets = store.offsets("billing")
    while True:
        for log in orders:
            log.append(b"an order")
        number = min(log.log_end_offset for log in orders)
        offsets.commit({("orders", partition): number for partition in range(3)})
        print(number, flush=True)
"""


def test_a_kill_takes_no_commit(tmp_path):
    rng = random.Random(seed_of_turn())
    for _ in range(3):
        stop_at = rng.randrange(1, 200)
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "s")]
        last = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for count, line in enumerate(child.stdout, 1):
                last = int(line)
                if count == stop_at:
                    child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
        with logstore.open(tmp_path / "s") as store:
            end = min(log.log_end_offset for log in store["orders"])
            committed = {value.offset for value in store.offsets("billing").values()}
            assert len(store.offsets("billing")) == 3
            assert len(committed) == 1, "half of a commit"
            assert last <= committed.pop() <= end
