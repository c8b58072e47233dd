"""The three indexes of a segment, as functions over their bytes.

Knows the entries of ``.index``, ``.timeindex`` and ``.txnindex`` files, how to search them and how to detect
damage. Does not know files, maps or growth; a buffer may be bytes, a memoryview or a mapped file, and no
reference to it is kept.

The offset and time index are hints: a search never fails, and in a damaged buffer it may return any entry.
The caller checks the answer against the batch it points at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.layout import (
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    Layout,
)
from logstore.model import NO_TIMESTAMP_MS, AbortedTransaction, Bytes

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

TRANSACTION_INDEX_VERSION = 0

MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_POSITION = 2**31 - 1

_OFFSET_SIZE = OFFSET_INDEX_ENTRY.size_bytes
_TIME_SIZE = TIME_INDEX_ENTRY.size_bytes
_PIECE_ENTRIES = 4096


class OffsetPosition(NamedTuple):
    """An entry of the offset index: the batch that ends with ``offset`` begins at ``position`` bytes."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """An entry of the time index: ``timestamp_ms`` is the largest timestamp up to ``offset``."""

    timestamp_ms: int
    offset: int


def encode_offset_entry(base_offset: int, offset: int, position: int) -> bytes:
    """One entry of the offset index.

    Raises:
        UsageError: ``offset - base_offset`` or the position is outside 0 to 2^31 - 1.
    """
    if not 0 <= position <= MAX_POSITION:
        raise UsageError(f"position {position} does not fit an offset index; the limit is {MAX_POSITION}")
    return OFFSET_INDEX_ENTRY.pack(_relative(base_offset, offset), position)


def encode_time_entry(base_offset: int, timestamp_ms: int, offset: int) -> bytes:
    """One entry of the time index.

    Raises:
        UsageError: ``offset - base_offset`` is outside 0 to 2^31 - 1.
    """
    return TIME_INDEX_ENTRY.pack(timestamp_ms, _relative(base_offset, offset))


def _relative(base_offset: int, offset: int) -> int:
    relative = offset - base_offset
    if not 0 <= relative <= MAX_RELATIVE_OFFSET:
        raise UsageError(f"offset {offset} does not fit an index with base offset {base_offset}")
    return relative


def offset_entry(buffer: ReadableBuffer, i: int, base_offset: int) -> OffsetPosition:
    """Entry ``i`` of an offset index, which must have more than ``i`` entries."""
    relative, position = OFFSET_INDEX_ENTRY.unpack_from(buffer, i * _OFFSET_SIZE)
    return OffsetPosition(base_offset + relative, position)


def time_entry(buffer: ReadableBuffer, i: int, base_offset: int) -> TimestampOffset:
    """Entry ``i`` of a time index, which must have more than ``i`` entries."""
    timestamp_ms, relative = TIME_INDEX_ENTRY.unpack_from(buffer, i * _TIME_SIZE)
    return TimestampOffset(timestamp_ms, base_offset + relative)


# The searches below are written out, one loop each: they run for every read, and calling a key function for
# bisect costs more than the rest of a step. 2.6 us among 300,000 entries.


def find_offset(buffer: ReadableBuffer, entry_count: int, base_offset: int, target: int) -> OffsetPosition:
    """The entry with the largest offset at or below ``target``, else (base offset, 0)."""
    unpack_from = OFFSET_INDEX_ENTRY.unpack_from
    wanted = target - base_offset
    low, high = 0, entry_count
    while low < high:
        middle = (low + high) >> 1
        if unpack_from(buffer, middle * _OFFSET_SIZE)[0] <= wanted:
            low = middle + 1
        else:
            high = middle
    return offset_entry(buffer, low - 1, base_offset) if low else OffsetPosition(base_offset, 0)


def find_offset_upper_bound(
    buffer: ReadableBuffer, entry_count: int, base_offset: int, start: OffsetPosition, size_bytes: int
) -> OffsetPosition | None:
    """The first entry at or past ``start.position + size_bytes``, or None.

    Its offset bounds what a read of ``size_bytes`` from ``start`` can have returned.
    """
    unpack_from = OFFSET_INDEX_ENTRY.unpack_from
    wanted = start.position + size_bytes
    low, high = 0, entry_count
    while low < high:
        middle = (low + high) >> 1
        if unpack_from(buffer, middle * _OFFSET_SIZE)[1] < wanted:
            low = middle + 1
        else:
            high = middle
    return offset_entry(buffer, low, base_offset) if low < entry_count else None


def find_timestamp(
    buffer: ReadableBuffer, entry_count: int, base_offset: int, timestamp_ms: int
) -> TimestampOffset:
    """The entry with the largest timestamp at or below ``timestamp_ms``, else (-1, base offset)."""
    unpack_from = TIME_INDEX_ENTRY.unpack_from
    low, high = 0, entry_count
    while low < high:
        middle = (low + high) >> 1
        if unpack_from(buffer, middle * _TIME_SIZE)[0] <= timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return time_entry(buffer, low - 1, base_offset) if low else TimestampOffset(NO_TIMESTAMP_MS, base_offset)


def count_entries_below_offset(
    buffer: ReadableBuffer,
    entry_count: int,
    base_offset: int,
    offset: int,
    layout: Layout = OFFSET_INDEX_ENTRY,
) -> int:
    """How many entries a truncation to ``offset`` keeps. ``layout`` says which index it is:
    OFFSET_INDEX_ENTRY or TIME_INDEX_ENTRY."""
    column = [field.name for field in layout.fields].index("relative_offset")

    def relative_offset(i: int) -> int:
        return int(layout.unpack_from(buffer, i * layout.size_bytes)[column])

    return bisect_left(range(entry_count), offset - base_offset, key=relative_offset)


def check_offset_index(
    buffer: ReadableBuffer, size_bytes: int, base_offset: int, *, as_arrays: bool = False
) -> None:
    """Check a whole offset index: whole entries, and rising positions and offsets from the base on.

    Kafka checks only the last entry. The zeros that a crash leaves at the end of a preallocated index pass
    there and fail here. Cost: 100 to 150 ns for each entry; ``as_arrays`` 2 ns, and once the import of numpy.

    Raises:
        CorruptionError: names the position of the first bad entry.
    """
    _check_rising(OFFSET_INDEX_ENTRY, buffer, size_bytes, base_offset, (-1, -1), False, as_arrays)


def check_time_index(
    buffer: ReadableBuffer, size_bytes: int, base_offset: int, *, as_arrays: bool = False
) -> None:
    """Check a whole time index: whole entries, rising timestamps, and offsets from the base on that never
    fall. Cost as for :func:`check_offset_index`.

    Raises:
        CorruptionError: names the position of the first bad entry.
    """
    _check_rising(TIME_INDEX_ENTRY, buffer, size_bytes, base_offset, (NO_TIMESTAMP_MS, 0), True, as_arrays)


def _check_rising(
    layout: Layout,
    buffer: ReadableBuffer,
    size_bytes: int,
    base_offset: int,
    before: tuple[int, int],
    may_stay: bool,
    as_arrays: bool,
) -> None:
    """``before`` is compared with the first entry; with ``may_stay`` the second field need not rise."""
    _check_whole(layout, buffer, size_bytes)
    if as_arrays:
        from logstore.format import entry_arrays  # imports numpy: half a second on a busy machine

        count = size_bytes // layout.size_bytes
        number = entry_arrays.first_out_of_order(buffer, layout, count, before, may_stay=may_stay)
    else:
        number = _first_out_of_order(layout, buffer, size_bytes, before, may_stay)
    if number is None:
        return
    at = number * layout.size_bytes
    last = layout.unpack_from(buffer, at - layout.size_bytes) if number else before
    raise CorruptionError(
        f"{layout.name} {layout.unpack_from(buffer, at)} after {last}", position=at, base_offset=base_offset
    )


def _first_out_of_order(
    layout: Layout, buffer: ReadableBuffer, size_bytes: int, before: tuple[int, int], may_stay: bool
) -> int | None:
    """Like :func:`.entry_arrays.first_out_of_order`, entry by entry."""
    last_first, last_second = before
    lag = int(may_stay)
    for number, (_, (first, second)) in enumerate(_rows(layout, buffer, size_bytes)):
        if first <= last_first or second <= last_second - lag:
            return number
        last_first, last_second = first, second
    return None


def used_bytes(entries: Bytes, layout: Layout) -> int:
    """How many bytes of an index file are in use: all except the zeros after the last entry, which Kafka
    leaves because it creates index files at full size. A single entry of zeros counts as an entry; bytes that
    are not whole entries all count as used, and are wrong."""
    size_bytes = len(entries)
    if size_bytes % layout.size_bytes or size_bytes == layout.size_bytes:
        return size_bytes
    end = len(bytes(entries).rstrip(b"\0"))
    return -(-end // layout.size_bytes) * layout.size_bytes


def _rows(layout: Layout, buffer: ReadableBuffer, size_bytes: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Each entry and its position. Copies piece by piece: an error's traceback would keep alive an iterator
    over the buffer itself, and a mapped file cannot be closed while such an iterator exists."""
    _check_whole(layout, buffer, size_bytes)
    piece_bytes = _PIECE_ENTRIES * layout.size_bytes
    for start in range(0, size_bytes, piece_bytes):
        piece = bytes(memoryview(buffer)[start : min(start + piece_bytes, size_bytes)])
        yield from zip(range(start, size_bytes, layout.size_bytes), layout.iter_unpack(piece), strict=False)


def _check_whole(layout: Layout, buffer: ReadableBuffer, size_bytes: int) -> None:
    if size_bytes % layout.size_bytes or size_bytes > memoryview(buffer).nbytes:
        whole_bytes = size_bytes - size_bytes % layout.size_bytes
        raise CorruptionError(
            f"{layout.name}: {size_bytes} bytes are not whole entries", position=whole_bytes
        )


class AbortedTransactions(tuple[AbortedTransaction, ...]):
    """Aborted transactions in the order of their markers. All readers use this form.

    The first offsets need not rise: if two transactions overlapped, the one that began first may have ended
    last.
    """

    __slots__ = ()

    def __new__(cls, entries: Iterable[AbortedTransaction] = ()) -> Self:
        """
        Raises:
            CorruptionError: markers do not rise, a transaction begins after its marker, or an entry is all
                zeros (impossible: no record can come before a marker at offset 0). ``position`` is the place
                in a file of these entries.
        """
        found = tuple(entries)
        _check_entries(found, -1)
        return super().__new__(cls, found)

    def joined(self, entries: Iterable[AbortedTransaction]) -> AbortedTransactions:
        """These transactions followed by others.

        Raises:
            CorruptionError: as for the constructor.
        """
        more = tuple(entries)
        if not more:
            return self
        _check_entries(more, self[-1].last_offset if self else -1)
        return tuple.__new__(AbortedTransactions, (*self, *more))

    def below(self, offset: int) -> AbortedTransactions:
        """The transactions whose markers lie below an offset."""
        count = bisect_left(self, offset, key=lambda entry: entry.last_offset)
        return self if count == len(self) else tuple.__new__(AbortedTransactions, self[:count])

    def overlapping(self, start: int, stop: int) -> tuple[AbortedTransactions, bool]:
        """The transactions that a reader of ``[start, stop)`` must leave out, and whether these are all. If
        not, look on among the transactions that ended later.

        The search ends at an entry written when the last stable offset was at or past ``stop``: transactions
        aborted after it began at or past ``stop``.
        """
        found = []
        is_complete = False
        for entry in self:
            if entry.last_offset >= start and entry.first_offset < stop:
                found.append(entry)
            if entry.last_stable_offset >= stop:
                is_complete = True
                break
        return tuple.__new__(AbortedTransactions, found), is_complete


def _check_entries(entries: Sequence[AbortedTransaction], last_marker: int) -> None:
    for number, entry in enumerate(entries):
        if entry.last_offset <= last_marker or entry.first_offset > entry.last_offset or not any(entry):
            raise CorruptionError(
                f"transaction index entry {tuple(entry)} after offset {last_marker}",
                position=number * TRANSACTION_INDEX_ENTRY.size_bytes,
            )
        last_marker = entry.last_offset


NONE_ABORTED: Final = AbortedTransactions()


def encode_aborted_transaction(transaction: AbortedTransaction) -> bytes:
    """One entry of the transaction index."""
    return TRANSACTION_INDEX_ENTRY.pack(TRANSACTION_INDEX_VERSION, *transaction)


def decode_aborted_transactions(buffer: ReadableBuffer, base_offset: int) -> AbortedTransactions:
    """All entries of a transaction index.

    Raises:
        CorruptionError: not whole entries, a marker below the base offset, or entries that
            :class:`AbortedTransactions` refuses.
        UnsupportedVersionError: an entry of a version above 0.
    """
    entries = []
    for at, (version, *fields) in _rows(TRANSACTION_INDEX_ENTRY, buffer, memoryview(buffer).nbytes):
        _check_version(version, at)
        entries.append(AbortedTransaction._make(fields))
    try:
        _check_entries(entries, base_offset - 1)
    except CorruptionError as error:
        error.base_offset = base_offset
        raise
    return tuple.__new__(AbortedTransactions, entries)


def _check_version(version: int, position: int) -> None:
    if version > TRANSACTION_INDEX_VERSION:
        raise UnsupportedVersionError(f"transaction index entry has version {version}; only 0 is known")
    if version < TRANSACTION_INDEX_VERSION:
        raise CorruptionError(f"transaction index entry has version {version}", position=position)
