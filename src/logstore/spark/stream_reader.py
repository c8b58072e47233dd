"""``spark.readStream``: the driver decides what each batch of a stream covers, from the existing records and
from what Spark's checkpoint says was read; see :mod:`~logstore.spark.stream_offsets`.

Keeps the store open between two triggers, so that a trigger without new records costs only some system calls
for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from logstore.clock import Clock, SystemClock
from logstore.errors import OffsetOutOfRangeError, UnknownTopicError
from logstore.model import TopicPartition
from logstore.spark.comparing import compared, epochs_of
from logstore.spark.origins.choice import origin_of
from logstore.spark.positions import LATEST, Subscription, resolve, starting_limit
from logstore.spark.range_reader import RangeReader
from logstore.spark.ranges import ReadTask, Span, divide
from logstore.spark.stream_offsets import (
    Loss,
    Seen,
    StreamOffset,
    format_offset,
    initial_json,
    is_further,
    limited_ends,
    named_losses,
    next_begins,
    next_offset,
    parse_offset,
    ranges_between,
    readable_ranges,
    record_count,
)
from logstore.warning import warn

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from logstore.spark.options import Options

_MAX_DELAY_MS: Final = 15 * 60 * 1000  # the connector's
_STARTING: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
)


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises at its first use what making a reader has raised. Where making one raises, Spark 4.3.0 shows an
    error of its own, of a variable that has no value."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  these names are Spark's
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the records of topics. Spark creates one on the driver for each run of a query, and pickles
    copies of it into tasks, which only call :meth:`read`."""

    def __init__(self, options: Options, schema: StructType, clock: Clock | None = None) -> None:
        """
        Raises:
            InvalidConfigError, UsageError: an option or a column is not valid.
        """
        self._options = options
        self._subscription = Subscription(options)
        self._starting = starting_limit(options, default=LATEST)
        self._fails = options.flag("failOnDataLoss", default=True)
        self._pace = Pace(options, clock or SystemClock())
        self._reader = RangeReader(origin_of(options), options, schema)
        self._origin = self._reader.origin
        self._available: Mapping[TopicPartition, int] | None = None
        """Where the query ends with Trigger.AvailableNow."""
        self._seen = Seen({}, {})
        self._warned: set[Loss | str] = set()

    # Offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  these names are Spark's
        """The offset for "nothing was read yet". Spark asks more than once, and does not keep the answer."""
        given = {name: text for name in _STARTING if (text := self._options.text(name)) is not None}
        return initial_json(given or {"startingOffsets": "latest"})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of the options. Spark passes it to :meth:`latestOffset`, or "all" for Trigger.Once."""
        return self._pace.limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end when it has read what exists now."""
        seen = self._look(self._subscription.find(self._origin)[0])
        self._available = {partition: bounds.end for partition, bounds in seen.bounds.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; ``start`` itself if there is no batch to run.

        Cost: 9 system calls for each partition, if nothing happened. Else a read of two batches.

        Raises:
            OffsetOutOfRangeError: records that should have been read are lost, and ``failOnDataLoss`` is
                true.
            UnknownTopicError: a topic that is asked for does not exist, and nothing was read from it yet.
            UsageError: ``start`` was not written by logstore.
        """
        last = parse_offset(start)
        partitions, missing = self._subscription.find(self._origin)
        seen = self._look(partitions)
        gone: set[TopicPartition] = set()
        if last is None:
            begins = self._first_begins(seen, missing)
        else:
            seen = compared(self._origin, seen, last, last.ends)
            begins, gone = self._next_begins(last, seen, missing)
        self._seen = seen
        ends = self._ends(begins, seen, limit)
        epochs = epochs_of(self._origin, seen, last or StreamOffset(), begins, ends)
        following = next_offset(last, begins, ends, seen, gone, epochs)
        if last is not None and not is_further(last, following):
            return start
        return format_offset(following)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The end of the log, for the query's progress, as :meth:`latestOffset` last saw it."""
        ends = {partition: bounds.end for partition, bounds in self._seen.bounds.items()}
        return format_offset(StreamOffset(ends=ends, topic_ids=self._seen.topic_ids))

    def _look(self, partitions: Iterable[TopicPartition]) -> Seen:
        """The present state of some partitions."""
        wanted = list(partitions)
        topic_ids = self._origin.topic_ids({partition.topic for partition in wanted})
        there = [
            partition for partition in wanted if partition.topic in topic_ids
        ]  # others are being deleted
        bounds = self._origin.bounds_of(there, self._reader.isolation)
        return Seen(bounds, {topic: known for topic, known in topic_ids.items() if known is not None})

    def _first_begins(self, seen: Seen, missing: list[str]) -> dict[TopicPartition, int]:
        if missing:
            raise UnknownTopicError(missing[0])
        limit = self._starting
        begins, losses = {}, []
        for partition, wanted in limit.wanted(seen.bounds, self._origin).items():
            bounds = seen.bounds[partition]
            offset = resolve(self._origin, partition, limit, wanted, bounds)
            begins[partition] = min(max(offset, bounds.start), bounds.end)
            if begins[partition] != offset:
                there = f"there are {bounds.start} to {bounds.end}"
                losses.append(Loss(partition, f"option {limit.option} asks for offset {offset}; {there}"))
        self._report(losses)
        return begins

    def _next_begins(
        self, last: StreamOffset, seen: Seen, missing: list[str]
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        begins, losses = next_begins(last, seen, self._subscription.covers)
        self._report(losses)
        for reason in missing:
            if self._fails:
                raise UnknownTopicError(reason)
            self._warn_once(reason, reason)
        gone = {partition for partition in last.ends if partition not in begins}
        return begins, {partition for partition in gone if self._subscription.covers(partition)}

    def _ends(
        self, begins: Mapping[TopicPartition, int], seen: Seen, limit: ReadLimit
    ) -> dict[TopicPartition, int]:
        ends = {partition: max(begin, seen.bounds[partition].end) for partition, begin in begins.items()}
        if self._available is not None:
            for partition, begin in begins.items():
                ends[partition] = max(begin, min(ends[partition], self._available.get(partition, begin)))
        if isinstance(limit, ReadAllAvailable):
            return ends
        if self._available is None and self._pace.is_too_early(record_count(begins, ends)):
            return dict(begins)
        return ends if self._pace.most is None else limited_ends(begins, ends, self._pace.most)

    # Batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. Spark may ask more than once, and asks again for a batch that a crash
        interrupted: the answer depends only on the two offsets and on the records that still exist.

        Raises:
            OffsetOutOfRangeError: records of the batch are lost, and ``failOnDataLoss`` is true.
            UsageError: the checkpoint is damaged.
        """
        last, planned = parse_offset(start), parse_offset(end)
        if planned is None:
            return []
        ranges = ranges_between(last, planned)
        stops = {each: wanted.stop for each, wanted in ranges.items()}
        seen = compared(self._origin, self._look(ranges), planned, stops)
        found, losses = readable_ranges(ranges, planned.topic_ids, seen)
        self._report(losses)
        spans = [Span(partition, wanted.start, wanted.stop) for partition, wanted in found.items()]
        return divide(self._origin, spans, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a task: the records of its ranges, as Arrow batches."""
        if not isinstance(partition, ReadTask):
            return iter(())
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: records stay after they were read."""

    def stop(self) -> None:
        """Close the store."""
        self._origin.close()

    # Losses

    def _report(self, losses: Sequence[Loss]) -> None:
        """
        Raises:
            OffsetOutOfRangeError: there are losses, and ``failOnDataLoss`` is true.
        """
        if losses and self._fails:
            raise OffsetOutOfRangeError(
                f"records of {self._origin} that the stream has not read are lost, or may be: "
                f"{named_losses(losses)}. Restart it with failOnDataLoss=false to continue with the rest"
            )
        for loss in losses:
            self._warn_once(loss, f"{loss} ({self._origin}); the stream continues (failOnDataLoss=false)")

    def _warn_once(self, about: Loss | str, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warn("%s", text)


class Pace:
    """How many records a trigger takes: ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and
    ``maxTriggerDelay``."""

    def __init__(self, options: Options, clock: Clock) -> None:
        """
        Raises:
            InvalidConfigError: a value is wrong, or the maximum is below the minimum.
        """
        self.most = options.number("maxOffsetsPerTrigger")
        self.least = options.number("minOffsetsPerTrigger")
        self._max_delay_ms = options.duration_ms("maxTriggerDelay", default=_MAX_DELAY_MS)
        self._clock = clock
        self._last_ms: int | None = None
        if self.most is not None and self.least is not None and self.most < self.least:
            options.refuse("maxOffsetsPerTrigger", f"it is below minOffsetsPerTrigger, {self.least}")

    def limit(self) -> ReadLimit:
        """The limit for Spark, which has none with both a maximum and a minimum."""
        if self.most is not None:
            return ReadMaxRows(self.most)
        return ReadAllAvailable() if self.least is None else ReadMinRows(self.least)

    def is_too_early(self, available: int) -> bool:
        """Whether a trigger should wait for more records than are ``available``. The first one after a start
        does not wait, so that restarts never make a record wait longer than the delay."""
        if self.least is None or available == 0:
            return False
        now_ms = self._clock.monotonic_ms()
        is_due = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if available < self.least and not is_due:
            return True
        self._last_ms = now_ms
        return False
