"""Variable-length integers: zig-zag, little-endian base 128, as in protocol buffers.

Small numbers of either sign take one byte. A 32-bit value takes at most 5 bytes, a 64-bit one at most 10.
These are the plain functions, one value at a time; the hot loops have tables of their own.
"""

from __future__ import annotations

from logstore.errors import CorruptionError, UsageError
from logstore.model import Bytes

VARINT_MAX_BYTES = 5
VARLONG_MAX_BYTES = 10

_INT64_MAX = (1 << 63) - 1


def encode_varint(value: int) -> bytes:
    """The bytes of a 64-bit (so also of a 32-bit) signed integer. UsageError beyond 64 bits."""
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise UsageError(f"{value} does not fit 64 bits")
    rest = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def decode_varint(buffer: Bytes, position: int) -> tuple[int, int]:
    """A 32-bit signed integer and the position after it.

    Bits beyond the 32nd are dropped, as Kafka's reader does. CorruptionError if the number runs over the
    buffer's end or over 5 bytes.
    """
    raw, after = _decode_raw(buffer, position, VARINT_MAX_BYTES)
    raw &= 0xFFFF_FFFF
    return (raw >> 1) ^ -(raw & 1), after


def decode_varlong(buffer: Bytes, position: int) -> tuple[int, int]:
    """A 64-bit signed integer and the position after it; fails like :func:`decode_varint`, over 10 bytes."""
    raw, after = _decode_raw(buffer, position, VARLONG_MAX_BYTES)
    raw &= 0xFFFF_FFFF_FFFF_FFFF
    return (raw >> 1) ^ -(raw & 1), after


def decode_unsigned_varint(buffer: Bytes, position: int) -> tuple[int, int]:
    """A 32-bit number without zig-zag, as in the flexible versions of Kafka's messages, and the position
    after it; fails like :func:`decode_varint`."""
    raw, after = _decode_raw(buffer, position, VARINT_MAX_BYTES)
    return raw & 0xFFFF_FFFF, after


def wrap_int64(value: int) -> int:
    """The value wrapped to 64 bits. The difference of two timestamps may need 65 bits; adding it back with
    the same wrapping gives the right timestamp."""
    return (value + _INT64_MAX + 1 & 0xFFFF_FFFF_FFFF_FFFF) - _INT64_MAX - 1


def _decode_raw(buffer: Bytes, position: int, max_bytes: int) -> tuple[int, int]:
    raw = 0
    for index in range(max_bytes):
        at = position + index
        if not 0 <= at < len(buffer):
            raise CorruptionError("the bytes end inside a varint", position=position)
        byte = buffer[at]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return raw, at + 1
    raise CorruptionError(f"a varint longer than {max_bytes} bytes", position=position)
