"""The two checksums of Kafka's files: CRC-32C (Castagnoli) for magic 2, CRC-32 (zlib's) for magic 0 and 1.

Importing the crc32c package costs 40 ms (it reads package metadata), so that waits for the first checksum.
Call it as ``checksum.crc32c(...)`` where speed matters: the first call puts the C function itself under that
name, while a name imported earlier keeps the small detour (60 ns).
"""

from __future__ import annotations

from typing import Protocol
from zlib import crc32 as _zlib_crc32

from logstore.model import Bytes


class Crc32c(Protocol):
    """The CRC-32C of the buffer, continuing from the checksum of the bytes before it."""

    def __call__(self, buffer: Bytes, crc: int = 0, /) -> int: ...


def _first_crc32c(buffer: Bytes, crc: int = 0, /) -> int:
    global crc32c, _compiled
    if _compiled is None:
        from crc32c import crc32c as compiled

        crc32c = _compiled = compiled
    return _compiled(buffer, crc)


_compiled: Crc32c | None = None

crc32c: Crc32c = _first_crc32c


def crc32(buffer: Bytes) -> int:
    """zlib's CRC-32, unsigned."""
    return _zlib_crc32(buffer)
