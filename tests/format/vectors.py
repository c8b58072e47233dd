"""Golden bytes of batches, records, legacy entries and varints, and the values that they mean.

Each is declared once and tested in both directions. The checksums of the "two records" rows are hard-coded in
Apache Kafka's own test suite (``MemoryRecordsTest.testChecksum``); the others were compared with an
independent decoder.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.batch import BatchHeader
from logstore.format.compression import Codec
from logstore.model import Record

VARINTS = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    64: "8001",
    -64: "7f",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
}

VARLONGS = VARINTS | {
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


class BatchVector(NamedTuple):
    """A batch of magic 2: its bytes, its header and its records."""

    name: str
    encoded: bytes
    header: BatchHeader
    records: tuple[Record, ...]


TWO_RECORDS = (
    Record(0, 283843, b"key1", b"value1"),
    Record(1, 1234, b"key2", b"value2"),
)
"""The records of Kafka's own checksum test."""

PLAIN = BatchVector(
    "two records",
    bytes.fromhex(
        "000000000000000000000055ffffffff02e58cf1ff00000000000100000000000454c300000000000454c3"
        "ffffffffffffffffffffffffffff0000000220000000086b6579310c76616c756531002400e1bf2202086b"
        "6579320c76616c75653200"
    ),
    BatchHeader(0, 85, -1, 2, 3851219455, 0, 1, 283843, 283843, -1, -1, -1, 2),
    TWO_RECORDS,
)

LZ4 = BatchVector(
    "two records in lz4",
    bytes.fromhex(
        "000000000000000000000064ffffffff02a3ac2aa200030000000100000000000454c300000000000454c3"
        "ffffffffffffffffffffffffffff0000000204224d186040822400008020000000086b6579310c76616c75"
        "6531002400e1bf2202086b6579320c76616c7565320000000000"
    ),
    BatchHeader(0, 100, -1, 2, 2745969314, 3, 1, 283843, 283843, -1, -1, -1, 2),
    TWO_RECORDS,
)

SINGLE = BatchVector(
    "one record",
    bytes.fromhex(
        "00000000000000000000003a0000000002716a618900000000000000000000000003e800000000000003e8"
        "ffffffffffffffffffffffffffff0000000110000000026b027600"
    ),
    BatchHeader(0, 58, 0, 2, 0x716A6189, 0, 0, 1000, 1000, -1, -1, -1, 1),
    (Record(0, 1000, b"k", b"v"),),
)

TRANSACTIONAL = BatchVector(
    "transactional, with nulls and headers",
    bytes.fromhex(
        "000000000000000500000049000000030263e921a300100000000100000000000003e800000000000003ef"
        "000000000000000700010000000a000000020e000000010261001e000e02046b32010402680278026e01"
    ),
    BatchHeader(5, 73, 3, 2, 0x63E921A3, 0x10, 1, 1000, 1007, 7, 1, 10, 2),
    (Record(5, 1000, None, b"a"), Record(6, 1007, b"k2", None, (("h", b"x"), ("n", None)))),
)

ABORT_MARKER = BatchVector(
    "abort marker",
    bytes.fromhex(
        "00000000000000070000004200000003020f63ceed00300000000000000000000007d000000000000007d0"
        "00000000000000070001ffffffff000000012000000008000000000c00000000000900"
    ),
    BatchHeader(7, 66, 3, 2, 0x0F63CEED, 0x30, 0, 2000, 2000, 7, 1, -1, 1),
    (Record(7, 2000, b"\0\0\0\0", b"\0\0\0\0\0\x09"),),
)
ABORT_COORDINATOR_EPOCH = 9

EMPTIED = BatchVector(
    "the transactional batch, emptied and kept",
    bytes.fromhex(
        "00000000000000050000003100000003026064400b001000000001ffffffffffffffff00000000000003ef"
        "000000000000000700010000000a00000000"
    ),
    BatchHeader(5, 49, 3, 2, 0x6064400B, 0x10, 1, -1, 1007, 7, 1, 10, 0),
    (),
)

COMPACTED = BatchVector(
    "the transactional batch, compacted to its tombstone",
    bytes.fromhex(
        "00000000000000050000003d0000000302b1a356eb00500000000100000000055d4a8000000000000003ef"
        "000000000000000700010000000a000000011600a19aea5502046b320100"
    ),
    BatchHeader(5, 61, 3, 2, 0xB1A356EB, 0x50, 1, 90_000_000, 1007, 7, 1, 10, 1),
    (Record(6, 1007, b"k2", None),),
)
COMPACTED_HORIZON_MS = 90_000_000

BATCHES = (PLAIN, LZ4, SINGLE, TRANSACTIONAL, ABORT_MARKER, EMPTIED, COMPACTED)


class LegacyVector(NamedTuple):
    """An entry of magic 0 or 1 around one record."""

    name: str
    magic: int
    encoded: bytes
    record: Record


LEGACY = (
    LegacyVector(
        "magic 1",
        1,
        bytes.fromhex("000000000000000000000018e4e321bc010000000000000003e8000000016b0000000176"),
        Record(0, 1000, b"k", b"v"),
    ),
    LegacyVector(
        "magic 0",
        0,
        bytes.fromhex("0000000000000000000000101fecd70a0000000000016b0000000176"),
        Record(0, -1, b"k", b"v"),
    ),
)

LEGACY_CHECKSUMS = {
    (1, Codec.NONE): 109425508,
    (1, Codec.LZ4): 1407303399,
    (0, Codec.NONE): 1978725405,
    (0, Codec.LZ4): 66944826,
}
"""Of :data:`TWO_RECORDS`: without a codec the first entry's checksum, with one the wrapper's."""

MAGIC_0_LZ4_CHECKSUM_IF_CORRECT = 619376644
"""What the magic 0 wrapper would have if its lz4 header checksum were right."""

SMALLEST_BATCH_BYTES = 69
"""One record without key, with a value of one byte."""

LZ4_HEADER_CHECKSUMS = {"6040": 0x82, "04224d186040": 0x1A}
"""By descriptor: the checksum of Kafka's frame, and the wrong one of magic 0."""
