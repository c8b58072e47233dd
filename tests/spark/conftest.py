"""One Spark session for all tests of a process, and why there is none where something is missing.

A test that asks for ``spark`` is skipped, with a reason that says what to install, where pyspark, pyarrow or
Java is missing. Such tests are marked ``slow``; what needs no session is tested without.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

import pytest


def missing_python() -> str | None:
    """What keeps the readers and writers from being imported."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install 'logstore[spark]'"
    return None


def missing() -> str | None:
    """What keeps Spark from running here."""
    if missing_python() is not None:
        return missing_python()
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "there is no Java: install Java 17 or newer and set JAVA_HOME"
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        if "/tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))  # of pyspark's sockets
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    from logstore.spark.source import LogstoreSource

    work = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # also where another python comes first on the PATH
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Dderby.system.home=" + str(work),
    }
    builder = SparkSession.builder.master("local[2]").appName("logstore tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(LogstoreSource)
    yield session
    session.stop()
