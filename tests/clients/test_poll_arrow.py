"""``poll_arrow`` gives the rows that ``poll`` gives, whatever a log has."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from logstore.clients.consumer import Consumer
from logstore.clients.settings import ConsumerConfig
from logstore.errors import CorruptionError, RetriableError, UsageError
from logstore.format.batch import encode_batch
from logstore.format.compression import Codec
from logstore.model import Isolation
from tests.broker.rig import T0, T1, Rig

pytest.importorskip("pyarrow")

_COLUMNS = ("offset", "timestamp_ms", "key", "value", "headers", "timestamp_type")


def consumer_of(rig, isolation, limit_bytes, **settings):
    return Consumer(
        rig.broker,
        partitions=[T0, T1],
        isolation=isolation,
        config=ConsumerConfig(max_partition_fetch_bytes=limit_bytes),
        clock=rig.clock,
        **settings,
    )


def fill(rig, chance):
    """Batches of all kinds: codecs, times of the log, headers, transactions of several ends, gaps."""
    open_transactions, sequences = set(), Counter()
    for _ in range(chance.randint(5, 60)):
        log = rig.directory.log(chance.choice([T0, T1]))
        count = chance.randint(1, 6)
        keys = [chance.choice([None, b"", b"k"]) for _ in range(count)]
        values = [chance.choice([None, b"", b"v" * chance.randint(1, 400)]) for _ in range(count)]
        headers = [chance.choice([(), (("h", b"1"), ("g", None))]) for _ in range(count)]
        producer_id = chance.choice([7, 8])
        if chance.random() < 0.3 and (log, producer_id) in open_transactions:
            log.append_end_marker(producer_id, 0, committed=chance.random() < 0.5)
            open_transactions.remove((log, producer_id))
            continue
        producer = {}
        if chance.random() < 0.4:
            sequence = sequences[log, producer_id]
            sequences[log, producer_id] += count
            open_transactions.add((log, producer_id))
            producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        batch = encode_batch(
            keys,
            values,
            [chance.randint(0, 10**12) for _ in range(count)],
            headers,
            codec=chance.choice([Codec.NONE, Codec.NONE, Codec.GZIP]),
            transactional=bool(producer),
            **producer,
        )
        log.append_batch(batch)
        if chance.random() < 0.1:
            log.roll()


def rows_of(found):
    return [tuple(getattr(record, name) for name in ("topic", "partition", *_COLUMNS)) for record in found]


def rows_of_batch(batch):
    topic, partition = (batch.schema.metadata[name].decode() for name in (b"topic", b"partition"))
    lists = batch.to_pydict()
    lists["headers"] = [tuple((each["key"], each["value"]) for each in row) for row in lists["headers"]]
    return [(topic, int(partition), *row) for row in zip(*(lists[name] for name in _COLUMNS), strict=True)]


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.COMMITTED])
@pytest.mark.parametrize("seed", range(25))
def test_it_gives_the_rows_that_poll_gives(seed, isolation):
    chance = random.Random(seed)
    rig = Rig()
    fill(rig, chance)
    limit_bytes = chance.choice([1, 500, 10**6])
    by_rows = consumer_of(rig, isolation, limit_bytes)
    wanted = {T0: [], T1: []}
    while found := by_rows.poll(0):
        wanted[T0._replace(partition=found[0].partition)] += rows_of(found)
    mixed = consumer_of(rig, isolation, limit_bytes)
    given = {T0: [], T1: []}
    while True:
        if chance.random() < 0.3:
            rows = rows_of(mixed.poll(0, max_records=chance.randint(1, 4)))
        else:
            batch = mixed.poll_arrow(0, columns=_COLUMNS)
            rows = rows_of_batch(batch) if batch.num_rows else []
        if not rows:
            break
        partition = T0._replace(partition=rows[0][1])
        given[partition] += rows
        assert rows[-1][2] < mixed.position(partition)
        if chance.random() < 0.2:
            offset = chance.choice(given[partition])[2]
            mixed.seek(partition, offset)
            given[partition] = [row for row in given[partition] if row[2] < offset]
    assert given == wanted
    assert [mixed.position(each) for each in (T0, T1)] == [by_rows.position(each) for each in (T0, T1)]
    assert mixed.counts.record_count >= by_rows.counts.record_count


@pytest.mark.damaged
def test_what_comes_before_damage_is_given_and_the_position_stays_at_it():
    rig = Rig()
    for value in (b"a", b"bbbb", b"c"):
        rig.produce(value)
    log = rig.directory.log(T0)
    consumer = consumer_of(rig, Isolation.HIGH_WATERMARK, 10**6)
    consumer.poll_arrow(0, columns=["offset"])
    consumer.seek(T0, 0)
    path = f"{log.directory}/00000000000000000000.log"
    data = rig.files.open(path)
    at = data.read_at(0, data.size_bytes()).index(b"bbbb")
    rig.files.open(path, write=True).write_at(at, [b"x"])
    assert consumer.poll_arrow(0).column("value").to_pylist() == [b"a"]
    for _ in range(2):
        with pytest.raises(CorruptionError, match="t-0"):
            consumer.poll_arrow(0)
        assert consumer.position(T0) == 1
    consumer.seek(T0, 2)
    assert consumer.poll_arrow(0).column("value").to_pylist() == [b"c"]


def test_nothing_in_time_and_wrong_uses():
    rig = Rig()
    consumer = consumer_of(rig, Isolation.HIGH_WATERMARK, 10**6)
    nothing = consumer.poll_arrow(0, columns=["value", "offset"])
    assert (nothing.num_rows, nothing.schema.names) == (0, ["value", "offset"])
    with pytest.raises(UsageError, match="no column 'velue'"):
        consumer.poll_arrow(0, columns=["velue"])
    with pytest.raises(UsageError, match="without deserializers"):
        consumer_of(rig, Isolation.HIGH_WATERMARK, 1, value_deserializer="json").poll_arrow(0)
    consumer.wakeup()
    with pytest.raises(RetriableError, match="wakeup"):
        consumer.poll_arrow()
