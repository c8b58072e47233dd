"""Index files opened by path: lookups, arrays, appends, and what is wrong with them."""

import errno
import random
import struct
from bisect import bisect_right

import numpy
import pytest

from logstore import OffsetIndex, Segment
from logstore.errors import ClosedError, CorruptionError, DiskFullError, StorageError, UsageError
from logstore.files import OsFiles
from logstore.format.index import OffsetPosition, TimestampOffset
from logstore.partition.checking.findings import FindingKind
from logstore.segment_files import TimeIndex
from logstore.testing import FAULTS, FaultyFiles
from tests.format.file_vectors import (
    BASE_OFFSET,
    OFFSET_ENTRY,
    OFFSET_ENTRY_VALUE,
    TIME_ENTRY,
    TIME_ENTRY_VALUE,
)
from tests.segment_files.helpers import written_segment

BASE = 7_000_000_000


def offset_rows(count, chance):
    offset, position, rows = BASE - 1, -1, []
    for _ in range(count):
        offset += chance.randrange(1, 400)
        position += chance.randrange(1, 5_000)
        rows.append((offset, position))
    return rows


def time_rows(count, chance):
    time_ms, offset, rows = 1_700_000_000_000, BASE, []
    for _ in range(count):
        time_ms += chance.randrange(1, 10_000)
        offset += chance.randrange(0, 400)
        rows.append((time_ms, offset))
    return rows


def write_offsets(path, rows, behind=b""):
    path.write_bytes(b"".join(struct.pack(">ii", o - BASE, p) for o, p in rows) + behind)


def write_times(path, rows, behind=b""):
    path.write_bytes(b"".join(struct.pack(">qi", t, o - BASE) for t, o in rows) + behind)


@pytest.fixture
def offsets(tmp_path):
    return tmp_path / f"{BASE:020d}.index"


@pytest.fixture
def times(tmp_path):
    return tmp_path / f"{BASE:020d}.timeindex"


# Lookups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [0, 10 * 1024 * 1024 - 40_000], ids=["whole", "preallocated"])
def test_lookups_among_5000_entries(offsets, times, zeros):
    chance = random.Random(5)
    rows, moments = offset_rows(5_000, chance), time_rows(5_000, chance)
    write_offsets(offsets, rows, bytes(zeros))
    write_times(times, moments, bytes(zeros // 24 * 24))
    with OffsetIndex.open(offsets) as index, TimeIndex.open(times) as time_index:
        assert (len(index), len(time_index)) == (5_000, 5_000)
        firsts = [row[0] for row in rows]
        for _ in range(5_000):
            wanted = chance.randrange(BASE, rows[-1][0] + 500)
            at = bisect_right(firsts, wanted)
            assert index.lookup(wanted) == (rows[at - 1] if at else (BASE, 0))
        firsts = [row[0] for row in moments]
        for _ in range(5_000):
            wanted = chance.randrange(moments[0][0] - 500, moments[-1][0] + 500)
            at = bisect_right(firsts, wanted)
            assert time_index.lookup(wanted) == (moments[at - 1] if at else (-1, BASE))
        assert index.lookup(BASE - 1) == OffsetPosition(BASE, 0)
        assert time_index.lookup(0) == TimestampOffset(-1, BASE)


def test_entries_as_a_sequence(offsets):
    rows = offset_rows(50, random.Random(1))
    write_offsets(offsets, rows)
    with OffsetIndex.open(offsets) as index:
        assert list(index) == rows
        assert [index[number] for number in range(-50, 50)] == rows + rows
        assert index[numpy.int64(3)] == rows[3]
        assert index[0].position == rows[0][1]
        for number in (50, -51):
            with pytest.raises(IndexError):
                index[number]
        with pytest.raises(UsageError):
            index["0"]


def test_golden_entries(tmp_path):
    path = tmp_path / f"{BASE_OFFSET:020d}.index"
    path.write_bytes(OFFSET_ENTRY)
    assert list(OffsetIndex.open(path)) == [OFFSET_ENTRY_VALUE]
    path.with_suffix(".timeindex").write_bytes(TIME_ENTRY)
    assert list(TimeIndex.open(path.with_suffix(".timeindex"))) == [TIME_ENTRY_VALUE]


def test_the_entries_of_a_log_lead_to_its_batches(tmp_path):
    path = written_segment(tmp_path, count=300, batch=3)
    with Segment.open(path) as segment:
        batches = {batch.position: batch for batch in segment.batches()}
        index, time_index = segment.offset_index, segment.time_index
        assert len(index) > 20
        assert all(batches[entry.position].last_offset == entry.offset for entry in index)
        by_last = {batch.last_offset: batch for batch in batches.values()}
        assert all(by_last[entry.offset].max_timestamp_ms == entry.timestamp_ms for entry in time_index)
        assert index.check()
        assert time_index.check()


# Arrays -----------------------------------------------------------------------------------------------------


def test_arrays_are_the_entries_without_a_copy(offsets, times):
    rows, moments = offset_rows(1_000, random.Random(2)), time_rows(1_000, random.Random(3))
    write_offsets(offsets, rows, bytes(800))
    write_times(times, moments)
    with OffsetIndex.open(offsets) as index:
        entries = index.entries
        assert entries.dtype == numpy.dtype([("relative_offset", ">i4"), ("position", ">i4")])
        assert entries.shape == (1_000,)
        assert not entries.flags.writeable
        assert not entries.flags.owndata
        assert index.entries is entries
        assert numpy.shares_memory(index.positions, entries)
        assert numpy.shares_memory(index.relative_offsets, entries)
        assert index.offsets.dtype == numpy.int64
        assert index.offsets.tolist() == [row[0] for row in rows]
        assert index.positions.tolist() == [row[1] for row in rows]
        read = index.read_entries()
        assert (read == entries).all()
        assert not numpy.shares_memory(read, entries)
    with TimeIndex.open(times) as index:
        assert index.entries.dtype == numpy.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
        assert index.timestamps.tolist() == [row[0] for row in moments]
        assert index.offsets.tolist() == [row[1] for row in moments]
        assert numpy.shares_memory(index.timestamps, index.entries)
    assert entries["position"][-1] == rows[-1][1]  # closed, and still there


def test_arrays_lie_over_the_file(offsets):
    write_offsets(offsets, [(BASE, 5), (BASE + 1, 6)])
    with OffsetIndex.open(offsets) as index:
        positions = index.positions
        with offsets.open("r+b") as file:
            file.write(struct.pack(">ii", 0, 77))
        assert positions.tolist() == [77, 6]
        assert index[0].position == 5  # as it was read


def test_arrays_of_an_empty_index(offsets):
    offsets.write_bytes(bytes(80))
    with OffsetIndex.open(offsets) as index:
        assert (len(index), list(index), index.offsets.tolist(), len(index.read_entries())) == (0, [], [], 0)
        assert index.lookup(BASE + 5) == (BASE, 0)
        assert index.check()


# Appending --------------------------------------------------------------------------------------------------


def test_what_is_appended_is_in_the_file(offsets, times):
    chance = random.Random(4)
    rows, moments = offset_rows(300, chance), time_rows(300, chance)
    with OffsetIndex.open(offsets, create=True) as index, TimeIndex.open(times, create=True) as time_index:
        for row, moment in zip(rows[:200], moments[:200], strict=True):
            index.append(*row)
            time_index.append(*moment)
        assert index.offsets.tolist() == [row[0] for row in rows[:200]]
        index.flush()
        time_index.flush()
        index.append(*rows[200])
        assert len(index.entries) == 201
    with OffsetIndex.open(offsets, writable=True) as index, TimeIndex.open(times, create=True) as time_index:
        for row in rows[201:]:
            index.append(*row)
        for moment in moments[200:]:
            time_index.append(*moment)
        assert index.lookup(rows[-1][0]) == rows[-1]
    assert list(OffsetIndex.open(offsets)) == rows
    assert list(TimeIndex.open(times)) == moments
    assert offsets.stat().st_size == 300 * 8


def test_an_append_to_a_file_of_full_size_takes_the_place_of_zeros(offsets):
    write_offsets(offsets, [(BASE + 3, 100)], bytes(792))
    with OffsetIndex.open(offsets, writable=True) as index:
        index.append(BASE + 5, 200)
    assert offsets.stat().st_size == 800
    assert list(OffsetIndex.open(offsets)) == [(BASE + 3, 100), (BASE + 5, 200)]


@pytest.mark.parametrize(
    "entry",
    [
        (BASE + 3, 200),
        (BASE + 2, 200),
        (BASE + 4, 100),
        (BASE + 2**31, 200),
        (BASE + 4, 2**31),
        (BASE + 4, -1),
        (BASE - 1, 200),
        (-1, 200),
        (BASE + 4, 2.5),
        ("5", 200),
        (True, 200),
        (numpy.int64(BASE + 4), 200),
        (2**70, 200),
    ],
)
def test_an_entry_that_cannot_be_is_refused(offsets, entry):
    write_offsets(offsets, [(BASE + 3, 100)])
    with OffsetIndex.open(offsets, writable=True) as index:
        with pytest.raises(UsageError):
            index.append(*entry)
        assert list(index) == [(BASE + 3, 100)]
    assert offsets.stat().st_size == 8


@pytest.mark.parametrize(
    "entry",
    [
        (5, BASE + 9),
        (4, BASE + 9),
        (6, BASE + 2),
        (6, BASE + 2**31),
        (-1, BASE + 9),
        (6.0, BASE),
        (2**63, BASE),
    ],
)
def test_a_time_entry_that_cannot_be_is_refused(times, entry):
    write_times(times, [(5, BASE + 3)])
    with TimeIndex.open(times, writable=True) as index:
        with pytest.raises(UsageError):
            index.append(*entry)
        index.append(6, BASE + 3)
    assert list(TimeIndex.open(times)) == [(5, BASE + 3), (6, BASE + 3)]


def test_an_index_for_reading_is_not_written(offsets):
    write_offsets(offsets, [(BASE + 3, 100)])
    with OffsetIndex.open(offsets) as index:
        with pytest.raises(UsageError, match="writable=True"):
            index.append(BASE + 4, 200)
        index.flush()
    assert offsets.stat().st_size == 8


@pytest.mark.parametrize("behind", [0, 80], ids=["at the end", "over zeros"])
def test_a_full_disk_leaves_whole_entries(offsets, behind):
    write_offsets(offsets, [(BASE + 3, 100)], bytes(behind))
    files = FaultyFiles(OsFiles())
    with OffsetIndex.open(offsets, writable=True, files=files) as index:
        files.fail(FAULTS["short write"], kinds={"write"})
        with pytest.raises(DiskFullError):
            index.append(BASE + 4, 200)
        assert len(index) == 1
        if not behind:
            assert offsets.stat().st_size == 8
        index.append(BASE + 4, 200)
    assert list(OffsetIndex.open(offsets)) == [(BASE + 3, 100), (BASE + 4, 200)]


# What is wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@pytest.mark.parametrize("size", [1, 7, 13, 100_001])
def test_an_index_of_odd_length(tmp_path, kind, size):
    path = tmp_path / f"{BASE:020d}{kind._suffix}"
    path.write_bytes(bytes(size))
    with pytest.raises(CorruptionError, match="not whole entries") as caught:
        kind.open(path)
    assert caught.value.path == str(path)
    assert caught.value.position == size // kind._layout.size_bytes * kind._layout.size_bytes


def test_entries_that_do_not_rise_are_named(offsets, times):
    rows = offset_rows(100, random.Random(6))
    write_offsets(offsets, [*rows, rows[50]])
    [problem] = OffsetIndex.open(offsets).check().problems
    assert (problem.kind, problem.path, problem.position) == (FindingKind.OFFSET_INDEX, str(offsets), 800)
    write_times(times, [(9, BASE), (8, BASE + 1)])
    report = TimeIndex.open(times).check()
    assert not report
    assert (report.problems[0].kind, report.problems[0].position) == (FindingKind.TIME_INDEX, 12)


def test_what_is_no_index_file(tmp_path):
    with pytest.raises(StorageError) as caught:
        OffsetIndex.open(tmp_path / f"{1:020d}.index")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(CorruptionError, match="regular"):
        OffsetIndex.open(tmp_path, base_offset=0)
    (tmp_path / "x").write_bytes(bytes(8))
    with pytest.raises(UsageError, match="base_offset="):
        OffsetIndex.open(tmp_path / "x")
    assert len(OffsetIndex.open(tmp_path / "x", base_offset=3)) == 1
    for path in ("", None, 5, "a\0b"):
        with pytest.raises(UsageError, match="index entries"):
            OffsetIndex.open(path)
    with (tmp_path / f"{2:020d}.index").open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    with pytest.raises(CorruptionError, match="larger"):
        OffsetIndex.open(tmp_path / f"{2:020d}.index")


def test_a_disk_that_cannot_read_is_an_error(offsets):
    write_offsets(offsets, [(BASE, 0)])
    files = FaultyFiles(OsFiles())
    files.fail(FAULTS["EIO"], kinds={"read"})
    with pytest.raises(StorageError) as caught:
        OffsetIndex.open(offsets, files=files)
    assert caught.value.errno == errno.EIO


def test_a_closed_index(offsets):
    write_offsets(offsets, [(BASE + 1, 5)])
    index = OffsetIndex.open(offsets, writable=True)
    index.close()
    assert index.lookup(BASE + 2) == (BASE + 1, 5)
    for use in (lambda: index.entries, index.flush, lambda: index.append(BASE + 5, 9)):
        with pytest.raises(ClosedError):
            use()


@pytest.mark.parametrize("suffix", ["", ".deleted", ".swap", ".cleaned"])
def test_the_name_says_the_base_offset(tmp_path, suffix):
    path = tmp_path / f"{42:020d}.index{suffix}"
    path.write_bytes(struct.pack(">ii", 1, 5))
    assert OffsetIndex.open(path)[0] == (43, 5)
    assert OffsetIndex.open(path, base_offset=50)[0] == (51, 5)
    assert repr(OffsetIndex.open(path)) == f"<OffsetIndex {str(path)!r} of 1 entries>"
