"""The little language of the tests about compaction: rows by key, transactions, rounds, and the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logstore.model import Isolation, NewRecord, Record
from logstore.partition.log import Log
from tests.partition.helpers_rules import crash, headers_of, identity, open_log

RETENTION_MS = 1000
"""``delete_retention_ms`` of these logs."""

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "delete_retention_ms": RETENTION_MS,
    "file_delete_delay_ms": 0,
}


def open_compacted(path: Path, **settings: Any) -> Log:
    return open_log(path, **SETTINGS | settings)


def reopen(log: Log, *, how: str = "clean", keep_snapshots: bool = True) -> Log:
    """Open the log as the next process does: after a clean stop, or after a kill."""
    clock, config, path = log._context.clock, log.config, Path(log.directory)
    if how == "clean":
        log.close()
    else:
        crash(log)
    if not keep_snapshots:
        for snapshot in path.glob("*.snapshot"):
            snapshot.unlink()
    settings = {name: getattr(config, name) for name in config.__slots__}
    return open_log(path, clock=clock, **settings)


def put(log: Log, **values: str | None) -> range:
    """One batch with a record for each keyword: ``put(log, a="1", b=None)``."""
    return log.extend([row(key, value) for key, value in values.items()])


def row(key: str, value: str | None) -> NewRecord:
    return NewRecord(None if value is None else value.encode(), key.encode())


def transact(log: Log, producer: int, sequence: int, **values: str | None) -> range:
    """Append one batch in the producer's transaction."""
    rows = [row(key, value) for key, value in values.items()]
    return log.extend(rows, producer=identity(sequence, producer=producer, transactional=True))


def end(log: Log, producer: int, *, committed: bool) -> int:
    """Append the marker; returns its offset."""
    return log.append_end_marker(producer, 0, committed=committed).base_offset


def left(log: Log, **options: Any) -> dict[int, tuple[str, str | None]]:
    """Offset -> key and value, for everything in the log."""
    options = {"isolation": Isolation.LOG_END} | options
    return {record.offset: shown(record) for record in log.read(**options)}


def shown(record: Record) -> tuple[str, str | None]:
    key, value = record.key, record.value
    return (key or b"").decode(), None if value is None else value.decode()


def batches_at(log: Log) -> dict[int, int]:
    """Base offset -> record count, for every batch on disk."""
    return {header.base_offset: header.record_count for header in headers_of(log)}
