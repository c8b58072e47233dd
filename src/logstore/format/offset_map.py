"""The latest offset of each key, in a fixed amount of memory. Compaction looks up every record in it.

:class:`OffsetMap` is filled from the records sections of batches, in order, and then tells which records of a
section are still the latest of their keys. It uses one of two tables with the same methods:

- the compiled one, after Kafka's SkimpyOffsetMap: 21 bytes per slot, nine slots of ten in use, 23.4 bytes per
  key whatever its size. It stores a 128-bit hash of each key (SipHash-1-3), keyed with the seed;
- :class:`PlainTable`, a dict: 190 bytes per key, so the same memory holds an eighth of the keys, and a log
  takes more rounds to clean. It stores keys of up to 30 bytes as they are, longer ones as a keyed BLAKE2b.

No digest goes to disk. Give each map its own random seed: then an attacker cannot choose keys that the map
would confuse.

A slot has five bytes for its offset. So a map takes only offsets in a *window* around its first one, from
2**39 below it to one less than 2**39 above it (500 billion either way); it refuses others as if it were full.
A round of compaction then ends there, and the next one begins with an empty map.

Knows nothing of batches, files, or how the answers are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from logstore import build
from logstore.errors import UsageError
from logstore.format.loops import decode_records
from logstore.model import Bytes, Record

SEED_BYTES: Final = 16

NO_OFFSET: Final = -1
"""The offset of an unknown key, and the latest offset of an empty map."""

PLAIN_KEY_BYTES: Final = 190
"""Memory per key of the plain table at its peak, when the dict has just grown and the old one still exists:
key 64, offset 32, dict entries 90. Measured, and checked by a test."""

_GROUP_SLOTS: Final = 16
_GROUP_BYTES: Final = _GROUP_SLOTS * 21
"""Size of a group of slots; the compiled table is made of these."""

WINDOW: Final = 1 << 39
"""How far from a map's first offset its other offsets may be."""

_LONGEST_EXACT_KEY: Final = 30
"""A bytes object of up to 31 bytes takes 64 bytes of memory. Digests have 31, so none equals a stored key."""

_INT64_MAX: Final = (1 << 63) - 1


def bytes_for(key_count: int, *, has_window: bool = True) -> int:
    """The memory for a map of ``key_count`` keys; at least that of a map for one key."""
    key_count = max(key_count, 1)
    if build.compiled is None or not has_window:
        return key_count * PLAIN_KEY_BYTES
    slot_count = -(-key_count * 10 // 9)
    return -(-slot_count // _GROUP_SLOTS) * _GROUP_BYTES


class KeyClass(NamedTuple):
    """The keys whose hash modulo ``divisor`` is ``remainder``. For one seed, each key belongs to exactly one
    class of a divisor."""

    remainder: int
    divisor: int

    def divided(self, part_count: int) -> list[KeyClass]:
        """Split this class into ``part_count`` classes."""
        divisor = self.divisor
        return [KeyClass(self.remainder + part * divisor, divisor * part_count) for part in range(part_count)]


ALL_KEYS: Final = KeyClass(0, 1)


class Standing(IntEnum):
    """What the map knows of a record: one byte for each in the result of
    :meth:`OffsetMap.classify_section`."""

    SUPERSEDED = 0
    """The map has a later record of this key; or the key is not of the map's class."""
    LATEST = 1
    """The latest record of its key, with a value."""
    TOMBSTONE = 2
    """The latest record of its key, without a value: the key was deleted."""
    KEYLESS = 3
    """A record without a key."""
    BEYOND = 4
    """Above the latest offset of the map, which so knows nothing of it; with or without key and value."""


def marks_of(*standings: Standing) -> bytes:
    """A table for ``bytes.translate`` that maps these standings to 1, and the others to 0."""
    return bytes(standing in standings for standing in range(256))


class PlainTable:
    """The table in plain Python: a dict of limited size."""

    __slots__ = (
        "_base",
        "_digest",
        "_divisor",
        "_has_window",
        "_offsets",
        "_remainder",
        "capacity",
        "latest_offset",
    )

    def __init__(
        self,
        memory_bytes: int,
        seed: bytes,
        remainder: int = 0,
        divisor: int = 1,
        *,
        has_window: bool = True,
    ) -> None:
        from hashlib import blake2b  # 3 ms, and only compaction without the compiled module needs it

        def digest(key: bytes) -> bytes:
            return blake2b(key, key=seed, digest_size=31).digest()

        self._digest = digest
        self._offsets: dict[bytes, int] = {}
        self.capacity = memory_bytes // PLAIN_KEY_BYTES
        self.latest_offset = NO_OFFSET
        self._remainder, self._divisor = remainder, divisor
        self._has_window = has_window
        self._base = 0  # where the window begins; set by the first key

    @property
    def count(self) -> int:
        return len(self._offsets)

    def holds(self, key: bytes) -> bool:
        """Whether the key is of this table's class."""
        return self._divisor == 1 or hash(key) % self._divisor == self._remainder

    def put(self, key: bytes, offset: int) -> bool:
        _check_offset(offset)
        if self.holds(key):
            key, offsets = self._known_as(key), self._offsets
            if not offsets:
                self._base = max(offset - WINDOW, 0)
            if self._has_window and not 0 <= offset - self._base < 2 * WINDOW:
                return False
            known = offsets.get(key)
            if known is None and len(offsets) >= self.capacity:
                return False
            if known is None or offset > known:
                offsets[key] = offset
        if offset > self.latest_offset:
            self.latest_offset = offset
        return True

    def put_keys(self, keys: Sequence[bytes | None], offsets: Sequence[int] | int) -> int:
        if isinstance(offsets, int):
            _check_offset(offsets)
            _check_offset(offsets + len(keys))
            offsets = range(offsets, offsets + len(keys))
        for taken, (key, offset) in enumerate(zip(keys, offsets, strict=True)):
            if key is None:
                self.advance_to(offset)
            elif not self.put(key, offset):
                return taken
        return len(keys)

    def put_section(self, *section: Any) -> None:
        """None: there is no fast way through a section here."""

    def classify_section(self, *section: Any) -> None:
        """None, as for :meth:`put_section`."""

    def get(self, key: bytes) -> int:
        return self._offsets.get(self._known_as(key), NO_OFFSET)

    def advance_to(self, offset: int) -> None:
        _check_offset(offset)
        self.latest_offset = max(self.latest_offset, offset)

    def clear(self) -> None:
        self._offsets.clear()
        self.latest_offset = NO_OFFSET

    def _known_as(self, key: bytes) -> bytes:
        if not isinstance(key, bytes):
            raise TypeError(f"expected bytes, {type(key).__name__} found")
        return key if len(key) <= _LONGEST_EXACT_KEY else self._digest(key)


def _check_offset(offset: int) -> None:
    if not 0 <= offset <= _INT64_MAX:
        raise ValueError("an offset is 0 to 2**63 - 1")


class OffsetMap:
    """The latest offset of each key, in at most ``memory_bytes`` (rounded down to whole groups of slots).

    ``seed`` is 16 random bytes. Take new ones for every map; only maps that divide the keys among them share
    one: each skips keys that are not of its class. Without a window it takes offsets any distance apart, and
    always uses the plain table. UsageError if the memory does not hold one key. Takes no lock: a call while
    another thread is inside one raises RuntimeError (only the compiled table lets other threads run during a
    call).
    """

    __slots__ = ("_table",)

    def __init__(
        self, memory_bytes: int, seed: bytes, keys: KeyClass = ALL_KEYS, *, has_window: bool = True
    ) -> None:
        if len(seed) != SEED_BYTES:
            raise UsageError(f"a seed of {len(seed)} bytes; it must have {SEED_BYTES}")
        least_bytes = bytes_for(1, has_window=has_window)
        if memory_bytes < least_bytes:
            raise UsageError(f"{memory_bytes} bytes hold no key; {least_bytes} hold one")
        self._table: Any
        if build.compiled is None or not has_window:
            self._table = PlainTable(memory_bytes, seed, *keys, has_window=has_window)
        else:
            self._table = build.compiled.OffsetMap(memory_bytes, seed, *keys)

    @property
    def table(self) -> Any:
        """The table that this map uses. ``loops.put_run`` and ``loops.latest_run`` take the compiled one."""
        return self._table

    @property
    def count(self) -> int:
        """Keys in the map."""
        return int(self._table.count)

    @property
    def capacity(self) -> int:
        """Keys that the map can hold."""
        return int(self._table.capacity)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for a new key; known keys are still taken, inside the window."""
        return self.count >= self.capacity

    @property
    def latest_offset(self) -> int:
        """The largest offset seen, with or without a key; -1 before any. If all records are put in the order
        of their offsets, the map knows the latest record of each key up to here."""
        return int(self._table.latest_offset)

    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of a key. Returns False, and changes nothing, if the key is new and the map is full,
        or if the offset is outside the window. Returns True for a key of another class, which is skipped.

        An offset below the known one changes nothing: offsets of a key only rise. (Kafka's map takes the last
        one put, which is the same for records in order.)
        """
        return bool(self._table.put(key, offset))

    def put_keys(self, keys: Sequence[bytes | None], offsets: Sequence[int] | int) -> int:
        """Put several keys. ``offsets`` are theirs, or the offset of the first if they are consecutive. None
        stands for a record without a key, which is skipped. Returns how many were taken: all, or those before
        the first that finds no room. Cost: 0.08 µs per key, plain 0.6 µs."""
        if not isinstance(keys, list):
            keys = list(keys)
        if not isinstance(offsets, int | list):
            offsets = list(offsets)
        return int(self._table.put_keys(keys, offsets))

    def put_section(
        self,
        section: Bytes,
        position: int,
        end: int,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        start_offset: int = 0,
    ) -> int:
        """Put the keys of the ``count`` records in section[position:end], an uncompressed records section.

        Records without a key, and those below ``start_offset``, are skipped and count as taken. Returns how
        many were taken: fewer than ``count`` if there is no room for the next key. If all were taken,
        :attr:`latest_offset` is the last offset of the batch. CorruptionError, with nothing taken, for
        records that do not decode. Cost: 0.06 µs per record, plain 2 µs.
        """
        taken = self._table.put_section(
            section, position, end, count, base_offset, last_offset_delta, start_offset
        )
        if taken is not None:
            return int(taken)
        # The plain table, or damage: decoding raises the error.
        records = _decode(section, position, end, count, base_offset, last_offset_delta)
        below = sum(record.offset < start_offset for record in records)
        records = records[below:]
        taken = self.put_keys([record.key for record in records], [record.offset for record in records])
        if taken == len(records) and base_offset + last_offset_delta >= start_offset:
            self.advance_to(base_offset + last_offset_delta)
        return below + taken

    def get(self, key: bytes) -> int:
        """The latest offset of the key; -1 if the map does not have the key."""
        return int(self._table.get(key))

    def classify_section(
        self, section: Bytes, position: int, end: int, count: int, base_offset: int, last_offset_delta: int
    ) -> bytes:
        """The :class:`Standing` of each record of a section, as bytes. Arguments, errors and cost as in
        :meth:`put_section`."""
        standings = self._table.classify_section(
            section, position, end, count, base_offset, last_offset_delta
        )
        if standings is not None:
            return bytes(standings)
        return self.classify(_decode(section, position, end, count, base_offset, last_offset_delta))

    def classify(self, records: Iterable[Record]) -> bytes:
        """The same for decoded records."""
        latest_offset = self.latest_offset
        return bytes([self._standing(record, latest_offset) for record in records])

    def _standing(self, record: Record, latest_offset: int) -> Standing:
        if record.offset > latest_offset:
            return Standing.BEYOND
        if record.key is None:
            return Standing.KEYLESS
        if self.get(record.key) > record.offset or not self._table.holds(record.key):
            return Standing.SUPERSEDED
        return Standing.TOMBSTONE if record.value is None else Standing.LATEST

    def advance_to(self, offset: int) -> None:
        """Count everything up to this offset as seen: for a batch that is left out (control, aborted), or a
        gap at the end of a segment. Never lowers :attr:`latest_offset`."""
        self._table.advance_to(offset)

    def clear(self) -> None:
        """Forget all keys; the map keeps its memory and seed."""
        self._table.clear()


def _decode(
    section: Bytes, position: int, end: int, count: int, base_offset: int, last_offset_delta: int
) -> list[Record]:
    return decode_records(
        section, position, end, count, base_offset, 0, None, last_offset_delta=last_offset_delta
    )
