"""A work queue with a dead-letter topic: one of the workers hangs, and one of the jobs is poisonous.

The job that the hanging worker has goes to another when its lock runs out. The poisonous job is tried three
times, with a pause in between, and then put aside with its reason. Run: python examples/work_queue.py
"""

import tempfile
import threading
import time

import logstore
from logstore.clients.queues.job import Job
from logstore.clients.settings import QueueConfig

SETTINGS = QueueConfig(dead_letter_topic="failed", delivery_count_limit=3, record_lock_duration_ms=400)
resized: list[tuple[bytes, int]] = []


def resize(job: Job) -> None:
    if job.value == b"broken.png":
        raise ValueError("not an image")
    resized.append((job.value, job.delivery_count))
    time.sleep(0.01)


def work(store: logstore.Store, everything_done: threading.Event) -> None:
    with store.queue("images", group="resizers", config=SETTINGS) as queue:
        while not everything_done.is_set():
            queue.work(resize, until_empty=True)
            time.sleep(0.02)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, logstore.open(directory) as store:
        images = store.create_topic("images", partitions=2)
        failed = store.create_topic("failed")
        images.extend([f"{number}.png".encode() for number in range(20)] + [b"broken.png"])
        with store.queue("images", group="resizers", config=SETTINGS) as hanging:
            print("a worker hangs with", hanging.poll(max_jobs=1)[0].value)
            done = threading.Event()
            workers = [threading.Thread(target=work, args=(store, done), name=f"worker {n}") for n in (1, 2)]
            for worker in workers:
                worker.start()
            while (status := store.queues()[0]).waiting_count or status.taken_count:
                time.sleep(0.05)
            done.set()
            for worker in workers:
                worker.join()
        print("resized:", len(resized), "images, at their second delivery:", [v for v, n in resized if n > 1])
        for record in failed.read():
            print("failed:", record.value, dict(record.headers)["logstore.error"])
