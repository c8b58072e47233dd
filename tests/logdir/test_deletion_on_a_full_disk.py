"""A topic that goes makes the room for storing that it goes, whether or not there was any; also without that
it is gone."""

import pytest

import logstore
from logstore.errors import CorruptionError, DiskFullError
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.logdir.full_disk import PATH, fill, opened, values


@pytest.fixture
def files():
    return FaultyFiles(MemoryFiles())


def filled(files):
    store = opened(files)
    for name in ("old", "other"):
        for number, log in enumerate(store.create_topic(name, partitions=2)):
            log.extend([b"%d" % number] * 3, flush=True)
    return store


def names(files):
    return {entry.name for entry in files.list_directory(PATH) if entry.is_directory}


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


def test_without_room_even_then_it_is_gone_and_stays_so(files):
    store = filled(files)
    fill(files, writes=None)
    store.delete_topic("old")
    assert list(store) == ["other"]
    left = [name for name in names(files) if name.startswith("old")]
    assert len(left) == 1
    assert [entry.name for entry in files.list_directory(f"{PATH}/{left[0]}")] == ["partition.metadata"]
    with pytest.raises(DiskFullError):
        store.create_topic("old")
    with logstore.open(PATH, files=files, read_only=True, clock=ManualClock()) as reader:
        assert list(reader) == ["other"]
    store.close()
    store = opened(files)
    assert (list(store), values(store["other"]), store.damaged) == (["other"], OTHERS, {})
    files.heal()
    store.close()
    assert names(files) == {"other-0", "other-1"}
    assert list(opened(files)) == ["other"]


def test_a_writer_that_dies_before_it_is_stored_has_deleted_it(files):
    store = filled(files)
    fill(files, writes=None)
    store.delete_topic("old")
    store._directory.abandon()
    files.heal()
    store = opened(files)
    assert (list(store), store.damaged) == (["other"], {})
    assert values(store["other"]) == OTHERS
    assert values(store.create_topic("old", partitions=2)) == [[], []]
    assert names(files) == {"old-0", "old-1", "other-0", "other-1"}


def test_without_room_for_the_names_it_is_refused_and_all_is_there(files):
    store = filled(files)
    fill(files, writes=None)
    files.fail(FAULTS["ENOSPC"], kinds=["rename"], path="old-1")
    with pytest.raises(DiskFullError):
        store.delete_topic("old")
    assert sorted(store) == ["old", "other"]
    assert values(store["old"]) == [[b"0"] * 3, [b"1"] * 3]
    store["old"][1].append(b"more")
    store.close()
    store = opened(files)
    assert values(store["old"]) == [[b"0"] * 3, [b"1"] * 3 + [b"more"]]


def test_a_hidden_topic_goes_without_room_for_anything_else(files):
    """There was room to store that it goes, and none for the rest."""
    store = filled(files)
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="checkpoint", times=None)
    store.delete_topic("old")
    assert list(store) == ["other"]
    with pytest.raises(DiskFullError):
        store.create_topic("old", partitions=2)
    files.heal()
    assert values(store.create_topic("old", partitions=2)) == [[], []]


def test_nothing_of_a_deleted_topic_is_inherited_by_one_that_comes_after_it(files):
    """What could not be forgotten when there was no room, is before there are new partitions of that name."""
    store = filled(files)
    store["old"][0].delete_before(2)
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="checkpoint", times=None)
    store.delete_topic("old")
    files.heal()
    store.create_topic("old")[0].extend([b"a", b"b", b"c"], flush=True)
    store._directory.abandon()
    assert values(opened(files)["old"]) == [[b"a", b"b", b"c"]]


def test_a_partition_that_is_missing_beside_one_let_go_is_no_deleted_topic(files):
    store = filled(files)
    store["old"].let_go(1)
    store._directory.abandon()
    files.rename(f"{PATH}/old-0", f"{PATH}/elsewhere")
    store = opened(files)
    assert sorted(store) == ["old", "other"]
    with pytest.raises(CorruptionError, match="directory is missing"):
        store["old"][0].read()
