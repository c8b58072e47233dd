"""The reading half of a log's public interface, the same for its writer and for readers elsewhere.

A subclass says how to get the current :class:`~logstore.partition.reading.view.LogView` and how to wait for a
newer one. Everything here works on views and takes no lock.

The segments of a view may be replaced by compaction, or deleted, during a read. Open files stay readable. If
a file that is not open yet is gone, every way of reading does the same: it takes a newer view
(:meth:`ReadableLog._newer_view`) and goes on at the offset where it was. Records keep their offsets and their
order, so nothing comes twice or too late; only removed records are missing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeVar

from logstore.arguments import check_flag, plain_text, shown
from logstore.config import DEFAULT_MAP_BYTES, TopicConfig
from logstore.errors import (
    CorruptionError,
    InvalidTimestampError,
    LogstoreError,
    StorageError,
    UsageError,
)
from logstore.format.units import describe, unit_of
from logstore.model import (
    BoundToProcess,
    Isolation,
    Moment,
    OffsetAndTimestamp,
    Record,
    TopicPartition,
    how_to_make_int,
)
from logstore.partition.arguments import (
    check_count,
    check_epoch,
    check_isolation,
    check_offset,
    check_timeout,
)
from logstore.partition.reading import fetched, lookup, records
from logstore.partition.reading.fetched import Fetched, FetchEnds
from logstore.partition.reading.times import OffsetOrTime, TimeSpan, first_ms_from, offset_from, span_of
from logstore.partition.reading.view import LogView
from logstore.partition.state.context import LogContext

if TYPE_CHECKING:
    import pyarrow

    from logstore.partition.reading.arrow import ColumnPlan
    from logstore.partition.reading.latest import LatestView
    from logstore.showing import Table

T = TypeVar("T")

WaitForGrowth = Callable[[LogView, int], None]
"""Takes a view and milliseconds. Returns when the log may have changed since, or after that time."""

MAX_FETCH_BYTES = 1024 * 1024
"""The most bytes :meth:`ReadableLog.fetch` returns, unless you ask for more."""


class ReadableLog(BoundToProcess, ABC):
    """Reading one partition."""

    damaged_read_count: int = 0
    """How many reads of any kind have ended with :class:`CorruptionError` since the log was opened, repeated
    ones included. Checks and scrubbing do not count. Alert on any value but 0."""
    directory: str
    """Absolute path of the partition's directory."""
    partition: TopicPartition
    """The topic's name and the partition's number."""
    _context: LogContext
    _ends: FetchEnds | None = None
    """None before the first fetch."""

    @abstractmethod
    def _current_view(self) -> LogView:
        """The view of what can be read now."""

    def _published_view(self) -> LogView:
        """The view of what is written already: appends that still gather are left to gather."""
        return self._current_view()

    def _known_view(self) -> LogView:
        """The known offsets, including appends that still gather. Changes nothing."""
        return self._current_view()

    @abstractmethod
    def _check_leader_epoch(self, expected: int) -> None:
        """
        Raises:
            LeaderFencedError, UnknownLeaderEpochError, ReadOnlyError: see :meth:`fetch`.
        """

    @abstractmethod
    def _waiting(self) -> AbstractContextManager[WaitForGrowth]:
        """The function with which one follower waits."""

    def _newer_view(self, seen: LogView, error: LogstoreError) -> LogView:
        """The current view, if a file of ``seen`` is gone because it was replaced. Else raises the error."""
        view = self._published_view()
        if not isinstance(error, StorageError) or not view.explains(error, seen):
            raise self._counted(error)
        return view

    def _counted(self, error: LogstoreError) -> LogstoreError:
        """Count an error that a reader gets, and return it."""
        if isinstance(error, CorruptionError):
            self.damaged_read_count += 1
        return error

    def _look(self, action: Callable[[LogView], T], view: LogView | None = None) -> T:
        """The result of an action on the current view, which may be given; or on a newer one if a file was
        replaced meanwhile."""
        if view is None:
            view = self._current_view()
        while True:
            try:
                return action(view)
            except (StorageError, CorruptionError) as error:
                view = self._newer_view(view, error)

    # Offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._known_view().log_start_offset

    @property
    def deleted_offsets(self) -> range:
        """The offsets below the log start, which retention or :meth:`.Log.delete_before` has deleted. A
        reader whose next offset is among them has missed the records from there on."""
        return range(self.log_start_offset)

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._known_view().log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which every in-sync replica has all records; with a single replica, the log
        end."""
        return self._known_view().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided."""
        return self._known_view().last_stable_offset

    def readable_offsets(self, isolation: Isolation = Isolation.HIGH_WATERMARK) -> range:
        """The offsets from the log start up to what the isolation shows, both as of the same moment. A
        read-only log looks at its files once for this; two properties would look twice."""
        check_isolation(isolation)
        return self._known_view().shown_to(isolation)

    def written_offsets(self, isolation: Isolation = Isolation.HIGH_WATERMARK) -> range:
        """:meth:`readable_offsets` of what is written already, without appends that still gather. Of a log
        that is open for writing here it takes no lock, and no look at the disk."""
        check_isolation(isolation)
        return self._published_view().shown_to(isolation)

    @property
    def truncation_count(self) -> int:
        """How often the end of the log was cut, by :meth:`.Log.truncate_to` for example, also before it was
        opened. A follower gives it to :meth:`advance_from`."""
        return self._published_view().truncation_count

    @property
    def durable_offset(self) -> int:
        """The offset below which a power cut loses nothing."""
        return self._known_view().durable_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the ``.log`` files."""
        view = self._known_view()
        return sum(view.size_of(number) for number in range(len(view.segments)))

    @property
    def segment_count(self) -> int:
        """Number of segments, the active one among them."""
        return len(self._known_view().segments)

    # Records

    def read(
        self,
        start: OffsetOrTime | None = None,
        stop: OffsetOrTime | None = None,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        on_demand: bool = False,
    ) -> Iterator[Record]:
        """Iterate over the records from offset ``start`` (default: the log start) up to ``stop`` (default:
        what the isolation shows at the time of the call). The record at ``stop`` is not read.

        Both may also be times: datetimes with their time zone. The range then goes from the first record at
        or after ``start`` to the first record at or after ``stop``; records in it with other times are left
        out. A record that arrived late, after one that is as new as ``stop``, is not found.

        Offsets are ascending, with gaps after compaction and around transaction markers. Cost: one index
        lookup, the same in a log of any size; then about 0.1 µs per record (without the compiled module 1
        µs). Memory: 512 KiB, or one batch if it is larger, and the records of 64 KiB of the log or of one
        batch.

        With ``on_demand``, key, value and headers are decoded when they are first used. A record whose fields
        are not used takes half the time if it has 100 bytes, a fifth if it has 1,000. Each record keeps the
        piece of the log that it was read from in memory, up to 512 KiB, or its batch if that is larger, so do
        not use this for records that you keep. It has no effect without the compiled module and for
        compressed batches.

        Raises:
            OffsetOutOfRangeError: ``start`` is below the log start or above the log end. While iterating: the
                next record was deleted or cut off meanwhile.
            UsageError: ``start`` or ``stop`` is neither an offset nor a time.
            CorruptionError: while iterating: a batch is damaged. None of its records is returned.
        """
        if on_demand is not False:
            on_demand = check_flag(on_demand, "on_demand")
        span = span_of(start, stop)
        view, first, limit = self._range_to_read(start, stop, isolation)
        found = self._record_lists(view, first, limit, isolation, on_demand=on_demand)
        return chain.from_iterable(found if span is None else span.filter(found))

    def _range_to_read(
        self, start: OffsetOrTime | None, stop: OffsetOrTime | None, isolation: Isolation
    ) -> tuple[LogView, int, int]:
        """The view that a read works on, and the range of offsets that it may see."""
        if type(isolation) is not Isolation:
            check_isolation(isolation)

        def find(view: LogView) -> tuple[LogView, int, int]:
            first = view.log_start_offset if start is None else start
            if type(first) is not int or not view.log_start_offset <= first <= view.log_end_offset:
                first = offset_from(view, first, "start")
                view.check_in_range(first)
            limit = view.limit_of(isolation)
            return view, first, limit if stop is None else min(offset_from(view, stop, "stop"), limit)

        return self._look(find)

    def _record_lists(
        self, view: LogView, start: int, stop: int, isolation: Isolation, *, on_demand: bool = False
    ) -> Iterator[list[Record]]:
        """The records of a view in ``[start, stop)``, in lists: see :func:`.records.record_lists`. If files
        of the view are gone, those of a newer view."""
        if stop - start == 1:
            record = self._record_at(view, start, isolation)
            if record is not None:
                yield [record]
            return

        def parts(view: LogView, start: int, stop: int) -> Iterator[tuple[list[Record], int]]:
            for found in records.record_lists(view, start, stop, isolation, on_demand=on_demand):
                yield found, found[-1].offset + 1

        for found, _ in self._go_through(view, start, stop, isolation, parts):
            yield found

    def _go_through(
        self,
        view: LogView,
        start: int,
        stop: int,
        isolation: Isolation,
        parts: Callable[[LogView, int, int], Iterator[tuple[T, int]]],
    ) -> Iterator[tuple[T, int]]:
        """The results of ``parts`` for a view in ``[start, stop)``, each with the offset to go on from. If
        files of the view are gone, it goes on with a newer view."""
        while True:
            try:
                for part in parts(view, start, stop):
                    start = part[1]
                    yield part
                return
            except (StorageError, CorruptionError) as error:
                newer = self._newer_view(view, error)
                newer.check_goes_on(start, view.truncation_count)
                view = newer
                stop = min(stop, view.limit_of(isolation))

    def record_at(self, offset: int, *, isolation: Isolation = Isolation.HIGH_WATERMARK) -> Record | None:
        """The record at an offset. None if there is no record and never will be: the offset is in a gap left
        by compaction or truncation, or is a transaction marker's, or (with :attr:`Isolation.COMMITTED`) an
        aborted transaction's.

        Cost: a search in the offset index, a read of the batch and of its neighbours' headers, and the
        checksum; the batch's other records are skipped. Large and compressed batches are kept decompressed in
        the store's cache (``batch_cache_bytes``), and cost only the search while they are there.

        Raises:
            OffsetOutOfRangeError: the offset is below the log start, or at or above what the isolation shows.
            CorruptionError: the batch is damaged.
        """
        view = self._current_view()
        is_plain = type(offset) is int and isolation is _HIGH_WATERMARK
        if not (is_plain and view.log_start_offset <= offset < view.high_watermark):  # else nothing is wrong
            check_offset(offset, "offset")
            check_isolation(isolation)
            view.check_shown(offset, isolation)
        return self._record_at(view, offset, isolation)

    def _record_at(self, view: LogView, offset: int, isolation: Isolation) -> Record | None:
        """The record of a view at an offset that it shows. If a file is gone, it asks a newer view."""
        while True:
            try:
                return lookup.record_at(view, offset, isolation, self._context.batches)
            except (StorageError, CorruptionError) as error:
                view = self._newer_view(view, error)
                view.check_shown(offset, isolation)

    # The table view

    def latest(
        self, *, isolation: Isolation = Isolation.HIGH_WATERMARK, map_bytes: int | None = None
    ) -> LatestView:
        """The current record of each key, as if the log were fully compacted, whether compaction has run or
        not. Iterate over the result. ``docs/tables.md`` explains it.

        Left out are keys whose latest record has no value (a tombstone), records without a key, and at any
        isolation the records of aborted transactions. Everything is as of
        :attr:`~logstore.partition.reading.latest.LatestView.end_offset`, which is what the isolation shows at
        the time of this call; follow from there to see each change exactly once. With transactions, use
        :attr:`Isolation.COMMITTED` for both; otherwise records of open transactions count.

        The records come in the order of their offsets. Cost: the log is read twice, and only the records
        returned are decoded: 0.25 µs per record of 100 bytes in all. Memory: 24 bytes for each distinct key
        (without the compiled module 190), allocated in steps, so up to five times that; at most ``map_bytes``
        (128 MiB, 5.7 million keys); and what :meth:`read` takes. If the keys do not fit, they are divided
        into classes by a hash. The log is then read twice for each class, and the classes come one after the
        other, each in the order of its offsets.

        Compaction and retention may run meanwhile. A record that they remove may be missing. Its key then has
        a later record at or above ``end_offset``, or retention has deleted it; an older value never takes its
        place.

        Raises:
            UsageError: ``map_bytes`` is less than 4096.
            CorruptionError: while iterating: a batch is damaged.
            OffsetOutOfRangeError: while iterating: the log was truncated meanwhile.
        """
        from logstore.format.offset_map import SEED_BYTES  # few programs get here
        from logstore.partition.reading.latest import LatestView

        check_isolation(isolation)
        return LatestView(
            self.partition,
            self._current_view(),
            isolation,
            DEFAULT_MAP_BYTES if map_bytes is None else map_bytes,
            newer_view=self._newer_view,
            seed=self._context.random.randbytes(SEED_BYTES),
        )

    def latest_arrow(
        self,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        columns: Iterable[str] | None = None,
        batch_rows: int = 16_384,
        batch_bytes: int = 4 * 1024 * 1024,
        map_bytes: int | None = None,
    ) -> pyarrow.RecordBatchReader:
        """Like :meth:`latest`, as columns of Apache Arrow: those of :meth:`iterate_arrow`, a bounded number
        of records at a time. ``read_all()`` of the result gives one table. Needs pyarrow:
        ``pip install 'embedded-logstore[arrow]'``.

        If you need the end offset too: ``view = log.latest()``, then ``view.iterate_arrow()`` and
        ``view.end_offset``.

        Raises:
            UsageError: an unknown column; and as :meth:`latest`.
            CorruptionError, OffsetOutOfRangeError: as :meth:`latest`.
        """
        view = self.latest(isolation=isolation, map_bytes=map_bytes)
        return view.iterate_arrow(columns=columns, batch_rows=batch_rows, batch_bytes=batch_bytes)

    # Columns

    def read_arrow(
        self,
        start: OffsetOrTime | None = None,
        stop: OffsetOrTime | None = None,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        columns: Iterable[str] | None = None,
    ) -> pyarrow.Table:
        """Read the records from ``start`` up to ``stop``, as :meth:`read` does, into one table of Apache
        Arrow.

        Columns: ``offset`` and ``timestamp_ms`` (int64), ``key`` and ``value`` (binary), ``headers`` (a list
        of (key, value) for each record); and if you name them ``timestamp`` (``timestamp[ms, UTC]``, null for
        a record without one) and ``timestamp_type`` (int32). ``columns`` selects and orders them; the others
        cost nothing. Needs pyarrow: ``pip install 'embedded-logstore[arrow]'``. Cost:
        0.08 µs per record of 100 bytes if the log is not compressed, half of it for new memory. Memory:
        everything read. :meth:`iterate_arrow` reuses a bounded amount, and so takes half the time.

        Raises:
            OffsetOutOfRangeError: ``start`` is below the log start or above the log end.
            CorruptionError: a batch is damaged; nothing is returned.
            UsageError: an unknown column.
        """
        return self.iterate_arrow(start, stop, isolation=isolation, columns=columns).read_all()

    def iterate_arrow(
        self,
        start: OffsetOrTime | None = None,
        stop: OffsetOrTime | None = None,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        columns: Iterable[str] | None = None,
        batch_rows: int = 16_384,
        batch_bytes: int = 4 * 1024 * 1024,
    ) -> pyarrow.RecordBatchReader:
        """Like :meth:`read_arrow`, a bounded number of records at a time. Iterating over the reader gives
        record batches. DuckDB, polars and other tools that take an Arrow stream read from it directly.

        Args:
            batch_rows: the most records in a record batch.
            batch_bytes: the most bytes in its columns; a larger record is a batch by itself.

        Raises:
            OffsetOutOfRangeError, UsageError: as :meth:`read_arrow`.
            CorruptionError: while iterating: a batch is damaged. Everything before it was returned.
        """
        from logstore.partition.reading import arrow  # pyarrow is optional, and slow to import

        span = span_of(start, stop)
        plan = arrow.plan_columns(columns, batch_rows, batch_bytes)
        reading = plan if span is None else arrow.with_timestamps(plan)
        view, first, limit = self._range_to_read(start, stop, isolation)
        found = (batch for batch, _ in self._columns(view, first, limit, isolation, reading))
        return arrow.reader_of(plan, found if span is None else arrow.within(found, span, plan))

    def _columns(
        self, view: LogView, start: int, stop: int, isolation: Isolation, plan: ColumnPlan
    ) -> Iterator[tuple[pyarrow.RecordBatch, int]]:
        """The records of a view in ``[start, stop)`` as record batches, each with the offset to go on from.
        If files of the view are gone, those of a newer view."""
        from logstore.partition.reading import arrow

        def parts(view: LogView, start: int, stop: int) -> Iterator[tuple[pyarrow.RecordBatch, int]]:
            return arrow.iterate_columns(view, start, stop, isolation, plan)

        return self._go_through(view, start, stop, isolation, parts)

    def split(self, start: int, stop: int, *, parts: int = 1, max_count: int | None = None) -> list[int]:
        """Offsets that cut ``[start, stop)`` into about ``parts`` pieces of similar size in bytes, for
        parallel readers. They are ascending, and lie between ``start`` and ``stop`` where batches begin, so
        that no batch is read twice; with few batches there are fewer pieces. With ``max_count``, no piece
        spans more offsets than that; larger batches are then cut too.

        Cost: 30 µs for each piece; no record is read.

        Raises:
            UsageError: ``parts`` or ``max_count`` is not a whole number, 1 or above.
            OffsetOutOfRangeError: ``start`` is below the log start or above the log end.
        """
        from logstore.partition.reading.splitting import split_view  # few programs get here

        check_offset(start, "start")
        check_offset(stop, "stop")
        check_count(parts, "parts")
        if max_count is not None:
            check_count(max_count, "max_count")

        def cut(view: LogView) -> list[int]:
            view.check_in_range(start)
            return split_view(view, start, min(stop, view.log_end_offset), parts, max_count)

        return self._look(cut)

    def fetch(
        self,
        offset: int,
        *,
        max_bytes: int = MAX_FETCH_BYTES,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
        leader_epoch: int | None = None,
    ) -> Fetched:
        """Raw batches, as Kafka's fetch returns them: whole and checked batches of one segment, from the one
        that holds ``offset`` on. That one may begin below ``offset``.

        Args:
            leader_epoch: the leader epoch that the caller expects (KIP-320). Only a log that is open for
                writing knows the current one.

        Raises:
            OffsetOutOfRangeError, CorruptionError: as :meth:`read`.
            LeaderFencedError, UnknownLeaderEpochError: the log is in another epoch than ``leader_epoch``.
            ReadOnlyError: ``leader_epoch`` is given, and the log is not open for writing here.
        """
        check_offset(offset, "offset")
        check_epoch(leader_epoch)
        if leader_epoch is not None:
            self._check_leader_epoch(leader_epoch)
        check_isolation(isolation)
        min_one_batch = check_flag(min_one_batch, "min_one_batch")
        if type(max_bytes) is not int or max_bytes < 0:
            raise UsageError(f"max_bytes is {shown(max_bytes)}; it must be a whole number, 0 or above")
        return self._fetch(None, offset, max_bytes, isolation, min_one_batch)

    def _fetch(
        self, view: LogView | None, offset: int, max_bytes: int, isolation: Isolation, min_one_batch: bool
    ) -> Fetched:
        ends = self._ends
        if ends is None:
            ends = self._ends = FetchEnds()
        return self._look(
            lambda view: fetched.fetch(
                view, offset, max_bytes, isolation, min_one_batch=min_one_batch, ends=ends
            ),
            view,
        )

    def follow(
        self,
        start: OffsetOrTime | None = None,
        *,
        timeout: float | None = None,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> Iterator[Record]:
        """Iterate over the records from ``start`` (default: the log end) on, and wait for more at the end. If
        ``start`` is a datetime with its time zone, begin at the first record at or after it, and leave out
        older records that come later, as :meth:`read` does.

        Ends when no record has come for ``timeout`` seconds; by default never. A follower in another process
        sees a record about 10 ms after it was written, and costs almost nothing while there are none
        (``docs/waiting.md`` names the exceptions). An exception while it waits, such as
        ``KeyboardInterrupt``, ends the iterator: call again from the offset after the last record.

        Raises:
            OffsetOutOfRangeError: ``start`` is outside the log, or the next record was deleted or truncated
                meanwhile; also if the log has grown again since. (A broker's truncation of a log that then
                grows past the position between two looks is not noticed.)
            ClosedError: the log was closed meanwhile, or its topic deleted by this process.
            UnknownTopicError: the topic was deleted by another process.
            ReopenRequiredError: of a store opened with ``read_only``, another directory took the place.
            CorruptionError: a batch is damaged.
        """
        check_isolation(isolation)
        if timeout is not None:
            timeout = check_timeout(timeout)
        truncation_count = self._published_view().truncation_count
        position = self.position_at("latest" if start is None else start, isolation)
        span = span_of(start, None)
        return chain.from_iterable(self._follow(position, truncation_count, timeout, isolation, span))

    def position_at(self, start: OffsetOrTime | Literal["earliest", "latest"], isolation: Isolation) -> int:
        """The offset at which a follower begins: the log start (``"earliest"``), the end of what the
        isolation shows (``"latest"``), the first record at or after a time, or the offset itself.

        Raises:
            OffsetOutOfRangeError: an offset outside the log.
            UsageError: none of these.
        """
        check_isolation(isolation)
        named = plain_text(start) if isinstance(start, str) else None

        def find(view: LogView) -> int:
            limit = view.limit_of(isolation)
            if named == "earliest":
                return view.log_start_offset
            position = limit if named == "latest" else offset_from(view, start, "start")
            view.check_in_range(position)
            return min(position, limit) if isinstance(start, datetime) else position

        return self._look(find)

    def advance(self, position: int, *, isolation: Isolation) -> tuple[Iterator[Record], int]:
        """What a follower at ``position`` can read now, and the offset to go on from: one step of
        :meth:`follow`, without waiting. Appends that still gather are left to gather.

        Raises:
            OffsetOutOfRangeError: the next record was deleted or cut off; also while iterating.
            ClosedError, UnknownTopicError, CorruptionError: as :meth:`follow`.
        """
        return self.advance_from(position, None, isolation=isolation)[:2]

    def advance_from(
        self, position: int, truncation_count: int | None, *, isolation: Isolation
    ) -> tuple[Iterator[Record], int, int]:
        """:meth:`advance` for a follower that remembers, besides its position, the
        :attr:`truncation_count` that it had then: the third value returned.

        Raises:
            OffsetOutOfRangeError: also where the log was truncated below the position since, and has grown
                past it again.
            ClosedError, UnknownTopicError, CorruptionError: as :meth:`follow`.
        """
        check_offset(position, "position")
        if truncation_count is not None:
            check_offset(truncation_count, "truncation_count")
        check_isolation(isolation)
        view = self._published_view()
        limit = view.limit_of(isolation)
        view.check_goes_on(position, view.truncation_count if truncation_count is None else truncation_count)
        if position >= limit:
            return iter(()), position, view.truncation_count
        found = chain.from_iterable(self._record_lists(view, position, limit, isolation))
        return found, limit, view.truncation_count

    def _follow(
        self,
        position: int,
        truncation_count: int,
        timeout: float | None,
        isolation: Isolation,
        span: TimeSpan | None,
    ) -> Iterator[list[Record]]:
        waited_since = time.monotonic()
        with self._waiting() as wait_for_growth:
            while True:
                view = self._published_view()
                limit = view.limit_of(isolation)
                view.check_goes_on(position, truncation_count)
                truncation_count = view.truncation_count
                if position < limit:
                    found = self._record_lists(view, position, limit, isolation)
                    for some in found if span is None else span.filter(found):
                        yield some
                        waited_since = time.monotonic()
                    position = limit
                    continue
                left = None if timeout is None else waited_since + timeout - time.monotonic()
                if left is not None and left <= 0:
                    return
                wait_for_growth(
                    view, _MAX_WAIT_MS if left is None else min(int(left * 1000) + 1, _MAX_WAIT_MS)
                )

    # Time

    @property
    @abstractmethod
    def config(self) -> TopicConfig:
        """The settings in use."""

    def offset_at(self, timestamp_ms: Moment) -> int | None:
        """The offset of the first record at or after a time; None if there is none. The time is milliseconds
        since the epoch, or a datetime with its time zone.

        Cost: a search in the time index, and the scan of one index interval.
        """
        found = self.find_timestamp(timestamp_ms)
        return None if found is None else found.offset

    def find_timestamp(self, timestamp_ms: Moment) -> OffsetAndTimestamp | None:
        """Offset, timestamp and leader epoch of the first record at or after a time.

        The same answer as Kafka's ListOffsets, except that a broker may also answer with the offset of a
        transaction marker.

        Raises:
            UsageError: the timestamp is not a whole number of milliseconds, 0 or above.
            InvalidTimestampError: it looks like another unit than milliseconds, and the log's newest record
                is not in that unit (``message_timestamp_unit_check``).
        """
        if isinstance(timestamp_ms, datetime):
            when = timestamp_ms
            return self._look(lambda view: records.find_timestamp(view, first_ms_from(when, "timestamp_ms")))
        if type(timestamp_ms) is not int or timestamp_ms < 0:
            raise UsageError(
                f"timestamp_ms is {shown(timestamp_ms)}; it must be whole milliseconds, 0 or above"
                + how_to_make_int(timestamp_ms)
            )
        unit = unit_of(timestamp_ms)
        if unit is not None and self.config.message_timestamp_unit_check:
            self._check_unit(timestamp_ms, unit)
        return self._look(lambda view: records.find_timestamp(view, timestamp_ms))

    def _check_unit(self, timestamp_ms: int, unit: str) -> None:
        newest = self.find_max_timestamp()
        if newest is None or unit_of(newest.timestamp_ms) != unit:
            raise InvalidTimestampError(
                f"timestamp_ms {timestamp_ms} {describe(timestamp_ms, unit)}. "
                "(message_timestamp_unit_check=False takes it as it is)"
            )

    def find_max_timestamp(self) -> OffsetAndTimestamp | None:
        """Offset, timestamp and leader epoch of the first record with the largest timestamp; None if no
        record has a timestamp."""
        return self._look(records.find_max_timestamp)

    def __iter__(self) -> Iterator[Record]:
        return self.read()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.partition} in {self.directory!r}>"

    def _repr_html_(self) -> str:
        """The view in a notebook: the offsets, and the last written records. It never raises and changes
        nothing; gathering appends are left to gather."""
        from logstore.showing import show  # few programs get here

        return show(f"{type(self).__name__} {self.partition}", self._parts_to_show())

    def _parts_to_show(self) -> Iterator[Table | str]:
        from logstore.showing import LAST_RECORDS, Table, table_of_records

        yield self.directory
        known = self._known_view()
        yield Table(
            ("log start", "log end", "high watermark", "last stable", "durable", "segments", "bytes"),
            [
                (
                    known.log_start_offset,
                    known.log_end_offset,
                    known.high_watermark,
                    known.last_stable_offset,
                    known.durable_offset,
                    len(known.segments),
                    sum(map(known.size_of, range(len(known.segments)))),
                )
            ],
        )
        view = self._published_view()
        start = max(view.log_start_offset, view.high_watermark - LAST_RECORDS)
        found = records.record_lists(view, start, view.high_watermark, _HIGH_WATERMARK)
        yield table_of_records(chain.from_iterable(found))


def known_view(log: ReadableLog) -> LogView:
    """All that a log knows of itself at one moment, including appends that still gather. Changes nothing."""
    return log._known_view()


def fetch_new(
    log: ReadableLog,
    offset: int,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one_batch: bool,
    leader_epoch: int | None = None,
) -> Fetched | LogView:
    """:meth:`ReadableLog.fetch`, for arguments of the right types; or the current view, if a reader at the
    offset has all that it may see: that costs less than a fetch which says the same.

    Raises what the fetch raises.
    """
    if offset < 0 or max_bytes < 0:  # it says what is wrong
        return log.fetch(offset, max_bytes=max_bytes, isolation=isolation, leader_epoch=leader_epoch)
    view = log._current_view()
    if leader_epoch is not None:
        check_epoch(leader_epoch)
        log._check_leader_epoch(leader_epoch)
    if view.limit_of(isolation) <= offset <= view.log_end_offset and offset >= view.log_start_offset:
        return view
    return log._fetch(view, offset, max_bytes, isolation, min_one_batch)


def offsets_to_read(log: ReadableLog, isolation: Isolation) -> range:
    """:meth:`ReadableLog.readable_offsets` of what a read can return: appends that gather are written first,
    and do not count if the disk refuses them.

    Raises:
        ClosedError, ForkedError: the log cannot be used.
    """
    return log._current_view().shown_to(isolation)


def published_view(log: ReadableLog) -> LogView:
    """What of a log is written. Changes nothing.

    Raises:
        ClosedError, ForkedError: the log cannot be used.
    """
    return log._published_view()


_HIGH_WATERMARK = Isolation.HIGH_WATERMARK  # Python 3.11 takes 70 ns to find a member of an enum
_MAX_WAIT_MS = 1_000  # a follower looks up from its wait at least this often
