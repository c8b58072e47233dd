"""Streams are killed at every step of a batch, while records, partitions and topics come, and read each
record once. Four queries share a process, so that one death is one for each, each at a step of its own."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

import logstore
from logstore.model import TopicPartition
from tests.rotation import in_turn
from tests.spark.conftest import missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

PATIENCE_S = 300
STEPS = ("planned", "journaled", "reading", "written")
"""Before the batch's end is journaled; before its tasks; in a task; before the batch is committed."""
QUERIES = ("q0", "q1", "q2", "q3")


class Streams:
    """Runs of the queries, each run in a process of its own, over their checkpoints."""

    def __init__(self, path, **options):
        self.path = path
        self.control = path / "control"
        self.options = {"path": str(path / "store"), **options}
        self.kills: Counter[tuple[str, bool]] = Counter()
        """By step, and whether it was in the first batch."""
        self.process: subprocess.Popen[bytes] | None = None
        self.control.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def start(self, **trigger):
        given = {"path": str(self.path), "queries": QUERIES, "options": self.options, "trigger": trigger}
        with open(self.path / "driver.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stream_driver", json.dumps(given)],
                env={**os.environ, "LOGSTORE_TEST_CONTROL": str(self.control)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_at(self, steps, *, batches):
        """Run until each query has committed some more batches, and from then on up to its step; then kill
        them all there."""
        targets = {query: len(self.numbers(query, "commits")) + batches for query in QUERIES}
        wanted = dict(zip(QUERIES, steps, strict=True))
        self.start(processingTime="0 seconds")
        for query, step in wanted.items():
            self._wait(lambda: len(self.numbers(query, "commits")) >= targets[query])  # noqa: B023
            (self.control / "asked").write_text(step)
            (self.control / "asked").replace(self.control / f"pause-{query}")
        for query in QUERIES:
            self._wait((self.control / f"reached-{query}").exists)
        self.kill()
        for query, step in wanted.items():
            journaled, committed = self.numbers(query, "offsets"), self.numbers(query, "commits")
            assert len(journaled) - len(committed) == (0 if step == "planned" else 1), (query, step)
            self.kills[step, not committed] += 1
        self._clear()

    def _clear(self):
        for left in self.control.iterdir():
            left.unlink()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self):
        """Read what there is, and end."""
        self._clear()
        self.options.pop("maxOffsetsPerTrigger")
        self.start(availableNow=True)
        self._wait(lambda: self.process.poll() is not None)

    def _wait(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self._log()
            assert not self.process.poll(), self._log()
            time.sleep(0.02)

    def _log(self):
        return (self.path / "driver.log").read_text()[-4000:]

    def numbers(self, query, folder):
        """The batches that one of a checkpoint's logs knows."""
        found = self.path / "checkpoint" / query / folder
        return sorted(int(name.name) for name in found.glob("[0-9]*")) if found.is_dir() else []

    def starts(self, query):
        """Where the query began, as the end of its first batch tells."""
        text = (self.path / "checkpoint" / query / "offsets" / "0").read_text().splitlines()[2]
        return {
            TopicPartition(topic, int(number)): start
            for topic, told in json.loads(text)["topics"].items()
            for number, start in told["from"].items()
        }

    def output(self, query):
        """Topic, partition, offset and value of every record that was put out."""
        rows = []
        for name in (self.path / "output" / query).glob("batch=*/*.json"):
            rows += [json.loads(line) for line in name.read_text().splitlines()]
        return sorted((row["topic"], row["partition"], row["offset"], row["value"]) for row in rows)


def stored(store, starts):
    """What the topics hold from some offsets on, in the form of :meth:`Streams.output`."""
    rows = []
    for topic in store.values():
        for number, log in enumerate(topic):
            start = starts.get(TopicPartition(topic.name, number), 0)
            rows += [(topic.name, number, record.offset, record.value.decode()) for record in log.read(start)]
    return sorted(rows)


class Writer:
    """Appends all the while, from this process."""

    def __init__(self, store, seed):
        self.store, self.random = store, random.Random(seed)
        self.count = 0
        self.error: Exception | None = None
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stops.set()
        self._thread.join()
        assert self.error is None, self.error

    def _run(self):
        try:
            while not self._stops.wait(0.2):
                self.append(self.random.randrange(1, 20))
        except Exception as error:
            self.error = error

    def append(self, count):
        for _ in range(count):
            topic = self.store[self.random.choice(list(self.store))]
            topic.append(f"value {self.count}".encode(), partition=self.random.randrange(len(topic)))
            self.count += 1
        self.store.flush()


def run_kills(path, rounds, seed):
    """Streams from the log's end that are killed in their first batches, and again some batches later."""
    streams = Streams(path, subscribePattern="t.*", startingOffsets="latest", maxOffsetsPerTrigger="40")
    with logstore.open(path / "store") as store:
        store.create_topic("t0", partitions=2)
        writer = Writer(store, seed)
        writer.append(50)
        with streams, writer:
            for number, steps in enumerate(rounds):
                streams.kill_at(steps, batches=min(number, 2))
                store["t0"].add_partitions(len(store["t0"]) + 1)
                store.create_topic(f"t{number + 1}", partitions=2)
        with streams:
            writer.append(200)
            streams.finish()
        for query in QUERIES:
            starts = streams.starts(query)
            expected = stored(store, starts)
            assert streams.output(query) == expected
            assert sum(starts.values()) >= 50  # there before the stream began
            assert {row[0] for row in expected} == set(store)
            assert len(expected) >= 200
    return streams


@in_turn(4, 8)
def test_each_record_is_read_once_over_kills_at_every_step(tmp_path):
    rounds = [STEPS, STEPS[1:] + STEPS[:1]]
    streams = run_kills(tmp_path, rounds, seed=1)
    assert Counter(step for step, _ in streams.kills.elements()) == dict.fromkeys(STEPS, 2)
    assert {("planned", True), ("journaled", True), ("written", True)} <= set(streams.kills)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_each_record_is_read_once_over_many_kills(tmp_path, seed):
    choice = random.Random(seed)
    streams = run_kills(tmp_path, [choice.choices(STEPS, k=len(QUERIES)) for _ in range(5)], seed)
    assert streams.kills.total() == 20
