"""The lz4 frame as Kafka writes it: independent blocks of 64 KiB, no content size, no checksums.

Walks a frame before decompressing it: to refuse what Kafka's reader refuses, to find a frame that is cut
short or followed by other bytes, and to bound the output.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from logstore.errors import CorruptionError
from logstore.format.bounds import (
    COUNTED_BYTES,
    PIECE_BYTES,
    SMALL_BYTES,
    failure,
    gather,
    refuse_more,
    too_large,
)
from logstore.model import Bytes

LZ4_DEFAULT_LEVEL: Final = 9
"""Kafka's default, which stands for lz4's fast mode; every other level is the slow, denser mode."""

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_END_MARK = 0
_LZ4_PLAIN_BLOCK = 0x8000_0000
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_HEADER_MIN_BYTES = 7
_UINT32_LITTLE = struct.Struct("<I")


def compress_lz4(data: Bytes, level: int | None) -> bytes:
    """One frame, byte for byte what Kafka writes."""
    from lz4.frame import BLOCKSIZE_MAX64KB
    from lz4.frame import compress as compress_frame

    plain: bytes = compress_frame(
        data,
        compression_level=0 if level in (None, LZ4_DEFAULT_LEVEL) else level,
        block_size=BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
        content_checksum=False,
        block_checksum=False,
    )
    return plain


def decompress_lz4(data: Bytes, limit_bytes: int, *, check_header: bool = True) -> Bytes:
    """Decompress one frame. ``check_header=False`` ignores the header checksum, as readers of magic 0 do."""
    from lz4.frame import LZ4FrameDecompressor

    view = memoryview(data)
    expands_to_bytes = _check_lz4_frame(view)
    if not check_header:
        view = memoryview(_with_lz4_header_checksum(view))
    if expands_to_bytes > SMALL_BYTES:
        return _decompress_large_lz4(view, expands_to_bytes, limit_bytes)
    stream = LZ4FrameDecompressor()
    try:
        plain: bytes = stream.decompress(view, max_length=min(limit_bytes, expands_to_bytes) + 1)
    except RuntimeError as error:
        raise failure("lz4 frame", error) from error
    if len(plain) > limit_bytes:
        raise too_large(limit_bytes)
    if not stream.eof:
        raise CorruptionError("the lz4 frame is cut short")
    return plain


def _decompress_large_lz4(view: memoryview, expands_to_bytes: int, limit_bytes: int) -> Bytes:
    if expands_to_bytes > limit_bytes:
        refuse_more(_lz4_pieces(view, COUNTED_BYTES), limit_bytes)
    whole = gather(_lz4_pieces(view), expands_to_bytes, limit_bytes)
    if whole is None:
        raise CorruptionError(f"an lz4 frame holds more than its blocks can, {expands_to_bytes} bytes")
    return whole


def _lz4_pieces(view: memoryview, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """The output in pieces. The input goes in in pieces too, because the library copies both."""
    from lz4.frame import LZ4FrameDecompressor

    stream = LZ4FrameDecompressor()
    position = 0
    was_idle = False  # one turn without output is normal at the border of a block
    while not stream.eof:
        rest = view[position : position + piece_bytes] if stream.needs_input else b""
        position += len(rest)
        try:
            piece: bytes = stream.decompress(rest, max_length=piece_bytes)
        except RuntimeError as error:
            raise failure("lz4 frame", error) from error
        is_idle = not piece and not rest
        if is_idle and was_idle and not stream.eof:
            raise CorruptionError("the lz4 frame is cut short")
        was_idle = is_idle
        yield piece


def _check_lz4_frame(view: memoryview) -> int:
    """Walk the frame from its header to its end, and return the most bytes it can expand to.

    Refuses what Kafka's reader refuses: other versions, dictionaries, reserved bits, and blocks that depend
    on each other or are larger than the frame allows. Also refuses bytes after the frame, which Kafka does
    not.
    """
    position, block_bytes, block_checksum, content_checksum = _lz4_frame_header(view)
    block_count = 0
    while True:
        if position + _UINT32_LITTLE.size > len(view):
            raise CorruptionError("the lz4 frame is cut short")
        (mark,) = _UINT32_LITTLE.unpack_from(view, position)
        position += _UINT32_LITTLE.size
        if mark == _LZ4_END_MARK:
            break
        size_bytes = mark & ~_LZ4_PLAIN_BLOCK
        if size_bytes > block_bytes:
            raise CorruptionError(
                f"an lz4 block of {size_bytes} bytes in a frame of {block_bytes} byte blocks"
            )
        position += size_bytes + block_checksum
        block_count += 1
    if position + content_checksum != len(view):
        raise CorruptionError(f"the lz4 frame ends at {position + content_checksum} of {len(view)} bytes")
    return block_count * block_bytes


def _lz4_frame_header(view: memoryview) -> tuple[int, int, int, int]:
    """Position after the header, largest block, and bytes of each block's checksum and of the content's."""
    if len(view) < _LZ4_HEADER_MIN_BYTES or view[:4] != _LZ4_MAGIC:
        raise CorruptionError("not an lz4 frame")
    flags, block_descriptor = view[4], view[5]
    if flags >> 6 != 1 or flags & 0x03 or block_descriptor & 0x8F:
        raise CorruptionError(f"lz4 frame flags {flags:#04x} {block_descriptor:#04x} are not supported")
    if not flags & 0x20:
        raise CorruptionError("an lz4 frame whose blocks depend on each other; Kafka refuses these too")
    block_bytes = _LZ4_BLOCK_BYTES.get(block_descriptor >> 4)
    if block_bytes is None:
        raise CorruptionError(f"lz4 block size code {block_descriptor >> 4} is not defined")
    return _lz4_header_bytes(view), block_bytes, 4 if flags & 0x10 else 0, 4 if flags & 0x04 else 0


def _lz4_header_bytes(view: memoryview) -> int:
    return _LZ4_HEADER_MIN_BYTES + (8 if view[4] & 0x08 else 0)


def _with_lz4_header_checksum(view: memoryview) -> bytearray:
    """A copy of the frame with a correct header checksum, because the library insists on one."""
    at = _lz4_header_bytes(view) - 1
    if at >= len(view):
        raise CorruptionError("the lz4 frame is cut short in its header")
    frame = bytearray(view)
    frame[at] = lz4_header_checksum(bytes(view[4:at]))
    return frame


def lz4_header_checksum(descriptor: bytes) -> int:
    """Second byte of the xxHash32 of a frame descriptor (under 16 bytes, so without its main loop)."""
    mask, prime2, prime3 = 0xFFFF_FFFF, 2246822519, 3266489917
    prime4, prime5 = 668265263, 374761393
    digest = prime5 + len(descriptor)
    whole = len(descriptor) // 4 * 4
    for start in range(0, whole, 4):
        digest = (digest + int.from_bytes(descriptor[start : start + 4], "little") * prime3) & mask
        digest = (digest << 17 | digest >> 15) * prime4 & mask
    for byte in descriptor[whole:]:
        digest = (digest + byte * prime5) & mask
        digest = (digest << 11 | digest >> 21) * 2654435761 & mask
    digest = (digest ^ digest >> 15) * prime2 & mask
    digest = (digest ^ digest >> 13) * prime3 & mask
    return (digest ^ digest >> 16) >> 8 & 0xFF
