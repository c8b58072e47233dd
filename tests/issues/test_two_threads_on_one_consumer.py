"""Four threads that polled one consumer got a quarter of the records between them, and their commits covered
the rest: it was lost, and nothing was said. A consumer refuses a second thread while one polls; with a
consumer for each thread every record comes."""

from __future__ import annotations

import threading
from collections import Counter

import logstore
from logstore.errors import RetriableError, UsageError

COUNT = 4_000


def drained_by(consumers, count):
    """What threads get, each from its consumer, until that is so many records; and why one was refused."""
    found = Counter()
    refused = []
    lock = threading.Lock()

    def work(consumer):
        while not refused and len(found) < count:
            try:
                records = consumer.poll(timeout=0.1)
                with lock:
                    found.update((record.partition, record.offset) for record in records)
                consumer.commit()
            except RetriableError:
                continue  # it rebalances
            except UsageError as error:
                refused.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found, refused


def test_a_second_thread_is_refused(tmp_path):
    """Costs 2 s: members wait for each other before they divide the partitions."""
    with logstore.open(tmp_path) as store:
        orders = store.create_topic("orders", partitions=4)
        everything = Counter(
            (number, offset) for number in range(4) for offset in orders[number].extend([b"paid"] * COUNT)
        )
        errors: list[str] = []
        with store.consumer("orders", group="shared", max_poll_records=50) as consumer:
            barrier = threading.Barrier(4)

            def poll():
                barrier.wait(10)
                try:
                    consumer.poll(timeout=0.5)
                    consumer.seek_to_end()
                    while True:
                        consumer.poll(timeout=0.05)
                except UsageError as error:
                    errors.append(str(error))

            threads = [threading.Thread(target=poll, daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            while len(errors) < 3:
                threads[0].join(0.01)
            assert all("make a consumer for each thread" in each for each in errors[:3])
        for thread in threads:
            thread.join(10)

        members = [store.consumer("orders", group="billing", heartbeat_interval_ms=20) for _ in range(4)]
        found, refused = drained_by(members, len(everything))
        assert not refused
        assert set(found) == set(everything)
