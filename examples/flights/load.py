"""The writer process: appends the flights to the topic, from wherever the log says it had come to.

Run by demo.py as ``python load.py DIRECTORY ROWS``. It may be killed at any moment and started again.

Each record carries its row number. A partition gets its rows in rising order, so the last record of a
partition says which of its rows it has: all up to that one. Which partition a row belongs to must therefore
depend on the row alone, also where there is no key to hash.
"""

from __future__ import annotations

import sys
import time

import logstore
from source import Flight, Flights, midnight_ms

MIN_CHUNK_ROWS = 64
LIVE_FROM_MS = midnight_ms(12, 31)
"""Flights from here on are left for the live part of the demo."""


def partition_of(topic: logstore.Topic, flight: Flight) -> int:
    """One aircraft's flights stay together; those of unknown aircraft are dealt out by row number."""
    if flight.tail_number is None:
        return flight.row % len(topic)
    return topic.partition_for(flight.tail_number)


def record_of(flight: Flight) -> logstore.NewRecord:
    return logstore.NewRecord(
        value=flight.value,
        key=flight.tail_number,
        headers=(("row", b"%d" % flight.row),),
        timestamp_ms=flight.scheduled_ms,
    )


def last_row(log: logstore.Log) -> int:
    """The row of a partition's last record, -1 if it has none."""
    if log.log_end_offset == 0:
        return -1
    last = next(log.read(log.log_end_offset - 1))
    return int(dict(last.headers)["row"] or -1)


def load(topic: logstore.Topic, flights: Flights, stop: int) -> tuple[int, float]:
    """Append each row below ``stop`` that its partition does not have yet, a hundredth of all at a time.

    Returns how many, and the seconds spent in appending them.
    """
    done = [last_row(log) for log in topic]
    count, seconds = 0, 0.0
    chunk_rows = max(stop // 100, MIN_CHUNK_ROWS)
    for start in range(min(done) + 1, stop, chunk_rows):
        rows: list[list[logstore.NewRecord]] = [[] for _ in topic]
        for flight in flights.read(start, min(start + chunk_rows, stop)):
            partition = partition_of(topic, flight)
            if flight.row > done[partition]:
                rows[partition].append(record_of(flight))
        began = time.perf_counter()
        count += sum(len(log.extend(records)) for log, records in zip(topic, rows, strict=True))
        seconds += time.perf_counter() - began
    return count, seconds


def main(directory: str, rows: int | None) -> None:
    flights = Flights(rows)
    with logstore.open(directory) as store:
        print(*load(store["flights"], flights, flights.row_at(LIVE_FROM_MS)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) or None)
