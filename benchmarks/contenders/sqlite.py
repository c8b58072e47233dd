"""SQLite from the standard library: one table, write-ahead log, one transaction for each batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.records import Row, Stored

_CREATE = (
    "CREATE TABLE IF NOT EXISTS log"
    " (offset INTEGER PRIMARY KEY, key BLOB, value BLOB NOT NULL, timestamp_ms INTEGER NOT NULL)"
)
_INSERT = "INSERT INTO log (key, value, timestamp_ms) VALUES (?, ?, ?)"
_SELECT = "SELECT offset - 1, timestamp_ms, key, value FROM log"
_MAPPED_BYTES = 1 << 30
_BUSY_SECONDS = 60.0


class SqliteContender(Contender):
    """Row ids begin at 1, offsets at 0. Batches of one are single statements, without BEGIN and COMMIT."""

    settings: ClassVar[str] = (
        "`journal_mode=WAL`, `executemany` with one transaction for each batch; `synchronous=OFF` without "
        "flushes, `FULL` with; reads through `mmap_size`"
    )
    promise: ClassVar[str] = (
        "transactions; without flushes, a power cut may damage the whole database; no checksums on the "
        "table's pages; an index by offset"
    )

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._directory, self._is_durable = directory, is_durable
        self._connection = sqlite3.connect(
            f"{directory}/log.sqlite", isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
        )
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode=WAL")
        self._execute("PRAGMA synchronous=" + ("FULL" if is_durable else "OFF"))
        self._execute(f"PRAGMA mmap_size={_MAPPED_BYTES}")
        self._execute(_CREATE)

    def append(self, batch: Any) -> None:
        if len(batch) == 1:
            self._execute(_INSERT, batch[0])
            return
        self._execute("BEGIN")
        self._connection.executemany(_INSERT, batch)
        self._execute("COMMIT")

    def append_one(self, row: Row) -> None:
        self._execute(_INSERT, row)

    def connect(self) -> SqliteContender:
        """A connection for each thread: SQLite locks them against one another."""
        return SqliteContender(self._directory, is_durable=self._is_durable)

    def read_all(self) -> Iterator[Stored]:
        return self._execute(f"{_SELECT} ORDER BY offset")

    def read_one(self, offset: int) -> Any:
        return self._execute(f"{_SELECT} WHERE offset = ?", (offset + 1,)).fetchone()

    def close(self) -> None:
        self._connection.close()

    @staticmethod
    def version() -> str:
        return sqlite3.sqlite_version


class TimeIndexContender(SqliteContender):
    """With what it needs to find a record by its time."""

    settings: ClassVar[str] = "as sqlite, with an index on the timestamp"
    promise: ClassVar[str] = "as sqlite, with an index by time"

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        super().__init__(directory, is_durable=is_durable)
        self._execute("CREATE INDEX IF NOT EXISTS by_time ON log (timestamp_ms)")

    def read_at_time(self, timestamp_ms: int) -> Any:
        found = self._execute(
            f"{_SELECT} WHERE timestamp_ms >= ? ORDER BY timestamp_ms LIMIT 1", (timestamp_ms,)
        )
        return found.fetchone()
