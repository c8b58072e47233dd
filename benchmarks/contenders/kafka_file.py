"""A file of Kafka batches, as somebody would write it who has only a Kafka client's record codec.

Both clients' codecs have the same interface; a subclass says which one. Positions of about every mebibyte are
kept in memory, so that a read takes whole batches; there is no other index. Opening walks the sizes in the
headers, checks nothing and cuts nothing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.records import Row, Stored, WrongDataError

PROMISE = (
    "`fdatasync` only when flushed; CRC-32C of each batch, checked when reading; no index and no recovery: "
    "just a file"
)

_PIECE_BYTES = 1 << 20
_LENGTH_POSITION = 8
_LENGTH_OVERHEAD_BYTES = 12
_LAST_DELTA_POSITION = 23
_HEADER_BYTES = 61
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_NO_LIMIT_BYTES = 1 << 30
_NO_HEADERS: list[tuple[str, bytes | None]] = []


def new_builder(builder_class: Any) -> Any:
    """An empty batch of no producer, without compression, as large as it gets."""
    return builder_class(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_NO_LIMIT_BYTES,
    )


class KafkaFile(Contender):
    """Built by ``builder_class``, read by ``records_class``."""

    promise: ClassVar[str] = PROMISE
    builder_class: ClassVar[Any]
    records_class: ClassVar[Any]

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._is_durable = is_durable
        self._descriptor = os.open(f"{directory}/log.bin", os.O_RDWR | os.O_CREAT, 0o640)
        self._pieces = [0]
        self._end = self._next_offset = 0
        while len(header := os.pread(self._descriptor, _HEADER_BYTES, self._end)) == _HEADER_BYTES:
            size_bytes = _INT32.unpack_from(header, _LENGTH_POSITION)[0] + _LENGTH_OVERHEAD_BYTES
            self._add(_INT32.unpack_from(header, _LAST_DELTA_POSITION)[0] + 1, size_bytes)

    def _add(self, count: int, size_bytes: int) -> None:
        self._next_offset += count
        self._end += size_bytes
        if self._end - self._pieces[-1] >= _PIECE_BYTES:
            self._pieces.append(self._end)

    def append(self, batch: list[Row]) -> None:
        builder = new_builder(self.builder_class)
        add, headers = builder.append, _NO_HEADERS
        for delta, (key, value, timestamp_ms) in enumerate(batch):
            add(delta, timestamp_ms, key, value, headers)
        data = builder.build()
        _INT64.pack_into(data, 0, self._next_offset)
        if os.pwrite(self._descriptor, data, self._end) < len(data):
            raise OSError("the disk took only part of a batch")
        if self._is_durable:
            os.fdatasync(self._descriptor)
        self._add(len(batch), len(data))

    def _batches(self) -> Iterator[Any]:
        for start, stop in zip(self._pieces, [*self._pieces[1:], self._end], strict=True):
            records = self.records_class(os.pread(self._descriptor, stop - start, start))
            while (batch := records.next_batch()) is not None:
                if not batch.validate_crc():
                    raise WrongDataError(f"the batch at offset {batch.base_offset} is damaged")
                yield batch

    def read_all(self) -> Iterator[Stored]:
        for batch in self._batches():
            for record in batch:
                yield record.offset, record.timestamp, record.key, record.value

    def sum_values(self) -> tuple[int, int]:
        count = size_bytes = 0
        for batch in self._batches():
            for record in batch:
                count += 1
                size_bytes += len(record.value)
        return count, size_bytes

    def close(self) -> None:
        os.close(self._descriptor)
