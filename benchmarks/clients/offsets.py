"""Committed offsets: how long a commit takes, and how long it takes to load many of many groups."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import logstore
from benchmarks.clients.measuring import VALUE, Found, Sizes
from benchmarks.clients.rates import mock_consumer, mock_producer, open_sqlite, timed
from benchmarks.measure import ROOT, MeasurementError
from benchmarks.records import WrongDataError

_PARTITIONS = 10
"""In which each group has an offset."""


def median_seconds(count: int, action: Callable[[int], object]) -> float:
    """Of one call of the action."""
    taken = []
    for number in range(count):
        started = perf_counter()
        action(number)
        taken.append(perf_counter() - started)
    return median(taken)


def measure_commits(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """A consumer commits where it is; flushed, ``store.offsets()`` does, after a record that it waits for."""
    with logstore.open(directory) as store:
        log = store.create_topic("t")[0]
        if flushes:
            offsets = store.offsets("g")

            def commit(number: int) -> None:
                offsets.commit({("t", 0): number}, flush=True)

            log.extend([VALUE] * sizes.flushed_commits, flush=True)
            return {"seconds": median_seconds(sizes.flushed_commits, commit)}
        log.extend([VALUE] * sizes.commits)
        with store.consumer("t", group="g") as consumer:

            def poll_and_commit(number: int) -> None:
                consumer.commit()

            consumer.poll()
            return {"seconds": median_seconds(sizes.commits, poll_and_commit)}


def measure_mock_commits(directory: str, sizes: Sizes) -> Found:
    """A consumer of the mock broker commits, and waits for the answer."""
    from confluent_kafka import TopicPartition

    producer, address = mock_producer(acks=1)
    producer.produce("t", VALUE)
    producer.flush()
    consumer = mock_consumer(address)

    def commit(number: int) -> None:
        consumer.commit(offsets=[TopicPartition("t", 0, number)], asynchronous=False)

    commit(0)
    seconds = median_seconds(sizes.flushed_commits, commit)
    consumer.close()
    return {"seconds": seconds}


def measure_sqlite_commits(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """A row for each group and partition is replaced."""
    base = open_sqlite(directory, flushes=flushes)
    base.execute("create table offsets (g text, t text, p int, value int, primary key (g, t, p))")

    def commit(number: int) -> None:
        base.execute("insert or replace into offsets values ('g', 't', 0, ?)", (number,))

    seconds = median_seconds(sizes.flushed_commits if flushes else sizes.commits, commit)
    base.close()
    return {"seconds": seconds}


# Loading ----------------------------------------------------------------------------------------------------


def prepare(directory: str, group_count: int, *, is_killed: bool) -> None:
    """Have so many groups commit ten offsets each, and close the store; or be killed."""
    store = logstore.open(directory)
    for log in store.create_topic("t", partitions=_PARTITIONS):
        log.extend([VALUE, VALUE], flush=True)
    for number in range(group_count):
        store.offsets(f"group-{number}").commit({("t", each): 1 for each in range(_PARTITIONS)})
    if is_killed:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def measure_loading(directory: str, sizes: Sizes, *, is_killed: bool) -> Found:
    """From ``open()`` until a consumer of one of the groups has the record that comes next for it: by then
    all groups and offsets are in memory.

    Raises:
        MeasurementError: the groups could not be made.
        WrongDataError: another record came.
    """
    _prepare_elsewhere(directory, sizes.groups, is_killed)
    found: Found = {}
    with timed(found, "seconds"):
        store = logstore.open(directory)
        consumer = store.consumer("t", group="group-7")
        records = consumer.poll(timeout=60)
    was_clean = store.was_clean
    consumer.close()
    if was_clean is is_killed or [record.offset for record in records] != [1]:
        raise WrongDataError(f"clean: {was_clean}; records: {records}")
    store.close()
    return found


def _prepare_elsewhere(directory: str, group_count: int, is_killed: bool) -> None:
    call = f"prepare({directory!r}, {group_count}, is_killed={is_killed})"
    code = f"from benchmarks.clients.offsets import prepare; {call}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != (-signal.SIGKILL if is_killed else 0):
        raise MeasurementError(f"making the groups:\n{done.stderr}")


def measure_sqlite_loading(directory: str, sizes: Sizes) -> Found:
    """The same offsets as rows of a table, read into a dict of dicts."""
    base = open_sqlite(directory, flushes=False)
    base.execute("create table offsets (g text, t text, p int, value int, primary key (g, t, p))")
    rows = [(f"group-{n}", "t", each, 1) for n in range(sizes.groups) for each in range(_PARTITIONS)]
    base.execute("begin")
    base.executemany("insert into offsets values (?, ?, ?, ?)", rows)
    base.execute("commit")
    base.close()
    found: Found = {}
    offsets: dict[str, dict[tuple[str, int], int]] = {}
    with timed(found, "seconds"):
        base = sqlite3.connect(f"{directory}/base.db")
        for group, topic, partition, value in base.execute("select * from offsets"):
            offsets.setdefault(group, {})[topic, partition] = value
    base.close()
    if len(offsets) != sizes.groups:
        raise WrongDataError(f"{len(offsets)} groups of {sizes.groups}")
    return found
