"""What a node remembers of its lives."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptionError, UsageError
from logstore.files import OsFiles
from logstore.replica.node import life
from logstore.replica.node.life import LifeFile


@pytest.fixture
def start(tmp_path, monkeypatch):
    def start(*, boot="b1", node_id=1):
        monkeypatch.setattr(life, "read_boot_id", lambda: boot)
        return LifeFile(OsFiles(), str(tmp_path), node_id)

    return start


def test_a_new_disk_has_lost_everything_that_it_may_have_had(start):
    file = start()
    assert (file.last_life, file.is_whole) == (0, False)


def registered(file, number):
    file.remember(number)
    file.note_registered()


def test_a_process_that_was_killed_has_lost_nothing(start):
    registered(start(), 4)
    again = start()
    assert (again.last_life, again.is_whole) == (4, True)


def test_a_machine_that_went_down_has(start):
    registered(start(), 4)
    assert not start(boot="b2").is_whole


def test_a_clean_stop_is_no_loss_on_whichever_machine(start):
    file = start()
    registered(file, 4)
    file.note_stopped()
    assert start(boot="b2").is_whole


def test_a_loss_is_kept_until_the_coordinator_knows(start):
    """A clean stop in between does not bring back what is gone."""
    registered(start(), 4)
    file = start(boot="b2")
    file.note_stopped()
    file = start(boot="b3")
    assert not file.is_whole
    registered(file, 5)
    file.note_stopped()
    assert start(boot="b4").is_whole


def test_where_starts_of_the_machine_have_no_id_each_end_is_one(start):
    registered(start(boot=""), 4)
    assert not start(boot="").is_whole


def test_another_nodes_directory(start):
    start()
    with pytest.raises(UsageError, match="node 1, not of node 2"):
        start(node_id=2)


@pytest.mark.parametrize(
    ("word", "boot", "keeps"),
    [
        (b"flushed", "b1", False),
        (b"flushed", "b2", False),
        (b"b1", "b1", False),  # cut off while the machine ran on
        (b"b1", "b2", False),
        (b"b2", "b2", True),  # after the machine has gone down, which tears the end of logs
        (b"", "b1", True),
    ],
)
def test_what_recoveries_have_cut_off(start, tmp_path, word, boot, keeps):
    registered(start(), 4)
    (tmp_path / "node.lost").write_bytes(word)
    file = start(boot=boot)
    assert file.keeps_flushed is keeps
    registered(file, 5)
    assert (file.keeps_flushed, list(tmp_path.glob("node.lost"))) == (True, [])


@pytest.mark.parametrize("text", ["{", '{"version": 1}', '{"version": 1, "node": {"node_id": 1}}'])
def test_a_damaged_file(start, tmp_path, text):
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(CorruptionError, match="move it away"):
        start()
