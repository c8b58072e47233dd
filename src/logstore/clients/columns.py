"""What a consumer has fetched, as columns of Apache Arrow. Imported when a poll asks for it: pyarrow is
optional."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from logstore.clients.positions import Position
from logstore.format.column_buffers import MAX_COLUMN_BYTES
from logstore.format.loops import Columns
from logstore.partition.reading.arrow import empty_batch, plan_columns, record_batch

_MAX_ROWS: Final = 2**31 - 1


class ColumnTaker:
    """Of one poll."""

    def __init__(self, names: Iterable[str] | None) -> None:
        """``names``: the columns, as :meth:`.Log.read_arrow` takes them.

        Raises:
            UsageError: an unknown column.
        """
        self._plan = plan_columns(names, _MAX_ROWS, MAX_COLUMN_BYTES)

    def take(self, position: Position) -> Any:
        """The next records of a partition, as a record batch.

        Raises:
            CorruptionError: as :meth:`.Position.take`.
        """
        columns = Columns(self._plan.wanted)
        position.take_columns(columns, self._plan.row_limit, self._plan.byte_limit)
        if not columns.row_count:
            return self.nothing()
        topic, number = position.partition
        batch = record_batch(columns.finish(), self._plan.schema)
        return batch.replace_schema_metadata({"topic": topic, "partition": str(number)})

    def nothing(self) -> Any:
        """A record batch without rows."""
        return empty_batch(self._plan.schema)
