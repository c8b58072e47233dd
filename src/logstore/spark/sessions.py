"""Starts a Spark session with the data source, even on a machine without Java."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from logstore._version import how_to_install
from logstore.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    name: str = "logstore", *, cluster: str | None = None, settings: Mapping[str, Any] | None = None
) -> SparkSession:
    """A session in which ``format("logstore")`` works. Returns the running session if there is one.

    Call it again in each thread that begins a write or a query: Spark looks for the source in the session
    that is active in the thread, and only the thread that has started the session has one by itself.

    Finds Java by :func:`logstore.spark.java.find_java`, and passes it to Spark without changing this
    process's environment for good. :func:`settings_for` has the settings it makes; ``settings`` overrides
    them.

    Args:
        name: the application's name in Spark.
        cluster: Spark's master URL: ``local[2]``, ``spark://host:7077``, ... Default: what spark-submit was
            given, or all cores of this machine without spark-submit.
        settings: Spark's settings, by name.

    Raises:
        UsageError: Spark must be started here, and there is no Java for it; says what to install.
        ImportError: pyspark is not installed.
    """
    try:
        from pyspark.core.context import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(f"a Spark session needs pyspark: {how_to_install('spark')} ({error})") from None

    chosen = {key: _as_text(value) for key, value in (settings or {}).items()}
    cluster = cluster or chosen.pop("spark.master", None) or (None if _is_submitted() else "local[*]")
    builder = SparkSession.builder.appName(name)
    if not _is_running():
        chosen = settings_for(cluster) | chosen
        if cluster is not None:
            builder = builder.master(cluster)
    is_started = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    with _environment({} if is_started else _environment_of_driver(cluster, chosen)):
        for key, value in chosen.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    _activate(spark)
    if not _is_known(spark):
        register(spark)
    return spark


def _is_running() -> bool:
    """Whether there is a session, started in this thread or in another one."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True


def _activate(spark: SparkSession) -> None:
    """Make a session the one of this thread, where there are such things."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(AttributeError, Py4JError):  # Spark Connect; another version of Spark
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def _is_submitted() -> bool:
    """Whether spark-submit or the environment decides what Spark runs on."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "PYSPARK_SUBMIT_ARGS" in os.environ


def _is_known(spark: SparkSession) -> bool:
    """Whether the session has found the source by itself: registering it again would log a warning."""
    from py4j.protocol import Py4JError

    try:
        return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists("logstore"))
    except (AttributeError, Py4JError):  # Spark Connect; a broken module; another version of Spark
        return False


def register(spark: SparkSession) -> None:
    """Make ``format("logstore")`` known to a session.

    Sessions find it by themselves where this package is installed (``pyspark_logstore``). Call this if they
    do not: another module named ``pyspark_...`` that fails to import hides all of them. Also call it after
    ``addPyFile``: reads are planned with the files that exist at this moment.
    """
    from logstore.spark.source import LogstoreSource

    spark.dataSource.register(LogstoreSource)


def settings_for(cluster: str | None) -> dict[str, str]:
    """The settings that :func:`session` makes for a cluster; all except the first two only for local ones."""
    settings = {
        # DataFrames to and from pandas go by columns; by rows they take many times as long.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    if not _is_local(cluster):
        return settings
    if hasattr(socket, "AF_UNIX"):
        # Between Spark and its Python processes: a tenth faster than TCP, and no other user can connect.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    return settings | {
        # No other machine should reach it, and a machine's own name need not resolve.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The UI listens on all addresses of the machine, without a password.
        "spark.ui.enabled": "false",
        # The default is 200, for a cluster: each costs some 30 ms of Python in every micro-batch.
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    }


def _is_local(cluster: str | None) -> bool:
    """Whether this process starts all of Spark on this machine; true for ``local-cluster[...]`` too."""
    return cluster is not None and cluster.startswith("local")


def _environment_of_driver(cluster: str | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that Spark reads when it starts its JVM."""
    environment = {"JAVA_HOME": find_java().home}
    shipped = [path for path in settings.get("spark.submit.pyFiles", "").split(",") if os.path.isfile(path)]
    if shipped:  # else the process that plans streams beside the driver does not find them (Spark 4.3.0)
        paths = [*map(os.path.abspath, shipped), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if _is_local(cluster) and "PYSPARK_PYTHON" not in os.environ:
        environment["PYSPARK_PYTHON"] = sys.executable  # Spark's own default is the first python3 on the PATH
    return environment


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
