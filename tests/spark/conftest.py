"""One Spark session for all tests of a process, or the reason why there is none.

If pyspark, pyarrow or Java is missing, a test that uses ``spark`` is skipped with a reason that says what to
install. Such tests are marked ``slow``; code that needs no session is tested without one.
"""

from __future__ import annotations

import functools
import importlib.util

import pytest

import logstore.spark
from logstore.errors import UsageError
from logstore.spark.java import find_java


def missing_python() -> str | None:
    """Why the readers and writers cannot be imported; None if they can."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install 'embedded-logstore[spark]'"
    return None


@functools.cache
def missing() -> str | None:
    """Why Spark cannot run here; None if it can."""
    if missing_python() is not None:
        return missing_python()
    try:
        find_java()
    except UsageError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        if "/tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))  # of pyspark's sockets
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))


def settings_in(work) -> dict[str, str]:
    """Settings of a small session that keeps its files below ``work``."""
    return {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={work}",
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    work = tmp_path_factory.mktemp("spark")
    session = logstore.spark.session("logstore tests", cluster="local[2]", settings=settings_in(work))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
