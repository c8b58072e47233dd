"""A checkpoint file is written when it would change, and when nobody knows that it is durable."""

from errno import EIO

import pytest

from logstore.errors import StorageError
from logstore.model import TopicPartition
from logstore.partition.state.home import (
    CLEANER_OFFSETS_NAME,
    HIGH_WATERMARKS_NAME,
    LEADER_EPOCH_NAME,
    LOG_STARTS_NAME,
    RECOVERY_POINTS_NAME,
    LogHome,
)
from tests.partition.helpers import WatchedFiles, failing

PARTITION = TopicPartition("t", 0)
NAMES = {RECOVERY_POINTS_NAME, LOG_STARTS_NAME, HIGH_WATERMARKS_NAME}


@pytest.fixture
def files():
    return WatchedFiles()


@pytest.fixture
def home(files, tmp_path):
    made = LogHome(files, str(tmp_path))
    made.load()
    made.set_recovery_point(PARTITION, 5)
    made.store_checkpoints()
    files.trace.clear()
    return made


def opened(files, path):
    """The home of the next process that opens the directory."""
    home = LogHome(files, str(path))
    home.load()
    home.take_clean_marker()
    files.trace.clear()
    return home


def written(files):
    names = {name.removesuffix(".tmp") for action, name in files.trace if action == "write"}
    files.trace.clear()
    return names


def test_the_first_checkpoints_are_written_even_if_they_are_empty(files, tmp_path):
    home = LogHome(files, str(tmp_path))
    home.load()
    home.store_checkpoints()
    assert written(files) == NAMES


def test_what_did_not_change_is_not_written_again(files, home):
    home.store_checkpoints()
    assert files.trace == []


def test_only_the_file_that_changed_is_written(files, home):
    home.set_recovery_point(PARTITION, 6)
    home.store_checkpoints()
    assert written(files) == {RECOVERY_POINTS_NAME}


def test_a_value_that_comes_back_is_written(files, home):
    for offset in (6, 5):
        home.set_recovery_point(PARTITION, offset)
        home.store_checkpoints()
        assert written(files) == {RECOVERY_POINTS_NAME}


def test_after_a_clean_stop_nothing_is_written_again(files, home, tmp_path):
    home.put_clean_marker()
    opened(files, tmp_path).store_checkpoints()
    assert files.trace == []


def test_after_a_crash_all_is_written_again(files, home, tmp_path):
    """The last process may have died between renaming a file and flushing the directory."""
    opened(files, tmp_path).store_checkpoints()
    assert written(files) == NAMES | {LEADER_EPOCH_NAME}


def test_what_nobody_here_wrote_like_this_is_written_again(files, home, tmp_path):
    home.put_clean_marker()
    with open(tmp_path / LOG_STARTS_NAME, "ab") as file:
        file.write(b"\n")
    opened(files, tmp_path).store_checkpoints()
    assert written(files) == {LOG_STARTS_NAME}


@pytest.mark.parametrize("action", ["create", "write", "flush", "rename", "flush directory"])
def test_what_failed_to_be_written_is_written_again(files, home, action):
    home.set_recovery_point(PARTITION, 6)
    where = "" if action == "flush directory" else RECOVERY_POINTS_NAME
    with failing(files, action, where, EIO), pytest.raises(StorageError):
        home.store_checkpoints()
    files.trace.clear()
    home.store_checkpoints()
    assert written(files) == {RECOVERY_POINTS_NAME}
    home.set_recovery_point(PARTITION, 5)
    with failing(files, action, where, EIO), pytest.raises(StorageError):
        home.store_checkpoints()
    home.set_recovery_point(PARTITION, 6)  # what was durable before the failure
    files.trace.clear()
    home.store_checkpoints()
    assert written(files) == {RECOVERY_POINTS_NAME}


# The cleaner's offsets -------------------------------------------------------------------------------------


def test_a_cleaner_offset_is_durable_at_once(files, home, tmp_path):
    home.store_cleaner_offset(PARTITION, 7)
    assert opened(files, tmp_path).cleaner_offset(PARTITION) == 7


def test_a_log_that_was_never_compacted_has_no_cleaner_offset_and_the_directory_no_file(home, tmp_path):
    home.store_checkpoints()
    assert home.cleaner_offset(PARTITION) is None
    assert not (tmp_path / CLEANER_OFFSETS_NAME).exists()


def test_a_truncation_lowers_a_cleaner_offset_and_never_sets_one(files, home, tmp_path):
    other = TopicPartition("t", 1)
    home.store_cleaner_offset(PARTITION, 7)
    for offset in (9, 4, 5):
        home.lower_cleaner_offset(PARTITION, offset)
        home.lower_cleaner_offset(other, offset)
    found = opened(files, tmp_path)
    assert (found.cleaner_offset(PARTITION), found.cleaner_offset(other)) == (4, None)


def test_a_deleted_partition_leaves_no_cleaner_offset(files, home, tmp_path):
    home.store_cleaner_offset(PARTITION, 7)
    home.forget([PARTITION])
    assert opened(files, tmp_path).cleaner_offset(PARTITION) is None


def test_a_cleaner_offset_that_cannot_be_stored_is_not_taken_for_stored(files, home):
    home.store_cleaner_offset(PARTITION, 7)
    with failing(files, "write", CLEANER_OFFSETS_NAME, EIO), pytest.raises(StorageError):
        home.store_cleaner_offset(PARTITION, 9)
    assert home.cleaner_offset(PARTITION) == 7


def test_log_starts_of_several_threads_are_stored_together(files, home, monkeypatch):
    from threading import Event, Thread

    others = [TopicPartition("t", number) for number in range(1, 6)]
    whole, is_writing, may_go = home._store_locked, Event(), Event()

    def wait_once(tables):
        if not is_writing.is_set():
            is_writing.set()
            assert may_go.wait(10)
        whole(tables)

    monkeypatch.setattr(home, "_store_locked", wait_once)
    first = Thread(target=home.store_log_start, args=(PARTITION, 3))
    first.start()
    assert is_writing.wait(10)
    threads = [Thread(target=home.store_log_start, args=(each, 7)) for each in others]
    for thread in threads:
        thread.start()
    while not home._coming_starts.keys() >= set(others):
        pass
    may_go.set()
    for thread in [first, *threads]:
        thread.join()
    assert [action for action, name in files.trace if action == "write"] == ["write"] * 2
    assert {home.log_start(each) for each in others} == {7}
    assert home.log_start(PARTITION) == 3
    assert not home._coming_starts


def test_a_log_start_that_could_not_be_stored_is_not_stored_with_others(files, home, monkeypatch):
    def fail(tables):
        raise StorageError(28, "full", "x")

    with monkeypatch.context() as patched:
        patched.setattr(home, "_store_locked", fail)
        with pytest.raises(StorageError):
            home.store_log_start(PARTITION, 3)
    other = TopicPartition("t", 9)
    home.store_log_start(other, 4)
    assert (home.log_start(PARTITION), home.log_start(other)) == (None, 4)
