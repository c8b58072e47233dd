"""The encoder's tables say what the functions they stand for say, inside the tables and beyond them."""

import pytest

from logstore.format.tables import TABLE_VALUES, ready_tables
from logstore.format.varint import encode_varint

NUMBERS = [*range(-70, TABLE_VALUES + 10), 2**20 - 1, 2**20, 2**31 - 1, -(2**31), 2**62]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("varint", b""), ("attributes_and_timestamp", b"\0"), ("varint_behind_null", b"\1")],
)
def test_varints(name, prefix):
    encode = getattr(ready_tables(), name)
    assert all(encode(number) == prefix + encode_varint(number) for number in NUMBERS)


@pytest.mark.parametrize(("name", "more"), [("framed", 0), ("framed_and_1", 1), ("framed_and_2", 2)])
def test_sizes_with_their_length(name, more):
    framed = getattr(ready_tables(), name)
    for length in range(-1, TABLE_VALUES + 10):
        assert framed(length) == len(encode_varint(length)) + max(length, 0) + more


@pytest.mark.parametrize(
    "first", [0, 1, 1024, TABLE_VALUES - 5, TABLE_VALUES, 3 * TABLE_VALUES + 7, 2**20 - 5, 2**20]
)
@pytest.mark.parametrize("count", [0, 1, 1024, TABLE_VALUES, TABLE_VALUES + 5])
def test_offset_deltas(first, count):
    wanted = list(map(encode_varint, range(first, first + count)))
    assert list(ready_tables().offset_deltas_from(first, count)) == wanted
