"""Moving the log start (section 3.7 of the storage rules)."""

import errno

import pytest

from logstore.errors import OffsetOutOfRangeError, StorageError, UsageError
from logstore.model import Role
from tests.partition.helpers_rules import (
    WatchedFiles,
    add,
    add_batches,
    add_segments,
    bases_of,
    batch,
    crash,
    identity,
    names_in,
    offsets_of,
    open_log,
    values_of,
)


@pytest.mark.parametrize("offset", range(5))
def test_records_below_can_no_longer_be_read(log, offset):
    add(log, *[b"%d" % number for number in range(4)])
    assert log.delete_before(offset) == log.log_start_offset == offset
    assert offsets_of(log) == list(range(offset, 4))


def test_the_log_start_never_goes_back(log):
    add_batches(log, 5)
    log.delete_before(3)
    assert log.delete_before(1) == 3


def test_it_makes_room_on_a_full_disk_while_records_wait(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add_segments(log, 3)
    log.append(b"waiting")
    files.refuse("write", ".log", errno.ENOSPC)
    assert log.delete_before(2) == 2
    files.heal()
    assert offsets_of(log) == bases_of(log) == [2, 3]


def test_above_the_high_watermark_is_refused(log):
    log.set_role(Role.LEADER)
    add_batches(log, 5)
    log.update_high_watermark(3)
    with pytest.raises(OffsetOutOfRangeError, match="high watermark 3"):
        log.delete_before(4)
    assert log.delete_before(3) == 3


def test_above_the_log_end_is_refused(log):
    add_batches(log, 2)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_before(3)


def test_segments_that_lie_below_are_removed(log):
    add_segments(log, 4)
    log.delete_before(2)
    assert bases_of(log) == [2, 3, 4]
    log.delete_before(4)
    assert bases_of(log) == [4]


def test_the_active_segment_stays(log):
    add_batches(log, 3)
    log.delete_before(3)
    assert bases_of(log) == [0]
    assert add(log, b"a") == range(3, 4)


def test_it_is_durable_before_a_file_is_renamed(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add_segments(log, 2)
    files.operations.clear()
    log.delete_before(2)
    stored = files.operations.index(("rename", "log-start-offset-checkpoint.tmp"))
    assert stored < files.operations.index(("rename", f"{0:020}.log"))


def test_it_survives_a_crash(log):
    add(log, b"a", b"b", b"c")
    log.delete_before(2)
    crash(log)
    log = open_log(log.directory)
    assert (log.log_start_offset, values_of(log)) == (2, [b"c"])


def test_epochs_below_are_cut_and_the_one_there_begins_there(log):
    for base, epoch in ((0, 1), (1, 2), (2, 2), (3, 5)):
        log.append_replicated(batch(b"a", base_offset=base, partition_leader_epoch=epoch))
    log.delete_before(2)
    assert [tuple(entry) for entry in log.epoch_entries] == [(2, 2), (5, 3)]


def test_producers_are_kept(log):
    add(log, b"a", producer=identity(0))
    log.roll()
    log.delete_before(1)
    assert add(log, b"a", producer=identity(0)) == range(1)
    assert log.log_end_offset == 1


def test_snapshots_below_the_first_segment_go(log):
    add(log, b"a", producer=identity(0))
    add_segments(log, 3)
    log.delete_before(3)
    numbers = [int(name.split(".")[0]) for name in names_in(log, "*.snapshot")]
    assert min(numbers) >= bases_of(log)[0]


def test_a_compacted_topic_is_refused(tmp_path):
    log = open_log(tmp_path / "t-0", cleanup_policy="compact")
    log.extend([(b"k", b"v")])
    with pytest.raises(UsageError, match="compact"):
        log.delete_before(1)


def test_a_topic_of_which_nothing_goes_by_itself_is_not(tmp_path):
    log = open_log(tmp_path / "t-0", cleanup_policy="")
    log.extend([b"a", b"b"])
    assert (log.delete_before(1), log.log_start_offset) == (1, 1)


def test_a_full_disk_refuses_it_and_it_can_be_tried_again(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add_segments(log, 3)
    files.fill()
    with pytest.raises(StorageError):
        log.delete_before(2)
    assert offsets_of(log) == [0, 1, 2]
    files.heal()
    log.delete_before(2)
    crash(log)
    assert offsets_of(open_log(tmp_path / "t-0")) == [2]


def test_what_is_gathered_counts(log):
    log.append(b"a")
    log.append(b"b")
    assert log.delete_before(1) == 1
    assert values_of(log) == [b"b"]
