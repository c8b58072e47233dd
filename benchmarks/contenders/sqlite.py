"""SQLite from the standard library: one table, write-ahead log, one transaction for each batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.records import Row, Stored

_CREATE = (
    "CREATE TABLE IF NOT EXISTS log"
    " (offset INTEGER PRIMARY KEY, key BLOB, value BLOB NOT NULL, timestamp_ms INTEGER NOT NULL)"
)
_INSERT = "INSERT INTO log (key, value, timestamp_ms) VALUES (?, ?, ?)"
_SELECT = "SELECT offset - 1, timestamp_ms, key, value FROM log"


class SqliteContender(Contender):
    """Row ids begin at 1, offsets at 0. Batches of one are single statements, without BEGIN and COMMIT."""

    description: ClassVar[str] = (
        "`journal_mode=WAL`, `executemany` with one transaction for each batch; `synchronous=OFF` without "
        "flushes, `FULL` with. No index but the row id. No checksums on the table's pages"
    )

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._connection = sqlite3.connect(f"{directory}/log.sqlite", isolation_level=None)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode=WAL")
        self._execute("PRAGMA synchronous=" + ("FULL" if is_durable else "OFF"))
        self._execute(_CREATE)

    def append(self, rows: list[Row]) -> None:
        if len(rows) == 1:
            self._execute(_INSERT, rows[0])
            return
        self._execute("BEGIN")
        self._connection.executemany(_INSERT, rows)
        self._execute("COMMIT")

    def read_all(self) -> Iterator[Stored]:
        return self._execute(f"{_SELECT} ORDER BY offset")

    def read_one(self, offset: int) -> Stored:
        row: Stored = self._execute(f"{_SELECT} WHERE offset = ?", (offset + 1,)).fetchone()
        return row

    def close(self) -> None:
        self._connection.close()

    @staticmethod
    def version() -> str:
        return sqlite3.sqlite_version
