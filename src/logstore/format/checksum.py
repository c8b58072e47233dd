"""The two checksums of Kafka's files: CRC-32C (Castagnoli) for magic 2, CRC-32 (zlib's) for magic 0 and 1.

CRC-32C comes from the compiled module (75 ns for 200 bytes, 16 KiB at 60 GB/s with wide carry-less
multiplication), or without one from the crc32c package (125 ns, 18 GB/s). Importing that package takes 40 ms
(it reads package metadata), so it waits for the first checksum. Call it as ``checksum.crc32c(...)`` where
speed matters: the first call binds the package's function to that name, while a name imported earlier keeps
the small detour (60 ns).
"""

from __future__ import annotations

from typing import Protocol
from zlib import crc32 as _zlib_crc32

from logstore.build import compiled
from logstore.model import Bytes


class Crc32c(Protocol):
    """The CRC-32C of the buffer, continuing from the checksum of the bytes before it."""

    def __call__(self, buffer: Bytes, crc: int = 0, /) -> int: ...


def _first_crc32c(buffer: Bytes, crc: int = 0, /) -> int:
    global crc32c, _package
    if _package is None:
        from crc32c import crc32c as package

        crc32c = _package = package
    return _package(buffer, crc)


_package: Crc32c | None = None

crc32c: Crc32c = compiled.crc32c if compiled is not None else _first_crc32c


def crc32(buffer: Bytes) -> int:
    """zlib's CRC-32, unsigned."""
    return _zlib_crc32(buffer)
