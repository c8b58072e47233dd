"""What is kept of fetches that are repeated. Costs nothing."""

from __future__ import annotations

import logstore
from logstore.broker.kept import KeptFetch, KeptPartition
from logstore.model import Isolation, TopicPartition
from logstore.partition.reading.readable import published_view


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
