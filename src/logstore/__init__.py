"""Kafka's log as a Python library: topics and partitions of ordinary Kafka segment files, no server.

::

    import logstore

    with logstore.open("data") as store:
        orders = store.require_topic("orders", partitions=4)
        orders.append(b"paid", key=b"alice")
        for record in orders[0].read():
            print(record.offset, record.key, record.value)
"""

from typing import TYPE_CHECKING, Any

from logstore import _version
from logstore.build import build_info
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import (
    CorruptionError,
    FencedError,
    LogstoreError,
    RetriableError,
    StorageError,
    UsageError,
)
from logstore.model import (
    Isolation,
    NewRecord,
    ProducerIdentity,
    Record,
    TopicPartition,
)
from logstore.partition.cleaning.reports import CompactionReport, EraseReport
from logstore.partition.log import Log
from logstore.store import Store
from logstore.store import open_store as open
from logstore.topic import Topic

if TYPE_CHECKING:
    from logstore.connected import connect
    from logstore.exchange.handover import handover
    from logstore.logdir.cleaner import LogCleaner
    from logstore.segment_files.indexes import OffsetIndex
    from logstore.segment_files.segment import Segment
    from logstore.sharing import open_or_connect

__version__ = _version.VERSION


def __getattr__(name: str) -> Any:
    """What few programs need is imported when they do."""
    if name == "LogCleaner":
        from logstore.logdir.cleaner import LogCleaner

        return LogCleaner
    if name == "connect":
        from logstore.connected import connect

        return connect
    if name == "open_or_connect":
        from logstore.sharing import open_or_connect

        return open_or_connect
    if name == "handover":
        from logstore.exchange.handover import handover

        return handover
    if name in ("OffsetIndex", "Segment"):
        from logstore import segment_files

        return getattr(segment_files, name)
    raise AttributeError(f"module 'logstore' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What a completion in a shell offers: no names of the typing module, and also what is imported late."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING"})


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
