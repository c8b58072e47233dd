"""Topics that a full disk refuses are not there later, and keep no other from being opened."""

import contextlib

import pytest

from logstore.errors import DiskFullError
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from tests.logdir.full_disk import PATH, fill, opened, values
from tests.logdir.test_topics_together import new


@pytest.fixture
def files():
    return FaultyFiles(MemoryFiles())


def filled(files):
    store = opened(files)
    store.create_topic("whole")[0].extend([b"v"] * 3, flush=True)
    return store


def half_made(files, name):
    """A topic of two partitions whose maker died before it was stored that it is there. The store is closed,
    and the list of topics cannot be written from now on."""
    store = filled(files)
    topics = store._directory._topics
    topics.begin([topics.new_entry(new(name, 2))])
    store._directory.abandon()
    fill(files)


def directories(files):
    """Of partitions that are not deleted."""
    found = [entry.name for entry in files.list_directory(PATH) if entry.is_directory]
    return sorted(name for name in found if not name.endswith("-delete"))


@pytest.mark.parametrize("path", ["topics.json", "t3-1/partition.metadata", "recovery-point"])
@pytest.mark.parametrize("ending", ["close", "death"])
def test_the_refused_are_not_there_later(files, path, ending):
    """The disk is full from some step on: from storing that they come, from a directory, from the end."""
    store = filled(files)
    names = [f"t{number}" for number in range(8)]

    def fill_up(*_):
        files.fail(FAULTS["ENOSPC"], kinds=["write"], times=None)

    files.fail(FAULTS["ENOSPC"], kinds=["write"], path=path, times=None)
    begin = store._directory._topics.begin

    def begin_and_fill(*arguments):
        try:
            begin(*arguments)
        finally:
            fill_up()

    store._directory._topics.begin = begin_and_fill
    made = store._directory.create_topics([new(name, 2) for name in names])
    assert {type(each) for each in made.values()} == {DiskFullError}
    assert list(store) == ["whole"]
    assert directories(files) == ["whole-0"]
    if ending == "close":
        with contextlib.suppress(DiskFullError):
            store.close()
    else:
        store._directory.abandon()
    files.heal()
    fill(files)
    store = opened(files)
    assert (list(store), values(store["whole"]), store.damaged) == (["whole"], [[b"v"] * 3], {})
    store.close()
    files.heal()
    with opened(files) as store:
        assert list(store) == ["whole"]
        assert values(store.create_topic("t3", partitions=2)) == [[], []]


def test_what_a_death_broke_off_is_undone_without_room(files):
    half_made(files, "half")
    files.remove(f"{PATH}/half-1/partition.metadata")
    store = opened(files)
    assert (list(store), directories(files)) == (["whole"], ["whole-0"])


def test_what_a_death_broke_off_at_the_end_is_finished_without_room(files):
    half_made(files, "done")
    store = opened(files)
    assert store["done"][1].append(b"v", flush=True) == 0
    store._directory.abandon()
    files.heal()
    assert values(opened(files)["done"]) == [[], [b"v"]]


def test_no_record_goes_with_a_directory_that_is_missing(files):
    half_made(files, "done")
    store = opened(files)
    store["done"][1].append(b"v", flush=True)
    store._directory.abandon()
    files.heal()
    for entry in files.list_directory(f"{PATH}/done-0"):
        files.remove(f"{PATH}/done-0/{entry.name}")
    files.remove_directory(f"{PATH}/done-0")
    assert values(opened(files)["done"]) == [[], [b"v"]]


def test_a_store_whose_writer_died_opens_without_room(files):
    store = filled(files)
    store._directory.abandon()
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="-offset-checkpoint", times=None)
    store = opened(files)
    assert (values(store["whole"]), store.damaged) == ([[b"v"] * 3], {})
    store.delete_topic("whole")
    store._directory.abandon()
    assert not list(opened(files))


def test_a_partition_from_elsewhere_needs_room(files):
    store = filled(files)
    store.close()
    files.remove(f"{PATH}/recovery-point-offset-checkpoint")
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="-offset-checkpoint", times=None)
    with pytest.raises(DiskFullError):
        opened(files)
    files.heal()
    assert values(opened(files)["whole"]) == [[b"v"] * 3]
