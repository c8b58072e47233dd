"""Appending as a leader and as a follower (section 3.2 of the storage rules), through the log."""

import errno

import pytest

from logstore.errors import (
    CorruptionError,
    DiskFullError,
    InvalidRecordError,
    OutOfOrderError,
    RecordTooLargeError,
    StorageError,
    UsageError,
)
from logstore.format.header import decode_header
from logstore.model import AppendOrigin, Isolation, NewRecord
from logstore.partition.state.sidecars import read_epochs
from tests.format.vectors import LEGACY
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFiles,
    add,
    add_batches,
    all_of,
    bases_of,
    batch,
    crash,
    headers_of,
    identity,
    names_in,
    offsets_of,
    open_log,
    stored_bytes,
    values_of,
)

LEGACY_ENTRY = LEGACY[0].encoded


# A leader


def test_offsets_are_assigned_from_the_log_end(log):
    assert log.append_batch(batch(b"a", b"b"))[:2] == (0, 1)
    assert log.append_batch(batch(b"c"))[:2] == (2, 2)
    assert offsets_of(log) == [0, 1, 2]
    assert log.log_end_offset == 3


def test_a_leaders_batch_is_stamped_with_its_epoch(log):
    log.assign_leader_epoch(5)
    log.append_batch(batch(b"a", partition_leader_epoch=3))
    assert [header.partition_leader_epoch for header in headers_of(log)] == [5]


def test_a_clients_batch_must_have_base_offset_0(log):
    with pytest.raises(InvalidRecordError, match="base offset"):
        log.append_batch(batch(b"a", base_offset=1))
    assert log.log_end_offset == 0


def test_a_coordinators_batch_may_have_any_base_offset(log):
    log.append_batch(batch(b"a", base_offset=9), origin=AppendOrigin.COORDINATOR)
    assert offsets_of(log) == [0]


def test_a_batch_of_max_message_bytes_is_accepted_and_one_byte_more_is_not(tmp_path):
    data = batch(b"x" * 100)
    exact = open_log(tmp_path / "a-0", max_message_bytes=len(data))
    exact.append_batch(data)
    below = open_log(tmp_path / "b-0", max_message_bytes=len(data) - 1)
    with pytest.raises(RecordTooLargeError, match="max_message_bytes"):
        below.append_batch(data)


def test_a_batch_larger_than_a_segment_is_refused(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=100)
    with pytest.raises(RecordTooLargeError, match="segment_bytes"):
        log.append_batch(batch(b"x" * 100))


def test_segment_bytes_does_not_bind_followers(tmp_path):
    """It may have been larger when the leader wrote what is copied now: a replica that came later, or had
    fallen behind, was never in sync again."""
    log = open_log(tmp_path / "t-0", segment_bytes=100)
    copied = [batch(b"x" * 200), batch(b"y" * 100, base_offset=1) + batch(b"z" * 100, base_offset=2)]
    for data in copied:
        log.append_replicated(data)
    log.append_replicated(batch(b"", base_offset=3))
    assert offsets_of(log) == [0, 1, 2, 3]
    assert bases_of(log) == [0, 1, 3]
    log.close()
    assert offsets_of(open_log(tmp_path / "t-0", segment_bytes=100)) == [0, 1, 2, 3]


def test_max_message_bytes_does_not_bind_followers(tmp_path):
    log = open_log(tmp_path / "t-0", max_message_bytes=100)
    assert log.append_replicated(batch(b"x" * 200)).last_offset == 0


@pytest.mark.parametrize("append", ["append_batch", "append_replicated"])
def test_a_wrong_checksum_is_refused_and_the_log_goes_on(log, append):
    damaged = batch(b"abc")
    damaged[-2] ^= 1
    with pytest.raises(CorruptionError, match="checksum"):
        getattr(log, append)(damaged)
    assert log.log_end_offset == 0
    assert getattr(log, append)(batch(b"ok")).last_offset == 0


@pytest.mark.parametrize("append", ["append_batch", "append_replicated"])
def test_trailing_partial_bytes_are_cut(log, append):
    whole = batch(b"a")
    getattr(log, append)(whole + batch(b"b", base_offset=1)[:-1])
    assert values_of(log) == [b"a"]
    assert log.size_bytes == len(whole)


@pytest.mark.parametrize("append", ["append_batch", "append_replicated"])
@pytest.mark.parametrize("size", [0, 1, 16, 60])
def test_without_a_whole_batch_nothing_happens(log, append, size):
    assert getattr(log, append)(batch(b"a")[:size]) is None
    assert log.log_end_offset == 0


def test_the_result_tells_offsets_and_largest_timestamp(log):
    add(log, b"first")
    result = log.append_batch(batch(b"a", b"b", timestamp_ms=[START_MS + 5, START_MS]))
    assert result == (1, 2, START_MS + 5, False)


# A follower


def test_a_follower_keeps_offsets_epochs_and_bytes(log):
    data = batch(b"a", b"b", base_offset=0, partition_leader_epoch=4)
    log.append_replicated(data)
    assert stored_bytes(log) == data
    assert log.leader_epoch == 4


def test_a_follower_may_skip_offsets(log):
    log.append_replicated(batch(b"a", base_offset=10))
    log.append_replicated(batch(b"b", base_offset=20))
    assert offsets_of(log) == [10, 20]
    assert log.log_end_offset == 21


def test_replicated_offsets_below_the_end_are_out_of_order_with_first_and_last(log):
    add(log, b"a", b"b", b"c")
    with pytest.raises(OutOfOrderError, match=r"\b2 to 4\b.*\b3\b"):
        log.append_replicated(batch(b"x", base_offset=2) + batch(b"y", base_offset=4))
    assert log.log_end_offset == 3


@pytest.mark.parametrize("second", [0, 1])
def test_replicated_offsets_must_rise(log, second):
    with pytest.raises(OutOfOrderError, match="not above 1"):
        log.append_replicated(batch(b"a", b"b") + batch(b"c", base_offset=second))


def test_an_out_of_order_append_does_not_stop_the_next(log):
    add(log, b"a")
    with pytest.raises(OutOfOrderError):
        log.append_replicated(batch(b"x"))
    log.append_replicated(batch(b"b", base_offset=1))
    assert values_of(log) == [b"a", b"b"]


def test_of_a_legacy_entry_the_last_offset_counts(log):
    add(log, b"a")
    with pytest.raises(OutOfOrderError):
        log.append_replicated(LEGACY_ENTRY)


def test_an_empty_follower_starts_over_inside_its_first_batch(log):
    log.truncate_fully_and_start_at(5)
    log.append_replicated(batch(b"a", b"b", b"c", b"d", base_offset=3))
    assert (log.log_start_offset, log.log_end_offset) == (5, 7)
    assert offsets_of(log) == [5, 6]
    assert bases_of(log) == [3]


def test_starting_over_removes_the_old_files_after_the_delay(tmp_path):
    log = open_log(tmp_path / "t-0", file_delete_delay_ms=1000)
    log.truncate_fully_and_start_at(5)
    log.append_replicated(batch(b"a", b"b", b"c", base_offset=4))
    log._context.clock.advance(1000)
    log._context.scheduler.run_due()
    assert names_in(log, "*.deleted") == []


@pytest.mark.parametrize("base", [0, 2, 3])
def test_an_empty_follower_refuses_a_batch_that_ends_at_or_before_its_end(log, base):
    log.truncate_fully_and_start_at(5)
    with pytest.raises(OutOfOrderError):
        log.append_replicated(batch(b"a", b"b", base_offset=base))
    assert log.log_end_offset == 5


def test_a_follower_with_records_does_not_start_over(log):
    add(log, b"a", b"b")
    with pytest.raises(OutOfOrderError):
        log.append_replicated(batch(b"x", b"y", b"z", base_offset=1))
    assert values_of(log) == [b"a", b"b"]


def test_a_full_disk_refuses_a_follower_and_lets_it_go_on_later(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    log.append_replicated(batch(b"a"))
    files.fill()
    with pytest.raises(DiskFullError):
        log.append_replicated(batch(b"b", base_offset=1))
    files.heal()
    log.append_replicated(batch(b"b", base_offset=1))
    assert values_of(log) == [b"a", b"b"]


# Epochs


def test_no_append_waits_for_its_epoch_to_be_stored(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    files.operations.clear()
    log.append_replicated(batch(b"a", partition_leader_epoch=3))
    assert files.operations == [("write", "00000000000000000000.log")]


def test_an_epoch_is_stored_before_the_recovery_point_passes_its_first_batch(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    log.append_replicated(batch(b"a", partition_leader_epoch=3))
    log.checkpoint()
    renamed = files.operations.index(("rename", "leader-epoch-checkpoint.tmp"))
    assert renamed < len(files.operations) - files.operations[::-1].index(
        ("rename", "recovery-point-offset-checkpoint.tmp")
    )


def test_an_epoch_that_cannot_be_stored_keeps_the_recovery_point(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    files.refuse("rename", "leader-epoch-checkpoint.tmp")
    with pytest.raises(StorageError):
        log.checkpoint()
    assert log._context.home.recovery_point(log.partition) == 0
    files.heal()
    log.checkpoint()
    assert log._context.home.recovery_point(log.partition) == 1


def test_a_killed_writer_leaves_the_epochs_in_the_batches(tmp_path):
    log = open_log(tmp_path / "t-0")
    for base, epoch in ((0, 1), (1, 1), (2, 4)):
        log.append_replicated(batch(b"a", base_offset=base, partition_leader_epoch=epoch))
    crash(log)
    assert [tuple(entry) for entry in open_log(tmp_path / "t-0").epoch_entries] == [(1, 0), (4, 2)]


def test_an_epoch_that_no_batch_could_tell_is_stored_at_once(log):
    log.append_replicated(batch(b"a", partition_leader_epoch=5))
    log.append_replicated((1).to_bytes(8, "big") + LEGACY_ENTRY[8:])
    assert read_epochs(log._context.files, log.directory).entries == ()
    log.append_replicated(batch(b"c", base_offset=2, partition_leader_epoch=6))
    assert log.epoch_entries


def test_each_batch_tells_its_epoch(log):
    for base, epoch in ((0, 1), (1, 1), (2, 4)):
        log.append_replicated(batch(b"a", base_offset=base, partition_leader_epoch=epoch))
    assert [tuple(entry) for entry in log.epoch_entries] == [(1, 0), (4, 2)]


def test_a_batch_without_an_epoch_tells_none(log):
    log.append_replicated(batch(b"a", partition_leader_epoch=-1))
    assert log.epoch_entries == ()


def test_a_legacy_batch_clears_the_epochs(log):
    log.append_replicated(batch(b"a", partition_leader_epoch=1))
    log.append_replicated((1).to_bytes(8, "big") + LEGACY_ENTRY[8:])
    assert log.epoch_entries == ()
    log.append_replicated(batch(b"c", base_offset=2, partition_leader_epoch=2))
    assert [tuple(entry) for entry in log.epoch_entries] == [(2, 2)]


# Duplicates and rolling


def test_a_duplicate_returns_the_original_offsets_and_timestamp(log):
    first = log.append_batch(batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0))
    add(log, b"between")
    again = log.append_batch(batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0))
    assert again == (*first[:3], True)
    assert log.log_end_offset == 3


def test_a_duplicate_never_rolls(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=100)
    add(log, b"x" * 10, producer=identity(0))
    assert add(log, b"x" * 10, producer=identity(0)) == range(1)
    assert bases_of(log) == [0]


def test_a_refused_sequence_never_rolls(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=100)
    add(log, b"x" * 10, producer=identity(0))
    with pytest.raises(OutOfOrderError):
        add(log, b"x" * 10, producer=identity(5))
    assert bases_of(log) == [0]


# The disk


def test_a_write_that_fails_half_way_is_undone(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    size = log.size_bytes

    def torn(operation, path):
        if operation == "write" and path.endswith(".log"):
            with open(path, "ab") as file:
                file.write(b"torn")
            return errno.ENOSPC
        return None

    files.fault = torn
    with pytest.raises(DiskFullError):
        add(log, b"b")
    files.heal()
    assert len(stored_bytes(log)) == size
    assert add(log, b"b") == range(1, 2)


def test_bytes_of_a_failed_write_that_cannot_be_cut_are_gone_from_the_sealed_segment(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    size = log.size_bytes

    def torn(operation, path):
        if operation == "write" and path.endswith(".log"):
            with open(path, "ab") as file:
                file.write(b"torn" * 30)
        return errno.EIO if operation in ("write", "truncate") else None

    files.fault = torn
    with pytest.raises(StorageError):
        add(log, b"b")
    files.heal()
    log.roll()
    add(log, b"b")
    assert len(stored_bytes(log)) == size
    assert values_of(log) == [b"a", b"b"]


def test_an_appended_batch_survives_the_death_of_the_process(tmp_path):
    log = open_log(tmp_path / "t-0")
    add(log, b"a", b"b")
    crash(log)
    assert values_of(open_log(tmp_path / "t-0")) == [b"a", b"b"]


@pytest.mark.parametrize("data", ["text", 5, None, [b"a"]])
@pytest.mark.parametrize("append", ["append_batch", "append_replicated"])
def test_data_must_be_bytes(log, append, data):
    with pytest.raises(UsageError, match="data is a"):
        getattr(log, append)(data)
    add_batches(log, 1)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_data_may_be_any_buffer(log, kind):
    log.append_batch(kind(batch(b"a")))
    log.append_replicated(kind(batch(b"b", base_offset=1)))
    assert values_of(log) == [b"a", b"b"]


def test_the_last_offset_of_the_format_is_the_last_that_can_be_written(log):
    end = 2**63 - 1
    log.truncate_fully_and_start_at(end - 1)
    assert add(log, b"last") == range(end - 1, end)
    for refused in (lambda: add(log, b"x"), lambda: log.append_batch(batch(b"x"))):
        with pytest.raises(UsageError, match="offset"):
            refused()
    assert offsets_of(log) == [end - 1]


def test_a_buffered_append_then_the_other_ways_keep_their_order(log):
    log.append(b"0")
    add(log, b"1")
    log.append(b"2")
    log.append_batch(batch(b"3"))
    log.append(b"4")
    log.append_replicated(batch(b"5", base_offset=5))
    log.append(b"6")
    assert [record.value for record in all_of(log)] == [b"%d" % n for n in range(7)]


def test_a_null_key_and_value_are_not_empty_ones(log):
    log.extend([NewRecord(None), NewRecord(b"", b"")])
    assert [(r.key, r.value) for r in log.read(isolation=Isolation.LOG_END)] == [(None, None), (b"", b"")]


def test_the_header_on_disk_is_the_one_of_the_batch(log):
    log.append_batch(batch(b"a", producer_id=9, producer_epoch=2, base_sequence=0))
    header = decode_header(stored_bytes(log))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 0)
