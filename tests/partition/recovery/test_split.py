"""Segments whose offsets are out of reach of their indexes, as very old brokers could write them: split when
the log is opened, with nothing lost if the process dies at any step."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptionError
from logstore.format.batch import encode_batch, rebase_batch
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET
from tests.partition.helpers import Crash, Partition, WatchedFiles, crash_after

FAR = MAX_RELATIVE_OFFSET + 1
"""The first offset that a segment with base offset 0 cannot have."""


def write_at(partition, base_offset, *firsts):
    """A segment's file with one batch of two records at each of the offsets."""
    data = bytearray()
    for first in firsts:
        batch = encode_batch([None] * 2, [b"%d" % first, b"%d" % (first + 1)], 0)
        rebase_batch(batch, 0, first, 0)
        data += batch
    partition.path.mkdir(exist_ok=True)
    partition.write_file(data, base_offset)


def found(partition):
    """The offsets in the log; each record's value says its own."""
    records = list(partition.log.read())
    assert all(record.value == b"%d" % record.offset for record in records)
    return [record.offset for record in records]


@pytest.fixture
def partition(tmp_path):
    made = Partition(tmp_path / "t-0", cleanup_policy="compact,delete")
    yield made
    made.crash()


def test_offsets_up_to_the_limit_stay_in_one_segment(partition):
    write_at(partition, 0, 0, FAR - 2)
    assert partition.open().recovery.split_segments == 0
    assert found(partition) == [0, 1, FAR - 2, FAR - 1]


def test_a_last_segment_beyond_the_limit_is_split(partition):
    write_at(partition, 0, 0, 10, FAR, FAR + 10)
    assert partition.open().recovery.split_segments == 1
    assert partition.bases() == [0, FAR]
    assert found(partition) == [0, 1, 10, 11, FAR, FAR + 1, FAR + 10, FAR + 11]
    assert partition.log.log_end_offset == FAR + 12


def test_a_batch_that_straddles_the_limit_goes_to_the_next_segment(partition):
    write_at(partition, 0, 0, FAR - 1)
    partition.open()
    assert partition.bases() == [0, FAR - 1]
    assert found(partition) == [0, 1, FAR - 1, FAR]


def test_a_sealed_segment_is_split_after_a_clean_stop_too(partition):
    write_at(partition, 0, 0)
    write_at(partition, FAR + 2, FAR + 2)
    partition.open()
    partition.close()
    write_at(partition, 0, 0, FAR)
    report = partition.open().recovery
    assert (report.was_clean, report.split_segments) == (True, 1)
    assert found(partition) == [0, 1, FAR, FAR + 1, FAR + 2, FAR + 3]


def test_a_last_segment_is_split_after_a_clean_stop_too(partition):
    write_at(partition, 0, 0, FAR)
    partition.open()
    partition.close()
    partition.file(FAR).unlink()
    write_at(partition, 0, 0, FAR)
    assert partition.open().recovery.was_clean
    assert partition.bases() == [0, FAR]
    assert found(partition) == [0, 1, FAR, FAR + 1]


def test_a_segment_may_have_to_be_split_more_than_once(partition):
    write_at(partition, 0, 0, FAR, 2 * FAR, 3 * FAR)
    partition.open()
    assert partition.bases() == [0, FAR, 2 * FAR, 3 * FAR]
    assert len(found(partition)) == 8


def test_a_first_batch_out_of_reach_leaves_an_empty_segment_at_the_base(partition):
    write_at(partition, 0, FAR)
    partition.open()
    assert partition.bases() == [0, FAR]
    assert found(partition) == [FAR, FAR + 1]


def test_what_follows_a_split_can_be_appended_and_reopened(partition):
    write_at(partition, 0, 0, FAR)
    partition.open()
    assert partition.log.append(b"%d" % (FAR + 2), key=b"k") == FAR + 2
    partition.reopen()
    assert partition.log.recovery.was_clean
    assert found(partition) == [0, 1, FAR, FAR + 1, FAR + 2]


def test_a_damaged_segment_is_not_split(partition):
    write_at(partition, 0, 0, 10, FAR)
    write_at(partition, FAR + 2, FAR + 2)
    position = partition.corrupt_batch(1)
    with pytest.raises(CorruptionError) as refused:
        partition.open()
    assert (refused.value.path, refused.value.position) == (str(partition.file()), position)
    assert partition.bases() == [0, FAR + 2]


def test_every_rename_of_a_split_is_durable_before_the_next(partition):
    write_at(partition, 0, 0, FAR, 2 * FAR)
    files = WatchedFiles()
    partition.open(files=files)
    actions = [
        action for action, name in files.trace if (action == "rename" and ".log." in name) or name == "t-0"
    ]
    renames = [number for number, action in enumerate(actions) if action == "rename"]
    assert len(renames) == 3 + 3
    assert all(actions[number + 1] == "flush directory" for number in renames)


def test_a_crash_at_any_step_of_a_split_loses_nothing(tmp_path):
    original = Partition(tmp_path / "t-0", cleanup_policy="compact,delete")
    firsts = (0, 10, FAR, FAR + 10, 2 * FAR)
    write_at(original, 0, *firsts)
    expected = sorted([*firsts, *(first + 1 for first in firsts)])
    for count in range(200):
        copy = original.copy()
        try:
            copy.open(files=crash_after(count))
        except Crash:
            assert crash_again_and_read(copy, expected) == expected, count
            continue
        copy.crash()
        assert count > 20
        return


def crash_again_and_read(partition, expected):
    """Die a second time on the way up, at two places, then read."""
    for count in (1, 4):
        again = Partition(partition.path, cleanup_policy="compact,delete")
        try:
            again.open(files=crash_after(count))
        except Crash:
            continue
        again.crash()
    partition.open()
    offsets = found(partition)
    assert partition.names("*.swap") == partition.names("*.cleaned") == partition.names("*.deleted") == []
    partition.crash()
    return offsets
