"""Reads a log as columns of Apache Arrow.

It makes the same promises as :mod:`~logstore.partition.reading.records`, which returns single records: a
batch's CRC, structure and place among its neighbours are verified; control records and, for committed reads,
records of aborted transactions are left out. Ordinary batches go from the file's bytes into the columns in
compiled code, with one copy and many batches at once. A batch that is compressed, legacy, transactional or
damaged is handled here, one at a time.

This is the only module of the layer that imports pyarrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from logstore._version import how_to_install
from logstore.arguments import plain_text, shown
from logstore.errors import CorruptionError, UsageError
from logstore.format.batch import decode_batch, decode_range
from logstore.format.column_buffers import (
    MAX_COLUMN_BYTES,
    BinaryBuffers,
    Ended,
    FinishedBuffers,
    Wanted,
)
from logstore.format.header import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, decode_header
from logstore.format.loops import Columns, scan_batches
from logstore.model import Bytes, Isolation, Record
from logstore.partition.arguments import check_count
from logstore.partition.reading.place import Place, is_cut
from logstore.partition.reading.records import (
    AbortedFilter,
    TellingOfTruncation,
    aborted_for,
    section_of,
    start_position,
    take_section,
)
from logstore.partition.reading.times import TimeSpan
from logstore.partition.reading.view import LogView
from logstore.partition.segments.segment import Segment

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ImportError(
        f"reading and writing columns needs pyarrow: {how_to_install('arrow')} ({error})"
    ) from None

PIECE_BYTES: Final = 512 * 1024
"""The size of one read from a file: its bytes are checked and copied from the processor's second-level cache.
Sizes from 256 KiB to 1 MiB made no difference; two batches of the default size fit."""

MOST_PIECE_BYTES: Final = 2 * 1024 * 1024
"""The largest such read, when a batch takes more than that."""

_BASE_OFFSET_BYTES = 8

_HEADER_TYPE = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
_HEADERS_TYPE = pa.list_(pa.field("item", _HEADER_TYPE, nullable=False))

__all__ = ["FIELDS", "ColumnPlan", "iterate_columns", "pa", "pc", "plan_columns", "reader_of"]

FIELDS: Final = (
    (pa.field("offset", pa.int64(), nullable=False), Wanted.OFFSET),
    (pa.field("timestamp_ms", pa.int64(), nullable=False), Wanted.TIMESTAMP),
    (pa.field("key", pa.binary()), Wanted.KEY),
    (pa.field("value", pa.binary()), Wanted.VALUE),
    (pa.field("headers", _HEADERS_TYPE, nullable=False), Wanted.HEADERS),
)
"""The columns of a read, in their order, each with its field of a record."""

_TIMESTAMP: Final = FIELDS[1]

TIME: Final = (pa.field("timestamp", pa.timestamp("ms", "UTC")), Wanted.TIMESTAMP)
"""A column of a read that must be named: ``timestamp_ms`` in Arrow's type for times; null if a record has
none. It shares the memory of the numbers."""

TIMESTAMP_TYPE: Final = (pa.field("timestamp_type", pa.int32(), nullable=False), Wanted.TIMESTAMP_TYPE)
"""Another: what few ask for."""

_STORED_FIELDS: Final = (*FIELDS, TIMESTAMP_TYPE)
"""In the order in which buffers and rows have them."""


class ColumnPlan(NamedTuple):
    """The columns that a read returns, and how large a batch of them may be."""

    schema: Any
    """The pyarrow schema."""
    wanted: Wanted
    row_limit: int
    byte_limit: int


def plan_columns(
    columns: Iterable[str] | None, batch_rows: int, batch_bytes: int, *, has_types: bool = True
) -> ColumnPlan:
    """Check the arguments of a read. ``has_types``: whether the rows come from batches, which know the type
    of their timestamps.

    Raises:
        UsageError: an unknown column, one that is named twice, none at all, or a limit below 1.
    """
    check_count(batch_rows, "batch_rows")
    check_count(batch_bytes, "batch_bytes")
    known = {field.name: (field, wanted) for field, wanted in FIELDS}
    names = list(known)
    known[TIME[0].name] = TIME
    if has_types:
        known[TIMESTAMP_TYPE[0].name] = TIMESTAMP_TYPE
    if columns is not None:
        names = _column_names(columns, known)
    wanted = Wanted(0)
    for name in names:
        wanted |= known[name][1]
    schema = pa.schema([known[name][0] for name in names])
    return ColumnPlan(schema, wanted, min(batch_rows, MAX_COLUMN_BYTES), min(batch_bytes, MAX_COLUMN_BYTES))


def _column_names(columns: Any, known: Iterable[str]) -> list[str]:
    if isinstance(columns, str | bytes | bytearray | memoryview) or not isinstance(columns, Iterable):
        raise UsageError(f"columns is {shown(columns)}; it must be a list of column names")
    names = [plain_text(name) for name in columns]
    for number, name in enumerate(names):
        if not isinstance(name, str) or plain_text(name) not in known:
            raise UsageError(f"there is no column {shown(name)}; the columns are {', '.join(known)}")
        if name in names[:number]:
            raise UsageError(f"column {shown(name)} is named twice")
    if not names:
        raise UsageError("columns is empty; name at least one")
    return names


# From batches to columns ------------------------------------------------------------------------------------


def iterate_columns(
    view: LogView, start: int, stop: int, isolation: Isolation, plan: ColumnPlan
) -> Iterator[tuple[Any, int]]:
    """The records of ``[start, stop)`` as pyarrow record batches within the plan's limits, each with the
    offset to go on from.

    Raises:
        CorruptionError: a batch is damaged; everything before it was returned.
        OffsetOutOfRangeError: the log was truncated meanwhile.
    """
    if start >= stop:
        return
    reader = _ColumnReader(view, start, stop, isolation, plan)
    try:
        with TellingOfTruncation(view):
            try:
                for _ in reader.fill():
                    yield from reader.finish()
            except CorruptionError:
                if not view.was_truncated:
                    yield from reader.finish()
                raise
            yield from reader.finish()
    finally:
        reader.close()


def columns_of_lists(lists: Iterable[list[Record]], plan: ColumnPlan) -> Iterator[Any]:
    """The records as pyarrow record batches within the plan's limits; none is empty.

    Raises:
        CorruptionError: a batch of the log is damaged; everything before it was returned.
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


_rooms: list[bytearray] = []
"""A buffer for the next reader, at most one: new pages cost more than reading into them."""


def _spare_room() -> bytearray:
    try:
        return _rooms.pop()
    except IndexError:  # or another thread took it
        return bytearray()


class _ColumnReader:
    """One pass over a view. It fills columns and stops each time they are full."""

    def __init__(self, view: LogView, start: int, stop: int, isolation: Isolation, plan: ColumnPlan) -> None:
        self._view = view
        self._start = start
        self._stop = stop
        self._plan = plan
        self._aborted = AbortedFilter(aborted_for(view, start, stop, isolation))
        self._columns = Columns(plan.wanted)
        self._room = memoryview(_spare_room())
        self._place = Place(view, 0)

    def close(self) -> None:
        """Leave the buffer to the next reader."""
        room = self._room.obj
        if isinstance(room, bytearray) and len(room) <= MOST_PIECE_BYTES and not _rooms:
            _rooms.append(room)

    def finish(self) -> Iterator[tuple[Any, int]]:
        """The filled columns in batches within the limits, each with the offset behind them all."""
        plan, columns = self._plan, self._columns
        if not columns.row_count:
            return
        is_small = columns.row_count <= plan.row_limit and columns.used_bytes <= plan.byte_limit
        batch = record_batch(columns.finish(), plan.schema)
        after = self._place.previous_last + 1
        if is_small:
            yield batch, after
            return
        for part in split(batch, plan.row_limit, plan.byte_limit):
            yield part, after

    def fill(self) -> Iterator[None]:
        """Take in the batches, and yield when the columns must be finished first."""
        view = self._view
        for number in range(view.floor(self._start), len(view.segments)):
            if view.bases[number] >= self._stop:
                return
            self._place = Place(view, number)
            is_done = yield from self._fill_from_segment()
            if is_done:
                return

    def _fill_from_segment(self) -> Generator[None, None, bool]:
        """Returns whether ``stop`` was reached."""
        segment, end = self._place.segment, self._place.end
        position = start_position(segment, self._start)
        size = self._first_piece_bytes(position, end)
        while end - position >= PREFIX_BYTES:
            piece = _Piece(self._read(segment, position, min(size, end - position)), position, end - position)
            stopped, at = yield from self._fill_from_piece(piece)
            if stopped is Ended.IS_DONE:
                return True
            position += at
            size = _next_size(at, size) if at > 0 else _size_of_large_batch(piece, min(size, end - position))
            if not size:
                break
        self._place.check_end(position)
        return False

    def _read(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        """A piece of the file, in memory that the next piece overwrites."""
        if len(self._room) < size_bytes:
            self._room = memoryview(bytearray(size_bytes))
        room = self._room[:size_bytes]
        return room[: segment.read_into(position, room)]

    def _first_piece_bytes(self, position: int, end: int) -> int:
        """The size of the first piece: for a short read all it needs, by the index; else a whole piece."""
        index = self._place.segment.offset_index
        wanted = index.end_position(self._stop - 1, end) - position + PREFIX_BYTES
        return max(min(wanted, PIECE_BYTES), HEADER_BYTES)

    def _fill_from_piece(self, piece: _Piece) -> Generator[None, None, tuple[Ended, int]]:
        """Take in the whole batches of a piece. Returns why it ended and the position of the next batch."""
        plan, place, at = self._plan, self._place, 0
        while True:
            ended, at, place.previous_last = self._columns.take_batches(
                piece.buffer,
                at,
                len(piece.buffer),
                piece.segment_end,
                place.next_segment,
                place.previous_last,
                self._start,
                self._stop,
                plan.row_limit,
                plan.byte_limit,
                self._aborted.has_any,
            )
            if ended == Ended.IS_FULL:
                yield
            elif ended == Ended.IS_DONE:
                return Ended.IS_DONE, at
            elif ended == Ended.NEEDS_MORE and (at == len(piece.buffer) or (at > 0 and not piece.is_last)):
                return Ended.NEEDS_MORE, at
            else:
                return (yield from self._take_one_by_one(piece, at))

    # Batches that are not ordinary

    def _take_one_by_one(self, piece: _Piece, at: int) -> Generator[None, None, tuple[Ended, int]]:
        """Like :meth:`_fill_from_piece`, from a position on, for batches of any kind."""
        place = self._place
        batches, stop, fault = scan_batches(piece.buffer, at, len(piece.buffer), check=False)
        bases = [header.base_offset for _, header in batches[1:]]
        if batches:
            bases.append(place.base_behind(piece.buffer, stop, piece.position))
        for (position, header), next_base in zip(batches, bases, strict=True):
            place.check(header, piece.position + position, next_base)
            if place.first_offset(header) >= self._stop:
                return Ended.IS_DONE, position
            if next_base > self._start:  # it may hold the start, even if its last offset says no
                place.check_contents(header, piece.buffer, position, piece.position)
            if header.last_offset >= self._start:
                try:
                    yield from self._take_batch(_FoundBatch(piece.buffer, position, header))
                except CorruptionError as error:
                    raise self._located(error, piece) from None
            place.previous_last = header.last_offset
            if header.next_offset >= self._stop:
                return Ended.IS_DONE, position + header.size_bytes
        if fault is not None:
            raise self._located(fault, piece)
        return Ended.NEEDS_MORE, stop

    def _take_batch(self, found: _FoundBatch) -> Iterator[None]:
        """Append the rows of a checked batch; yields first if they may pass a limit."""
        header = found.header
        if self._aborted.hides(header, found) or header.is_control:
            return
        section = section_of(*found) if header.magic == MAGIC else None
        if section is not None:
            _, at, end = section
            if self._is_too_much(header.record_count, end - at):
                yield
            if take_section(self._columns, section, header, self._start, self._stop):
                return
        records = self._decode(found)
        if self._is_too_much(len(records), sum(map(_payload_bytes, records))):
            yield
        append_row, kind = self._columns.append_row, int(header.timestamp_type)
        for record in records:
            append_row(*record, kind)

    def _decode(self, found: _FoundBatch) -> list[Record]:
        if is_cut(found.header, self._start, self._stop):
            return decode_range(found.buffer, found.position, found.header, self._start, self._stop)
        return found.decode()

    def _is_too_much(self, row_count: int, size_bytes: int) -> bool:
        columns, plan = self._columns, self._plan
        return columns.row_count > 0 and (
            columns.row_count + row_count > plan.row_limit
            or columns.used_bytes + size_bytes > plan.byte_limit
        )

    def _located(self, fault: CorruptionError, piece: _Piece) -> CorruptionError:
        return fault.located(self._place.segment.path, piece.position)


class _Piece(NamedTuple):
    """Some bytes of a segment, starting at a batch."""

    buffer: memoryview
    position: int
    """Where it begins in the file."""
    segment_end: int
    """Where the segment ends, counted from ``position``."""

    @property
    def is_last(self) -> bool:
        """Whether the piece reaches the segment's end."""
        return len(self.buffer) >= self.segment_end


class _FoundBatch(NamedTuple):
    """A checked batch in a piece."""

    buffer: memoryview
    position: int
    header: BatchHeader

    def decode(self) -> list[Record]:
        return decode_batch(self.buffer, self.position, self.header)


def _next_size(taken_bytes: int, size_bytes: int) -> int:
    """The size of the next read, after a piece with ``taken_bytes`` of whole batches. Batches are often of
    one size, so it is a little more than that, and few bytes are read twice."""
    if taken_bytes < size_bytes // 2:
        return PIECE_BYTES
    most_bytes = PIECE_BYTES if size_bytes <= PIECE_BYTES else MOST_PIECE_BYTES
    return min(taken_bytes + taken_bytes // 32 + HEADER_BYTES, most_bytes)


def _size_of_large_batch(piece: _Piece, asked_bytes: int) -> int:
    """The size to read for a batch that is not whole in the piece; 0 if it is not whole in the segment."""
    if len(piece.buffer) < max(asked_bytes, HEADER_BYTES):
        return 0
    wanted = decode_header(piece.buffer).size_bytes
    return 0 if wanted > piece.segment_end else wanted + PREFIX_BYTES


def _payload_bytes(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


def reader_of(plan: ColumnPlan, batches: Iterator[Any]) -> Any:
    """A pyarrow RecordBatchReader of record batches."""
    return pa.RecordBatchReader.from_batches(plan.schema, batches)


# A range of times


def with_timestamps(plan: ColumnPlan) -> ColumnPlan:
    """The plan with a timestamp column, which a read by times needs even if the caller does not."""
    field, wanted = _TIMESTAMP
    if field.name in plan.schema.names:
        return plan
    return plan._replace(schema=plan.schema.append(field), wanted=plan.wanted | wanted)


def within(batches: Iterable[Any], span: TimeSpan, plan: ColumnPlan) -> Iterator[Any]:
    """The rows within a range of times, in the columns of a plan."""
    for batch in batches:
        stamps = batch.column(_TIMESTAMP[0].name)
        is_within = pc.and_(pc.greater_equal(stamps, span.low_ms), pc.less(stamps, span.high_ms))
        kept = batch if is_within.true_count == len(batch) else batch.filter(is_within)
        if kept.num_rows:
            yield kept.select(plan.schema.names)


# The partitions of a topic

PARTITION: Final = pa.field("partition", pa.int32(), nullable=False)


def names_of_topic(columns: Iterable[str] | None) -> list[str]:
    """The columns of a read of all partitions, checked.

    Raises:
        UsageError: as :func:`plan_columns`.
    """
    names = [PARTITION.name, *(field.name for field, _ in FIELDS)]
    return (
        names if columns is None else _column_names(columns, [*names, TIME[0].name, TIMESTAMP_TYPE[0].name])
    )


def names_of_log(names: list[str]) -> list[str]:
    """The columns to read from each partition for those of a topic; at least one, to count the rows."""
    return [name for name in names if name != PARTITION.name] or [FIELDS[0][0].name]


def joined(readers: Sequence[tuple[int, Any]], names: list[str]) -> Any:
    """One reader of (partition, its reader), one after the other, with the partition as a column."""
    known = {field.name: field for field in (PARTITION, TIME[0], *(field for field, _ in _STORED_FIELDS))}
    schema = pa.schema([known[name] for name in names])
    return pa.RecordBatchReader.from_batches(schema, _joined(readers, schema))


def _joined(readers: Sequence[tuple[int, Any]], schema: Any) -> Iterator[Any]:
    for number, reader in readers:
        for batch in reader:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            if PARTITION.name in schema.names:
                columns[PARTITION.name] = pa.repeat(pa.scalar(number, PARTITION.type), batch.num_rows)
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


# From columns to Arrow --------------------------------------------------------------------------------------


def record_batch(finished: tuple[Any, ...], schema: Any) -> Any:
    """A record batch from :class:`.FinishedBuffers`. This needs no Python list: ``pa.array`` of a list
    imports pandas if it is installed, which takes a new process 1.5 s."""
    arrays = _arrays_of_buffers(FinishedBuffers._make(finished))
    columns = dict(zip([field.name for field, _ in _STORED_FIELDS], arrays, strict=True))
    if TIME[0].name in schema.names:
        columns[TIME[0].name] = _times_of(columns[_TIMESTAMP[0].name])
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def empty_batch(schema: Any) -> Any:
    """A record batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _arrays_of_buffers(finished: FinishedBuffers) -> list[Any]:
    rows = finished.row_count
    return [
        _number_array(pa.int64(), rows, finished.offsets),
        _number_array(pa.int64(), rows, finished.timestamps),
        _binary_array(pa.binary(), rows, finished.keys),
        _binary_array(pa.binary(), rows, finished.values),
        None if finished.header_ends is None else _headers_array(finished),
        _number_array(pa.int32(), rows, finished.timestamp_types),
    ]


def _number_array(kind: Any, row_count: int, buffer: Bytes | None) -> Any:
    return None if buffer is None else pa.Array.from_buffers(kind, row_count, [None, pa.py_buffer(buffer)], 0)


def _times_of(stamps: Any) -> Any:
    """Milliseconds as times, in the same memory; those below 0 are none."""
    are_times = pc.greater_equal(stamps, 0)
    null_count = len(stamps) - (are_times.true_count or 0)
    validity = are_times.buffers()[1] if null_count else None
    return pa.Array.from_buffers(TIME[0].type, len(stamps), [validity, stamps.buffers()[1]], null_count)


def _binary_array(kind: Any, row_count: int, column: tuple[Any, ...] | None) -> Any:
    if column is None:
        return None
    null_count, validity, ends, data = BinaryBuffers._make(column)
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, row_count, buffers, null_count)


def _headers_array(finished: FinishedBuffers) -> Any:
    count = finished.header_count
    keys = _binary_array(pa.string(), count, finished.header_keys)
    values = _binary_array(pa.binary(), count, finished.header_values)
    pairs = pa.Array.from_buffers(_HEADER_TYPE, count, [None], 0, children=[keys, values])
    ends = pa.py_buffer(finished.header_ends)
    return pa.Array.from_buffers(_HEADERS_TYPE, finished.row_count, [None, ends], 0, children=[pairs])


def split(batch: Any, row_limit: int, byte_limit: int) -> Iterator[Any]:
    """The batch in parts within the limits, each of at least one row; they share its memory."""
    parts = [batch]
    while parts:
        part = parts.pop()
        if part.num_rows > 1 and (part.num_rows > row_limit or part.nbytes > byte_limit):
            middle = part.num_rows // 2 if part.num_rows <= 2 * row_limit else row_limit
            parts += [part.slice(middle), part.slice(0, middle)]
        else:
            yield part
