"""A log that was reopened forgot since when a transaction hangs.

The time of the last append was replaced by that of the open. A program that opens a store each night and
verifies it never heard of a transaction that had been open for weeks, while every reader of committed data
stood still. The open still counts as use where idle producers are forgotten.
"""

from __future__ import annotations

import pytest
from tests.logdir.helpers import ManualClock, open_store, values

from logstore.config import StoreConfig
from logstore.model import ProducerIdentity, TopicPartition
from logstore.partition.checking.findings import FindingKind

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
PRODUCER = ProducerIdentity(5, 0, 0, True)


@pytest.fixture
def path(tmp_path):
    """A store with an open transaction, and a producer without one."""
    path = tmp_path / "store"
    with opened(path, START_MS) as store:
        log = store.create_topic("t")[0]
        log.extend([b"a"], producer=PRODUCER)
        log.extend([b"b"], producer=ProducerIdentity(6, 0, 0))
    return path


def opened(path, now_ms, **options):
    return open_store(path, clock=ManualClock(now_ms), **options)


def late(store):
    notes = store.verify().notes
    return [note.reason for note in notes if note.kind is FindingKind.LATE_TRANSACTION]


def forget_snapshots(path):
    crash(path)
    for snapshot in (path / "t-0").glob("*.snapshot"):
        snapshot.unlink()


def crash(path):
    (path / ".kafka_cleanshutdown").unlink()


@pytest.mark.parametrize(
    "spoil", [lambda path: None, crash, forget_snapshots], ids=["clean", "crash", "replay"]
)
@pytest.mark.parametrize("read_only", [False, True])
def test_each_open_sees_it(path, spoil, read_only):
    for night in (1, 2, 3):
        spoil(path) if not read_only or night == 1 else None
        with opened(path, START_MS + night * DAY_MS, read_only=read_only) as store:
            assert late(store) == ["producer 5 left it open for too long"]


@pytest.mark.parametrize("read_only", [False, True])
def test_one_that_has_just_begun_is_not_late(path, read_only):
    with opened(path, START_MS + 60_000, read_only=read_only) as store:
        assert late(store) == []


def test_one_that_goes_on_is_not_late(path):
    with opened(path, START_MS + DAY_MS) as store:
        store["t"][0].extend([b"c"], producer=ProducerIdentity(5, 0, 1, True))
        assert late(store) == []
    with opened(path, START_MS + DAY_MS + 60_000) as store:
        assert late(store) == []


def test_one_that_ended_is_not_late(path):
    with opened(path, START_MS + DAY_MS) as store:
        store["t"][0].append_end_marker(5, 0, committed=True)
    for read_only in (False, True):
        with opened(path, START_MS + 9 * DAY_MS, read_only=read_only) as store:
            assert late(store) == []


def test_after_a_truncation_it_is_seen_as_well(path):
    with opened(path, START_MS + DAY_MS) as store:
        assert store["t"][0].truncate_to(1)
        assert late(store) == ["producer 5 left it open for too long"]


def test_a_partition_that_is_reopened_knows_it(path):
    with opened(path, START_MS + DAY_MS) as store:
        store["t"].reopen(0)
        assert late(store) == ["producer 5 left it open for too long"]


def test_a_timestamp_ahead_of_the_clock_counts_as_the_open(tmp_path):
    path = tmp_path / "store"
    with opened(path, START_MS) as store:
        log = store.create_topic("t")[0]
        log.extend([(b"k", b"a", START_MS + 1_000_000)], producer=PRODUCER)
    with opened(path, START_MS + 1000) as store:
        assert late(store) == []


def test_the_open_counts_as_use_of_an_idle_producer(path):
    config = StoreConfig(producer_id_expiration_ms=DAY_MS)
    with opened(path, START_MS + 30 * DAY_MS, config=config) as store:
        log = store["t"][0]
        assert log.expire_producers() == 0
        assert log.extend([b"b"], producer=ProducerIdentity(6, 0, 0)) == range(1, 2)  # sent again
        store._directory.context.clock.advance(DAY_MS)
        assert log.expire_producers() == 1
        assert late(store) == ["producer 5 left it open for too long"]
        assert values(log) == [b"a", b"b"]
        assert log.partition == TopicPartition("t", 0)
