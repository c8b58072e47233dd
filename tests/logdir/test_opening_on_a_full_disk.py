"""A log that a killed process has left is opened when there is room for what has to be stored of it."""

import pytest

import logstore
from logstore.errors import DiskFullError, StorageError
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.logdir.full_disk import PATH, values

VALUES = [[b"0"] * 3]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def files(clock):
    files = FaultyFiles(MemoryFiles())
    store = logstore.open(PATH, files=files, clock=clock)
    store.create_topic("t")[0].extend(VALUES[0], flush=True)
    store._directory.abandon()
    return files


def test_it_is_used_as_soon_as_there_is_room(files, clock):
    """It had to be reopened by name, and who served the store had to know."""
    files.fail(FAULTS["ENOSPC"], kinds=["write"], times=None)
    store = logstore.open(PATH, files=files, clock=clock)
    assert list(store.damaged) == [("t", 0)]
    for _ in range(3):
        with pytest.raises(DiskFullError, match="make room"):
            values(store["t"])
    files.heal()
    with pytest.raises(DiskFullError):
        values(store["t"])  # all the time would be spent on trying
    clock.advance(1_000)
    assert values(store["t"]) == VALUES
    assert not store.damaged
    assert store["t"].append(b"more", flush=True) == (0, 3)
    store.close()


def test_nothing_else_is_tried_again(files, clock):
    """A disk that fails would be asked again and again, while others wait."""
    files.fail(FAULTS["EIO"], kinds=["write"], times=1)
    store = logstore.open(PATH, files=files, clock=clock)
    clock.advance(10_000)
    with pytest.raises(StorageError):
        values(store["t"])
    store["t"].reopen(0)
    assert values(store["t"]) == VALUES
