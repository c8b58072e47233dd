"""A backup that takes the place of its store begins leader epochs that the store has not begun meanwhile."""

import logstore
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
