"""The same results from pandas: from the package's tables, with no log and no Spark on the way."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flights_demo import data_folder
from planes import FEWEST_SEATS, MAKERS

COLUMNS = ["due_ms", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay"]
PLANE_COLUMNS = ["manufacturer", "model", "seats"]
WEEK_COLUMNS = ["flights", "departures", "delay_minutes", "seats"]

_WEEK_MS = 7 * 86_400_000
_MONDAY_MS = 4 * 86_400_000


def enriched(rows: int | None) -> Any:
    """Each flight with what is known of its aircraft, by its row number in the order of the schedule."""
    flights = pd.read_csv(data_folder() / "flights.csv.zip", keep_default_na=False, na_values=["NA"])
    hours = pd.to_datetime(flights["time_hour"]).astype("datetime64[ms, UTC]").astype("int64")
    flights["due_ms"] = hours + flights["minute"] * 60_000
    flights = flights.sort_values("due_ms", kind="stable", ignore_index=True)
    if rows is not None:
        flights = flights.iloc[:: max(1, len(flights) // rows)].reset_index(drop=True)
    planes = pd.read_csv(data_folder() / "planes.csv")
    planes["manufacturer"] = planes["manufacturer"].replace(MAKERS)
    planes = planes[planes["seats"] >= FEWEST_SEATS]
    known = flights.merge(planes[["tailnum", *PLANE_COLUMNS]], on="tailnum", how="left")
    return known[[*COLUMNS, *PLANE_COLUMNS]].astype({"dep_delay": "Int64", "seats": "Int64"})


def weekly(flights: Any) -> Any:
    """Flights, delays and seats by week (the date of its Monday) and maker."""
    start_ms = (flights["due_ms"] - _MONDAY_MS) // _WEEK_MS * _WEEK_MS + _MONDAY_MS
    week = pd.to_datetime(start_ms, unit="ms").dt.date.rename("week")
    groups = flights.groupby([week, flights["manufacturer"].fillna("unknown")])
    return pd.DataFrame(
        {
            "flights": groups.size(),
            "departures": groups["dep_delay"].count(),
            "delay_minutes": groups["dep_delay"].sum(min_count=1),
            "seats": groups["seats"].sum(min_count=1),
        }
    ).astype("Int64")
