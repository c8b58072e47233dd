"""The contenders: one class for each, all with the interface of :class:`.base.Contender`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from benchmarks.contenders.base import Contender

LOGSTORE = "logstore"
"""The contender that the others are compared with."""
PLAIN = "logstore-plain"
"""The same without the compiled module."""
GATHERING = "logstore-append"
"""The same engine used record by record; only in appends of one."""
ON_DEMAND = "logstore-on-demand"
COLUMNS = "logstore-columns"
CODECS = ("logstore-gzip", "logstore-snappy", "logstore-lz4", "logstore-zstd")

SQLITE = "sqlite"
SQLITE_TIME = "sqlite-time"
LMDB = "lmdb"
ROCKSDICT = "rocksdict"
ROCKSDICT_ZSTD = "rocksdict-zstd"
AIOKAFKA = "aiokafka"
KAFKA_PYTHON = "kafka-python"
ARROW = "arrow"
ARROW_ROWS = "arrow-rows"
FILE = "file"
LIMIT = "limit"
"""The limit of the same system calls: writing ready bytes, and ``cat``."""


class Entry(NamedTuple):
    """Where a contender is, and what it needs."""

    module: str
    class_name: str
    needs: str = ""
    """A package that may not be installed."""
    environment: Mapping[str, str] = {}
    """Of its processes."""
    reads: str = ""
    """The contender whose store it reads; its own if empty."""


_PLAIN_LOOPS = {"LOGSTORE_LOOPS": "plain"}
_ENTRIES = {
    LOGSTORE: Entry("logstore_log", "LogstoreContender"),
    PLAIN: Entry("logstore_log", "PlainContender", environment=_PLAIN_LOOPS),
    GATHERING: Entry("logstore_log", "GatheringContender"),
    ON_DEMAND: Entry("logstore_log", "OnDemandContender", reads=LOGSTORE),
    COLUMNS: Entry("logstore_columns", "ColumnsContender", "pyarrow"),
    **{name: Entry("logstore_log", f"{name[9:].title()}Contender") for name in CODECS},
    SQLITE: Entry("sqlite", "SqliteContender"),
    SQLITE_TIME: Entry("sqlite", "TimeIndexContender"),
    LMDB: Entry("lmdb_environment", "LmdbContender", "lmdb"),
    ROCKSDICT: Entry("rocksdb", "RocksContender", "rocksdict"),
    ROCKSDICT_ZSTD: Entry("rocksdb", "RocksZstdContender", "rocksdict"),
    AIOKAFKA: Entry("aiokafka_codec", "AiokafkaContender", "aiokafka"),
    KAFKA_PYTHON: Entry("kafka_python_codec", "KafkaPythonContender", "kafka"),
    ARROW: Entry("arrow_stream", "ArrowContender", "pyarrow"),
    ARROW_ROWS: Entry("arrow_stream", "ArrowRowsContender", "pyarrow"),
    FILE: Entry("plain_file", "FileContender"),
    LIMIT: Entry("ready_bytes", "LimitContender"),
}
NAMES = tuple(_ENTRIES)
OURS = (LOGSTORE, PLAIN, GATHERING, ON_DEMAND, COLUMNS, *CODECS)
BASES = {ARROW: COLUMNS, ROCKSDICT_ZSTD: "logstore-zstd"}
"""The variant of logstore that a contender is compared with, if not :data:`LOGSTORE` itself."""
PEERS = tuple(name for name in NAMES if name not in OURS)


def entry_of(name: str) -> Entry:
    """
    Raises:
        ValueError: there is no contender of that name.
    """
    if name not in _ENTRIES:
        raise ValueError(f"no contender is called {name!r}; there are {', '.join(NAMES)}")
    return _ENTRIES[name]


def contender_class(name: str) -> type[Contender]:
    """The class of a name in :data:`NAMES`; imports only what that class needs, so that the process has no
    other memory."""
    entry = entry_of(name)
    module = import_module(f"{__name__}.{entry.module}")
    kind: type[Contender] = getattr(module, entry.class_name)
    return kind


def is_installed(name: str) -> bool:
    """Whether the package that a contender needs is installed; imports nothing."""
    needs = entry_of(name).needs
    return not needs or importlib.util.find_spec(needs) is not None


def why_missing(name: str) -> str | None:
    """Why a contender cannot be measured here; None if it can."""
    if not is_installed(name):
        return f"{entry_of(name).needs} is not installed"
    return contender_class(name).why_missing()


def is_available(name: str) -> bool:
    """Whether the contender can be measured here."""
    return why_missing(name) is None
