"""A backup takes each partition at its own time. What a group had read, and a queue had done, could
be of a later time than the records: in the restored store other records took those offsets, and
were never read or given. And failed jobs were passed over that the backup's dead-letter topic
did not have.

Since then a backup takes first what groups and queues say. Where it is ahead all the same, as
beside a partition that could not be read any more, the open for writing sets it back, as after a
crash.
"""

from __future__ import annotations

import pytest

import logstore
from logstore.logdir.directory import LogDirectory
from logstore.testing import ManualClock, MemoryFiles

JOBS = "Jobs", 0  # its directory comes before those of internal topics


def open_store(files, path="/store"):
    return logstore.open(path, files=files, clock=ManualClock())


def work(store, value):
    """Append five records, of which all are done."""
    store["Jobs"].extend([value] * 5)
    with store.queue("Jobs", group="g", dead_letter_topic="Dead") as queue:
        for job in queue.drain():
            if job.value == b"bad":
                job.reject()
            else:
                job.accept()
    store.offsets("g").commit({JOBS: store["Jobs"][0].log_end_offset})


@pytest.fixture
def files():
    files = MemoryFiles()
    with open_store(files) as store:
        store.create_topic("Jobs")
        store.create_topic("Dead")
        work(store, b"old")
    return files


def check(store, *, read, given):
    """What is appended next is read and given."""
    assert store.offsets("g")[JOBS].offset <= store["Jobs"][0].log_end_offset
    store["Jobs"].extend([b"new"] * 9)
    with store.queue("Jobs", group="g") as queue:
        assert [job.value for job in queue.drain()] == given + [b"new"] * 9
    with store.consumer("Jobs", group="g") as consumer:
        assert [record.value for record in consumer.drain()] == read + [b"new"] * 9


def test_what_is_done_while_a_backup_is_made_is_not_ahead_of_it(files):
    """0.05 s."""
    with open_store(files) as store:
        store["Jobs"].append(b"bad")

        def go_on(progress):
            if progress.partition == JOBS and store["Jobs"][0].log_end_offset == 6:
                work(store, b"meanwhile")

        store.backup("/backup", on_progress=go_on)
        assert [record.value for record in store["Dead"].read()] == [b"bad"]
    with open_store(files, "/backup") as store:
        left = [record.value for record in store["Jobs"].read()][5:]
        with store.queue("Jobs", group="g", dead_letter_topic="Dead") as queue:
            assert [job.value for job in queue.drain()] == left
            assert left[0] == b"bad"  # it is not in the dead-letter topic
        check(store, read=left, given=left)


def keep_an_older_log(files):
    """A backup whose log is older than what groups say of it."""
    with open_store(files) as store:
        store.backup("/backup")
        work(store, b"damaged")
    files.open("/store/Jobs-0/00000000000000000000.log", write=True).truncate(100)
    with open_store(files) as store:
        assert store.damaged
        store.backup("/backup", accept_damage=True)


@pytest.mark.parametrize("opened_before", [False, True])
def test_beside_an_older_log_groups_and_queues_go_back(files, opened_before):
    """Also when something that knows of no groups opens it first. 0.05 s."""
    keep_an_older_log(files)
    if opened_before:
        LogDirectory("/backup", files=files, clock=ManualClock()).close()
    with open_store(files, "/backup") as store:
        assert not store.damaged
        check(store, read=[], given=[])
    with open_store(files, "/backup") as store:
        assert store.was_clean
