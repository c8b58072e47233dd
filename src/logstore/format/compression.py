"""The four codecs of a batch, in the framings that Kafka writes and accepts.

Compresses and decompresses bytes; knows nothing of batches. Every decoder is bounded: it compares the size
that a stream claims, or can at most expand to, with a limit before it takes memory, and a stream must end
exactly where its bytes end. The codec packages are imported when a codec is first used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum

from logstore.errors import CorruptionError, InvalidConfigError
from logstore.format.bounds import (
    MAX_DECOMPRESSED_BYTES,
    PIECE_BYTES,
    SMALL_BYTES,
    failure,
    gather,
    too_large,
)
from logstore.format.lz4_frame import compress_lz4, decompress_lz4
from logstore.format.xerial import compress_snappy, decompress_snappy
from logstore.format.zstd_frame import compress_zstd, decompress_zstd
from logstore.model import Bytes

__all__ = ["LEVELS", "MAX_DECOMPRESSED_BYTES", "Codec", "codec_named", "compress", "decompress"]


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_NAMES = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

LEVELS = {
    Codec.GZIP: (-1, 9),
    Codec.LZ4: (1, 17),
    Codec.ZSTD: (-131072, 22),
}
"""Lowest and highest level of the codecs that have levels. -1 is gzip's own default; its 0 is refused."""


def codec_named(name: str) -> Codec:
    """The codec of a configuration value; InvalidConfigError if there is none of that name."""
    codec = _NAMES.get(name)
    if codec is None:
        raise InvalidConfigError(f"compression {name!r} is unknown; choose one of {', '.join(_NAMES)}")
    return codec


def compress(codec: Codec, data: Bytes, level: int | None = None) -> bytes:
    """The data in the codec's framing, as Kafka writes it; the data itself for NONE.

    InvalidConfigError for a level that the codec does not have.
    """
    if level is not None:
        _check_level(codec, level)
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Codec, data: Bytes, limit_bytes: int = MAX_DECOMPRESSED_BYTES, *, magic: int = 2
) -> Bytes:
    """The bytes that were compressed, at most ``limit_bytes`` of them.

    CorruptionError if the stream is damaged, cut short, followed by other bytes, or would expand beyond the
    limit. Memory: the result, at most ``limit_bytes``, and at most 4 MiB besides. ``magic`` is the batch's:
    for magic 0, lz4's header checksum is not checked, because Kafka's writers of that time computed it over
    the wrong bytes.
    """
    if codec is Codec.LZ4 and magic == 0:
        return decompress_lz4(data, limit_bytes, check_header=False)
    return _DECOMPRESSORS[codec](data, limit_bytes)


def _check_level(codec: Codec, level: int) -> None:
    if codec not in LEVELS:
        return  # snappy has no levels, and Kafka ignores a configured one
    low, high = LEVELS[codec]
    if not low <= level <= high or (codec is Codec.GZIP and level == 0):
        raise InvalidConfigError(f"{codec.name.lower()} has no level {level} (it has {low} to {high})")


def _copy(data: Bytes, level: int | None) -> bytes:
    return bytes(data)


def _bounded_copy(data: Bytes, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise too_large(limit_bytes)
    return bytes(data)


_GZIP_WINDOW_BITS = 31  # 15 bits of window, and 16 that ask zlib for the gzip wrapper
_GZIP_SOURCE_BYTES = 64 * 1024
_GZIP_SMALL_BYTES = 16 * 1024


def _compress_gzip(data: Bytes, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return stream.compress(data) + stream.flush()


def _decompress_gzip(data: Bytes, limit_bytes: int) -> Bytes:
    """Decompress a small stream at once, others in pieces.

    The end of a stream states the size of its last member, usually the only one. If there are more members,
    the size is counted first: that takes twice the time, and no memory.
    """
    if len(data) <= _GZIP_SMALL_BYTES:
        stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
        with suppress(zlib.error):
            plain = stream.decompress(data, SMALL_BYTES)
            if stream.eof and not stream.unused_data and len(plain) <= limit_bytes:
                return plain
    view = memoryview(data)
    whole = gather(_gzip_pieces(view), int.from_bytes(view[-4:], "little"), limit_bytes)
    if whole is None:
        size_bytes = 0
        for piece in _gzip_pieces(view):
            size_bytes += len(piece)
            if size_bytes > limit_bytes:
                raise too_large(limit_bytes)
        whole = gather(_gzip_pieces(view), size_bytes, limit_bytes)
        assert whole is not None
    return whole


def _gzip_pieces(view: memoryview) -> Iterator[bytes]:
    """Every member of the stream: gzip allows several in a row, and Java reads them all.

    The input goes in in pieces too: after each member and each piece of output zlib copies the input it has
    not used, which would be quadratic if it got the whole stream.
    """
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    position, source_bytes, piece_bytes = 0, len(view), PIECE_BYTES
    while True:
        source = view[position : position + source_bytes]
        try:
            piece = stream.decompress(source, piece_bytes)
        except zlib.error as error:
            raise failure("gzip stream", error) from error
        left = stream.unused_data if stream.eof else stream.unconsumed_tail
        position += len(source) - len(left)
        if piece:
            yield piece
        if stream.eof:
            if position == len(view):
                return
            stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
        elif not piece and not source:
            raise CorruptionError("the gzip stream is cut short")
        source_bytes, piece_bytes = _GZIP_SOURCE_BYTES, PIECE_BYTES


_COMPRESSORS: dict[Codec, Callable[[Bytes, int | None], bytes]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: compress_snappy,
    Codec.LZ4: compress_lz4,
    Codec.ZSTD: compress_zstd,
}

_DECOMPRESSORS: dict[Codec, Callable[[Bytes, int], Bytes]] = {
    Codec.NONE: _bounded_copy,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: decompress_snappy,
    Codec.LZ4: decompress_lz4,
    Codec.ZSTD: decompress_zstd,
}
