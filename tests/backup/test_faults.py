"""Each operation of a backup fails once: there is an error, the backup is the earlier or the new one, and the
next call succeeds."""

from __future__ import annotations

import itertools

import pytest

from logstore.errors import LogstoreError
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from tests.backup.helpers import contents, fill, open_store, read_all
from tests.rotation import rotating, seed_of_turn


def prepared():
    """A store with an earlier backup, and changes since."""
    files = MemoryFiles()
    with open_store("/data", files) as store:
        topic = store.create_topic("orders", partitions=2)
        fill(topic[0], 12)
        fill(topic[1], 3)
        store.backup("/backup")
        fill(topic[0], 6)
        topic[0].delete_before(6)
        topic[1].truncate_to(2)
    return files.now()


def failures_of(fault, image, earlier, *, every=1, first=1):
    for count in itertools.count():
        at = first + count * every
        files = FaultyFiles(MemoryFiles(image))
        with open_store("/data", files) as store:
            wanted = contents(store)
            files.fail(FAULTS[fault], at=at)
            failed = False
            try:
                store.backup("/backup")
            except LogstoreError:
                failed = True
            has_struck, files.failures = bool(files.failures), []
            files.heal()
            check(files, store, wanted, earlier, failed=failed)
        if not has_struck:
            return count
    return 0


def check(files, store, wanted, earlier, *, failed):
    found = read_all("/backup", files)
    assert found in ([wanted, earlier] if failed else [wanted])
    assert contents(store) == wanted
    for partition in [log.partition for log in store["orders"] if log.needs_reopen]:
        store["orders"].reopen(partition.partition)
    store.backup("/backup")
    assert read_all("/backup", files) == wanted
    assert {entry.name for entry in files.list_directory("/")} == {"data", "backup"}


@pytest.fixture(scope="module")
def image():
    return prepared()


@pytest.fixture(scope="module")
def earlier(image):
    return read_all("/backup", MemoryFiles(image))


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC", "late EIO"])
def test_some_operations_fail(fault, image, earlier):
    assert failures_of(fault, image, earlier, every=7, first=1 + seed_of_turn() % 7) > 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", rotating(sorted(FAULTS), 8))
def test_every_operation_fails(fault, image, earlier):
    assert failures_of(fault, image, earlier) > 1
