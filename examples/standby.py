"""A warm standby: a second process copies each record of the first, and takes over when that is killed.

The application writes orders. A standby follows it, and is promoted when the application has been killed: it
has all that it had copied by then, at the same offsets, and goes on. Run: python examples/standby.py
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

import logstore
from logstore import replica


def sell(path: str, address: str) -> None:
    with logstore.open(path) as store, store.listen(address), store.producer() as producer:
        store.create_topic("orders")
        for number in range(1_000_000):
            producer.send("orders", b"order %d" % number).result()


if __name__ == "__main__" and len(sys.argv) == 3:
    sell(*sys.argv[1:])
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path, logstore.open(f"{path}/standby") as store:
        address = f"{path}/shop.sock"  # or a host and a port
        shop = subprocess.Popen([sys.executable, __file__, f"{path}/shop", address])
        while not os.path.exists(address):
            time.sleep(0.05)
        standby = replica.follow(store, address)
        while "orders" not in store or store["orders"][0].log_end_offset < 1_000:
            time.sleep(0.05)
        shop.send_signal(signal.SIGKILL)
        shop.wait()

        standby.promote()
        copied = store["orders"][0].log_end_offset
        with store.producer() as producer:
            sold = producer.send("orders", b"sold by the standby").result()
        values = [record.value for record in store["orders"][0].read()]
        assert values == [b"order %d" % number for number in range(copied)] + [b"sold by the standby"]
        print(f"the shop is gone; the standby has a thousand orders and more: {copied >= 1_000}")
        print(f"and the next one right behind them: {sold.offset == copied}")
