"""The table view as columns of Apache Arrow: whole sections go into columns in compiled code, and the rows
that are not the latest of their keys are filtered out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from logstore.errors import CorruptionError
from logstore.format.loops import Columns
from logstore.model import TimestampType
from logstore.partition.arrow import ColumnPlan, pa, pc, record_batch, split
from logstore.partition.latest import ClassifiedBatch


def iterate_latest_columns(batches: Iterable[ClassifiedBatch], plan: ColumnPlan) -> Iterator[Any]:
    """The records as pyarrow record batches within the plan's limits; none is empty.

    Raises:
        CorruptionError: a batch is damaged; what came before it was given.
    """
    rows = _Rows(plan)
    try:
        for found in batches:
            if rows.would_pass_limit(found):
                yield from rows.finish()
            rows.take(found)
    except CorruptionError:
        yield from rows.finish()
        raise
    yield from rows.finish()


class _Rows:
    """Columns of records, and which of their rows are wanted."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self._columns = Columns(plan.wanted)
        self._is_wanted = bytearray()

    def would_pass_limit(self, found: ClassifiedBatch) -> bool:
        columns, header = self._columns, found.batch.header
        return columns.row_count > 0 and (
            columns.row_count + len(found.standings) > self._plan.row_limit
            or columns.used_bytes + header.size_bytes > self._plan.byte_limit
        )

    def take(self, found: ClassifiedBatch) -> None:
        """All rows of the section, or where that is not to be had, the wanted ones."""
        header, section = found.batch.header, found.batch.section
        if section is not None and self._columns.take_section(
            *section,
            header.record_count,
            header.base_offset,
            header.base_timestamp_ms,
            header.timestamp_type is TimestampType.LOG_APPEND_TIME,
            header.max_timestamp_ms,
            header.last_offset_delta,
            header.base_offset,
            header.next_offset,
        ):
            self._is_wanted += found.is_latest
            return
        for record in found.latest_records():
            self._columns.append_row(*record)
            self._is_wanted.append(1)

    def finish(self) -> Iterator[Any]:
        """The wanted rows so far; begins anew."""
        is_wanted, self._is_wanted = self._is_wanted, bytearray()
        if not is_wanted:
            return
        batch = record_batch(self._columns.finish(), self._plan.schema)
        if 0 in is_wanted:
            numbers = pa.Array.from_buffers(pa.uint8(), len(is_wanted), [None, pa.py_buffer(is_wanted)])
            batch = batch.filter(pc.equal(numbers, 1))
        yield from split(batch, self._plan.row_limit, self._plan.byte_limit)
