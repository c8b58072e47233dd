"""A backup that takes the place of its store begins leader epochs that the store has not begun meanwhile."""

import shutil

import pytest

import logstore
from logstore.logdir.directory import LogDirectory
from logstore.partition.state.home import LEADER_EPOCH_NAME
from logstore.partition.state.leader_epochs import EPOCHS_ELSEWHERE


def test_a_restored_store_goes_on_behind_all_epochs_of_the_first(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=2)
        topic[1].assign_leader_epoch(1_500)
        for log in topic:
            log.extend([b"v"])
        store.backup(tmp_path / "backup")
    for first in (EPOCHS_ELSEWHERE, 1_500 + EPOCHS_ELSEWHERE):  # then all begin where one is
        with logstore.open(tmp_path / "backup") as store:
            assert [log.leader_epoch for log in store["t"]] == [first, 1_500 + EPOCHS_ELSEWHERE]
            assert [log.end_offset_for_epoch(0) for log in store["t"]] == [(0, 1), (0, 0)]


@pytest.mark.parametrize("way", ["open", "one topic"])
def test_a_kill_right_after_it_is_opened_forgets_nothing(tmp_path, way):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t")[0].assign_leader_epoch(1_500)
        store["t"].append(b"v")
        store.backup(tmp_path / "backup")
    if way == "open":
        with logstore.open(tmp_path / "backup"):
            shutil.copytree(tmp_path / "backup", tmp_path / "killed")
    else:
        directory = LogDirectory(str(tmp_path / "backup"), opens_when_asked=True)
        shutil.copytree(tmp_path / "backup", tmp_path / "killed")
        directory.close()
    with logstore.open(tmp_path / "killed") as store:
        assert store["t"][0].leader_epoch > 1_500 + EPOCHS_ELSEWHERE


def test_a_damaged_epoch_of_the_directory_counts_as_unknown(tmp_path, caplog):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t").append(b"v")
    (tmp_path / "store" / LEADER_EPOCH_NAME).write_bytes(b"garbage")
    with logstore.open(tmp_path / "store", read_only=True) as store:
        assert not store.verify()
    for _ in range(2):
        with logstore.open(tmp_path / "store") as store:
            assert store["t"][0].leader_epoch == EPOCHS_ELSEWHERE
            assert store.verify()
    assert "ignoring a damaged leader epoch" in caplog.text


def test_a_backup_knows_the_epoch_of_its_store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("t")[0]
        log.extend([b"a", b"b"])
        log.truncate_to(1)
        store.backup(tmp_path / "backup")
    with logstore.open(tmp_path / "backup") as store:
        assert store["t"][0].leader_epoch == 1 + EPOCHS_ELSEWHERE


def test_a_backup_of_a_restored_store_goes_on_behind_that(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t").append(b"v")
        store.backup(tmp_path / "one")
    with logstore.open(tmp_path / "one") as store:
        store.backup(tmp_path / "two")
    with logstore.open(tmp_path / "two") as store:
        assert store["t"][0].leader_epoch == 2 * EPOCHS_ELSEWHERE
