"""A writer that compacts, erases and deletes all the time, and readers that check everything they see:
programs for tests with several processes (or threads of one).

A record's contents follow from its offset, so that every process can check them. ``python -m
tests.readers_program write PATH SECONDS``, or ``read``, ``follow``.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from typing import Any

import logstore
from logstore.config import TopicConfig
from logstore.errors import OffsetOutOfRangeError, RetriableError
from logstore.model import NewRecord
from tests.partition.helpers_readers import Seen

KEYS = 40
ERASED_KEYS = frozenset(b"k%d" % number for number in range(3))
SETTLE_S = 1.0
"""How long a follower may take to reach the end."""
LATE_S = 20.0
"""How long a reader keeps trying if retention overtakes it each time: by then the writer has ended."""


def key_of(offset: int) -> bytes:
    return b"k%d" % (offset * 2654435761 % 2**32 % KEYS)


def value_of(offset: int) -> bytes:
    return b"%d " % offset + b"v" * (offset * 40503 % 90)


def config(delay_ms: int) -> TopicConfig:
    return TopicConfig(
        cleanup_policy="compact,delete",
        segment_bytes=8_000,
        file_delete_delay_ms=delay_ms,
        retention_ms=-1,
        compression_type="lz4",
    )


# Reading


def check(seen: Seen, end: int, end_after: int, start_after: int) -> None:
    """``seen`` is a read that began when the log ended at ``end``; after it the log went from ``start_after``
    to ``end_after``. Records that were neither superseded nor deleted by then must be in it."""
    offsets = [offset for offset, _, _ in seen]
    assert offsets == sorted(set(offsets)), "out of order"
    for offset, key, value in seen:
        assert (key, value) == (key_of(offset), value_of(offset)), f"wrong at {offset}: {key!r} {value!r}"
    found = set(offsets)
    met: set[bytes] = set()
    for offset in range(end_after - 1, start_after - 1, -1):
        key = key_of(offset)
        if key not in met:
            met.add(key)
            if offset < end and key not in ERASED_KEYS:
                assert offset in found, (
                    f"{offset} is missing; the log ended at {end}, and ends at {end_after}"
                )
        if len(met) == KEYS:
            break


def read_once(log: Any, way: Any) -> bool:
    """Whether the read reached its end: retention may overtake it."""
    end = log.log_end_offset
    try:
        seen = way(log)
    except OffsetOutOfRangeError:
        return False
    end_after, start_after = log.log_end_offset, log.log_start_offset
    check(seen, end, end_after, start_after)
    return True


def follow(log: Any, seconds: float) -> int:
    """Follow for some time; returns the number of records. Starts again if retention overtakes it."""
    deadline = time.monotonic() + seconds
    count, last, end, end_time = 0, -1, 0, 0.0
    while time.monotonic() < deadline:
        try:
            for record in log.follow(max(log.log_start_offset, last + 1), timeout=0.3):
                count += 1
                offset = record.offset
                assert offset > last, f"{offset} after {last}"
                assert (record.key, record.value) == (key_of(offset), value_of(offset)), record
                last = offset
                if time.monotonic() > deadline:
                    break
                if time.monotonic() - end_time > SETTLE_S:
                    assert last >= end - 1, f"at {last}; a second ago the log ended at {end}"
                    end, end_time = log.log_end_offset, time.monotonic()
        except OffsetOutOfRangeError:
            continue
    return count


# Writing


def write(store: Any, seconds: float, seed: int) -> None:
    """Append, compact, erase and delete."""
    log = store["t"][0]
    chance = random.Random(seed)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _ in range(chance.randrange(1, 30)):
            append(log, chance.randrange(1, 20))
        if chance.random() < 0.2:
            log.roll()
        change(log, chance)


def append(log: Any, count: int) -> None:
    end = log.log_end_offset
    log.extend([NewRecord(value_of(offset), key_of(offset)) for offset in range(end, end + count)])


def change(log: Any, chance: random.Random) -> None:
    what = chance.random()
    try:
        if what < 0.7:
            log.compact(now=chance.random() < 0.8)
        elif what < 0.85:
            log.erase(keys=[chance.choice(sorted(ERASED_KEYS))])
        elif what < 0.9:
            start, end = log.log_start_offset, log.log_end_offset
            log.delete_before(start + max(end - start - 2_000, 0))
    except RetriableError:
        pass


def main(kind: str, path: str, seconds: str, way: str) -> None:
    from tests.partition.helpers_readers import WAYS

    if kind == "write":
        with logstore.open(path) as store:
            print("open", flush=True)
            write(store, float(seconds), int(way))
        return
    count = 0
    try:
        with logstore.open(path, read_only=True) as store:
            log = store["t"][0]
            if kind == "follow":
                count = follow(log, float(seconds))
            else:
                deadline = time.monotonic() + float(seconds)
                last = deadline + LATE_S
                while time.monotonic() < (deadline if count else last):
                    count += read_once(log, WAYS[way])
    except BaseException:
        print(json.dumps({"error": traceback.format_exc()}))
    else:
        print(json.dumps({"count": count}))


if __name__ == "__main__":
    main(*sys.argv[1:])
