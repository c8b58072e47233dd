"""The log of changes that the coordinator in files stands on. 4 s, of which crashes take 2."""

from __future__ import annotations

import contextlib
import stat
import threading

import pytest

from logstore.clock import SystemClock
from logstore.errors import (
    ClosedError,
    CorruptionError,
    DiskFullError,
    FencedError,
    ReopenRequiredError,
    StorageError,
    UsageError,
)
from logstore.files import OsFiles
from logstore.replica.coordination import change_log
from logstore.replica.coordination.change_log import ChangeLog
from logstore.replica.coordination.files import FileCoordinator
from logstore.replica.coordination.image import Change, TreeImage, decode_change, encode_change
from logstore.replica.coordination.tree import Check, Create, Delete, Why, Write
from logstore.testing import Explored, FaultyFiles, MemoryFiles, explore
from logstore.testing.faults import FAULTS
from tests.replica.coordination.places import Disk, register


def make(log, *steps, **more):
    """Make a change, however often others are faster."""
    while True:
        log.catch_up()
        refusal = log.image.check(Change(steps, **more))
        if refusal is not None:
            return refusal
        if log.try_append(Change(steps, **more)) is not None:
            return None


def open_log(path, files=None):
    return ChangeLog(files or OsFiles(), str(path), SystemClock())


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "log-1"])
def test_a_directory_with_files_that_look_like_segments_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=f"has other files in it, such as '{name}'"):
        open_log(tmp_path)


def count(log):
    log.catch_up()
    stored = log.image.read("/count")
    return 0 if stored is None else int(stored.data)


def increase(log):
    """Raises the count by compare-and-set."""
    while True:
        log.catch_up()
        stored = log.image.read("/count")
        step = (
            Create("/count", "1")
            if stored is None
            else Write("/count", str(int(stored.data) + 1), stored.version)
        )
        if log.try_append(Change([step])) is not None:
            return


# What a change does


def test_all_steps_of_a_change_are_made_or_none(tmp_path):
    log, other = open_log(tmp_path), open_log(tmp_path)
    assert make(log, Create("/a", "1"), Create("/b", "1")) is None
    assert make(other, Write("/a", "2", 0), Write("/b", "2", 1)) == (Why.CHANGED, 1)
    assert make(other, Check("/a", 0), Create("/b", "")) == (Why.EXISTS, 1)
    assert make(other, Delete("/a"), Write("/c", "")) == (Why.MISSING, 1)
    assert make(other, Delete("/a"), Create("/a", "3"), Write("/a", "4", 0)) is None
    log.catch_up()
    assert log.image.read("/a") == ("4", 1)
    assert log.image.read("/b") == ("1", 0)
    assert make(log, Create("/s", "", is_bound=True), session="x").why is Why.MISSING
    assert make(log, opens=("x", 100)) is None
    assert make(log, Create("/s", "", is_bound=True), session="x") is None
    assert make(other, closes="x") is None
    assert log.catch_up() == {"/s": None}
    assert make(log, confirms="x").why is Why.MISSING


@pytest.mark.parametrize(
    "change",
    [
        Change([Create("/a", "é\n"), Create("/b", "", True), Write("/c", "1"), Delete("/d")], session="s"),
        Change(opens=("s", 5)),
        Change(closes="s"),
        Change(confirms="s"),
        Change(is_last=True),
    ],
)
def test_a_change_is_read_as_it_was_written(change):
    assert decode_change(encode_change(change)) == change._replace(steps=tuple(change.steps))


def test_what_others_have_changed_is_told_once(tmp_path):
    log, other = open_log(tmp_path), open_log(tmp_path)
    make(other, Create("/a", "1"))
    make(other, Write("/a", "2"), Create("/b", ""))
    assert log.catch_up() == {"/a": ("2", 1), "/b": ("", 0)}
    assert log.catch_up() == {}


# Many writers


def test_what_threads_change_at_once_adds_up(tmp_path, monkeypatch):
    """With segments so short that some end meanwhile."""
    monkeypatch.setattr(change_log, "_CHANGES_PER_SEGMENT", 100)  # two ends at most: see `_counts`
    logs = [open_log(tmp_path) for _ in range(4)]
    threads = [threading.Thread(target=lambda log=log: [increase(log) for _ in range(40)]) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {count(log) for log in [*logs, open_log(tmp_path)]} == {160}
    segments = [name for name in tmp_path.iterdir() if name.name.startswith("log-")]
    assert len(segments) == 2


def test_one_that_was_stopped_for_long_reads_everything_again(tmp_path, monkeypatch):
    monkeypatch.setattr(change_log, "_CHANGES_PER_SEGMENT", 5)
    log, stopped = open_log(tmp_path), open_log(tmp_path)
    make(log, Create("/old", ""))
    stopped.catch_up()
    make(log, Delete("/old"))
    for _ in range(30):
        increase(log)
    assert stopped.try_append(Change([Create("/count", "7")])) is None  # its segment is gone
    assert stopped.catch_up() == {"/old": None, "/count": ("30", 29)}
    increase(stopped)
    assert count(log) == 31


def test_a_segment_that_comes_back_is_not_believed(tmp_path, monkeypatch):
    """One process was to begin it and was stopped before the rename, and another was stopped for as long."""
    monkeypatch.setattr(change_log, "_CHANGES_PER_SEGMENT", 5)
    late, log = open_log(tmp_path), open_log(tmp_path)
    for _ in range(30):
        increase(log)
    old = tmp_path / f"log-{0:020d}"
    assert not old.exists()
    (tmp_path / "new-late").mkdir()
    (tmp_path / "new-late" / "snapshot").write_bytes(TreeImage().encode())
    (tmp_path / "new-late").rename(old)
    with pytest.raises(change_log.RetriableError):
        late.try_append(Change([Create("/count", "7")]))
    assert count(late) == 30
    assert count(open_log(tmp_path)) == 30


def test_a_segment_that_was_sealed_by_one_that_died_is_followed_by_the_next(tmp_path):
    log = open_log(tmp_path)
    increase(log)
    log.try_append(Change(is_last=True))
    other = open_log(tmp_path)
    increase(other)
    increase(log)
    assert count(other) == 3


# Bad input


def test_only_the_owner_can_read_it(tmp_path, monkeypatch):
    """Credentials of users are in it."""
    monkeypatch.setattr(change_log, "_CHANGES_PER_SEGMENT", 2)
    log = open_log(tmp_path)
    for number in range(5):
        make(log, Create(f"/{number}", "secret"))
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len({each.parent for each in files}) > 1, "several segments"
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


def test_a_directory_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "meta.properties").write_text("")
    with pytest.raises(UsageError, match="is the directory of a store"):
        open_log(tmp_path)
    (tmp_path / "meta.properties").rename(tmp_path / "letter.txt")
    with pytest.raises(UsageError, match=r"other files in it, such as 'letter\.txt'"):
        open_log(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"00000000\n{}\n", b"\xff" * 30])
def test_damage_is_named(tmp_path, damage):
    log = open_log(tmp_path)
    increase(log)
    path = tmp_path / f"log-{0:020d}" / f"{1:020d}"
    path.write_bytes(damage)
    with pytest.raises(CorruptionError, match="is not a change") as caught:
        open_log(tmp_path).catch_up()
    assert caught.value.path == str(path)


def test_an_older_copy_that_takes_its_place_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(change_log, "_CHANGES_PER_SEGMENT", 5)
    log = open_log(tmp_path / "now")
    open_log(tmp_path / "then")
    for _ in range(20):
        increase(log)
    (tmp_path / "now").rename(tmp_path / "later")
    (tmp_path / "then").rename(tmp_path / "now")
    with pytest.raises(CorruptionError, match="was removed, or replaced by an older copy"):
        log.catch_up()


def test_another_log_that_takes_its_place_is_noticed(tmp_path):
    log = open_log(tmp_path / "now")
    increase(log)
    other = open_log(tmp_path / "other")
    for _ in range(3):
        increase(other)
    (tmp_path / "now").rename(tmp_path / "later")
    (tmp_path / "other").rename(tmp_path / "now")
    with pytest.raises(CorruptionError, match="was removed, or replaced by an older copy or another log"):
        log.catch_up()


# The disk


def test_a_full_disk_changes_nothing(tmp_path):
    files = FaultyFiles(OsFiles())
    log = open_log(tmp_path, files)
    increase(log)
    files.fail(FAULTS["short write"], path="/tmp-")
    with pytest.raises(DiskFullError) as raised:
        increase(log)
    assert raised.value.filename == log.segment  # each try says the same: it is told once
    assert count(open_log(tmp_path)) == 1
    increase(log)
    assert count(log) == 2


def test_a_change_that_fills_a_segment_is_made_whatever_becomes_of_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(change_log, "_CHANGES_PER_SEGMENT", 3)
    disk = FaultyFiles(OsFiles())
    log = open_log(tmp_path / "log", disk)
    increase(log)
    increase(log)
    disk.fail(FAULTS["ENOSPC"], kinds=["create"], at=2, times=None)
    increase(log)
    with pytest.raises(DiskFullError):
        increase(log)
    assert count(open_log(tmp_path / "log")) == 3
    disk.heal()
    increase(log)
    assert count(open_log(tmp_path / "log")) == 4


def test_after_a_failed_fsync_nothing_is_acknowledged_any_more(tmp_path):
    files = FaultyFiles(OsFiles())
    coordinator = FileCoordinator(tmp_path / "c", files=files)
    session = register(coordinator, 1)
    files.fail(FAULTS["EIO"], kinds={"flush directory"})
    with pytest.raises(ReopenRequiredError):
        session.try_to_control()
    assert session.is_lost
    with pytest.raises((ReopenRequiredError, FencedError, StorageError)):
        register(coordinator, 1, Disk())
    coordinator.close()
    with pytest.raises(ClosedError):
        coordinator.read_state(("t", 0))


class StoppedError(Exception):
    """A process does not go on here."""


class StoppingFiles:
    """Of a process that is stopped now and then, between what it does and the flush that makes it durable."""

    def __init__(self, files, rng):
        self._files = files
        self._rng = rng

    def __getattr__(self, name):
        return getattr(self._files, name)

    def flush_directory(self, path):
        if self._rng.random() < 0.15:
            raise StoppedError
        self._files.flush_directory(path)


class Counting:
    """Processes raise a count in turn, and are stopped; what the others have seen of it is noted."""

    def session(self, files, said, rng):
        for _ in range(6):
            with contextlib.suppress(StoppedError):
                increase(open_log("/c", StoppingFiles(files, rng)))
            log = open_log("/c", files)
            files.note(count(log))
            increase(log)
            files.note(count(log))

    def check(self, files, said):
        if not said and not files.is_directory("/c"):
            return
        log = open_log("/c", files)
        found = count(log)
        assert found >= max(said, default=0), f"{found} of {said}"
        assert found <= max(said, default=0) + 6  # two for each cut
        increase(log)
        assert count(open_log("/c", files)) == found + 1


def test_no_power_cut_undoes_what_anybody_has_seen(monkeypatch):
    """Cut at every operation, up to three times in a row; with segments that end meanwhile."""
    monkeypatch.setattr(change_log, "_CHANGES_PER_SEGMENT", 3)
    explored = Explored()
    for seed in range(10):
        explored.add(explore(Counting(), seed=seed, max_states=250, depth=3, chained_share=0.1))
    assert explored.state_count > 600
    assert explored.deepest == 3


def test_the_log_works_in_memory():
    files = MemoryFiles()
    log = open_log("/c", files)
    increase(log)
    assert count(open_log("/c", files)) == 1
