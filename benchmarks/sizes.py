"""How much is measured: the full run and the quick one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.records import JSON, LARGE, SMALL

MIB = 2**20
GIB = 2**30

FREE_BYTES_PER_LARGE_BYTE = 2.33
"""Free disk that the large log needs, by its size: 25 GB for 10 GiB."""

Counts = Mapping[tuple[str, int], int]
"""By data and records per batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of one run."""

    rounds: int
    records: Counts
    """Appended without flushes, and read in order."""
    flushes: Mapping[int, int]
    """Of durable appends, by records per batch."""
    thread_flushes: int
    random_reads: Mapping[int, int]
    """By records per batch."""
    time_reads: int
    recovered_records: int
    """Of the logs that are opened after a crash."""
    large_sequential_records: int
    """Of the large log that is read in order, written once."""
    codec_seconds: float
    """For each case of the codec matrix, about."""
    scanned_bytes: int
    """Of the segment whose batches are checked."""
    scanned_piece_bytes: int
    """The same, for slow contenders."""
    map_keys: int
    imports: int
    partitions: int
    segments: int
    """Of each of the many partitions."""
    small_bytes: int
    large_bytes: int
    large_rounds: int
    large_reads: int
    large_least_records: int
    """The least to read in order; the small log is read several times."""
    recovered_bytes: int
    lags: int
    slow_divisor: Mapping[str, int] = field(default_factory=dict)
    """By contender, how many times fewer records it gets, so that it does not take too long."""


FULL = Sizes(
    rounds=5,
    records={
        (SMALL, 1): 20_000,
        (SMALL, 100): 100_000,
        (SMALL, 1_000): 250_000,
        (SMALL, 10_000): 250_000,
        (LARGE, 1): 8_000,
        (LARGE, 100): 30_000,
        (LARGE, 1_000): 50_000,
        (JSON, 1_000): 40_000,
    },
    flushes={1: 500, 100: 300, 1_000: 100},
    thread_flushes=800,
    random_reads={1: 5_000, 100: 5_000, 1_000: 2_000},
    time_reads=1_000,
    recovered_records=200_000,
    large_sequential_records=4_000_000,  # 508 MB
    codec_seconds=0.02,
    scanned_bytes=GIB,
    scanned_piece_bytes=64 * MIB,
    map_keys=10_000_000,
    imports=15,
    partitions=1_000,
    segments=10,
    small_bytes=10 * MIB,
    large_bytes=10 * GIB,
    large_rounds=2,
    large_reads=2_000,
    large_least_records=500_000,
    recovered_bytes=GIB,
    lags=200,
    slow_divisor={"kafka-python": 4, "logstore-plain": 2, "arrow-rows": 2},
)

QUICK = Sizes(
    rounds=1,
    records={(SMALL, 1): 1_000, (SMALL, 1_000): 10_000, (JSON, 1_000): 5_000},
    flushes={100: 30},
    thread_flushes=160,
    random_reads={1: 200, 1_000: 200},
    time_reads=50,
    recovered_records=10_000,
    large_sequential_records=20_000,
    codec_seconds=0.001,
    scanned_bytes=32 * MIB,
    scanned_piece_bytes=8 * MIB,
    map_keys=50_000,
    imports=3,
    partitions=20,
    segments=3,
    small_bytes=MIB,
    large_bytes=20 * MIB,
    large_rounds=1,
    large_reads=100,
    large_least_records=10_000,
    recovered_bytes=20 * MIB,
    lags=20,
)
