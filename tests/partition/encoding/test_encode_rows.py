"""Rows become the same batches by the compiled pass as by columns, and the same errors."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.build import compiled
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import LogstoreError
from logstore.format.compression import Codec
from logstore.format.gathered import GatheredRows, record_bytes
from logstore.format.header import decode_header
from logstore.format.loops import encode_rows
from logstore.format.partitioner import partition_for_key
from logstore.model import NewRecord, ProducerIdentity
from logstore.partition.encoding import row_encoder as encoding
from logstore.partition.encoding.row_encoder import RowEncoder
from tests.partition.helpers_rules import START_MS, open_log, values_of

needs_compiled = pytest.mark.skipif(compiled is None, reason="this run has no compiled module")
NOW = START_MS


def encoder(batch_bytes=262_144, **config):
    return RowEncoder(StoreConfig(batch_bytes=batch_bytes), TopicConfig(**config))


def by_columns(row_encoder, rows, now_ms, producer=None):
    """What the encoder does where a row is out of the ordinary."""
    return outcome(row_encoder.encode_by_columns, rows, now_ms, producer)


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except LogstoreError as error:
        return type(error), str(error)


def one_of(*values):
    """Any of the values, which need not be hashable."""
    return st.integers(0, len(values) - 1).map(values.__getitem__)


class Bytes(bytes):
    pass


class Text(str):
    pass


class Number(int):
    pass


class Pair(tuple):
    pass


class Renamed(NewRecord):
    pass


payloads = st.one_of(
    st.none(), st.binary(max_size=40), st.sampled_from([b"", b"x" * 63, b"x" * 64, b"y" * 8191, b"z" * 9000])
)
texts = st.one_of(st.text(max_size=6), st.sampled_from(["", "h", "é", "€uro", "𐍈", "n" * 70]))
right_headers = st.one_of(st.none(), st.lists(st.tuples(texts, payloads), max_size=3).map(tuple))
REPEATED_NAME = "naïve"
REPEATED_HEADERS = [
    *((REPEATED_NAME, value) for value in (b"", b"1", None, b"x" * 40)),
    *(("other", b"1"), ("", None), ("é" * 30, b"1")),
]
"""The same objects in many rows: names, and whole headers."""
right_times = st.one_of(st.none(), st.just(-1), st.integers(NOW - 10**7, NOW + 3_600_000))
right_rows = st.one_of(
    st.binary(max_size=50),
    st.tuples(payloads, payloads),
    st.tuples(payloads, payloads, right_times),
    st.tuples(payloads, payloads, right_times, right_headers),
    st.builds(NewRecord, payloads, payloads, right_headers, right_times),
)
odd_payloads = st.one_of(
    payloads,
    one_of(
        bytearray(b"b"), memoryview(b"mm"), memoryview(b"12345678").cast("I")[::2], Bytes(b"s"), "text", 5, ()
    ),
)
odd_headers = st.one_of(
    right_headers,
    one_of(
        *([], {}, {"h": b"x"}, [("h", b"x")], (("h", b"x", b"y"),), (("h",),), (["h", b"x"],), 5, "ab", 0),
        *(((Text("t"), b"x"),), (("h", Bytes(b"x")),), (("h", bytearray(b"x")),), (("h", "text"),)),
        *((("\ud800", b"x"),), ((b"h", b"x"),), (Pair(("h", b"x")),), Pair((("h", None),)), (None,)),
    ),
)
odd_times = st.one_of(
    right_times,
    st.integers(-(2**65), 2**65),
    st.sampled_from([True, False, 0, -2, 2**63 - 1, 2**63, -(2**63), 1.5, "5", Number(5), NOW + 3_600_001]),
)
odd_rows = st.one_of(
    right_rows,
    odd_payloads,
    st.tuples(odd_payloads),
    st.tuples(odd_payloads, odd_payloads),
    st.tuples(odd_payloads, odd_payloads, odd_times),
    st.tuples(odd_payloads, odd_payloads, odd_times, odd_headers),
    st.tuples(payloads, payloads, right_times, right_headers, st.none()),
    st.builds(NewRecord, odd_payloads, odd_payloads, odd_headers, odd_times),
    st.builds(Renamed, payloads, payloads, right_headers, right_times),
    st.tuples(payloads, payloads).map(Pair),
    st.lists(payloads, min_size=2, max_size=2),
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "cleanup_policy": st.sampled_from(["delete", "compact"]),
        "compression_type": st.sampled_from(["producer", "zstd", "gzip", "snappy", "lz4", "uncompressed"]),
        "max_message_bytes": st.sampled_from([150, 400, 9_500]),
        "segment_bytes": st.sampled_from([300, 10_000]),
        "message_timestamp_before_max_ms": st.sampled_from([0, 10**6, 2**63 - 1]),
        "message_timestamp_after_max_ms": st.sampled_from([0, 10**6, 2**63 - 1]),
    },
)
producers = st.one_of(
    st.none(),
    st.builds(
        ProducerIdentity,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.booleans(),
    ),
)
batch_sizes = st.sampled_from([1, 100, 300, 20_000, 262_144])


@given(st.lists(right_rows, max_size=12), configs, batch_sizes, producers, st.booleans())
@settings(max_examples=300)
def test_right_rows_become_the_same_batches(rows, config, batch_bytes, producer, is_tuple):
    ours = encoder(batch_bytes, **config)
    rows = tuple(rows) if is_tuple else rows
    assert outcome(ours.encode, rows, NOW, producer) == by_columns(ours, rows, NOW, producer)


@given(st.lists(st.lists(st.sampled_from(REPEATED_HEADERS), max_size=9).map(tuple), max_size=60), batch_sizes)
@settings(max_examples=200)
def test_headers_that_rows_share_are_those_of_each_row(headers, batch_bytes):
    ours = encoder(batch_bytes)
    rows = [(None, b"%d" % number, NOW, pairs) for number, pairs in enumerate(headers)]
    assert outcome(ours.encode, rows, NOW) == by_columns(ours, rows, NOW)


@given(st.lists(odd_rows, max_size=6), configs, batch_sizes, producers, st.sampled_from([NOW, 0, -1, -5]))
@settings(max_examples=500)
def test_odd_rows_become_the_same_batches_or_errors(rows, config, batch_bytes, producer, now_ms):
    ours = encoder(batch_bytes, **config)
    expected = by_columns(ours, rows, now_ms, producer)
    assert outcome(ours.encode, rows, now_ms, producer) == expected


@needs_compiled
@pytest.mark.parametrize(
    "rows",
    [
        [b"value"],
        (b"value", (b"k", b"v")),
        [(b"k", b"v")] * 3000,
        [
            (None, None, -1, ()),
            (b"", b"", None, None),
            NewRecord(None),
            NewRecord(b"v", b"k", (("h", None),), NOW),
        ],
        [(b"k", b"v" * 300_000), (b"k", b"v")],
    ],
    ids=["bare", "mixed", "many", "empty", "large"],
)
def test_ordinary_rows_take_the_compiled_pass(rows):
    assert encode_rows(rows, NOW, encoder().rules) is not None


@needs_compiled
@pytest.mark.parametrize(
    "row",
    [
        *(bytearray(b"v"), Bytes(b"v"), "v", None, 5, [b"k", b"v"], Pair((b"k", b"v")), Renamed(b"v")),
        *((b"v",), (b"k", b"v", 1, (), 1), (b"k", memoryview(b"v")), (b"k", b"v", True), (b"k", b"v", 2**64)),
        *((b"k", b"v", -2), (b"k", b"v", NOW + 3_600_001), (b"k", b"v", 1, [("h", b"x")])),
    ],
)
def test_a_row_out_of_the_ordinary_leaves_all_to_the_plain_code(row):
    assert encode_rows([b"before", row, b"after"], NOW, encoder().rules) is None
    assert encode_rows([row], NOW, encoder().rules) is None


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_what_does_not_compress_is_kept_plain_if_it_then_fits(codec):
    rows = [(b"k", bytes(range(256)))]
    plain_bytes = len(encoder().encode(rows, NOW)[0])
    tight = encoder(compression_type=codec.name.lower(), max_message_bytes=plain_bytes)
    batches = tight.encode(rows, NOW)
    assert decode_header(batches[0]).codec is Codec.NONE
    assert batches == by_columns(tight, rows, NOW)


# Rows that change meanwhile ---------------------------------------------------------------------------------


def test_a_list_that_another_thread_changes_is_appended_as_it_was_at_some_moment(tmp_path):
    log = open_log(tmp_path / "t-0")
    rows = [(b"k", b"%d" % number) for number in range(500)]
    stop = threading.Event()

    def change():
        number = 0
        while not stop.is_set():
            number += 1
            rows[number % 200] = (b"k", b"x" * (number % 900))
            rows.append((b"k", b"new"))
            rows.insert(0, b"bare")
            rows[number % 200] = "wrong" if number % 50 == 0 else (b"k", b"right")
            del rows[:2]

    thread = threading.Thread(target=change)
    thread.start()
    appended = 0
    try:
        for _ in range(300):
            try:
                appended += len(log.extend(rows))
            except LogstoreError:
                continue
    finally:
        stop.set()
        thread.join()
    assert len(values_of(log)) == log.log_end_offset == appended


# Gathering --------------------------------------------------------------------------------------------------


def gathered_pair(row_encoder):
    """The class in use, and the plain one."""
    made = [
        kind(row_encoder.rules, row_encoder.max_record_bytes)
        for kind in (encoding.GatheredRows, GatheredRows)
    ]
    return made[0], made[1]


@given(
    st.lists(st.tuples(odd_payloads, odd_payloads, odd_headers, odd_times), max_size=8),
    configs,
    st.sampled_from([100, 300, 262_144]),
)
@settings(max_examples=300)
def test_what_is_gathered_fits_and_becomes_the_batch_that_extend_makes(rows, config, batch_bytes):
    row_encoder = encoder(batch_bytes, **config)
    ours, plain = gathered_pair(row_encoder)
    for value, key, headers, timestamp_ms in rows:
        numbers = [kind.add(value, key, headers, timestamp_ms, NOW) for kind in (ours, plain)]
        if max(numbers) >= 0:  # what is ordinary to the one, the caller looks at for the other
            row = (key, value, NOW if timestamp_ms is None else timestamp_ms, headers or ())
            for kind, number in zip((ours, plain), numbers, strict=True):
                assert number in (-1, kind.row_count - 1)
                if number < 0:
                    kind.put(row, record_bytes(key, value, headers or ()))
    assert (ours.rows, ours.row_count, ours.size_bytes) == (plain.rows, plain.row_count, plain.size_bytes)
    if ours.row_count:
        expected = outcome(row_encoder.encode, plain.rows, NOW, ProducerIdentity(-1, -1, -1))
        assert outcome(row_encoder.encode_gathered, ours, NOW) == expected
        ours.remove_last()
        plain.remove_last()
        assert (ours.rows, ours.size_bytes) == (plain.rows, plain.size_bytes)
    ours.clear()
    assert (ours.rows, ours.row_count, ours.size_bytes, ours.has_failed) == ([], 0, 0, False)


def test_after_a_failure_nothing_is_added():
    for rows in gathered_pair(encoder()):
        assert rows.add(b"v", None, (), None, NOW) == 0
        rows.has_failed = True
        assert rows.add(b"v", None, (), None, NOW) == -1
        assert rows.must_drain_before(1)


def test_rows_with_odd_text_are_encoded_by_columns():
    row_encoder = encoder()
    ours, _ = gathered_pair(row_encoder)
    ours.put((b"k", b"v", 5, ((Text("t"), b"x"),)), 100)
    assert row_encoder.encode_gathered(ours, NOW) == row_encoder.encode(
        [(b"k", b"v", 5, (("t", b"x"),))], NOW
    )


# Partitions -------------------------------------------------------------------------------------------------


@needs_compiled
@given(st.binary(max_size=40), st.integers(1, 1000))
def test_the_compiled_hash_is_the_plain_one(key, count):
    assert compiled.partition_for_key(key, count) == partition_for_key(key, count)


@needs_compiled
@given(st.lists(right_rows, max_size=20), st.integers(1, 5))
@settings(max_examples=200)
def test_rows_are_divided_by_their_keys(rows, count):
    divided = compiled.divide_rows(rows, NewRecord, count)
    keys = [row[1] if type(row) is NewRecord else None if type(row) is bytes else row[0] for row in rows]
    if None in keys:
        assert divided is None
    else:
        assert divided == [
            [row for row, key in zip(rows, keys, strict=True) if partition_for_key(key, count) == number]
            for number in range(count)
        ]
