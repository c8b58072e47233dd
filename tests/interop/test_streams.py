"""Kafka Streams counts words exactly once on a store that listens, and is killed while it does.

Cost: 25 s, for two JVMs, of which the second waits until the group has missed the first.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter, defaultdict

import pytest

import logstore
from logstore.testing import kafka as listening
from tests.interop import kafka
from tests.rotation import in_turn, seed_of_turn

pytestmark = pytest.mark.interop

POM = kafka.HERE / "pom-streams.xml"
WORDS = [f"word{number}" for number in range(20)]
PARTITIONS = 2
LINES = 300
"""In each of three parts, of up to eight words a line."""
PATIENCE_SECONDS = 90


@pytest.fixture(scope="module")
def jars():
    kafka.require_kafka()
    try:
        return kafka.fetch_jars(
            POM, kafka.CACHE / f"streams-{kafka.NEWEST}", f"-Dkafka.version={kafka.NEWEST}"
        )
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Kafka Streams could not be fetched: {error}")


class Streams:
    """The program in a process of its own."""

    def __init__(self, servers, home, jars):
        self.log = home / "log"
        program = os.fspath(kafka.HERE / "WordCount.java")
        command = kafka.java_command(
            program, str(servers), os.fspath(home / "state"), "lines", "counts", classes=jars
        )
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def kill(self):
        self._process.kill()
        self._process.stdin.close()
        self._process.wait()

    def close(self):
        self._process.communicate(timeout=PATIENCE_SECONDS)
        assert "closed" in self.log.read_text().split()  # it is told of the last state a little later


def until(what, streams):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, streams.log.read_text()[-3000:]
        assert streams._process.poll() is None, streams.log.read_text()[-3000:]
        time.sleep(0.02)


def committed_counts(store):
    """All that were ever committed, by word, in their order."""
    found = defaultdict(list)
    for record in store["counts"].read(isolation=logstore.Isolation.COMMITTED):
        found[record.key.decode()].append(int(record.value))
    return found


@in_turn(1, 8)
def test_words_are_counted_exactly_once(jars, tmp_path):
    """Of each word every count is committed once: none is left out and none is there twice."""
    chance = random.Random(seed_of_turn())
    expected = Counter()
    topics = {"lines": PARTITIONS, "counts": PARTITIONS}

    with listening(topics=topics) as servers:
        store = servers.store

        def write():
            for number in range(LINES):
                words = chance.choices(WORDS, k=chance.randint(1, 8))
                expected.update(words)
                store["lines"].append(" ".join(words).encode(), partition=number % PARTITIONS)

        def sent():
            return sum(log.log_end_offset for log in store["counts"])

        write()
        streams = Streams(servers, tmp_path, jars)
        until(lambda: sum(map(len, committed_counts(store).values())) > 0, streams)
        before = sent()
        write()
        until(lambda: sent() > before + chance.randrange(100), streams)
        streams.kill()
        write()
        streams = Streams(servers, tmp_path, jars)
        until(lambda: sum(map(len, committed_counts(store).values())) >= expected.total(), streams)
        streams.close()
        assert committed_counts(store) == {word: list(range(1, n + 1)) for word, n in expected.items()}
        assert any(each.request.transactional_id for each in servers.requests("InitProducerId"))
