"""Reading a log: batches and records from an offset on, raw fetches, lookups by time.

Everything works on a :class:`~logstore.partition.view.LogView` and takes no lock. What it returns is checked:
the CRC-32C of each batch, and against its neighbours what the CRC does not cover. Batches follow each other
with rising offsets, so a base offset that was changed on disk overlaps the batch before or after it, or
leaves its segment; with either it is refused. To have a neighbour in front, a walk begins one index entry
early.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from logstore.errors import CorruptionError, OffsetOutOfRangeError
from logstore.format.batch import decode_batch, decode_range
from logstore.format.header import HEADER_BYTES, MAGIC, PREFIX_BYTES, UNKNOWN_COUNT, BatchHeader, check_batch
from logstore.format.index import collect_aborted
from logstore.model import NO_TIMESTAMP_MS, AbortedTransaction, Isolation, OffsetAndTimestamp, Record
from logstore.partition.segment import Segment
from logstore.partition.transactions import AbortedFilter
from logstore.partition.view import LogView
from logstore.partition.walk import FIRST_PIECE_BYTES, PIECE_BYTES, Piece

_BASE_OFFSET_BYTES = 8
_SHORT_READ_BYTES = PIECE_BYTES // 2


class FoundBatch(NamedTuple):
    """A checked batch in a buffer."""

    buffer: bytes
    position: int
    header: BatchHeader

    def decode(self) -> list[Record]:
        return decode_batch(self.buffer, self.position, self.header)


class Fetched(NamedTuple):
    """The answer of a fetch: whole batches as they are on disk, the first of which holds the offset asked for
    (drop the records below it), and what a consumer needs to know beside them."""

    data: bytes
    next_offset: int
    """Where the next fetch begins."""
    aborted: tuple[AbortedTransaction, ...]
    """For :attr:`Isolation.COMMITTED`: transactions to leave out; empty otherwise."""
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


# Batches ----------------------------------------------------------------------------------------------------


def iterate_batches(view: LogView, start: int, stop: int) -> Iterator[FoundBatch]:
    """Every batch that overlaps ``[start, stop)``, in order.

    Raises:
        CorruptionError: a batch that would be returned, or one beside it, is damaged.
    """
    for number in range(view.floor(start), len(view.segments)):
        if view.bases[number] >= stop:
            return
        yield from _iterate_segment(view, number, start, stop)


def _iterate_segment(view: LogView, number: int, start: int, stop: int) -> Iterator[FoundBatch]:
    """The batches of one segment."""
    return iter(_SegmentReader(view, number, start, stop))


def _start_position(segment: Segment, start: int) -> int:
    """A position from which a walk meets the batch before the one that holds ``start``, if there is one."""
    if start <= segment.base_offset:
        return 0
    return segment.position_before(segment.offset_index.lookup(start).offset - 1)


class _SegmentReader:
    """The checked batches of one segment between two offsets."""

    def __init__(self, view: LogView, number: int, start: int, stop: int) -> None:
        self._segment = view.segments[number]
        self._start = start
        self._stop = stop
        self._end = view.size_of(number)
        self._next_segment = view.next_base(number)
        self._is_sealed = number + 1 < len(view.segments)
        position = _start_position(self._segment, start)
        self._walk = self._segment.walk(
            position, self._end, check=False, piece_bytes=self._first_piece_bytes(position, stop)
        )
        self._piece: Piece | None = None
        self._previous_last = self._segment.base_offset - 1

    def _first_piece_bytes(self, position: int, stop: int) -> int:
        """What a short read needs in all, as the index knows; a long one begins small."""
        wanted = self._segment.offset_index.end_position(stop - 1, self._end) - position + PREFIX_BYTES
        return max(wanted, HEADER_BYTES) if wanted <= _SHORT_READ_BYTES else FIRST_PIECE_BYTES

    def __iter__(self) -> Iterator[FoundBatch]:
        for piece in self._walk:
            self._piece = piece
            batches = piece.batches
            for number, (position, header) in enumerate(batches):
                first_offset = self._previous_last + 1 if _ends_at_base(header) else header.base_offset
                is_last = number + 1 == len(batches)
                next_base = self._base_after_piece() if is_last else batches[number + 1][1].base_offset
                self._check_place(header, position, next_base)
                if first_offset >= self._stop:
                    return
                if next_base > self._start:  # it may hold the start, whatever it says of its last offset
                    self._check_contents(header, position)
                if header.last_offset >= self._start:
                    yield FoundBatch(piece.buffer, position, header)
                    if header.next_offset >= self._stop:
                        return
        self._check_end()

    def _check_place(self, header: BatchHeader, position: int, next_base: int) -> None:
        """The neighbours and the segment bound the offsets, which the CRC does not cover."""
        if self._previous_last < header.base_offset and header.last_offset < next_base:
            self._previous_last = header.last_offset
            return
        raise self._fault(
            f"batch of offsets {header.base_offset} to {header.last_offset} does not fit between "
            f"{self._previous_last} and {next_base}",
            header,
            position,
        )

    def _check_contents(self, header: BatchHeader, position: int) -> None:
        assert self._piece is not None
        try:
            check_batch(self._piece.buffer, position, header)
        except CorruptionError as error:
            raise error.located(self._segment.path, self._piece.position) from None

    def _base_after_piece(self) -> int:
        """The base offset of the batch that follows the piece, or of the next segment."""
        piece = self._piece
        assert piece is not None
        after = piece.position + piece.end
        if self._end - after < PREFIX_BYTES:
            return self._next_segment
        raw = piece.buffer[piece.end : piece.end + _BASE_OFFSET_BYTES]
        if len(raw) < _BASE_OFFSET_BYTES:
            raw = self._segment.read_at(after, _BASE_OFFSET_BYTES)
        return int.from_bytes(raw, "big", signed=True)

    def _check_end(self) -> None:
        """The walk must have used up what the view says is there."""
        if self._walk.fault is not None:
            raise self._walk.fault.located(self._segment.path)
        if self._walk.position < self._end:
            raise CorruptionError(
                f"the batch is incomplete: {self._end - self._walk.position} bytes are left",
                path=self._segment.path,
                position=self._walk.position,
                base_offset=self._previous_last + 1,
            )
        last_expected = self._next_segment - 1
        if self._is_sealed and self._previous_last < last_expected and self._segment.promises(last_expected):
            raise CorruptionError(
                "the segment lost its end",
                path=self._segment.path,
                position=self._end,
                base_offset=self._previous_last + 1,
                last_offset=last_expected,
            )

    def _fault(self, reason: str, header: BatchHeader, position: int) -> CorruptionError:
        assert self._piece is not None
        return CorruptionError(
            reason,
            path=self._segment.path,
            position=self._piece.position + position,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
        )


def _ends_at_base(header: BatchHeader) -> bool:
    """Whether the batch is a compressed legacy entry: its base offset is that of its last record, and only
    decompressing it tells the first."""
    return header.magic < MAGIC and header.record_count == UNKNOWN_COUNT


# Records ----------------------------------------------------------------------------------------------------


def iterate_records(view: LogView, start: int, stop: int, isolation: Isolation) -> Iterator[Record]:
    """The records of ``[start, stop)`` without control records, and for :attr:`Isolation.COMMITTED` without
    those of aborted transactions."""
    with _telling_of_truncation(view):
        aborted = AbortedFilter(
            aborted_transactions(view, start, stop) if isolation is Isolation.COMMITTED else ()
        )
        for found in iterate_batches(view, start, stop):
            if aborted.hides(found.header, found) or found.header.is_control:
                continue
            header = found.header
            if header.base_offset < start or header.last_offset >= stop or _ends_at_base(header):
                records = decode_range(found.buffer, found.position, header, start, stop)
            else:
                records = _decode(view, found)
            yield from records


@contextmanager
def _telling_of_truncation(view: LogView) -> Iterator[None]:
    """Bytes that are missing or wrong because the log was truncated during the read are no damage."""
    try:
        yield
    except CorruptionError:
        if view.was_truncated:
            raise OffsetOutOfRangeError("the log was truncated while it was read; read it again") from None
        raise


def _decode(view: LogView, found: FoundBatch) -> list[Record]:
    try:
        return found.decode()
    except CorruptionError as error:
        error.base_offset = found.header.base_offset
        error.last_offset = found.header.last_offset
        raise error.located(view.segments[view.floor(found.header.base_offset)].path) from None


def aborted_transactions(view: LogView, start: int, stop: int) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions with records in ``[start, stop)``, oldest first offset first."""
    found: list[AbortedTransaction] = []
    for number in range(view.floor(start), len(view.segments)):
        entries = view.segments[number].read_transaction_index().entries
        collected, is_complete = collect_aborted(entries, start, stop)
        found += collected
        if is_complete:
            break
    return tuple(sorted(found, key=lambda entry: entry.first_offset))


# Raw fetches ------------------------------------------------------------------------------------------------


def fetch(view: LogView, start: int, max_bytes: int, isolation: Isolation, *, min_one_batch: bool) -> Fetched:
    """Whole batches from the one that holds ``start`` on, of one segment, up to ``max_bytes``.

    With ``min_one_batch`` the first batch comes even if it is larger.
    """
    view.check_in_range(start)
    limit = view.limit_of(isolation)
    aborted: tuple[AbortedTransaction, ...] = ()
    with _telling_of_truncation(view):
        data, next_offset = _collect_batches(view, start, limit, max_bytes, min_one_batch)
        if data and isolation is Isolation.COMMITTED:
            aborted = aborted_transactions(view, start, next_offset)
    return Fetched(
        data, next_offset, aborted, view.log_start_offset, view.high_watermark, view.last_stable_offset
    )


def _collect_batches(
    view: LogView, start: int, limit: int, max_bytes: int, min_one_batch: bool
) -> tuple[bytes, int]:
    """Joined batches and the offset after them; from the first segment that has any (a segment may end in a
    gap)."""
    for number in range(view.floor(start), len(view.segments)):
        parts: list[memoryview] = []
        size = 0
        next_offset = start
        for found in _iterate_segment(view, number, start, limit):
            batch_bytes = found.header.size_bytes
            if found.header.last_offset >= limit:
                break  # whole batches only, and part of this one may not be seen yet
            if size + batch_bytes > max_bytes and (parts or not min_one_batch):
                break
            parts.append(memoryview(found.buffer)[found.position : found.position + batch_bytes])
            size += batch_bytes
            next_offset = found.header.next_offset
        if parts:
            return b"".join(parts), next_offset
    return b"", start


# Lookups by time --------------------------------------------------------------------------------------------


def find_timestamp(view: LogView, timestamp_ms: int) -> OffsetAndTimestamp | None:
    """The first record with a timestamp at or after ``timestamp_ms``, at or above the log start offset."""
    with _telling_of_truncation(view):
        for number, segment in enumerate(view.segments):
            is_active = number == len(view.segments) - 1
            if not is_active and segment.largest_timestamp.timestamp_ms < timestamp_ms:
                continue
            found = _find_timestamp_in(view, number, timestamp_ms)
            if found is not None:
                return found
    return None


def _find_timestamp_in(view: LogView, number: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
    segment = view.segments[number]
    start = max(_time_hint(segment, timestamp_ms), view.log_start_offset)
    for found in _iterate_segment(view, number, start, view.next_base(number)):
        if found.header.max_timestamp_ms < timestamp_ms or found.header.is_control:
            continue
        for record in _decode(view, found):
            if record.timestamp_ms >= timestamp_ms and record.offset >= view.log_start_offset:
                return _answer(record, found.header)
    return None


def _time_hint(segment: Segment, timestamp_ms: int) -> int:
    """An offset in front of which no record of the segment has the timestamp. What the index says is held
    against the batch it names; if they differ, both indexes are rebuilt."""
    hint = segment.time_index.lookup(timestamp_ms - 1)
    if hint.timestamp_ms < 0:
        return segment.base_offset
    if segment.confirms(hint, segment.size_bytes):
        return hint.offset
    if segment.rebuild_indexes():
        return segment.time_index.lookup(timestamp_ms - 1).offset
    return segment.base_offset


def find_max_timestamp(view: LogView) -> OffsetAndTimestamp | None:
    """The first record that carries the largest timestamp of the log; None if there is no record with one.

    Cost: that of :func:`find_timestamp`; a pass over a segment if its largest timestamp is not that of a
    record, but of a marker, of a batch that compaction emptied, or of what lies below the log start.
    """
    best: OffsetAndTimestamp | None = None
    with _telling_of_truncation(view):
        bounds = [
            (segment.largest_timestamp.timestamp_ms, number) for number, segment in enumerate(view.segments)
        ]
        for bound_ms, number in sorted(bounds, reverse=True):
            if bound_ms <= NO_TIMESTAMP_MS or (best is not None and bound_ms < best.timestamp_ms):
                break
            found = _find_timestamp_in(view, number, bound_ms) or _find_largest_in(view, number)
            best = max(
                filter(None, (best, found)), key=lambda it: (it.timestamp_ms, -it.offset), default=None
            )
    return best


def _find_largest_in(view: LogView, number: int) -> OffsetAndTimestamp | None:
    """The first record of a segment with its largest timestamp, by reading every batch that may hold it."""
    best: OffsetAndTimestamp | None = None
    for found in _iterate_segment(view, number, view.log_start_offset, view.next_base(number)):
        header = found.header
        best_ms = NO_TIMESTAMP_MS if best is None else best.timestamp_ms
        if header.max_timestamp_ms <= best_ms or header.is_control:
            continue
        for record in _decode(view, found):
            if record.timestamp_ms > best_ms and record.offset >= view.log_start_offset:
                best_ms = record.timestamp_ms
                best = _answer(record, header)
    return best


def _answer(record: Record, header: BatchHeader) -> OffsetAndTimestamp:
    epoch = header.partition_leader_epoch
    return OffsetAndTimestamp(record.offset, record.timestamp_ms, epoch if epoch >= 0 else None)
