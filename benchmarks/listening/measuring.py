"""What is measured: shapes of records, sizes of a run, and the lines of figures that it gives.

Knows neither servers nor clients.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from benchmarks.events import event_at
from logstore.format.batch import encode_batch
from logstore.format.compression import Codec

OURS: Final = "logstore"
OURS_FLUSHED: Final = "logstore, flushed"
BROKER: Final = "Kafka"
BROKER_FLUSHED: Final = "Kafka, flushed"

ACKS_ONE, ACKS_ALL = 1, -1

Found = dict[str, float]
"""The figures of one measurement."""

Line = dict[str, Any]
"""The same with part, case, server and round, as it is stored."""


class Shape(NamedTuple):
    """Records of one size in batches of one size."""

    value_bytes: int
    records: int
    """In a batch."""
    is_zstd: bool = False

    @property
    def name(self) -> str:
        """As in tables."""
        size = f"{self.value_bytes} B" if self.value_bytes < 1024 else f"{self.value_bytes // 1024} KiB"
        small = ", small batches" if self.batch_bytes < 50_000 else ""
        return f"{size}{small}{', zstd' if self.is_zstd else ''}"

    @property
    def batch_bytes(self) -> int:
        """Of its values, before compression: what rates count."""
        return self.value_bytes * self.records

    def values(self) -> list[bytes]:
        """Pieces of JSON events, which zstd makes about four times smaller."""
        text = bytearray()
        number = 0
        while len(text) < self.batch_bytes:
            text += event_at(number, 1_767_225_600_000 + number)[1]
            number += 1
        return [
            bytes(text[at : at + self.value_bytes]) for at in range(0, self.batch_bytes, self.value_bytes)
        ]

    def batch(self) -> bytes:
        """With timestamps of now."""
        codec = Codec.ZSTD if self.is_zstd else Codec.NONE
        now_ms = time.time_ns() // 1_000_000
        return bytes(encode_batch([None] * self.records, self.values(), now_ms, codec=codec))


SHAPES: Final = (
    Shape(100, 1_000),
    Shape(100, 1_000, is_zstd=True),
    Shape(1024, 100),
    Shape(1024, 100, is_zstd=True),
)
"""Batches of 100 kB."""
SMALL_BATCHES: Final = Shape(100, 160)
"""16 kB: as the Java producer makes them unless it is told otherwise."""
SHAPE_OF: Final = {shape.name: shape for shape in (*SHAPES, SMALL_BATCHES)}


class Sizes(NamedTuple):
    """How much of everything."""

    rounds: int
    seconds: float
    """Of one measurement of a rate."""
    most_bytes: int
    """That one measurement stores."""
    kept_bytes: int
    """Of a topic that is fetched."""
    warm_seconds: float
    """Of each request, before anything is measured: a JVM compiles what it does often."""
    starts: int
    produces: int
    """One by one, for latencies."""
    polls: int
    connections: int
    partitions: int
    """Of a fetch session."""


FULL = Sizes(
    rounds=5,
    seconds=0.5,
    most_bytes=256_000_000,
    kept_bytes=50_000_000,
    warm_seconds=3.0,
    starts=3,
    produces=1_000,
    polls=300,
    connections=1_000,
    partitions=1_000,
)
QUICK = Sizes(
    rounds=1,
    seconds=0.05,
    most_bytes=4_000_000,
    kept_bytes=1_000_000,
    warm_seconds=0.05,
    starts=1,
    produces=20,
    polls=5,
    connections=20,
    partitions=10,
)
SIZES = {"full": FULL, "quick": QUICK}
