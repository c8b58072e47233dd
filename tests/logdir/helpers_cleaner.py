"""Helpers of the tests of the log cleaner: topics that get dirty, and what they must contain then."""

from __future__ import annotations

import os
from pathlib import Path

from logstore.config import StoreConfig, TopicConfig

COMPACTED = TopicConfig(cleanup_policy="compact", segment_bytes=2_000, file_delete_delay_ms=0)
BACKOFF_MS = 15_000
CONFIG = StoreConfig(linger_ms=0, log_cleaner_backoff_ms=BACKOFF_MS)


def soil(log, count=60, *, keys=5, text=b"v"):
    """Append records of a few keys, several to a batch; returns the latest value of each key."""
    latest = {}
    for number in range(count):
        key, value = b"k%d" % (number % keys), b"%s-%d-%s" % (text, number, b"." * 60)
        log.extend([(key, value)])
        latest[key] = value
    return latest


def latest_of(log):
    """The latest value of each key, by reading everything."""
    latest = {}
    for record in log.read():
        if record.value is None:
            latest.pop(record.key, None)
        else:
            latest[record.key] = record.value
    return latest


def record_count(log):
    return sum(1 for _ in log.read())


def unfinished_files(directory):
    """The temporary files of a compaction."""
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(Path(directory))
        for name in names
        if name.endswith((".cleaned", ".swap"))
    )
