"""Indexes that are read in pages answer as those in memory do, read little, and keep few pages in memory."""

from __future__ import annotations

import random

import pytest

from logstore.format.index import encode_offset_entry, encode_time_entry
from logstore.partition.segments.index_pages import PAGE_ENTRIES, IndexPages
from logstore.partition.segments.indexes import OffsetIndex, TimeIndex
from logstore.testing import FaultyFiles, MemoryFiles

BASE = 1_000
COUNTS = [0, 1, PAGE_ENTRIES, PAGE_ENTRIES + 1, PAGE_ENTRIES + 2, 3 * PAGE_ENTRIES - 1, 5 * PAGE_ENTRIES]


def stored(kind, entries, cache=None):
    """The index as it is found in a file, and as it is in memory; and the disk."""
    files = FaultyFiles(MemoryFiles())
    file = files.open("/index", create=True)
    file.write_at(0, [entries])
    in_memory = kind(files, "/index", BASE)
    in_memory.extend(entries)
    files.operations.clear()
    return kind.open_sealed(files, "/index", BASE, cache or IndexPages(2)), in_memory, files


def rising(count, chance):
    value = 0
    for _ in range(count):
        value += chance.randrange(1, 9)
        yield value


def offset_entries(count, chance):
    pairs = zip(rising(count, chance), rising(count, chance), strict=True)
    return b"".join(encode_offset_entry(BASE, BASE + offset, position) for offset, position in pairs)


def time_entries(count, chance):
    pairs = zip(rising(count, chance), rising(count, chance), strict=True)
    return b"".join(encode_time_entry(BASE, timestamp_ms, BASE + offset) for timestamp_ms, offset in pairs)


@pytest.mark.parametrize("count", COUNTS)
def test_offsets_are_found_as_in_memory(count):
    chance = random.Random(count)
    index, expected, _ = stored(OffsetIndex, offset_entries(count, chance))
    assert index.entry_count == count
    assert index.last_offset == expected.last_offset
    assert index.is_in_order
    for number in {0, count // 2, PAGE_ENTRIES - 1, PAGE_ENTRIES, count - 1} & set(range(count)):
        entry = expected.entry(number)
        assert index.entry(number) == entry
        for near in (-1, 0, 1):
            assert index.interval(entry.offset + near) == expected.interval(entry.offset + near)
            assert index.entry_at(entry.position + near) == expected.entry_at(entry.position + near)
    for _ in range(100):
        key = chance.randrange(BASE - 5, expected.last_offset + 9)
        assert index.interval(key) == expected.interval(key)
        assert index.lookup(key) == expected.lookup(key)
    behind = chance.randrange(max(count, 1)) * 4
    assert [*index.positions_behind(behind, behind + 500)] == [
        *expected.positions_behind(behind, behind + 500)
    ]
    assert index.copy().entries == expected.copy().entries


@pytest.mark.parametrize("count", COUNTS)
def test_times_are_found_as_in_memory(count):
    chance = random.Random(count)
    index, expected, _ = stored(TimeIndex, time_entries(count, chance))
    assert index.last_entry == expected.last_entry
    for key in (-1, 0, *(chance.randrange(expected.last_entry.timestamp_ms + 9) for _ in range(100))):
        assert index.lookup(key) == expected.lookup(key)


def test_a_damaged_index_answers_something():
    chance = random.Random(1)
    index, *_ = stored(OffsetIndex, chance.randbytes(8 * 4 * PAGE_ENTRIES))
    for _ in range(200):
        assert len(index.interval(chance.randrange(2**31))) == 5


def test_a_lookup_reads_a_few_pages_and_then_none():
    count = 64 * PAGE_ENTRIES
    index, expected, files = stored(OffsetIndex, offset_entries(count, random.Random(2)), IndexPages())
    offset = expected.entry(count // 3).offset
    index.interval(offset)
    assert 2 <= sum(kind == "read" for kind, _ in files.operations) <= 7
    files.operations.clear()
    index.interval(offset)
    assert files.operations == []


def test_the_pages_in_memory_are_bounded_for_all_indexes_together():
    cache = IndexPages(10)
    chance = random.Random(3)
    indexes = [stored(OffsetIndex, offset_entries(9 * PAGE_ENTRIES, chance), cache)[0] for _ in range(4)]
    for index in indexes:
        for offset in range(BASE, index.last_offset, 500):
            index.interval(offset)
    assert sum(len(index._entries._pages) for index in indexes) == 10
