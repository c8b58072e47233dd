"""Decoding a part of a batch gives what decoding all of it and picking would give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError
from logstore.format.batch import decode_batch, decode_header, decode_range, encode_batch
from logstore.format.compression import Codec
from logstore.format.loops import skip_records
from tests.format.strategies import records

pytestmark = pytest.mark.usefixtures("each_implementation")

codecs = st.sampled_from(list(Codec))


def encoded(rows, codec):
    _, timestamps, keys, values, headers = zip(*rows, strict=True)
    return encode_batch(keys, values, timestamps, headers, base_offset=rows[0].offset, codec=codec)


@given(records(), codecs, st.integers(-2, 8), st.integers(-2, 8))
def test_a_range_is_what_picking_from_the_whole_gives(rows, codec, first, count):
    batch = encoded(rows, codec)
    header = decode_header(batch)
    start = header.base_offset + first
    wanted = [r for r in decode_batch(batch, 0, header) if start <= r.offset < start + count]
    assert decode_range(batch, 0, header, start, start + count) == wanted


def test_records_are_skipped_by_their_sizes_alone():
    assert skip_records(bytes([2, 0, 4, 0, 0, 0x80, 0x01]) + bytes(64), 0, 3) == 7 + 64


def test_sizes_of_three_bytes_and_more_are_read_too():
    assert skip_records(b"\x80\x80\x01" + bytes(8192) + b"\x02\x00", 0, 2) == 3 + 8192 + 2
    assert skip_records(b"\xff\xff\xff\xff\x0f", 0, 1) == -1
    with pytest.raises(CorruptionError):
        skip_records(b"\x80\x80", 0, 1)


def test_a_range_of_a_batch_whose_records_do_not_fill_it_is_refused():
    batch = encode_batch([None] * 3, [b"v"] * 3, 0)
    batch[61] = 0x7E  # the first record claims 63 bytes; the checksum is not looked at here
    header = decode_header(batch)
    with pytest.raises(CorruptionError):
        decode_range(batch, 0, header, 1, 2)
