"""A pipeline on Spark, topic to topic to Parquet: stopped midway, killed midway, right to the last record.

Run it with ``make demo-spark``, or ``python examples/pipeline/run.py`` after ``pip install
'.[demo-spark]'``. It leaves everything in ``demo-output/pipeline``. ``--rows 5000`` takes a
sample of the year. Where Spark cannot run, it says in one line what is missing, and ends well.
"""

from __future__ import annotations

import argparse
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import logstore
import outcome
import planes
from flights_demo import Flights, display, load
from layout import Layout
from picture import draw
from supervise import Run, run_driver

if TYPE_CHECKING:
    from compare import Compared

BATCHES = 8
"""About as many of the first query."""
STOP_AT, KILL_AT = 0.3, 0.65
"""Of the records of the topic between the queries."""
YEAR_MS = 400 * 86_400_000
"""A segment may span more of the records' time than all of it."""
FLIGHTS = logstore.TopicConfig(compression_type="zstd", segment_ms=YEAR_MS, retention_ms=-1)
WEEKLY = logstore.TopicConfig(cleanup_policy="compact", compression_type="zstd")


def main() -> None:
    options = _parse_options()
    missing = what_is_missing()
    if missing is not None:
        display.line(f"The pipeline on Spark is left out: {missing}")
        return
    began = time.monotonic()
    layout = Layout(options.output.absolute() / "pipeline")
    shutil.rmtree(layout.directory, ignore_errors=True)
    layout.directory.mkdir(parents=True)

    total = prepare(layout, options.rows)
    runs = run(layout, total, only_kill=options.only_kill)
    compared = check(layout, options.rows)
    draw(runs, compared.weeks, layout.picture)

    display.heading("Result")
    display.table(["", "", ""], outcome.result_rows(runs, compared), notes=1)
    display.line(f"The picture is {layout.picture}. Everything took {time.monotonic() - began:.0f} s.")


def what_is_missing() -> str | None:
    """Why there can be no Spark here, and what to install."""
    for package in ("pyspark", "pyarrow", "pandas"):
        if find_spec(package) is None:
            return f"there is no {package}: pip install 'embedded-logstore[demo-spark]'"
    from logstore.spark.java import find_java

    try:
        find_java()
    except logstore.UsageError as error:
        return str(error)
    return None


def prepare(layout: Layout, rows: int | None) -> int:
    """All topics, and what the pipeline is to read. Returns the number of flights."""
    flights = Flights(rows)
    display.heading(f"Pipeline: {len(flights):,} flights in one topic, their aircraft in another")
    with logstore.open(layout.store) as store:
        store.create_topic("enriched", partitions=4, config=FLIGHTS)
        store.create_topic("weekly", partitions=1, config=WEEKLY)
        load(store.create_topic("flights", partitions=4, config=FLIGHTS), flights, len(flights))
        aircraft = store.create_topic("planes", partitions=planes.PARTITIONS, config=planes.CONFIG)
        appended = planes.append_planes(aircraft)
        known = sum(1 for view in aircraft.latest() for _ in view)
    display.line(
        f"{appended.entries:,} aircraft, {appended.corrections:,} of them corrected later and "
        f"{appended.withdrawals} withdrawn: as a table, the topic has {known:,}."
    )
    return len(flights)


def run(layout: Layout, total: int, *, only_kill: bool) -> list[Run]:
    """The driver three times: stopped, killed, and to its end."""
    most_records = total // BATCHES + 1
    display.heading("Run: join them to a topic; sum that up by week and maker, to Parquet and to a topic")
    runs = []
    limits = ((total * STOP_AT, None), (None, total * KILL_AT), (None, None))
    for stop_at, kill_at in limits[1:] if only_kill else limits:
        with display.progress("enriched", total) as show:
            runs.append(run_driver(layout, most_records, show, stop_at=stop_at, kill_at=kill_at))
        display.line(outcome.describe_end(runs[-1], total))
    display.table(outcome.RUN_HEADINGS, outcome.run_rows(runs))
    display.heading("Maintain: compaction and verification as Spark jobs")
    for line in runs[-1].said.splitlines():
        display.line(line)
    return runs


def check(layout: Layout, rows: int | None) -> Compared:
    """Fails where anything differs."""
    from compare import compare  # it needs pandas, which may be missing

    display.heading("Check: the same from pandas, with no log and no Spark on the way")
    compared = compare(layout, rows)
    display.line(f"All {compared.enriched_count:,} joined flights are there: each once, in order, and equal.")
    display.line(f"All {compared.weekly_count} sums are equal, in Parquet and in the topic.")
    return compared


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A pipeline on Spark, killed midway.")
    parser.add_argument("--rows", type=int, help="take about this many, a sample of the year")
    parser.add_argument("--only-kill", action="store_true", help="leave out the run that is stopped")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        help="everything goes into the directory `pipeline` (made anew) in it",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
