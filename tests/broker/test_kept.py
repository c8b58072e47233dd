"""What is kept of fetches: those that are repeated, and none that is over. Costs nothing."""

from __future__ import annotations

import gc

import pytest

import logstore
from logstore.broker.kept import KeptFetch, KeptPartition
from logstore.broker.records.fetching import _LongPoll
from logstore.broker.requests import FetchPartition
from logstore.model import Isolation, TopicPartition
from logstore.partition.reading.readable import published_view
from tests.broker.rig import T0, Rig


def test_a_partition_that_is_forgotten_stays_so_whoever_was_about_to_tell_of_it(tmp_path):
    """Its log tells it in another thread, and a poll that ends finds it busy. If the next request looked at
    it, a client that reads elsewhere in the same partition by then would get the answer to what it asked
    before, again and again."""
    with logstore.open(tmp_path) as store:
        log = store.create_topic("t")[0]
        kept = KeptFetch()
        kept.isolation = Isolation.LOG_END
        part = KeptPartition(kept, 0, TopicPartition("t", 0), 0, 1_000, -1)
        kept.look_at([part])
        assert kept.take() == [part]
        part.watch(log)
        kept.forget([part])
        log.append(b"x")
        part.changed(published_view(log))
        part.ended()
        part.gathers()
        kept.look_again([part])
        assert kept.take() == kept.take_changed() == []
        kept.look_at([part])
        assert kept.take() == [part]
        part.changed(published_view(log))
        assert kept.take_changed() == [part]


@pytest.fixture
def no_collection():
    """Cyclic garbage stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_fetch_that_was_answered_goes_with_its_records(no_collection):
    """With the task that would have ended its wait, which is due only then: followers and consumers that
    always find something would keep a megabyte for each request."""
    rig = Rig()
    waits = rig.fetch(FetchPartition(T0, 0), max_wait_ms=3_600_000)
    before = waits.poll()
    rig.produce(b"x")
    found = waits.poll()
    assert (before, bool(found.partitions[0].data), _long_polls()) == (None, True, 1)
    del waits
    assert _long_polls() == 0


def _long_polls():
    return sum([type(each) is _LongPoll for each in gc.get_objects()])
