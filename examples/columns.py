"""From a log to DataFrames and SQL, and back, without a Python object per record.

Needs pyarrow (pip install 'embedded-logstore[arrow]'); shows polars, pandas and DuckDB where they are there.
Run: python examples/columns.py
"""

import tempfile
from importlib.util import find_spec

import logstore


def show(log: logstore.Log) -> None:
    table = log.read_arrow(columns=["offset", "key", "value"])  # offsets, keys and values, nothing else
    print(f"pyarrow: {table.num_rows:,} rows, {table.nbytes:,} bytes")

    if find_spec("pandas"):
        print("pandas: the last value is", table.to_pandas()["value"].iloc[-1])

    if find_spec("polars"):
        import polars

        frame = polars.DataFrame(table)
        print("polars:", frame.group_by("key").len().sort("key").rows())

    if find_spec("duckdb"):
        import duckdb

        readings = log.iterate_arrow(columns=["key", "value"])  # DuckDB takes it piece by piece
        query = "SELECT decode(key), sum(decode(value)::int) FROM readings GROUP BY ALL ORDER BY ALL"
        print("DuckDB:", duckdb.execute(query).fetchall())
        del readings  # the name that the query found it by


with tempfile.TemporaryDirectory() as directory, logstore.open(directory) as store:
    sensors = store.require_topic("readings")[0]
    sensors.extend([(b"kitchen" if i % 2 else b"cellar", b"%d" % i) for i in range(10_000)])
    show(sensors)

    summary = store.require_topic("summary")[0]
    few = sensors.read_arrow(9_998, columns=["key", "value"])
    offsets = summary.extend_arrow(few)  # tables go in as they came out
    print("appended again:", [record.value for record in summary.read(offsets.start)])
