"""What a write checks, and how rows become batches; no Spark in it."""

import pytest

pa = pytest.importorskip("pyarrow")

import logstore  # noqa: E402
from logstore.config import TopicConfig  # noqa: E402
from logstore.errors import (  # noqa: E402
    InvalidConfigError,
    InvalidRecordError,
    InvalidTopicError,
    LockedError,
    RecordTooLargeError,
    UnknownTopicError,
    UsageError,
)
from logstore.spark import commits, writing  # noqa: E402
from logstore.spark.ledger import COMMITS_TOPIC  # noqa: E402
from logstore.spark.options import Options, Use  # noqa: E402
from logstore.spark.staging import is_staged_name  # noqa: E402
from logstore.spark.writing import plan_write, stage_rows  # noqa: E402

BINARY = [("value", "binary")]
HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=3)
        store.create_topic("one", partitions=1)
        store.create_topic("compacted", partitions=2, config=TopicConfig(cleanup_policy="compact"))
        store.create_topic("__consumer_offsets", partitions=1)
    return str(tmp_path / "store")


def plan(path, fields=BINARY, **options):
    return plan_write(Options({"path": path} | options, Use.BATCH_WRITE), fields)


SPARK_TYPES = {
    pa.binary(): "binary",
    pa.string(): "string",
    pa.int32(): "int",
    pa.timestamp("us", "UTC"): "timestamp",
}


def write(path, *tables, **options):
    """The rows of each table, as one task each; committed. Returns what the tasks told."""
    kinds = [(f.name, SPARK_TYPES.get(f.type, HEADERS)) for f in tables[0].schema]
    planned = plan(path, kinds, **options)
    files = [stage_rows(planned, "job", 0, n, table.to_batches()) for n, table in enumerate(tables)]
    commits.commit(path, "job", 0, [staged for of_task in files for staged in of_task])
    return files


def table(**columns):
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def records(path, topic="t"):
    with logstore.open(path, read_only=True) as store:
        return {number: list(log) for number, log in enumerate(store[topic])}


def staged_left(path):
    import os

    return [name for name in os.listdir(path) if is_staged_name(name)]


# What becomes of rows


def test_rows_go_where_kafkas_producer_sends_their_keys(path):
    keys = [b"key %d" % number for number in range(300)]
    write(path, table(key=keys, value=keys), topic="t")
    with logstore.open(path, read_only=True) as store:
        topic = store["t"]
        for number, log in enumerate(topic):
            found = [bytes(record.key) for record in log]
            assert found == [key for key in keys if topic.partition_for(key) == number]
            assert found


@pytest.mark.parametrize("columns", [{}, {"key": [None] * 9_000}])
def test_rows_without_keys_spread(path, columns):
    values = [b"%d" % number + b"." * 100 for number in range(9_000)]
    write(path, table(value=values, **columns), topic="t")
    found = records(path)
    assert sorted(bytes(r.value) for part in found.values() for r in part) == sorted(values)
    assert all(len(part) > 2_000 for part in found.values())


def test_some_rows_without_keys(path):
    keys = [None if number % 3 else b"%d" % number for number in range(99)]
    write(path, table(key=keys, value=[b"v"] * 99), topic="t")
    found = [record.key for part in records(path).values() for record in part]
    assert sorted(map(repr, found)) == sorted(map(repr, keys))


def test_the_partition_column_wins_over_the_key(path):
    rows = table(key=[b"a"] * 4, value=[b"0", b"1", b"2", b"3"], partition=[2, 0, None, 2])
    write(path, rows, topic="t")
    found = {number: [bytes(r.value) for r in part] for number, part in records(path).items()}
    with logstore.open(path, read_only=True) as store:
        found[store["t"].partition_for(b"a")].remove(b"2")
    assert found == {0: [b"1"], 1: [], 2: [b"0", b"3"]}


def test_the_topic_column_says_where_each_row_goes(path):
    rows = table(value=[b"0", b"1", b"2"], topic=["one", "t", "one"], partition=[0, 1, 0])
    write(path, rows)
    assert [bytes(r.value) for r in records(path, "one")[0]] == [b"0", b"2"]
    assert [bytes(r.value) for r in records(path)[1]] == [b"1"]


def test_the_topic_option_wins_over_the_column(path):
    write(path, table(value=[b"0"], topic=["nowhere"]), topic="one")
    assert len(records(path, "one")[0]) == 1


def test_every_field_arrives(path):
    rows = table(
        key=[b"k", None],
        value=[None, b"v"],
        headers=[[{"key": "h", "value": b"x"}, {"key": "n", "value": None}], None],
        timestamp=[1_700_000_000_123_456, None],
    )
    write(path, rows, topic="one")
    first, second = records(path, "one")[0]
    assert first[1:] == (1_700_000_000_123, b"k", None, (("h", b"x"), ("n", None)))
    assert second.key is None
    assert second.value == b"v"
    assert second.timestamp_ms > 1_700_000_000_123


def test_text_is_taken_as_utf8(path):
    rows = pa.table({"key": ["é"], "value": ["ü"]})
    write(path, rows, topic="one")
    assert records(path, "one")[0][0][2:4] == ("é".encode(), "ü".encode())


def test_the_topics_settings_hold(path):
    with logstore.open(path) as store:
        store["one"].configure(compression_type="zstd", message_timestamp_type="LogAppendTime")
    write(path, table(value=[b"a" * 1000] * 100), topic="one")
    with logstore.open(path, read_only=True) as store:
        assert store["one"][0].size_bytes < 1_000
        assert store.verify()


def test_order_is_kept_within_a_task_and_a_partition(path, monkeypatch):
    monkeypatch.setattr(writing, "GATHERED_BYTES", 1)
    monkeypatch.setattr(writing, "_BYTES_PER_PARTITION", 1)
    values = [b"%06d" % number for number in range(5_000)]
    first, second = (
        table(key=values[:2500], value=values[:2500]),
        table(key=values[2500:], value=values[2500:]),
    )
    write(path, first, second, topic="t")
    for part in records(path).values():
        found = [bytes(record.value) for record in part]
        assert found == sorted(found)
        assert len(found) > 1_000


def test_a_task_without_rows_leaves_no_file(path):
    assert write(path, table(value=[]), topic="t") == [[]]
    assert staged_left(path) == []
    assert COMMITS_TOPIC not in logstore.open(path, read_only=True)


def test_memory_does_not_grow_with_the_rows(path):
    """What waits to be encoded is bounded, whatever comes."""
    one = table(value=[b"x" * 1_000] * 1_000).to_batches()[0]
    held = []

    class Watched(writing._Stage):
        def add(self, batch):
            super().add(batch)
            held.append(self._gathered_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_Stage", Watched)
        stage_rows(plan(path, topic="one"), "job", 0, 0, (one for _ in range(60)))
    assert max(held) < writing.GATHERED_BYTES < 60 * one.nbytes


# Topics that are made


def test_a_topic_is_made_with_as_many_partitions_as_wanted(path):
    write(path, table(value=[b"a"]), topic="new", partitions="4")
    assert len(records(path, "new")) == 4


def test_a_topic_that_is_there_stays_as_it_is(path):
    write(path, table(value=[b"a"]), topic="t", partitions="4")
    assert len(records(path)) == 3


def test_a_store_is_made_with_the_topic(tmp_path):
    path = str(tmp_path / "deep" / "store")
    write(path, table(value=[b"a"]), topic="new", partitions="1")
    assert len(records(path, "new")[0]) == 1


def test_whoever_has_the_store_open_is_named(path):
    with logstore.open(path), pytest.raises(LockedError, match="waited 30 ms"):
        plan(path, topic="new", partitions="1", lockTimeoutMs="30")


# What is refused on the driver


@pytest.mark.parametrize(
    ("fields", "options", "error", "named"),
    [
        ([("key", "binary")], {"topic": "t"}, InvalidRecordError, "column 'value' is missing"),
        (
            [("value", "int")],
            {"topic": "t"},
            InvalidRecordError,
            "column 'value' is int; it must be binary or",
        ),
        ([*BINARY, ("key", "bigint")], {"topic": "t"}, InvalidRecordError, "column 'key' is bigint"),
        (
            [*BINARY, ("topic", "binary")],
            {},
            InvalidRecordError,
            "column 'topic' is binary; it must be string",
        ),
        ([*BINARY, ("partition", "bigint")], {"topic": "t"}, InvalidRecordError, "'partition' is bigint"),
        (
            [*BINARY, ("headers", "map<string,binary>")],
            {"topic": "t"},
            InvalidRecordError,
            "it must be array<",
        ),
        ([*BINARY, ("timestamp", "bigint")], {"topic": "t"}, InvalidRecordError, "it must be timestamp"),
        ([*BINARY, ("valeu", "binary")], {"topic": "t"}, InvalidRecordError, "no column 'valeu' to write"),
        ([*BINARY, *BINARY], {"topic": "t"}, InvalidRecordError, "'value' comes twice"),
        (BINARY, {}, InvalidConfigError, "option topic is missing"),
        (BINARY, {"topic": "none"}, UnknownTopicError, "no topic 'none'"),
        (BINARY, {"topic": "a/b"}, InvalidTopicError, "a/b"),
        (BINARY, {"topic": COMMITS_TOPIC}, InvalidConfigError, "only the store itself writes"),
        (
            BINARY,
            {"topic": "__consumer_offsets", "partitions": "3"},
            InvalidConfigError,
            "only the store itself writes",
        ),
        (BINARY, {"topic": "t", "partitions": "0"}, InvalidConfigError, "option partitions is '0'"),
        (
            BINARY,
            {"topic": "new", "partitions": "100001"},
            InvalidConfigError,
            "partitions is '100001'.*1 to",
        ),
        ([*BINARY, ("topic", "string")], {"partitions": "2"}, InvalidConfigError, "option partitions"),
        (BINARY, {"topic": "t", "lockTimeoutMs": "soon"}, InvalidConfigError, "option lockTimeoutMs"),
    ],
)
def test_what_is_wrong_with_columns_and_options_is_named(path, fields, options, error, named):
    with pytest.raises(error, match=named):
        plan(path, fields, **options)


def test_columns_of_a_read_that_mean_nothing_are_left_out(path):
    planned = plan(path, [("offset", "bigint"), *BINARY, ("timestampType", "int")], topic="t")
    assert planned.columns == ("value",)


def test_a_path_that_is_no_store(tmp_path):
    with pytest.raises(UsageError, match="no"):
        plan(str(tmp_path / "nothing"), topic="t")


# What is refused in tasks


@pytest.mark.parametrize(
    ("rows", "topic", "error", "named"),
    [
        ({"topic": ["t", None]}, None, InvalidRecordError, "column 'topic' is null in row 101"),
        ({"topic": ["t", "none"]}, None, UnknownTopicError, "no topic 'none'.*column 'topic'"),
        ({"topic": ["t", COMMITS_TOPIC]}, None, (UnknownTopicError, InvalidRecordError), COMMITS_TOPIC),
        ({"topic": ["t", "__consumer_offsets"]}, None, InvalidRecordError, "only the store itself writes"),
        (
            {"partition": [0, 3]},
            "t",
            UnknownTopicError,
            "column 'partition' is 3 in row 101: topic 't' has 3",
        ),
        ({"partition": [0, -1]}, "t", UnknownTopicError, "column 'partition' is -1 in row 101"),
        (
            {"key": [b"k", None]},
            "compacted",
            InvalidRecordError,
            "column 'key' is null in row 101: topic 'comp",
        ),
        ({}, "compacted", InvalidRecordError, "column 'key' is null in row 0"),
        ({"topic": ["t", "t"], "partition": [0, 9]}, None, UnknownTopicError, "is 9 in row 101"),
        ({"headers": [None, [{"key": None, "value": b""}]]}, "t", InvalidRecordError, "topic 't'.*header"),
        ({"timestamp": [None, -5_000]}, "t", InvalidRecordError, "topic 't'.*timestamp"),
    ],
)
def test_a_wrong_row_is_named_and_leaves_no_file(path, monkeypatch, rows, topic, error, named):
    monkeypatch.setattr(writing, "GATHERED_BYTES", 1)
    columns = {name: [values[0]] * 100 for name, values in rows.items()}
    first = table(value=[b"v"] * 100, **columns)
    second = table(value=[b"v"] * 2, **rows)
    options = {} if topic is None else {"topic": topic}
    with pytest.raises(error, match=named):
        write(path, pa.concat_tables([first, second]), **options)
    assert staged_left(path) == []


WRONG = {
    "timestamp": (-5_000, r"column 'timestamp' of the row is -5;"),
    "headers": ([{"key": None, "value": b"x"}], r"column 'headers' of the row is \(None, b'x'\)"),
    "value": (b"x" * 2_000_000, "larger than max_message_bytes"),
}


@pytest.mark.parametrize("column", WRONG)
@pytest.mark.parametrize("others", ["nothing", "key", "partition", "topic", "one"])
def test_a_row_that_cannot_be_a_record_is_told_by_its_number_in_the_task(path, monkeypatch, column, others):
    """The error named the record's number among those of its partition."""
    monkeypatch.setattr(writing, "GATHERED_BYTES", 20_000)
    wrong, named = WRONG[column]
    columns = {"value": [b"v"] * 5_000, column: [b"v" if column == "value" else None] * 5_000}
    columns[column][3_210] = wrong
    more = {
        "key": {"key": [b"%d" % number for number in range(5_000)]},
        "partition": {"partition": [number % 3 for number in range(5_000)]},
        "topic": {"topic": ["one" if number % 3 else "t" for number in range(5_000)]},
    }
    options = {} if others == "topic" else {"topic": "one" if others == "one" else "t"}
    rows = table(**columns, **more.get(others, {}))
    tables = pa.concat_tables([rows.slice(start, 700) for start in range(0, 5_000, 700)])
    with pytest.raises(
        (InvalidRecordError, RecordTooLargeError), match=rf"partition \d, row 3210: .*{named}"
    ):
        write(path, tables, **options)
    assert staged_left(path) == []


def test_a_record_that_is_too_large_is_named(path):
    with pytest.raises(RecordTooLargeError, match=r"topic 't', partition .*max_message_bytes"):
        write(path, table(value=[b"small", b"x" * 2_000_000]), topic="t")
    assert staged_left(path) == []
