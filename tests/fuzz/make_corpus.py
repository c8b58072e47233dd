"""Writes the corpus: ``python -m tests.fuzz.make_corpus``. One small file per rule, ``corpus/READER/RULE``.

Where a rule is about one lie, the rest of the file is right, so that the lie is what is met. Files that a
fuzzer has found are kept as they are in ``corpus/READER/found-...``; nothing here writes those.
"""

from __future__ import annotations

import gzip
import struct
import sys
import zlib
from pathlib import Path

import snappy
import zstandard

from logstore.format.batch import encode_batch, seal_batch
from logstore.format.checkpoint import EpochEntry, encode_epoch_checkpoint, encode_offset_checkpoint
from logstore.format.compression import Codec, compress
from logstore.format.control import ControlType, encode_end_marker
from logstore.format.header import BatchHeader
from logstore.format.layout import BATCH_HEADER, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, TRANSACTION_INDEX_ENTRY
from logstore.format.snapshot import ProducerSnapshotEntry, encode_snapshot
from logstore.format.varint import encode_varint
from logstore.format.xerial import XERIAL_HEADER
from logstore.model import Record, TopicPartition
from tests.format.legacy_writer import LOG_APPEND_TIME, encode_entry, encode_wrapper, wrap

CORPUS = Path(__file__).parent / "corpus"
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
HEADER = BatchHeader(0, 0, 0, 2, 0, 0, 0, 1000, 1000, -1, -1, -1, 1)
ENDLESS = b"\xff" * 12
_GZIP_SYSTEM, _UNIX = 9, 3
ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def v(*numbers):
    return b"".join(map(encode_varint, numbers))


def body(*, attributes=0, timestamp_delta=0, offset_delta=0, key=b"\x02k", value=b"\x02v", headers=b"\0"):
    return bytes([attributes]) + v(timestamp_delta, offset_delta) + key + value + headers


def record(content, length=None):
    return v(len(content) if length is None else length) + content


def sealed(section, **fields):
    return bytes(seal_batch(HEADER._replace(**fields), section))


def run(*bases, **fields):
    """One batch of one record at each base offset."""
    return b"".join(sealed(record(body()), base_offset=base, **fields) for base in bases)


def with_field(name, value, batch=None):
    """A right batch with one field of its header changed (the reader puts size and checksum right again)."""
    data = bytearray(batch or encode_batch([b"k", None], [b"v", b"w"], 5, [(("h", b"x"),), ()]))
    at = BATCH_HEADER.position_of(name)
    positions = [BATCH_HEADER.position_of(field.name) for field in BATCH_HEADER.fields] + [61]
    width = positions[positions.index(at) + 1] - at
    data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "big")
    return bytes(data)


RECORDS = {
    "length-of-12-bytes": ENDLESS + body(),
    "length-minus-1": record(body(), -1),
    "length-0": record(body(), 0),
    "length-48": record(body(), 48),
    "length-int32-max": record(body(), INT32_MAX),
    "timestamp-of-12-bytes": record(b"\0" + ENDLESS + v(0, -1, -1, 0)),
    "offset-delta-of-12-bytes": record(b"\0\0" + ENDLESS + v(-1, -1, 0)),
    "offset-delta-negative": record(body(offset_delta=-1)),
    "offset-delta-beyond-last": record(body(offset_delta=1)),
    "key-length-minus-2": record(body(key=v(-2))),
    "key-length-beyond": record(body(key=v(50))),
    "key-length-int32-max": record(body(key=v(INT32_MAX))),
    "value-length-minus-2": record(body(value=v(-2))),
    "value-length-int32-max": record(body(value=v(INT32_MAX))),
    "value-length-of-12-bytes": record(body(value=ENDLESS)),
    "header-count-minus-1": record(body(headers=v(-1))),
    "header-count-beyond-bytes": record(body(headers=v(200))),
    "header-count-int32-max": record(body(headers=v(INT32_MAX))),
    "header-key-null": record(body(headers=v(1, -1, -1))),
    "header-key-not-utf8": record(body(headers=v(1, 1) + b"\xff" + v(-1))),
    "header-value-beyond": record(body(headers=v(1, 0, 9))),
    "trailing-bytes": record(body()) + b"\0",
    "trailing-record": record(body()) + record(body(offset_delta=1)),
    "nothing": b"",
}


def batch_files():
    yield "right", encode_batch([b"k", None], [b"v", b"w"], 5, [(("h", b"x"),), ()])
    yield (
        "right-with-everything",
        encode_batch(
            [b"key", None, b""],
            [None, b"v" * 70, b"\0"],
            [5, 3, INT64_MAX],
            [(), (("a", None), ("b", b"")), ()],
            base_offset=100,
            partition_leader_epoch=3,
            producer_id=7,
            producer_epoch=1,
            base_sequence=INT32_MAX - 1,
            transactional=True,
        ),
    )
    for codec in list(Codec)[1:]:
        columns = [b"k"] * 9, [b"value"] * 9, range(9), [(("h", b"x"),)] * 9
        yield f"right-{codec.name.lower()}", encode_batch(*columns, codec=codec)
        yield (
            f"records-{codec.name.lower()}-lie",
            sealed(compress(codec, RECORDS["key-length-beyond"]), attributes=codec),
        )
    for name, section in RECORDS.items():
        yield f"record-{name}", sealed(section)
    two = record(body()) + record(body(offset_delta=1))
    for name, count in (
        ("minus-1", -1),
        ("int32-max", INT32_MAX),
        ("one-less", 1),
        ("one-more", 3),
        ("zero", 0),
    ):
        yield f"count-{name}", sealed(two, record_count=count, last_offset_delta=max(count - 1, 1))
    yield "count-beyond-bytes", sealed(two, record_count=1000, last_offset_delta=999)
    yield "last-offset-delta-beyond-last-record", sealed(two, record_count=2, last_offset_delta=5)
    yield "last-offset-delta-below-last-record", sealed(two, record_count=2, last_offset_delta=0)
    yield "last-offset-delta-negative", sealed(two, record_count=2, last_offset_delta=-1)
    for name, deltas in (("equal", (0, 0)), ("falling", (2, 1)), ("gap", (0, 2))):
        section = b"".join(record(body(offset_delta=delta)) for delta in deltas)
        yield f"deltas-{name}", sealed(section, record_count=2, last_offset_delta=2)
    yield "offsets-beyond-int64", sealed(two, base_offset=INT64_MAX, record_count=2, last_offset_delta=1)
    yield "base-offset-negative", sealed(two, base_offset=-5, record_count=2, last_offset_delta=1)
    for codec in (5, 6, 7):
        yield f"codec-{codec}", sealed(two, attributes=codec, record_count=2, last_offset_delta=1)
    yield "reserved-attributes", sealed(two, attributes=0x7F80, record_count=2, last_offset_delta=1)
    yield "control-of-two-records", sealed(two, attributes=0x20, record_count=2, last_offset_delta=1)
    yield (
        "control-compressed",
        sealed(compress(Codec.GZIP, record(body())), attributes=0x21, record_count=1, last_offset_delta=0),
    )
    yield "append-time-and-horizon", sealed(two, attributes=0x48, record_count=2, last_offset_delta=1)
    for field in BATCH_HEADER.fields:
        if field.name not in ("batch_length", "magic", "crc"):
            for name, value in (("minus-1", -1), ("most", INT64_MAX)):
                yield f"field-{field.name}-{name}".replace("_", "-"), with_field(field.name, value)


def found_batch_files():
    """What stands in front of the checksum, and the checksum."""
    right = bytes(encode_batch([b"k"], [b"v"], 5))
    for magic in (-1, 0, 1, 3, 127):
        yield f"magic-{magic}".replace("--", "-minus-"), right[:16] + struct.pack("b", magic) + right[17:]
    for length in (-1, 0, 13, 48, 49, len(right) - 13, len(right) - 11, INT32_MAX):
        name = f"length-{length}".replace("--", "-minus-")
        yield name, right[:8] + struct.pack(">i", length) + right[12:]
    yield "checksum-wrong", right[:17] + b"\0\0\0\0" + right[21:]
    yield "cut-in-header", right[:40]
    yield "cut-in-records", right[:-1]
    yield "zeros", bytes(100)
    yield "empty", b""


def run_files():
    yield "right", run(0, 1, 2)
    yield "base-offsets-equal", run(5, 5)
    yield "base-offsets-backward", run(5, 3)
    yield "base-offsets-gapped", run(5, 9)
    two = record(body()) + record(body(offset_delta=1))
    yield "base-offsets-overlapping", sealed(two, base_offset=5, record_count=2, last_offset_delta=1) + run(6)
    yield "epoch-back", run(0, partition_leader_epoch=5) + run(1, partition_leader_epoch=4)
    yield "zero-tail", run(0, 1) + bytes(200)
    yield "garbage-tail", run(0, 1) + bytes(range(90, 190))
    yield "cut", run(0, 1, 2)[:-5]
    yield "batch-of-another-partition", run(0, 1) + run(10_000, partition_leader_epoch=77, producer_id=5)
    yield "beyond-int64", run(0, INT64_MAX)
    yield (
        "all-codecs",
        b"".join(
            bytes(encode_batch([b"k"] * 3, [b"v"] * 3, 9, codec=codec, base_offset=3 * codec))
            for codec in Codec
        ),
    )
    marker = encode_end_marker(
        base_offset=2,
        producer_id=5,
        producer_epoch=0,
        control_type=ControlType.ABORT,
        coordinator_epoch=0,
        timestamp_ms=5,
    )
    open_transaction = run(0, 1, producer_id=5, producer_epoch=0, base_sequence=0, attributes=0x10)
    yield "aborted-transaction", open_transaction + bytes(marker) + run(3)
    yield "empty-batch", sealed(b"", record_count=0, last_offset_delta=4) + run(5)


def section_files():
    for name, section in RECORDS.items():
        yield name, struct.pack(">HIH4x", 1, 0, 1) + section
    two = record(body()) + record(body(offset_delta=1, headers=v(1, 1) + b"h" + v(1) + b"x"))
    yield "right", struct.pack(">HIH4x", 2, 1, 1) + two
    yield "right-append-time-at-the-end", struct.pack(">HIH4x", 2, 1, 2) + two


def control_files():
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3)
    for name, content in (
        ("commit", key + value),
        ("abort", struct.pack(">hh", 0, 0) + value),
        ("version-negative", struct.pack(">hh", -1, 0) + value),
        ("version-later", struct.pack(">hh", 9, 0) + value),
        ("type-unknown", struct.pack(">hh", 0, 99) + value),
        ("value-short", key + value[:3]),
        ("value-version-negative", key + struct.pack(">hi", -1, 3)),
        ("key-short", key[:3]),
    ):
        yield name, bytes([min(4, len(content))]) + content
    marker = encode_end_marker(
        base_offset=0,
        producer_id=5,
        producer_epoch=0,
        control_type=ControlType.COMMIT,
        coordinator_epoch=0,
        timestamp_ms=5,
    )
    yield "batch", bytes(marker)


def legacy_files():
    rows = [Record(3, 10, b"k", b"v"), Record(4, 20, None, b"w"), Record(5, 30, b"k", None)]
    for magic in (0, 1):
        yield f"right-{magic}", b"".join(encode_entry(magic, row) for row in rows)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield f"wrapper-{magic}-{codec.name.lower()}", encode_wrapper(magic, codec, rows)
        right = encode_entry(magic, rows[0])
        at = 18 + 8 * magic
        for length in (-2, 50, INT32_MAX):
            spoilt = right[:at] + struct.pack(">i", length) + right[at + 4 :]
            yield f"key-length-{length}-in-{magic}".replace("--", "-minus-"), spoilt
        yield (
            f"bytes-after-value-in-{magic}",
            right[:8] + struct.pack(">i", len(right) - 7) + right[12:] + b"xxxxx",
        )
        yield f"wrapper-of-nothing-{magic}", wrap(magic, Codec.GZIP, b"")
        inner = encode_wrapper(magic, Codec.GZIP, rows)
        yield f"wrapper-in-wrapper-{magic}", wrap(magic, Codec.GZIP, inner)
        backward = encode_entry(magic, rows[1]) + encode_entry(magic, rows[0])
        yield f"inner-offsets-backward-{magic}", wrap(magic, Codec.GZIP, backward)
        yield f"zstd-{magic}", right[:17] + b"\x04" + right[18:]
    yield "inner-of-another-magic", wrap(1, Codec.GZIP, encode_entry(0, rows[0]))
    yield "wrapper-below-its-last", encode_wrapper(1, Codec.GZIP, rows, offset=2)
    yield "wrapper-append-time", encode_wrapper(1, Codec.GZIP, rows, attributes=LOG_APPEND_TIME)
    yield "mixed-with-magic-2", encode_entry(1, rows[0]) + run(4)


TEXT = b"the same again and the same again, " * 9


def codec_files(codec):
    stream = compress(codec, TEXT)
    yield "right", stream
    yield "right-empty", compress(codec, b"")
    yield "cut", stream[: len(stream) // 2]
    yield "cut-by-one", stream[:-1]
    yield "trailing-byte", stream + b"\0"
    yield "twice", stream * 2
    yield "spoilt", stream[: len(stream) // 2] + b"\xff\xff" + stream[len(stream) // 2 + 2 :]
    yield "empty", b""


def _gzip(data, level):
    """The same on every Python: from 3.13 on the header does not name the system."""
    member = bytearray(gzip.compress(data, level, mtime=0))
    member[_GZIP_SYSTEM] = _UNIX
    return bytes(member)


def bomb_files():
    zeros = bytes(4 << 20)
    yield "gzip", "bomb", _gzip(zeros, 9)
    yield "gzip", "many-empty-members", _gzip(b"", 9) * 200
    yield "gzip", "raw-deflate", zlib.compress(TEXT)
    yield "zstd", "bomb", zstandard.ZstdCompressor().compress(zeros)
    yield (
        "zstd",
        "content-size-1-tib",
        b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0",
    )
    yield "zstd", "window-of-2-gib", b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\0\0"
    yield "zstd", "run-length-blocks", b"\x28\xb5\x2f\xfd\x00\x58" + b"\xfa\xff\x0fz" * 3 + b"\x03\0\0z"
    yield "zstd", "skippable-frame", b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + compress(Codec.ZSTD, TEXT)
    yield "zstd", "dictionary", b"\x28\xb5\x2f\xfd\x23\x05\x00\x00\x00\x05" + b"\x01\0\0"
    block = snappy.compress(bytes(1 << 16))
    framed = struct.pack(">i", len(block)) + block
    yield "snappy", "bomb", XERIAL_HEADER + framed * 3
    yield "snappy", "bare-block", snappy.compress(TEXT)
    yield "snappy", "bare-claims-4-gib", b"\xff\xff\xff\xff\x0f" + b"abc"
    yield "snappy", "length-of-6-bytes", b"\xff\xff\xff\xff\xff\x01" + b"abc"
    yield "snappy", "block-length-0", XERIAL_HEADER + bytes(4) + framed
    yield "snappy", "block-length-negative", XERIAL_HEADER + b"\xff\xff\xff\xff" + framed
    frame = compress(Codec.LZ4, bytes(1 << 16))
    yield "lz4", "bomb", frame[:7] + frame[7:-4] * 3 + frame[-4:]
    yield "lz4", "linked-blocks", frame[:4] + bytes([frame[4] & ~0x20]) + frame[5:]
    yield "lz4", "block-size-undefined", frame[:5] + b"\x30" + frame[6:]
    yield "lz4", "block-of-2-gib", frame[:7] + b"\xff\xff\xff\x7f" + frame[11:]
    yield "lz4", "version-2", frame[:4] + b"\xa0" + frame[5:]
    yield "lz4_of_magic_0", "bomb", frame[:7] + frame[7:-4] * 3 + frame[-4:]
    yield "lz4_of_magic_0", "header-cut", frame[:6]


def offset_index_files():
    pack = OFFSET_INDEX_ENTRY.pack
    yield "right", pack(2, 100) + pack(5, 300) + pack(9, 700)
    yield "unsorted-offsets", pack(5, 100) + pack(2, 300) + pack(9, 700)
    yield "unsorted-positions", pack(2, 300) + pack(5, 100)
    yield "negative", pack(-1, 100) + pack(3, -5)
    yield "out-of-range", pack(INT32_MAX, INT32_MAX)
    yield "equal", pack(2, 100) * 3
    yield "zeros", bytes(80)
    yield "part-of-an-entry", pack(2, 100) + b"\0\0\1"
    yield "empty", b""


def time_index_files():
    pack = TIME_INDEX_ENTRY.pack
    yield "right", pack(1000, 2) + pack(2000, 5)
    yield "unsorted-times", pack(2000, 2) + pack(1000, 5)
    yield "unsorted-offsets", pack(1000, 5) + pack(2000, 2)
    yield "negative", pack(-5, -5)
    yield "out-of-range", pack(INT64_MAX, INT32_MAX)
    yield "zeros", bytes(120)
    yield "part-of-an-entry", pack(1000, 2)[:7]


def transaction_index_files():
    pack = TRANSACTION_INDEX_ENTRY.pack
    yield "right", pack(0, 5, 100, 105, 100) + pack(0, 6, 103, 110, 106)
    yield "version-1", pack(1, 5, 100, 105, 100)
    yield "version-negative", pack(-1, 5, 100, 105, 100)
    yield "marker-below-base", pack(0, 5, 1, 2, 1)
    yield "markers-fall", pack(0, 5, 100, 110, 100) + pack(0, 6, 100, 105, 100)
    yield "begins-after-its-marker", pack(0, 5, 120, 110, 100)
    yield "part-of-an-entry", pack(0, 5, 100, 105, 100)[:20]


def snapshot_files():
    entry = ProducerSnapshotEntry(5, 0, 9, 100, 4, 1000, -1, -1)
    yield "right", encode_snapshot([entry, entry._replace(producer_id=6, transaction_first_offset=90)])
    yield "empty", encode_snapshot([])
    yield "producer-twice", encode_snapshot([entry, entry])
    yield "numbers-negative", encode_snapshot([ProducerSnapshotEntry(-1, -1, -1, -1, -1, -1, -1, -1)])
    yield (
        "numbers-most",
        encode_snapshot(
            [
                ProducerSnapshotEntry(
                    INT64_MAX, 32767, INT32_MAX, INT64_MAX, INT32_MAX, INT64_MAX, INT32_MAX, INT64_MAX
                )
            ]
        ),
    )
    right = encode_snapshot([entry])
    yield "count-minus-1", right[:6] + struct.pack(">i", -1) + right[10:]
    yield "count-int32-max", right[:6] + struct.pack(">i", INT32_MAX) + right[10:]
    yield "count-one-more", right[:6] + struct.pack(">i", 2) + right[10:]
    yield "checksum-wrong", right[:2] + bytes(4) + right[6:]
    yield "version-0", b"\0\0" + right[2:]
    yield "version-2", b"\0\2" + right[2:]
    yield "cut", right[:-1]


def checkpoint_lines(*lines):
    return "".join(f"{line}\n" for line in lines).encode()


def offset_checkpoint_files():
    yield "right", encode_offset_checkpoint({TopicPartition("t", 0): 5, TopicPartition("u.v", 12): 0})
    yield "version-1", checkpoint_lines(1, 1, "t 0 5")
    yield "version-negative", checkpoint_lines(-1, 1, "t 0 5")
    yield "count-one-more", checkpoint_lines(0, 2, "t 0 5")
    yield "count-one-less", checkpoint_lines(0, 1, "t 0 5", "t 1 5")
    yield "count-negative", checkpoint_lines(0, -1, "t 0 5")
    yield "count-int32-max", checkpoint_lines(0, INT32_MAX, "t 0 5")
    yield "offset-negative", checkpoint_lines(0, 1, "t 0 -5")
    yield "offset-beyond-int64", checkpoint_lines(0, 1, f"t 0 {INT64_MAX + 1}")
    yield "offset-of-5000-digits", checkpoint_lines(0, 1, "t 0 " + "9" * 5000)
    yield "offset-no-number", checkpoint_lines(0, 1, "t 0 five")
    yield "offset-other-digits", "0\n1\nt 0 \u0665\n".encode()
    yield "partition-twice", checkpoint_lines(0, 2, "t 0 5", "t 0 6")
    yield "topic-hostile", checkpoint_lines(0, 1, "../t 0 5")
    yield "fields-missing", checkpoint_lines(0, 1, "t 0")
    yield "no-line-end", b"0\n1\nt 0 5"
    yield "many-lines", checkpoint_lines(0, 1, *["t 0 5"] * 2000)
    yield "not-text", bytes(range(256))
    yield "empty", b""


def epoch_checkpoint_files():
    yield "right", encode_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(3, 100)])
    yield "epochs-fall", checkpoint_lines(0, 2, "3 0", "2 100")
    yield "offsets-fall", checkpoint_lines(0, 2, "2 100", "3 0")
    yield "equal", checkpoint_lines(0, 2, "2 100", "2 100")
    yield "epoch-beyond-int32", checkpoint_lines(0, 1, f"{INT32_MAX + 1} 0")
    yield "negative", checkpoint_lines(0, 1, "-1 0")
    yield "count-one-more", checkpoint_lines(0, 2, "0 0")
    yield "version-1", checkpoint_lines(1, 1, "0 0")


def partition_metadata_files():
    yield "right", f"version: 0\ntopic_id: {ID}".encode()
    yield "version-1", f"version: 1\ntopic_id: {ID}".encode()
    yield "zero-id", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"
    yield "id-not-canonical", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAB"
    yield "id-long", b"version: 0\ntopic_id: " + b"A" * 90
    yield "id-missing", b"version: 0\n"
    yield "version-of-5000-digits", b"version: " + b"1" * 5000 + f"\ntopic_id: {ID}".encode()
    yield "not-text", b"\xff" * 20


def meta_properties_files():
    right = f"#\nversion=1\ncluster.id=c\nnode.id=3\ndirectory.id={ID}\n"
    yield "right", right.encode()
    yield "right-version-0", b"version=0\nbroker.id=3\n"
    yield "other-keys", (right + "a\\ b\\:=x\\u00e9\\\n  y\n! no\n").encode()
    yield "version-2", right.replace("version=1", "version=2").encode()
    yield "version-of-5000-digits", right.replace("version=1", "version=" + "1" * 5000).encode()
    yield "node-negative", right.replace("node.id=3", "node.id=-3").encode()
    yield "cluster-missing", right.replace("cluster.id=c\n", "").encode()
    yield "escape-cut", right.encode() + b"a=\\u12"
    yield "escape-surrogate", right.encode() + b"a=\\ud800\n"
    yield "line-goes-on-to-the-end", right.encode() + b"a=b\\"
    yield "not-text", bytes(range(256))


def catalogue_files():
    right = (
        '{"version": 1, "topics": {"t": {"id": "'
        + ID
        + '", "partitions": 2, "config": {"retention.ms": "5"}, '
        '"state": "live"}}}'
    )
    yield "right", right.encode()
    yield "no-topics", b'{"version": 1, "topics": {}}'
    yield "version-2", right.replace('"version": 1', '"version": 2').encode()
    yield "version-bool", right.replace('"version": 1', '"version": true').encode()
    yield "version-negative", right.replace('"version": 1', '"version": -1').encode()
    yield "partitions-huge", right.replace('"partitions": 2', '"partitions": 100001').encode()
    yield (
        "partitions-of-5000-digits",
        right.replace('"partitions": 2', '"partitions": ' + "9" * 5000).encode(),
    )
    yield "partitions-float", right.replace('"partitions": 2', '"partitions": 2.5').encode()
    yield "name-hostile", right.replace('"t":', '"../t":').encode()
    yield "name-surrogate", right.replace('"t":', '"\\ud800":').encode()
    yield "config-unknown", right.replace("retention.ms", "no.such.key").encode()
    yield "config-no-text", right.replace('"5"', "5").encode()
    yield "state-unknown", right.replace("live", "gone").encode()
    yield "deep", b"[" * 5000
    yield "not-an-object", b"[1, 2]"
    yield "topics-clash", right.replace('"t":', '"a.b": {}, "a_b":').encode()
    yield "utf-16", right.encode("utf-16")
    yield "not-text", bytes(range(256))


def name_files():
    hostile = (
        "..",
        ".",
        "",
        "a/b",
        "a\0b",
        "../../etc/passwd",
        "a b",
        "\u00e9",
        "t" * 250,
        "a\n",
        "-",
        "a\\b",
    )
    for number, name in enumerate((*hostile, "topic-0", "topic-01", "topic--1", "t-0.abc-delete")):
        yield f"name-{number:02}", name.encode()
    yield "partition-beyond-int32", f"t-{INT32_MAX + 1}".encode()
    yield "partition-of-5000-digits", b"t-" + b"1" * 5000
    yield "partition-other-digits", "t-\u0661".encode()
    yield "deleted", b"t-0.0123456789abcdef0123456789abcdef-delete"
    yield "segment", b"00000000000000000007.log"
    yield "segment-beyond-int64", b"99999999999999999999.log"
    yield "segment-swapped", b"00000000000000000007.timeindex.swap"
    yield "segment-other-digits", "0000000000000000000\u0667.log".encode()
    yield "not-utf8", b"\xff-0"


def directory_files():
    """One edit of each kind in the directory's first files, and some together; see ``directories.py``."""
    kinds = ("flip", "overwrite", "cut", "append", "zeros", "remove", "repeat", "other-file", "rename-suffix")
    for kind, name in enumerate((*kinds, "new-file", "rename", "forge", "grow")):
        for directory in (0, 2, 5):
            for file in (3, 11):
                payload = b"\xff" * 8 if kind in (1, 3, 9) else b""
                edit = bytes([file, kind, 0, 0, 70, len(payload) or 77]) + payload
                yield f"{name}-{file}-in-{directory}", bytes([directory]) + edit
    yield "nothing", b""
    yield "log-start-beyond-end", bytes([0, 12, 1, 0, 0, 8, 2]) + b"99"
    yield "all-removed", bytes([0]) + bytes([0, 5, 0, 0, 0, 0]) * 12


def files():
    """(reader, rule, content) of every file."""
    plain = {
        "batch": batch_files,
        "part_of_batch": lambda: [
            item for item in batch_files() if item[0].startswith(("right", "count", "delta"))
        ],
        "batch_as_found": found_batch_files,
        "batches": run_files,
        "segment": run_files,
        "records": section_files,
        "control": control_files,
        "legacy": legacy_files,
        "offset_index": offset_index_files,
        "time_index": time_index_files,
        "transaction_index": transaction_index_files,
        "producer_snapshot": snapshot_files,
        "offset_checkpoint": offset_checkpoint_files,
        "epoch_checkpoint": epoch_checkpoint_files,
        "partition_metadata": partition_metadata_files,
        "meta_properties": meta_properties_files,
        "catalogue": catalogue_files,
        "names": name_files,
        "directory": directory_files,
    }
    for reader, make in plain.items():
        for rule, content in make():
            yield reader, rule, bytes(content)
    for codec in Codec:
        name = codec.name.lower() if codec else "uncompressed"
        for rule, content in codec_files(codec):
            yield name, rule, content
    for rule, content in codec_files(Codec.LZ4):
        yield "lz4_of_magic_0", rule, content
    yield from bomb_files()


def main(path=CORPUS):
    count = size = 0
    for reader, rule, content in files():
        directory = Path(path) / reader
        directory.mkdir(parents=True, exist_ok=True)
        (directory / rule).write_bytes(content)
        count, size = count + 1, size + len(content)
    print(f"{count} files, {size} bytes in {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
