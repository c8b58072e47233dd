"""Topics as DataFrames and streams of Apache Spark, and jobs' output as topics.

``spark.read.format("logstore")`` and its three sisters use
:class:`~logstore.spark.source.LogstoreSource`, which Spark finds by itself (``pyspark_logstore``). This is a
top layer: it uses :mod:`logstore.store`, and no other part of logstore uses it. This module does not import
pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.spark.commits import recover
    from logstore.spark.maintenance import CompactionJob, compact, verify
    from logstore.spark.parquet_output import ParquetOutput
    from logstore.spark.sessions import register, session
    from logstore.spark.shipping import pack
    from logstore.spark.source import LogstoreSource
    from logstore.spark.tables import NewRecords, current_table, new_records

_MODULES = {
    "CompactionJob": "maintenance",
    "LogstoreSource": "source",
    "NewRecords": "tables",
    "ParquetOutput": "parquet_output",
    "compact": "maintenance",
    "current_table": "tables",
    "new_records": "tables",
    "pack": "shipping",
    "recover": "commits",
    "register": "sessions",
    "session": "sessions",
    "verify": "maintenance",
}


def __getattr__(name: str) -> Any:
    """Imports the modules that need pyspark at their first use."""
    if name in _MODULES:
        return getattr(import_module(f"logstore.spark.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'logstore.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What ``help()`` and a completion in a shell or notebook offer: also what was not asked for yet."""
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})


__all__ = [
    "CompactionJob",
    "LogstoreSource",
    "NewRecords",
    "ParquetOutput",
    "compact",
    "current_table",
    "new_records",
    "pack",
    "recover",
    "register",
    "session",
    "verify",
]
