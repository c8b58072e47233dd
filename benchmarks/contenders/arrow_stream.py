"""Arrow's IPC stream in a file: the choice if you keep columns and need no log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from benchmarks.contenders.base import Contender
from benchmarks.records import Row, Stored

SCHEMA = pa.schema([("timestamp_ms", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
"""A record's offset is its place in the stream."""


def record_batch_of(rows: list[Row]) -> Any:
    """The rows as a record batch."""
    keys, values, timestamps = map(list, zip(*rows, strict=True))
    columns = [timestamps, keys, values]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


record_batch_of(
    [(b"", b"", 0)]
)  # the first one imports what Arrow finds installed; imports are off the clock


class ArrowContender(Contender):
    """Record batches in, record batches out."""

    settings: ClassVar[str] = (
        "columns: `RecordBatch`es written with `RecordBatchStreamWriter` to an `OSFile`, read by "
        "`ipc.open_stream` from one"
    )
    promise: ClassVar[str] = (
        "no durability offered; no checksums, no index, no recovery; a stream that was closed cannot be "
        "appended to"
    )

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        if is_durable:
            raise ValueError("Arrow's files have no flush to the disk")
        self._path = f"{directory}/log.arrows"
        self._sink: Any = None
        self._writer: Any = None

    def prepare(self, rows: list[Row]) -> Any:
        return record_batch_of(rows)

    def append(self, batch: Any) -> None:
        if self._writer is None:
            self._sink = pa.OSFile(self._path, "wb")
            self._writer = pa.ipc.new_stream(self._sink, SCHEMA)
        self._writer.write_batch(batch)

    def _batches(self) -> Iterator[Any]:
        with pa.OSFile(self._path, "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def read_all(self) -> Iterator[Stored]:
        first = 0
        for batch in self._batches():
            offsets = range(first, first + batch.num_rows)
            yield from zip(offsets, *(column.to_pylist() for column in batch.columns), strict=True)
            first = offsets.stop

    def sum_values(self) -> tuple[int, int]:
        """The size of a column's values is the difference of its first and last offset."""
        count = size_bytes = 0
        for batch in self._batches():
            values = batch.column(2)
            count += len(values)
            size_bytes += value_bytes(values)
        return count, size_bytes

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()

    @staticmethod
    def version() -> str:
        return str(pa.__version__)


class ArrowRowsContender(ArrowContender):
    """Rows in, rows out: they become columns, and rows again, on the clock."""

    settings: ClassVar[str] = "rows: as arrow, with `pa.array` of each column and `to_pylist` of it"
    promise: ClassVar[str] = "as arrow"

    def prepare(self, rows: list[Row]) -> Any:
        return rows

    def append(self, batch: Any) -> None:
        super().append(super().prepare(batch))

    def sum_values(self) -> tuple[int, int]:
        return Contender.sum_values(self)


def value_bytes(values: Any) -> int:
    """Bytes of the values of a binary array without nulls, by its offsets alone."""
    width = 8 if pa.types.is_large_binary(values.type) else 4
    offsets = values.buffers()[1]
    low, high = (values.offset * width, (values.offset + len(values)) * width)
    first, last = (int.from_bytes(offsets[at : at + width], "little") for at in (low, high))
    return last - first
