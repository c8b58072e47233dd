"""What happened, and how it is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervise import Run

if TYPE_CHECKING:
    from compare import Compared

RUN_HEADINGS = ["driver", "seconds", "enriched", "batches", "weekly", "batches"]
"""Batches are those that Spark has committed, and those that it had begun."""


def describe_end(run: Run, total: int) -> str:
    """One line for the end of a run, and what lay about then."""
    words = {"killed": "SIGKILL", "stopped": "SIGTERM, and it stopped", "finished": "It is done"}
    text = f"{words[run.ended]}, with {run.enriched[-1].records:,} of {total:,} records in enriched"
    underway = [name for name, batches in run.batches.items() if batches.begun > batches.committed]
    if underway:
        text += f"; underway: a batch of {' and one of '.join(underway)}"
    if run.staged_count:
        text += f", {run.staged_count} staged files"
    return f"{text}."


def run_rows(runs: Sequence[Run]) -> list[list[str]]:
    return [
        [
            f"{number} {run.ended}",
            f"{run.seconds:.1f}",
            f"{run.enriched[-1].records:,}",
            str(run.batches["enrich"]),
            f"{run.weekly[-1].records:,}",
            str(run.batches["summarise"]),
        ]
        for number, run in enumerate(runs, start=1)
    ]


def result_rows(runs: Sequence[Run], compared: Compared) -> list[list[str]]:
    """The final table: what, how much, and what was seen of it."""
    return [
        ["enriched", f"{compared.enriched_count:,}", "records: the join, each once, in order"],
        ["weekly", f"{compared.weekly_count:,}", f"keys of {compared.weekly_appended:,} records: the sums"],
        [
            "weeks.parquet",
            f"{compared.parquet_rows:,}",
            f"rows of {compared.parquet_batches} batches: the same sums",
        ],
        ["driver", f"{sum(run.seconds for run in runs):.0f} s", f"with {len(runs)} starts of Spark"],
    ]
