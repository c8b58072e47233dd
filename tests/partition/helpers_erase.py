"""The little language of the tests about erasing: what the files hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logstore.errors import CorruptionError
from logstore.format.batch import decode_batch
from logstore.format.loops import scan_batches
from logstore.model import Isolation, Record
from logstore.partition.log import Log
from tests.partition.helpers_rules import headers_of


def has_trace(path: Path | str, needle: bytes) -> bool:
    """Whether any file below holds the bytes: as they are, or in a record of a batch."""
    for file in Path(path).rglob("*"):
        if file.is_file() and file.name != ".lock":  # closing that file would drop the lock
            data = file.read_bytes()
            if needle in data or in_records(data, needle):
                return True
    return False


def in_records(data: bytes, needle: bytes) -> bool:
    """Whether a record of the batches at the beginning of ``data`` holds the bytes."""
    for position, header in scan_batches(data, 0, len(data), check=False)[0]:
        try:
            records = decode_batch(data, position, header)
        except CorruptionError:
            continue
        if any(needle in part for record in records for part in parts_of(record)):
            return True
    return False


def parts_of(record: Record) -> list[bytes]:
    headers = [part for name, value in record.headers for part in (name.encode(), value)]
    return [part for part in (record.key, record.value, *headers) if part is not None]


def left(log: Log, **options: Any) -> dict[int, bytes | None]:
    """Offset -> value, for all readable records."""
    options = {"isolation": Isolation.LOG_END} | options
    return {record.offset: record.value for record in log.read(**options)}


def is_dense(log: Log) -> bool:
    """Whether batches follow each other without a gap from the log start to the log end."""
    headers = headers_of(log)
    ends = [log.log_start_offset, *(header.next_offset for header in headers)]
    return ends[:-1] == [header.base_offset for header in headers] and ends[-1] == log.log_end_offset
