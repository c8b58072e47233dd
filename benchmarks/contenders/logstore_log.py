"""logstore, with its default settings but for retention: the rows' timestamps are old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import crc32c  # noqa: F401 - logstore imports it with the first checksum; imports are off the clock

import logstore
from benchmarks.contenders.base import Contender
from benchmarks.records import Row, Stored

_TOPIC = "records"


class LogstoreContender(Contender):
    """One topic of one partition, written with ``extend``."""

    description: ClassVar[str] = (
        "`Log.extend`, default settings. Checks the CRC-32C of each batch when reading, flushes in the "
        "background within a second, keeps an index by offset and one by time"
    )

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._is_durable = is_durable
        self._store = logstore.open(directory)
        self._log = self._store.require_topic(_TOPIC, config=logstore.TopicConfig(retention_ms=-1))[0]

    def append(self, rows: list[Row]) -> None:
        self._log.extend(rows, flush=self._is_durable)

    def read_all(self) -> Iterator[Stored]:
        return self._log.read()

    def read_one(self, offset: int) -> Stored:
        return next(self._log.read(offset, offset + 1))

    def close(self) -> None:
        self._store.close()

    @staticmethod
    def version() -> str:
        return logstore.__version__


class GatheringContender(LogstoreContender):
    """Record by record with ``append``."""

    description: ClassVar[str] = (
        "`Log.append`, default settings. Promises less than the others in the same table: for up to 5 ms "
        "(`linger_ms`) the record is only in memory"
    )

    def append(self, rows: list[Row]) -> None:
        append, is_durable = self._log.append, self._is_durable
        for key, value, timestamp_ms in rows:
            append(value, key=key, timestamp_ms=timestamp_ms, flush=is_durable)

    def settle(self) -> None:
        self._log.log_end_offset  # noqa: B018 - whoever looks at the log makes it write what it has gathered
