"""Decides which records are erased, and what is left of their batches.

A batch that loses records keeps its offsets, its producer's fields and its leader epoch. One that loses all
records stays as an empty batch, a header without records, so that offsets follow each other without a gap and
the producer's sequences go on. A batch of magic 0 or 1 that loses records becomes one of magic 2. Markers of
transactions are never erased.

Keys are searched in the records sections; records are decoded only if their batch has one of the keys. This
module knows buffers but no files. The checksums of its batches are already checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from logstore.arguments import shown
from logstore.errors import UsageError
from logstore.format.batch import decode_batch, encode_records_batch, keep_records, records_section
from logstore.format.compression import Codec
from logstore.format.header import MAGIC, BatchHeader, decode_header
from logstore.format.offset_map import OffsetMap, Standing, bytes_for
from logstore.model import Bytes, Record, how_to_make_int
from logstore.partition.cleaning.cleaned_batches import KEPT
from logstore.partition.cleaning.reports import MAX_LISTED_OFFSETS
from logstore.partition.encoding.rows import copied

Offsets = int | range | Iterable[int | range]
"""The offsets argument of :meth:`Log.erase`."""

_LAST_OFFSET = 2**63 - 1


class ErasedRecords(NamedTuple):
    """The keys and offsets that a call asks to erase."""

    keys: frozenset[bytes]
    starts: list[int]
    """The first offsets of ranges, ascending; the ranges do not touch each other."""
    stops: list[int]

    def may_hold(self, base_offset: int, next_offset: int) -> bool:
        """Whether a record in ``[base_offset, next_offset)`` may have to go; True if there are keys."""
        return bool(self.keys) or self.has_offset(base_offset, next_offset)

    def has_offset(self, start: int, stop: int) -> bool:
        """Whether an offset in ``[start, stop)`` is to be erased."""
        number = bisect_right(self.stops, start)
        return number < len(self.starts) and self.starts[number] < stop

    def has(self, record: Record) -> bool:
        """Whether the record is to be erased."""
        return record.key in self.keys or self.has_offset(record.offset, record.offset + 1)


def check_erased(keys: Iterable[Bytes] | None, offsets: Offsets | None) -> ErasedRecords:
    """Check the arguments of a call.

    Raises:
        UsageError: both are missing, or they are not keys or offsets.
    """
    if keys is None and offsets is None:
        raise UsageError("nothing to erase: give keys, offsets, or both")
    pairs = sorted(_pairs(offsets)) if offsets is not None else []
    starts: list[int] = []
    stops: list[int] = []
    for start, stop in pairs:
        if stops and start <= stops[-1]:
            stops[-1] = max(stops[-1], stop)
        else:
            starts.append(start)
            stops.append(stop)
    return ErasedRecords(_checked_keys(keys) if keys is not None else frozenset(), starts, stops)


def _checked_keys(keys: Iterable[Bytes]) -> frozenset[bytes]:
    if isinstance(keys, str | bytes | bytearray | memoryview) or not isinstance(keys, Iterable):
        raise UsageError(f"keys is {type(keys).__name__}; it must be a list of keys")
    checked = set()
    for key in keys:
        if not isinstance(key, bytes | bytearray | memoryview):
            raise UsageError(f"a key is {type(key).__name__}; it must be bytes")
        checked.add(copied(key, "a key"))
    return frozenset(checked)


def _pairs(offsets: Offsets) -> list[tuple[int, int]]:
    """The first and the next offset of each non-empty range."""
    if isinstance(offsets, int | range):
        offsets = [offsets]
    if isinstance(offsets, str | bytes | bytearray | memoryview) or not isinstance(offsets, Iterable):
        raise UsageError(f"offsets is {type(offsets).__name__}; it must be numbers and ranges")
    pairs: list[tuple[int, int]] = []
    for each in offsets:
        if isinstance(each, range):
            each = each if each.step > 0 else each[::-1]
            alone = [each] if each.step == 1 else [range(offset, offset + 1) for offset in each]
            pairs += [(part.start, part.stop) for part in alone if part]
        elif type(each) is int:
            pairs.append((each, each + 1))
        else:
            raise UsageError(
                f"an offset is {shown(each)}; it must be a number or a range{how_to_make_int(each)}"
            )
    if any(start < 0 for start, _ in pairs):
        raise UsageError(f"offset {shown(min(pairs)[0])} is below 0")
    return pairs


class BatchEraser:
    """Erases records from batches, in offset order. Batches at or above ``end_offset`` are kept."""

    def __init__(
        self,
        erased: ErasedRecords,
        end_offset: int,
        *,
        seed: bytes,
        level_of: Callable[[Codec], int | None] = lambda codec: None,
    ) -> None:
        """``level_of`` returns the level to compress with; ``seed`` is the seed for an offset map."""
        self.record_count = self.rewritten_batch_count = self.emptied_batch_count = 0
        self.offsets: list[int] = []
        self._erased = erased
        self.end_offset = end_offset
        self._level_of = level_of
        self._keys: OffsetMap | None = None
        if erased.keys:
            self._keys = OffsetMap(bytes_for(len(erased.keys)), seed)
            for key in erased.keys:  # so for the map, every record with one of these keys is superseded
                self._keys.put(key, _LAST_OFFSET)

    def erase(self, buffer: Bytes, position: int, header: BatchHeader) -> bytearray:
        """Erase from the batch at ``position``. Returns :data:`KEPT`, or the batch to write in its place.

        Raises:
            CorruptionError: its records do not decode.
        """
        if header.is_control or not header.record_count or header.base_offset >= self.end_offset:
            return KEPT
        if header.magic != MAGIC:
            return self._erase_legacy(decode_batch(buffer, position, header), header)
        may_have_offset = self._erased.has_offset(header.base_offset, header.next_offset)
        if not may_have_offset and self._keys is None:
            return KEPT
        section, start, end = records_section(buffer, position, header)
        if not may_have_offset and not self._may_have_key(section, start, end, header):
            return KEPT
        stays = self._staying(decode_batch(buffer, position, header))
        return KEPT if stays is None else self._without(section, start, end, stays, header)

    def _may_have_key(self, section: Bytes, start: int, end: int, header: BatchHeader) -> bool:
        """Whether a record of the section may have one of the keys: hashes can collide."""
        if self._keys is None:
            return False
        standings = self._keys.classify_section(
            section, start, end, header.record_count, header.base_offset, header.last_offset_delta
        )
        return Standing.SUPERSEDED in standings

    def _staying(self, records: Sequence[Record]) -> bytes | None:
        """1 for each record that stays and 0 for each that goes; None if all stay. Adds to the counts."""
        going = [record.offset for record in records if self._erased.has(record)]
        if not going:
            return None
        self.record_count += len(going)
        self.rewritten_batch_count += 1
        self.emptied_batch_count += len(going) == len(records)
        self.offsets += going[: MAX_LISTED_OFFSETS - len(self.offsets)]
        gone = set(going)
        return bytes(record.offset not in gone for record in records)

    def _without(self, section: Bytes, start: int, end: int, stays: bytes, header: BatchHeader) -> bytearray:
        if not any(stays):
            return encode_records_batch((), like=header)
        level = self._level_of(header.codec)
        return keep_records(section, start, end, stays, like=header, level=level)

    def _erase_legacy(self, records: list[Record], header: BatchHeader) -> bytearray:
        """Erase from an entry of magic 0 or 1. The new batch begins at the offset of its first record, even
        if that record goes: an offset that no batch has would look like a loss."""
        stays = self._staying(records)
        if stays is None:
            return KEPT
        batch = encode_records_batch(records, like=header, level=self._level_of(header.codec))
        header = decode_header(batch)
        return self._without(*records_section(batch, 0, header), stays, header)
