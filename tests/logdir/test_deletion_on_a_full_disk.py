"""A topic that goes makes the room for storing that it goes, whether or not there was any."""

import pytest

import logstore
from logstore.errors import CorruptionError, DiskFullError
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

PATH = "/data"


@pytest.fixture
def files():
    return FaultyFiles(MemoryFiles())


def opened(files):
    return logstore.open(PATH, files=files, clock=ManualClock())


def filled(files):
    store = opened(files)
    for name in ("old", "other"):
        for number, log in enumerate(store.create_topic(name, partitions=2)):
            log.extend([b"%d" % number] * 3, flush=True)
    return store


def values(topic):
    return [[record.value for record in log.read()] for log in topic]


def names(files):
    return {entry.name for entry in files.list_directory(PATH) if entry.is_directory}


def fill(files, *, writes):
    """From now on so many writes of the list of topics fail; None: all."""
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="topics.json", times=writes)


OTHERS = [[b"0"] * 3, [b"1"] * 3]


def test_files_go_first_and_at_once_until_there_is_room(files):
    store = filled(files)
    fill(files, writes=1)
    store.delete_topic("old")
    assert list(store) == ["other"]
    assert not [name for name in names(files) if name.startswith("old-0")]
    assert names(files) >= {"other-0", "other-1"}
    assert values(store["other"]) == OTHERS
    assert store.create_topic("old")[0].append(b"new") == 0
    store.close()
    assert sorted(opened(files)) == ["old", "other"]


def test_a_partition_that_is_let_go_does_so_too(files):
    store = filled(files)
    fill(files, writes=1)
    store["old"].let_go(1)
    assert store["old"].held_partitions == (0,)
    assert names(files) == {"old-0", "other-0", "other-1"}
    store["old"].hold([1])
    assert values(store["old"]) == [[b"0"] * 3, []]


def test_without_room_even_then_it_is_missing_and_can_be_deleted_again(files):
    store = filled(files)
    fill(files, writes=None)
    with pytest.raises(DiskFullError):
        store.delete_topic("old")
    assert sorted(store) == ["old", "other"]
    with pytest.raises(CorruptionError, match="directory is missing"):
        store["old"][0].read()
    assert values(store["other"]) == OTHERS
    files.heal()
    store.delete_topic("old")
    assert store.create_topic("old")[0].append(b"new") == 0


def test_a_writer_that_dies_before_it_is_stored_leaves_a_topic_that_can_be_deleted(files):
    store = filled(files)
    fill(files, writes=None)
    with pytest.raises(DiskFullError):
        store.delete_topic("old")
    store._directory.abandon()
    files.heal()
    store = opened(files)
    assert {partition.topic for partition in store.damaged} == {"old"}
    assert values(store["other"]) == OTHERS
    store.delete_topic("old")
    assert values(store.create_topic("old", partitions=2)) == [[], []]
    assert not store.damaged
