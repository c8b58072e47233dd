"""Snappy in the framing of the xerial library: a header, then blocks of 32 KiB, each with its length.

Snappy itself has no stream format of its own in Kafka; Java's snappy library gave it this one. Readers also
take a single bare block, which other clients have written.
"""

from __future__ import annotations

import struct
from typing import Final

from logstore.errors import CorruptionError
from logstore.format.bounds import too_large
from logstore.model import Bytes

XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
"""Magic, version, and lowest compatible version."""

XERIAL_BLOCK_BYTES: Final = 32 * 1024

_XERIAL_MAGIC = XERIAL_HEADER[:8]
_INT32 = struct.Struct(">i")
_SNAPPY_LENGTH_MAX_BYTES = 5


def compress_snappy(data: Bytes, level: int | None) -> bytes:
    """The framed blocks. ``level`` is there for the likeness of all codecs: snappy has none."""
    from snappy import compress as compress_block

    view = memoryview(data)
    pieces = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = compress_block(view[start : start + XERIAL_BLOCK_BYTES])
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def decompress_snappy(data: Bytes, limit_bytes: int) -> bytes:
    """Framed blocks or one bare block; the size that each declares is compared with the limit first."""
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit_bytes)
    if len(view) < len(XERIAL_HEADER):
        raise CorruptionError("the snappy stream is cut short in its header")
    blocks: list[bytes] = []
    position, left_bytes = len(XERIAL_HEADER), limit_bytes
    while position < len(view):
        block = _next_xerial_block(view, position)
        blocks.append(_decompress_snappy_block(block, left_bytes))
        left_bytes -= len(blocks[-1])
        position += _INT32.size + len(block)
    return b"".join(blocks)


def _next_xerial_block(view: memoryview, position: int) -> memoryview:
    start = position + _INT32.size
    if start > len(view):
        raise CorruptionError("the snappy stream is cut short in a block's length")
    (size_bytes,) = _INT32.unpack_from(view, position)
    if not 0 < size_bytes <= len(view) - start:
        raise CorruptionError(f"a snappy block of {size_bytes} bytes where {len(view) - start} are left")
    return view[start : start + size_bytes]


def _decompress_snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    from snappy import UncompressError, uncompress

    if _snappy_length(block) > limit_bytes:
        raise too_large(limit_bytes)
    try:
        plain: bytes = uncompress(block)
    except UncompressError as error:
        raise CorruptionError(f"damaged snappy block: {error}") from error
    return plain


def _snappy_length(block: memoryview) -> int:
    """The size that a block declares in front: little-endian base 128, without zig-zag."""
    length = 0
    for index, byte in enumerate(block[:_SNAPPY_LENGTH_MAX_BYTES]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    raise CorruptionError("a snappy block without a length")
