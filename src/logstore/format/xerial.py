"""Snappy in the framing of the xerial library: a header, then blocks of 32 KiB, each with its length.

Kafka got this framing from Java's snappy library. Readers also take a single bare block, which other clients
have written.
"""

from __future__ import annotations

import struct
from typing import Final

from logstore.errors import CorruptionError
from logstore.format.bounds import PIECE_BYTES, too_large
from logstore.model import Bytes

XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
"""Magic, version, and lowest compatible version."""

XERIAL_BLOCK_BYTES: Final = 32 * 1024

_XERIAL_MAGIC = XERIAL_HEADER[:8]
_INT32 = struct.Struct(">i")
_SNAPPY_LENGTH_MAX_BYTES = 5
_SNAPPY_MOST_RATIO = 22  # three bytes that say to copy 64


def compress_snappy(data: Bytes, level: int | None) -> bytes:
    """The framed blocks. ``level`` is ignored: snappy has none, but all codecs take the same arguments."""
    from snappy import compress as compress_block

    view = memoryview(data)
    pieces = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = compress_block(view[start : start + XERIAL_BLOCK_BYTES])
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def decompress_snappy(data: Bytes, limit_bytes: int) -> Bytes:
    """Framed blocks or one bare block. Compares the sizes that they declare with the limit first."""
    view = memoryview(data)
    blocks = _xerial_blocks(view) if view[:8] == _XERIAL_MAGIC else [view]
    sizes = list(map(_snappy_length, blocks))
    size_bytes = sum(sizes)
    if size_bytes > limit_bytes:
        raise too_large(limit_bytes)
    if size_bytes > PIECE_BYTES:
        return _decompress_large(blocks, sizes)
    pieces = list(map(_decompress_block, blocks))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    if len(view) < len(XERIAL_HEADER):
        raise CorruptionError("the snappy stream is cut short in its header")
    blocks: list[memoryview] = []
    position = len(XERIAL_HEADER)
    while position < len(view):
        blocks.append(_next_xerial_block(view, position))
        position += _INT32.size + len(blocks[-1])
    return blocks


def _next_xerial_block(view: memoryview, position: int) -> memoryview:
    start = position + _INT32.size
    if start > len(view):
        raise CorruptionError("the snappy stream is cut short in a block's length")
    (size_bytes,) = _INT32.unpack_from(view, position)
    if not 0 < size_bytes <= len(view) - start:
        raise CorruptionError(f"a snappy block of {size_bytes} bytes where {len(view) - start} are left")
    return view[start : start + size_bytes]


def _decompress_block(block: memoryview) -> bytes:
    from snappy import UncompressError, uncompress

    try:
        plain: bytes = uncompress(block)
    except UncompressError as error:
        raise CorruptionError(f"damaged snappy block: {error}") from error
    return plain


def _decompress_large(blocks: list[memoryview], sizes: list[int]) -> bytearray:
    """Decompress into memory that is taken once. The snappy package would hold each block twice for a while,
    and joining the blocks would hold all of them twice."""
    from cramjam import DecompressionError, snappy  # what the snappy package calls

    whole = bytearray(sum(sizes))
    room, position = memoryview(whole), 0
    for block, size_bytes in zip(blocks, sizes, strict=True):
        try:
            snappy.decompress_raw_into(block, room[position : position + size_bytes])
        except DecompressionError as error:
            raise CorruptionError(f"damaged snappy block: {error}") from error
        position += size_bytes
    return whole


def _snappy_length(block: memoryview) -> int:
    """The size that a block declares at its beginning: little-endian base 128, without zig-zag."""
    length = 0
    for index, byte in enumerate(block[:_SNAPPY_LENGTH_MAX_BYTES]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if length > _SNAPPY_MOST_RATIO * len(block):
                raise CorruptionError(f"a snappy block of {len(block)} bytes cannot hold {length}")
            return length
    raise CorruptionError("a snappy block without a length")
