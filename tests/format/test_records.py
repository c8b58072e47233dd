"""The hot loops: records both ways, held to the careful reader, and errors that name the record."""

import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, InvalidRecordError, InvalidTimestampError
from logstore.format import loops
from logstore.format import records as careful
from logstore.format.tables import TABLE_VALUES
from logstore.model import PlainRecord, Record
from tests.format import strategies

pytestmark = pytest.mark.usefixtures("each_implementation")

INT32_MAX = 2**31 - 1


def _encode(rows, base_timestamp_ms):
    offsets, stamps, keys, values, headers = zip(*rows, strict=True)
    deltas = [offset - offsets[0] for offset in offsets]
    return loops.encode_records(keys, values, stamps, headers, base_timestamp_ms, deltas)


def _decode(
    data, count, *, base_offset=0, base_timestamp_ms=0, append_time_ms=None, last_offset_delta=INT32_MAX
):
    return loops.decode_records(
        data,
        0,
        len(data),
        count,
        base_offset,
        base_timestamp_ms,
        append_time_ms,
        last_offset_delta=last_offset_delta,
    )


@given(strategies.records(gaps=True), strategies.timestamps)
@settings(max_examples=150)
def test_any_records_come_back(rows, base_timestamp_ms):
    data = _encode(rows, base_timestamp_ms)
    assert _decode(data, len(rows), base_offset=rows[0].offset, base_timestamp_ms=base_timestamp_ms) == rows


@given(strategies.records(gaps=True), st.data())
@settings(max_examples=250)
def test_fast_and_careful_reader_agree_on_damage(rows, data):
    encoded = bytearray(_encode(rows, rows[0].timestamp_ms))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    arguments = (0, len(encoded), len(rows), rows[0].offset, rows[0].timestamp_ms, None)
    assert _outcome(loops.decode_records, encoded, *arguments) == _outcome(
        careful.decode_records, encoded, *arguments, INT32_MAX
    )


def _outcome(decode, *arguments):
    try:
        return decode(*arguments)
    except CorruptionError as error:
        return str(error)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 100_000, 2_000_000])
def test_sizes_around_the_varint_widths(size):
    rows = [Record(0, 5, b"k" * size, b"v" * size), Record(1, 5, None, b""), Record(2, 5, b"", None)]
    assert _decode(_encode(rows, 5), 3, base_timestamp_ms=5) == rows


def test_more_records_than_the_tables_hold():
    count = TABLE_VALUES + 100
    data = loops.encode_records([None] * count, [b""] * count, 7, None, 7)
    assert _decode(data, count, base_timestamp_ms=7) == [Record(n, 7, None, b"") for n in range(count)]


@pytest.mark.parametrize("size", [0, 63, 64, 8192])
def test_header_sizes_around_the_varint_widths(size):
    rows = [Record(0, 1, b"", b"", (("k" * size, b"v" * size), ("é", None)) * 40)]
    assert _decode(_encode(rows, 0), 1) == rows


def test_one_timestamp_for_all_is_like_many_equal_ones():
    keys, values = [b"k"] * 3, [b"v"] * 3
    one = loops.encode_records(keys, values, 1000, None, 1000)
    assert one == loops.encode_records(keys, values, [1000] * 3, None, 1000)
    assert loops.encode_records(keys, values, 1000, None, 900) == loops.encode_records(
        keys, values, [1000] * 3, None, 900
    )


def test_a_timestamp_delta_of_65_bits_wraps_and_comes_back():
    rows = [Record(0, 2**63 - 1, None, b"")]
    assert _decode(_encode(rows, -1), 1, base_timestamp_ms=-1) == rows


def test_no_headers_is_like_empty_headers():
    without = loops.encode_records([b"k"], [b"v"], 0, None, 0)
    assert (
        without
        == loops.encode_records([b"k"], [b"v"], 0, [()], 0)
        == loops.encode_records([b"k"], [b"v"], 0, [None], 0)
    )


def test_offset_deltas_are_consecutive_unless_given():
    keys, values = [None] * 70, [b""] * 70
    assert loops.encode_records(keys, values, 0, None, 0, range(70)) == loops.encode_records(
        keys, values, 0, None, 0
    )


def test_no_records():
    assert loops.encode_records([], [], [], None, 0) == loops.encode_records([], [], 0, [], 0) == b""
    assert _decode(b"", 0) == []


@pytest.mark.parametrize("convert", [bytearray, memoryview, lambda data: array.array("B", data)])
def test_any_buffer_is_taken_and_bytes_are_given(convert):
    expected = loops.encode_records([b"key"], [b"value"], 0, [[("h", b"x")]], 0)
    data = loops.encode_records([convert(b"key")], [convert(b"value")], 0, [[("h", convert(b"x"))]], 0)
    assert data == expected
    (record,) = _decode(memoryview(bytearray(data)), 1)
    assert (type(record.key), type(record.value), type(record.headers[0][1])) == (bytes, bytes, bytes)
    assert type(record) in (Record, PlainRecord)


@pytest.mark.parametrize(
    "value",
    [memoryview(array.array("i", [1, 2])), memoryview(b"abcdef")[::2], memoryview(b"abcd").cast("B", (2, 2))],
)
def test_buffers_that_do_not_count_bytes(value):
    data = loops.encode_records([None], [value], 0, [[("h", value)]], 0)
    assert _decode(data, 1)[0].value == bytes(value)
    assert _decode(data, 1)[0].headers == (("h", bytes(value)),)


def test_log_append_time_is_every_records_timestamp():
    rows = [Record(0, 1, b"", b""), Record(1, 10_000, b"", b"", (("h", None),))]
    assert [record.timestamp_ms for record in _decode(_encode(rows, 0), 2, append_time_ms=77)] == [77, 77]


def test_a_part_of_a_larger_buffer():
    rows = [Record(0, 1, b"k", b"v")]
    data = _encode(rows, 0)
    assert loops.decode_records(b"xx" + data + b"yy", 2, 2 + len(data), 1, 0, 0, None) == rows


# Arguments that are refused: the message names the record and the argument


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keys": [b"", "text"]}, "record 1: key is str"),
        ({"values": [b"", "text"]}, "record 1: value is str"),
        ({"values": [7, b""]}, "record 0: value is int"),
        ({"values": [b"", [1, 2]]}, "record 1: value is list"),
        ({"timestamps": [0, "now"]}, "record 1: timestamp is str"),
        ({"timestamps": [0, 1.5]}, "record 1: timestamp is float"),
        ({"timestamps": [0, None]}, "record 1: timestamp is NoneType"),
        ({"headers": [(), ((b"h", b""),)]}, "record 1: header 0: key is bytes"),
        ({"headers": [(), (("h", "text"),)]}, "record 1: header 0 value is str"),
        ({"headers": [(), (("h", 3),)]}, "record 1: header 0 value is int"),
        ({"headers": [(("h", b""), ("h",)), ()]}, "record 0: header 1 is"),
        ({"headers": [7, ()]}, "record 0: headers is int"),
        ({"headers": [{"h": b""}, ()]}, "record 0: headers is dict"),
        ({"headers": [(("\ud800", b""),), ()]}, "record 0: header 0: key is not text"),
        ({"keys": [b""]}, "1 keys for 2 values"),
        ({"timestamps": [0]}, "1 timestamps for 2 values"),
        ({"headers": [()]}, "1 headers for 2 values"),
        ({"offset_deltas": [0]}, "1 offset_deltas for 2 values"),
        ({"offset_deltas": [3, 3]}, "record 1: offset delta 3"),
        ({"offset_deltas": [-1, 3]}, "record 0: offset delta -1"),
        ({"offset_deltas": [0, 2**31]}, "record 1: offset delta 2147483648"),
    ],
)
def test_a_wrong_argument_is_named(changes, message):
    arguments = {
        "keys": [b"", b""],
        "values": [b"", b""],
        "timestamps": 0,
        "headers": None,
        "base_timestamp_ms": 0,
    }
    with pytest.raises(InvalidRecordError, match=message):
        loops.encode_records(**arguments | changes)


@pytest.mark.parametrize("timestamps", [[0, -2], [0, 2**63], -2, 2**63])
def test_a_timestamp_that_is_none(timestamps):
    with pytest.raises(InvalidTimestampError, match="timestamp"):
        loops.encode_records([None] * 2, [b""] * 2, timestamps, None, 0)
