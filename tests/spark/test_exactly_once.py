"""Streams and jobs of Spark whose workers, tasks and commits die: the output equals the input, once."""

import os
import time
from pathlib import Path
from time import perf_counter

import pytest

import logstore
from logstore.spark.ledger import Ledger
from logstore.spark.staging import is_staged_name
from tests.figures import report
from tests.rotation import seed_of_turn, turn
from tests.spark import killing
from tests.spark.conftest import missing

pytestmark = pytest.mark.slow

if missing() is None:
    from tests.spark.driver import ROWS_PER_BATCH, numbers

COMMIT_STEPS = (
    "before prepared",
    "after prepared",
    "mid-adoption",
    "before done",
    "after done",
    "after cleanup",
)


STEPS = (*COMMIT_STEPS, "after commit", "in task", "after task")


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
    return str(tmp_path / "store")


@pytest.fixture
def killed(spark):
    """The session, with the data source that dies."""
    killing.register(spark)
    return spark


class Query:
    """A stream of numbers into a topic that is started again and again, each time split otherwise."""

    def __init__(self, spark, path, checkpoint, source="killed"):
        self.spark = spark
        self.path = path
        self.checkpoint = str(checkpoint)
        self.source = source
        self.starts = 0

    def start(self):
        self.starts += 1
        rows = numbers(self.spark, self.starts % 3 + 1)
        writer = rows.writeStream.format(self.source)
        return writer.options(path=self.path, topic="t", checkpointLocation=self.checkpoint).start()

    def run_until_it_dies(self):
        query = self.start()
        deadline = time.monotonic() + 300
        while query.isActive and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not query.isActive, "the order was not carried out"
        assert query.exception() is not None

    def run_until(self, batch_id):
        query = self.start()
        deadline = time.monotonic() + 300
        while query.isActive and self.last_done() < batch_id and time.monotonic() < deadline:
            time.sleep(0.02)
        assert query.exception() is None
        query.stop()
        assert self.last_done() >= batch_id

    def last_done(self):
        with logstore.open(self.path, read_only=True) as store:
            return max([state.batch_id for state in Ledger(store).states.values()], default=-1)

    def numbers(self):
        with logstore.open(self.path, read_only=True) as store:
            return sorted(int(record.value) for log in store["t"] for record in log)

    def check(self):
        """All numbers of all batches that were committed, once."""
        found = self.numbers()
        assert found == list(range((self.last_done() + 1) * ROWS_PER_BATCH))
        assert [name for name in os.listdir(self.path) if is_staged_name(name)] == []
        with logstore.open(self.path, read_only=True) as store:
            assert store.verify()


def test_a_stream_whose_commits_die_at_every_step(killed, path, tmp_path):
    started = perf_counter()
    query = Query(killed, path, tmp_path / "checkpoint")
    first = seed_of_turn() % len(STEPS)
    steps = [*STEPS[first:], *STEPS[:first]] * (3 if turn() is None else 1)
    for number, step in enumerate(steps):
        killing.order(path, step)
        query.run_until_it_dies()
        assert len(killing.obeyed(path)) == number + 1
    query.run_until(query.last_done() + 2)
    query.check()
    count = len(killing.obeyed(path))
    assert count >= len(STEPS)
    report(
        "spark: stream, commits and tasks killed",
        count=count,
        failures=0,
        seconds=perf_counter() - started,
        detail=f"{query.last_done() + 1} batches",
    )


def test_a_batch_whose_epoch_is_committed_again(killed, path, tmp_path):
    started = perf_counter()
    query = Query(killed, path, tmp_path / "checkpoint")
    query.run_until(1)
    count = 0
    for _ in range(2):
        commit_log = sorted(
            (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name)
        )
        before = query.last_done()
        repeated = int(commit_log[-1].name)
        for file in (commit_log[-1], Path(f"{commit_log[-1].parent}/.{repeated}.crc")):
            file.unlink(missing_ok=True)  # Spark forgets that the batch is committed
        assert repeated <= before
        killing.order(path, "repeated", who="raise")
        query.run_until_it_dies()  # it reached the place where a batch is found to be done
        query.run_until(before + 1)
        count += 1
    query.check()
    report("spark: stream, epochs committed twice", count=count, failures=0, seconds=perf_counter() - started)


def test_commits_that_raise(killed, path, tmp_path):
    started = perf_counter()
    query = Query(killed, path, tmp_path / "checkpoint")
    for step in COMMIT_STEPS:
        killing.order(path, step, who="raise")
        query.run_until_it_dies()
    query.run_until(query.last_done() + 1)
    query.check()
    count = len(killing.obeyed(path))
    report("spark: stream, commits that raise", count=count, failures=0, seconds=perf_counter() - started)


@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_a_job_whose_commit_dies_is_run_again_with_its_id(killed, path, step):
    frame = killed.sql("select cast(id as string) value from range(0, 100, 1, 3)")
    writer = frame.write.format("killed").mode("append").options(path=path, topic="t", writeId="job")
    killing.order(path, step)
    with pytest.raises(Exception, match=r"(?s)."):
        writer.save()
    with logstore.open(path) as store:
        store["t"][0].extend([b"-1"])
    writer.save()
    assert len(killing.obeyed(path)) == 1
    with logstore.open(path, read_only=True) as store:
        found = sorted(int(record.value) for log in store["t"] for record in log)
    assert found == [-1, *range(100)]


def test_tasks_with_a_second_attempt_that_is_too_late(killed, path, tmp_path):
    """As speculation leaves them: the file of a loser, whole and flushed, beside the winner's."""
    started = perf_counter()
    query = Query(killed, path, tmp_path / "checkpoint")
    for _ in range(2):
        killing.order(path, "second attempt", who="loser")
        query.run_until(query.last_done() + 1)
    query.check()
    count = len(killing.obeyed(path))
    assert count == 2
    report(
        "spark: stream, second attempts of tasks", count=count, failures=0, seconds=perf_counter() - started
    )


def test_a_control_without_the_protocol_has_duplicates(killed, path, tmp_path):
    """The check can fail: Spark's own at-least-once, here by foreachBatch without an id, repeats a batch."""

    def append(frame, batch_id):
        frame.write.format("logstore").mode("append").options(path=path, topic="t").save()
        if batch_id == 1 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            raise OSError("dies behind its commit")

    for _ in range(2):
        stream = killed.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = stream.selectExpr("cast(value as string) value").writeStream.foreachBatch(append)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        deadline = time.monotonic() + 60
        while query.isActive and time.monotonic() < deadline:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] >= 2:
                break
            time.sleep(0.05)
        query.stop()
    with logstore.open(path, read_only=True) as store:
        found = [int(record.value) for log in store["t"] for record in log]
    assert len(found) > len(set(found))
