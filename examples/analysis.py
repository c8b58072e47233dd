"""A day of a topic as a DataFrame or in SQL, without a Python object per record, and the result as a topic.

Shows those of pandas, polars and DuckDB that are there. Needs pip install '.[arrow]'.
Run: python examples/analysis.py
"""

import tempfile
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec

import logstore

TUESDAY = datetime(2026, 3, 3, tzinfo=UTC)
DAY = timedelta(days=1)

with tempfile.TemporaryDirectory() as directory, logstore.open(directory) as store:
    readings = store.require_topic("readings", partitions=4)
    rooms = ["kitchen", "cellar"]
    readings.serialized(key="text", value="json").extend(
        (rooms[minute % 2], 20 + minute % 3, TUESDAY + timedelta(minutes=minute)) for minute in range(10_000)
    )
    tuesday = readings.read_arrow(start=TUESDAY, stop=TUESDAY + DAY, columns=["key", "value"])
    print(f"{tuesday.num_rows:,} rows of Tuesday")

    if find_spec("pandas"):
        frame = tuesday.to_pandas().astype({"value": float})
        mean = frame.groupby("key")["value"].mean()
        print("pandas:", mean.to_dict())
        daily = store.require_topic("daily")
        daily.extend_arrow(mean.map("{:.1f}".format).reset_index())  # columns key and value, as they came
        print("appended:", daily.serialized(key="text", value="json").latest())

    if find_spec("polars"):
        import polars

        mean = polars.DataFrame(tuesday).cast(polars.String).cast({"value": float}).group_by("key").mean()
        print("polars:", dict(mean.sort("key").rows()))

    if find_spec("duckdb"):
        import duckdb

        query = "SELECT decode(key), avg(decode(value)::int) FROM tuesday GROUP BY ALL ORDER BY ALL"
        print("DuckDB:", dict(duckdb.execute(query).fetchall()))
