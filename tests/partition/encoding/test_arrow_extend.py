"""Rows appended as columns are the rows that extend would append: the same batches, bytes and refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.build import compiled
from logstore.config import TopicConfig
from logstore.errors import (
    ClosedError,
    InvalidRecordError,
    InvalidTimestampError,
    ReadOnlyError,
    RecordTooLargeError,
    UsageError,
)
from logstore.format.loops import partition_for_key
from logstore.model import NewRecord
from logstore.partition.encoding import row_encoder as encoding
from tests.format import strategies
from tests.partition.helpers_rules import START_MS, open_log

pa = pytest.importorskip("pyarrow")

from tests.partition.helpers_arrow import records_in  # noqa: E402

WAYS = ["plain"] if compiled is None else ["plain", "compiled"]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(params=WAYS, autouse=True)
def way(request, monkeypatch):
    """Each test encodes in compiled code, if there is any, and in plain Python."""
    if request.param == "plain":
        monkeypatch.setattr(encoding.loops, "encode_columns", lambda *_: None)
    return request.param


@pytest.fixture
def logs(tmp_path):
    """Two logs alike: one for rows, one for columns."""

    def make(**settings):
        return open_log(tmp_path / "rows" / "t-0", **settings), open_log(
            tmp_path / "columns" / "t-0", **settings
        )

    return make


def table_of(rows, *, key=None, value=None):
    """NewRecords as a table with all columns."""
    return pa.table(
        {
            "value": pa.array([row.value for row in rows], value or pa.binary()),
            "key": pa.array([row.key for row in rows], key or pa.binary()),
            "timestamp_ms": pa.array([row.timestamp_ms for row in rows], pa.int64()),
            "headers": pa.array(
                [[{"key": name, "value": payload} for name, payload in row.headers] for row in rows], HEADERS
            ),
        }
    )


def files_of(log):
    log.flush()
    return [path.read_bytes() for path in sorted(Path(log.directory).glob("*.log"))]


def assert_same_bytes(by_rows, by_columns):
    assert files_of(by_rows) == files_of(by_columns)
    assert records_in(by_columns.read_arrow()) == list(by_rows.read())


SHAPES = [
    NewRecord(b"value", b"key", (), START_MS - 5),
    NewRecord(None, b"key"),
    NewRecord(b"value", None, (), -1),
    NewRecord(None, None, (), START_MS + 1000),
    NewRecord(b"", b""),
    NewRecord(b"v" * 63, b"k" * 64),
    NewRecord(b"v" * 10_000, b"k" * 200),
    NewRecord(
        b"value", b"key", (("name", b"x"), ("", b""), ("name", None), ("\N{SNOWMAN}\U0001f600", b"y" * 70))
    ),
    NewRecord(None, None, (("only", None),), 0),
]

# The same batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["producer", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_columns_make_the_batches_that_rows_make(logs, codec, timestamp_type):
    by_rows, by_columns = logs(
        compression_type=codec, message_timestamp_type=timestamp_type, batch_bytes=30_000
    )
    rows = SHAPES * 50
    assert by_columns.extend_arrow(table_of(rows)) == by_rows.extend(rows)
    assert_same_bytes(by_rows, by_columns)


@pytest.mark.parametrize("batch_bytes", [1, 97, 98, 99, 100, 150, 1000, 1007])
def test_batches_end_at_the_same_rows(logs, batch_bytes):
    by_rows, by_columns = logs(batch_bytes=batch_bytes)
    rows = [
        NewRecord(b"v" * (i % 40), b"k" * (i % 7), (("é" * (i % 3), b"x"),) * (i % 2)) for i in range(100)
    ]
    by_rows.extend(rows)
    by_columns.extend_arrow(table_of(rows))
    assert_same_bytes(by_rows, by_columns)


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            NewRecord,
            strategies.payloads,
            strategies.payloads,
            strategies.headers,
            st.none() | st.just(-1) | st.integers(0, START_MS),
        ),
        max_size=30,
    ),
    st.lists(st.integers(1, 9), min_size=1),
    st.sampled_from([200, 6000, 262_144]),
)
def test_any_rows_in_any_chunks_come_back_as_extend_stores_them(tmp_path_factory, rows, sizes, batch_bytes):
    path = tmp_path_factory.mktemp("logs")
    rules = {"batch_bytes": batch_bytes, "message_timestamp_unit_check": False}
    by_rows, by_columns = open_log(path / "r-0", **rules), open_log(path / "c-0", **rules)
    whole, parts = table_of(rows), []
    while sum(map(len, parts)) < len(rows):
        parts.append(whole.slice(sum(map(len, parts)), sizes[len(parts) % len(sizes)]))
    table = pa.concat_tables([whole.slice(0, 0), *parts])
    assert by_columns.extend_arrow(table) == by_rows.extend(rows)
    assert_same_bytes(by_rows, by_columns)


def test_what_was_read_can_be_appended_elsewhere(logs):
    source, target = logs()
    source.extend([row._replace(timestamp_ms=START_MS) for row in SHAPES])
    target.extend_arrow(
        source.iterate_arrow(columns=["timestamp_ms", "key", "value", "headers"], batch_rows=2)
    )
    assert list(target.read()) == list(source.read())


def test_records_that_gather_come_first(logs):
    log, _ = logs()
    log.append(b"first")
    assert log.extend_arrow(pa.table({"value": [b"second", b"third"]}), flush=True) == range(1, 3)
    assert [record.value for record in log.read()] == [b"first", b"second", b"third"]
    assert log.durable_offset == 3


def test_no_rows_are_no_batch(logs):
    log, _ = logs()
    log.extend([b"a"])
    assert log.extend_arrow(pa.table({"value": pa.array([], pa.binary())})) == range(1, 1)


# Types ------------------------------------------------------------------------------------------------------


def payload_types():
    kinds = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]
    kinds += [getattr(pa, name)() for name in ("binary_view", "string_view") if hasattr(pa, name)]
    return [*kinds, *(pa.dictionary(pa.int8(), kind) for kind in kinds)]


def payloads_of(kind, values):
    """An array of this type; pyarrow itself casts nothing to a dictionary of views."""
    if pa.types.is_dictionary(kind):
        known = [value for value in dict.fromkeys(values) if value is not None]
        numbers = [None if value is None else known.index(value) for value in values]
        return pa.DictionaryArray.from_arrays(
            pa.array(numbers, kind.index_type), payloads_of(kind.value_type, known)
        )
    if "string" in str(kind):
        return pa.array(values, kind)
    return pa.array([value if value is None else value.encode() for value in values], kind)


@pytest.mark.parametrize("kind", payload_types(), ids=str)
def test_payloads_may_be_of_any_binary_or_text_type(logs, kind):
    log, _ = logs()
    values = ["", "a", None, "é", "x" * 300, "a"]
    given = payloads_of(kind, values)
    table = pa.table({"key": given, "value": given})
    log.extend_arrow(table.slice(1, 4))
    log.extend_arrow(table)
    expected = [value if value is None else value.encode() for value in [*values[1:5], *values]]
    assert [record.value for record in log.read()] == expected
    assert [record.key for record in log.read()] == expected


def test_fixed_size_payloads_are_taken(logs):
    log, _ = logs()
    log.extend_arrow(pa.table({"value": pa.array([b"ab", None, b"cd"], pa.binary(2))}).slice(1))
    assert [record.value for record in log.read()] == [None, b"cd"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_timestamps_of_any_unit_become_milliseconds(logs, unit, zone):
    log, _ = logs()
    moment = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    naive = moment if zone else moment.replace(tzinfo=None)
    column = pa.array([naive, None], pa.timestamp(unit, zone))
    log.extend_arrow(pa.table({"value": [b"v", b"w"], "timestamp_ms": column}))
    assert [record.timestamp_ms for record in log.read()] == [int(moment.timestamp() * 1000), START_MS]


def test_null_timestamps_are_now_and_integers_of_any_width_are_taken(logs):
    log, _ = logs()
    for kind in (pa.int64(), pa.int32(), pa.uint64(), pa.null()):
        stamps = pa.array([None if pa.types.is_null(kind) else 7, None], kind)
        log.extend_arrow(pa.table({"value": [b"v", b"w"], "timestamp_ms": stamps}))
    assert [record.timestamp_ms for record in log.read()] == [7, START_MS] * 3 + [START_MS] * 2


@pytest.mark.parametrize(
    "kind",
    [
        HEADERS,
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
    ],
    ids=str,
)
def test_headers_may_be_lists_or_maps(logs, kind):
    log, _ = logs()
    given = [[("a", b"1"), ("b", None)], None, [], None, [("c", b"")], None]
    pairs = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in given]
    column = pa.array(given if pa.types.is_map(kind) else pairs, kind)
    table = pa.table({"value": [b"v"] * 6, "headers": column})
    log.extend_arrow(table)
    log.extend_arrow(table.slice(1, 4))  # with nulls
    log.extend_arrow(table.slice(4, 1))  # without
    expected = [(("a", b"1"), ("b", None)), (), (), (), (("c", b""),), ()]
    assert [record.headers for record in log.read()] == [*expected, *expected[1:5], expected[4]]


def test_anything_with_the_stream_interface_is_taken(logs):
    class Exported:
        def __init__(self, table):
            self.table = table

        def __arrow_c_stream__(self, requested_schema=None):
            return self.table.__arrow_c_stream__(requested_schema)

    log, _ = logs()
    table = pa.table({"value": [b"a", b"b"]})
    for data in (table, table.to_batches()[0], table.to_reader(), Exported(table)):
        log.extend_arrow(data)
    assert [record.value for record in log.read()] == [b"a", b"b"] * 4


# Refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, b"", [b"v"], {"value": [b"v"]}, 7])
def test_what_is_no_arrow_data_is_refused(logs, data):
    log, _ = logs()
    with pytest.raises(UsageError, match=f"{type(data).__name__}.*extend_arrow takes"):
        log.extend_arrow(data)


BAD_COLUMNS = [
    ({"key": [b"k"]}, "'value' is missing"),
    ({"value": [b"v"], "offset": [1]}, "'offset'"),
    ({"value": [1.5]}, "'value' is double"),
    ({"value": [b"v"], "key": [[1]]}, "'key' is list"),
    ({"value": [b"v"], "timestamp_ms": ["now"]}, "'timestamp_ms' is string"),
    ({"value": [b"v"], "timestamp_ms": pa.array([2**64 - 1], pa.uint64())}, "'timestamp_ms' of type uint64"),
    ({"value": [b"v"], "headers": [["a"]]}, "'headers' is list"),
    ({"value": [b"v"], "headers": [[{"key": "a"}]]}, "'headers' is list"),
]


@pytest.mark.parametrize(("columns", "words"), BAD_COLUMNS, ids=[words for _, words in BAD_COLUMNS])
def test_a_column_that_cannot_be_is_refused_by_name(logs, columns, words):
    log, _ = logs()
    with pytest.raises(InvalidRecordError, match=words):
        log.extend_arrow(pa.table(columns))
    assert log.log_end_offset == 0


def test_a_column_that_is_there_twice_is_refused(logs):
    table = pa.Table.from_arrays([pa.array([b"v"])] * 2, ["value", "value"])
    with pytest.raises(InvalidRecordError, match="twice"):
        logs()[0].extend_arrow(table)


BAD_ROWS = [
    (NewRecord(b"v", None, (), START_MS + 2**40), {}, InvalidTimestampError),
    (NewRecord(b"v", None, (), -2), {}, InvalidRecordError),
    (NewRecord(b"v", None, (), 5), {"message_timestamp_before_max_ms": 10}, InvalidTimestampError),
    (NewRecord(b"v", None), {"cleanup_policy": "compact"}, InvalidRecordError),
    (NewRecord(b"v" * 2000, b"k"), {"max_message_bytes": 1000}, RecordTooLargeError),
]


@pytest.mark.parametrize(("row", "config", "kind"), BAD_ROWS)
def test_a_row_is_refused_as_extend_refuses_it_and_nothing_is_appended(logs, row, config, kind):
    by_rows, by_columns = logs(**config)
    rows = [NewRecord(b"fine", b"k", (), START_MS)] * 3 + [row]
    with pytest.raises(kind) as from_rows:
        by_rows.extend(rows)
    table = pa.concat_tables([table_of(rows[:2]), table_of(rows[2:])])
    with pytest.raises(kind) as from_columns:
        by_columns.extend_arrow(table)
    assert type(from_columns.value) is type(from_rows.value)
    assert str(from_columns.value) == str(from_rows.value)
    assert by_columns.log_end_offset == 0


def test_no_timestamp_passes_narrow_bounds(logs):
    by_rows, by_columns = logs(message_timestamp_before_max_ms=10)
    rows = [NewRecord(b"v", None, (), -1), NewRecord(b"w", None, (), START_MS)]
    by_rows.extend(rows)
    by_columns.extend_arrow(table_of(rows))
    assert_same_bytes(by_rows, by_columns)


@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_key_is_refused(logs, pair):
    log, _ = logs()
    table = pa.table({"value": [b"v", b"w"], "headers": pa.array([[], [pair]], HEADERS)})
    with pytest.raises(InvalidRecordError, match="header of record 1"):
        log.extend_arrow(table)


def hostile_arrays():
    """Arrays that only a full look finds out: pyarrow itself checks the first and the last end."""
    data = pa.py_buffer(b"short")

    def array(*ends):
        buffer = pa.py_buffer(b"".join(end.to_bytes(4, "little", signed=True) for end in ends))
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, buffer, data])

    return {
        "an end beyond the data": array(0, 2**31 - 1, 5),
        "ends that fall": array(0, 3, 2, 5),
        "a negative end": array(0, -1, 5),
    }


@pytest.mark.parametrize("name", hostile_arrays())
def test_arrays_that_lie_about_their_buffers_are_refused(logs, name):
    array = hostile_arrays()[name]
    log, _ = logs()
    for column in ("value", "key"):
        columns = {"value": pa.nulls(len(array), pa.binary())} | {column: array}
        with pytest.raises(InvalidRecordError, match=f"'{column}' is not valid Arrow data"):
            log.extend_arrow(pa.Table.from_arrays(list(columns.values()), list(columns)))


def test_header_keys_that_are_no_text_are_refused(logs):
    keys = pa.array([b"\xff"], pa.binary()).view(pa.string())
    pairs = pa.StructArray.from_arrays([keys, pa.array([b"x"])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)
    with pytest.raises(InvalidRecordError, match="'headers' is not valid Arrow data"):
        logs()[0].extend_arrow(pa.table({"value": [b"v"], "headers": headers}))


def test_a_closed_or_read_only_log_refuses(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        log = store.create_topic("t")[0]
        with logstore.open(tmp_path / "s", read_only=True) as reader, pytest.raises(ReadOnlyError):
            reader["t"][0].extend_arrow(pa.table({"value": [b"v"]}))
    with pytest.raises(ClosedError):
        log.extend_arrow(pa.table({"value": [b"v"]}))


# Topics -----------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        yield store.create_topic("t", partitions=5)


def test_rows_go_to_the_partition_of_their_key_in_order(topic):
    keys = [b"key %d" % (i % 13) for i in range(100)]
    table = pa.table({"key": keys, "value": [b"%d" % i for i in range(100)]})
    offsets = topic.extend_arrow(pa.concat_tables([table.slice(0, 33), table.slice(33)]), flush=True)
    assert sum(map(len, offsets.values())) == 100
    for log in topic:
        rows = list(log.read())
        assert len(rows) == len(offsets.get(log.partition.partition, ()))
        assert {partition_for_key(row.key, 5) for row in rows} <= {log.partition.partition}
        numbers = [int(row.value) for row in rows]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("kind", payload_types(), ids=str)
def test_a_topic_takes_every_type_that_a_partition_takes(topic, kind):
    values = ["", "a", "é", "x" * 300, "a", "b"]
    column = payloads_of(kind, values)
    headers = pa.array([None, [("h", b"1")], None, [], None, None], pa.map_(pa.string(), pa.binary()))
    topic.extend_arrow(pa.table({"key": column, "value": column, "headers": headers}).slice(1))
    found = {}
    for log in topic:
        for row in log.read():
            assert row.key == row.value
            found.setdefault(row.value.decode(), []).append(row.headers)
    assert found == {"a": [(("h", b"1"),), ()], "é": [()], "x" * 300: [()], "b": [()]}


def test_a_topic_takes_values_that_are_all_null(topic):
    topic.extend_arrow(pa.table({"key": ["a", "b"], "value": pa.nulls(2)}))
    found = {row.key: row.value for log in topic for row in log.read()}
    assert found == {b"a": None, b"b": None}


def test_a_topic_takes_a_frame_of_polars(topic):
    polars = pytest.importorskip("polars")
    for kind in (polars.String, polars.Binary, polars.Categorical):
        keys = [b"k1", b"k2"] if kind is polars.Binary else ["k1", "k2"]
        topic.extend_arrow(polars.DataFrame({"key": polars.Series(keys, dtype=kind), "value": ["1", None]}))
    found = sorted((row.key, row.value) for log in topic for row in log.read())
    assert found == [(b"k1", b"1")] * 3 + [(b"k2", None)] * 3


def test_rows_without_a_key_go_where_extend_sends_them(tmp_path):
    config = logstore.StoreConfig(batch_bytes=1000)
    with logstore.open(tmp_path / "a", config=config) as a, logstore.open(tmp_path / "b", config=config) as b:
        by_rows, by_columns = a.create_topic("t", partitions=3), b.create_topic("t", partitions=3)
        rows = [(None if i % 3 else b"k%d" % i, b"v" * (i % 90), START_MS) for i in range(300)]
        table = pa.table(
            {"key": [r[0] for r in rows], "value": [r[1] for r in rows], "timestamp_ms": [START_MS] * 300}
        )
        assert by_columns.extend_arrow(table) == by_rows.extend(rows)
        for ours, theirs in zip(by_columns, by_rows, strict=True):
            assert list(ours.read()) == list(theirs.read())


def test_a_topic_is_read_with_its_partitions(topic):
    topic.extend([(b"key %d" % (i % 13), b"%d" % i) for i in range(100)])
    table = topic.read_arrow()
    assert table.schema.names == ["partition", "offset", "timestamp_ms", "key", "value", "headers"]
    expected = [(log.partition.partition, row.offset, row.value) for log in topic for row in log.read()]
    found = table.select(["partition", "offset", "value"]).to_pylist()
    assert [tuple(row.values()) for row in found] == expected
    only = topic.read_arrow(columns=["value", "partition"])
    assert only.equals(table.select(["value", "partition"]))
    assert topic.read_arrow(columns=["partition"]).equals(table.select(["partition"]))
    assert max(batch.num_rows for batch in topic.iterate_arrow(batch_rows=7)) <= 7
    with pytest.raises(UsageError, match="'nothing'"):
        topic.read_arrow(columns=["nothing"])


def test_a_compacted_topic_refuses_rows_without_keys(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        topic = store.create_topic("t", partitions=2, config=TopicConfig(cleanup_policy="compact"))
        with pytest.raises(InvalidRecordError, match="needs a key"):
            topic.extend_arrow(pa.table({"value": [b"v"]}))


def test_a_series_that_is_no_table_is_refused(log):
    class Series:
        """One column, as polars has it: an Arrow stream of no table."""

        def __arrow_c_stream__(self, requested_schema=None):
            return pa.chunked_array([pa.array([b"1", b"2"])]).__arrow_c_stream__(requested_schema)

    with pytest.raises(UsageError, match="data is a Series that is not a table"):
        log.extend_arrow(Series())


def test_the_index_of_pandas_is_named_for_what_it_is(log):
    data = pa.table({"value": [b"1"], "__index_level_0__": [7]})
    with pytest.raises(InvalidRecordError, match=r"index of a pandas DataFrame: reset_index\(drop=True\)"):
        log.extend_arrow(data)
