"""Everything that a record has: the five fields of its tuple, and the other attributes."""

from __future__ import annotations

from typing import Any

from logstore.model import Record, TimestampType

BESIDE = ("topic", "partition", "timestamp_type", "leader_epoch")
"""The attributes that are not fields."""


def beside(record: Record) -> tuple[str | None, int | None, TimestampType, int | None]:
    """The values of these four."""
    return record.topic, record.partition, record.timestamp_type, record.leader_epoch


def whole(record: Record) -> tuple[Any, ...]:
    """All nine values, for comparing records."""
    return *record, *beside(record)
