"""Entries of magic 0 and 1: golden bytes, wrappers, and what may not be inside them."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UsageError
from logstore.format.batch import check_batch, decode_batch, decode_header, encode_records_batch
from logstore.format.compression import Codec, compress
from logstore.format.loops import scan_batches
from logstore.model import Record, TimestampType
from tests.format.legacy_writer import LOG_APPEND_TIME, encode_entry, encode_wrapper, wrap
from tests.format.vectors import (
    LEGACY,
    LEGACY_CHECKSUMS,
    MAGIC_0_LZ4_CHECKSUM_IF_CORRECT,
    PLAIN,
    TWO_RECORDS,
)

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
FOUR = [Record(n, 1000 + n, b"k%d" % n, None if n == 2 else b"v%d" % n) for n in range(4)]

by_magic = pytest.mark.parametrize("magic", [0, 1])
by_codec = pytest.mark.parametrize("codec", CODECS)


def _read(entry):
    header = decode_header(entry)
    check_batch(entry, 0, header)
    return decode_batch(entry, 0, header)


def _without_times(records, magic):
    return [record._replace(timestamp_ms=-1) for record in records] if magic == 0 else list(records)


@pytest.mark.parametrize("vector", LEGACY, ids=lambda vector: vector.name)
def test_golden_bytes(vector):
    assert encode_entry(vector.magic, vector.record) == vector.encoded
    assert _read(vector.encoded) == [vector.record]


@pytest.mark.parametrize(("magic", "codec"), LEGACY_CHECKSUMS)
def test_kafkas_own_checksums(magic, codec):
    if codec is Codec.NONE:
        entry = encode_entry(magic, TWO_RECORDS[0])
        expected = TWO_RECORDS[:1]
    else:
        entry = encode_wrapper(magic, codec, TWO_RECORDS)
        expected = TWO_RECORDS
    assert decode_header(entry).crc == LEGACY_CHECKSUMS[magic, codec]
    assert _read(entry) == _without_times(expected, magic)


def test_the_checksum_if_magic_0_had_its_lz4_header_right():
    plain = b"".join(encode_entry(0, record) for record in TWO_RECORDS)
    entry = encode_entry(0, Record(1, -1, None, compress(Codec.LZ4, plain)), attributes=Codec.LZ4)
    assert decode_header(entry).crc == MAGIC_0_LZ4_CHECKSUM_IF_CORRECT
    assert len(_read(entry)) == 2


@by_magic
def test_the_header_of_an_entry(magic):
    header = decode_header(encode_entry(magic, Record(9, 1234, b"k", b"v")))
    assert (header.base_offset, header.last_offset, header.next_offset) == (9, 9, 10)
    assert (header.magic, header.record_count, header.max_timestamp_ms) == (magic, 1, 1234 if magic else -1)
    assert (header.producer_id, header.base_sequence, header.partition_leader_epoch) == (-1, -1, -1)


def test_bits_that_magic_0_and_1_do_not_know_are_dropped():
    for magic, known in ((0, 0x00), (1, 0x08)):
        header = decode_header(encode_entry(magic, FOUR[0], attributes=0x78))
        assert header.attributes == known
        assert not header.is_control


@by_magic
@by_codec
def test_a_wrapper_around_the_first_offsets(magic, codec):
    entry = encode_wrapper(magic, codec, FOUR)
    header = decode_header(entry)
    assert (header.last_offset, header.record_count, header.codec) == (3, -1, codec)
    assert _read(entry) == _without_times(FOUR, magic)


@by_codec
def test_magic_0_has_absolute_offsets_inside(codec):
    inner = [record._replace(offset=record.offset + 50) for record in FOUR]
    assert [record.offset for record in _read(encode_wrapper(0, codec, inner))] == [50, 51, 52, 53]


@by_codec
def test_magic_1_has_relative_offsets_inside(codec):
    assert [record.offset for record in _read(encode_wrapper(1, codec, FOUR, offset=53))] == [50, 51, 52, 53]


def test_magic_1_with_gaps_inside_ends_at_the_wrappers_offset():
    inner = [FOUR[0], FOUR[2]]
    assert [record.offset for record in _read(encode_wrapper(1, Codec.GZIP, inner, offset=52))] == [50, 52]


def test_a_wrapper_at_offset_0_leaves_the_offsets_alone():
    assert [record.offset for record in _read(encode_wrapper(1, Codec.GZIP, FOUR, offset=0))] == [0, 1, 2, 3]


def test_a_wrapper_below_its_last_inner_offset():
    with pytest.raises(CorruptionError, match="below that of the last inner entry"):
        _read(encode_wrapper(1, Codec.GZIP, FOUR, offset=2))


def test_log_append_time_is_the_wrappers():
    entry = encode_wrapper(1, Codec.GZIP, FOUR, timestamp_ms=777, attributes=LOG_APPEND_TIME)
    assert decode_header(entry).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in _read(entry)] == [777] * 4


@by_magic
@by_codec
@given(payloads=st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary()), min_size=1, max_size=5))
@settings(max_examples=15)
def test_any_payload_comes_back(magic, codec, payloads):
    records = [Record(number, 5, key, value) for number, (key, value) in enumerate(payloads)]
    assert _read(encode_wrapper(magic, codec, records)) == _without_times(records, magic)
    assert _read(encode_entry(magic, records[0])) == _without_times(records[:1], magic)


def test_a_file_of_every_magic_is_walked_alike():
    entries = [
        encode_entry(0, Record(0, -1, b"k", b"v")),
        encode_wrapper(0, Codec.GZIP, [Record(1, -1, b"k", b"v"), Record(2, -1, b"k", b"v")]),
        encode_entry(1, Record(3, 9, b"k", b"v")),
        encode_wrapper(1, Codec.LZ4, FOUR, offset=7),
        PLAIN.encoded,
    ]
    found, stopped, fault = scan_batches(b"".join(entries), 0, sum(map(len, entries)), check=True)
    assert fault is None
    assert stopped == sum(map(len, entries))
    assert [header.last_offset for _, header in found] == [0, 2, 3, 7, 1]


def test_compaction_moves_a_wrapper_to_magic_2_and_keeps_its_last_offset():
    header = decode_header(encode_wrapper(1, Codec.GZIP, FOUR, offset=53))
    batch = encode_records_batch([Record(51, 5, b"k", b"v")], like=header)
    modern = decode_header(batch)
    check_batch(batch, 0, modern)
    assert (modern.magic, modern.base_offset, modern.last_offset, modern.codec) == (2, 51, 53, Codec.GZIP)
    with pytest.raises(UsageError, match="magic 1"):
        encode_records_batch([], like=header)


# Damage


def _entry_with(payload, *, magic=1, attributes=0):
    record = Record(5, 0, None, None)
    entry = bytearray(encode_entry(magic, record, attributes=attributes))
    start = 26 if magic else 18
    entry[start:] = payload
    entry[8:12] = struct.pack(">i", len(entry) - 12)
    return bytes(entry)


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack(">ii", -2, -1),
        struct.pack(">ii", -1, -2),
        struct.pack(">ii", 1, -1),
        struct.pack(">ii", -1, 1),
        struct.pack(">ii", 2**31 - 1, -1),
        struct.pack(">ii", -1, 2**31 - 1),
        struct.pack(">ii", -1, 0) + b"left over",
        struct.pack(">i", 2) + b"ab" + b"\0\0",
    ],
)
@by_magic
def test_lengths_that_do_not_fit(payload, magic):
    entry = _entry_with(payload + b"", magic=magic)
    with pytest.raises(CorruptionError) as caught:
        decode_batch(entry, 0, decode_header(entry))
    assert caught.value.base_offset == 5


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (encode_entry(1, Record(0, 0, None, None), attributes=Codec.GZIP), "without a value"),
        (encode_entry(1, Record(0, 0, None, b""), attributes=Codec.GZIP), "cut short"),
        (wrap(1, Codec.GZIP, b""), "no entry"),
        (wrap(1, Codec.GZIP, encode_wrapper(1, Codec.GZIP, FOUR)), "compressed entry in a compressed"),
        (wrap(1, Codec.GZIP, encode_entry(0, FOUR[0])), "magic 0 in one of magic 1"),
        (wrap(1, Codec.GZIP, PLAIN.encoded), "magic 2 in one of magic 1"),
        (wrap(1, Codec.GZIP, encode_entry(1, FOUR[0]) + b"tail"), "too short"),
        (wrap(1, Codec.GZIP, encode_entry(1, FOUR[0])[:-1]), "cut short"),
        (wrap(1, Codec.GZIP, encode_entry(1, FOUR[0])[:-1] + b"x"), "checksum"),
        (wrap(1, Codec.GZIP, encode_entry(1, FOUR[1]) * 2, offset=9), "inner offset 1 after 1"),
        (wrap(1, Codec.GZIP, encode_entry(1, FOUR[0]._replace(offset=-1))), "inner offset -1"),
    ],
)
def test_what_may_not_be_in_a_wrapper(entry, reason):
    with pytest.raises(CorruptionError, match=reason) as caught:
        _read(entry)
    assert caught.value.position == 0


def test_zstd_came_later():
    entry = encode_entry(1, Record(0, 0, None, b"x"), attributes=Codec.ZSTD)
    header = decode_header(entry)
    with pytest.raises(CorruptionError, match="no zstd"):
        check_batch(entry, 0, header)
    with pytest.raises(CorruptionError, match="no zstd"):
        decode_batch(entry, 0, header)


@by_codec
def test_a_bomb_in_a_wrapper(codec):
    entry = wrap(1, codec, bytes(1 << 20))
    with pytest.raises(CorruptionError, match="limit"):
        decode_batch(entry, 0, decode_header(entry), limit_bytes=1 << 16)


@by_magic
def test_truncation_at_every_length(magic):
    entry = encode_wrapper(magic, Codec.GZIP, FOUR)
    for length in range(len(entry)):
        with pytest.raises(CorruptionError):
            _read(entry[:length])


@by_magic
@by_codec
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=40)
def test_mutations_raise_nothing_but_corruption(magic, codec, edits):
    entry = bytearray(encode_wrapper(magic, codec, FOUR))
    for place, byte in edits:
        entry[place % len(entry)] = byte
    with contextlib.suppress(CorruptionError):
        decode_batch(entry, 0, decode_header(entry))
