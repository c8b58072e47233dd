"""What a record says in all: the five fields of its tuple, and what is beside them."""

from __future__ import annotations

from typing import Any

from logstore.model import Record, TimestampType

BESIDE = ("topic", "partition", "timestamp_type", "leader_epoch")
"""Its attributes that are no fields."""


def beside(record: Record) -> tuple[str | None, int | None, TimestampType, int | None]:
    """These four."""
    return record.topic, record.partition, record.timestamp_type, record.leader_epoch


def whole(record: Record) -> tuple[Any, ...]:
    """All nine, to compare records by."""
    return *record, *beside(record)
