"""Index entries as arrays: the same entries, and the same faults, as entry by entry."""

import random
import struct

import pytest

from logstore.errors import CorruptionError
from logstore.format import entry_arrays
from logstore.format.index import check_offset_index, check_time_index, used_bytes
from logstore.format.layout import LAYOUTS, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from logstore.partition.checking.indexes import BULK_ENTRIES
from tests.logdir.helpers import run_python

BASE = 1_000


def rising_entries(layout, count, chance):
    """Entries as a log has them: an offset index rises in both fields; in a time index offsets may stay."""
    first = second = 0
    rows = []
    for _ in range(count):
        first += chance.randrange(1, 50)
        second += chance.randrange(0 if layout is TIME_INDEX_ENTRY else 1, 50)
        rows.append((first, second))
    return b"".join(layout.pack(*row) for row in rows)


def damaged(entries, layout, chance):
    """The entries with up to three small changes."""
    changed = bytearray(entries)
    for _ in range(chance.randrange(4)):
        kind = chance.randrange(4)
        at = chance.randrange(len(changed) + 1)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            start = at // layout.size_bytes * layout.size_bytes
            changed[start : start + layout.size_bytes * chance.randrange(3)] = bytes(
                layout.size_bytes * chance.randrange(3)
            )
        elif kind == 2:
            start = at // layout.size_bytes * layout.size_bytes
            changed[start:start] = changed[start - layout.size_bytes : start]
        else:
            del changed[at : at + chance.randrange(3)]
    return bytes(changed)


def fault_of(check, entries, **options):
    try:
        check(entries, len(entries), BASE, **options)
    except CorruptionError as error:
        return error.reason, error.position, error.base_offset
    return None


@pytest.mark.parametrize(
    ("check", "layout"), [(check_offset_index, OFFSET_INDEX_ENTRY), (check_time_index, TIME_INDEX_ENTRY)]
)
def test_arrays_find_the_same_faults_in_the_same_words(check, layout, monkeypatch):
    chance = random.Random(layout.name)
    found = 0
    for _ in range(1_500):
        entries = damaged(rising_entries(layout, chance.randrange(60), chance), layout, chance)
        plain = fault_of(check, entries)
        monkeypatch.setattr(entry_arrays, "_PIECE_ENTRIES", chance.randrange(1, 70))
        assert fault_of(check, entries, as_arrays=True) == plain
        found += plain is not None
    assert 300 < found < 1_400


@pytest.mark.parametrize("count", [BULK_ENTRIES - 1, BULK_ENTRIES])
def test_a_check_of_a_large_index_loads_numpy_and_of_a_smaller_one_does_not(count):
    code = (
        "import sys, struct\n"
        "from logstore.partition.checking.findings import Findings\n"
        "from logstore.partition.checking.indexes import OffsetIndexCheck, StoredIndex\n"
        f"entries = b''.join(struct.pack('>ii', n, n) for n in [*range(1, {count}), 1])\n"
        "findings = Findings()\n"
        "OffsetIndexCheck(findings, StoredIndex('/i', 0, entries, True),\n"
        "    trusted_end=2**63, end_position=2**62, interval_bytes=2**62)\n"
        "print('numpy' in sys.modules, findings.problems[0].position)"
    )
    assert run_python(code).split() == [str(count == BULK_ENTRIES), str((count - 1) * 8)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_the_dtype_is_the_layout(layout):
    kind = entry_arrays.entry_type(layout)
    assert kind.itemsize == layout.size_bytes
    assert kind.names == tuple(field.name for field in layout.fields)
    assert all(kind.fields[name][1] == layout.position_of(name) for name in kind.names)
    packed = bytes(range(1, 201))[: 2 * layout.size_bytes]
    rows = entry_arrays.entries_of(packed, layout, 2).tolist()
    assert rows == list(layout.iter_unpack(packed))


def test_entries_are_no_copy():
    buffer = bytearray(rising_entries(OFFSET_INDEX_ENTRY, 3, random.Random(2)))
    entries = entry_arrays.entries_of(buffer, OFFSET_INDEX_ENTRY, 3)
    struct.pack_into(">i", buffer, 8, 77)
    assert entries["relative_offset"][1] == 77
    assert len(entry_arrays.entries_of(b"", OFFSET_INDEX_ENTRY, 0)) == 0


ENTRY = OFFSET_INDEX_ENTRY.pack(256, 65_536)  # ends in zeros itself


@pytest.mark.parametrize(
    ("entries", "used"),
    [
        (b"", 0),
        (ENTRY, 8),
        (ENTRY + bytes(800), 8),
        (ENTRY * 2 + bytes(8), 16),
        (bytes(8) + ENTRY + bytes(16), 16),
        (bytes(8), 8),
        (bytes(16), 0),
        (bytes(10 * 1024 * 1024), 0),
        (bytes(15), 15),
        (ENTRY + bytes(7), 15),
    ],
    ids=[
        "empty",
        "one",
        "preallocated",
        "two",
        "first of zeros",
        "one of zeros",
        "none",
        "10 MiB",
        "odd",
        "torn",
    ],
)
def test_zeros_behind_the_last_entry_are_not_in_use(entries, used):
    assert used_bytes(entries, OFFSET_INDEX_ENTRY) == used
