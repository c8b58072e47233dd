"""What a run found, as kept in ``results.json``, and what follows from it: medians, spreads, ratios."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

from benchmarks.alone import Found
from benchmarks.contenders import LOGSTORE
from benchmarks.figures import Case, Measurement

_P95 = 0.95


class Spread(NamedTuple):
    """A figure over all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(median(values), min(values), max(values))


class Summary(NamedTuple):
    """One case over all rounds."""

    case: Case
    per_round: int
    """How many records, reads or opens."""
    rate: Spread
    """Per second."""
    relative: Spread
    """To logstore's rate in the same round: 2 is twice as fast as logstore."""
    stored_bytes: float
    memory_bytes: float
    """The peak over the idle process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """One run."""

    machine: dict[str, str]
    measurements: list[Measurement]
    """In the order in which they were made."""
    alone: Found
    skipped: dict[str, str] = field(default_factory=dict)
    """Figures that could not be measured, and why."""

    @classmethod
    def load(cls, path: Path) -> Self:
        kept = json.loads(path.read_text())
        kept["measurements"] = [Measurement(**measurement) for measurement in kept["measurements"]]
        return cls(**kept)

    def store(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def summaries(self) -> dict[Case, Summary]:
        """All cases that were measured."""
        rounds: dict[Case, list[Measurement]] = {}
        for measurement in self.measurements:
            rounds.setdefault(_case_of(measurement), []).append(measurement)
        return {
            case: _summarise(case, measured, rounds.get(case._replace(contender=LOGSTORE), measured))
            for case, measured in rounds.items()
        }

    def values_of(self, name: str, figure: str) -> list[float]:
        """One figure of logstore alone, over all rounds."""
        return [figures[figure] for figures in self.alone.get(name, [])]


def _case_of(measurement: Measurement) -> Case:
    return Case(measurement.figure, measurement.contender, measurement.batch_records, measurement.is_durable)


def _rates(measurements: Sequence[Measurement]) -> list[float]:
    return [measurement.count / measurement.seconds for measurement in measurements]


def _summarise(case: Case, measured: list[Measurement], ours: list[Measurement]) -> Summary:
    rates = _rates(measured)
    ratios = [rate / our_rate for rate, our_rate in zip(rates, _rates(ours), strict=True)]
    return Summary(
        case,
        measured[0].count,
        Spread.of(rates),
        Spread.of(ratios),
        median([measurement.stored_bytes for measurement in measured]),
        median([measurement.peak_memory_bytes - measurement.idle_memory_bytes for measurement in measured]),
    )


def percentile_95(values: Sequence[float]) -> float:
    """The value that 95 of 100 do not pass."""
    return sorted(values)[min(int(len(values) * _P95), len(values) - 1)]
