"""Queues whose topic, or the topic of their states, cannot be opened."""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import CorruptionError, StorageError
from logstore.model import TopicPartition
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

STATE = "__share_group_state"


def opened(files):
    return logstore.open("/store", files=files, clock=ManualClock())


@pytest.fixture
def files():
    files = FaultyFiles(MemoryFiles())
    with opened(files) as store:
        store.create_topic("jobs", partitions=2)
        for log in store["jobs"]:
            log.extend([b"0", b"1"])
        with store.queue("jobs", group="g") as queue:
            for job in queue.poll(0):
                if job.offset == 0:
                    job.accept()
    return files


def test_states_that_cannot_be_read_are_not_none(files):
    """What cannot be read is said, and where; and it is there again when the cause is gone."""
    files.fail(FAULTS["EACCES"], kinds=["open"], path=STATE, times=None)
    store = opened(files)
    calls = [
        lambda: store.queue("jobs", group="g"),
        store.queues,
        lambda: store.delete_queue("g"),
        lambda: store.delete_queue("other"),
    ]
    for call in calls:
        with pytest.raises(StorageError, match=STATE) as caught:
            call()
        assert "None" not in str(caught.value)
    files.heal()
    store.close()
    with opened(files) as store:
        assert store.queues()[0].waiting_count == 2


def test_a_queue_that_could_not_be_deleted_is_there(files):
    with opened(files) as store:
        store.queues()
        files.fail(FAULTS["ENOSPC"], path=STATE, times=None)
        with pytest.raises(StorageError, match="queue 'g' is kept"):
            store.delete_queue("g")
        files.heal()
        assert [each.group for each in store.queues()] == ["g"]


@pytest.mark.parametrize("group", ["g", "fresh"])
def test_a_damaged_partition_stops_no_other(files, group):
    """Neither a group that had taken jobs of it before, nor one that is new."""
    path = "/store/jobs-0/00000000000000000000.log"
    file = files.open(path, write=True)
    file.write_at(70, [bytes([file.read_at(70, 1)[0] ^ 1])])
    file.close()
    with opened(files) as store, store.queue("jobs", group=group) as queue:
        assert {job.partition for job in queue.poll(0)} == {TopicPartition("jobs", 1)}
        with pytest.raises(CorruptionError, match="jobs-0"):
            queue.poll(0)
        assert {status.group for status in store.queues()} == {"g", group}
