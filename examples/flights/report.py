"""What the demo measured, and how it is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import logstore
from check import Grid
from writer import Run

Segments = list[dict[str, int]]
"""For each partition, the bytes of each segment file by name."""


class Compacted(NamedTuple):
    """A topic before and after compaction."""

    records_before: int
    records_after: int
    before: Segments
    after: Segments
    seconds: float


@dataclass
class Result:
    """Filled in as the demo goes."""

    first: Run = field(default_factory=Run)
    """The writer that was killed."""
    second: Run = field(default_factory=Run)
    """The one that went on."""
    recovery_ms: float = 0
    lags_ms: list[float] = field(default_factory=list)
    """Ascending."""
    records: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    read_seconds: float = 0
    delays: Grid = field(default_factory=list)
    compacted: Compacted = field(default_factory=lambda: Compacted(0, 0, [], [], 0))
    segments: list[Segments] = field(default_factory=list)
    """Before retention, after it by time, after it by size."""


def result_rows(result: Result) -> list[list[str]]:
    """The final table: what, how much, and how it was measured."""
    return [
        ["records", f"{result.records:,}", "each row of the source exactly once"],
        ["raw", _megabytes(result.raw_bytes), "keys, values and headers"],
        [
            "on disk",
            _megabytes(result.stored_bytes),
            f"zstd: {result.raw_bytes / result.stored_bytes:.1f} times less",
        ],
        ["append", _rate(result.second.appended, result.second.seconds), "by the second writer, compressing"],
        ["load", _rate(*_growth(result.second)), "the same, with reading CSV and making JSON"],
        ["recover", f"{result.recovery_ms:.0f} ms", "opening the store after the kill"],
        ["read", _rate(result.records, result.read_seconds), "each record as a Python object"],
        ["follow", f"{percentile(result.lags_ms, 50):.1f} ms", "median, from append to the other process"],
        ["", f"{percentile(result.lags_ms, 99):.1f} ms", "99th percentile"],
        [
            "compact",
            f"{result.compacted.seconds * 1000:.0f} ms",
            f"{result.compacted.records_before:,} states to the last {result.compacted.records_after:,}",
        ],
    ]


def recovery_rows(topic: logstore.Topic) -> list[list[str]]:
    return [
        [
            str(log.partition),
            f"{log.recovery.scanned_bytes:,}",
            f"{log.recovery.cut_bytes:,}",
            f"{log.log_end_offset:,}",
        ]
        for log in topic
    ]


def retention_rows(result: Result) -> list[list[str]]:
    names = ["before", "delete_before(1 October)", "retention_bytes = 512 KiB"]
    return [
        [name, str(sum(map(len, segments))), _megabytes(bytes_of(segments))]
        for name, segments in zip(names, result.segments, strict=True)
    ]


def compaction_rows(compacted: Compacted) -> list[list[str]]:
    return [
        [name, f"{records:,}", str(sum(map(len, segments))), _megabytes(bytes_of(segments))]
        for name, records, segments in (
            ("before", compacted.records_before, compacted.before),
            ("after", compacted.records_after, compacted.after),
        )
    ]


def last_of_each(topic: logstore.Topic) -> list[logstore.Record]:
    """The last record of each partition."""
    return [records[-1] for log in topic if (records := list(log.read()))]


def bytes_of(segments: Segments) -> int:
    return sum(sum(sizes.values()) for sizes in segments)


def segments_of(topic: logstore.Topic) -> Segments:
    """As they lie on disk. A deleted one has another suffix for a minute, for readers in other processes."""
    return [
        {path.name: path.stat().st_size for path in sorted(Path(log.directory).glob("*.log"))}
        for log in topic
    ]


def describe(record: logstore.Record) -> str:
    flight = json.loads(record.value or b"{}")
    return (
        f"{flight['carrier']} {flight['flight']} {flight['origin']}-{flight['dest']}, due {flight['year']}-"
        f"{flight['month']:02}-{flight['day']:02} {flight['hour']:02}:{flight['minute']:02}, "
        f"left {_delay(flight['dep_delay'])}"
    )


def percentile(ascending: Sequence[float], percent: int) -> float:
    return ascending[min(len(ascending) * percent // 100, len(ascending) - 1)]


def _delay(minutes: int | None) -> str:
    if minutes is None:
        return "never"
    return f"{abs(minutes)} min {'early' if minutes < 0 else 'late'}" if minutes else "on time"


def _growth(run: Run) -> tuple[int, float]:
    """Records and seconds from the first growth that was seen to the last."""
    low, high = run.samples[0].records, run.samples[-1].records
    growing = [sample for sample in run.samples if low < sample.records < high]
    if not growing:
        return 0, 0
    return growing[-1].records - growing[0].records, growing[-1].seconds - growing[0].seconds


def _rate(records: int, seconds: float) -> str:
    return f"{records / seconds:,.0f} records/s" if seconds else "too short to tell"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
