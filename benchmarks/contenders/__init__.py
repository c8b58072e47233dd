"""Who is measured: one class for each, all with the interface of :class:`.base.Contender`."""

from __future__ import annotations

import importlib.util

from benchmarks.contenders.base import Contender

LOGSTORE = "logstore"
"""The one that the others are measured against."""
GATHERING = "logstore-append"
"""The same engine used record by record; only in appends of one."""

PEERS = ("sqlite", "lmdb", "file")
NAMES = (LOGSTORE, GATHERING, *PEERS)


def is_available(name: str) -> bool:
    """Whether what the contender needs is installed."""
    return name != "lmdb" or importlib.util.find_spec("lmdb") is not None


def contender_class(name: str) -> type[Contender]:
    """The class of a name in :data:`NAMES`; imports only what that one needs, so that the memory of a process
    is its own."""
    if name == LOGSTORE:
        from benchmarks.contenders.logstore_log import LogstoreContender

        return LogstoreContender
    if name == GATHERING:
        from benchmarks.contenders.logstore_log import GatheringContender

        return GatheringContender
    if name == "sqlite":
        from benchmarks.contenders.sqlite import SqliteContender

        return SqliteContender
    if name == "lmdb":
        from benchmarks.contenders.lmdb_environment import LmdbContender

        return LmdbContender
    if name == "file":
        from benchmarks.contenders.plain_file import FileContender

        return FileContender
    raise ValueError(f"no contender is called {name!r}; there are {', '.join(NAMES)}")
