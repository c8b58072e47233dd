"""logstore with columns: Arrow tables in, record batches out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import logstore
import logstore.partition.encoding.arrow_input  # by the first use of columns; off the clock
from benchmarks.contenders.arrow_stream import record_batch_of, value_bytes
from benchmarks.contenders.logstore_log import LogstoreContender
from benchmarks.records import Row, Stored

_COLUMNS = ("offset", "timestamp_ms", "key", "value")


class ColumnsContender(LogstoreContender):
    """Columns need not become Python objects."""

    settings: ClassVar[str] = (
        "columns: `Log.extend_arrow` of `RecordBatch`es, `Log.iterate_arrow` without the headers"
    )
    promise: ClassVar[str] = "as logstore"

    def prepare(self, rows: list[Row]) -> Any:
        return record_batch_of(rows)

    def append(self, batch: Any) -> None:
        self._columns_log.extend_arrow(batch, flush=self._is_durable)

    @property
    def _columns_log(self) -> Any:
        return self._log

    def read_all(self) -> Iterator[Stored]:
        for batch in self._batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def _batches(self) -> Iterator[Any]:
        return iter(self._columns_log.iterate_arrow(columns=_COLUMNS))

    def sum_values(self) -> tuple[int, int]:
        count = size_bytes = 0
        for batch in self._batches():
            count += batch.num_rows
            size_bytes += value_bytes(batch.column("value"))
        return count, size_bytes

    @staticmethod
    def why_missing() -> str | None:
        has_all = hasattr(logstore.Log, "extend_arrow") and hasattr(logstore.Log, "iterate_arrow")
        return None if has_all else "this logstore has no columns"
