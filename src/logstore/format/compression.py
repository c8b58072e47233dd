"""The four codecs of a batch, in the framings that Kafka writes and accepts.

Knows how bytes become fewer bytes and back; knows nothing of batches. Every decoder is bounded: what a stream
claims, or can at most expand to, is compared with a limit before memory is taken for it, and a stream must
end exactly where its bytes end. The codec packages are imported when a codec is first used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum

from logstore.errors import CorruptionError, InvalidConfigError
from logstore.format.bounds import MAX_DECOMPRESSED_BYTES, too_large
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
) -> bytes:
    """The bytes that were compressed, at most ``limit_bytes`` of them.

    CorruptionError if the stream is damaged, cut short, followed by other bytes, or would expand beyond the
    limit; memory beyond the limit is never taken. ``magic`` is that of the batch: in magic 0, lz4's header
    checksum is not checked, because Kafka's writers of that time computed it over the wrong bytes.
    """
    if codec is Codec.LZ4 and magic == 0:
        return decompress_lz4(data, limit_bytes, check_header=False)
    return _DECOMPRESSORS[codec](data, limit_bytes)


def _check_level(codec: Codec, level: int) -> None:
    if codec not in LEVELS:
        return  # snappy has no levels, and Kafka ignores one that is configured
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


def _compress_gzip(data: Bytes, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return stream.compress(data) + stream.flush()


def _decompress_gzip(data: Bytes, limit_bytes: int) -> bytes:
    """Every member of the stream: gzip allows several in a row, and Java reads them all."""
    rest: Bytes = data
    members: list[bytes] = []
    size_bytes = 0
    while True:
        stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            member = stream.decompress(rest, limit_bytes - size_bytes + 1)
        except zlib.error as error:
            raise CorruptionError(f"damaged gzip stream: {error}") from error
        size_bytes += len(member)
        if size_bytes > limit_bytes:
            raise too_large(limit_bytes)
        if not stream.eof:
            raise CorruptionError("the gzip stream is cut short")
        members.append(member)
        rest = stream.unused_data
        if not rest:
            return members[0] if len(members) == 1 else b"".join(members)


_COMPRESSORS: dict[Codec, Callable[[Bytes, int | None], bytes]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: compress_snappy,
    Codec.LZ4: compress_lz4,
    Codec.ZSTD: compress_zstd,
}

_DECOMPRESSORS: dict[Codec, Callable[[Bytes, int], bytes]] = {
    Codec.NONE: _bounded_copy,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: decompress_snappy,
    Codec.LZ4: decompress_lz4,
    Codec.ZSTD: decompress_zstd,
}
