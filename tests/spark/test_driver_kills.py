"""The driver dies at each step of a commit, executors die under tasks: the output equals the input, once."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

import pytest

import logstore
from logstore.spark.staging import is_staged_name
from tests.figures import report
from tests.rotation import in_turn, rotating
from tests.spark import killing
from tests.spark.conftest import missing
from tests.spark.test_exactly_once import COMMIT_STEPS, ROWS_PER_BATCH, Query

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
    return str(tmp_path / "store")


def drive(tmp_path, *arguments):
    """Run a driver to its end; what it said."""
    root = str(Path(__file__).parent.parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    with (tmp_path / "driver.log").open("a+") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.spark.driver", *map(str, arguments)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=tmp_path,
        )
        try:
            code = process.wait(240)
        finally:
            process.kill()
        log.seek(0)
        return code, log.read()


EACH = "at each step"


@pytest.mark.parametrize("step", [*rotating(COMMIT_STEPS, 8), pytest.param(EACH, marks=pytest.mark.soak)])
def test_a_stream_whose_driver_dies(spark, path, tmp_path, step):
    """Each driver starts a Spark of its own, so a run tries one step; and the soak all of them in a row."""
    started = perf_counter()
    steps = COMMIT_STEPS if step == EACH else [step]
    for number, step in enumerate(steps):
        _, said = drive(tmp_path, "stream", path, tmp_path / "checkpoint", step)
        assert len(killing.obeyed(path)) == number + 1, said[-3000:]
    killing.register(spark)
    query = Query(spark, path, tmp_path / "checkpoint")
    query.run_until(query.last_done() + 2)
    query.check()
    report(
        "spark: stream, drivers killed",
        count=len(steps),
        failures=0,
        seconds=perf_counter() - started,
        detail=f"{query.last_done() + 1} batches of {ROWS_PER_BATCH} rows",
    )


@in_turn(6, 8)
def test_a_job_whose_executors_and_workers_die(path, tmp_path):
    started = perf_counter()
    code, said = drive(tmp_path, "cluster", path, 600)
    assert code == 0, said[-3000:]
    done = Counter(name.split()[3] for name in killing.obeyed(path))
    assert done == {"executor": 2, "worker": 1}
    with logstore.open(path, read_only=True) as store:
        found = sorted(int(record.value) for log in store["t"] for record in log)
        assert store.verify()
    assert found == list(range(600))
    assert [name for name in os.listdir(path) if is_staged_name(name)] == []
    report(
        "spark: job on a cluster, executors and workers killed",
        count=sum(done.values()),
        failures=0,
        seconds=perf_counter() - started,
    )
