"""One record by its offset.

It reads no more than needed: the batch that holds the offset, the header of the one in front of it and the
first bytes of the one behind it, which confirm its offsets as in every other read. The ordinary case takes
the offset index and one or two positioned reads. Anything else (a wrong index, damage, an old format) goes
through :mod:`logstore.partition.reading.records` as other reads do, which mends the index and reports what is
wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal, cast

from logstore.errors import CorruptionError, StorageError
from logstore.files import File
from logstore.format.header import (
    CODEC_MASK,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    decode_header,
)
from logstore.format.loops import find_record
from logstore.model import Isolation, Record, TopicPartition
from logstore.partition.reading.records import (
    FoundBatch,
    aborted_transactions,
    is_missing,
    iterate_batches,
    truncated_meanwhile,
)
from logstore.partition.reading.view import LogView
from logstore.partition.segments.batch_cache import BatchCache, Place, VerifiedBatch
from logstore.partition.segments.segment import Segment

KEPT_FROM_BYTES: Final = 32 * 1024
"""An uncompressed batch is cached from this size on. Reading and checking a smaller one again from the page
cache takes hardly longer than looking after many of them."""

_SMALL_INTERVAL_BYTES = 8 * 1024
"""Index entries further apart have one batch between them: the index interval is 4 KiB by default."""

_QUICK_BYTES = 4 * 1024 * 1024
"""The most bytes read at once on trust in an index."""

_Answer = Record | Literal[False]
"""A record, or False if there is none."""

_Wanted = tuple[int, bool, TopicPartition | None]
"""An offset, whether aborted transactions are left out, and the partition to note in the record."""


def record_at(view: LogView, offset: int, isolation: Isolation, cache: BatchCache) -> Record | None:
    """The record at an offset that the isolation shows; None if there is none: a gap, a marker, a record of
    an aborted transaction.

    Raises:
        CorruptionError: the batch is damaged, or a neighbour that must confirm its offsets.
        OffsetOutOfRangeError: the log was truncated during the call.
    """
    is_filtering = isolation is _COMMITTED
    number = bisect_right(view.bases, offset) - 1
    place = (view.segments[number].number, view.truncation_count)
    try:
        batch = cache.find(place, offset) if place in cache.places else None
        if batch is None:
            found = _find_quickly(view, number, offset, is_filtering)
            if found is None:
                return _find_carefully(view, offset, is_filtering, place, cache)
            if type(found) is not VerifiedBatch:
                return None if found is False else cast("Record", found)
            batch = found
            _keep(cache, view.segments[number], place, batch)
        if is_filtering and _is_aborted(view, batch.header, offset):
            return None
        record = batch.find(offset, view.partition)
        if record is None:
            return _find_carefully(view, offset, is_filtering, place, cache)
        return None if record is False else record
    except (CorruptionError, StorageError) as error:
        if view.was_truncated and is_missing(error):
            raise truncated_meanwhile() from None
        raise


_COMMITTED = Isolation.COMMITTED  # Python 3.11 takes 70 ns to find a member of an enum


# The ordinary case ------------------------------------------------------------------------------------------


def _find_quickly(
    view: LogView, number: int, offset: int, is_filtering: bool
) -> _Answer | VerifiedBatch | None:
    """The answer, or the batch that holds it if that is worth keeping or needs a closer look. None if
    anything is out of the ordinary.

    Such a read spends its time waiting for memory outside the processor's caches, so it reads as little as
    can hold the batch. Among small batches that is an index interval. A large batch has its own index entry:
    it is read alone, and the index says where the one in front of it ends. It must begin right behind that,
    and the next one right behind its own end. If not, everything from the entry in front of it is read.
    """
    segment = view.segments[number]
    if number == len(view.bases) - 1:
        end, next_base = view.active_size_bytes, view.log_end_offset
    else:
        end, next_base = segment.size_bytes, view.bases[number + 1]
    log, index = segment.log_and_index()
    relative, position, next_relative, following, after = index.interval(offset - 1)
    base = segment.base_offset
    if relative < 0:  # in front of the first entry
        relative, position = -1 - base, 0
    if not position < following < end:
        following = after = end
    elif not following < after < end:
        after = end
    last = base + relative  # last offset of the batch at position, by the index
    is_small = following - position <= _SMALL_INTERVAL_BYTES or last < 0
    found = None
    wanted = offset, is_filtering, view.partition
    if is_small and offset != base + next_relative:
        found = _search(log, position, following, end, False, base - 1, last, next_base, wanted)
    if found is None and last >= 0 and following < end:
        found = _search(log, following, after, end, True, last, -1, next_base, wanted)
    if found is None:
        found = _search(log, position, after, end, False, base - 1, last, next_base, wanted)
    return found


def _search(
    log: File,
    first: int,
    last: int,
    end: int,
    is_exact: bool,
    previous_last: int,
    indexed_last: int,
    next_base: int,
    wanted: _Wanted,
) -> _Answer | VerifiedBatch | None:
    """Search between two positions where batches begin, in a segment that ends at ``end`` and ``next_base``.
    The other arguments are those of :func:`.find_record`."""
    stop = last + PREFIX_BYTES
    if stop >= end:
        stop = end
    else:
        next_base = -1
    size_bytes = stop - first
    if first < 0 or not 0 < size_bytes <= _QUICK_BYTES:
        return None
    buffer = log.read_at(first, size_bytes)
    offset, is_filtering, partition = wanted
    found = find_record(
        buffer,
        is_exact,
        previous_last,
        indexed_last,
        next_base,
        offset,
        is_filtering,
        KEPT_FROM_BYTES,
        partition,
    )
    if type(found) is not int:
        return cast("_Answer | None", found)
    try:
        return VerifiedBatch(buffer, found, decode_header(buffer, found))
    except CorruptionError:
        return None


# Everything else --------------------------------------------------------------------------------------------


def _find_carefully(
    view: LogView, offset: int, is_filtering: bool, place: Place, cache: BatchCache
) -> Record | None:
    found = next(iterate_batches(view, offset, offset + 1), None)
    if found is None or found.header.is_control:
        return None
    if is_filtering and _is_aborted(view, found.header, offset):
        return None
    if found.header.magic == MAGIC:
        record = _find_in_batch(found, offset, view, place, cache)
        if record is not None:
            return None if record is False else record
    records = found.decode_range(offset, offset + 1)
    return records[0] if records else None


def _find_in_batch(
    found: FoundBatch, offset: int, view: LogView, place: Place, cache: BatchCache
) -> _Answer | None:
    header = found.header
    try:
        batch = VerifiedBatch(found.buffer, found.position, header)
    except CorruptionError:
        return None
    record = batch.find(offset, view.partition)
    if record is not None and (header.attributes & CODEC_MASK or header.size_bytes >= KEPT_FROM_BYTES):
        _keep(cache, view.segments[view.floor(offset)], place, batch)
    return record


def _keep(cache: BatchCache, segment: Segment, place: Place, batch: VerifiedBatch) -> None:
    """Keep a batch for the next read, unless its segment was replaced meanwhile, perhaps to erase records."""
    cache.add(place, batch)
    if segment.is_retired:
        cache.drop([place[0]])


def _is_aborted(view: LogView, header: BatchHeader, offset: int) -> bool:
    """Whether the batch that holds ``offset`` belongs to an aborted transaction."""
    return header.is_transactional and any(
        entry.producer_id == header.producer_id for entry in aborted_transactions(view, offset, offset + 1)
    )
