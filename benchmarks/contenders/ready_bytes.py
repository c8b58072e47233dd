"""The limit: bytes that are ready are written, and read by ``cat``. Whoever stores records by the same system
calls cannot be faster.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.records import Row, Stored
from logstore.format.batch import check_batch, decode_batch, decode_header, encode_batch

_LEAST_READ_BYTES = 1 << 29


class LimitContender(Contender):
    """The bytes are batches as logstore writes them, so that the sizes are the same."""

    settings: ClassVar[str] = (
        "batches encoded before the clock starts, one `os.write` for each; `cat file > /dev/null` (with the "
        "file many times, so that starting `cat` does not count)"
    )
    looks_at_values: ClassVar[bool] = False
    promise: ClassVar[str] = "nothing: no encoding, checking or decoding, and no Python objects"

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._is_durable = is_durable
        self._path = f"{directory}/log.bin"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        self._next_offset = sum(header.record_count for header in self._headers())

    def _headers(self) -> Iterator[Any]:
        position = 0
        while len(data := os.pread(self._descriptor, 61, position)) == 61:
            header = decode_header(data)
            yield header
            position += header.size_bytes

    def prepare(self, rows: list[Row]) -> Any:
        keys, values, timestamps = zip(*rows, strict=True)
        first = self._next_offset
        self._next_offset = first + len(rows)
        return bytes(encode_batch(keys, values, timestamps, base_offset=first))

    def append(self, batch: Any) -> None:
        os.write(self._descriptor, batch)
        if self._is_durable:
            os.fdatasync(self._descriptor)

    def read_all(self) -> Iterator[Stored]:
        position = 0
        for header in self._headers():
            data = os.pread(self._descriptor, header.size_bytes, position)
            check_batch(data, 0, decode_header(data))
            for record in decode_batch(data, 0, header):
                assert record.key is not None
                assert record.value is not None
                yield record.offset, record.timestamp_ms, record.key, record.value
            position += header.size_bytes

    def sum_values(self) -> tuple[int, int]:
        passes = max(_LEAST_READ_BYTES // max(os.stat(self._path).st_size, 1), 1)
        cat_file(self._path, passes)
        return passes * self._next_offset, 0

    def close(self) -> None:
        os.close(self._descriptor)

    @staticmethod
    def version() -> str:
        return "-"


def cat_file(path: str, times: int) -> None:
    """``cat`` the file that many times to /dev/null, in one process."""
    with open("/dev/null", "wb") as nowhere:
        subprocess.run(["cat", *[path] * times], stdout=nowhere, check=True)
