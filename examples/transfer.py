"""Money moved between two accounts: in all there is always as much, though the bank is killed in the middle.

A transfer is a transaction of two records, in two partitions. Each process of the bank is killed when one of
the two is written. A reader beside it adds up what is committed. It reads one partition after the other, and
may find a transfer in one but not yet in the other. The transfers have numbers: it counts those that both
partitions show. Run: python examples/transfer.py
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import logstore


def read_accounts(store: logstore.Store) -> tuple[int, list[int]]:
    """The number of the last transfer that both partitions show, and what the two accounts have then."""
    logs = [log.read(isolation=logstore.Isolation.COMMITTED) for log in store["accounts"]]
    moves = [[tuple(map(int, (record.value or b"").split())) for record in log] for log in logs]
    last = min(account[-1][0] for account in moves)
    return last, [sum(amount for number, amount in account if number <= last) for account in moves]


def transfer(path: str) -> None:
    with logstore.open(path) as store, store.producer(transactional_id="bank") as producer:
        last, (alice, bob) = read_accounts(store)
        for number in range(last + 1, 61):
            amount = random.randint(-bob, alice)  # from alice to bob
            with producer.transaction():
                producer.send("accounts", b"%d %d" % (number, -amount), partition=0).result()
                if number == last + 30:
                    os.kill(os.getpid(), signal.SIGKILL)
                producer.send("accounts", b"%d %d" % (number, amount), partition=1)
            alice, bob = alice - amount, bob + amount


if __name__ == "__main__" and len(sys.argv) == 2:
    transfer(sys.argv[1])
elif __name__ == "__main__":
    sums, lives = [], 0
    with tempfile.TemporaryDirectory() as path:
        with logstore.open(path) as store:
            for log in store.create_topic("accounts", partitions=2):
                log.append(b"0 100")
        with logstore.open(path, read_only=True) as store:
            while read_accounts(store)[0] < 60:
                lives += 1
                with subprocess.Popen([sys.executable, __file__, path]) as bank:
                    while bank.poll() is None:
                        sums.append(sum(read_accounts(store)[1]))
                        time.sleep(0.001)
    print(f"{lives} lives of the bank; looked {len(sums)} times, and saw in all: {set(sums)}")
