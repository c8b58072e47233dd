"""What a backup holds, what an incremental one takes over, and what is refused."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

import logstore
from logstore import TopicConfig
from logstore.backup import store_backup
from logstore.errors import (
    ClosedError,
    CorruptionError,
    DiskFullError,
    LockedError,
    ReadOnlyError,
    ReopenRequiredError,
    RetriableError,
    StorageError,
    UsageError,
)
from logstore.files import read_whole_file
from logstore.format.batch import encode_batch
from logstore.model import Role
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from tests.backup.helpers import SMALL, contents, fill, log_files, open_store, read_all


def settle():
    """Until a file's time of change says whether it changes again: see backup/manifest.py."""
    time.sleep(0.06)


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "data") as store:
        yield store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "backup"


@pytest.fixture
def filled(store):
    fill(store.create_topic("orders", partitions=2)[0], 40)
    fill(store["orders"][1], 7)
    settle()
    return store


# What it holds ----------------------------------------------------------------------------------------------


def test_it_opens_as_the_store_was_and_has_nothing_to_recover(filled, path):
    filled["orders"][0].delete_before(13)
    filled["orders"].configure(retention_ms=10**9)
    report = filled.backup(path)
    with open_store(path, read_only=True) as copy:
        assert copy.was_clean
        assert contents(copy) == contents(filled)
        assert copy.verify()
    with open_store(path) as copy:
        assert copy.was_clean
        assert all(log.recovery.scanned_bytes < 1000 for log in copy["orders"])
        assert contents(copy) == contents(filled)
        assert copy.verify()
        assert copy["orders"][0].append(b"more", flush=True) == 40
    assert [(each.log_start_offset, each.log_end_offset) for each in report.partitions] == [(13, 40), (0, 7)]
    assert report.topics == ("orders",)
    assert report.size_bytes == sum(log.written_bytes for log in filled["orders"])
    assert report.linked_bytes > report.copied_bytes > 0
    assert report.verified_bytes == report.size_bytes
    assert not report.is_incremental
    assert report.damaged == ()
    assert "1 topics, 2 partitions" in str(report)


def test_what_is_appended_singly_is_in_it(tmp_path, path):
    config = logstore.StoreConfig(linger_ms=60_000)
    with logstore.open(tmp_path / "data", config=config) as store:
        store.create_topic("orders").append(b"gathering")
        store.backup(path)
        assert [record.value for record in logstore.open(path, read_only=True)["orders"][0]] == [b"gathering"]


def test_producers_epochs_role_and_aborted_transactions_are_in_it(store, path):
    log = store.create_topic("orders")[0]
    log.assign_leader_epoch(3)
    data = encode_batch(
        [None],
        [b"aborted"],
        1_700_000_000_000,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append_batch(data)
    log.append_end_marker(7, 0, committed=False)
    log.set_role(Role.LEADER)
    fill(log, 20)
    log.update_high_watermark(15)
    store.backup(path)
    with open_store(path) as copy:
        other = copy["orders"][0]
        assert other.epoch_entries == log.epoch_entries
        assert other.role is Role.LEADER
        assert other.high_watermark == 15
        assert other.last_of_producer(7) == log.last_of_producer(7)
        told = [record.value for record in other.read(isolation=logstore.Isolation.COMMITTED)]
        assert told == [record.value for record in log.read(isolation=logstore.Isolation.COMMITTED)]
        assert b"aborted" not in told
        assert copy.verify()


def test_topics_that_are_held_in_part_stay_so(store, path):
    topic = store.create_topic("orders", partitions=8, held=[0, 5])
    fill(topic[5], 10)
    store.backup(path)
    assert read_all(path) == contents(store)


def test_compacted_topics_stay_compacted(store, path):
    topic = store.create_topic("latest", config=TopicConfig(cleanup_policy="compact", segment_bytes=400))
    fill(topic[0], 60)
    topic.compact(now=True)
    store.backup(path)
    assert read_all(path) == contents(store)
    with open_store(path) as copy:
        assert copy["latest"][0].dirtiness() == topic[0].dirtiness()
        assert copy.verify()


def test_a_store_without_topics(store, path):
    store.backup(path)
    assert read_all(path) == {}
    store.create_topic("orders")
    store.backup(path)
    assert read_all(path) == contents(store)


def test_progress_ends_with_everything_and_may_abort(filled, path):
    seen = []
    filled.backup(path, on_progress=seen.append)
    assert seen[-1].done_bytes == seen[-1].total_bytes == sum(log.written_bytes for log in filled["orders"])
    before = read_all(path)
    fill(filled["orders"][0], 5)

    def stop(progress):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        filled.backup(path, on_progress=stop)
    assert read_all(path) == before
    assert sorted(os.listdir(path.parent)) == ["backup", "data"]


# Incremental ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("links", [True, False])
def test_what_has_not_changed_is_kept(filled, path, links):
    filled.backup(path, links=links)
    again = filled.backup(path, links=links)
    assert again.is_incremental
    assert (again.copied_bytes, again.linked_bytes, again.verified_bytes) == (0, 0, 0)
    assert again.kept_bytes == sum(log.written_bytes for log in filled["orders"])
    assert read_all(path) == contents(filled)


@pytest.mark.parametrize("links", [True, False])
def test_an_incremental_backup_is_what_a_full_one_is(filled, path, tmp_path, links):
    filled.create_topic("gone")
    filled.create_topic("latest", config=TopicConfig(cleanup_policy="compact", segment_bytes=400))
    fill(filled["latest"][0], 60)
    filled.backup(path, links=links)
    settle()
    filled["orders"][0].delete_before(20)
    filled["orders"][1].truncate_to(3)
    fill(filled["orders"][0], 9)
    fill(filled["latest"][0], 9)
    filled["latest"].compact(now=True)
    filled["orders"][0].erase(offsets=[27])
    filled.delete_topic("gone")
    filled.create_topic("new")
    filled["orders"].add_partitions(3)
    settle()
    report = filled.backup(path, links=links)
    filled.backup(tmp_path / "full", links=links)
    assert read_all(path) == read_all(tmp_path / "full") == contents(filled)
    assert report.kept_bytes > 0
    assert report.copied_bytes > 0
    names = [
        sorted(str(f.relative_to(at)) for at in [each] for f in at.rglob("*"))
        for each in (path, tmp_path / "full")
    ]
    assert names[0] == names[1]
    for file in log_files(path):
        assert file.read_bytes() == (tmp_path / "full" / file.relative_to(path)).read_bytes()


def test_a_topic_that_was_made_anew_is_copied_anew(filled, path):
    filled.backup(path)
    filled.delete_topic("orders")
    fill(filled.create_topic("orders", partitions=2)[0], 40, start=100)
    report = filled.backup(path)
    assert report.kept_bytes == 0
    assert read_all(path) == contents(filled)


def test_going_over_to_copies_leaves_no_link(filled, path):
    filled.backup(path)
    filled.backup(path, links=False)
    ours = {file.stat().st_ino for file in log_files(Path(filled.path))}
    assert ours.isdisjoint(file.stat().st_ino for file in log_files(path))
    assert read_all(path) == contents(filled)


def test_a_last_segment_that_was_sealed_at_its_size_serves_again(filled, path):
    filled.backup(path, links=False)
    filled["orders"][1].roll()
    assert filled.backup(path, links=False).copied_bytes == 0
    assert read_all(path) == contents(filled)


def test_a_cut_to_the_same_size_is_not_taken_for_the_same(filled, path):
    log = filled["orders"][1]
    filled.backup(path)
    log.truncate_to(6)
    log.extend([(b"key 1", b"other 6 " * 4)])
    filled.backup(path)
    assert read_all(path) == contents(filled)


def test_the_restored_store_goes_on_with_the_same_backup(filled, path, tmp_path):
    filled.backup(path)
    shutil.copytree(path, tmp_path / "restored")
    with open_store(tmp_path / "restored") as restored:
        fill(restored["orders"][0], 3, start=40)
        assert restored.backup(path).is_incremental
        assert read_all(path) == contents(restored)


# Links ------------------------------------------------------------------------------------------------------


def bytes_in(directory):
    return {str(f.relative_to(directory)): f.read_bytes() for f in directory.rglob("*") if f.is_file()}


def change(store):
    """Everything that changes files in place, or might."""
    log = store["orders"][0]
    log.truncate_to(17)  # into a sealed segment
    fill(log, 4, start=900)
    log.erase(offsets=[3, 18])
    log.delete_before(8)
    log.roll()
    fill(log, 2, start=800)
    log.truncate_to(9)
    fill(log, 30, start=700)
    log.checkpoint()


def test_nothing_that_the_store_does_reaches_the_backup(filled, path):
    report = filled.backup(path)
    assert report.linked_bytes > 0
    before = bytes_in(path)
    change(filled)
    filled.close()
    with open_store(filled.path) as again:
        change(again)
        again["orders"][1].truncate_fully_and_start_at(3)
        again.delete_topic("orders")
    assert bytes_in(path) == before
    with open_store(path, read_only=True) as copy:
        assert copy.verify()


def test_nothing_that_is_done_to_the_backup_reaches_the_store(filled, path):
    filled.backup(path)
    filled.close()
    before = bytes_in(Path(filled.path))
    with open_store(path) as copy:
        change(copy)
        assert copy.verify()
        copy["orders"][1].truncate_fully_and_start_at(3)
        copy.delete_topic("orders")
    assert bytes_in(Path(filled.path)) == before


def test_recovery_does_not_cut_what_has_another_name(filled, path):
    """A crash, and a cut in a linked segment that somebody accepts the loss of."""
    filled.backup(path)
    store = Path(filled.path)
    filled.close()
    [damaged] = [f for f in log_files(store) if f.parent.name == "orders-0"][3:4]
    (store / ".kafka_cleanshutdown").unlink()
    (store / "recovery-point-offset-checkpoint").unlink()
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.unlink()
    damaged.write_bytes(data)
    os.link(damaged, path.parent / "other name")
    with open_store(store) as again:
        assert again["orders"][0].log_end_offset < 40
        fill(again["orders"][0], 3)
    assert (path.parent / "other name").read_bytes() == data


def test_a_closed_store_may_be_copied_by_links(filled, tmp_path):
    """``cp -al``: the last segment has two names then, too."""
    before = contents(filled)
    filled.close()
    shutil.copytree(filled.path, tmp_path / "linked", copy_function=os.link)
    os.unlink(tmp_path / "linked" / ".lock")
    with open_store(tmp_path / "linked") as linked:
        for log in linked["orders"]:
            fill(log, 20, start=500)
        assert linked.verify()
    assert read_all(filled.path) == before
    with open_store(filled.path) as store:
        assert store["orders"][0].append(b"mine", flush=True) == 40
        assert store.verify()


def test_readers_elsewhere_go_on(filled, path):
    with open_store(filled.path, read_only=True) as reader:
        for _ in range(3):
            records = iter(reader["orders"][0].read())
            first = next(records)
            filled.backup(path)
            assert [first, *records] == list(filled["orders"][0].read())
            assert contents(reader) == contents(filled)


# Other disks ------------------------------------------------------------------------------------------------


@pytest.fixture
def other_disk(tmp_path):
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("there is no second file system")
    path = Path(f"/dev/shm/logstore-backup-{os.getpid()}")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.disk
def test_on_another_file_system_everything_is_copied(filled, other_disk):
    report = filled.backup(other_disk)
    assert report.linked_bytes == 0
    assert report.copied_bytes == report.size_bytes
    assert filled.backup(other_disk).kept_bytes == report.size_bytes
    fill(filled["orders"][0], 20)
    again = filled.backup(other_disk)
    assert 0 < again.copied_bytes < again.size_bytes
    assert read_all(other_disk) == contents(filled)


def test_where_links_are_refused_everything_is_copied(tmp_path):
    files = FaultyFiles(MemoryFiles())
    with open_store("/data", files) as store:
        fill(store.create_topic("orders")[0], 30)
        files.fail(FAULTS["EACCES"], kinds=["link"], times=None)
        report = store.backup("/backup")
        assert report.linked_bytes == 0
        assert store.backup("/backup").kept_bytes == report.size_bytes
        assert read_all("/backup", files) == contents(store)


def test_where_names_cannot_be_exchanged_they_are_renamed():
    files = FaultyFiles(MemoryFiles())
    with open_store("/data", files) as store:
        fill(store.create_topic("orders")[0], 30)
        store.backup("/backup")
        fill(store["orders"][0], 30)
        files.fail(FAULTS["EIO"]._replace(errno=22), kinds=["exchange"], times=None)
        store.backup("/backup")
        assert read_all("/backup", files) == contents(store)
        assert {e.name for e in files.list_directory("/")} == {"data", "backup"}


def test_between_the_two_renames_opening_says_what_to_do():
    files = FaultyFiles(MemoryFiles())
    with open_store("/data", files) as store:
        fill(store.create_topic("orders")[0], 30)
        store.backup("/backup")
        files.rename("/backup", "/backup.previous")
        for options in ({}, {"read_only": True}):
            with pytest.raises(UsageError, match=r"Call it again; or rename /backup\.previous"):
                open_store("/backup", files, **options)
        assert store.backup("/backup").is_incremental
        assert {e.name for e in files.list_directory("/")} == {"data", "backup"}


# Refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", "/", "/inside", "/orders-0", "/.."])
def test_not_in_the_store_nor_around_it(filled, where):
    with pytest.raises(UsageError, match="must not contain each other"):
        filled.backup(filled.path + where)


def test_not_through_a_link_into_the_store(filled, tmp_path):
    (tmp_path / "link").symlink_to(filled.path)
    (tmp_path / "deeper").symlink_to(f"{filled.path}/orders-0")
    for path in (tmp_path / "link", tmp_path / "link" / "b", tmp_path / "deeper" / "b"):
        with pytest.raises(UsageError, match="must not contain each other"):
            filled.backup(path)


def test_a_link_to_a_backup_is_followed(filled, path, tmp_path):
    filled.backup(path)
    (tmp_path / "link").symlink_to(path)
    assert filled.backup(tmp_path / "link").path == str(path)
    assert (tmp_path / "link").is_symlink()


def test_nothing_else_is_overwritten(filled, path, tmp_path):
    path.mkdir()
    (path / "letters").write_text("dear")
    with pytest.raises(UsageError, match="is not a backup"):
        filled.backup(path)
    with pytest.raises(UsageError, match="is a file"):
        filled.backup(path / "letters")
    with open_store(tmp_path / "other") as other, pytest.raises(UsageError, match="is not a backup"):
        filled.backup(other.path)
    assert (path / "letters").read_text() == "dear"
    (tmp_path / "b.partial").mkdir()
    (tmp_path / "b.partial" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="is in the way"):
        filled.backup(tmp_path / "b")
    assert (tmp_path / "b.partial" / "mine").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    filled.backup(tmp_path / "empty")
    assert read_all(tmp_path / "empty") == contents(filled)


def test_the_backup_of_another_store_stays(filled, path, tmp_path):
    with open_store(tmp_path / "other") as other:
        fill(other.create_topic("orders")[0], 3)
        other.backup(path)
        before = read_all(path)
        with pytest.raises(UsageError, match="is the backup of another store"):
            filled.backup(path)
    assert read_all(path) == before


def test_a_backup_that_was_written_to_is_a_store_of_its_own(filled, path):
    filled.backup(path)
    with open_store(path) as copy:
        with pytest.raises(UsageError, match="was opened for"):
            filled.backup(path)
        fill(copy["orders"][0], 3)
    before = read_all(path)
    with pytest.raises(UsageError, match="was opened for"):
        filled.backup(path)
    assert read_all(path) == before


def test_one_at_a_time(filled, path):
    def again(progress):
        with pytest.raises(LockedError):
            filled.backup(path)

    filled.backup(path, on_progress=again)
    filled.backup(path, on_progress=again)
    assert read_all(path) == contents(filled)


def test_a_store_that_was_opened_read_only(filled, path):
    next_step = r"call backup\(\) in the program that has it open; if there is none, run `logstore backup`"
    with open_store(filled.path, read_only=True) as reader, pytest.raises(ReadOnlyError, match=next_step):
        reader.backup(path)


@pytest.mark.parametrize("wrong", [{"on_progress": 3}, {"link": True}])
def test_wrong_arguments(filled, path, wrong):
    with pytest.raises((UsageError, TypeError)):
        filled.backup(path, **wrong)
    with pytest.raises(UsageError, match="path is"):
        filled.backup(3)
    assert not path.exists()


def test_a_log_that_must_be_reopened():
    files = FaultyFiles(MemoryFiles())
    with open_store("/data", files) as store:
        log = store.create_topic("orders")[0]
        fill(log, 3)
        files.fail(FAULTS["failed flush"], path="orders-0")
        with pytest.raises(logstore.StorageError):
            log.flush()
        with pytest.raises(ReopenRequiredError):
            store.backup("/backup")
        store["orders"].reopen(0)
        store.backup("/backup")
        assert read_all("/backup", files) == contents(store)


@pytest.mark.damaged
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_segment_that_the_store_has_lost_stays_in_the_earlier_backup(tmp_path, policy):
    """It was taken out, and with it the only copy."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    with open_store(data) as store:
        config = TopicConfig(cleanup_policy=policy, min_compaction_lag_ms=3_600_000)  # none during the test
        log = store.create_topic("orders", config=config)[0]
        for number in range(3):
            log.extend([(b"key %d" % number, b"value")])
            log.roll()
        store.backup(backup)
    lost = Path("orders-0", f"{1:020}.log")
    (data / lost).unlink()
    with open_store(data) as store:
        with pytest.raises(CorruptionError, match="missing segment") as caught:
            store.backup(backup)
        assert (caught.value.path, caught.value.base_offset) == (str(data / lost), 1)
        assert (backup / lost).exists()
    shutil.copy(backup / lost, data / lost)
    with open_store(data) as store:
        assert not store.backup(backup).damaged
    (data / lost).unlink()
    with open_store(data) as store:
        assert [finding.base_offset for finding in store.backup(backup, accept_damage=True).damaged] == [1]
        assert not (backup / lost).exists()
        store["orders"].reopen(0, accept_loss=True)
        assert not store.backup(backup).damaged


def test_a_log_that_was_closed_by_itself():
    """The backup waited without end for another thread to open it again."""
    files = MemoryFiles()
    with open_store("/data", files) as store:
        orders = store.create_topic("orders", partitions=3)
        with orders[1] as log:
            fill(log, 3)
        with pytest.raises(ClosedError, match=r"log of orders-1 was closed by itself: topic\.reopen\(1\)"):
            store.backup("/backup")
        orders.reopen(1)
        store.backup("/backup")
        assert read_all("/backup", files) == contents(store)


def test_a_log_that_is_reopened_again_and_again():
    with open_store("/data", MemoryFiles()) as store:
        fill(store.create_topic("orders")[0], 3)
        with pytest.raises(RetriableError, match="orders-0 is closed and opened again faster"):
            store.backup("/backup", on_progress=lambda _: store["orders"].reopen(0))


def test_a_full_disk_leaves_the_earlier_backup():
    files = FaultyFiles(MemoryFiles())
    with open_store("/data", files) as store:
        fill(store.create_topic("orders")[0], 30)
        store.backup("/backup")
        before = read_all("/backup", files)
        fill(store["orders"][0], 30)
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="/backup.partial/orders-0", times=None)
        with pytest.raises(DiskFullError):
            store.backup("/backup")
        assert read_all("/backup", files) == before
        assert {e.name for e in files.list_directory("/")} == {"data", "backup"}


# Damage -----------------------------------------------------------------------------------------------------


def flip(file, position=100):
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


@pytest.mark.damaged
@pytest.mark.parametrize("links", [True, False])
def test_damage_ends_the_backup_unless_it_is_accepted(filled, path, links):
    damaged = log_files(Path(filled.path))[2]
    flip(damaged)
    with pytest.raises(CorruptionError, match="accept_damage=True") as caught:
        filled.backup(path, links=links)
    assert caught.value.path == str(damaged)
    assert not path.exists()
    for _ in range(2):  # of damage nothing is remembered as sound
        report = filled.backup(path, links=links, accept_damage=True)
        assert [finding.path for finding in report.damaged] == [str(damaged)]
        assert "damaged in the store" in str(report)
    with open_store(path, read_only=True) as copy:
        assert not copy.verify()
        assert len(list(copy["orders"][1].read())) == 7


@pytest.mark.damaged
def test_a_sound_copy_is_not_replaced_by_a_damaged_one(filled, path):
    before = contents(filled)
    filled.backup(path, links=False)
    filled.close()
    damaged = log_files(Path(filled.path))[2]
    flip(damaged)
    with open_store(filled.path) as store:
        with pytest.raises(CorruptionError):
            store.backup(path, links=False)
        fill(store["orders"][1], 3)
        report = store.backup(path, links=False, accept_damage=True)
    assert [finding.path for finding in report.damaged] == [str(damaged)]
    with open_store(path, read_only=True) as copy:
        assert copy.verify()
        assert contents(copy)["orders"][3][0] == before["orders"][3][0]
        assert copy["orders"][1].log_end_offset == 10


@pytest.mark.damaged
def test_a_damaged_index_is_left_out(filled, path):
    index = sorted(Path(filled.path).glob("orders-0/*.index"))[1]
    assert index.stat().st_size
    flip(index, 7)
    assert filled.backup(path).damaged == ()
    with open_store(path, read_only=True) as copy:
        assert copy.verify()
        assert contents(copy) == contents(filled)


@pytest.mark.damaged
def test_a_partition_that_cannot_be_opened(filled, path):
    before = contents(filled)
    filled.backup(path, links=False)
    filled.close()
    last = [f for f in log_files(Path(filled.path)) if f.parent.name == "orders-0"][-1]
    last.write_bytes(b"")
    with open_store(filled.path) as store:
        assert store.damaged
        fill(store["orders"][1], 3)
        with pytest.raises(CorruptionError):
            store.backup(path)
        report = store.backup(path, accept_damage=True)
        assert len(report.damaged) == 1
        with open_store(path, read_only=True) as copy:
            assert contents(copy)["orders"][3][0] == before["orders"][3][0]
            assert copy["orders"][1].log_end_offset == 10
        store.backup(path.parent / "first", accept_damage=True)
    with open_store(path.parent / "first") as copy:
        assert list(copy.damaged) == [("orders", 0)]
        assert copy["orders"][1].log_end_offset == 10


@pytest.mark.damaged
def test_a_staged_file_that_the_disk_cannot_read_is_reported_or_refused():
    files = FaultyFiles(MemoryFiles())
    name = "spark-0123456789abcdef-3-0-0123456789abcdef.staged"
    with open_store("/store", files=files) as store:
        fill(store.create_topic("orders")[0], 3)
        staged = files.files.open(f"/store/{name}", create=True)
        staged.write_at(0, [b"rows"])
        staged.close()
        files.fail(FAULTS["EIO"], times=None, kinds=["read"], path=f"/store/{name}")
        with pytest.raises(StorageError, match=name):
            store.backup("/backup")
        report = store.backup("/backup", accept_damage=True)
        assert [each.path for each in report.damaged] == [f"/store/{name}"]
    assert not files.is_file(f"/backup/{name}")
    with open_store("/backup", files=files, read_only=True) as copy:
        assert len(list(copy["orders"][0])) == 3


@pytest.mark.parametrize("ends", [True, False])
def test_staged_files_of_a_commit_that_ends_or_begins_meanwhile(monkeypatch, ends):
    """Its batch may be prepared in what was copied, and not done. One that is written is copied whole."""
    files = MemoryFiles()
    name = "spark-0123456789abcdef-3-0-0123456789abcdef.staged"

    def stage(text):
        staged = files.open(f"/store/{name}", create=True, write=True)
        staged.write_at(0, [text])
        staged.close()

    copy_partitions = store_backup._Backup.copy_partitions

    def copy(backup):
        if ends:
            files.remove(f"/store/{name}")
        else:
            stage(b"all of the rows")
        copy_partitions(backup)

    monkeypatch.setattr(store_backup._Backup, "copy_partitions", copy)
    with open_store("/store", files=files) as store:
        fill(store.create_topic("orders")[0], 3)
        stage(b"rows")
        store.backup("/backup")
    assert read_whole_file(files, f"/backup/{name}") == (b"rows" if ends else b"all of the rows")


# Cost -------------------------------------------------------------------------------------------------------


def test_a_thousand_partitions_cost_a_few_calls_each():
    files = FaultyFiles(MemoryFiles())
    count = 1_000
    with open_store("/data", files) as store:
        topic = store.create_topic("orders", partitions=count)
        for log in topic:
            log.append(b"one")
        store.flush()

        def calls_of_backup():
            files.operations.clear()
            store.backup("/backup")
            return len(files.operations) / count

        assert calls_of_backup() < 80
        topic[7].append(b"two")
        assert calls_of_backup() < 80
        assert sum(kind == "flush" for kind, _ in files.operations) < 30
        assert read_all("/backup", files) == contents(store)
    assert SMALL.linger_ms == 0
