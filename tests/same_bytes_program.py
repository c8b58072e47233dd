"""Writes logs and a topic of many kinds below a directory, the same each time: the clock is set by hand."""

import random
import sys

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.model import NewRecord, ProducerIdentity
from logstore.partition.log import Log
from logstore.testing import ManualClock

KINDS = {
    "plain": ({}, {}),
    "small": ({"segment_bytes": 4_000, "index_interval_bytes": 200}, {"batch_bytes": 700}),
    "tight": ({"max_message_bytes": 900, "segment_bytes": 2_000}, {"batch_bytes": 100_000}),
    "appended": ({"message_timestamp_type": "LogAppendTime"}, {"batch_bytes": 2_000}),
    "compact": ({"cleanup_policy": "compact"}, {}),
    "without-linger": ({}, {"linger_ms": 0}),
    **{
        codec: ({"compression_type": codec}, {"batch_bytes": 3_000})
        for codec in ("zstd", "gzip", "snappy", "lz4")
    },
}


def row_of(chance, now_ms):
    key, value = b"key-%d" % chance.randrange(50), chance.randbytes(chance.choice((0, 5, 60, 64, 300)))
    value = None if chance.random() < 0.05 else value + b"text " * chance.randrange(20)
    timestamp_ms = chance.choice((None, None, now_ms - chance.randrange(10**9), -1))
    headers = tuple(
        (chance.choice("aé€"), chance.choice((None, b"", b"x" * 70))) for _ in range(chance.randrange(3))
    )
    return chance.choice(
        (
            (key, value),
            (key, value, timestamp_ms),
            (key, value, timestamp_ms, headers),
            NewRecord(value, key, headers, timestamp_ms),
            (bytearray(key), value and memoryview(value), timestamp_ms, list(headers)),
        )
        if chance.random() < 0.1
        else ((key, value), NewRecord(value, key, headers, timestamp_ms))
    )


def fill(log, chance, clock):
    for _ in range(60):
        clock.advance(chance.choice((0, 1, 700)))
        rows = [row_of(chance, clock.now_ms()) for _ in range(chance.choice((0, 1, 1, 3, 40)))]
        log.extend(iter(rows) if chance.random() < 0.3 else rows)
        for _ in range(chance.randrange(12)):
            row = row_of(chance, clock.now_ms())
            fields = row if type(row) is NewRecord else NewRecord(row[1], row[0])
            log.append(fields.value, key=fields.key, headers=fields.headers, timestamp_ms=fields.timestamp_ms)
        if chance.random() < 0.2:
            log.flush()
        if chance.random() < 0.1:
            log.roll()
    if log.config.max_message_bytes > 100_000:
        rows = [row_of(chance, clock.now_ms()) for _ in range(3)]
        log.extend(rows, producer=ProducerIdentity(7, 0, 0))


def main(path):
    for name, (topic, store) in KINDS.items():
        clock = ManualClock()
        with Log.open(
            f"{path}/{name}-0", config=TopicConfig(**topic), store_config=StoreConfig(**store), clock=clock
        ) as log:
            fill(log, random.Random(name), clock)
    clock = ManualClock()
    with logstore.open(f"{path}/store", clock=clock) as opened:
        topic = opened.create_topic("t", partitions=3)
        chance = random.Random("topic")
        for _ in range(30):
            topic.extend([row_of(chance, clock.now_ms()) for _ in range(20)])
            topic.extend([(None, b"x" * 900), (b"k", b"v")])
            topic.append(b"single", key=b"key-%d" % chance.randrange(9))
            topic.append(b"without a key" * chance.randrange(50))


if __name__ == "__main__":
    main(sys.argv[1])
