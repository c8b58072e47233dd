"""Kafka's log as a Python library: topics and partitions of ordinary Kafka segment files, no server.

::

    import logstore

    with logstore.open("data") as store:
        orders = store.require_topic("orders", partitions=4)
        orders.append(b"paid", key=b"alice")
        for record in orders[0].read():
            print(record.offset, record.key, record.value)
"""

from logstore import _version

TYPE_CHECKING = False  # as type checkers know it; the typing module costs more than all else here
if TYPE_CHECKING:
    from typing import Any

    from logstore.build import build_info
    from logstore.config import StoreConfig, TopicConfig
    from logstore.connected import connect
    from logstore.errors import (
        CorruptionError,
        FencedError,
        LogstoreError,
        RetriableError,
        StorageError,
        UsageError,
    )
    from logstore.exchange.handover import handover
    from logstore.logdir.cleaner import LogCleaner
    from logstore.model import (
        Isolation,
        NewRecord,
        ProducerIdentity,
        Record,
        TopicPartition,
    )
    from logstore.partition.cleaning.reports import CompactionReport, EraseReport
    from logstore.partition.log import Log
    from logstore.segment_files.indexes import OffsetIndex
    from logstore.segment_files.segment import Segment
    from logstore.sharing import open_or_connect
    from logstore.store import Store
    from logstore.store import open_store as open
    from logstore.topic import Topic

__version__ = _version.VERSION

_MODULES = {
    "CompactionReport": "partition.cleaning.reports",
    "CorruptionError": "errors",
    "EraseReport": "partition.cleaning.reports",
    "FencedError": "errors",
    "Isolation": "model",
    "Log": "partition.log",
    "LogCleaner": "logdir.cleaner",
    "LogstoreError": "errors",
    "NewRecord": "model",
    "OffsetIndex": "segment_files.indexes",
    "ProducerIdentity": "model",
    "Record": "model",
    "RetriableError": "errors",
    "Segment": "segment_files.segment",
    "StorageError": "errors",
    "Store": "store",
    "StoreConfig": "config",
    "Topic": "topic",
    "TopicConfig": "config",
    "TopicPartition": "model",
    "UsageError": "errors",
    "build_info": "build",
    "connect": "connected",
    "handover": "exchange.handover",
    "open": "store",
    "open_or_connect": "sharing",
}
"""Where each name comes from. It is imported when it is first asked for: a program that imports logstore pays
for what it uses, and one that only may use it for next to nothing."""

_SUBMODULES = ("aio", "bridge", "errors", "metrics", "replica", "security", "segment_files", "testing")
"""``logstore.replica.Node`` works after ``import logstore``, too."""


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"logstore.{name}")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'logstore' has no attribute {name!r}")
    value = getattr(import_module(f"logstore.{module}"), "open_store" if name == "open" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What a completion in a shell offers: also what was not asked for yet."""
    return sorted({*globals(), *__all__, *_SUBMODULES} - {"TYPE_CHECKING"})


__all__ = [
    "CompactionReport",
    "CorruptionError",
    "EraseReport",
    "FencedError",
    "Isolation",
    "Log",
    "LogCleaner",
    "LogstoreError",
    "NewRecord",
    "OffsetIndex",
    "ProducerIdentity",
    "Record",
    "RetriableError",
    "Segment",
    "StorageError",
    "Store",
    "StoreConfig",
    "Topic",
    "TopicConfig",
    "TopicPartition",
    "UsageError",
    "build_info",
    "connect",
    "handover",
    "open",
    "open_or_connect",
]
