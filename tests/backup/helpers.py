"""Helpers of the tests of backups."""

from __future__ import annotations

import logstore
from logstore import StoreConfig, TopicConfig
from logstore.testing import ManualClock

SMALL = StoreConfig(
    topic=TopicConfig(segment_bytes=400, index_interval_bytes=64, file_delete_delay_ms=0),
    linger_ms=0,
    num_recovery_threads_per_data_dir=1,
)
"""Segments of a few records."""


def open_store(path, files=None, **options):
    options.setdefault("config", SMALL)
    clock = ManualClock() if files is not None else None
    return logstore.open(path, files=files, clock=clock, **options)


def contents(store):
    """Everything that a store has, by topic and partition."""
    return {
        name: (
            topic.topic_id,
            topic.config,
            topic.held_partitions,
            {n: log_of(topic[n]) for n in topic.held_partitions},
        )
        for name, topic in store.items()
    }


def log_of(log):
    records = [(record.offset, record.timestamp_ms, record.key, record.value) for record in log.read()]
    return log.log_start_offset, log.log_end_offset, records


def read_all(path, files=None):
    with open_store(path, files, read_only=True) as store:
        return contents(store)


def fill(log, count, start=0):
    for number in range(start, start + count):
        log.extend([(b"key %d" % (number % 5), b"value %d " % number * 4)])


def log_files(directory):
    return sorted(directory.glob("*/*.log"))
