"""Another client for the tests: confluent-kafka, which is librdkafka. It is optional."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from tests.interop.clients import TIMESTAMP_TYPES, Isolation, SeenRecord


def is_there() -> bool:
    return importlib.util.find_spec("confluent_kafka") is not None


def consume_group(
    bootstrap: str, topic: str, group: str, count: int, isolation: Isolation
) -> list[SeenRecord]:
    """Up to ``count`` records as a member of a group, which has committed them afterwards; the group begins
    at the log start."""
    package: Any = importlib.import_module("confluent_kafka")
    consumer = package.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    seen: list[SeenRecord] = []
    try:
        consumer.subscribe([topic])
        while len(seen) < count:
            messages = consumer.consume(num_messages=count - len(seen), timeout=20)
            if not messages:
                raise TimeoutError(f"{topic}: {len(seen)} of {count} records")
            seen += [_seen(message) for message in messages]
        consumer.commit(asynchronous=False)
        return seen
    finally:
        consumer.close()


def _seen(message: Any) -> SeenRecord:
    assert message.error() is None, message.error()
    kind, timestamp_ms = message.timestamp()
    return SeenRecord(
        offset=message.offset(),
        timestamp_ms=timestamp_ms,
        timestamp_type=TIMESTAMP_TYPES[kind - 1],
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        leader_epoch=-1 if message.leader_epoch() is None else message.leader_epoch(),
    )
