"""A file that takes room, for when there is none. Full disks are in ``tests/kernel/test_full_disk.py``."""

from __future__ import annotations

import pytest

import logstore
from logstore.config import StoreConfig
from logstore.errors import InvalidConfigError
from logstore.files import VolumeSpace
from logstore.logdir.reserve import RESERVE_NAME
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

SIZE = 100_000
PATH = f"/store/{RESERVE_NAME}"


class Disk(FaultyFiles):
    """One of which a test says how much room it has."""

    usable_bytes = 10 * SIZE

    def space(self, path):
        return VolumeSpace(100 * SIZE, self.usable_bytes)


@pytest.fixture
def files():
    return Disk(MemoryFiles())


def opened(files, size_bytes=SIZE, **options):
    return logstore.open("/store", files=files, config=StoreConfig(disk_reserve_bytes=size_bytes), **options)


def size_of(files):
    return files.stamp(PATH).size_bytes if files.is_file(PATH) else None


def test_a_store_has_what_was_asked_for(files):
    opened(files, 0).close()
    assert size_of(files) is None
    opened(files).close()
    assert size_of(files) == SIZE
    opened(files, 3 * SIZE).close()
    assert size_of(files) == 3 * SIZE
    opened(files, SIZE).close()
    assert size_of(files) == 3 * SIZE, "what is there is enough"
    opened(files, 0).close()
    assert size_of(files) is None
    with pytest.raises(InvalidConfigError, match="disk_reserve_bytes"):
        opened(files, -1)


def test_a_reader_leaves_it(files):
    opened(files).close()
    with logstore.open("/store", files=files, read_only=True):
        pass
    assert size_of(files) == SIZE


def test_a_backup_has_none(files):
    with opened(files) as store:
        store.create_topic("t")
        store.backup("/backup")
    assert not files.is_file(f"/backup/{RESERVE_NAME}")


def test_what_a_full_disk_took_is_there_again_when_it_has_room(files):
    clock = ManualClock()
    opened(files).close()
    files.usable_bytes = SIZE - 1
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path=RESERVE_NAME, times=None)
    store = opened(files, clock=clock)
    assert not size_of(files), "it was given up, and has no room now"
    files.heal()
    files.usable_bytes = 10 * SIZE
    clock.advance(60_000)
    store.run_background()
    assert size_of(files) == SIZE
    store.close()


def test_a_deletion_that_has_no_room_takes_it(files):
    with opened(files) as store:
        log = store.create_topic("t")[0]
        log.extend([b"1", b"2"], flush=True)
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="log-start-offset-checkpoint", times=1)
        log.delete_before(1)
        assert size_of(files) is None
        assert log.log_start_offset == 1
    assert size_of(files) == SIZE


def test_a_disk_that_fails_with_it_stops_nothing(files):
    with opened(files) as store:
        store.create_topic("t")[0].extend([b"1"], flush=True)
        files.fail(FAULTS["EIO"], path=RESERVE_NAME, times=None)
    with opened(files) as store:
        assert [record.value for record in store["t"].read()] == [b"1"]
