"""A year of real flights through a log: load, kill the writer, recover, follow, check, read, compact, retain.

Run it with ``make demo``, or ``python examples/flights/demo.py`` after ``pip install
'.[demo]'``. It leaves the store and ``flights.png`` in ``demo-output``. ``--rows 5000`` takes
a sample of the year.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import aircraft
import display
import logstore
import report
from check import average_delays, check_every_row, time_reading
from live import append_live
from load import LIVE_FROM_MS
from plot import draw
from source import Flights, midnight_ms
from writer import run_writer, tear_last_batch

CONFIG = logstore.TopicConfig(
    compression_type="zstd",
    segment_bytes=512 * 1024,  # small, so that there are some to delete
    segment_ms=400 * 86_400_000,  # a segment may span more than a year of the records' time,
    retention_ms=-1,  # which is long past
)
BY_HAND = logstore.StoreConfig(log_cleaner_enable=False)
"""Compaction would begin by itself while there is still something appended, and spoil the figures."""


def main() -> None:
    options = _parse_options()
    began = time.monotonic()
    directory, picture = str(options.output / "store"), str(options.output / "flights.png")
    shutil.rmtree(directory, ignore_errors=True)
    flights = Flights(options.rows)
    result = report.Result()

    with logstore.open(directory) as store:
        store.create_topic("flights", partitions=4, config=CONFIG)
    load(directory, options.rows, flights.row_at(LIVE_FROM_MS), result)
    with logstore.open(directory, config=BY_HAND) as store:
        follow(store, flights, result)
        check(store["flights"], flights, result)
        read(store["flights"])
        compact(store, result)
        retain(store, result)
    draw(result, picture)

    display.heading("Result")
    display.table(["", "", ""], report.result_rows(result), notes=1)
    display.line(f"The picture is {picture}. Everything took {time.monotonic() - began:.0f} s.")


def load(directory: str, rows: int | None, total: int, result: report.Result) -> None:
    display.heading(f"Load {total:,} flights in another process, and kill it half-way")
    with display.progress("loading", total) as show:
        result.first = run_writer(directory, rows, show, kill_at=total // 2)
    if result.first.was_killed:
        display.line("SIGKILL. And as a power cut might leave it, the last batch of one file loses its end:")
        display.line(tear_last_batch(directory))
    else:
        display.line("It was done before it could be killed.")
    recover(directory, result)
    display.heading("Go on from what the log says")
    with display.progress("loading", total) as show:
        result.second = run_writer(directory, rows, show)


def recover(directory: str, result: report.Result) -> None:
    display.heading("Open it again: recovery")
    began = time.perf_counter()
    with logstore.open(directory) as store:
        result.recovery_ms = (time.perf_counter() - began) * 1000
        headings = ["partition", "bytes checked", "torn bytes cut", "records"]
        display.table(headings, report.recovery_rows(store["flights"]))
    display.line(f"{result.recovery_ms:.0f} ms. Only what was not checkpointed yet had to be read.")


def follow(store: logstore.Store, flights: Flights, result: report.Result) -> None:
    live = list(flights.read(flights.row_at(LIVE_FROM_MS)))
    display.heading(
        f"Follow: append the {len(live)} flights of 31 December while another process reads along"
    )
    with display.progress("appending", len(live)) as show:
        result.lags_ms = sorted(append_live(store, live, show))
    display.line(f"All arrived, half of them within {report.percentile(result.lags_ms, 50):.1f} ms.")


def check(topic: logstore.Topic, flights: Flights, result: report.Result) -> None:
    display.heading("Check: read everything back and compare it with the source")
    result.records, result.raw_bytes = check_every_row(topic, flights)
    result.stored_bytes = sum(log.size_bytes for log in topic)
    result.read_seconds = time_reading(topic)
    result.delays = average_delays(topic)
    display.line(f"All {result.records:,} rows are there: each once, in order, unchanged.")


def read(topic: logstore.Topic) -> None:
    display.heading("Read: by offset, by time")
    log = topic[0]
    offset = log.log_end_offset // 3
    display.line(f"{log.partition}, offset {offset:,}: {report.describe(next(log.read(offset)))}")
    for log in topic:
        began = time.perf_counter()
        found = log.offset_at(midnight_ms(7, 4)) or 0
        took_ms = (time.perf_counter() - began) * 1000
        record = report.describe(next(log.read(found)))
        display.line(f"{log.partition}, from 4 July: offset {found:,} found in {took_ms:.1f} ms: {record}")


def compact(store: logstore.Store, result: report.Result) -> None:
    display.heading("Compact: what is known of each aircraft, and nothing else")
    topic = store.create_topic("aircraft", partitions=4, config=aircraft.CONFIG)
    count = aircraft.append_states(store["flights"], topic)
    display.line(
        f"{count:,} arrivals were appended to a second topic, each under its aircraft's tail number."
    )
    result.compacted = aircraft.compact(topic)
    display.table(["", "records", "segments", "on disk"], report.compaction_rows(result.compacted))
    display.line(
        "The last record of each aircraft is left, under the offset that it always had. Some of them:"
    )
    for record in report.last_of_each(topic):
        display.line(f"{(record.key or b'').decode()}: {(record.value or b'').decode()}")


def retain(store: logstore.Store, result: report.Result) -> None:
    display.heading("Retain: delete what was due before October, then limit the size")
    topic = store["flights"]
    result.segments.append(report.segments_of(topic))
    for log in topic:
        log.delete_before(log.offset_at(midnight_ms(10, 1)) or 0)
    result.segments.append(report.segments_of(topic))
    topic.configure(retention_bytes=512 * 1024)
    store.enforce_retention()
    result.segments.append(report.segments_of(topic))
    display.table(["", "segments", "on disk"], report.retention_rows(result))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A year of real flights through a log.")
    parser.add_argument("--rows", type=int, help="load about this many, a sample of the year")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        help="where the store (made anew) and the picture go",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
