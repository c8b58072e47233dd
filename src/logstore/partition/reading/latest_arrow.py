"""The table view as columns of Apache Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from logstore.errors import CorruptionError
from logstore.format.loops import Columns
from logstore.model import Record
from logstore.partition.reading.arrow import ColumnPlan, record_batch, split


def columns_of_lists(lists: Iterable[list[Record]], plan: ColumnPlan) -> Iterator[Any]:
    """The records as pyarrow record batches within the plan's limits; none is empty.

    Raises:
        CorruptionError: a batch of the log is damaged; what came before it was given.
    """
    columns = Columns(plan.wanted)
    try:
        for records in lists:
            columns.append_records(records)
            if columns.row_count >= plan.row_limit or columns.used_bytes >= plan.byte_limit:
                yield from _finished(columns, plan)
    except CorruptionError:
        yield from _finished(columns, plan)
        raise
    yield from _finished(columns, plan)


def _finished(columns: Any, plan: ColumnPlan) -> Iterator[Any]:
    if columns.row_count:
        yield from split(record_batch(columns.finish(), plan.schema), plan.row_limit, plan.byte_limit)
