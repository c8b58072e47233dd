"""logstore, with its default settings but for retention: the rows' timestamps are old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import logstore.store  # with the first use; imports are off the clock
from benchmarks.contenders.base import Contender
from benchmarks.records import Row, Stored

if not logstore.build_info().is_compiled:
    import crc32c  # noqa: F401 - the same with the first checksum

_TOPIC = "records"
_PROMISE = (
    "flushed in the background within a second, or on request; CRC-32C of each batch, checked when reading; "
    "indexes by offset and by time; readers in other processes; files that Kafka can open"
)


class LogstoreContender(Contender):
    """One topic of one partition, written with ``extend``."""

    settings: ClassVar[str] = "`Log.extend` for each batch, `Log.read`, default settings"
    promise: ClassVar[str] = _PROMISE
    codec: ClassVar[str] = "uncompressed"

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._is_durable = is_durable
        self._store = logstore.open(directory)
        config = logstore.TopicConfig(retention_ms=-1, compression_type=self.codec)
        self._log = self._store.require_topic(_TOPIC, config=config)[0]
        self._find: Any = getattr(self._log, "record_at", self._read_first)

    def _read_first(self, offset: int) -> Any:
        return next(self._log.read(offset, offset + 1))

    def append(self, batch: Any) -> None:
        self._log.extend(batch, flush=self._is_durable)

    def append_one(self, row: Row) -> None:
        key, value, timestamp_ms = row
        self._log.append(value, key=key, timestamp_ms=timestamp_ms, flush=self._is_durable)

    def read_all(self) -> Iterator[Stored]:
        return map(self.as_stored, self._log.read())

    def sum_values(self) -> tuple[int, int]:
        return self._sum(self._log.read())

    @staticmethod
    def _sum(records: Iterator[Any]) -> tuple[int, int]:
        count = size_bytes = 0
        for record in records:
            count += 1
            size_bytes += len(record.value)
        return count, size_bytes

    def read_one(self, offset: int) -> Any:
        return self._find(offset)

    def read_at_time(self, timestamp_ms: int) -> Any:
        return self._find(self._log.offset_at(timestamp_ms))

    @staticmethod
    def as_stored(record: Any) -> Stored:
        return record.offset, record.timestamp_ms, record.key, record.value

    def close(self) -> None:
        self._store.close()

    @staticmethod
    def version() -> str:
        return logstore.__version__


class PlainContender(LogstoreContender):
    """Its processes run with ``LOGSTORE_LOOPS=plain``."""

    settings: ClassVar[str] = "as logstore, with `LOGSTORE_LOOPS=plain`: no compiled module"
    promise: ClassVar[str] = "as logstore"


class GatheringContender(LogstoreContender):
    """Record by record with ``append``."""

    settings: ClassVar[str] = "`Log.append` for each record, default settings"
    promise: ClassVar[str] = (
        "as logstore, but weaker than the others in the same table: for up to 5 ms (`linger_ms`) the record "
        "is only in memory"
    )

    def append(self, batch: Any) -> None:
        append, is_durable = self._log.append, self._is_durable
        for key, value, timestamp_ms in batch:
            append(value, key=key, timestamp_ms=timestamp_ms, flush=is_durable)

    def settle(self) -> None:
        self._log.log_end_offset  # noqa: B018 - whoever looks at the log makes it write what it has gathered


class OnDemandContender(LogstoreContender):
    """Reads what ``extend`` wrote; a record's fields are made when they are looked at."""

    settings: ClassVar[str] = "`Log.read(on_demand=True)`: only the value of each record is used"
    promise: ClassVar[str] = "as logstore"

    def sum_values(self) -> tuple[int, int]:
        return self._sum(self._log.read(on_demand=True))  # type: ignore[call-arg, unused-ignore]

    @staticmethod
    def why_missing() -> str | None:
        takes = logstore.Log.read.__kwdefaults__ or {}
        return None if "on_demand" in takes else "this logstore reads nothing on demand"


class _CompressingContender(LogstoreContender):
    promise: ClassVar[str] = "as logstore"

    def __init_subclass__(cls) -> None:
        cls.settings = f"as logstore, with `compression_type={cls.codec}`"


class GzipContender(_CompressingContender):
    codec: ClassVar[str] = "gzip"


class SnappyContender(_CompressingContender):
    codec: ClassVar[str] = "snappy"


class Lz4Contender(_CompressingContender):
    codec: ClassVar[str] = "lz4"


class ZstdContender(_CompressingContender):
    codec: ClassVar[str] = "zstd"
