"""A log was cut while groups and queues could not go back to its end, grew, and the process was killed: what
came in the place of jobs that were done was never given, and groups went on behind it. So it was too where a
log had no room to be opened, and was opened later.
"""

from __future__ import annotations

import pytest

import logstore
from logstore import StorageError, TopicPartition
from logstore.partition.state.home import LOST_ENDS_NAMES
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

PARTITION = TopicPartition("t", 0)
STATES = ("__share_group_state", "__consumer_offsets")


def opened(files):
    return logstore.open("/store", files=files, clock=ManualClock())


def killed(store, disk):
    """What is on the disk afterwards, opened again."""
    store.directory.abandon()
    return opened(disk)


def do_all(store):
    """What a queue and a group have left."""
    with store.queue("t", group="jobs") as queue:
        jobs = [job.value for job in queue.drain() if job.accept() is None]
    with store.consumer("t", group="readers", auto_offset_reset="earliest") as consumer:
        records = [record.value for record in consumer.drain()]
        consumer.commit()
    return jobs, records


@pytest.fixture
def disk():
    return MemoryFiles()


@pytest.fixture
def files(disk):
    return FaultyFiles(disk)


@pytest.fixture
def store(files):
    """With nine records, which a queue and a group have behind them."""
    store = opened(files)
    store.create_topic("t").extend([b"old"] * 9)
    assert do_all(store) == ([b"old"] * 9, [b"old"] * 9)
    return store


def refuse(files, *paths):
    for path in paths:
        files.fail(FAULTS["ENOSPC"], kinds=["write", "create"], path=path, times=None)


def test_the_next_open_sends_them_back(store, files, disk):
    """0.1 s."""
    refuse(files, *STATES)
    store["t"][0].truncate_to(4)
    store["t"].extend([b"new"] * 9, flush=True)
    with killed(store, disk) as store:
        assert do_all(store) == ([b"new"] * 9, [b"new"] * 9)


def test_once_only(store, files, disk):
    """What they say after they have gone back is not taken back by a later kill. 0.1 s."""
    refuse(files, *STATES)
    store["t"][0].truncate_to(4)
    store["t"].extend([b"new"] * 9, flush=True)
    files.heal()
    assert do_all(store) == ([b"new"] * 9, [b"new"] * 9)
    store.directory.context.clock.advance(1_000)
    store.run_background()
    with killed(store, disk) as store:
        assert do_all(store) == ([], [])


def test_nor_by_the_open_behind_a_clean_stop(store, files, disk):
    """0.1 s."""
    refuse(files, *STATES)
    store["t"][0].truncate_to(4)
    store["t"].extend([b"new"] * 9)
    files.heal()
    assert do_all(store) == ([b"new"] * 9, [b"new"] * 9)
    store.close()
    with opened(disk) as store:
        assert do_all(store) == ([], [])


def test_only_those_who_have_not_gone_back(store, files, disk):
    """Queues cannot, for days; groups have, and have read on. 0.1 s."""
    refuse(files, "__share_group_state")
    store["t"][0].truncate_to(4)
    store["t"].extend([b"new"] * 9, flush=True)
    with store.consumer("t", group="readers") as consumer:
        assert len([*consumer.drain()]) == 9
        consumer.commit()
    with killed(store, disk) as store:
        assert do_all(store) == ([b"new"] * 9, [])


def test_a_log_does_not_grow_if_that_cannot_be_noted(store, files, disk):
    """0.1 s."""
    refuse(files, *STATES, *LOST_ENDS_NAMES)
    store["t"][0].truncate_to(4)
    with pytest.raises(
        StorageError, match="t-0 was cut, and takes no records before groups and queues have gone"
    ):
        store["t"].extend([b"new"])
    store.create_topic("other").extend([b"another log"])
    files.heal()
    store.directory.context.clock.advance(1_000)
    store.run_background()
    store["t"].extend([b"new"] * 9)
    with killed(store, disk) as store:
        assert do_all(store) == ([b"new"] * 9, [b"new"] * 9)


def test_a_topic_made_again_begins_anew(store, files, disk):
    """0.1 s."""
    refuse(files, *STATES)
    store["t"][0].truncate_to(4)
    files.heal()
    store.delete_topic("t")
    store.create_topic("t").extend([b"other"] * 9)
    assert do_all(store) == ([b"other"] * 9, [b"other"] * 9)
    with killed(store, disk) as store:
        assert do_all(store) == ([], [])


@pytest.mark.parametrize("is_during", [False, True])
def test_a_backup_sends_them_back_too(store, files, disk, is_during):
    """Also where the log is cut behind the copy of what they say. 0.1 s."""

    def cut():
        refuse(files, *STATES)
        store["t"][0].truncate_to(4)
        files.heal()
        store["t"].extend([b"new"] * 9)

    if is_during:
        done = []

        def on_progress(progress):
            if not done and progress.partition == PARTITION:
                done.append(cut())

        store.backup("/backup", on_progress=on_progress)
        assert done
    else:
        cut()
        store.backup("/backup")
    with logstore.open("/backup", files=disk, clock=ManualClock()) as copy:
        end = copy["t"][0].log_end_offset
        assert [*map(len, do_all(copy))] == [end - 4] * 2


def test_a_log_that_was_opened_when_there_was_room(store, files, disk):
    """Its end was lost while it was not open. 0.1 s."""
    store["t"].extend([b"lost"], flush=False)
    log = store["t"][0]
    assert do_all(store) == ([b"lost"], [b"lost"])
    store.directory.abandon()
    path = f"/store/t-0/{0:020}.log"
    file = disk.open(path, write=True)
    file.truncate(file.size_bytes() - 5)
    file.close()
    files.fail(FAULTS["ENOSPC"], kinds=["write", "create", "truncate"], path="t-0", times=None)
    store = opened(files)
    assert PARTITION in store.damaged
    files.heal()
    store.directory.context.clock.advance(60_000)
    store["t"].extend([b"new"] * 2)
    assert log is not store["t"][0]
    assert do_all(store) == ([b"new"] * 2, [b"new"] * 2)
