"""What a recovery reads, reports and leaves behind: no more than needed, and nothing to do for the next."""

from __future__ import annotations

from functools import partial

import pytest

from logstore.errors import UsageError
from logstore.model import Isolation, ProducerIdentity
from logstore.partition.log import Log
from tests.partition.helpers import Partition, batch_of


def spoil_nothing(partition):
    pass


def spoil_tail(partition):
    partition.extend_file(b"torn" * 50, partition.bases()[-1])


def spoil_middle(partition):
    partition.corrupt_batch(3, 20)


def spoil_indexes(partition):
    for suffix in (".index", ".timeindex"):
        partition.write_file(b"garbage!" * 30, 40, suffix=suffix)


def spoil_checkpoints(partition):
    (partition.path / "recovery-point-offset-checkpoint").unlink()


def spoil_snapshots(partition):
    for path in partition.path.glob("*.snapshot"):
        path.write_bytes(b"x")


def leave_swap(partition):
    partition.write_file(batch_of(0, 20), suffix=".log.swap")


SPOILERS = [
    spoil_nothing,
    spoil_tail,
    spoil_middle,
    spoil_indexes,
    spoil_checkpoints,
    pytest.param(spoil_snapshots, marks=pytest.mark.damaged),
    leave_swap,
]


@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
def test_a_second_recovery_finds_nothing_to_do(partition, spoil):
    partition.write_segments(20, 20, 20)
    partition.crash()
    spoil(partition)
    found = partition.log.log_end_offset
    records = partition.read()
    epochs = partition.log.epoch_entries
    files = {path.name: path.read_bytes() for path in partition.path.glob("*.log")}
    for _ in range(3):
        report = partition.recover().recovery
        assert not report.was_clean
        assert (report.cut_bytes, report.kept_aside, report.split_segments) == (0, [], 0)
        assert report.scanned_bytes < 500
        assert report.recovered_segments == 1
        assert (partition.log.log_end_offset, partition.log.epoch_entries) == (found, epochs)
        assert partition.read() == records
    assert {path.name: path.read_bytes() for path in partition.path.glob("*.log")} == files


def test_nothing_but_the_end_is_read_after_a_clean_stop(partition):
    partition.write_segments(200, 200)
    report = partition.reopen().recovery
    assert report.was_clean
    assert report.scanned_bytes < 500
    assert report.recovered_segments == 0


def test_only_what_lies_above_the_recovery_point_is_read_after_a_crash(partition):
    partition.write_segments(100, 100)
    partition.checkpoint()
    before = partition.log.size_bytes
    partition.write(10)
    added = partition.log.size_bytes - before
    report = partition.recover().recovery
    assert added <= report.scanned_bytes < added + 500


def test_everything_is_read_once_without_a_recovery_point(partition):
    partition.write_segments(30, 30)
    size = partition.log.size_bytes
    report = partition.recover().recovery
    assert (report.scanned_bytes, report.recovered_segments) == (size, 2)


def test_what_a_recovery_found_is_durable(partition):
    partition.write(10)
    assert partition.log.durable_offset == 0
    partition.recover()
    assert partition.log.durable_offset == 10
    assert len(list(partition.log.read(isolation=Isolation.DURABLE))) == 10


def test_a_background_flush_after_a_roll_moves_the_stored_recovery_point(partition):
    partition.write_segments(100, 5)
    partition.clock.advance(1000)
    partition.log._context.scheduler.run_due()
    report = partition.recover().recovery
    assert report.recovered_segments == 1
    assert report.scanned_bytes < 1000


def test_the_clean_marker_is_gone_while_the_log_is_open(partition):
    marker = partition.path / ".kafka_cleanshutdown"
    partition.write(3)
    assert not marker.exists()
    partition.close()
    assert marker.exists()
    partition.open()
    assert not marker.exists()


def test_a_stale_clean_marker_does_not_hide_a_crash(partition):
    """Copied back with an old backup, say: the log then does not end where the recovery point is."""
    partition.write(3)
    partition.close()
    marker = (partition.path / ".kafka_cleanshutdown").read_bytes()
    partition.write(3)
    partition.crash()
    partition.extend_file(b"torn")
    (partition.path / ".kafka_cleanshutdown").write_bytes(marker)
    report = partition.open().recovery
    assert not report.was_clean
    assert report.cut_bytes == 4
    assert partition.read() == list(range(6))


def test_a_crash_at_any_step_of_a_clean_stop_loses_nothing(tmp_path):
    for count in range(60):
        partition = Partition(tmp_path / f"{count}-0")
        partition.write_segments(5, 5)
        if not partition.dies_during(partition.log.close, count):
            break
        assert partition.read() == list(range(10))
        partition.crash()
    assert count > 8


def test_producers_are_remembered_over_a_crash_and_over_a_stop(partition):
    def send(sequence):
        return partition.log.extend([b"x", b"y"], producer=ProducerIdentity(7, 0, sequence))

    sent = [send(2 * number) for number in range(7)]
    for restart in (partition.recover, partition.reopen, partition.recover):
        restart()
        assert send(12) == sent[6]
        assert partition.log.log_end_offset == 14
    assert send(14) == range(14, 16)


def test_an_open_transaction_is_still_open_after_a_crash(partition):
    partition.log.extend([b"x"], producer=ProducerIdentity(7, 0, 0, transactional=True))
    partition.write(2)
    partition.recover()
    assert partition.log.last_stable_offset == 0
    partition.log.append_end_marker(7, 0, committed=False)
    partition.recover()
    assert partition.log.last_stable_offset == partition.log.log_end_offset == 4
    assert [record.offset for record in partition.log.read(isolation=Isolation.COMMITTED)] == [1, 2]


def test_aborted_transactions_are_found_again_without_their_index(partition):
    partition.log.extend([b"x"], producer=ProducerIdentity(7, 0, 0, transactional=True))
    partition.log.append_end_marker(7, 0, committed=False)
    partition.crash()
    partition.file(0, ".txnindex").unlink()
    partition.open()
    assert list(partition.log.read(isolation=Isolation.COMMITTED)) == []


def test_the_log_start_survives_a_crash(partition):
    partition.write_segments(10, 10)
    partition.log.delete_before(13)
    partition.recover()
    assert partition.log.log_start_offset == 13
    assert partition.read() == list(range(13, 20))


def test_the_end_of_a_truncated_log_survives_a_crash(partition):
    partition.write_segments(10, 10, 10)
    partition.checkpoint()
    partition.log.truncate_to(12)
    partition.recover()
    assert partition.read() == list(range(12))
    assert partition.write(2) == range(12, 14)


def test_a_crash_at_any_step_of_a_truncation_leaves_the_old_end_or_an_earlier_one(tmp_path):
    for count in range(100):
        partition = Partition(tmp_path / f"{count}-0")
        partition.write_segments(10, 10, 10)
        partition.checkpoint()
        if not partition.dies_during(partial(partition.log.truncate_to, 12), count):
            break
        end = partition.log.log_end_offset
        assert end in (30, 20, 12), count
        assert partition.read() == list(range(end))
        partition.crash()
    assert count > 5


def test_a_missing_directory_is_refused_unless_it_may_be_created(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        Log.open(str(tmp_path / "t-0"), create=False)
    assert not (tmp_path / "t-0").exists()


def test_an_empty_log_is_empty_again_after_a_crash(partition):
    partition.open()
    assert partition.recover().log_end_offset == 0
    assert partition.reopen().recovery.was_clean
    assert partition.write(1) == range(1)
