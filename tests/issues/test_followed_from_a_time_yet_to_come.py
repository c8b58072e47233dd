"""``follow`` from a time began at the log end if no record was as new as that, and then returned whatever
came, older or not. ``read`` from a time leaves out the older ones.
"""

import threading
from datetime import UTC, datetime, timedelta

import pytest

import logstore

NOW = datetime.now(UTC)
BEGIN = NOW + timedelta(minutes=30)
OLD, NEW = (None, b"old", NOW), (None, b"new", NOW + timedelta(minutes=40))
ROUNDS = [[OLD], [NEW, OLD], [OLD, NEW, OLD], [OLD] * 3]
WAYS = {
    "log": lambda topic, timeout: topic[0].follow(BEGIN, timeout=timeout),
    "topic": lambda topic, timeout: topic.follow(BEGIN, timeout=timeout),
    "mapping": lambda topic, timeout: topic.follow({0: BEGIN}, timeout=timeout),
    "partition order": lambda topic, timeout: topic.follow(BEGIN, timeout=timeout, order="partition"),
}


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t", partitions=2)[0].extend([OLD, OLD])
    return tmp_path / "s"


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_older_records_are_left_out_as_by_read(path, way, read_only):
    with logstore.open(path) as writer:
        store = logstore.open(path, read_only=True) if read_only else writer
        follower = way(store["t"], None)
        for records in ROUNDS:
            writer["t"][0].extend(records)
        expected = [record.offset for record in store["t"][0].read(BEGIN)]
        assert len(expected) == 2
        assert [next(follower).offset for _ in expected] == expected
        assert [record.offset for record in way(store["t"], 0)] == expected
        store.close()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_records_that_are_left_out_do_not_put_off_the_end(path, way):
    with logstore.open(path) as store:
        done = threading.Event()

        def append_old_ones():
            for _ in range(300):
                if done.wait(0.01):
                    return
                store["t"][0].extend([OLD])

        thread = threading.Thread(target=append_old_ones)
        thread.start()
        try:
            assert list(way(store["t"], 0.1)) == []
        finally:
            done.set()
            thread.join()
        assert store["t"][0].log_end_offset > 2


def test_a_partition_that_is_added_is_followed_from_the_time_too(path):
    with logstore.open(path) as store:
        follower = store["t"].follow(BEGIN)
        store["t"].add_partitions(3)
        store["t"][2].extend([OLD, NEW])
        assert (record := next(follower)).partition == 2
        assert record.value == b"new"
