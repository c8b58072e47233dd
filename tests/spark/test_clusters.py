"""On clusters: executors with working directories of their own, and the package brought to them in the ways
that the page names. Each runs a driver in a process of its own, beside the store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path
from time import perf_counter

import pytest

pytest.importorskip("pyspark")

import logstore
import logstore.spark
from logstore.spark.java import find_java
from tests.figures import report
from tests.rotation import in_turn
from tests.spark.clusters import make_environment, python_without_logstore, site_of, standalone
from tests.spark.conftest import missing, settings_in

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "src"
RECORDS = 4_000

DRIVER = """
    import json, os, sys

    sources, cluster, settings, package, *topics = sys.argv[1:]
    sys.path.insert(0, sources)  # for the driver: what it starts is not to find it there
    import logstore.spark

    settings = json.loads(settings)
    spark = logstore.spark.session("cluster test", cluster=cluster, settings=settings)
    if package:
        spark.sparkContext.addPyFile(package)
        logstore.spark.register(spark)

    def look(_):
        import os, sys, logstore
        return [[os.getcwd(), logstore.__file__, logstore.build_info().is_compiled]]

    workers = spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect()

    def read(reader):  # the path is relative, and the workers are elsewhere
        named = {"path": "store", "subscribe": "in", "startingOffsets": "earliest"}
        return reader.format("logstore").options(**named).load()

    frame = read(spark.read.option("minPartitions", 4))
    seen = frame.selectExpr("count(*)", "sum(offset)", "count(distinct value)").first()
    rows = frame.select("key", "value")
    if "written" in topics:
        rows.write.format("logstore").mode("append").options(path="store", topic="written").save()
    if "streamed" in topics:
        stream = read(spark.readStream).select("key", "value").writeStream.format("logstore")
        stream = stream.option("checkpointLocation", os.path.abspath("checkpoint"))
        stream = stream.options(path="store", topic="streamed")
        stream.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps({"workers": workers, "seen": list(seen), "tasks": frame.rdd.getNumPartitions()}))
    spark.stop()
"""

SLOW_DRIVER = """
    import json, os, sys

    sources, cluster, settings, attempts = sys.argv[1:]
    sys.path.insert(0, sources)
    import logstore.spark

    spark = logstore.spark.session("speculation test", cluster=cluster, settings=json.loads(settings))
    named = {"path": os.path.abspath("store"), "subscribe": "in", "startingOffsets": "earliest"}

    def slow_at_first(name):
        def rows_of(batches):
            from pyspark import TaskContext
            import pathlib, time

            task = TaskContext.get()
            path = pathlib.Path(attempts, f"{name}-{task.partitionId()}-{task.attemptNumber()}")
            path.with_suffix(".begun").touch()
            yield from batches
            if task.partitionId() == 1 and task.attemptNumber() == 0:
                time.sleep(60)
            path.with_suffix(".ended").touch()

        return rows_of

    def rows(reader, name):
        rows = reader.format("logstore").options(minPartitions=4, **named).load().select("key", "value")
        return rows.mapInArrow(slow_at_first(name), rows.schema)

    batch = rows(spark.read, "written").write.format("logstore").mode("append")
    batch.options(path="store", topic="written").save()
    stream = rows(spark.readStream, "streamed").writeStream.format("logstore")
    stream = stream.option("checkpointLocation", os.path.abspath("checkpoint"))
    stream.options(path="store", topic="streamed").trigger(availableNow=True).start().awaitTermination()
    spark.stop()
"""


@pytest.fixture
def place(tmp_path):
    """A directory with a store, in which drivers run."""
    if missing():
        pytest.skip(missing())
    with logstore.open(tmp_path / "store") as store:
        config = logstore.TopicConfig(retention_ms=-1, compression_type="zstd", segment_bytes=16_384)
        for number, log in enumerate(store.create_topic("in", partitions=2, config=config)):
            for start in range(0, RECORDS // 2, 100):
                log.extend([(b"%d" % i, b"value %d of %d" % (i, number)) for i in range(start, start + 100)])
        for name in ("written", "streamed"):
            store.create_topic(name, partitions=2)
    return tmp_path


def run_driver(place, cluster, topics, *, package="", settings=(), **environment):
    """Read the topic and write it into these; what the driver saw of its workers."""
    settings = {
        **settings_in(place / "driver"),
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.task.maxFailures": 1,
        **dict(settings),
    }
    arguments = [str(SOURCES), cluster, json.dumps(settings), package, *topics]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(DRIVER), *arguments],
        cwd=place, capture_output=True, text=True, timeout=400,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(errors)[-6000:]
    said = json.loads(done.stdout.splitlines()[-1])
    check_said(place, said, topics)
    return said["workers"]


def check_said(place, said, topics):
    """Everything was read once by executors that live elsewhere, and written once."""
    half = RECORDS // 2
    assert said["seen"] == [RECORDS, half * (half - 1), RECORDS]
    assert said["tasks"] == 4
    directories = {directory for directory, _, _ in said["workers"]}
    assert len(directories) == 2
    assert str(place) not in directories
    with logstore.open(place / "store", read_only=True) as store:
        expected = sorted(record.value for log in store["in"] for record in log)
        for topic in topics:
            assert sorted(record.value for log in store[topic] for record in log) == expected


@in_turn(7, 8)
def test_local_cluster_with_the_package_installed(place):
    topics = ["written", "streamed"]
    workers = run_driver(place, "local-cluster[2,1,1024]", topics, PYTHONPATH=str(SOURCES))
    assert {compiled for _, _, compiled in workers} == {logstore.build_info().is_compiled}


@in_turn(1, 8)
def test_speculative_attempts_of_slow_tasks(place):
    """Spark starts a second attempt of a task that is slow, on another host; it takes the one that is ready
    first, and kills the other."""
    started = perf_counter()
    attempts = place / "attempts"
    attempts.mkdir()
    settings = {
        **settings_in(place / "driver"),
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.multiplier": "1.0",
        "spark.speculation.quantile": "0.5",
        "spark.task.reaper.enabled": "true",
    }
    java_home = find_java().home
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": java_home}
    environment |= {"PYTHONPATH": str(SOURCES), "PYSPARK_PYTHON": sys.executable}
    with standalone(place / "cluster", java_home, hosts=("127.0.0.1", "127.0.0.2")) as url:
        arguments = [str(SOURCES), url, json.dumps(settings), str(attempts)]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SLOW_DRIVER), *arguments],
            cwd=place, capture_output=True, text=True, timeout=400, env=environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    for topic in ("written", "streamed"):
        assert (attempts / f"{topic}-1-1.ended").exists(), "no second attempt"
        assert not (attempts / f"{topic}-1-0.ended").exists(), "nobody was slow"
    with logstore.open(place / "store", read_only=True) as store:
        expected = sorted(record.value for log in store["in"] for record in log)
        for topic in ("written", "streamed"):
            assert sorted(record.value for log in store[topic] for record in log) == expected
        assert store.verify()
    count = len(list(attempts.glob("*-1.begun")))
    report("spark: speculative attempts", count=count, failures=0, seconds=perf_counter() - started)


@in_turn(3, 8)
def test_standalone_cluster_with_a_zip_and_with_an_archive(place):
    java_home = find_java().home
    python = python_without_logstore(place / "bare")
    environment = {"JAVA_HOME": java_home, "PYSPARK_PYTHON": str(python), "PYTHONPATH": ""}
    with standalone(place / "cluster", java_home) as url:
        package = logstore.spark.pack(place / "logstore.zip")
        workers = run_driver(
            place, url, ["streamed"], settings={"spark.submit.pyFiles": package}, **environment
        )
        workers += run_driver(place, url, [], package=package, **environment)
        for _, module, compiled in workers:
            assert "logstore.zip/" in module
            assert not compiled  # a compiled module cannot be loaded from a zip

        settings = {"spark.archives": f"{make_archive(place)}#environment"}
        environment["PYSPARK_PYTHON"] = "./environment/bin/python"
        workers = run_driver(place, url, ["written"], settings=settings, **environment)
        for directory, module, compiled in workers:
            assert module.startswith(f"{directory}/environment/")
            assert compiled == logstore.build_info().is_compiled


def make_archive(place):
    """An environment with logstore, packed; and unpacked where the driver runs, which plans reads there."""
    make_environment(place / "environment")
    site = site_of(place / "environment")
    for package in ("logstore", "pyspark_logstore"):
        shutil.copytree(SOURCES / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    (site / "others.pth").write_text(f"{site_of(place / 'bare')}\n")  # small: the rest is on this machine
    path = place / "environment.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for entry in sorted((place / "environment").iterdir()):
            archive.add(entry, entry.name)
    return path
