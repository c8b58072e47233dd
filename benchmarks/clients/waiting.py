"""How long a record takes from one thread to another, and what it costs to wait."""

from __future__ import annotations

import threading
import time

import logstore
from benchmarks.clients.measuring import Found, Sizes, percentile
from benchmarks.clients.rates import mock_consumer, mock_producer
from benchmarks.process import resident_memory_bytes

_WARM_UP = 20


class Idle:
    """Consumers of a topic to which nothing is sent, each with a poll that waits, and none with a thread."""

    def __init__(self, store: logstore.Store, count: int) -> None:
        self._polls = []
        self._wakes = 0
        for _ in range(count):
            consumer = store.consumer("quiet")
            polling = consumer.begin_poll()
            if polling.poll() is None:
                polling.on_wake(self._woken)
            self._polls.append((consumer, polling))

    def _woken(self) -> None:
        self._wakes += 1

    def close(self) -> None:
        """
        Raises:
            AssertionError: one was woken.
        """
        assert not self._wakes, "an idle consumer was woken"
        for consumer, polling in self._polls:
            polling.cancel()
            consumer.close()


def _figures(taken: list[float]) -> Found:
    taken = sorted(taken[_WARM_UP:])
    return {
        "median_seconds": percentile(taken, 0.5),
        "p99_seconds": percentile(taken, 0.99),
        "p999_seconds": percentile(taken, 0.999),
    }


def measure_delays(directory: str, sizes: Sizes, *, are_others_idle: bool) -> Found:
    """A record each millisecond, with ``linger_ms=0``, from ``send()`` in one thread to a loop over a
    consumer in another."""
    count = sizes.delays + _WARM_UP
    with logstore.open(directory) as store:
        store.create_topic("t")
        store.create_topic("quiet")
        idle = Idle(store, sizes.idle if are_others_idle else 0)
        taken: list[float] = []

        def receive() -> None:
            with store.consumer("t") as consumer:
                for record in consumer:
                    taken.append(time.perf_counter() - float(record.value or b"0"))
                    if len(taken) == count:
                        return

        thread = threading.Thread(target=receive)
        thread.start()
        with store.producer(acks=1, linger_ms=0) as producer:
            for _ in range(count):
                producer.send("t", b"%.9f" % time.perf_counter())
                time.sleep(0.001)
        thread.join()
        idle.close()
    return _figures(taken)


def measure_mock_delays(directory: str, sizes: Sizes) -> Found:
    """The same with librdkafka and its mock broker."""
    count = sizes.delays // 4 + _WARM_UP
    producer, address = mock_producer(acks=1, **{"linger.ms": 0})
    producer.produce("t", b"0")
    producer.flush()
    taken: list[float] = []
    is_ready = threading.Event()

    def receive() -> None:
        consumer = mock_consumer(address, **{"fetch.wait.max.ms": 10})
        while len(taken) < count:
            message = consumer.poll(1)
            if message is None or message.error() is not None:
                continue
            if is_ready.is_set():
                taken.append(time.perf_counter() - float(message.value()))
            is_ready.set()
        consumer.close()

    thread = threading.Thread(target=receive)
    thread.start()
    is_ready.wait()
    for _ in range(count):
        producer.produce("t", b"%.9f" % time.perf_counter())
        producer.poll(0)
        time.sleep(0.001)
    producer.flush()
    thread.join()
    return _figures(taken)


def measure_idle(directory: str, sizes: Sizes) -> Found:
    """What so many consumers take that wait: threads, a share of one core, and memory for each."""
    with logstore.open(directory) as store:
        store.create_topic("quiet")
        Idle(store, 10).close()
        threads, memory_bytes = threading.active_count(), resident_memory_bytes()
        idle = Idle(store, sizes.idle)
        found: Found = {
            "threads": threading.active_count() - threads,
            "memory_bytes": (resident_memory_bytes() - memory_bytes) / sizes.idle,
        }
        started, used = time.perf_counter(), time.process_time()
        time.sleep(sizes.idle_seconds)
        found["share"] = (time.process_time() - used) / (time.perf_counter() - started)
        idle.close()
    return found
