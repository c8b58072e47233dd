"""What happened, and how it is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervise import Run

if TYPE_CHECKING:
    from compare import Compared

RUN_HEADINGS = ["run", "ended", "seconds", "enriched", "its batches", "weekly", "its batches"]


def describe_end(run: Run, total: int) -> str:
    """One line for the end of a run, and what lay about then."""
    count = run.enriched[-1].records
    words = {"killed": "SIGKILL", "stopped": "SIGTERM, and it stopped", "finished": "It is done"}
    text = f"{words[run.ended]}, at {count:,} of {total:,} records in enriched"
    underway = [name for name, batches in run.batches.items() if batches.begun > batches.committed]
    if underway:
        text += f"; underway: a batch of {' and of '.join(underway)}"
    if run.staged_count:
        text += f"; {run.staged_count} staged files"
    return f"{text}."


def run_rows(runs: Sequence[Run]) -> list[list[str]]:
    return [
        [
            str(number),
            run.ended,
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
        ["enriched", f"{compared.enriched_count:,}", "records, as pandas joins them, each once and in order"],
        [
            "weekly",
            f"{compared.weekly_count:,}",
            f"keys, as pandas sums them up, of {compared.weekly_appended:,} records",
        ],
        [
            "weeks.parquet",
            f"{compared.parquet_rows:,}",
            f"rows of {compared.parquet_batches} batches; the newest of each key as pandas has it",
        ],
        [
            "driver",
            f"{sum(run.seconds for run in runs):.0f} s",
            f"in {len(runs)} runs, with {len(runs)} starts of Spark",
        ],
    ]
