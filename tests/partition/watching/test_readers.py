"""Readers beside a writer that compacts, erases and deletes all the time: threads of its process, and other
processes; also when it is killed in the middle, and another one goes on.

What may happen between two operations on files is tried in ``tests/partition/reading/test_readers_swap.py``.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import logstore
from logstore.errors import OffsetOutOfRangeError
from tests import readers_program as program
from tests.partition.helpers_readers import WAYS, ways_that_can


@pytest.fixture(params=[0, 30], ids=["removed at once", "removed later"])
def path(request, tmp_path):
    path = tmp_path / "store"
    with logstore.open(path) as store:
        log = store.create_topic("t", config=program.config(request.param))[0]
        program.append(log, 500)
    return path


# Threads


class Reader(threading.Thread):
    """Reads in one way until the deadline; keeps the error."""

    def __init__(self, log, way, seconds):
        super().__init__()
        self.log, self.way, self.seconds = log, way, seconds
        self.count, self.error = 0, None

    def run(self):
        deadline = time.monotonic() + self.seconds
        try:
            if self.way == "follow":
                self.count = program.follow(self.log, self.seconds)
                return
            while time.monotonic() < deadline:
                if self.way == "latest":
                    self.count += self.read_table()
                elif self.way == "times":
                    self.count += self.find_times()
                else:
                    self.count += program.read_once(self.log, WAYS[self.way])
        except BaseException as error:
            self.error = error

    def read_table(self):
        view = self.log.latest()
        found = {record.key: record.offset for record in view}
        for key, offset in found.items():
            assert program.key_of(offset) == key
        end_after, start = self.log.log_end_offset, self.log.log_start_offset
        for key in {program.key_of(offset) for offset in range(start, view.end_offset)} - program.ERASED_KEYS:
            offsets = [offset for offset in range(start, end_after) if program.key_of(offset) == key]
            latest = max(offset for offset in offsets if offset < view.end_offset)
            assert found.get(key, latest) == latest
            assert key in found or offsets[-1] != latest
        return 1

    def find_times(self):
        """Times rise with offsets here."""
        end = self.log.log_end_offset
        newest = self.log.find_max_timestamp()
        assert newest is not None
        assert newest.offset >= end - 2_000
        assert self.log.offset_at(newest.timestamp_ms + 10**9) is None
        try:
            first = next(self.log.read())
        except OffsetOutOfRangeError:  # retention was quicker
            return 0
        found = self.log.find_timestamp(first.timestamp_ms)
        assert found is not None
        assert (found.offset, found.timestamp_ms) >= (first.offset, first.timestamp_ms)
        return 1


def run_threads(path, ways, seconds):
    with logstore.open(path) as store:
        readers = [Reader(store["t"][0], way, seconds) for way in ways]
        for reader in readers:
            reader.start()
        try:
            program.write(store, seconds, seed=len(ways))
        finally:
            for reader in readers:
                reader.join()
    for reader in readers:
        if reader.error is not None:
            raise reader.error
    assert all(reader.count for reader in readers), {reader.way: reader.count for reader in readers}


def test_two_threads_read_beside_compaction(path):
    run_threads(path, ["read", "latest"], 0.7)


@pytest.mark.slow
def test_threads_read_in_all_ways_beside_compaction(path):
    run_threads(path, [*ways_that_can(), "latest", "times"], 3)


# Processes


def start(*arguments):
    command = [sys.executable, "-m", "tests.readers_program", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(readers):
    for way, reader in readers.items():
        output, _ = reader.communicate(timeout=60)
        said = json.loads(output.splitlines()[-1])
        assert "error" not in said, f"{way}: {said['error']}"
        assert said["count"], way


def start_readers(path, ways, seconds):
    return {way: start("follow" if way == "follow" else "read", path, seconds, way) for way in ways}


def test_a_process_reads_beside_compaction(path):
    readers = start_readers(path, ["read"], 0.7)
    with logstore.open(path) as store:
        program.write(store, 1.2, seed=1)
    finish(readers)


@pytest.mark.slow
def test_processes_read_in_all_ways_beside_compaction(path):
    readers = start_readers(path, list(ways_that_can()), 2)
    with logstore.open(path) as store:
        program.write(store, 3, seed=2)
    finish(readers)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
def test_processes_read_while_the_writer_is_killed_and_another_goes_on(path, seed):
    chance = random.Random(seed)
    ways = [way for way in ways_that_can() if way in ("read", "follow", "columns")]
    readers = start_readers(path, ways, 4)
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        writer = start("write", path, 60, chance.randrange(1000))
        assert writer.stdout.readline() == "open\n"
        time.sleep(chance.uniform(0.1, 0.6))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    finish(readers)
