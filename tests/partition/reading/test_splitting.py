"""Cutting a range into pieces: where batches begin, and about as many bytes in each."""

from __future__ import annotations

from itertools import pairwise

import pytest

from logstore.errors import OffsetOutOfRangeError, UsageError
from tests.partition.helpers import Partition, time_of
from tests.partition.helpers_rules import open_log


@pytest.fixture
def partition(tmp_path):
    made = Partition(tmp_path / "t-0", segment_bytes=8_000)
    yield made
    made.close()


def bases(log):
    """The base offset of every batch."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.fetch(offset, max_bytes=1)
        found.append(offset)
        offset = fetched.next_offset
    return found


@pytest.mark.parametrize("parts", [2, 3, 7, 20])
def test_the_pieces_are_of_about_as_many_bytes_and_begin_where_batches_do(partition, parts):
    partition.write(1_000, batch=10)
    log = partition.log
    assert log.segment_count > 3
    cuts = log.split(0, 1_000, parts=parts)
    assert len(cuts) == parts - 1
    assert set(cuts) <= set(bases(log))
    sizes = [stop - start for start, stop in pairwise([0, *cuts, 1_000])]
    assert max(sizes) - min(sizes) <= 40  # two batches at each end: the index names every second


def test_a_part_of_a_log_is_cut_inside_of_it(partition):
    partition.write(1_000, batch=10)
    cuts = partition.log.split(333, 777, parts=4)
    assert len(cuts) == 3
    assert cuts == sorted(set(cuts))
    assert cuts[0] > 333
    assert cuts[-1] < 777


def test_there_are_no_more_pieces_than_batches(partition):
    partition.write(30, batch=30)
    assert partition.log.split(0, 30, parts=10) == []
    partition.write(30, batch=30)
    assert partition.log.split(0, 60, parts=10) == [30]
    assert partition.log.split(0, 60, parts=2**62) == [30]  # and asks no more often


@pytest.mark.parametrize("most", [1, 7, 25, 100, 999, 1_000])
def test_no_piece_spans_more_offsets_than_it_may(partition, most):
    partition.write(1_000, batch=10)
    cuts = partition.log.split(0, 1_000, max_count=most)
    sizes = [stop - start for start, stop in pairwise([0, *cuts, 1_000])]
    assert min(sizes) >= 1
    assert max(sizes) <= most
    if most >= 100:
        assert len(sizes) <= 2 * 1_000 / most
        assert set(cuts) <= set(bases(partition.log))


def test_both_limits_hold_together(partition):
    partition.write(1_000, batch=10)
    by_bytes = partition.log.split(0, 1_000, parts=2)
    cuts = partition.log.split(0, 1_000, parts=2, max_count=100)
    assert set(by_bytes) <= set(cuts)
    assert all(stop - start <= 100 for start, stop in pairwise([0, *cuts, 1_000]))


def test_what_is_empty_is_not_cut(partition):
    partition.write(10)
    log = partition.log
    assert log.split(0, 10) == []
    assert log.split(5, 5, parts=4, max_count=1) == []
    assert log.split(10, 20, parts=4, max_count=1) == []


def test_wrong_numbers_are_refused(partition):
    partition.write(10)
    log = partition.log
    for parts in (0, 1.5, True):
        with pytest.raises(UsageError, match="parts is"):
            log.split(0, 10, parts=parts)
    with pytest.raises(UsageError, match="max_count is 0"):
        log.split(0, 10, max_count=0)
    with pytest.raises(OffsetOutOfRangeError):
        log.split(11, 20, parts=2)


@pytest.mark.damaged
def test_an_index_that_is_wrong_makes_fewer_pieces_and_no_wrong_ones(partition):
    partition.write_segments(300, 300, 300, batch=10)
    partition.close()
    index = partition.path / f"{300:020}.index"
    index.write_bytes(bytes(index.stat().st_size))
    cuts = partition.log.split(0, 900, parts=6)
    assert cuts == sorted(set(cuts))
    assert set(cuts) <= set(bases(partition.log))
    pieces = pairwise([0, *cuts, 900])
    records = [record for start, stop in pieces for record in partition.log.read(start, stop)]
    assert [record.timestamp_ms for record in records] == [time_of(offset) for offset in range(900)]


@pytest.mark.parametrize("sizes", [[1] * 9 + [5000], [1] * 8 + [5000, 1]])
@pytest.mark.parametrize("roll_at", [0, 8, 9])
def test_the_last_offset_counts_with_its_bytes(tmp_path, sizes, roll_at):
    """Half of the bytes lie in one batch: the cut is in front of it or behind it, in whichever segment it
    is."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    for number, size_bytes in enumerate(sizes):
        if number and number == roll_at:
            log.roll()
        log.extend([b"v" * size_bytes])
    large = sizes.index(5000)
    cuts = log.split(0, 10, parts=2)
    assert cuts in ([large], [large + 1])
    assert log.split(large, 10, parts=1) == []
