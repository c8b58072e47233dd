"""Varints: golden bytes both ways, and every way in which they can be damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UsageError
from logstore.format.varint import (
    VARINT_MAX_BYTES,
    VARLONG_MAX_BYTES,
    decode_varint,
    decode_varlong,
    encode_varint,
)
from tests.format.vectors import VARINTS, VARLONGS


@pytest.mark.parametrize(("value", "encoded"), VARLONGS.items())
def test_golden_bytes(value, encoded):
    assert encode_varint(value).hex() == encoded
    assert decode_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(("value", "encoded"), VARINTS.items())
def test_golden_32_bit_values(value, encoded):
    assert decode_varint(b"\xff" + bytes.fromhex(encoded), 1) == (value, 1 + len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_value_comes_back(value):
    encoded = encode_varint(value)
    assert decode_varlong(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= VARLONG_MAX_BYTES


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_more_than_64_bits_are_refused(value):
    with pytest.raises(UsageError, match="64 bits"):
        encode_varint(value)


@pytest.mark.parametrize(
    ("decode", "limit"), [(decode_varint, VARINT_MAX_BYTES), (decode_varlong, VARLONG_MAX_BYTES)]
)
def test_a_varint_without_end_stops_at_its_limit(decode, limit):
    assert decode(b"\x80" * (limit - 1) + b"\x00", 0) == (0, limit)
    with pytest.raises(CorruptionError, match="longer than") as caught:
        decode(b"!" + b"\x80" * limit + b"\x00", 1)
    assert caught.value.position == 1


@pytest.mark.parametrize("position", [-1, 2, 3, 100])
def test_the_end_of_the_buffer_inside_a_varint(position):
    with pytest.raises(CorruptionError, match="end inside"):
        decode_varint(b"\x00\x80\x80", position)


def test_bits_beyond_the_32nd_are_dropped():
    assert decode_varint(bytes.fromhex("feffffff7f"), 0) == (2**31 - 1, 5)
