"""The encoder's tables say what the functions they stand for say, inside the tables and beyond them."""

from logstore.format.tables import TABLE_VALUES, ready_tables
from logstore.format.varint import encode_varint

NUMBERS = [*range(-70, TABLE_VALUES + 10), 2**31 - 1, -(2**31), 2**62]


def test_varints():
    assert all(ready_tables().varint(number) == encode_varint(number) for number in NUMBERS)


def test_timestamps_behind_the_attributes():
    stamp = ready_tables().attributes_and_timestamp
    assert all(stamp(number) == b"\0" + encode_varint(number) for number in NUMBERS)


def test_sizes_with_their_length():
    tables = ready_tables()
    for length in range(-1, TABLE_VALUES + 10):
        size = len(encode_varint(length)) + max(length, 0)
        assert (tables.framed(length), tables.framed_and_count(length)) == (size, size + 1)


def test_offset_deltas():
    for count in (0, 1, TABLE_VALUES, TABLE_VALUES + 5):
        assert list(ready_tables().first_offset_deltas(count)) == list(map(encode_varint, range(count)))
