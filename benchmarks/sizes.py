"""How much is measured: the full run and the quick one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 2**20
GIB = 2**30

OPENED_BATCH_RECORDS = 1_000
"""The batch size of the logs that are opened and recovered."""

FREE_BYTES_PER_LARGE_BYTE = 2.33
"""Free disk that the large log needs, by its size: 25 GB for 10 GiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Mappings go by records per batch."""

    rounds: int
    records: Mapping[int, int]
    """Appended without flushes, and read in order."""
    flushed_records: Mapping[int, int]
    """Appended with a flush for each batch."""
    random_reads: Mapping[int, int]
    partitions: int
    segments: int
    """Of each of the many partitions."""
    small_bytes: int
    large_bytes: int
    large_rounds: int
    large_reads: int
    large_least_records: int
    """Read in order at least, going through the small log several times."""
    recovered_bytes: int
    lags: int


FULL = Sizes(
    rounds=5,
    records={1: 200_000, 100: 400_000, 1_000: 600_000},
    flushed_records={1: 2_000, 100: 100_000, 1_000: 300_000},
    random_reads={1: 10_000, 100: 10_000, 1_000: 2_000},
    partitions=1_000,
    segments=10,
    small_bytes=10 * MIB,
    large_bytes=10 * GIB,
    large_rounds=2,
    large_reads=2_000,
    large_least_records=500_000,
    recovered_bytes=GIB,
    lags=200,
)

QUICK = Sizes(
    rounds=3,
    records={1: 2_000, 100: 20_000, 1_000: 20_000},
    flushed_records={1: 100, 100: 5_000, 1_000: 20_000},
    random_reads={1: 500, 100: 500, 1_000: 200},
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
