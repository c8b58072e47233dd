"""The latest offset of each key in memory of a fixed size: what compaction asks about every record.

:class:`OffsetMap` is filled from the records sections of batches, in order, and then says which records of a
section are still the latest of their keys. Under it is one of two tables with the same methods:

- the compiled one, after Kafka's SkimpyOffsetMap: 21 bytes per slot, nine slots of ten in use, 23.4 bytes per
  key whatever its size. It knows keys by a 128-bit hash (SipHash-1-3) that is keyed with the seed;
- :class:`PlainTable`, a dict: 190 bytes per key, so the same memory holds an eighth of the keys, and a log
  takes more rounds to clean. It knows keys of up to 30 bytes by themselves, longer ones by a keyed BLAKE2b.

No digest goes to disk, and each map should get a seed of its own that nobody can guess: then nobody can
choose keys that the map would take for one another.

A slot has five bytes for its offset. So a map takes offsets of a *window* around the first that it took, from
2**39 below it to one less than 2**39 above it (500 billion either way); outside of it there is no room, as if
the map were full. A round of compaction then ends there, and the next one begins with an empty map.

Knows nothing of batches, of files, and of what is done with the answer.
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
"""The offset of a key that the map does not know, and the latest offset of an empty map."""

PLAIN_KEY_BYTES: Final = 190
"""Memory per key of the plain table at its worst moment, when the dict has just grown and the old one is
still there: key 64, offset 32, dict entries 90. Measured; held by a test."""

_GROUP_SLOTS: Final = 16
_GROUP_BYTES: Final = _GROUP_SLOTS * 21
"""Of the compiled table, which is made of groups of slots."""

WINDOW: Final = 1 << 39
"""How far from the first offset those of a map may be."""

_LONGEST_EXACT_KEY: Final = 30
"""A bytes object of up to 31 bytes takes 64 bytes of memory; digests have 31, so none is equal to a key."""

_INT64_MAX: Final = (1 << 63) - 1


def bytes_for(key_count: int, *, has_window: bool = True) -> int:
    """Memory with which a map has room for so many keys; never too little for a map of one."""
    key_count = max(key_count, 1)
    if build.compiled is None or not has_window:
        return key_count * PLAIN_KEY_BYTES
    slot_count = -(-key_count * 10 // 9)
    return -(-slot_count // _GROUP_SLOTS) * _GROUP_BYTES


class KeyClass(NamedTuple):
    """The keys whose hash, divided by ``divisor``, leaves ``remainder``. For one seed, each key belongs to
    exactly one of the classes of a divisor."""

    remainder: int
    divisor: int

    def divided(self, part_count: int) -> list[KeyClass]:
        """Classes that share out the keys of this one."""
        divisor = self.divisor
        return [KeyClass(self.remainder + part * divisor, divisor * part_count) for part in range(part_count)]


ALL_KEYS: Final = KeyClass(0, 1)


class Standing(IntEnum):
    """What a record is to the map: one byte each in what :meth:`OffsetMap.classify_section` answers."""

    SUPERSEDED = 0
    """The map knows a later record of this key; or the key is none of its class."""
    LATEST = 1
    """The latest of its key; it has a value."""
    TOMBSTONE = 2
    """The latest of its key, and it says that the key is gone."""
    KEYLESS = 3
    """It has no key."""
    BEYOND = 4
    """Above the latest offset of the map, so nothing is known of it; with or without key and value."""


def marks_of(*standings: Standing) -> bytes:
    """A table for ``bytes.translate``: 1 for each of these standings, 0 for the others."""
    return bytes(standing in standings for standing in range(256))


class PlainTable:
    """The table in plain Python: a dict with a bound."""

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
        self._base = 0  # where the window begins, once there is a key

    @property
    def count(self) -> int:
        return len(self._offsets)

    def holds(self, key: bytes) -> bool:
        """Whether it is about the key."""
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
        """There is no fast way through a section here."""

    def classify_section(self, *section: Any) -> None:
        """Neither here."""

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

    ``seed`` is 16 random bytes; take new ones for every map, or for maps that share out the keys among them:
    a map passes over keys that are not of its class. Without a window it takes offsets however far from one
    another, and then is always the plain table. UsageError if the memory holds no key. Takes no lock: a call
    while another thread is inside one raises RuntimeError (only the compiled table lets other threads run
    during a call).
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
        """What is under it: the compiled one is what ``loops.put_run`` and ``loops.latest_run`` take."""
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
        """Whether there is no room for a new key; known ones are still taken, inside of the window."""
        return self.count >= self.capacity

    @property
    def latest_offset(self) -> int:
        """The largest offset seen, with or without a key; -1 before any. If all is put in the order of
        offsets, then the map knows the latest record of each key up to here."""
        return int(self._table.latest_offset)

    def put(self, key: bytes, offset: int) -> bool:
        """The offset of a key; False, and nothing happens, if the key is new and the map is full, or if the
        offset is outside of the window. True for a key of another class, which is passed over.

        Below the offset that is there it changes nothing: offsets of a key only rise. (Kafka's map takes
        whatever comes last, which for records in order is the same.)
        """
        return bool(self._table.put(key, offset))

    def put_keys(self, keys: Sequence[bytes | None], offsets: Sequence[int] | int) -> int:
        """Keys and their offsets, or the offset of the first of consecutive ones. Returns how many were
        taken: all, or those in front of the first that finds no room. None is a record without a key: passed
        over. Cost: 0.08 µs per key, plain 0.6 µs."""
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
        """The keys of the ``count`` records in section[position:end], an uncompressed records section.

        Records without a key, and those below ``start_offset``, count as taken and are passed over. Returns
        how many were taken: fewer than ``count`` if there is no room for the next key. When all were,
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
        """The latest offset of the key; -1 if the map does not know it."""
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
        """The same for records that are decoded already."""
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
        """Everything up to this offset was seen: a batch that is left out (control, aborted), a gap at the
        end of a segment. Never lowers :attr:`latest_offset`."""
        self._table.advance_to(offset)

    def clear(self) -> None:
        """Forget all keys; memory and seed stay those of this map."""
        self._table.clear()


def _decode(
    section: Bytes, position: int, end: int, count: int, base_offset: int, last_offset_delta: int
) -> list[Record]:
    return decode_records(
        section, position, end, count, base_offset, 0, None, last_offset_delta=last_offset_delta
    )
