"""Arrow tables as records, to compare them with row reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from logstore.model import Record


def records_in(table: Any) -> list[Record]:
    """The rows of a table or record batch with all columns."""
    table.validate(full=True)
    return [
        Record(
            row["offset"],
            row["timestamp_ms"],
            row["key"],
            row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"]),
        )
        for row in table.to_pylist()
    ]


def assert_same_rows(log: Any, start: int | None = None, stop: int | None = None, **options: Any) -> Any:
    """Check that the columns, whole and in pieces, equal a row read. Returns the table."""
    expected = list(log.read(start, stop, **options))
    table = log.read_arrow(start, stop, **options)
    assert records_in(table) == expected
    for limits in ({"batch_rows": 3}, {"batch_bytes": 200}):
        batches = list(log.iterate_arrow(start, stop, **options, **limits))
        assert records_in(pa.Table.from_batches(batches, table.schema)) == expected
        assert all(1 <= batch.num_rows <= limits.get("batch_rows", batch.num_rows) for batch in batches)
        assert all(
            batch.num_rows == 1 or batch.nbytes <= limits.get("batch_bytes", batch.nbytes)
            for batch in batches
        )
    return table
