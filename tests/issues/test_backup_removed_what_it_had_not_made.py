"""The second call for a backup removed, without a word, whatever else had been put there: notes beside the
topics, and a whole backup that was made inside the first one. Nor did it log the deleted topics that it
took out.
"""

import logging

import pytest

import logstore
from logstore.errors import CorruptionError, UsageError


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "data") as store:
        store.create_topic("t")[0].extend([b"x"] * 10)
        store.backup(tmp_path / "backups")
        yield store


@pytest.mark.parametrize("inner", ["2026-11-24", "t-0/inner", "a/b/c"])
def test_a_backup_in_a_backup_is_refused(store, tmp_path, inner):
    with pytest.raises(UsageError, match="is in the backup"):
        store.backup(tmp_path / "backups" / inner)
    assert not (tmp_path / "backups" / inner).exists()
    assert store.backup(tmp_path / "backups").is_incremental


@pytest.mark.parametrize(
    "name",
    ["README.txt", "notes/1.txt", "2026-11-24/meta.properties", "t-1/notes", "t-0/notes.txt", "t-0/d/e"],
)
def test_what_was_put_into_a_backup_is_named_and_stays(store, tmp_path, name):
    foreign = tmp_path / "backups" / name
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_text("how to restore")
    store["t"][0].extend([b"y"])
    with pytest.raises(UsageError, match=f"no backup has made: {name.split('/')[0]}"):
        store.backup(tmp_path / "backups")
    assert foreign.read_text() == "how to restore"
    foreign.unlink()
    while foreign.parent.name not in ("backups", "t-0"):
        foreign = foreign.parent
        foreign.rmdir()
    assert store.backup(tmp_path / "backups").is_incremental


def test_what_the_store_does_not_have_any_more_is_taken_out_with_a_line(store, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="logstore.backup")
    log = store.create_topic("kept")[0]
    log.extend([b"x"] * 10)
    store.backup(tmp_path / "backups")
    assert not caplog.messages
    store.delete_topic("t")
    log.delete_before(3)
    log.truncate_to(8)
    store.backup(tmp_path / "backups")
    (line,) = caplog.messages
    assert line == (
        f"{tmp_path / 'backups'}: taken out, as from the store: "
        "kept-0 before offset 3, kept-0 from offset 8, t-0 with offsets 0 to 9"
    )
    store.backup(tmp_path / "backups")
    assert len(caplog.messages) == 1


def test_a_partition_that_was_copied_unread_is_the_backups_own(tmp_path):
    with logstore.open(tmp_path / "data") as store:
        store.create_topic("t")[0].extend([b"x"] * 10)
        store.create_topic("bad")[0].extend([b"x"] * 10)
    log = tmp_path / "data" / "bad-0" / f"{0:020d}.log"
    log.unlink()
    (tmp_path / "data" / "bad-0" / "anything").write_text("copied as it is")
    with logstore.open(tmp_path / "data") as store:
        assert store.damaged
        with pytest.raises(CorruptionError):
            store.backup(tmp_path / "b")
        for is_incremental in (False, True, True):
            assert store.backup(tmp_path / "b", accept_damage=True).is_incremental == is_incremental
    assert (tmp_path / "b" / "bad-0" / "anything").exists()
