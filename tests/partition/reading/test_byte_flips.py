"""One changed byte anywhere in a log: a reader gets the right records or a CorruptionError that says where,
never a wrong record. That includes the 16 bytes of a header that no checksum covers."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

from logstore.errors import CorruptionError
from logstore.format.header import CRC_POSITION, HEADER_BYTES
from tests.partition.helpers import Partition, check_record, is_located
from tests.rotation import part, seed_of_turn

pytestmark = pytest.mark.damaged

BATCHES = 16
RECORDS = 8
"""In each batch."""
BATCH_BYTES = 4096
END = BATCHES * RECORDS
UNCOVERED_BYTES = CRC_POSITION - 1  # offset, size and leader epoch
EPOCH = range(12, 16)  # says nothing about records


def make_log(path, *, with_next_segment=False):
    """64 KiB in batches of 4 KiB, some indexed."""
    partition = Partition(path, index_interval_bytes=8192)
    partition.size_bytes = BATCH_BYTES // RECORDS - 14
    partition.write(END, batch=RECORDS)
    if with_next_segment:
        partition.log.roll()
        partition.write(RECORDS, batch=RECORDS)
    return partition


@contextmanager
def changed_byte(descriptor, data, position):
    """The byte at ``position`` with a pattern that differs from place to place, while inside."""
    os.pwrite(descriptor, bytes([data[position] ^ (1 + position % 255)]), position)
    try:
        yield
    finally:
        os.pwrite(descriptor, data[position : position + 1], position)


def sampled(partition, step):
    """Every byte of every header, and one in ``step`` of the others."""
    headers = {start + place for start, _ in partition.batches() for place in range(HEADER_BYTES)}
    return sorted(headers | set(range(0, partition.file().stat().st_size, step)))


def outside_epochs(partition, places):
    """Those that a reader must refuse when they are changed."""
    epochs = {start + place for start, _ in partition.batches() for place in EPOCH}
    return [place for place in places if place not in epochs]


def flip_each(partition, places):
    """Change each byte of the first segment in turn under the open log; returns how many were refused."""
    data = partition.file().read_bytes()
    assert len(data) > 0.95 * BATCHES * BATCH_BYTES
    expected = list(partition.log.read())
    for record in expected:
        check_record(record, partition.size_bytes)
    refused = 0
    descriptor = os.open(partition.file(), os.O_RDWR)
    try:
        for position in places:
            with changed_byte(descriptor, data, position):
                refused += read_is_refused(partition, expected)
                if position % 16 < 2:
                    read_is_refused(partition, expected, position * END // len(data))
    finally:
        os.close(descriptor)
    assert list(partition.log.read()) == expected
    return refused


def read_is_refused(partition, expected, start=0):
    try:
        found = list(partition.log.read(start))
    except CorruptionError as error:
        return is_located(error, partition.file())
    assert found == expected[start:], start
    return False


@pytest.fixture(params=["active", "sealed"])
def partition(request, tmp_path):
    made = make_log(tmp_path / "t-0", with_next_segment=request.param == "sealed")
    yield made
    made.crash()


def test_a_changed_byte_under_an_open_log_is_never_a_wrong_record(partition):
    places = sampled(partition, 211)
    assert flip_each(partition, places) == len(places) - BATCHES * len(EPOCH)


@pytest.mark.slow
def test_every_changed_byte_under_an_open_log_is_never_a_wrong_record(partition):
    """A quarter of them, the next with each commit."""
    places = part(range(partition.file().stat().st_size), 4)
    assert flip_each(partition, places) == len(outside_epochs(partition, places))


def open_and_read(partition, expected, *, prefix_from=None):
    """Open and read: refused, or exactly right; with ``prefix_from``, right up to that offset or further."""
    try:
        partition.open()
        found = list(partition.log.read())
    except CorruptionError as error:
        assert prefix_from is None
        return is_located(error, partition.file())
    finally:
        partition.crash()
    if prefix_from is None:
        assert found == expected
    else:
        assert found == expected[: len(found)]
        assert len(found) >= prefix_from
    return False


def flip_and_open(original, places, *, recovery_from=None):
    """Change each byte, open the log anew, read it; ``recovery_from`` is the recovery point after a crash."""
    expected = list(original.log.read())
    original.crash() if recovery_from is not None else original.close()
    data = original.file().read_bytes()
    bounds = [position for position, _ in original.batches()]
    refused = 0
    for position in places:
        copy = original.copy()
        batch = sum(bound <= position for bound in bounds) - 1
        is_above = recovery_from is not None and batch * RECORDS >= recovery_from
        descriptor = os.open(copy.file(), os.O_RDWR)
        with changed_byte(descriptor, data, position):
            refused += open_and_read(copy, expected, prefix_from=batch * RECORDS if is_above else None)
        os.close(descriptor)
    return refused


def some_places(partition, batches):
    """One byte in 1,997, and those that no checksum covers in some of the batches."""
    starts = [partition.batches()[batch][0] for batch in batches]
    uncovered = {start + place for start in starts for place in range(UNCOVERED_BYTES)}
    return sorted(uncovered | set(range(0, partition.file().stat().st_size, 1997)))


def test_a_changed_byte_below_the_recovery_point_is_reported_after_a_clean_stop(tmp_path):
    original = make_log(tmp_path / "t-0")
    places = some_places(original, [0, 7, 15])
    refused = flip_and_open(original, places)
    assert refused == len(places) - 3 * len(EPOCH)


def test_a_changed_byte_above_the_recovery_point_leaves_a_prefix_after_a_crash(tmp_path):
    original = make_log(tmp_path / "t-0")
    places = some_places(original, [0, 7, 15])
    assert flip_and_open(original, places, recovery_from=0) == 0


def test_a_changed_byte_is_reported_or_cut_depending_on_the_recovery_point(tmp_path):
    original = Partition(tmp_path / "t-0", index_interval_bytes=8192)
    original.size_bytes = BATCH_BYTES // RECORDS - 14
    original.write(END // 2, batch=RECORDS)
    original.checkpoint()
    original.write(END // 2, batch=RECORDS)
    places = some_places(original, [7, 8, 15])
    below = sum(place < original.batches()[8][0] for place in places)
    refused = flip_and_open(original, places, recovery_from=END // 2)
    assert refused == below - len(EPOCH)


@pytest.mark.slow
@pytest.mark.parametrize("recovery_from", [None, 0])
def test_changed_bytes_all_over_a_log_are_reported_or_cut_when_the_log_is_opened(tmp_path, recovery_from):
    original = make_log(tmp_path / "t-0")
    size = original.file().stat().st_size
    flip_and_open(original, range(seed_of_turn() % 131, size, 131), recovery_from=recovery_from)
