"""Reading a log: batches and records from an offset on, raw fetches, lookups by time.

Everything works on a :class:`~logstore.partition.reading.view.LogView` and takes no lock. All that is
returned is checked: each batch by its CRC-32C, and what the CRC does not cover by its neighbours. Batches
follow each other with rising offsets, so a base offset that was changed on disk overlaps the batch before or
after it, or leaves its segment, and is refused. A walk begins one index entry early, so that the first batch
has a neighbour in front.

Records are passed on in lists, one for some tens of KiB of the log: an iterator over ready lists runs in C,
while a generator costs more for each record than decoding it. The compiled module checks, places and decodes
whole runs of ordinary batches in one call. It stops in front of any other batch (compressed, legacy,
damaged), and the careful code here takes that batch by batch.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from logstore.errors import CorruptionError, OffsetOutOfRangeError, StorageError
from logstore.format import batch as batches
from logstore.format.control import ControlType, decode_control_record
from logstore.format.header import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    PREFIX,
    PREFIX_BYTES,
    BatchHeader,
)
from logstore.format.index import NONE_ABORTED, AbortedTransactions
from logstore.format.loops import RUN_CUT, RUN_DONE, RUN_FULL, Columns, read_run, scan_batches
from logstore.model import (
    NO_TIMESTAMP_MS,
    Bytes,
    Isolation,
    OffsetAndTimestamp,
    Record,
    TimestampType,
    TopicPartition,
)
from logstore.partition.reading.place import Place, is_cut
from logstore.partition.reading.view import LogView
from logstore.partition.segments.segment import Segment
from logstore.partition.segments.walk import FIRST_PIECE_BYTES


class _Decodable(Protocol):
    def decode(self) -> list[Record]: ...


class AbortedEntry(Protocol):
    """From when on a producer's batches are of an aborted transaction."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class AbortedFilter:
    """Says of each batch, in offset order, whether it belongs to an aborted transaction."""

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._open: set[int] = set()
        self.has_any = bool(self._waiting)
        """Whether any batch may be hidden at all."""

    def hides(self, header: BatchHeader, batch: _Decodable) -> bool:
        """Whether a reader must not see the batch. A control batch is never hidden here: an abort marker ends
        its transaction, and readers do not get control batches anyway."""
        while self._waiting and self._waiting[0].first_offset <= header.last_offset:
            self._open.add(self._waiting.popleft().producer_id)
        if not header.is_transactional or header.producer_id not in self._open:
            return False
        if not header.is_control:
            return True
        if decode_control_record(batch.decode()[0]).control_type is ControlType.ABORT:
            self._open.discard(header.producer_id)
        return False


RUN_BYTES: Final = 64 * 1024
"""A list of records ends when it covers this much of the log: its memory then stays in the processor's cache
until its last record is used."""

PIECE_BYTES: Final = 512 * 1024
"""The size of one read of the file, unless a batch is larger. The speed is the same from 128 KiB to 1 MiB. A
record on demand keeps this much in memory, and batches of the default size fit in."""

_SHORT_READ_BYTES = PIECE_BYTES // 2


class FoundBatch(NamedTuple):
    """A checked batch in a buffer."""

    buffer: Bytes
    position: int
    header: BatchHeader
    path: str
    """The path of the file that the buffer is a piece of."""
    piece_position: int
    """The position in the file where the buffer begins."""
    partition: TopicPartition | None

    def decode(self) -> list[Record]:
        """All records."""
        try:
            return batches.decode_batch(self.buffer, self.position, self.header, partition=self.partition)
        except CorruptionError as error:
            raise self._located(error) from None

    def decode_range(self, start: int, stop: int) -> list[Record]:
        """The records with offsets in ``[start, stop)``."""
        try:
            return batches.decode_range(
                self.buffer, self.position, self.header, start, stop, partition=self.partition
            )
        except CorruptionError as error:
            raise self._located(error) from None

    def decode_within(self, start: int, stop: int) -> list[Record]:
        """Like :meth:`decode_range`; whole batches are decoded faster."""
        return self.decode_range(start, stop) if is_cut(self.header, start, stop) else self.decode()

    def _located(self, error: CorruptionError) -> CorruptionError:
        error.base_offset, error.last_offset = self.header.base_offset, self.header.last_offset
        return error.located(self.path, self.piece_position)


Section = tuple[Bytes, int, int]
"""The uncompressed records of a batch of magic 2: a buffer, and where in it they begin and end."""


def section_of(buffer: Bytes, position: int, header: BatchHeader) -> Section | None:
    """None if it cannot be extracted: decoding the batch to records then says what is wrong."""
    try:
        return batches.records_section(buffer, position, header)
    except CorruptionError:
        return None


def take_section(columns: Columns, section: Section, header: BatchHeader, start: int, stop: int) -> bool:
    """Append the records of a section with offsets in ``[start, stop)`` to columns, in compiled code. False,
    and nothing is appended, if that leaves them to the decoder."""
    buffer, at, end = section
    return columns.take_section(
        buffer,
        at,
        end,
        header.record_count,
        header.base_offset,
        header.base_timestamp_ms,
        header.timestamp_type is TimestampType.LOG_APPEND_TIME,
        header.max_timestamp_ms,
        header.last_offset_delta,
        start,
        stop,
    )


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
    return SegmentReader(view, number, start, stop).batches()


def start_position(segment: Segment, start: int) -> int:
    """A position from which a walk meets the batch in front of the one with ``start``, if there is one."""
    if start <= segment.base_offset:
        return 0
    return segment.position_before(segment.offset_index.lookup(start).offset - 1)


class SegmentReader:
    """One pass over the batches of a segment between two offsets, in pieces of bounded size, each checked."""

    def __init__(
        self,
        view: LogView,
        number: int,
        start: int,
        stop: int,
        *,
        piece_bytes: int = 0,
        position: int | None = None,
    ) -> None:
        self._place = place = Place(view, number)
        self._segment = place.segment
        self._partition = view.partition
        self._start = start
        self._stop = stop
        self._end = place.end
        if position is None:
            position = start_position(self._segment, start)
        self._position = position  # in the file, of the next batch
        self._buffer: Bytes = b""
        self._piece_position = self._position
        self._piece_bytes = piece_bytes or self._first_piece_bytes(stop)
        self._is_cut_short = False
        self._is_done = False

    def batches(self) -> Iterator[FoundBatch]:
        """The batches, one by one."""
        while self._can_follow():
            before = self._position
            yield from self._checked_batches(len(self._buffer))
            if self._is_done:
                return
            if self._position == before and not self._read_piece():
                break
        self._place.check_end(self._position)

    def record_lists(self, aborted: AbortedFilter, *, on_demand: bool = False) -> Iterator[list[Record]]:
        """The records, without control records and those that ``aborted`` hides; lists are not empty."""
        for found in self.runs(aborted, read_run, on_demand):
            is_batch = isinstance(found, FoundBatch)
            records = found.decode_within(self._start, self._stop) if is_batch else found
            if records:
                yield records

    def runs(self, aborted: AbortedFilter, run: Any, option: Any) -> Iterator[Any]:
        """The results of ``run`` for runs of ordinary batches (the first of its values, if that is true), and
        the other batches that readers may see, one by one. ``run`` is called like the compiled ``read_run``,
        with ``option`` and the partition as its last arguments; if it is None, all batches come one by
        one."""
        while self._can_follow():
            before = self._position
            limit = len(self._buffer)
            if run is not None:
                made, why = self._next_run(aborted, run, option)
                if made:
                    yield made
                if why == RUN_DONE:
                    return
                if why == RUN_FULL or not self._can_follow():
                    continue
                if why == RUN_CUT and self._lacks_bytes() and self._read_piece():
                    continue
                before = self._position
                limit = self._end_of_batch()
            for found in self._checked_batches(limit):
                if not aborted.hides(found.header, found) and not found.header.is_control:
                    yield found
            if self._is_done:
                return
            if self._position == before and not self._read_piece():
                break
        self._place.check_end(self._position)

    # Pieces

    def _first_piece_bytes(self, stop: int) -> int:
        """The size of the first piece: for a short read all it needs, by the index; else a small one. Of a
        small segment it is all that is left."""
        if self._end - self._position <= FIRST_PIECE_BYTES:
            return FIRST_PIECE_BYTES
        index = self._segment.offset_index
        wanted = index.end_position(stop - 1, self._end) - self._position + PREFIX_BYTES
        return max(wanted, HEADER_BYTES) if wanted <= _SHORT_READ_BYTES else FIRST_PIECE_BYTES

    def _can_follow(self) -> bool:
        """Whether there is room for another batch."""
        return self._end - self._position >= PREFIX_BYTES

    def _read_piece(self) -> bool:
        """Read the piece that begins with the next batch, or a larger one if the current piece begins with it
        already. False if the batch is incomplete."""
        size = self._next_piece_bytes()
        if self._buffer and self._piece_position == self._position:
            size = self._size_of_batch()
            if self._is_cut_short or size <= len(self._buffer) or self._position + size > self._end:
                return False
            size += PREFIX_BYTES  # and the beginning of its neighbour
        size = min(size, self._end - self._position)
        self._buffer = self._segment.read_at(self._position, size)
        self._piece_position = self._position
        self._piece_bytes = size
        self._is_cut_short = len(self._buffer) < size
        return bool(self._buffer)

    def _next_piece_bytes(self) -> int:
        """The size of the next piece. Batches are often of one size, so it is a little more than the whole
        batches of the last piece, and few bytes are read twice."""
        taken_bytes = self._position - self._piece_position
        if not self._buffer:
            return self._piece_bytes
        if taken_bytes < self._piece_bytes // 2 or self._piece_bytes < PIECE_BYTES // 2:
            return PIECE_BYTES
        return min(taken_bytes + taken_bytes // 32 + HEADER_BYTES, PIECE_BYTES)

    def _size_of_batch(self) -> int:
        """The size of the next batch by its header; 0 if even that is incomplete."""
        at = self._position - self._piece_position
        if len(self._buffer) - at < PREFIX_BYTES:
            return 0
        return int(PREFIX.unpack_from(self._buffer, at)[1]) + LENGTH_OVERHEAD_BYTES

    def _lacks_bytes(self) -> bool:
        """Whether the piece does not hold all of the next batch."""
        size = self._size_of_batch()
        return size <= 0 or self._position - self._piece_position + size > len(self._buffer)

    def _end_of_batch(self) -> int:
        """Where the next batch ends in the piece, or the piece's end if the batch is not whole."""
        end = self._position - self._piece_position + max(self._size_of_batch(), PREFIX_BYTES)
        return min(end, len(self._buffer))

    # Runs of ordinary batches in one call

    def _next_run(self, aborted: AbortedFilter, run: Any, option: Any) -> tuple[Any, int]:
        """The result of ``run`` for the next batches, and why it stopped."""
        piece_position = self._piece_position
        reaches_end = piece_position + len(self._buffer) == self._end
        place = self._place
        made, at, place.previous_last, why = run(
            self._buffer,
            self._position - piece_position,
            place.previous_last,
            place.next_segment if reaches_end else -1,
            self._start,
            self._stop,
            RUN_BYTES,
            aborted.has_any,
            option,
            self._partition,
        )
        self._position = piece_position + at
        return made, why

    # Any batch, one by one

    def _checked_batches(self, limit: int) -> Iterator[FoundBatch]:
        """The whole batches of the piece from the position up to ``limit``; the position moves along."""
        piece_position = self._piece_position
        found, stop, fault = scan_batches(self._buffer, self._position - piece_position, limit, check=False)
        if fault is not None and not found:
            raise fault.located(self._segment.path, piece_position)
        place = self._place
        for number, (position, header) in enumerate(found):
            first_offset = place.first_offset(header)
            is_last = number + 1 == len(found)
            if is_last:
                next_base = place.base_behind(self._buffer, stop, piece_position)
            else:
                next_base = found[number + 1][1].base_offset
            place.check(header, piece_position + position, next_base)
            place.previous_last = header.last_offset
            if first_offset >= self._stop:
                self._is_done = True
                return
            if next_base > self._start:  # it may hold the start, even if its last offset says no
                place.check_contents(header, self._buffer, position, piece_position)
            self._position = piece_position + position + header.size_bytes
            if header.last_offset >= self._start:
                self._is_done = header.next_offset >= self._stop
                yield FoundBatch(
                    self._buffer, position, header, self._segment.path, piece_position, self._partition
                )
                if self._is_done:
                    return


# Records ----------------------------------------------------------------------------------------------------


def segment_runs(
    view: LogView, number: int, start: int, stop: int, aborted: AbortedFilter, run: Any, option: Any
) -> Iterator[Any]:
    """See :meth:`SegmentReader.runs`."""
    return SegmentReader(view, number, start, stop).runs(aborted, run, option)


def iterate_records(view: LogView, start: int, stop: int, isolation: Isolation) -> Iterator[Record]:
    """The records of ``[start, stop)`` without control records, and for :attr:`Isolation.COMMITTED` without
    those of aborted transactions."""
    return chain.from_iterable(record_lists(view, start, stop, isolation))


def record_lists(
    view: LogView, start: int, stop: int, isolation: Isolation, *, on_demand: bool = False
) -> Iterator[list[Record]]:
    """The same records in lists; no list is empty. A list is read when you ask for it and holds the records
    of whole batches. An error comes after all records in front of it."""
    if start >= stop:
        return
    with TellingOfTruncation(view):
        aborted = AbortedFilter(aborted_for(view, start, stop, isolation))
        for number in range(view.floor(start), len(view.segments)):
            if view.bases[number] >= stop:
                return
            yield from SegmentReader(view, number, start, stop).record_lists(aborted, on_demand=on_demand)


class TellingOfTruncation:
    """Turns errors due to a truncation during the read into OffsetOutOfRangeError: they are no damage. Every
    fetch passes it: as a class it takes a quarter of the time of a generator."""

    __slots__ = ("_view",)

    def __init__(self, view: LogView) -> None:
        self._view = view

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if (
            isinstance(error, (CorruptionError, StorageError))
            and self._view.was_truncated
            and is_missing(error)
        ):
            raise truncated_meanwhile() from None


def is_missing(error: CorruptionError | StorageError) -> bool:
    """Whether bytes are wrong or missing, as opposed to a failure of the disk."""
    return isinstance(error, CorruptionError) or error.errno == errno.ENOENT


def truncated_meanwhile() -> OffsetOutOfRangeError:
    """The error for a reader whose bytes were cut during the read."""
    return OffsetOutOfRangeError("the log was truncated while it was read; read it again")


def aborted_for(view: LogView, start: int, stop: int, isolation: Isolation) -> AbortedTransactions:
    """The transactions that a reader of ``[start, stop)`` leaves out; none unless it reads committed."""
    if isolation is Isolation.COMMITTED:
        return aborted_transactions(view, start, stop)
    return NONE_ABORTED


def aborted_transactions(view: LogView, start: int, stop: int) -> AbortedTransactions:
    """The aborted transactions with records in ``[start, stop)``.

    Raises:
        CorruptionError: the transaction index of a segment is damaged or belongs to another place in the log.
    """
    if view.aborted is not None:
        return view.aborted.overlapping(start, stop)[0]
    found = AbortedTransactions()
    for number in range(view.floor(start), len(view.segments)):
        index = view.segments[number].read_transaction_index()
        overlapping, is_complete = index.entries.overlapping(start, stop)
        try:
            found = found.joined(overlapping)
        except CorruptionError as error:
            raise error.located(index.path) from None
        if is_complete:
            break
    return found


# Lookups by time --------------------------------------------------------------------------------------------


def find_timestamp(view: LogView, timestamp_ms: int) -> OffsetAndTimestamp | None:
    """The first record with a timestamp at or after ``timestamp_ms``, at or above the log start offset."""
    with TellingOfTruncation(view):
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
        for record in found.decode():
            if record.timestamp_ms >= timestamp_ms and record.offset >= view.log_start_offset:
                return _answer(record, found.header)
    return None


def _time_hint(segment: Segment, timestamp_ms: int) -> int:
    """An offset before which no record of the segment reaches the timestamp. The index entry is checked
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
    """The first record with the largest timestamp of the log; None if no record has a timestamp.

    Cost: that of :func:`find_timestamp`. It takes a pass over a segment if the largest timestamp belongs to a
    marker, to a batch that compaction emptied, or to a record below the log start.
    """
    best: OffsetAndTimestamp | None = None
    with TellingOfTruncation(view):
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
        for record in found.decode():
            if record.timestamp_ms > best_ms and record.offset >= view.log_start_offset:
                best_ms = record.timestamp_ms
                best = _answer(record, header)
    return best


def _answer(record: Record, header: BatchHeader) -> OffsetAndTimestamp:
    epoch = header.partition_leader_epoch
    return OffsetAndTimestamp(record.offset, record.timestamp_ms, epoch if epoch >= 0 else None)
