"""Writes entries of magic 0 and 1, which logstore itself never does: for tests of the readers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

from logstore.format.compression import Codec, compress
from logstore.format.layout import LEGACY_HEADER
from logstore.format.lz4_frame import lz4_header_checksum
from logstore.model import Record

LOG_APPEND_TIME = 0x08


def encode_entry(magic: int, record: Record, *, attributes: int = 0) -> bytes:
    """One entry: its offset, checksum and payload; a timestamp in magic 1."""
    payload = _framed(record.key) + _framed(record.value)
    if magic == 1:
        payload = struct.pack(">q", record.timestamp_ms) + payload
    crc = crc32(struct.pack(">bb", magic, attributes) + payload)
    size = LEGACY_HEADER.size_bytes - 12 + len(payload)
    return LEGACY_HEADER.pack(record.offset, size, crc, magic, attributes) + payload


def encode_wrapper(
    magic: int,
    codec: Codec,
    inner: Sequence[Record],
    *,
    offset: int | None = None,
    timestamp_ms: int | None = None,
    attributes: int = 0,
) -> bytes:
    """A compressed entry around ``inner``, whose offsets are written as they are given."""
    return wrap(
        magic,
        codec,
        b"".join(encode_entry(magic, record) for record in inner),
        offset=inner[-1].offset if offset is None else offset,
        timestamp_ms=max(record.timestamp_ms for record in inner) if timestamp_ms is None else timestamp_ms,
        attributes=attributes,
    )


def wrap(
    magic: int, codec: Codec, plain: bytes, *, offset: int = 0, timestamp_ms: int = 0, attributes: int = 0
) -> bytes:
    value = compress(codec, plain)
    if magic == 0 and codec is Codec.LZ4:
        value = with_broken_header_checksum(value)
    return encode_entry(magic, Record(offset, timestamp_ms, None, value), attributes=codec | attributes)


def with_broken_header_checksum(frame: bytes) -> bytes:
    """The header checksum as magic 0 writers computed it: over the frame's magic number as well."""
    return frame[:6] + bytes([lz4_header_checksum(frame[:6])]) + frame[7:]


def _framed(payload: bytes | None) -> bytes:
    return struct.pack(">i", -1) if payload is None else struct.pack(">i", len(payload)) + payload
