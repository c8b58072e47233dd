"""A reader that is killed again and again, and goes on where it stopped.

It bills orders, and commits the next offset to read in its group's name after each. A kill may come at any
moment, between the work and the commit too: then that one order comes again. Each life of the reader is a
process of its own. Run: python examples/resume.py
"""

import os
import random
import subprocess
import sys
import tempfile

import logstore


def read(path: str, seed: str) -> None:
    chance = random.Random(seed)
    with logstore.open(path) as store:
        offsets, log = store.offsets("billing"), store["orders"][0]
        committed = offsets.get(("orders", 0))
        for record in log.read(committed.offset if committed else None):
            store["bills"].append(record.value, flush=True)  # the work
            if chance.random() < 0.2:
                os._exit(9)  # killed before the commit
            offsets.commit({("orders", 0): record.offset + 1})
            if chance.random() < 0.2:
                os._exit(9)  # killed after it


if __name__ == "__main__" and len(sys.argv) == 3:
    read(*sys.argv[1:])
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        with logstore.open(path) as store:
            store.create_topic("bills")
            store.create_topic("orders")[0].extend([b"%d" % number for number in range(20)])
        lives = 1
        while subprocess.run([sys.executable, __file__, path, str(lives)], check=False).returncode:
            lives += 1
        with logstore.open(path) as store:
            bills = [int(record.value or 0) for record in store["bills"][0]]
            print(f"{lives} lives; the reader stands at", store.offsets("billing")["orders", 0].offset)
        print("missed:", sorted(set(range(20)) - set(bills)), "in order:", bills == sorted(bills))
        again = len(bills) - 20
        print(f"{again} orders came again, no more than one for each kill: {again < lives}")
