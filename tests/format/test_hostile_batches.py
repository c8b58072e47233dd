"""Batches that lie: the checksum is right, the structure is wrong, and nothing but CorruptionError comes out.

Each row of the corpus is one rule that a decoder could forget.
"""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError
from logstore.format.batch import (
    BatchHeader,
    check_batch,
    decode_batch,
    decode_header,
    encode_batch,
    seal_batch,
)
from logstore.format.compression import Codec, compress
from logstore.format.loops import scan_batches
from logstore.format.records import MIN_HEADER_BYTES
from logstore.format.varint import encode_varint
from tests.format.vectors import ABORT_MARKER, BATCHES, PLAIN, TRANSACTIONAL

pytestmark = pytest.mark.usefixtures("each_implementation")

HEADER = BatchHeader(0, 0, 0, 2, 0, 0, 0, 1000, 1000, -1, -1, -1, 1)
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
ENDLESS = b"\xff" * 12


def _v(*numbers):
    return b"".join(map(encode_varint, numbers))


def _record(body, *, length=None):
    """A record around ``body``, which begins after the length; the length may lie."""
    return encode_varint(len(body) if length is None else length) + body


def _body(*, attributes=0, timestamp_delta=0, offset_delta=0, key=b"\x01", value=b"\x01", headers=b"\x00"):
    return bytes([attributes]) + _v(timestamp_delta, offset_delta) + key + value + headers


def _sealed(records, **fields):
    return bytes(seal_batch(HEADER._replace(**fields), records))


def _refused(batch, *, position=0):
    """The CorruptionError of reading the batch as a reader does; anything else fails the test."""
    with pytest.raises(CorruptionError) as caught:
        _read(batch, position)
    return caught.value


def _read(batch, position):
    header = decode_header(batch, position)
    check_batch(batch, position, header)
    return decode_batch(batch, position, header)


GOOD = _record(_body())


def test_the_corpus_starts_from_a_good_batch():
    batch = _sealed(GOOD)
    check_batch(batch, 0, decode_header(batch))
    assert decode_batch(batch, 0, decode_header(batch)) == [(0, 1000, None, None, ())]


# Records: what the checksum cannot tell

BAD_RECORDS = {
    "a length of more than 5 bytes": ENDLESS + _body(),
    "length -1": _record(_body(), length=-1),
    "length 0": _record(_body(), length=0),
    "length 48": _record(_body(), length=48),
    "length 2^31 - 1": _record(_body(), length=INT32_MAX),
    "length -2^31": _record(_body(), length=-INT32_MAX - 1),
    "length one less": _record(_body(), length=5),
    "length one more": _record(_body(), length=7),
    "a timestamp of more than 10 bytes": _record(b"\0" + ENDLESS + _v(0, -1, -1, 0)),
    "an offset delta of more than 5 bytes": _record(b"\0\0" + ENDLESS + _v(-1, -1, 0)),
    "offset delta -1": _record(_body(offset_delta=-1)),
    "offset delta beyond the last": _record(_body(offset_delta=1)),
    "offset delta 2^31 - 1": _record(_body(offset_delta=INT32_MAX)),
    "key length -2": _record(_body(key=_v(-2))),
    "key length 1 of 0": _record(_body(key=_v(50))),
    "key length 2^31 - 1": _record(_body(key=_v(INT32_MAX))),
    "key length of more than 5 bytes": _record(_body(key=ENDLESS)),
    "value length -2": _record(_body(value=_v(-2))),
    "value length beyond the record": _record(_body(value=_v(2))),
    "value length 2^31 - 1": _record(_body(value=_v(INT32_MAX))),
    "value length of more than 5 bytes": _record(_body(value=ENDLESS)),
    "header count -1": _record(_body(headers=_v(-1))),
    "header count 1 of 0": _record(_body(headers=_v(1))),
    "header count beyond the bytes": _record(_body(headers=_v(2, 0, -1, 0))),
    "header count 2^31 - 1": _record(_body(headers=_v(INT32_MAX))),
    "header count of more than 5 bytes": _record(_body(headers=ENDLESS)),
    "a null header key": _record(_body(headers=_v(1, -1, -1))),
    "header key length -2": _record(_body(headers=_v(1, -2, -1))),
    "header key beyond the record": _record(_body(headers=_v(1, 9, -1))),
    "header value length -2": _record(_body(headers=_v(1, 0, -2))),
    "header value beyond the record": _record(_body(headers=_v(1, 0, 9))),
    "a header after the count": _record(_body(headers=_v(1, 0, -1, 0, -1))),
    "bytes after the record": GOOD + b"\0",
    "a record after the count": GOOD + _record(_body(offset_delta=1)),
    "nothing": b"",
    "half a record": GOOD[:4],
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("name", BAD_RECORDS)
def test_records_that_lie(name, codec):
    fault = _refused(_sealed(compress(codec, BAD_RECORDS[name]), attributes=codec))
    assert (fault.base_offset, fault.last_offset) == (0, 0)
    assert fault.position == 0 if codec else fault.position is not None


BAD_SEQUENCES = {
    "two equal offset deltas": (0, 0),
    "falling offset deltas": (2, 1),
    "a negative delta second": (0, -1),
    "the last beyond the last offset delta": (0, 3),
}


@pytest.mark.parametrize("name", BAD_SEQUENCES)
def test_offset_deltas_that_do_not_rise(name):
    records = b"".join(_record(_body(offset_delta=delta)) for delta in BAD_SEQUENCES[name])
    assert "offset delta" in _refused(_sealed(records, record_count=2, last_offset_delta=2)).reason


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_a_count_that_is_not_the_number_of_records(count):
    records = b"".join(_record(_body(offset_delta=delta)) for delta in range(2))
    _refused(_sealed(records, record_count=count, last_offset_delta=3))
    packed = compress(Codec.LZ4, records)
    _refused(_sealed(packed, attributes=Codec.LZ4, record_count=count, last_offset_delta=3))


def test_a_last_offset_delta_past_the_last_record_is_what_compaction_leaves():
    batch = _sealed(GOOD, last_offset_delta=40)
    assert len(decode_batch(batch, 0, decode_header(batch))) == 1


def test_header_count_is_checked_before_memory_is_taken():
    assert MIN_HEADER_BYTES == 2
    batch = _sealed(_record(_body(headers=_v(500) + _v(0, -1) * 499)))
    assert "500 headers" in _refused(batch).reason


# Headers: the checksum is right, each field in turn is not

BAD_HEADERS = {
    "base offset -1": {"base_offset": -1},
    "base offset -2^63": {"base_offset": -INT64_MAX - 1},
    "base plus delta beyond 2^63": {"base_offset": INT64_MAX, "last_offset_delta": 1},
    "last offset delta -1": {"last_offset_delta": -1},
    "last offset delta -2^31": {"last_offset_delta": -INT32_MAX - 1},
    "count -1": {"record_count": -1},
    "count -2^31": {"record_count": -INT32_MAX - 1},
    "count above the offsets": {"record_count": 2},
    "count 2^31 - 1": {"record_count": INT32_MAX, "last_offset_delta": INT32_MAX},
    "count above what the bytes can hold": {"record_count": 2, "last_offset_delta": 1},
    "count 0 with records": {"record_count": 0},
    "codec 5": {"attributes": 5},
    "codec 6": {"attributes": 6},
    "codec 7": {"attributes": 7},
    "a codec that it does not have": {"attributes": 1},
    "a compressed control batch": {"attributes": 0x34},
    "a control batch of two records": {"attributes": 0x30, "record_count": 2, "last_offset_delta": 1},
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_headers_that_lie(name):
    assert _refused(_sealed(GOOD * 2 if "control" in name else GOOD, **BAD_HEADERS[name])).position == 0


@pytest.mark.parametrize("name", [name for name in BAD_HEADERS if "does not have" not in name])
def test_a_walk_with_checks_stops_there(name):
    good = _sealed(GOOD)
    bad = _sealed(GOOD * 2 if "control" in name else GOOD, **BAD_HEADERS[name])
    found, stopped, fault = scan_batches(good + bad + good, 0, 2 * len(good) + len(bad), check=True)
    assert (len(found), stopped, fault.position) == (1, len(good), len(good))


def test_decoding_without_the_check_raises_nothing_else():
    for name, fields in BAD_HEADERS.items():
        batch = _sealed(GOOD, **fields)
        try:
            decode_batch(batch, 0, decode_header(batch))
        except CorruptionError:
            continue
        assert "base" in name or "offset" in name or "control" in name, name


def test_unused_attribute_bits_are_passed_over():
    batch = _sealed(GOOD, attributes=0x7F80)
    check_batch(batch, 0, decode_header(batch))
    assert len(decode_batch(batch, 0, decode_header(batch))) == 1


def test_a_record_count_takes_no_memory_before_it_is_believed():
    packed = compress(Codec.ZSTD, GOOD)
    batch = _sealed(packed, attributes=Codec.ZSTD, record_count=INT32_MAX, last_offset_delta=INT32_MAX)
    tracemalloc.start()
    try:
        assert "2147483647 records in 7 bytes" in _refused(batch).reason
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# Sizes and magics

BAD_PREFIXES = {
    "length -1": (-1, 2),
    "length 0": (0, 2),
    "length 13": (13, 0),
    "length 14, magic 1": (14, 1),
    "length 21, magic 1": (21, 1),
    "length 48, magic 2": (48, 2),
    "length -2^31": (-INT32_MAX - 1, 2),
    "magic 3": (80, 3),
    "magic 127": (80, 127),
    "magic -1": (80, -1),
    "magic 3, cut short": (INT32_MAX, 3),
}


@pytest.mark.parametrize("name", BAD_PREFIXES)
@pytest.mark.parametrize("check", [True, False])
def test_sizes_and_magics_that_cannot_be(name, check):
    length, magic = BAD_PREFIXES[name]
    bad = struct.pack(">qiib", 5, length, 0, magic) + bytes(75)
    assert ("magic 3" in name) == ("unknown magic 3" in _refused(bad).reason)
    found, stopped, fault = scan_batches(PLAIN.encoded + bad, 0, len(PLAIN.encoded) + len(bad), check=check)
    assert (len(found), stopped) == (1, len(PLAIN.encoded))
    assert fault.position == len(PLAIN.encoded)


def test_a_length_of_2_to_the_31_is_an_incomplete_tail():
    bad = struct.pack(">qiib", 5, INT32_MAX, 0, 2) + bytes(75)
    assert scan_batches(bad, 0, len(bad), check=True) == ([], 0, None)
    assert "cut short" in _refused(bad).reason


@pytest.mark.parametrize("position", [-1, -61, 1, 1000])
def test_positions_outside_of_the_buffer(position):
    _refused(PLAIN.encoded[:60], position=position)
    with pytest.raises(CorruptionError):
        check_batch(PLAIN.encoded, position, PLAIN.header)
    with pytest.raises(CorruptionError):
        decode_batch(PLAIN.encoded, position, PLAIN.header)


def test_a_zero_filled_tail_is_damage_where_a_batch_was_expected():
    buffer = PLAIN.encoded + bytes(4096)
    found, stopped, fault = scan_batches(buffer, 0, len(buffer), check=False)
    assert (len(found), stopped, fault.position) == (1, len(PLAIN.encoded), len(PLAIN.encoded))


@given(tail=st.binary(max_size=200))
@settings(max_examples=100)
def test_a_garbage_tail_never_becomes_a_batch(tail):
    found, stopped, _ = scan_batches(PLAIN.encoded + tail, 0, len(PLAIN.encoded) + len(tail), check=True)
    assert (len(found), stopped) == (1, len(PLAIN.encoded))


# Every flip, every cut, any mutation

SMALL = bytes(TRANSACTIONAL.encoded)


def test_every_flipped_bit_under_the_checksum_is_found():
    for position in range(16, len(SMALL)):
        for bit in range(8):
            batch = bytearray(SMALL)
            batch[position] ^= 1 << bit
            _refused(bytes(batch))


def test_every_flipped_bit_before_the_checksum_changes_offset_or_epoch_only_or_is_found():
    for position in range(16):
        for bit in range(8):
            batch = bytearray(SMALL)
            batch[position] ^= 1 << bit
            try:
                header = decode_header(batch)
                check_batch(batch, 0, header)
            except CorruptionError:
                continue
            assert position < 8 or position >= 12
            assert header[3:] == TRANSACTIONAL.header[3:]


@pytest.mark.parametrize("vector", BATCHES, ids=lambda vector: vector.name)
def test_truncation_at_every_length(vector):
    for length in range(len(vector.encoded)):
        _refused(vector.encoded[:length])
        assert scan_batches(vector.encoded, 0, length, check=True) == ([], 0, None)


@pytest.mark.parametrize("codec", Codec)
def test_records_section_cut_at_every_length_and_sealed_again(codec):
    batch = encode_batch([b"k", None], [b"v", b"w"], [1, 2], [(("h", b"x"),), None], codec=codec)
    header = decode_header(batch)
    for length in range(61, len(batch)):
        _refused(bytes(seal_batch(header, batch[61:length])))


@pytest.mark.parametrize("codec", Codec)
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=120)
def test_mutated_records_raise_nothing_but_corruption(codec, edits):
    section = bytearray(
        encode_batch(
            [b"key", None] * 4, [b"v" * 70, b""] * 4, range(8), [(("h", b"x"),), None] * 4, codec=codec
        )[61:]
    )
    for place, byte in edits:
        section[place % len(section)] = byte
    batch = _sealed(section, attributes=codec, record_count=8, last_offset_delta=7)
    check_batch(batch, 0, decode_header(batch))
    with contextlib.suppress(CorruptionError):
        assert len(decode_batch(batch, 0, decode_header(batch))) == 8


@given(noise=st.binary(max_size=150), magic=st.integers(0, 2))
@settings(max_examples=200)
def test_noise_raises_nothing_but_corruption(noise, magic):
    data = bytearray(noise)
    if len(data) > 16:
        data[8:12] = struct.pack(">i", len(data) - 12)
        data[16] = magic
    for check in (True, False):
        scan_batches(data, 0, len(data), check=check)
    with contextlib.suppress(CorruptionError):
        decode_batch(data, 0, decode_header(data))


@given(
    fields=st.fixed_dictionaries(
        {}, optional={name: st.integers(-(2**15), 2**15 - 1) for name in BatchHeader._fields[5:]}
    )
)
@settings(max_examples=100)
def test_mutated_headers_raise_nothing_but_corruption(fields):
    batch = _sealed(GOOD, **fields)
    try:
        header = decode_header(batch)
        check_batch(batch, 0, header)
        decode_batch(batch, 0, header)
    except CorruptionError:
        pass


# Bombs


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_bomb_in_a_batch_stays_within_the_limit(codec):
    batch = _sealed(compress(codec, bytes(32 << 20)), attributes=codec)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError) as caught:
            decode_batch(batch, 0, decode_header(batch), limit_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.position == 0


def test_a_batch_of_another_partition_is_whole_so_only_its_offset_tells():
    stranger = encode_batch([b"k"], [b"v"], 0, base_offset=10_000)
    buffer = ABORT_MARKER.encoded + bytes(stranger)
    found, _, fault = scan_batches(buffer, 0, len(buffer), check=True)
    assert fault is None
    assert [header.base_offset for _, header in found] == [7, 10_000]
