"""The compiled loops beside the plain ones: the same bytes, the same results, the same errors."""

import array
import copy
import pickle
import random
import sys
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore import build
from logstore.errors import CorruptionError
from logstore.format import batch as batches
from logstore.format import loops, plain
from logstore.format.header import decode_header
from logstore.format.layout import BATCH_HEADER
from logstore.format.varint import encode_varint
from logstore.model import PlainRecord, Record, TimestampType, TopicPartition
from tests.format import strategies
from tests.format.conftest import IMPLEMENTATIONS
from tests.whole_records import beside, whole

if build.compiled is None:
    pytest.skip("there is no compiled module", allow_module_level=True)

compiled = IMPLEMENTATIONS["compiled"]
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def outcome(call, *arguments, **options):
    """What came of a call, in a form that compares: types of the fields with their values, or the error."""
    try:
        result = call(*arguments, **options)
    except Exception as error:
        return type(error), str(error), getattr(error, "position", None)
    if not isinstance(result, list):
        return type(result), result
    return [tuple((type(field), field) for field in whole(record)) for record in result]


def assert_same_encoded(*columns, **options):
    wanted = outcome(plain.encode_records, *columns, **options)
    assert outcome(compiled.encode_records, *columns, **options) == wanted
    return wanted


def assert_same_decoded(*where, **options):
    options = {"leader_epoch": 7, "partition": TopicPartition("t", 3)} | options
    wanted = outcome(plain.decode_records, *where, **options)
    assert outcome(compiled.decode_records, *where, **options) == wanted
    assert outcome(compiled.decode_records, *where, on_demand=True, **options) == wanted
    assert_same_facts(*where[:4], options.get("last_offset_delta", INT32_MAX), where[5])
    return wanted


def assert_same_facts(*where):
    facts = outcome(plain.inspect_records, *where)
    assert outcome(compiled.inspect_records, *where) == facts
    return facts


def columns_of(rows):
    offsets, stamps, keys, values, headers = map(list, zip(*rows, strict=True))
    return keys, values, stamps, headers, [offset - offsets[0] for offset in offsets]


def test_header_positions_are_those_of_the_layout():
    names = [field.name for field in BATCH_HEADER.fields]
    assert {name: BATCH_HEADER.position_of(name) for name in names} == build.compiled.HEADER_POSITIONS


# Round trips


@given(strategies.records(gaps=True), strategies.timestamps, st.sampled_from([0, 61]))
@settings(max_examples=300)
def test_any_records(rows, base_timestamp_ms, reserve_bytes):
    keys, values, stamps, headers, deltas = columns_of(rows)
    where = (keys, values, stamps, headers, base_timestamp_ms, deltas)
    kind, encoded = assert_same_encoded(*where, reserve_bytes=reserve_bytes)
    assert (kind, encoded[:reserve_bytes]) == (bytearray, bytes(reserve_bytes))
    place = (encoded, reserve_bytes, len(encoded), len(rows), rows[0].offset, base_timestamp_ms)
    for append_time_ms in (None, 77):
        assert type(assert_same_decoded(*place, append_time_ms)) is list
    assert compiled.decode_records(*place, None) == rows


@given(strategies.records(), st.integers(-70, 70))
@settings(max_examples=100)
def test_any_records_without_gaps_and_with_one_timestamp(rows, before_ms):
    keys, values, stamps, headers, _ = columns_of(rows)
    assert_same_encoded(keys, values, stamps[0], headers, stamps[0] - before_ms)
    assert_same_encoded(tuple(keys), tuple(values), tuple(stamps), tuple(headers), stamps[0])
    assert_same_encoded(keys, values, stamps, None, 0)


SOURCE = (7, TopicPartition("t", 3))


@pytest.mark.parametrize("append_time_ms", [None, 5])
@pytest.mark.parametrize("leader_epoch", [0, 7, INT32_MAX, -1, -2, -INT32_MAX - 1])
@pytest.mark.parametrize("partition", [None, TopicPartition("t", 0), TopicPartition("é" * 200, 10**6)])
@pytest.mark.parametrize("section", ["ordinary", "odd"])
def test_records_say_where_they_were_read(append_time_ms, leader_epoch, partition, section):
    records = record() + record(delta=v(1), key=LONG_ZERO[5 if section == "odd" else 2])
    options = {"leader_epoch": leader_epoch, "partition": partition}
    where = (records, 0, len(records), 2, 0, 0, append_time_ms)
    assert_same_decoded(*where, **options)
    kind = TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME
    said = (*(partition or (None, None)), kind, leader_epoch if leader_epoch >= 0 else None)
    for on_demand in (False, True):
        made = compiled.decode_records(*where, **options, on_demand=on_demand)
        assert [beside(each) for each in made] == [said, said]


def test_records_of_many_sources_at_a_time_keep_theirs():
    section = record()
    sources = [
        (epoch, TopicPartition(topic, number))
        for _ in range(3)
        for topic in ("a", "b")
        for number in (0, 1000)
        for epoch in (1, 2)
    ]
    kept = [
        compiled.decode_records(section, 0, 7, 1, 0, 0, None, leader_epoch=epoch, partition=partition)[0]
        for epoch, partition in sources
    ]
    assert [beside(each) for each in kept] == [
        (*partition, TimestampType.CREATE_TIME, epoch) for epoch, partition in sources
    ]


def test_sources_are_given_back():
    topic = "a topic that is counted"
    before = sys.getrefcount(topic)
    for epoch in range(100):
        compiled.decode_records(
            record(), 0, 7, 1, 0, 0, None, leader_epoch=epoch, partition=TopicPartition(topic, epoch)
        )
    compiled.decode_records(record(), 0, 7, 1, 0, 0, None)  # the source that is remembered is this one's
    assert sys.getrefcount(topic) == before


def test_a_record_is_no_larger_for_it():
    (made,) = compiled.decode_records(record(), 0, 7, 1, 0, 0, None, leader_epoch=7)
    assert sys.getsizeof(made) == 64


def test_ordinary_columns_and_sections_are_not_left_to_the_plain_code():
    columns = ([b"k", None], (b"v", None), [1, 2], [None, [("h", None), ["é", b""]]], 0, (0, 7))
    section = build.compiled.encode_records(*columns, 0)
    assert section == plain.encode_records(*columns)
    records = build.compiled.decode_records(
        section, 0, len(section), 2, 0, 0, None, INT32_MAX, False, *SOURCE
    )
    assert [type(record) for record in records] == [Record, Record]
    made_later = build.compiled.decode_records(
        section, 0, len(section), 2, 0, 0, None, INT32_MAX, True, *SOURCE
    )
    assert [type(record) for record in made_later] == [build.compiled.OnDemandRecord] * 2


@pytest.mark.parametrize(
    ("keys", "timestamps", "facts"),
    [
        ([b"k"], [5], (5, 5, True)),
        ([b"", b"k"], [7, 5], (5, 7, True)),
        ([b"k", None], [5, 7], (5, 7, False)),
        ([None, b"k"], [-1, 7], (7, 7, False)),
        ([b"k", b"k"], [-1, -1], (INT64_MAX, -1, True)),
        ([b"k"] * 3, [0, -1, 3], (0, 3, True)),
        ([], [], (INT64_MAX, -1, True)),
    ],
)
def test_what_records_say_together(keys, timestamps, facts):
    section = plain.encode_records(keys, [b"v"] * len(keys), timestamps, None, 0)
    where = (section, 0, len(section), len(keys), max(len(keys) - 1, 0), 0)
    assert assert_same_facts(*where) == (plain.RecordFacts, facts)
    assert build.compiled.inspect_records(*where) == facts


@pytest.mark.parametrize("size", [100, 50_000])
def test_facts_of_sections_with_and_without_the_lock_of_the_interpreter(size):
    section = plain.encode_records([b"k"] * 2, [b"v" * size] * 2, [1, 2], None, 0)
    end = len(section)
    assert build.compiled.inspect_records(section, 0, end, 2, 1, 0) == (1, 2, True)
    for end_count_and_delta in ((end - 1, 2, 1), (end, 1, 1), (end, 3, 2), (end, 2, 0), (end + 1, 2, 1)):
        assert build.compiled.inspect_records(section, 0, *end_count_and_delta, 0) is None
        assert assert_same_facts(section, 0, *end_count_and_delta, 0)[0] is CorruptionError


@pytest.mark.parametrize("count", [1, 255, 256, 257, 5000])
@pytest.mark.parametrize("size", [1, 1000])
def test_sections_that_outgrow_the_room_that_was_guessed(count, size):
    values = [b"v"] * (count - 1) + [b"v" * size * 100]
    assert_same_encoded([None] * count, values, 0, None, 0)
    assert_same_encoded(values, values[::-1], list(range(count)), None, 0)


@pytest.mark.parametrize("names", [1, 2, 16, 17, 40])
def test_headers_of_many_names(names):
    chosen = random.Random(names)
    headers = [
        tuple(
            (f"name {chosen.randrange(names)}", chosen.choice([None, b"", b"x", b"y" * 20])) for _ in range(5)
        )
        for _ in range(300)
    ]
    _, section = assert_same_encoded([None] * 300, [b""] * 300, 0, headers, 0)
    assert_same_decoded(section, 0, len(section), 300, 0, 0, None)
    records = compiled.decode_records(section, 0, len(section), 300, 0, 0, None)
    assert [record.headers for record in records] == headers


NAMES = st.binary(max_size=8) | st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass"))


@given(st.lists(NAMES, min_size=1, max_size=4))
@example([b"a\xffb", b"a\xfeb", b"a\xffb"])  # names that are shown alike
@example([b"\xf0\x9f\x98", b"\xc0\x80", b"\xed\xa0\x80", "\ufffd".encode()])
def test_what_is_no_utf_8_in_the_name_of_a_header_is_replaced(names):
    pieces = [v(len(name)) + name + v(-1) for name in names]
    section = b"".join(
        record(delta=v(number), headers=v(len(pieces)) + b"".join(pieces)) for number in range(3)
    )
    assert_same_decoded(section, 0, len(section), 3, 0, 0, None)
    found = compiled.decode_records(section, 0, len(section), 3, 0, 0, None)
    assert [each.headers for each in found] == [
        tuple((name.decode(errors="replace"), None) for name in names)
    ] * 3


# Sections that lie


def v(*numbers):
    return b"".join(map(encode_varint, numbers))


def record(*, attributes=0, timestamp=b"\0", delta=b"\0", key=b"\x01", value=b"\x01", headers=b"\x00"):
    body = bytes([attributes]) + timestamp + delta + key + value + headers
    return v(len(body)) + body


LONG_ZERO = {width: b"\x80" * (width - 1) + b"\x00" for width in range(2, 13)}
EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, INT32_MAX, -INT32_MAX - 1, INT64_MAX, -INT64_MAX - 1]

ODD_SECTIONS = [
    *(record(timestamp=LONG_ZERO[width]) for width in LONG_ZERO),
    *(record(delta=LONG_ZERO[width]) for width in LONG_ZERO),
    *(record(key=LONG_ZERO[width]) for width in LONG_ZERO),
    *(record(value=LONG_ZERO[width]) for width in LONG_ZERO),
    *(record(headers=LONG_ZERO[width]) for width in LONG_ZERO),
    *(LONG_ZERO[width] for width in LONG_ZERO),
    *(record(timestamp=v(number)) for number in EDGES),
    *(record(delta=v(number)) for number in EDGES),
    *(record(key=v(number)) for number in EDGES),
    *(record(value=v(number)) for number in EDGES),
    *(record(headers=v(number)) for number in EDGES),
    *(record(headers=v(1, number, -1)) for number in EDGES),
    *(record(headers=v(1, 0, number)) for number in EDGES),
    record(delta=b"\x82\x80\x80\x80\x70"),  # bits beyond the 32nd are dropped
    record(key=b"\x82\x80\x80\x80\x70k"),
    record(headers=b"\x81\x80\x80\x80\x10"),
    record(attributes=255),
    record(headers=v(1, 1) + b"\xff" + v(-1)),
    record(headers=v(1, 2) + b"\xc3\xa9" + v(-1)),
    record(headers=v(1, 3) + b"\xed\xa0\x80" + v(-1)),  # a surrogate
    record(headers=v(1, 2) + b"\xc0\x80" + v(-1)),  # an overlong zero
    record(headers=v(1, 1) + b"\x00" + v(-1)),
    record(headers=v(2, 0, -1)),
    record(headers=v(1, 0, -1, 0)),
]


@pytest.mark.parametrize("section", ODD_SECTIONS, ids=lambda section: section.hex())
def test_an_odd_record(section):
    for base_offset in (0, INT64_MAX, -5):
        for base_timestamp_ms in (0, INT64_MAX, -INT64_MAX - 1):
            place = (base_offset, base_timestamp_ms, None)
            assert_same_decoded(section, 0, len(section), 1, *place)
            assert_same_decoded(section, 0, len(section), 1, *place, last_offset_delta=0)
    between = record() + section.replace(v(0, 0), v(0, 1), 1) + record(delta=v(2))
    assert_same_decoded(between, 0, len(between), 3, 0, 0, None)


def test_the_same_headers_under_another_count_are_not_taken_for_the_same():
    section = record(headers=v(1, 0, -1)) + record(delta=v(1), headers=v(2, 0, -1))
    assert assert_same_decoded(section, 0, len(section), 2, 0, 0, None)[0] is CorruptionError
    section = record(headers=v(2, 0, -1, 0, -1)) + record(delta=v(1), headers=v(1, 0, -1, 0, -1))
    assert assert_same_decoded(section, 0, len(section), 2, 0, 0, None)[0] is CorruptionError


@pytest.mark.parametrize(
    "other",
    [
        *(v(1, 1) + b"m" + v(2) + b"xy", v(1, 2) + b"nn" + v(1) + b"x", v(1, 0, 3) + b"xyz"),
        *(v(1, 2) + b"n" + v(2) + b"xy", v(1, 1) + b"n" + v(3) + b"xy", v(1, 1) + b"n" + v(1) + b"xy"),
        *(v(1, 1) + b"\xff" + v(2) + b"xy", v(1, 1) + b"n" + b"\x82\x00" + b"x", v(2, 0, 0, 0, 0) + b"x"),
        *(v(2, 0, 1) + b"x" + v(0, -1), v(1, 3) + b"nnn" + v(-1), v(0, 1) + b"n" + v(2) + b"xy"),
    ],
    ids=bytes.hex,
)
def test_other_headers_that_are_as_long_as_those_before(other):
    same = v(1, 1) + b"n" + v(2) + b"xy"
    assert len(other) == len(same)
    headers = [same, other, same, other, same]
    section = b"".join(record(delta=v(delta), headers=each) for delta, each in enumerate(headers))
    assert_same_decoded(section, 0, len(section), len(headers), 0, 0, None)


@pytest.mark.parametrize(
    "deltas", [(0, 0), (1, 0), (0, -1), (5, 6), (0, INT32_MAX), (INT32_MAX, -INT32_MAX - 1)]
)
@pytest.mark.parametrize("last_offset_delta", [INT32_MAX, 5, 0, -1])
@pytest.mark.parametrize("base_offset", [0, INT64_MAX - 5, INT64_MAX, -INT64_MAX - 1])
def test_offset_deltas(deltas, last_offset_delta, base_offset):
    section = b"".join(record(delta=v(delta)) for delta in deltas)
    where = (section, 0, len(section), len(deltas), base_offset, 0, None)
    assert_same_decoded(*where, last_offset_delta=last_offset_delta)


@pytest.mark.parametrize(
    ("position", "end", "count"),
    [
        (0, 7, 0),
        (0, 7, 2),
        (0, 7, -1),
        (-1, 7, 1),
        (0, 8, 1),
        (5, 2, 0),
        (0, 6, 1),
        (7, 7, 0),
        (0, 7, INT32_MAX),
    ],
)
def test_places_that_are_not_in_the_buffer(position, end, count):
    assert_same_decoded(record(), position, end, count, 0, 0, None)


def test_a_count_takes_no_memory_before_it_is_believed():
    section = record() * 1000
    tracemalloc.start()
    try:
        for count in (1001, INT32_MAX, 2**40, 2**70):
            assert (
                outcome(compiled.decode_records, section, 0, len(section), count, 0, 0, None)[0]
                is CorruptionError
            )
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "convert",
    [
        bytearray,
        memoryview,
        lambda data: memoryview(bytearray(data)),
        lambda data: array.array("B", data),
        lambda data: array.array("b", data),
        lambda data: memoryview(b"".join(bytes((byte, 0)) for byte in data))[::2],
        lambda data: memoryview(data)[::-1][::-1],
        type("BytesOfAnotherClass", (bytes,), {}),
    ],
)
@pytest.mark.parametrize("damage", [False, True])
def test_any_buffer(convert, damage):
    section = bytearray(b"xx" + record(key=v(1) + b"k", headers=v(1, 1) + b"h" + v(-1)) + b"yy")
    section[4] = 255 if damage else 0
    assert_same_decoded(convert(bytes(section)), 2, len(section) - 2, 1, 0, 0, None)


@pytest.mark.parametrize(
    "buffer", ["text", 7, None, array.array("i", [1, 2, 3]), memoryview(bytes(8)).cast("B", (2, 4))]
)
def test_what_is_no_buffer_of_bytes(buffer):
    assert_same_decoded(buffer, 0, 2, 0, 0, 0, None)
    assert_same_decoded(buffer, 0, 7, 1, 0, 0, None)


def mutated(chosen, section):
    section = bytearray(section)
    for _ in range(chosen.randint(1, 4)):
        at = chosen.randrange(len(section))
        match chosen.randrange(5):
            case 0 | 1:
                section[at] = chosen.choice([0, 1, 2, 127, 128, 255, chosen.randrange(256)])
            case 2:
                section[at] ^= 1 << chosen.randrange(8)
            case 3:
                section[at:at] = chosen.randbytes(chosen.randint(1, 3))
            case 4:
                del section[at : at + chosen.randint(1, 3)]
        if not section:
            return b"\0"
    return bytes(section)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_sections(seed):
    chosen = random.Random(seed)
    accepted = 0
    for number in range(600):
        count = chosen.randint(1, 6)
        headers = [
            chosen.choice([None, (("h", b"x"), ("n", None)), (("é" * 40, b"x" * 70),)]) for _ in range(count)
        ]
        stamps = [chosen.choice([0, 5, 10**13, INT64_MAX]) for _ in range(count)]
        payloads = [chosen.choice([None, b"", b"k", b"v" * 70, b"w" * 9000]) for _ in range(2 * count)]
        base_ms = chosen.choice([0, stamps[0], -1, INT64_MAX])
        section = plain.encode_records(payloads[:count], payloads[count:], stamps, headers, base_ms)
        if number % 10:
            section = mutated(chosen, section)
        append_time_ms = chosen.choice([None, None, 42])
        where = (section, 0, len(section), count, chosen.choice([0, 10**12]), base_ms, append_time_ms)
        wanted = assert_same_decoded(*where, last_offset_delta=chosen.choice([count - 1, INT32_MAX]))
        accepted += isinstance(wanted, list)
    assert 60 < accepted < 600


@given(st.binary(max_size=60), st.integers(0, 5), st.integers(0, INT64_MAX))
@settings(max_examples=300)
@example(record() + record(delta=v(1)), 2, 0)
def test_noise(section, count, base_offset):
    assert_same_decoded(section, 0, len(section), count, base_offset, 0, None)


# Columns that are out of the ordinary


class MyBytes(bytes):
    pass


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


class MyList(list):
    pass


ODD_COLUMNS = {
    "a key of another class": {"keys": [b"k", MyBytes(b"k")]},
    "a bytearray": {"values": [b"v", bytearray(b"v")]},
    "a strided view": {"values": [b"v", memoryview(b"abcdef")[::2]]},
    "wide items": {"values": [b"v", memoryview(array.array("i", [1, 2]))]},
    "text": {"values": [b"v", "v"]},
    "a number": {"keys": [7, b"k"]},
    "a list as value": {"values": [[1, 2], b""]},
    "keys in a tuple": {"keys": (b"k", None)},
    "keys in a list of another class": {"keys": MyList([b"k", None])},
    "keys too few": {"keys": [b"k"]},
    "keys too many": {"keys": [b"k"] * 3},
    "keys as bytes": {"keys": b"kk"},
    "a dictionary of values": {"values": {0: b"", 1: b""}},
    "a bool as time": {"timestamps": [True, False]},
    "one bool as time": {"timestamps": True},
    "a number of another class": {"timestamps": [MyInt(3), 4]},
    "one number of another class": {"timestamps": MyInt(3)},
    "an array of times": {"timestamps": array.array("q", [3, 4])},
    "a range of times": {"timestamps": range(2)},
    "times too few": {"timestamps": [3]},
    "a float": {"timestamps": [3, 4.5]},
    "a text as time": {"timestamps": [3, "4"]},
    "no time": {"timestamps": [3, None]},
    "time -2": {"timestamps": [3, -2]},
    "time 2^63": {"timestamps": [3, 2**63]},
    "time 2^63 - 1": {"timestamps": [-1, INT64_MAX], "base_timestamp_ms": -1},
    "one time -2": {"timestamps": -2},
    "one time 2^63": {"timestamps": 2**63},
    "one time 2^70": {"timestamps": 2**70},
    "a base of another class": {"base_timestamp_ms": MyInt(3)},
    "base -2^63": {"base_timestamp_ms": -INT64_MAX - 1},
    "headers None": {"headers": [None, None]},
    "headers as lists": {"headers": [[("h", b"x")], [["h", None]]]},
    "headers too few": {"headers": [()]},
    "headers of another class": {"headers": [MyList([("h", b"x")]), ()]},
    "headers as an iterator": {"headers": [iter([("h", b"x")]), ()]},
    "headers as a dictionary": {"headers": [{"h": b"x"}, ()]},
    "headers as a number": {"headers": [7, ()]},
    "headers as text": {"headers": ["hx", ()]},
    "a pair of one": {"headers": [(("h",),), ()]},
    "a pair of three": {"headers": [(("h", b"x", b"y"),), ()]},
    "a pair as text": {"headers": [("hx",), ()]},
    "a pair as bytes": {"headers": [(b"hx",), ()]},
    "a name of another class": {"headers": [((MyStr("h"), b"x"),), ()]},
    "a name of bytes": {"headers": [((b"h", b"x"),), ()]},
    "a name that is no UTF-8": {"headers": [(("\ud800", b"x"),), ()]},
    "no name": {"headers": [((None, b"x"),), ()]},
    "a header value as text": {"headers": [(("h", "x"),), ()]},
    "a header value of another class": {"headers": [(("h", MyBytes(b"x")),), ()]},
    "a header value as bytearray": {"headers": [(("h", bytearray(b"x")),), ()]},
    "the same headers twice": {"headers": [[("h", b"x")]] * 2},
    "deltas as a range": {"offset_deltas": range(4, 6)},
    "deltas that are equal": {"offset_deltas": [3, 3]},
    "deltas that fall": {"offset_deltas": [3, 2]},
    "a delta below 0": {"offset_deltas": [-1, 2]},
    "delta 2^31 - 1": {"offset_deltas": [0, INT32_MAX]},
    "delta 2^31": {"offset_deltas": [0, INT32_MAX + 1]},
    "delta 2^70": {"offset_deltas": [0, 2**70]},
    "deltas too few": {"offset_deltas": [0]},
    "a float as delta": {"offset_deltas": [0, 1.0]},
    "a delta of another class": {"offset_deltas": [MyInt(0), MyInt(9)]},
    "bools as deltas": {"offset_deltas": [False, True]},
}


@pytest.mark.parametrize("name", ODD_COLUMNS)
@pytest.mark.parametrize("reserve_bytes", [0, 61])
def test_odd_columns(name, reserve_bytes):
    arguments = {
        "keys": [b"k", None],
        "values": [b"v", b""],
        "timestamps": [3, 4],
        "headers": None,
        "base_timestamp_ms": 3,
        "offset_deltas": None,
    }
    assert_same_encoded(*(arguments | ODD_COLUMNS[name]).values(), reserve_bytes=reserve_bytes)


# Whole batches

FIELDS = {
    "base_offset": st.sampled_from([0, 1, INT64_MAX, -1, 2**63, MyInt(3), True]),
    "partition_leader_epoch": st.sampled_from([-1, 0, INT32_MAX, INT32_MAX + 1]),
    "producer_id": st.sampled_from([-1, 7, INT64_MAX, 2**64]),
    "producer_epoch": st.sampled_from([-1, 0, 2**15 - 1, 2**15, -(2**15), -(2**15) - 1]),
    "base_sequence": st.sampled_from([-1, 0, INT32_MAX, -INT32_MAX - 2]),
    "transactional": st.booleans(),
    "timestamp_type": st.sampled_from(TimestampType),
    "append_time_ms": st.sampled_from([None, 0, 5000, INT64_MAX, 2**63]),
}


@given(
    strategies.records(),
    st.fixed_dictionaries({}, optional=FIELDS),
    st.sampled_from([None, "one", "odd"]),
)
@settings(max_examples=300)
def test_batches(rows, fields, times):
    keys, values, stamps, headers, _ = columns_of(rows)
    stamps = {None: stamps, "one": stamps[0], "odd": [*stamps[:-1], "now"]}[times]
    results = []
    for implementation in (plain, compiled):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loops, "encode_batch", implementation.encode_batch)
            patch.setattr(loops, "encode_records", implementation.encode_records)
            results.append(outcome(batches.encode_batch, keys, values, stamps, headers, **fields))
    assert results[0] == results[1]


def test_an_ordinary_batch_is_made_in_one_call():
    made = build.compiled.encode_batch([b"k"], [b"v"], 1000, None, 0, 0, 0, None, -1, -1, -1)
    assert made == batches.encode_batch([b"k"], [b"v"], 1000, partition_leader_epoch=0)
    batches.check_batch(made, 0, decode_header(made))


# Records made on demand


def on_demand(*rows, convert=bytes):
    keys, values, stamps, headers, _ = columns_of(rows)
    section = convert(plain.encode_records(keys, values, stamps, headers, 0))
    where = (section, 0, len(section), len(rows), rows[0].offset, 0, None)
    return compiled.decode_records(*where, on_demand=True, leader_epoch=7, partition=TopicPartition("t", 3))


ROW = PlainRecord(
    *(3, 1000, b"k", b"v", (("h", b"x"), ("n", None))),
    topic="t",
    partition=3,
    timestamp_type=TimestampType.CREATE_TIME,
    leader_epoch=7,
)


def test_a_record_on_demand_is_a_record():
    (made,) = on_demand(ROW)
    assert isinstance(made, Record)
    assert (type(made).__module__, type(made).__qualname__) == ("logstore.model", "Record")
    assert made == ROW == made
    assert hash(made) == hash(ROW)
    assert repr(made) == repr(ROW)
    assert [*made] == [*ROW]
    assert whole(made) == whole(ROW)
    assert whole(made._replace(key=None)) == whole(ROW._replace(key=None))
    assert type(made)(*ROW) == ROW


@pytest.mark.parametrize("names", [("key",), ("value",), ("headers",), ("headers", "value", "key")])
def test_a_field_is_made_once(names):
    (made,) = on_demand(ROW)
    for name in names:
        assert getattr(made, name) == getattr(ROW, name)
        assert getattr(made, name) is getattr(made, name)
    assert made == ROW


@pytest.mark.parametrize("of", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_and_pickles_of_a_record_on_demand_are_ordinary_records(of):
    (made,) = on_demand(ROW)
    assert (type(of(made)), whole(of(made))) == (Record, whole(ROW))


@pytest.mark.parametrize("name", PlainRecord._fields)
def test_a_record_on_demand_is_immutable(name):
    with pytest.raises(AttributeError):
        setattr(on_demand(ROW)[0], name, None)


def test_a_record_on_demand_does_not_see_what_happens_to_a_buffer_that_is_not_bytes():
    keys, values, stamps, headers, _ = columns_of([ROW])
    section = plain.encode_records(keys, values, stamps, headers, 0)
    (made,) = compiled.decode_records(section, 0, len(section), 1, 3, 0, None, on_demand=True)
    section[:] = bytes(len(section))
    section.clear()
    assert made == ROW


def test_records_on_demand_hold_their_section_and_give_it_back():
    section = bytes(plain.encode_records([b"k"] * 9, [b"v"] * 9, 0, None, 0))
    before = sys.getrefcount(section)
    records = compiled.decode_records(section, 0, len(section), 9, 0, 0, None, on_demand=True)
    assert sys.getrefcount(section) == before + 9
    del records
    assert sys.getrefcount(section) == before


# What stays of a section ------------------------------------------------------------------------------------


@given(strategies.records(gaps=True), st.data())
def test_the_same_records_stay(rows, data):
    keys, values, stamps, headers, deltas = columns_of(rows)
    section = bytes(plain.encode_records(keys, values, stamps, headers, stamps[0], deltas))
    stays = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows))))
    arguments = (b"front" + section + b"behind", 5, 5 + len(section), stays, stamps[0], 61)
    wanted = outcome(plain.keep_records, *arguments)
    assert outcome(compiled.keep_records, *arguments) == wanted
    kept, newest_ms = plain.keep_records(*arguments)
    left = [row for row, stay in zip(rows, stays, strict=True) if stay]
    assert newest_ms == max((row[1] for row in left), default=-1)
    found = plain.decode_records(bytes(kept), 61, len(kept), len(left), rows[0][0], stamps[0], None)
    assert [tuple(record) for record in found] == [(*row[:4], tuple(row[4])) for row in left]


@given(
    st.binary(max_size=60), st.lists(st.integers(0, 1), max_size=5), st.integers(0, 10), st.integers(0, 70)
)
def test_of_junk_the_same_stays(junk, stays, position, end):
    arguments = (junk, position, min(end, len(junk)), bytes(stays), 7, 0)
    wanted = outcome(plain.keep_records, *arguments)
    assert outcome(compiled.keep_records, *arguments) == wanted
