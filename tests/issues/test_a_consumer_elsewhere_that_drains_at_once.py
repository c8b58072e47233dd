"""A consumer of a store elsewhere learned with its first poll which partitions its topics have: before that
it had no assignment and no ends, and ``drain()`` gave nothing. Costs 0.2 s."""

from __future__ import annotations

import logstore


def test_it_has_its_partitions_from_the_beginning(tmp_path):
    with (
        logstore.open(tmp_path) as store,
        store.listen() as listener,
        logstore.connect(listener.address) as shop,
    ):
        store.create_topic("t", partitions=3)
        store["t"].extend([(b"%d" % key, b"v") for key in range(30)])
        with shop.consumer("t") as consumer:
            assert [each.partition for each in consumer.assignment] == [0, 1, 2]
            assert sum(consumer.end_offsets().values()) == 30
            assert len(list(consumer.drain())) == 30
