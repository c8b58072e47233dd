"""What librdkafka does, through ``confluent-kafka``: a call for each record that is sent, and many records
from each call that receives."""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.listening.measuring import SHAPE_OF, Found
from benchmarks.records import WrongDataError

_LINGER_MS: Final = 5
_TAKEN: Final = 10_000
"""Records that one call receives at most."""
_SERVED_EVERY: Final = 1_000
_PATIENCE_SECONDS: Final = 30.0
_QUIET: Final = {"log_level": 0}


def create_topic(
    address: str, topic: str, *, partitions: int, settings: dict[str, str], replicas: int = 1
) -> Found:
    """A topic with settings."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address, **_QUIET})
    made = admin.create_topics([NewTopic(topic, partitions, replicas, config=settings)])
    made[topic].result(_PATIENCE_SECONDS)
    return {}


def delete_topic(address: str, topic: str) -> Found:
    """And its files."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address, **_QUIET})
    admin.delete_topics([topic])[topic].result(_PATIENCE_SECONDS)
    return {}


def measure_produce(address: str, topic: str, *, shape: str, acks: int, seconds: float, most: int) -> Found:
    """Until every record is acknowledged. Records are made before."""
    from confluent_kafka import Producer

    each = SHAPE_OF[shape]
    codec = "zstd" if each.is_zstd else "none"
    settings = {"acks": acks, "linger.ms": _LINGER_MS, "compression.type": codec, **_QUIET}
    producer = Producer({"bootstrap.servers": address, "queue.buffering.max.messages": 1_000_000, **settings})
    failed: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(topic, b"first", on_delivery=note)
    producer.flush(_PATIENCE_SECONDS)
    values = each.values()
    limit = most // each.value_bytes
    sent = 0
    started = time.perf_counter()
    while sent < limit and time.perf_counter() - started < seconds:
        for value in values[:_SERVED_EVERY]:
            _send(producer, topic, value, note)
        sent += len(values[:_SERVED_EVERY])
        producer.poll(0)
    left = producer.flush(_PATIENCE_SECONDS)
    elapsed = time.perf_counter() - started
    if failed or left:
        raise WrongDataError(f"{left} records are left, and {len(failed)} have failed: {failed[:1]}")
    return {"bytes": sent * each.value_bytes, "records": sent, "seconds": elapsed}


def _send(producer: Any, topic: str, value: bytes, note: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, on_delivery=note)
            return
        except BufferError:
            producer.poll(0.01)


def measure_consume(address: str, topic: str, *, shape: str, seconds: float) -> Found:
    """From the beginning to the end and again. The clock starts when the first records have come."""
    from confluent_kafka import Consumer, TopicPartition

    each = SHAPE_OF[shape]
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, **_QUIET}
    )
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE_SECONDS)[1]
    consumer.assign([TopicPartition(topic, 0, 0)])
    position = _take(consumer)
    received = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        if position >= end:
            consumer.assign([TopicPartition(topic, 0, 0)])
            position = 0
        count = _take(consumer)
        position += count
        received += count
    consumer.close()
    return {"bytes": received * each.value_bytes, "records": received, "seconds": elapsed}


def _take(consumer: Any) -> int:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = [each for each in consumer.consume(_TAKEN, 0.1) if each.error() is None]
        if found:
            return len(found)
    raise WrongDataError("nothing came")
