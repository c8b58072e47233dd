"""What the pipeline has written, read without Spark, and held against what pandas says."""

from __future__ import annotations

import json
from datetime import date
from itertools import zip_longest
from typing import Any, NamedTuple

import pandas as pd

import expected
import logstore
from flights_demo import Flights, partition_of
from layout import Layout


class Compared(NamedTuple):
    """What was found equal."""

    enriched_count: int
    weekly_appended: int
    """Records of the topic of current results, ever."""
    weekly_count: int
    """Keys in it."""
    parquet_rows: int
    parquet_batches: int
    weeks: Any
    """By week and maker."""


def compare(layout: Layout, rows: int | None) -> Compared:
    """
    Raises:
        SystemExit: something differs; says what and where.
    """
    flights = expected.enriched(rows)
    weeks = expected.weekly(flights)
    with logstore.open(layout.store, read_only=True) as store:
        check_order(store, Flights(rows))
        check_equal("the topic enriched", read_enriched(store["enriched"]), flights)
        check_equal("the topic weekly", read_weekly(store["weekly"]), weeks)
        appended = sum(log.log_end_offset for log in store["weekly"])
        enriched_count = sum(log.log_end_offset for log in store["enriched"])
    written = pd.read_parquet(layout.parquet)
    check_equal(layout.parquet, newest(written), weeks)
    return Compared(enriched_count, appended, len(weeks), len(written), written["batch"].nunique(), weeks)


def check_order(store: logstore.Store, flights: Flights) -> None:
    """Each partition of ``enriched`` has its rows once, in their order, and no other."""
    rows: list[list[int]] = [[] for _ in store["enriched"]]
    for flight in flights.read():
        rows[partition_of(store["flights"], flight)].append(flight.row)
    for log, wanted in zip(store["enriched"], rows, strict=True):
        found = [int(dict(record.headers)["row"] or -1) for record in log.read()]
        if found != wanted:
            at = next(at for at, pair in enumerate(zip_longest(found, wanted)) if pair[0] != pair[1])
            raise SystemExit(
                f"{log.partition} has {len(found)} records of {len(wanted)} rows. They differ from offset "
                f"{at} on: rows {found[at : at + 3]} instead of {wanted[at : at + 3]}"
            )


def read_enriched(topic: logstore.Topic) -> Any:
    """By row number, which each record has from the flight that it was made of."""
    flights = {
        int(dict(record.headers)["row"] or -1): {
            "due_ms": record.timestamp_ms,
            **json.loads(record.value or b"{}"),
        }
        for log in topic
        for record in log.read()
    }
    columns = [*expected.COLUMNS, *expected.PLANE_COLUMNS]
    return pd.DataFrame.from_dict(flights, orient="index", columns=columns).sort_index()


def read_weekly(topic: logstore.Topic) -> Any:
    """The current table."""
    rows = [json.loads(record.value or b"{}") for view in topic.latest() for record in view]
    table = pd.DataFrame(rows, columns=["week", "manufacturer", *expected.WEEK_COLUMNS])
    table["week"] = table["week"].map(date.fromisoformat)
    return table.set_index(["week", "manufacturer"]).sort_index()


def newest(written: Any) -> Any:
    """Of each week and maker what the last batch says that had changed it."""
    keys = ["week", "manufacturer"]
    rows = written.sort_values("batch", kind="stable").drop_duplicates(keys, keep="last")
    return rows.set_index(keys)[expected.WEEK_COLUMNS].sort_index()


def check_equal(name: str, found: Any, wanted: Any) -> None:
    """
    Raises:
        SystemExit: rows are missing, too many, or not the same.
    """
    if found.index.has_duplicates:
        raise SystemExit(f"{name} has {found.index[found.index.duplicated()][0]} twice")
    for rows, fault in (
        (wanted.index.difference(found.index), "is missing"),
        (found.index.difference(wanted.index), "should not be there"),
    ):
        if len(rows):
            raise SystemExit(f"{name}: {rows[0]} {fault}, and {len(rows) - 1} others")
    left, right = found.loc[wanted.index].astype(object), wanted.astype(object)
    differs = ((left != right) & ~(left.isna() & right.isna())).any(axis="columns")
    if differs.any():
        row = differs.idxmax()
        raise SystemExit(
            f"{name}: {int(differs.sum())} rows differ; {row} is {dict(left.loc[row])}, pandas says "
            f"{dict(right.loc[row])}"
        )
