"""Indexes are hints: whatever they say, a lookup by offset or by time gives the right answer, and only a
damaged log makes it fail."""

from __future__ import annotations

import os
import random
import struct

import pytest

from logstore.model import NewRecord
from tests.partition.helpers import Partition, WatchedFiles, batch_of, time_of

COUNT = 60
"""Records in each of the two segments."""


def fill(path, files=None):
    partition = Partition(path, files=files)
    partition.write_segments(COUNT, COUNT, batch=3)
    return partition


@pytest.fixture
def partition(tmp_path):
    made = fill(tmp_path / "t-0")
    made.close()
    yield made
    made.crash()


def check_lookups(partition):
    """Every offset and every time, asked in an order that meets the index before a scan has mended it."""
    end = 2 * COUNT
    for offset in random.Random(1).sample(range(end), end):
        assert partition.read(offset, offset + 2) == list(range(offset, min(offset + 2, end)))
        assert partition.log.offset_at(time_of(offset)) == offset
        assert partition.log.offset_at(time_of(offset) - 500) == offset
    assert partition.log.offset_at(time_of(end)) is None
    assert partition.log.find_max_timestamp().offset == end - 1
    largest = [
        segment.largest_timestamp for segment in partition.log.writer.core.segments
    ]  # retention goes by it
    assert largest == [(time_of(COUNT - 1), COUNT - 1), (time_of(end - 1), end - 1)]
    assert partition.read() == list(range(end))


def offset_entries(*pairs):
    return b"".join(struct.pack(">ii", *pair) for pair in pairs)


def time_entries(*pairs):
    return b"".join(struct.pack(">qi", *pair) for pair in pairs)


def shifted(data, size, by):
    """The same entries with the last field of each (a position or an offset) moved."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(p[:-4] + struct.pack(">i", struct.unpack(">i", p[-4:])[0] + by) for p in parts)


OFFSET_LIES = {
    "empty": lambda data: b"",
    "stale": lambda data: data[: len(data) // 16 * 8],
    "torn": lambda data: data[:-3],
    "garbage": lambda data: random.Random(2).randbytes(len(data)),
    "zeros": lambda data: bytes(len(data)),
    "oversized": lambda data: data + bytes(8 * 5000),
    "doubled": lambda data: data + data,
    "backwards": lambda data: b"".join(data[at : at + 8] for at in range(len(data) - 8, -1, -8)),
    "position inside a batch": lambda data: shifted(data, 8, 5),
    "position of the next batch": lambda data: data[:4] + data[12:16] + data[8:12] + data[4:8] + data[16:],
    "position behind the end": lambda data: shifted(data, 8, 10**6),
    "position below zero": lambda data: shifted(data, 8, -(10**6)),
    "offsets too low": lambda data: offset_entries(*((i, 1500 + 100 * i) for i in range(1, 9))),
    "offsets too high": lambda data: offset_entries(*((50 + i, 150 * i) for i in range(1, 9))),
    "an offset of the next segment": lambda data: data + offset_entries((2**31 - 1, 10)),
    "negative offset": lambda data: offset_entries((-5, 200)) + data,
}

TIME_LIES = {
    "empty": lambda data: b"",
    "stale": lambda data: data[: len(data) // 24 * 12],
    "torn": lambda data: data[:-3],
    "garbage": lambda data: random.Random(3).randbytes(len(data)),
    "zeros": lambda data: bytes(len(data)),
    "oversized": lambda data: data + bytes(12 * 5000),
    "too late": lambda data: time_entries((time_of(5), 50)),
    "too early": lambda data: time_entries((time_of(50), 5)),
    "a time that nothing has": lambda data: data + time_entries((2**62, 59)),
    "an offset outside": lambda data: data[:-12] + time_entries((time_of(59), 2**31 - 1)),
    "negative offset": lambda data: time_entries((time_of(3), -7)),
    "negative time": lambda data: time_entries((-(2**60), 30)),
    "last entry of another place": lambda data: data[:-12] + time_entries((time_of(56), 59)),
}


@pytest.mark.parametrize("base", [0, COUNT], ids=["sealed", "active"])
@pytest.mark.parametrize("lie", OFFSET_LIES, ids=str)
@pytest.mark.damaged
def test_an_offset_index_that_lies(partition, base, lie):
    data = partition.file(base, ".index").read_bytes()
    assert len(data) >= 80
    partition.write_file(OFFSET_LIES[lie](data), base, suffix=".index")
    check_lookups(partition)


@pytest.mark.parametrize("base", [0, COUNT], ids=["sealed", "active"])
@pytest.mark.parametrize("lie", TIME_LIES, ids=str)
@pytest.mark.damaged
def test_a_time_index_that_lies(partition, base, lie):
    data = partition.file(base, ".timeindex").read_bytes()
    partition.write_file(TIME_LIES[lie](data), base, suffix=".timeindex")
    check_lookups(partition)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("base", [0, COUNT], ids=["sealed", "active"])
def test_a_missing_index(partition, base, suffix):
    partition.file(base, suffix).unlink()
    check_lookups(partition)


@pytest.mark.parametrize("base", [0, COUNT], ids=["sealed", "active"])
def test_indexes_of_another_segment(partition, base, tmp_path):
    other = Partition(tmp_path / "other-0")
    other.write_segments(7, 55, 20, batch=1)
    other.close()
    for suffix in (".index", ".timeindex"):
        partition.write_file(other.file(7, suffix).read_bytes(), base, suffix=suffix)
    check_lookups(partition)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_ten_mebibytes_of_zeros_as_a_crashed_broker_leaves_it(partition, suffix):
    partition.extend_file(bytes(10 * 2**20 // 24 * 24), COUNT, suffix=suffix)
    check_lookups(partition)


@pytest.mark.parametrize("lie", ["garbage", "stale", "position inside a batch", "backwards"])
def test_a_lying_index_of_the_active_segment_can_be_appended_to_and_sealed(partition, lie):
    for suffix, lies in ((".index", OFFSET_LIES), (".timeindex", TIME_LIES)):
        data = partition.file(COUNT, suffix).read_bytes()
        partition.write_file(lies.get(lie, lies["garbage"])(data), COUNT, suffix=suffix)
    partition.write(30, batch=3)
    partition.log.roll()
    partition.reopen()
    assert partition.read(2 * COUNT + 7) == list(range(2 * COUNT + 7, 2 * COUNT + 30))
    assert partition.log.offset_at(time_of(2 * COUNT + 7)) == 2 * COUNT + 7
    assert partition.log.find_max_timestamp().offset == 2 * COUNT + 29


@pytest.mark.parametrize("lie", ["position behind the end", "stale", "backwards", "offsets too low"])
@pytest.mark.damaged
def test_a_lying_index_does_not_mislead_a_truncation(partition, lie):
    data = partition.file(COUNT, ".index").read_bytes()
    partition.write_file(OFFSET_LIES[lie](data), COUNT, suffix=".index")
    partition.log.truncate_to(COUNT + 30)
    assert partition.read() == list(range(COUNT + 30))
    assert partition.write(3) == range(COUNT + 30, COUNT + 33)
    assert partition.read() == list(range(COUNT + 33))


@pytest.mark.parametrize("lie", TIME_LIES, ids=str)
def test_a_lying_time_index_does_not_mislead_a_truncation_into_its_segment(partition, lie):
    data = partition.file(0, ".timeindex").read_bytes()
    partition.write_file(TIME_LIES[lie](data), suffix=".timeindex")
    partition.log.truncate_to(30)
    assert partition.log.writer.core.active.largest_timestamp == (time_of(29), 29)
    partition.write(3)
    assert [partition.log.offset_at(time_of(offset)) for offset in range(33)] == list(range(33))


@pytest.mark.parametrize("lie", ["position behind the end", "garbage", "backwards", "offsets too low"])
def test_a_lying_index_does_not_hide_a_producer(tmp_path, lie):
    from logstore.model import ProducerIdentity

    partition = Partition(tmp_path / "t-0")
    appended = [
        partition.log.extend([b"x" * 40] * 3, producer=ProducerIdentity(7, 0, 3 * number))
        for number in range(20)
    ]
    partition.log.roll()
    partition.write(1)
    partition.crash()
    for path in partition.path.glob("*.snapshot"):
        path.unlink()
    partition.write_file(OFFSET_LIES[lie](partition.file(0, ".index").read_bytes()), suffix=".index")
    again = partition.log.extend([b"x" * 40] * 3, producer=ProducerIdentity(7, 0, 57))
    assert again == appended[-1]
    partition.crash()


def test_a_wrong_largest_timestamp_does_not_delete_a_segment_early(partition):
    """Retention goes by the largest timestamp; an index that says too little would cost data."""
    partition.write_file(time_entries((time_of(2), 2)), suffix=".timeindex")
    segment = partition.log.writer.core.segments[0]
    assert segment.largest_timestamp == (time_of(COUNT - 1), COUNT - 1)


def test_timestamps_out_of_order_need_no_rebuilding(tmp_path):
    partition = Partition(tmp_path / "t-0")
    times = random.Random(4).sample(range(1000), 60)
    for segment in (times[:30], times[30:]):
        for timestamp in segment:
            partition.log.extend([NewRecord(b"x" * 60, timestamp_ms=timestamp)])
        partition.log.roll()
    partition.reopen()
    before = partition.file(0, ".timeindex").stat().st_ino
    for wanted in range(0, 1000, 7):
        expected = next((offset for offset, time in enumerate(times) if time >= wanted), None)
        assert partition.log.offset_at(wanted) == expected
    assert partition.log.find_max_timestamp().timestamp_ms == max(times)
    assert partition.file(0, ".timeindex").stat().st_ino == before
    partition.crash()


def test_records_without_a_timestamp_need_no_rebuilding(tmp_path):
    partition = Partition(tmp_path / "t-0")
    for _ in range(2):
        partition.log.extend([NewRecord(b"x" * 60, timestamp_ms=-1)] * 3)
        partition.log.roll()
    partition.reopen()
    before = partition.file(0, ".timeindex").stat().st_ino
    assert partition.log.offset_at(1) is None
    assert partition.log.find_max_timestamp() is None
    assert partition.file(0, ".timeindex").stat().st_ino == before
    partition.crash()


def test_a_rebuilt_index_is_stored_for_the_next_reader(partition):
    good = partition.file(0, ".index").read_bytes()
    partition.file(0, ".index").unlink()
    partition.read(30)
    assert partition.file(0, ".index").stat().st_size > 0 or len(good) < 4096
    partition.reopen()
    check_lookups(partition)


@pytest.mark.damaged
def test_no_index_is_ever_truncated_in_place(tmp_path):
    """A reader in another process may have it mapped: it would be killed by the next access."""
    files = WatchedFiles()
    partition = fill(tmp_path / "t-0", files)
    partition.log.truncate_to(COUNT + 20)
    partition.write(COUNT, batch=3)
    partition.log.truncate_to(20)
    partition.write(10)
    partition.close()
    partition.write_file(b"garbage.", suffix=".index")
    partition.write_file(b"garbage garb", suffix=".timeindex")
    partition.read(15)
    partition.crash()
    partition.corrupt_batch(3)
    partition.open(accept_loss=True)
    partition.close()
    cut = [name for action, name in files.trace if action == "truncate" and "index" in name]
    assert [name for name in cut if not name.endswith(".tmp")] == []
    assert any(action == "remove" and "index" in name for action, name in files.trace)


def test_a_mapped_index_outlives_its_replacement(partition):
    """A reader keeps the old file while somebody writes the new one."""
    partition.read(30)
    held = partition.log.writer.core.segments[0].offset_index
    before = held.lookup(30)
    partition.log.writer.core.segments[0].rebuild_indexes()
    assert held.lookup(30) == before
    check_lookups(partition)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("base", [0, COUNT], ids=["sealed", "active"])
@pytest.mark.damaged
def test_a_symlinked_index_is_replaced_and_its_target_left_alone(partition, base, suffix, tmp_path):
    target = tmp_path / "precious"
    target.write_bytes(partition.file(base, suffix).read_bytes())
    before = target.read_bytes()
    partition.file(base, suffix).unlink()
    os.symlink(target, partition.file(base, suffix))
    check_lookups(partition)
    partition.close()
    assert target.read_bytes() == before


def test_a_dangling_symlink_for_an_index_is_replaced(partition):
    partition.file(0, ".index").unlink()
    os.symlink("nowhere", partition.file(0, ".index"))
    check_lookups(partition)


def test_values_that_look_like_batches_are_not_taken_for_some(tmp_path):
    """A log may hold other logs: an index position inside a value must not be believed."""
    partition = Partition(tmp_path / "t-0")
    for number in range(10):
        inner = bytes(batch_of(1000 + number * 10, 2) + batch_of(1002 + number * 10, 2))
        partition.log.extend([NewRecord(inner, timestamp_ms=time_of(number))])
    partition.log.roll()
    partition.close()
    index = partition.file(0, ".index")
    index.write_bytes(shifted(index.read_bytes(), 8, 61 + 8))
    for offset in range(10):
        assert [record.offset for record in partition.log.read(offset)] == list(range(offset, 10))
    partition.crash()
