"""Topics as DataFrames and streams of Apache Spark, and jobs' output as topics.

``spark.read.format("logstore")`` and its three sisters come here through
:class:`~logstore.spark.source.LogstoreSource`, which Spark finds by itself (``pyspark_logstore``). The top
layer: it uses :mod:`logstore.store` and nothing of logstore uses it. It imports no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.spark.source import LogstoreSource


def __getattr__(name: str) -> Any:
    """What needs pyspark is imported when it is asked for."""
    if name == "LogstoreSource":
        from logstore.spark.source import LogstoreSource

        return LogstoreSource
    raise AttributeError(f"module 'logstore.spark' has no attribute {name!r}")


__all__ = ["LogstoreSource"]
