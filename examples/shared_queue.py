"""Three processes work on one queue, in a directory that they share. One is killed in the middle of a job.

Whichever process comes first opens the directory, and the others go through it: no broker, no port. What the
killed worker had goes to the others at once. Run: python examples/shared_queue.py
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

import logstore


def work(path: str) -> None:
    with (
        logstore.open_or_connect(path) as store,
        store.producer() as producer,
        store.queue("images", group="resizers", max_poll_records=1) as queue,
    ):
        for job in queue:
            if job.value == b"7.png" and job.delivery_count == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)
            producer.send("resized", job.value, key=b"%d" % job.delivery_count).result()
            job.accept()


def main() -> None:
    with tempfile.TemporaryDirectory() as path, logstore.open_or_connect(path) as store:
        store.create_topic("images", partitions=2)
        store.create_topic("resized")
        with store.producer() as producer:
            for number in range(40):
                producer.send("images", b"%d.png" % number)
        workers = [subprocess.Popen([sys.executable, __file__, path]) for _ in range(3)]
        with store.consumer("resized", group="main") as consumer:
            tries: dict[bytes, int] = {}
            while len(tries) < 40:
                tries |= {record.value: int(record.key) for record in consumer.poll(timeout=10)}
        for worker in workers:
            worker.terminate()
    print("resized:", len(tries), "images, at their second delivery:", [k for k in tries if tries[k] > 1])
    print("workers that were killed:", [each.wait() for each in workers].count(-signal.SIGKILL))


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
