"""Reads entries of magic 0 and 1, the formats before Kafka 0.11.

An entry is one record, or a wrapper: a record without key whose value is a compressed run of entries. Knows
how the inner entries get their offsets and timestamps. Does not write these formats.
"""

from __future__ import annotations

import struct

from logstore.errors import CorruptionError
from logstore.format import checksum
from logstore.format.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from logstore.format.header import LEGACY_CRC_FROM, LEGACY_TIMESTAMP_POSITION, BatchHeader, decode_header
from logstore.model import Bytes, Record, TimestampType

_INT32 = struct.Struct(">i")
_PAYLOAD_POSITIONS = (LEGACY_TIMESTAMP_POSITION, LEGACY_TIMESTAMP_POSITION + 8)
"""Position of the key's length, by magic."""


def decode_entry(
    buffer: Bytes, position: int, header: BatchHeader, *, limit_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The record of the entry at ``position``, or the records of a wrapper, with their absolute offsets.

    Checks the checksums of inner entries; the caller checks that of the entry itself. CorruptionError for
    lengths that do not fit, and for entries that are not allowed inside a wrapper.
    """
    key, value = _decode_payload(buffer, position, header)
    if header.codec is Codec.NONE:
        return [Record(header.base_offset, header.max_timestamp_ms, key, value)]
    if header.codec is Codec.ZSTD:
        raise header.damage(f"magic {header.magic} has no zstd", position)
    if value is None:
        raise header.damage("a compressed entry without a value", position)
    try:
        inner = _decode_inner(decompress(header.codec, value, limit_bytes, magic=header.magic), header)
    except CorruptionError as fault:
        raise header.damage(f"inside the compressed entry: {fault.reason}", position) from fault
    return _with_outer_facts(inner, header, position)


def _decode_payload(buffer: Bytes, position: int, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    end = position + header.size_bytes
    if end > len(buffer):
        raise header.damage(f"the entry of {header.size_bytes} bytes is cut short", position)
    view = memoryview(buffer)[:end]
    key, at = _decode_bytes(view, position + _PAYLOAD_POSITIONS[header.magic], "key")
    value, at = _decode_bytes(view, at, "value")
    if at != end:
        raise header.damage(f"{end - at} bytes after the value", at)
    return key, value


def _decode_bytes(view: memoryview, position: int, what: str) -> tuple[bytes | None, int]:
    start = position + _INT32.size
    if start > len(view):
        raise CorruptionError(f"the entry ends inside its {what}'s length", position=position)
    (size_bytes,) = _INT32.unpack_from(view, position)
    if size_bytes == -1:
        return None, start
    if not 0 <= size_bytes <= len(view) - start:
        raise CorruptionError(
            f"a {what} of {size_bytes} bytes where {len(view) - start} are left", position=position
        )
    return bytes(view[start : start + size_bytes]), start + size_bytes


def _decode_inner(data: Bytes, wrapper: BatchHeader) -> list[Record]:
    """The entries of a wrapper, with their offsets as written."""
    records: list[Record] = []
    position, last_offset = 0, -1
    while position < len(data):
        header = decode_header(data, position)
        _check_inner(data, position, header, wrapper)
        if header.base_offset <= last_offset:
            raise CorruptionError(f"inner offset {header.base_offset} after {last_offset}", position=position)
        records += decode_entry(data, position, header)
        position, last_offset = position + header.size_bytes, header.base_offset
    if not records:
        raise CorruptionError("no entry")
    return records


def _check_inner(data: Bytes, position: int, header: BatchHeader, wrapper: BatchHeader) -> None:
    end = position + header.size_bytes
    if end > len(data):
        raise CorruptionError(f"an inner entry of {header.size_bytes} bytes is cut short", position=position)
    if header.magic != wrapper.magic:
        raise CorruptionError(
            f"an entry of magic {header.magic} in one of magic {wrapper.magic}", position=position
        )
    if header.codec is not Codec.NONE:
        raise CorruptionError("a compressed entry in a compressed entry", position=position)
    if checksum.crc32(memoryview(data)[position + LEGACY_CRC_FROM : end]) != header.crc:
        raise CorruptionError("an inner entry's checksum does not match", position=position)


def _with_outer_facts(inner: list[Record], wrapper: BatchHeader, position: int) -> list[Record]:
    """Set absolute offsets (magic 1 only), and the wrapper's timestamp if that is the log append time.

    The wrapper has the offset of its last record. Some old producers left it 0; then the inner offsets are
    absolute.
    """
    shift = 0
    if wrapper.magic == 1 and wrapper.base_offset != 0:
        shift = wrapper.base_offset - inner[-1].offset
    if shift < 0:
        raise wrapper.damage(
            f"offset {wrapper.base_offset} is below that of the last inner entry, {inner[-1].offset}",
            position,
        )
    is_append_time = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    if not shift and not is_append_time:
        return inner
    stamp_ms = wrapper.max_timestamp_ms
    return [
        Record(offset + shift, stamp_ms if is_append_time else timestamp_ms, key, value)
        for offset, timestamp_ms, key, value, _ in inner
    ]
