"""Every byte of a segment and its indexes, changed in every bit: verify reports each one.

No byte is beyond its checks: what the CRC leaves out (base offset, length, leader epoch, magic) is held
against the batches around it, the size of the file and the history of leader epochs.
"""

from __future__ import annotations

import os
import time

import pytest

from logstore.format.batch import rebase_batch
from logstore.format.compression import Codec
from tests.figures import report as report_figure
from tests.partition.checking.test_verify import verify_closed
from tests.partition.helpers import Partition, batch_of
from tests.rotation import part

pytestmark = pytest.mark.damaged

SUFFIXES = (".log", ".index", ".timeindex")


def make(path):
    """Three segments of batches in each codec, all of them indexed, in two leader epochs."""
    partition = Partition(path, index_interval_bytes=0)
    for epoch in range(3):
        partition.log.assign_leader_epoch(epoch)
        for codec in Codec:
            end = partition.log.log_end_offset
            batch = batch_of(end, 3, codec=codec)
            rebase_batch(batch, 0, end, epoch)
            partition.log.append_replicated(bytes(batch))
        if epoch < 2:
            partition.log.roll()
    partition.close()
    return partition


def flip(partition, verify, base, masks, choose):
    """Change the bytes of a segment's files that ``choose`` takes of all, each in turn; returns how many, and
    the places not reported."""
    count, missed = 0, []
    for suffix in SUFFIXES:
        path = partition.file(base, suffix)
        data = path.read_bytes()
        assert data
        descriptor = os.open(path, os.O_RDWR)
        for position in choose(range(len(data))):
            for mask in masks:
                os.pwrite(descriptor, bytes([data[position] ^ mask]), position)
                count += 1
                report = verify()
                if report.is_sound and not report.notes:
                    missed.append((suffix, position, mask))
            os.pwrite(descriptor, data[position : position + 1], position)
        os.close(descriptor)
    return count, missed


def one_in_13(places):
    return places[::13]


def an_eighth(places):
    """The next with each commit."""
    return part(places, 8)


@pytest.mark.parametrize("base", [0, 15, 30])
def test_changed_bytes_are_reported(tmp_path, base):
    partition = make(tmp_path / "t-0")
    assert verify_closed(partition), str(verify_closed(partition))
    count, missed = flip(partition, lambda: verify_closed(partition), base, [0x55], one_in_13)
    assert count > 50
    assert missed == []
    assert verify_closed(partition).notes == ()


@pytest.mark.slow
@pytest.mark.parametrize("base", [0, 15, 30])
def test_every_changed_bit_is_reported(tmp_path, base):
    started = time.monotonic()
    partition = make(tmp_path / "t-0")
    masks = [1 << bit for bit in range(8)]
    count, missed = flip(partition, lambda: verify_closed(partition), base, masks, an_eighth)
    report_figure(
        "bits flipped under verify", count=count, failures=len(missed), seconds=time.monotonic() - started
    )
    assert count > 600
    assert missed == []


@pytest.mark.slow
@pytest.mark.parametrize("base", [0, 15])
def test_every_changed_byte_under_an_open_log_is_reported(tmp_path, base):
    partition = make(tmp_path / "t-0")
    log = partition.open()
    count, missed = flip(partition, log.verify, base, [0x55, 0xFF], an_eighth)
    assert count > 125
    assert missed == []
    assert log.verify()
    partition.close()


@pytest.mark.slow
@pytest.mark.parametrize("base", [0, 15, 30])
def test_a_file_cut_at_any_length_is_reported(tmp_path, base):
    partition = make(tmp_path / "t-0")
    for suffix in SUFFIXES:
        path = partition.file(base, suffix)
        data = path.read_bytes()
        for size in part(range(len(data)), 4):
            path.write_bytes(data[:size])
            report = verify_closed(partition)
            is_sparse = suffix == ".index" and size % 8 == 0  # as any index may be
            assert not report.is_sound or is_sparse, (suffix, size)
        path.write_bytes(data)
    assert verify_closed(partition)
