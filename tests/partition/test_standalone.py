"""A partition that is used by itself: its directory is its own store."""

from __future__ import annotations

import pytest

from logstore.errors import DiskFullError, UsageError
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.partition.standalone import name_of
from tests.logdir.helpers import open_store, snapshot, values
from tests.partition.helpers import Partition, WatchedFiles, failing


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("/data/orders-3", TopicPartition("orders", 3)),
        ("/data/a-b-0", TopicPartition("a-b", 0)),
        ("/data/journal", TopicPartition("log", 0)),
        ("/data/journal-x", TopicPartition("log", 0)),
    ],
)
def test_the_partition_is_named_after_its_directory(directory, name):
    assert name_of(directory) == name


def test_a_directory_of_any_name_keeps_its_checkpoints(tmp_path):
    partition = Partition(tmp_path / "journal")
    partition.write(5)
    assert partition.reopen().recovery.was_clean
    partition.close()


def test_missing_parents_are_created(tmp_path):
    with Log.open(str(tmp_path / "a" / "b" / "c-0")) as log:
        assert log.append(b"x") == 0


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "t-0").write_bytes(b"mine")
    with pytest.raises((UsageError, OSError)):
        Log.open(str(tmp_path / "t-0"))
    assert (tmp_path / "t-0").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["meta.properties", "topics.json"])
def test_the_directory_of_a_store_is_refused_and_left_as_it_is(tmp_path, name):
    with open_store(tmp_path / "store") as store:
        log = store.create_topic("t")[0]
        log.extend([b"1", b"2", b"3"])
        log.delete_before(2)
    (tmp_path / "store" / name).rename(tmp_path / name)  # one of the two is enough
    before = snapshot(tmp_path / "store")
    with pytest.raises(UsageError, match=r"is a store; open it with logstore\.open"):
        Log.open(tmp_path / "store")
    assert snapshot(tmp_path / "store") == before
    (tmp_path / name).rename(tmp_path / "store" / name)
    with open_store(tmp_path / "store") as store:
        assert values(store["t"][0]) == [b"3"]


def test_what_is_found_after_a_stop_is_what_a_broker_expects(partition):
    partition.write(3)
    partition.close()
    assert partition.names(".*") == [".kafka_cleanshutdown", ".lock"]
    assert partition.names("*checkpoint") == [
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    assert (partition.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"


def test_a_recovery_stores_what_it_found(partition):
    partition.write(3)
    partition.recover()
    assert (partition.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"


def test_the_background_stores_the_recovery_point(partition):
    partition.write(3)
    partition.clock.advance(60_000)
    partition.log._context.scheduler.run_due()
    assert (partition.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"


def test_a_close_that_fails_is_no_clean_stop(tmp_path):
    partition = Partition(tmp_path / "t-0", files=WatchedFiles())
    partition.write(3)
    with failing(partition.files, "create", ".snapshot", 28), pytest.raises(DiskFullError):
        partition.log.close()
    assert not (partition.path / ".kafka_cleanshutdown").exists()
    assert partition.open().log_end_offset == 3
    partition.crash()


def test_closing_twice_is_fine(partition):
    partition.write(3)
    log = partition.log
    log.close()
    log.close()


def test_an_error_inside_with_wins_over_the_close(partition):
    with pytest.raises(ZeroDivisionError), partition.open() as log:
        log.append(b"%d" % (1 // (log.append(b"x"))))
    assert log.is_closed
    assert partition.open().log_end_offset == 1


def test_a_checkpoint_is_what_a_recovery_need_not_read(partition):
    partition.write(50)
    partition.log.checkpoint()
    partition.crash()
    assert partition.open().recovery.scanned_bytes < 1000
