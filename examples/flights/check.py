"""Reading everything back: is anything missing, doubled or changed, how fast does it go, what does it say?"""

from __future__ import annotations

import json
import time
from datetime import date
from math import nan
from typing import NamedTuple

import logstore
from load import partition_of
from source import Flights

Grid = list[list[float]]


class Checked(NamedTuple):
    """What was compared with the source, and found equal."""

    records: int
    raw_bytes: int
    """Keys, values and headers."""


def check_every_row(topic: logstore.Topic, flights: Flights) -> Checked:
    """Walk the source and all partitions side by side: each row must be the next record of its partition."""
    partitions = [log.read() for log in topic]
    records = raw_bytes = 0
    for flight in flights.read():
        record = next(partitions[partition_of(topic, flight)], None)
        if record is None or record[1:4] != (flight.scheduled_ms, flight.tail_number, flight.value):
            raise SystemExit(f"row {flight.row} is missing, or what is there is not it: {record}")
        records += 1
        raw_bytes += len(flight.value) + len(flight.tail_number or b"")
        raw_bytes += sum(len(name) + len(content or b"") for name, content in record.headers)
    for log, rest in zip(topic, partitions, strict=True):
        if extra := next(rest, None):
            raise SystemExit(f"{log.partition} has a record too many: {extra}")
    return Checked(records, raw_bytes)


def time_reading(topic: logstore.Topic) -> float:
    """The seconds that it takes to read every record, doing nothing with it."""
    began = time.perf_counter()
    for log in topic:
        for _ in log.read():
            pass
    return time.perf_counter() - began


def average_delays(topic: logstore.Topic) -> Grid:
    """Minutes of departure delay: a row for each hour of the day, a column for each day of the year.

    NaN where nothing left.
    """
    minutes = [[0.0] * 365 for _ in range(24)]
    departures = [[0] * 365 for _ in range(24)]
    for log in topic:
        for record in log.read():
            flight = json.loads(record.value or b"{}")
            if flight["dep_delay"] is not None:
                hour, day = flight["hour"], date(2013, flight["month"], flight["day"]).timetuple().tm_yday - 1
                minutes[hour][day] += flight["dep_delay"]
                departures[hour][day] += 1
    return [
        [total / count if count else nan for total, count in zip(*rows, strict=True)]
        for rows in zip(minutes, departures, strict=True)
    ]
