"""What clients do with a cluster, and see of it, through ``confluent-kafka``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from benchmarks.measure import MeasurementError

_PATIENCE_SECONDS: Final = 120.0
_QUIET: Final = {"log_level": 0}
_LOOK_SECONDS: Final = 0.01


def _admin(addresses: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": addresses, "topic.metadata.refresh.interval.ms": -1, **_QUIET})


def _await(addresses: str, what: str, is_there: Callable[[Any], bool]) -> float:
    """Look at the metadata of all topics, or of one, until it is as wanted. Returns the seconds."""
    admin = _admin(addresses)
    started = time.perf_counter()
    while time.perf_counter() - started < _PATIENCE_SECONDS:
        with suppress(Exception):  # a broker that is gone: the next one is asked
            if is_there(admin):
                return time.perf_counter() - started
        time.sleep(_LOOK_SECONDS)
    raise MeasurementError(f"{what} not there after {_PATIENCE_SECONDS} s")


def await_nodes(addresses: str, count: int) -> float:
    """Until clients are told of so many nodes: they listen before. Returns the seconds.

    Raises:
        MeasurementError: it takes too long.
    """
    return _await(
        addresses, f"{count} nodes are", lambda admin: len(admin.list_topics(timeout=5).brokers) == count
    )


def await_topic(addresses: str, topic: str, is_well: Callable[[Any], bool]) -> float:
    """Until all partitions of a topic are well. Returns the seconds.

    Raises:
        MeasurementError: it takes too long.
    """

    def is_there(admin: Any) -> bool:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
        return bool(found) and all(map(is_well, found))

    return _await(addresses, f"{topic} is", is_there)


def in_sync(count: int) -> Callable[[Any], bool]:
    """Whether a partition has so many replicas in sync."""
    return lambda partition: len(partition.isrs) >= count and partition.leader >= 0


def led_by_others(gone: int) -> Callable[[Any], bool]:
    """Whether another node leads it."""
    return lambda partition: partition.leader not in (-1, gone)


def leaders(addresses: str, topic: str) -> list[int]:
    """Of all partitions."""
    found = _admin(addresses).list_topics(topic, timeout=10).topics[topic].partitions
    return [found[number].leader for number in sorted(found)]


def write_everywhere(addresses: str, topic: str, partitions: int) -> float:
    """A record to each partition, by a new client, until all in-sync replicas have them. Returns the seconds.

    Raises:
        MeasurementError: one was not acknowledged.
    """
    from confluent_kafka import Producer

    settings = {"acks": -1, "linger.ms": 5, "message.timeout.ms": int(_PATIENCE_SECONDS * 1000), **_QUIET}
    producer = Producer({"bootstrap.servers": addresses, "enable.idempotence": True, **settings})
    failed: list[Any] = []
    started = time.perf_counter()
    for number in range(partitions):
        producer.produce(topic, b"x" * 100, partition=number, on_delivery=_noting(failed))
        producer.poll(0)
    left = producer.flush(_PATIENCE_SECONDS)
    if left or failed:
        raise MeasurementError(f"{left} records are left, and {len(failed)} have failed: {failed[:1]}")
    return time.perf_counter() - started


def _noting(failed: list[Any]) -> Callable[[Any, Any], None]:
    def note(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    return note


def latencies(
    addresses: str, topic: str, is_over: Callable[[int], bool], per_second: float | None = None
) -> list[float]:
    """Of one record after the other, each acknowledged by all, in seconds. ``is_over`` is told how many there
    were. With ``per_second`` each has a time at which it is due, and its latency counts from there. The first
    one, which connects, does not count."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": addresses, "acks": -1, "linger.ms": 0, **_QUIET})
    failed: list[Any] = []

    def send() -> None:
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=_noting(failed))
        if producer.flush(_PATIENCE_SECONDS) or failed:
            raise MeasurementError(f"a record was not acknowledged: {failed[:1]}")

    send()
    found: list[float] = []
    due = time.perf_counter()
    while not is_over(len(found)):
        started = time.perf_counter()
        if per_second is not None:
            due += 1 / per_second
            time.sleep(max(due - started, 0))
            started = due
        send()
        found.append(time.perf_counter() - started)
    return found


def fill(addresses: str, topic: str, wanted_bytes: int, value_bytes: int = 1024) -> int:
    """Records, acknowledged by all. Returns how many bytes of values."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": addresses, "acks": -1, "linger.ms": 5, **_QUIET})
    value = bytes(range(256)) * (value_bytes // 256)
    sent = 0
    while sent < wanted_bytes:
        try:
            producer.produce(topic, value)
            sent += value_bytes
        except BufferError:
            producer.poll(0.01)
    if producer.flush(_PATIENCE_SECONDS):
        raise MeasurementError("records are left")
    return sent


def percentile(values: Iterable[float], share: float) -> float:
    """Below which this share of them is."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
