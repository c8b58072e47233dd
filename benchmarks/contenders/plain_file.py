"""A file with a size and a checksum in front of each batch, and an index in memory: the log that one writes
oneself in an afternoon.

It cannot tell a clean stop from a crash, so opening reads and checks the whole file, and cuts it at the first
batch that does not hold.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.records import Stored, WrongDataError

_BATCH = struct.Struct("<III")
"""Bytes after this header, CRC-32 of them, number of records."""
_RECORD = struct.Struct("<qHI")
"""Timestamp, size of the key, size of the value; both follow."""


class FileContender(Contender):
    """Positions and first offsets of all batches are in two lists."""

    settings: ClassVar[str] = (
        "one file: size and `zlib.crc32` of each batch, one `pwrite` for each, an index of batches in memory"
    )
    promise: ClassVar[str] = (
        "`fdatasync` only when flushed; a checksum of each batch, checked when reading; an index by offset, "
        "in memory only; opening truncates a torn end"
    )

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._is_durable = is_durable
        self._descriptor = os.open(f"{directory}/log.bin", os.O_RDWR | os.O_CREAT, 0o640)
        self._positions: list[int] = []
        self._bases: list[int] = []
        self._end = self._next_offset = 0
        self._load()

    def _load(self) -> None:
        while header := os.pread(self._descriptor, _BATCH.size, self._end):
            if len(header) < _BATCH.size:
                break
            body_bytes, crc, count = _BATCH.unpack(header)
            body = os.pread(self._descriptor, body_bytes, self._end + _BATCH.size)
            if zlib.crc32(body) != crc or len(body) < body_bytes:
                break
            self._add(count, _BATCH.size + body_bytes)
        os.ftruncate(self._descriptor, self._end)

    def _add(self, count: int, size_bytes: int) -> None:
        self._positions.append(self._end)
        self._bases.append(self._next_offset)
        self._end += size_bytes
        self._next_offset += count

    def append(self, batch: Any) -> None:
        pack = _RECORD.pack
        body = b"".join(
            [
                piece
                for key, value, timestamp_ms in batch
                for piece in (pack(timestamp_ms, len(key), len(value)), key, value)
            ]
        )
        data = _BATCH.pack(len(body), zlib.crc32(body), len(batch)) + body
        if os.pwrite(self._descriptor, data, self._end) < len(data):
            raise OSError("the disk took only part of a batch")
        if self._is_durable:
            os.fdatasync(self._descriptor)
        self._add(len(batch), len(data))

    def _read_batch(self, number: int) -> bytes:
        start = self._positions[number]
        end = self._positions[number + 1] if number + 1 < len(self._positions) else self._end
        data = os.pread(self._descriptor, end - start, start)
        body = data[_BATCH.size :]
        if zlib.crc32(body) != _BATCH.unpack_from(data)[1]:
            raise WrongDataError(f"the batch at {start} is damaged")
        return body

    def read_all(self) -> Iterator[Stored]:
        unpack, prefix_bytes = _RECORD.unpack_from, _RECORD.size
        for number, offset in enumerate(self._bases):
            body = self._read_batch(number)
            at, size_bytes = 0, len(body)
            while at < size_bytes:
                timestamp_ms, key_bytes, value_bytes = unpack(body, at)
                key_end = at + prefix_bytes + key_bytes
                stop = key_end + value_bytes
                yield offset, timestamp_ms, body[at + prefix_bytes : key_end], body[key_end:stop]
                offset, at = offset + 1, stop

    def read_one(self, offset: int) -> Any:
        number = bisect_right(self._bases, offset) - 1
        body = self._read_batch(number)
        unpack, prefix_bytes = _RECORD.unpack_from, _RECORD.size
        at = 0
        for _ in range(offset - self._bases[number]):
            _, key_bytes, value_bytes = unpack(body, at)
            at += prefix_bytes + key_bytes + value_bytes
        timestamp_ms, key_bytes, value_bytes = unpack(body, at)
        key_end = at + prefix_bytes + key_bytes
        return offset, timestamp_ms, body[at + prefix_bytes : key_end], body[key_end : key_end + value_bytes]

    def close(self) -> None:
        os.close(self._descriptor)

    @staticmethod
    def version() -> str:
        return "-"
