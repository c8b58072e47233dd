"""Reads a range of offsets in a task, and returns it as Spark's columns.

Batch and streaming reads use it. Created on the driver and pickled into tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from logstore.errors import CorruptionError, OffsetOutOfRangeError, UnknownTopicError
from logstore.partition.watching.pinned import Damage
from logstore.spark.columns import ColumnMap
from logstore.spark.options import skips_corrupt_batches
from logstore.spark.ranges import OffsetRange, ReadTask, Span
from logstore.warning import warn

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from logstore.partition.reading.arrow import ColumnPlan
    from logstore.spark.options import Options
    from logstore.spark.origins.origin import Origin

BATCH_ROWS: Final = 131_072
BATCH_BYTES: Final = 6 * 1024 * 1024
"""Bytes of the log's columns in one batch. With a quarter of that, Spark takes 1.1 times as long."""


class RangeReader:
    """Reads ranges of one origin as the options and the schema ask."""

    def __init__(self, origin: Origin, options: Options, schema: StructType) -> None:
        """
        Raises:
            InvalidConfigError: an option is not valid.
            UsageError: a column is not valid; see :class:`~logstore.spark.columns.ColumnMap`.
        """
        self.origin = origin
        self.isolation = options.isolation()
        self._columns = ColumnMap(schema)
        self._fails_on_loss = options.flag("failOnDataLoss", default=True)
        self._skips = skips_corrupt_batches(options)

    def read(self, task: ReadTask) -> Iterator[Any]:
        """The records of a task's ranges as ``pyarrow.RecordBatch`` with the schema's columns. Memory: two of
        these and one batch of the log, whatever the size of the ranges.

        Raises:
            CorruptionError: a batch is damaged, and ``onCorruptBatch`` is not ``skip``.
            OffsetOutOfRangeError, UnknownTopicError: records were removed since the read was planned, and
                ``failOnDataLoss`` is true.
        """
        from logstore.partition.reading import arrow  # the driver plans without pyarrow

        plan = arrow.plan_columns(self._columns.of_log, BATCH_ROWS, BATCH_BYTES)
        try:
            for wanted in task.ranges:
                convert = self._columns.converter(wanted.span.partition)
                yield from map(convert, self._batches(wanted, plan))
        finally:
            self.origin.close()

    def _batches(self, wanted: OffsetRange, plan: ColumnPlan) -> Iterator[Any]:
        """The log's record batches."""
        skipped = _Skipped(wanted.span)
        left: list[OffsetRange] = [wanted]
        while left:
            now = left.pop()
            reading = self.origin.reading(now.pinned, skipped.note if self._skips else None)
            try:
                yield from reading.columns(plan)
            except CorruptionError as error:
                raise self._named(error, now.span, reading.position) from error
            except (OffsetOutOfRangeError, UnknownTopicError) as error:
                left += self._rest(now.span, reading.position, error)
        skipped.tell()

    def _named(self, error: CorruptionError, span: Span, position: int) -> CorruptionError:
        """The error with the partition, and the offset up to which everything was read."""
        topic, number = span.partition
        hint = "; with onCorruptBatch=skip the read would continue after it"
        return CorruptionError(
            f"topic {topic!r}, partition {number}, offset {position}: {error.reason}"
            f"{hint if self.origin.skips_damage else ''}",
            path=error.path,
            position=error.position,
            base_offset=error.base_offset,
            last_offset=error.last_offset,
        )

    def _rest(self, span: Span, position: int, error: Exception) -> list[OffsetRange]:
        """The rest of a range of which records were removed: one range, or none."""
        what = (
            f"{span.partition} in {self.origin}: offsets {position} to {span.stop - 1} existed when the "
            f"read was planned, but not all exist now ({error})"
        )
        if self._fails_on_loss:
            raise type(error)(f"{what}; failOnDataLoss=false would read the existing ones") from error
        warn("%s", what)
        self.origin.close()
        try:
            bounds = self.origin.bounds(span.partition, self.isolation)
        except UnknownTopicError:
            return []
        start, stop = max(position, bounds.start), min(span.stop, bounds.end)
        if start >= stop:
            return []
        if (start, stop) == (position, span.stop):
            raise type(error)(f"{what}; the rest cannot be read either") from error
        rest = Span(span.partition, start, stop)
        return [OffsetRange(rest, self.origin.pin(span.partition, start, stop, self.isolation))]


class _Skipped:
    """The damaged places that were skipped in one range."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._place_count = 0
        self._offset_count = 0

    def note(self, damage: Damage) -> None:
        """Count a damaged place, and log a warning."""
        self._place_count += 1
        self._offset_count += damage.stop - damage.start
        warn(
            "onCorruptBatch=skip: %s is damaged; offsets %d to %d are left out: %s",
            self._span.partition,
            damage.start,
            damage.stop - 1,
            damage.error,
        )

    def tell(self) -> None:
        """Log the sum, if anything was skipped."""
        if self._place_count:
            warn(
                "onCorruptBatch=skip: of %s, %d to %d, %d places were left out, up to %d records in all",
                self._span.partition,
                self._span.start,
                self._span.stop - 1,
                self._place_count,
                self._offset_count,
            )
