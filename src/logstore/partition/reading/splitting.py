"""Splits a range of offsets into pieces for parallel readers.

It splits by bytes, because reading costs bytes, and at batches that an index names: a reader finds such a
place at once, and no batch is read twice.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise

from logstore.errors import CorruptionError
from logstore.format.header import HEADER_BYTES, decode_header
from logstore.partition.reading.records import start_position
from logstore.partition.reading.view import LogView


def split_view(view: LogView, start: int, stop: int, parts: int, max_count: int | None) -> list[int]:
    """See :meth:`.ReadableLog.split`."""
    cuts = _cuts_by_bytes(view, start, stop, parts) if parts > 1 and start < stop else []
    if max_count is None or start >= stop:
        return cuts
    made = []
    for first, last in pairwise([start, *cuts, stop]):
        made += [*_cuts_by_count(view, first, last, max_count), last]
    return made[:-1]


def _cuts_by_bytes(view: LogView, start: int, stop: int, parts: int) -> list[int]:
    numbers = range(view.floor(start), view.floor(stop - 1) + 1)
    begins = [0] * len(numbers)
    begins[0] = start_position(view.segments[numbers[0]], start)
    ends = [view.size_of(number) for number in numbers]
    ends[-1] = view.segments[numbers[-1]].offset_index.end_position(stop - 1, ends[-1])
    sums = [0, *accumulate(max(end - begin, 0) for begin, end in zip(begins, ends, strict=True))]
    parts = min(parts, sums[-1] // HEADER_BYTES + 1)  # there are no more batches
    cuts: list[int] = []
    for part in range(1, parts):
        wanted = sums[-1] * part // parts
        i = min(bisect_right(sums, wanted) - 1, len(numbers) - 1)
        cut = _batch_at(view, numbers[i], begins[i] + wanted - sums[i])
        if start < cut < stop and cut > (cuts[-1] if cuts else start):
            cuts.append(cut)
    return cuts


def _cuts_by_count(view: LogView, start: int, stop: int, max_count: int) -> list[int]:
    cuts, at = [], start
    while stop - at > max_count:
        wanted = at + max_count
        number = view.floor(wanted)
        index = view.segments[number].offset_index
        cut = _batch_at(view, number, index.lookup(wanted).position)
        at = cut if at < cut <= wanted else wanted
        cuts.append(at)
    return cuts


def _batch_at(view: LogView, number: int, position: int) -> int:
    """The base offset of the last batch in the index at or before a position. If the index is wrong or has no
    such batch, the base offset of the segment."""
    segment = view.segments[number]
    found = segment.offset_index.entry_at(position).position
    if found <= 0:
        return segment.base_offset
    try:
        header = decode_header(segment.read_at(found, HEADER_BYTES))
    except CorruptionError:
        return segment.base_offset
    is_possible = segment.base_offset <= header.base_offset < view.next_base(number)
    return header.base_offset if is_possible else segment.base_offset
