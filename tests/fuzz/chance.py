"""Batches, sections and arguments, right and wrong, from a seed."""

from __future__ import annotations

import random
import struct
from array import array
from functools import cache
from typing import NamedTuple

from crc32c import crc32c

from logstore.format import plain
from logstore.format.batch import encode_batch
from logstore.format.compression import Codec
from logstore.format.layout import BATCH_HEADER
from logstore.format.varint import encode_varint

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
CRC_POSITION = BATCH_HEADER.position_of("crc")
CRC_FROM = BATCH_HEADER.position_of("attributes")
BASE_COUNT = 200
"""Different right sections and batches that everything is made of."""
POSITIONS = [
    *(BATCH_HEADER.position_of(field.name) for field in BATCH_HEADER.fields),
    BATCH_HEADER.size_bytes,
]
PIECES = (
    *(bytes([byte]) for byte in (0, 1, 2, 3, 6, 7, 0x0D, 0x0E, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xFE, 0xFF)),
    b"\xfe\xff\xff\xff\x0f",  # 2**31 - 1, zig-zag
    b"\xff\xff\xff\xff\x0f",
    b"\xfe" + b"\xff" * 8 + b"\x01",  # 2**63 - 1
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10,
    b"\xff" * 12,
)


class Section(NamedTuple):
    """The records section of a batch, and what its header says."""

    buffer: object
    position: int
    end: int
    count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp_ms: int
    append_time_ms: int | None


class Chance(random.Random):
    """Random choices that a case number repeats."""

    def happens(self, probability):
        return self.random() < probability

    def number(self):
        """An int that somebody may have put into a header."""
        return self.choice(
            (
                *(-INT64_MAX - 1, -INT32_MAX - 1, -2, -1, 0, 0, 1, 2, 3, 60, 61, 62, 127, 128),
                *(1 << 14, (1 << 16) - 1, INT32_MAX, INT32_MAX + 1, INT64_MAX - 1, INT64_MAX),
                self.randrange(200),
                self.randrange(-INT64_MAX, INT64_MAX),
            )
        )

    def near(self, number):
        return number + self.choice((-61, -7, -2, -1, 0, 0, 0, 1, 2, 7, 61))

    def payload(self):
        size = self.choice((0, 1, 2, 7, 8, 15, 16, 17, 62, 63, 64, 65, self.randrange(200), 8200))
        if size == 8200 and self.happens(0.8):
            size = 5
        return None if self.happens(0.15) else self.randbytes(size)

    def key(self):
        """Few different ones, so that they meet."""
        return self.choice((None, b"", b"a", b"b", b"key%d" % self.randrange(20), self.payload()))

    def headers(self):
        names = ("", "h", "name", "é", "€", "𐍈", "n" * 70)
        return tuple((self.choice(names), self.payload()) for _ in range(self.choice((0, 0, 0, 1, 2, 3))))

    def timestamp_ms(self):
        return self.choice(
            (-1, 0, 1, 1_700_000_000_000, 1_700_000_000_000 + self.randrange(10**6), INT64_MAX)
        )

    def columns(self, count=None):
        """keys, values, timestamps, headers, base timestamp, offset deltas: what can be encoded."""
        if count is None:
            count = self.choice((1, 1, 2, 2, 3, 5, 20, self.choice((20, 70))))
        keys = [self.key() for _ in range(count)]
        values = [self.payload() for _ in range(count)]
        timestamps = self.timestamp_ms() if self.happens(0.3) else [self.timestamp_ms() for _ in range(count)]
        headers = [self.headers() for _ in range(count)] if self.happens(0.3) else None
        base_timestamp_ms = self.choice((timestamps if isinstance(timestamps, int) else timestamps[0], 0))
        deltas = None
        if self.happens(0.3):
            deltas = sorted(self.sample(range(count * self.choice((1, 2, 300))), count))
        return keys, values, timestamps, headers, base_timestamp_ms, deltas

    def mutated(self, data, first=0):
        """The bytes with some of them changed, from ``first`` on."""
        data = bytearray(data)
        for _ in range(self.choice((1, 1, 1, 2, 3, 8))):
            at = self.randrange(first, len(data) + 1)
            piece = self.choice(PIECES)
            how = self.randrange(6)
            if how <= 2:
                data[at : at + len(piece)] = piece
            elif how == 3:
                data[at:at] = piece
            elif how == 4:
                del data[at : at + self.choice((1, 1, 2, 5, 30))]
            elif at < len(data):
                data[at] ^= 1 << self.randrange(8)
        return bytes(data)

    def cut(self, data):
        return data[: self.randrange(len(data) + 1)]

    def exact(self, data):
        """The bytes in an object whose memory ends where they do, mostly: bytes has a 0 more."""
        kind = self.randrange(8)
        if kind == 0:
            return bytes(data)
        if kind == 1:
            return bytearray(data)
        if kind == 2:
            before = self.randrange(9)
            return memoryview(exact_array(self.randbytes(before) + data))[before:]
        return exact_array(data)

    def section(self):
        """Records of one batch: right one time in three."""
        data, count, last_delta, base_timestamp_ms = base_section(self.randrange(BASE_COUNT))
        if self.happens(0.4):
            data, count = self.odd_records()
            last_delta = self.choice((count - 1, count, 5, INT32_MAX))
        base_offset = self.choice((0, 0, 100, self.randrange(1 << 40), INT64_MAX - last_delta))
        base_timestamp_ms = self.choice((base_timestamp_ms, self.number()))
        append_time_ms = self.timestamp_ms() if self.happens(0.2) else None
        before = b""
        wrong = self.randrange(8)
        if wrong in (0, 1):
            data = self.mutated(data)
        elif wrong == 2:
            data = self.cut(data)
        elif wrong == 3:
            before = self.randbytes(self.randrange(70))
        elif wrong == 4:
            data = self.mutated(data, max(len(data) - 12, 0))
        position, end = len(before), len(before) + len(data)
        if self.happens(0.1):
            count = self.choice((self.near(count), self.number()))
        if self.happens(0.1):
            last_delta = self.choice((self.near(last_delta), self.number(), INT32_MAX))
        if self.happens(0.05):
            position, end = self.choice(((self.number(), end), (position, self.number()), (end, position)))
        if self.happens(0.05):
            base_offset = self.number()
        buffer = self.exact(before + data)
        return Section(
            buffer, position, end, count, base_offset, last_delta, base_timestamp_ms, append_time_ms
        )

    def odd_records(self):
        """Records with fields that lie, but the right size each, the last cut off somewhere; their count."""
        count = self.choice((1, 1, 1, 2, 3))
        records = []
        for delta in range(count):
            fields = [b"\0", self.varint(0, 3), self.varint(delta, 1)]
            fields += [*self.framed(), *self.framed()]
            header_count = self.choice((0, 0, 1, 1, 2))
            fields.append(self.varint(header_count, 1))
            for _ in range(header_count):
                fields += [*self.framed(b"n"), *self.framed()]
            body = b"".join(fields)
            if delta == count - 1 and self.happens(0.5):
                body = self.cut(body)
            records.append(encode_varint(len(body)) + body)
        return b"".join(records), count

    def varint(self, number, odds):
        """A number, or one time in ten another, or bytes that are none."""
        if not self.happens(odds / 10):
            return encode_varint(number)
        if self.happens(0.5):
            return self.choice(PIECES)
        return encode_varint(self.choice((number + 1, number + 1, self.near(number), self.number())))

    def framed(self, payload=None):
        if payload is None:
            payload = self.choice((b"", b"k", b"v" * 63, b"w" * 64, self.randbytes(3)))
        if self.happens(0.2):
            return encode_varint(-1), b""
        return self.varint(len(payload), 1), payload

    def batch(self, base_offset):
        """One batch of magic 2, and the offset after it. Right one time in two."""
        data, count = base_batch(self.randrange(BASE_COUNT))
        data = bytearray(data)
        data[:8] = base_offset.to_bytes(8, "big")
        wrong = self.randrange(8)
        if wrong == 0:
            data = bytearray(self.mutated(data))
        elif wrong == 1:
            data = bytearray(self.mutated(data, 61))
            data[8:12] = struct.pack(">i", len(data) - 12)
        elif wrong == 2:
            self.spoil_field(data)
        elif wrong == 3:
            data[21:23] = struct.pack(">h", self.choice((8, 16, 48, 32, 64, 128, 256, 24, 7, 5)))
        if wrong in (1, 2, 3) and self.happens(0.8):
            seal(data)
        return bytes(data), base_offset + count

    def spoil_field(self, data):
        index = self.randrange(len(POSITIONS) - 1)
        start, stop = POSITIONS[index : index + 2]
        data[start:stop] = (self.number() % (1 << 64)).to_bytes(8, "big")[start - stop :]

    def batches(self):
        """Batches one after the other, with a cut end now and then, as a file or a part of it has them."""
        base_offset = self.choice((0, 0, 100, self.randrange(1 << 40)))
        pieces = []
        for _ in range(self.choice((0, 1, 1, 2, 3, 6))):
            piece, base_offset = self.batch(base_offset)
            base_offset += self.choice((0, 0, 0, 1, 50))
            pieces.append(piece)
        data = b"".join(pieces)
        how = self.randrange(6)
        if how == 0:
            data = self.cut(data)
        elif how == 1:
            data += self.choice((bytes(70), self.randbytes(self.randrange(100))))
        return data


def exact_array(data):
    """An array, copied: the copy has no room to grow."""
    return array("B", data)[:]


@cache
def base_section(index):
    """A right section: its bytes, record count, last offset delta and base timestamp."""
    columns = Chance(f"section {index}").columns()
    count = len(columns[1])
    last_delta = columns[-1][-1] if columns[-1] else count - 1
    return bytes(plain.encode_records(*columns)), count, last_delta, columns[4]


@cache
def base_batch(index):
    """A right batch and its record count."""
    chance = Chance(f"batch {index}")
    keys, values, timestamps, headers, _, _ = chance.columns()
    codec = chance.choice((Codec.NONE,) * 8 + tuple(Codec))
    return bytes(encode_batch(keys, values, timestamps, headers, codec=codec)), len(values)


def seal(data):
    """Put the right checksum into a batch."""
    if len(data) > CRC_FROM:
        data[CRC_POSITION : CRC_POSITION + 4] = struct.pack(">I", crc32c(bytes(data[CRC_FROM:])))
