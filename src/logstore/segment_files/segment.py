"""A segment file and the files beside it, opened by path.

Reads as a log reads, through :class:`~logstore.partition.segments.lone.LoneSegment` and a view of that one
segment, and checks as a log is checked. Never writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, Self, TypeVar

from logstore.arguments import shown
from logstore.clock import SystemClock
from logstore.errors import ClosedError, CorruptionError, OffsetOutOfRangeError, UsageError
from logstore.files import File, Files, OsFiles, PathLike, check_path
from logstore.format.batch import decode_batch
from logstore.format.header import HEADER_BYTES, decode_header
from logstore.format.index import AbortedTransactions
from logstore.format.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from logstore.model import BoundToProcess, Isolation, Record, how_to_make_int
from logstore.partition.arguments import check_offset
from logstore.partition.checking.facts import EVERYTHING, LogFacts, SegmentToCheck
from logstore.partition.checking.findings import VerifyReport
from logstore.partition.checking.verify import verify_log
from logstore.partition.reading import lookup, records
from logstore.partition.reading.place import ends_at_base
from logstore.partition.reading.view import LogView
from logstore.partition.segments.batch_cache import BatchCache
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET
from logstore.partition.segments.lone import LoneNames, LoneSegment, SegmentEnd, end_of
from logstore.partition.segments.transaction_index import TransactionIndex
from logstore.partition.segments.walk import PIECE_BYTES
from logstore.segment_files.batches import SegmentBatch, batch_in
from logstore.segment_files.indexes import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
_IndexT = TypeVar("_IndexT", OffsetIndex, TimeIndex)
_ALL: Final = Isolation.LOG_END

_INTERVAL_BYTES: Final = 4096  # Kafka's index.interval.bytes
_INDEX_LIMIT_BYTES: Final = 10 * 1024 * 1024  # and segment.index.bytes
_CACHE_BYTES: Final = 16 * 1024 * 1024
_SETTLING_S: Final = 0.05
"""How long a writer may take to finish a batch whose beginning is in the file: a broker passes a batch to the
system in one write, but other processes see it grow page by page."""

_DIRECTORY = (
    "is a directory, and not a regular file; give the path of one of its .log files, or Log.open() the whole "
    "partition"
)


class Segment(BoundToProcess):
    """A segment file (``.log``) from a broker or from logstore, of any magic, in use or ``.deleted``, with or
    without its indexes.

    ::

        with logstore.Segment.open("orders-0/00000000000000368769.log") as segment:
            for batch in segment.batches():
                print(batch.base_offset, batch.record_count, batch.codec)
            table = segment.read_arrow()

    The file may be in use: later calls see what is added to it. Nothing is ever written; an index that is
    missing or wrong is built in memory. Batches are checked when they are read, as in a log.
    ``docs/segment-files.md`` says what only the log around the file could tell: whether batches are missing
    at either end, and which records of a transaction that ends in another segment were aborted. All methods
    may be called from many threads.
    """

    def __init__(self, files: Files, names: LoneNames, base_offset: int, file: File) -> None:
        """Use :meth:`open`."""
        self.path: str = names.path
        """Absolute path of the ``.log`` file."""
        self.base_offset: int = base_offset
        """The offset that the indexes count from. The file has no record below it."""
        self._files = files
        self._names = names
        self._segment: LoneSegment | None = LoneSegment(files, names, base_offset, file)
        self._cache = BatchCache(_CACHE_BYTES)

    @classmethod
    def open(cls, path: PathLike, *, base_offset: int | None = None, files: Files | None = None) -> Self:
        """Open a segment file for reading.

        Args:
            path: the ``.log`` file. Its indexes are found beside it, under the same name with their own
                suffixes.
            base_offset: only for a file whose name does not begin with its base offset as 20 digits. Default:
                the first batch's, or 0 if there is no batch at the beginning.
            files: another file system, for tests.

        Cost: opening the file, and one read if its name does not give the base offset.

        Raises:
            StorageError: there is no such file, or it may not be read: ``errno`` says which.
            CorruptionError: it is not a regular file, but a directory or a link. The contents are not
                checked.
            UsageError: ``path`` is not a path, or ``base_offset`` not an offset.
        """
        files = files or OsFiles()
        names = LoneNames.of(files.absolute(check_path(path, "a .log file")))
        if base_offset is None:
            base_offset = names.base_offset
        else:
            check_offset(base_offset, "base_offset")
        try:
            file = files.open(names.path)
        except CorruptionError:
            if not files.is_directory(names.path):
                raise
            raise CorruptionError(_DIRECTORY, path=names.path) from None
        return cls(files, names, _first_offset(file) if base_offset is None else base_offset, file)

    def close(self) -> None:
        """Close the file. Iterators that are in use can go on, and keep it open until they are dropped."""
        self._segment = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Segment {self.path!r} from offset {self.base_offset}>"

    @property
    def _opened(self) -> LoneSegment:
        segment = self._segment
        if segment is None:
            raise ClosedError(f"{self.path} is closed; open it again")
        return segment

    # Where it ends

    @property
    def size_bytes(self) -> int:
        """The present size of the ``.log`` file."""
        return self._opened.size_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last whole batch. Cost: reading the batches after the last index entry, once;
        without a usable index, all headers. Later calls read only what was added to the file."""
        return self._opened.find_end().offset

    @property
    def trailing_bytes(self) -> int:
        """Bytes after the last whole batch: 0 for a sound file that is not being written. A crash, or a copy
        of a file in use, leaves part of a batch; a broker that preallocates files leaves zeros. Cost: that of
        :attr:`next_offset`."""
        return self._opened.find_end().trailing_bytes

    def _check_end(self, segment: LoneSegment, end: SegmentEnd) -> None:
        """
        Raises:
            CorruptionError: bytes follow the last whole batch, and they are not just being written.
        """
        if not end.trailing_bytes or segment.goes_on(end):
            return
        time.sleep(_SETTLING_S)
        if not segment.goes_on(end):
            raise CorruptionError(
                f"{end.trailing_bytes} bytes after the last whole batch are not a batch: {end.reason}",
                path=self.path,
                position=end.position,
                base_offset=end.offset,
            )

    # Batches

    def batches(self) -> Iterator[SegmentBatch]:
        """Iterate over the batches, as their headers describe them. Those with a wrong checksum are included,
        with the reason in :attr:`.SegmentBatch.damage`. Records are not decoded, and offsets not compared
        with each other: :meth:`check` does both.

        Cost: reading the file once, and 5 µs for each batch. Memory: 256 KiB, or one batch if it is larger.

        Raises:
            CorruptionError: while iterating, after the last whole batch: the bytes that follow are not a
                batch, and not just being written. ``position`` says where.
        """
        return self._batches(self._opened)

    def _batches(self, segment: LoneSegment) -> Iterator[SegmentBatch]:
        size_bytes, offset = segment.size_bytes, self.base_offset
        walk = segment.walk(0, size_bytes, check=False, piece_bytes=PIECE_BYTES)
        for piece in walk:
            for at, header in piece.batches:
                yield batch_in(piece.buffer, at, header, piece.position + at)
                offset = header.next_offset
        self._check_end(segment, end_of(walk, offset, size_bytes))

    # Records

    def records(self, start: int | None = None, stop: int | None = None) -> Iterator[Record]:
        """Iterate over the records from offset ``start`` (default: the first) up to ``stop`` (default: the
        end of the file at the time of the call). Transaction markers are left out; records of aborted
        transactions are included.

        Cost and memory: as :meth:`.Log.read`. If there is no index to find ``start`` with, one is built in
        memory first.

        Raises:
            OffsetOutOfRangeError: ``start`` is below the base offset or after the last whole batch.
            CorruptionError: while iterating: a batch is damaged, or its offsets do not fit between those of
                its neighbours; or there are bytes after the last whole batch, if the range reaches that far.
                Everything before the damage was returned.
        """
        segment, view, end, start, stop = self._range(start, stop)
        lists = records.record_lists(view, start, stop, _ALL)
        return chain.from_iterable(self._up_to_end(lists, segment, end, stop))

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def record_at(self, offset: int) -> Record | None:
        """The record at an offset; None if there is none: a gap, or a transaction marker. Cost: as
        :meth:`.Log.record_at`.

        Raises:
            OffsetOutOfRangeError: the offset is below the base offset or after the last whole batch.
            CorruptionError: the batch is damaged.
        """
        segment, view, end, start, _ = self._range(check_offset(offset, "offset"), None)
        if start == end.offset:
            self._check_end(segment, end)
            raise self._out_of_range(start, end)
        return lookup.record_at(view, start, _ALL, self._cache)

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The offset of the first record at or after a time in milliseconds since the epoch; None if there is
        none. Cost: a search in the time index, and reading one index interval.

        Raises:
            UsageError: the timestamp is not a whole number, 0 or above.
            CorruptionError: a batch that had to be read is damaged.
        """
        if type(timestamp_ms) is not int or timestamp_ms < 0:
            raise UsageError(
                f"timestamp_ms is {shown(timestamp_ms)}; it must be whole milliseconds, 0 or above"
                + how_to_make_int(timestamp_ms)
            )
        segment, view, end, _, _ = self._range(None, None)
        found = records.find_timestamp(view, timestamp_ms)
        if found is None:
            self._check_end(segment, end)
            return None
        return found.offset

    def _range(
        self, start: int | None, stop: int | None
    ) -> tuple[LoneSegment, LogView, SegmentEnd, int, int]:
        """The input of a read: the file as it is now, and the wanted offsets."""
        segment = self._opened
        end = segment.find_end()
        base, most = self.base_offset, min(self.base_offset + MAX_RELATIVE_OFFSET, 2**63 - 2) + 1
        view = LogView(
            (segment,), (base,), end.position, base, most, most, most, most, aborted=AbortedTransactions()
        )
        start = base if start is None else check_offset(start, "start")
        stop = most if stop is None else check_offset(stop, "stop")
        if not base <= start <= max(end.offset, base):
            if start > end.offset:
                self._check_end(segment, end)
            raise self._out_of_range(start, end)
        return segment, view, end, start, stop

    def _out_of_range(self, offset: int, end: SegmentEnd) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} is outside the file, which holds {self.base_offset} to {end.offset} "
            f"({self.path})"
        )

    def _up_to_end(self, found: Iterator[T], segment: LoneSegment, end: SegmentEnd, stop: int) -> Iterator[T]:
        yield from found
        if stop > end.offset:
            self._check_end(segment, end)

    # Columns

    def read_arrow(
        self, start: int | None = None, stop: int | None = None, *, columns: Iterable[str] | None = None
    ) -> pyarrow.Table:
        """Read the records that :meth:`records` gives into one table of Apache Arrow. Columns and cost are
        those of :meth:`.Log.read_arrow`. Needs pyarrow: ``pip install 'embedded-logstore[arrow]'``.

        Raises:
            OffsetOutOfRangeError, CorruptionError: as :meth:`records`; nothing is returned.
            UsageError: an unknown column.
        """
        return self.iterate_arrow(start, stop, columns=columns).read_all()

    def iterate_arrow(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        batch_rows: int = 16_384,
        batch_bytes: int = 4 * 1024 * 1024,
    ) -> pyarrow.RecordBatchReader:
        """Like :meth:`read_arrow`, a bounded number of records at a time; see :meth:`.Log.iterate_arrow`.

        Raises:
            OffsetOutOfRangeError, UsageError: as :meth:`read_arrow`.
            CorruptionError: while iterating. Everything before the damage was returned.
        """
        from logstore.partition.reading import arrow  # pyarrow is optional, and slow to import

        plan = arrow.plan_columns(columns, batch_rows, batch_bytes)
        segment, view, end, start, stop = self._range(start, stop)
        found = (batch for batch, _ in arrow.iterate_columns(view, start, stop, _ALL, plan))
        return arrow.reader_of(plan, self._up_to_end(found, segment, end, stop))

    # The files beside it

    @property
    def offset_index(self) -> OffsetIndex | None:
        """The offset index beside the file, read at each access; None if there is none.

        Raises:
            CorruptionError: it does not consist of whole entries.
        """
        return self._index(OffsetIndex, INDEX_SUFFIX)

    @property
    def time_index(self) -> TimeIndex | None:
        """The time index beside the file; like :attr:`offset_index`."""
        return self._index(TimeIndex, TIME_INDEX_SUFFIX)

    def _index(self, kind: type[_IndexT], suffix: str) -> _IndexT | None:
        path = self._path_beside(suffix)
        return None if path is None else kind.open(path, base_offset=self.base_offset, files=self._files)

    @property
    def transaction_index(self) -> AbortedTransactions | None:
        """The aborted transactions whose markers are in the file, in the order of the markers: a tuple of
        :class:`~logstore.model.AbortedTransaction`. None if there is no transaction index.

        Raises:
            CorruptionError: its entries are damaged.
        """
        path = self._path_beside(TRANSACTION_INDEX_SUFFIX)
        return None if path is None else TransactionIndex.open(self._files, path, self.base_offset).entries

    def _path_beside(self, suffix: str) -> str | None:
        path = self._opened.path_of(suffix)
        return path if self._files.is_file(path) else None

    # Checks

    def check(self) -> VerifyReport:
        """Check every batch with its records and offsets, and the indexes against them. The report is true if
        nothing is wrong: ``assert segment.check()``. Damage is not raised: each finding has path, position,
        reason and next step, and ``print(segment.check())`` shows them.

        A problem in a growing file is reported only if two looks find it in the same place. Bytes after the
        last whole batch are a problem here: without the log, a torn end and lost data look the same. Cost:
        reading the file once, twice if something is wrong; ``docs/verify.md`` has the rates.
        """
        self._opened  # noqa: B018  # or it is closed
        return verify_log(self._facts, SystemClock(), segments_alone=True)

    def _facts(self) -> LogFacts:
        base, size_bytes = self.base_offset, self._opened.size_bytes
        return LogFacts(
            files=self._files,
            directory=self._names.directory,
            segments=[SegmentToCheck(base, None, None, alone=self._names)],
            log_bytes=size_bytes,
            names={},
            log_start_offset=base,
            log_end_offset=None,
            recovery_point=base,
            trusted_end=EVERYTHING,
            dense_from=None,
            notes_gaps=True,
            index_interval_bytes=_INTERVAL_BYTES,
            index_limit_bytes=_INDEX_LIMIT_BYTES,
            epochs=None,
            producers=None,
            stamp=size_bytes,
        )


def _first_offset(file: File) -> int:
    """The offset of the first record of a file; 0 if there is no batch."""
    try:
        header = decode_header(file.read_at(0, HEADER_BYTES))
        if not ends_at_base(header):
            return max(header.base_offset, 0)
        first = decode_batch(file.read_at(0, header.size_bytes), 0, header)
        return max(first[0].offset, 0) if first else 0
    except CorruptionError:
        return 0
