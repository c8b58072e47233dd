"""The results of a run, as in ``results.json``, and what is computed from them: medians, spreads, ratios."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple, Self

from benchmarks.alone import Found
from benchmarks.contenders import BASES, LOGSTORE
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
    ratio: Spread | None
    """logstore's rate in the same round over this one: 2 means that logstore is twice as fast. None if it was
    not measured: of columns, say."""
    stored_bytes: float
    memory_bytes: float
    """The peak over the idle process."""


@dataclass(frozen=True, kw_only=True, eq=True)
class Results:
    """One run."""

    machine: dict[str, str]
    measurements: list[Measurement]
    """In the order in which they were made."""
    alone: Found
    skipped: dict[str, str] = field(default_factory=dict)
    """Figures and contenders that could not be measured, and why."""

    @classmethod
    def load(cls, path: Path) -> Self:
        kept = json.loads(path.read_text())
        kept["measurements"] = [Measurement(**measurement) for measurement in kept["measurements"]]
        return cls(**kept)

    def store(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def __hash__(self) -> int:
        return id(self)  # computed values are cached by it

    @cache  # noqa: B019 - a run has one of these, or a few
    def rounds(self) -> dict[Case, list[Measurement]]:
        """The measurements of each case, round by round."""
        found: dict[Case, list[Measurement]] = {}
        for measurement in self.measurements:
            found.setdefault(measurement.case, []).append(measurement)
        return found

    @cache  # noqa: B019 - likewise
    def summaries(self) -> dict[Case, Summary]:
        """All cases that were measured."""
        return {case: self._summarise(case, measured) for case, measured in self.rounds().items()}

    def _summarise(self, case: Case, measured: list[Measurement]) -> Summary:
        base = case._replace(contender=BASES.get(case.contender, LOGSTORE))
        memory = [found.peak_memory_bytes - found.idle_memory_bytes for found in measured]
        stored = [found.stored_bytes / found.count for found in measured]
        return Summary(
            case,
            measured[0].count,
            Spread.of(list(map(_rate, measured))),
            self.ratio(base, case),
            median(stored) * measured[0].count,
            median(memory),
        )

    def ratio(self, case: Case, other: Case) -> Spread | None:
        """The rate of one case over that of another, taken within each round; None if either is missing."""
        ratios = self._ratios(case, other)
        return Spread.of(ratios) if ratios else None

    def _ratios(self, case: Case, other: Case) -> list[float]:
        rounds = self.rounds()
        pairs = zip(rounds.get(case, ()), rounds.get(other, ()), strict=False)
        return [_rate(mine) / _rate(theirs) for mine, theirs in pairs]

    def mean_ratio(self, figure: str, contender: str, other: str) -> Spread | None:
        """The geometric mean over all cases of a figure that both have, round by round."""
        columns = [
            self._ratios(case, case._replace(contender=other))
            for case in self.rounds()
            if (case.figure, case.contender) == (figure, contender)
        ]
        columns = [column for column in columns if column]
        if not columns:
            return None
        return Spread.of([geometric_mean(ratios) for ratios in zip(*columns, strict=False)])

    def worst_ratio(self, figure: str, contender: str, other: str) -> Spread | None:
        """The ratio in the case of a figure in which one is slowest beside the other."""
        ratios = [
            self.ratio(case, case._replace(contender=other))
            for case in self.rounds()
            if (case.figure, case.contender) == (figure, contender)
        ]
        return min((ratio for ratio in ratios if ratio), default=None)

    def values_of(self, name: str, figure: str) -> list[float]:
        """One figure of only logstore, over all rounds."""
        return [figures[figure] for figures in self.alone.get(name, [])]


def _rate(measurement: Measurement) -> float:
    return measurement.count / measurement.seconds


def percentile_95(values: Sequence[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return sorted(values)[min(int(len(values) * _P95), len(values) - 1)]
