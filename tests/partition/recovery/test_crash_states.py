"""What each state that a crash can leave in a partition's directory turns into: the rows of Kafka's table,
and where ours differ on purpose (cut bytes are kept aside, durable data is never cut without being asked)."""

from __future__ import annotations

import pytest

from logstore.config import TopicConfig
from logstore.errors import CorruptionError
from logstore.model import ProducerIdentity
from tests.partition.helpers import Crash, Partition, WatchedFiles, batch_of, crash_after, read_or_refuse

# The rows of the table


@pytest.mark.damaged
def test_deleted_files_are_removed(partition):
    partition.write_segments(10, 10)
    partition.crash()
    partition.rename(0, ".log", ".log.deleted")
    partition.rename(0, ".index", ".index.deleted")
    partition.open()
    assert partition.names("*.deleted") == []
    assert partition.read() == list(range(10, 20))


def test_a_metadata_snapshot_scheduled_for_removal_is_kept(partition):
    partition.write(5)
    partition.crash()
    (partition.path / "00000000000000000005-0000000001.checkpoint.deleted").write_bytes(b"")
    partition.open()
    assert len(partition.names("*.checkpoint.deleted")) == 1


def test_only_cleaned_the_old_data_is_intact(partition):
    partition.write_segments(10, 10)
    partition.crash()
    partition.write_file(batch_of(0, 3), suffix=".log.cleaned")
    partition.open()
    assert partition.names("*.cleaned") == []
    assert partition.read() == list(range(20))


def test_cleaned_and_some_swap_of_the_same_operation_the_old_data_is_intact(partition):
    partition.write_segments(10, 10)
    partition.crash()
    partition.write_file(batch_of(0, 3), suffix=".log.cleaned")
    partition.write_file(batch_of(5, 1), 5, suffix=".log.swap")
    partition.open()
    assert partition.names("*.swap") == partition.names("*.cleaned") == []
    assert partition.read() == list(range(20))


def test_all_outputs_swap_with_the_old_files_the_operation_is_completed(partition):
    partition.write_segments(10, 10, 10)
    partition.close()
    partition.write_file(batch_of(0, 20), suffix=".log.swap")
    partition.open()
    assert partition.bases() == [0, 20]
    assert partition.read() == list(range(30))
    assert len(partition.batches(0)) == 1


def test_a_finished_swap_leaves_segments_outside_its_range_alone(partition):
    partition.write_segments(10, 10, 10)
    partition.close()
    partition.write_file(batch_of(10, 10), 10, suffix=".log.swap")
    partition.open()
    assert [len(partition.batches(base)) for base in partition.bases()] == [10, 1, 10]
    assert partition.read() == list(range(30))


@pytest.mark.damaged
def test_some_outputs_plain_and_some_swap_the_operation_is_completed(partition):
    partition.write_segments(10, 10, 10)
    partition.close()
    partition.write_file(batch_of(0, 10))
    partition.write_file(batch_of(10, 10), 10, suffix=".log.swap")
    partition.open()
    assert [len(partition.batches(base)) for base in partition.bases()] == [1, 1, 10]
    assert partition.read() == list(range(30))


def test_swapped_index_files_whose_log_is_in_place_get_their_names(partition):
    partition.write_segments(10, 10)
    partition.close()
    partition.rename(0, ".index", ".index.swap")
    partition.rename(0, ".timeindex", ".timeindex.swap")
    partition.open()
    assert partition.names("*.swap") == []
    assert partition.file(0, ".index").exists()
    assert partition.read() == list(range(20))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_orphaned_index_is_removed(partition, suffix):
    partition.write(5)
    partition.crash()
    partition.write_file(b"", 3, suffix=suffix)
    partition.open()
    assert not partition.file(3, suffix).exists()
    assert partition.read() == list(range(5))


def test_a_log_without_its_index_gets_one_when_it_is_used(partition):
    partition.write_segments(10, 10)
    partition.close()
    partition.file(0, ".index").unlink()
    partition.open()
    assert not partition.file(0, ".index").exists()
    assert partition.read(5) == list(range(5, 20))
    assert partition.file(0, ".index").exists()


def test_garbage_at_the_tail_of_the_last_segment_is_cut_and_kept_aside(partition):
    partition.write(10)
    partition.crash()
    partition.extend_file(b"not a batch at all" * 10)
    report = partition.open().recovery
    assert partition.read() == list(range(10))
    assert report.cut_bytes == 180
    assert partition.kept_aside() == b"not a batch at all" * 10


def test_a_torn_batch_at_the_tail_is_cut_and_kept_aside(partition):
    partition.write(10)
    partition.crash()
    torn = bytes(batch_of(10, 5))[:-1]
    partition.extend_file(torn)
    assert partition.open().recovery.cut_bytes == len(torn)
    assert partition.read() == list(range(10))
    assert partition.kept_aside() == torn
    assert partition.write(3) == range(10, 13)


def test_a_corrupt_batch_in_an_older_unflushed_segment_ends_the_log_there(partition):
    partition.write_segments(10, 10, 10)
    partition.crash()
    partition.corrupt_batch(4, 10)
    behind = partition.file(20).read_bytes()
    report = partition.open().recovery
    assert partition.read() == list(range(14))
    assert partition.bases() == [0, 10]
    assert partition.names("00000000000000000020.*index") == []
    assert partition.kept_aside().endswith(behind)
    assert len(report.kept_aside) == 2
    assert partition.write(3) == range(14, 17)


@pytest.mark.damaged
def test_a_corrupt_batch_below_the_recovery_point_is_reported_by_its_reader(partition):
    partition.write_segments(10, 10)
    partition.close()
    position = partition.corrupt_batch(3)
    partition.open()
    with pytest.raises(CorruptionError) as refused:
        partition.read()
    assert (refused.value.path, refused.value.position) == (str(partition.file()), position)
    assert partition.read(10) == list(range(10, 20))


def test_a_corrupt_last_batch_below_the_recovery_point_is_reported_by_the_open(partition):
    partition.write(10)
    partition.close()
    position = partition.corrupt_batch(9)
    with pytest.raises(CorruptionError, match="accept_loss=True") as refused:
        partition.open()
    assert (refused.value.path, refused.value.position) == (str(partition.file()), position)
    assert partition.open(accept_loss=True).log_end_offset == 9


def test_a_zero_filled_tail_is_cut_and_not_kept(partition):
    partition.write(10)
    partition.crash()
    partition.extend_file(bytes(5000))
    assert partition.open().recovery.cut_bytes == 5000
    assert partition.read() == list(range(10))
    assert partition.names("*.torn-*") == []


def append_as(partition, sequence):
    return partition.log.extend([b"x"], producer=ProducerIdentity(7, 0, sequence))


@pytest.mark.parametrize("damage", [b"", b"garbage", bytes(56)])
def test_a_corrupt_snapshot_is_dropped_and_an_older_one_used(partition, damage):
    first = append_as(partition, 0)
    partition.checkpoint()
    second = append_as(partition, 1)
    partition.log.roll()
    partition.crash()
    partition.write_file(damage, 2, suffix=".snapshot")
    partition.open()
    assert (append_as(partition, 0), append_as(partition, 1)) == (first, second)
    assert append_as(partition, 2) == range(2, 3)


def test_a_stale_snapshot_above_the_log_end_is_dropped(partition):
    first = append_as(partition, 0)
    partition.crash()
    snapshot = partition.write_file(b"", 99, suffix=".snapshot")
    partition.open()
    assert snapshot not in partition.names()
    assert append_as(partition, 0) == first


def test_a_stale_epoch_file_is_repaired_from_the_batches(partition):
    partition.write(5)
    partition.checkpoint()
    stale = (partition.path / "leader-epoch-checkpoint").read_bytes()
    partition.log.assign_leader_epoch(3)
    partition.write(5)
    entries = partition.log.epoch_entries
    partition.crash()
    (partition.path / "leader-epoch-checkpoint").write_bytes(stale)
    partition.open()
    assert partition.log.epoch_entries == entries
    assert (partition.path / "leader-epoch-checkpoint").read_bytes() != stale


def test_epochs_above_the_log_end_are_cut(partition):
    partition.write(5)
    partition.log.flush()
    partition.log.assign_leader_epoch(9)
    partition.write(5)
    position = partition.batches()[5][0]
    partition.crash()
    partition.truncate_file(position)
    assert [entry.epoch for entry in partition.open().epoch_entries] == [0]


@pytest.mark.parametrize("damage", [None, b"", b"0\n5\n", b"garbage"])
def test_a_missing_or_damaged_epoch_file_is_written_anew_after_a_clean_stop(partition, damage):
    for epoch in (0, 2, 5):
        partition.log.assign_leader_epoch(epoch)
        partition.write_segments(5, 5)
    entries = partition.log.epoch_entries
    partition.close()
    path = partition.path / "leader-epoch-checkpoint"
    path.unlink() if damage is None else path.write_bytes(damage)
    assert partition.open().epoch_entries == entries
    partition.crash()
    assert partition.open().epoch_entries == entries


@pytest.mark.parametrize(("last_step", "interval_bytes"), [("checkpoint", 200), ("roll", 4096)])
def test_missing_epochs_are_found_where_only_the_end_is_read_for_itself(partition, last_step, interval_bytes):
    """With a roll, what is in front of it is read for its indexes alone."""
    partition.config = TopicConfig(index_interval_bytes=interval_bytes)
    partition.reopen()
    for epoch in range(4):
        partition.log.assign_leader_epoch(epoch)
        partition.write(5)
    entries = partition.log.epoch_entries
    partition.checkpoint()
    if last_step == "roll":
        partition.log.roll()
    partition.crash()
    (partition.path / "leader-epoch-checkpoint").unlink()
    assert partition.open().epoch_entries == entries


def test_a_recovered_segment_rolls_by_the_largest_time_of_its_first_batch(partition):
    partition.config = TopicConfig(segment_ms=10_000)
    partition.reopen()
    partition.write(6, batch=3)  # a second from record to record: times 0 to 2 in the first batch
    partition.crash()
    partition.open()
    partition.write(7)
    assert partition.bases() == [0]
    partition.write(1)
    assert partition.bases() == [0, 13]


def test_missing_epochs_are_all_found_where_a_clean_stop_turns_out_to_be_none(partition):
    """The last segment is read first then, and has the newest."""
    for epoch in (0, 2, 5):
        partition.log.assign_leader_epoch(epoch)
        partition.write_segments(5, 5)
    entries = partition.log.epoch_entries
    partition.close()
    for name in ("leader-epoch-checkpoint", "recovery-point-offset-checkpoint"):
        (partition.path / name).unlink()
    assert partition.open().epoch_entries == entries


def test_missing_epochs_are_all_found_where_a_segment_is_read_twice(partition):
    """First from the last index entry on; then from the start, since its end is lost."""
    partition.config = TopicConfig(index_interval_bytes=200)
    partition.reopen()
    for epoch in range(4):
        partition.log.assign_leader_epoch(epoch)
        partition.write(5)
    entries = partition.log.epoch_entries
    partition.reopen()  # the time index is closed: it names the last record
    partition.crash()
    partition.corrupt_batch(-1)
    (partition.path / "leader-epoch-checkpoint").unlink()
    assert partition.open(accept_loss=True).log_end_offset == 19
    assert partition.log.epoch_entries == entries
    assert partition.log.verify().is_sound


# States that Kafka's table leaves out


def test_an_unfinished_temporary_file_is_removed(partition):
    partition.write(5)
    partition.crash()
    (partition.path / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n1\n")
    partition.open()
    assert partition.names("*.tmp") == []
    assert partition.read() == list(range(5))


def test_a_roll_that_left_an_empty_segment_is_taken_over(partition):
    partition.write(5)
    partition.log.roll()
    partition.crash()
    assert partition.open().recovery.cut_bytes == 0
    assert partition.bases() == [0, 5]
    assert partition.write(2) == range(5, 7)


def test_a_segment_that_lost_its_end_takes_the_ones_behind_it_along(partition):
    """The order in which a system writes two files back is its own: the older may be the shorter one."""
    partition.write_segments(10, 10, 10)
    partition.crash()
    partition.truncate_file(partition.batches(10)[7][0], 10)
    partition.open()
    assert partition.read() == list(range(17))
    assert partition.bases() == [0, 10]
    assert len(partition.names("00000000000000000020.torn-*")) == 1


def test_a_gap_between_segments_of_a_compacted_topic_is_no_loss(tmp_path):
    partition = Partition(tmp_path / "t-0", cleanup_policy="compact,delete")
    partition.log.append(b"x", key=b"k")
    partition.log.append(b"x", key=b"l")
    partition.log.roll()
    partition.log.append(b"x", key=b"m")
    partition.crash()
    partition.truncate_file(partition.batches()[1][0])
    assert [record.offset for record in partition.open().read()] == [0, 2]
    partition.crash()


def test_a_gap_that_a_truncation_left_survives_a_crash(partition):
    partition.write(20, batch=10)
    assert partition.log.truncate_to(15)
    partition.write(5)
    partition.log.flush()
    partition.crash()
    partition.open()
    assert partition.read() == [*range(10), *range(15, 20)]


def test_a_gap_that_a_leader_sent_survives_a_crash(partition):
    partition.log.append_replicated(bytes(batch_of(0, 10) + batch_of(15, 5)))
    partition.log.append_replicated(bytes(batch_of(30, 5)))
    partition.recover()
    assert partition.read() == [*range(10), *range(15, 20), *range(30, 35)]


def change_offset(partition, number, by):
    """Of a batch of the first segment."""
    position, header = partition.batches()[number]
    data = bytearray(partition.file().read_bytes())
    data[position : position + 8] = (header.base_offset + by).to_bytes(8, "big")
    partition.write_file(data)


@pytest.mark.parametrize("changed", [1, 12, 2**16, 2**32, 2**60])
def test_a_last_batch_whose_offset_changed_is_cut(partition, changed):
    """Nothing follows it that would contradict its offset, and no checksum covers that."""
    partition.write(10)
    partition.crash()
    change_offset(partition, 9, changed)
    partition.open()
    assert partition.read() == list(range(9))


@pytest.mark.parametrize("changed", [1, 12, 2**16, 2**32, 2**60])
def test_a_batch_whose_offset_changed_is_cut_where_gaps_may_be(tmp_path, changed):
    """In a compacted topic a gap means nothing; but the batch that follows contradicts it."""
    partition = Partition(tmp_path / "t-0", cleanup_policy="compact,delete")
    for number in range(10):
        partition.log.append(b"x", key=b"%d" % number)
    partition.crash()
    change_offset(partition, 6, changed)
    partition.open()
    assert [record.offset for record in partition.log.read()] == list(range(6))
    assert partition.log.recovery.split_segments == 0
    partition.crash()


def test_gaps_in_a_directory_that_was_copied_are_taken_for_compaction_s(partition):
    partition.path.mkdir()
    partition.write_file(batch_of(0, 3) + batch_of(10, 3))
    partition.write_file(batch_of(30, 3), 20)
    assert partition.read() == [0, 1, 2, 10, 11, 12, 30, 31, 32]


def test_a_segment_cut_at_its_end_below_the_recovery_point_is_reported(partition):
    partition.write(10)
    partition.checkpoint()
    partition.write_segments(5, 10)
    partition.crash()
    partition.truncate_file(partition.batches()[5][0])
    with pytest.raises(CorruptionError, match="durable"):
        partition.open()
    assert partition.open(accept_loss=True).log_end_offset == 5


@pytest.mark.damaged
def test_a_sealed_segment_that_lost_its_end_is_reported_by_its_reader(partition):
    partition.write_segments(10, 10)
    partition.close()
    position = partition.batches()[5][0]
    partition.truncate_file(position)
    for _ in range(2):  # nothing that a reader repairs may hide it from the next
        partition.open()
        with pytest.raises(CorruptionError, match="lost its end"):
            partition.read(9)
        with pytest.raises(CorruptionError, match="lost its end") as refused:
            partition.read()
        assert (refused.value.position, refused.value.base_offset, refused.value.last_offset) == (
            position,
            5,
            9,
        )
        assert partition.read(10) == list(range(10, 20))
        partition.close()


def test_segments_that_are_all_gone_are_reported(partition):
    partition.write(10)
    partition.close()
    partition.file().unlink()
    with pytest.raises(CorruptionError, match="there is no segment"):
        partition.open()
    assert partition.open(accept_loss=True).log_end_offset == 0


def test_a_log_that_ends_below_its_start_begins_anew_there(partition):
    partition.write_segments(10, 10)
    partition.log.flush()
    partition.log.delete_before(15)
    partition.crash()
    partition.truncate_file(0, 10)
    partition.open()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (15, 15)
    assert partition.write(2) == range(15, 17)


def test_bytes_that_appear_behind_a_clean_stop_are_cut(partition):
    partition.write(10)
    partition.close()
    partition.extend_file(bytes(batch_of(10, 1))[:-3])
    report = partition.open().recovery
    assert not report.was_clean
    assert partition.read() == list(range(10))


def test_the_newest_cuts_are_kept_aside(partition):
    partition.write(1)
    for number in range(12):
        partition.crash()
        partition.extend_file(b"torn %d" % number)
        partition.open()
        partition.write(1)
    kept = partition.names("*.torn-*")
    assert len(kept) == 8
    assert b"torn 11" in partition.kept_aside()
    assert partition.read() == list(range(13))


# A second crash, during recovery


def torn_log(partition):
    """Three unflushed segments, the middle one damaged."""
    partition.write_segments(10, 10, 10)
    partition.crash()
    partition.corrupt_batch(4, 10)
    return partition


def swapped_log(partition):
    """A finished replacement of two segments by two others, with index files, nothing of it in place."""
    partition.write_segments(10, 10, 10)
    partition.crash()
    for base in (0, 10):
        partition.write_file(batch_of(base, 10), base, suffix=".log.swap")
        for suffix in (".index", ".timeindex"):
            partition.write_file(b"", base, suffix=suffix + ".swap")
    return partition


def unfinished_log(partition):
    """A replacement that did not get all its outputs their names."""
    partition.write_segments(10, 10, 10)
    partition.close()
    partition.write_file(batch_of(0, 3), suffix=".log.cleaned")
    partition.write_file(batch_of(10, 3), 10, suffix=".log.swap")
    partition.write_file(b"", 10, suffix=".index.swap")
    return partition


def crashed_recoveries(original):
    """A copy for each step of a recovery, which crashed there: the number of the step, and the copy. The
    last one, whose recovery came to its end, is not among them."""
    for count in range(200):
        copy = original.copy()
        try:
            copy.open(files=crash_after(count))
        except Crash:
            yield count, copy
            copy.crash()
        else:
            copy.crash()
            return
    raise AssertionError("never got through")


@pytest.mark.parametrize(
    ("damage", "end"), [(torn_log, 14), (swapped_log, 30), (unfinished_log, 30)], ids=lambda p: str(p)[:20]
)
def test_a_crash_at_any_step_of_a_recovery_changes_nothing(tmp_path, damage, end):
    original = damage(Partition(tmp_path / "t-0"))
    for count, copy in crashed_recoveries(original):
        copy.open()
        assert copy.read() == list(range(end)), count
    assert count >= 5


def test_a_crash_at_any_step_of_the_recovery_of_a_compacted_log_leaves_no_hole(tmp_path):
    """There the gap behind a cut could not be told from a gap that compaction left."""
    original = Partition(tmp_path / "t-0", cleanup_policy="compact,delete")
    for number in range(30):
        original.log.append(b"x", key=b"%d" % number)
        if number % 10 == 9:
            original.log.roll()
    original.crash()
    original.corrupt_batch(4, 10)
    for count, copy in crashed_recoveries(original):
        copy.open()
        assert [record.offset for record in copy.log.read()] == list(range(14)), count


def test_a_crash_while_overlapping_segments_are_set_aside_leaves_no_hole(tmp_path):
    original = Partition(tmp_path / "t-0", cleanup_policy="compact,delete")
    original.path.mkdir()
    for base, end in ((0, 25), (20, 30), (30, 40)):
        original.write_file(batch_of(base, end - base), base)
    for count in range(100):
        copy = original.copy()
        try:
            copy.open(files=crash_after(count))
        except Crash:
            copy.open()
        assert copy.read() == list(range(25)), count
        copy.crash()
        if not count:
            assert len(copy.names("*.torn-*")) == 2


def test_cut_bytes_are_safe_before_they_are_cut(partition):
    partition.write(5)
    partition.crash()
    partition.extend_file(b"torn")
    files = WatchedFiles()
    partition.open(files=files)
    steps = [step for step in files.trace if ".torn" in step[1] or step == ("flush directory", "t-0")]
    before = files.trace[: files.trace.index(("truncate", "00000000000000000000.log"))]
    kept = next(name for action, name in steps if action == "create")
    assert before.index(("flush", kept)) < len(before) - before[::-1].index(("flush directory", "t-0"))
    assert before[-1] == ("flush directory", "t-0")


@pytest.mark.parametrize("batch", [1, 7])
def test_a_crash_at_any_step_of_appending_and_rolling_leaves_a_prefix(tmp_path, batch):
    for count in range(0, 400, 3):
        partition = Partition(tmp_path / f"p-{count}")
        try:
            partition.open(files=crash_after(count))
            partition.write_segments(14, 14, batch=batch)
            partition.log.flush()
            partition.close()
        except Crash:
            known = partition._log.writer.core.log_end_offset if partition._log is not None else 0
            partition.recover()
            assert partition.read() == list(range(partition.log.log_end_offset))
            assert partition.log.log_end_offset >= known
            partition.crash()
            continue
        return
    raise AssertionError("never got through")


def test_a_damaged_tail_above_the_recovery_point_never_hides_what_is_below(partition):
    """Each batch in turn: above the recovery point the log ends there, below it that is an error."""
    partition.write(10)
    partition.checkpoint()
    partition.write(10)
    partition.crash()
    for number in range(10, 20):
        copy = partition.copy()
        copy.corrupt_batch(number)
        copy.open()
        assert copy.read() == list(range(number))
        copy.crash()
    for number in range(10):
        copy = partition.copy()
        copy.corrupt_batch(number)
        assert read_or_refuse(copy.read, range(20))
        copy.crash()
