"""Columns hold exactly what a row read of the same range gives, and promise the same."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

import logstore
from logstore.build import compiled
from logstore.config import TopicConfig
from logstore.errors import ClosedError, CorruptionError, OffsetOutOfRangeError, UsageError
from logstore.format.batch import encode_batch, encode_records_batch, seal_batch
from logstore.format.column_buffers import PlainColumns
from logstore.format.compression import Codec, compress
from logstore.format.header import HEADER_BYTES, decode_header
from logstore.model import Isolation, NewRecord, Record, Role
from tests.format.legacy_writer import encode_entry, encode_wrapper
from tests.interop.fixtures import DATA, case_names
from tests.logdir.helpers import run_python
from tests.partition.helpers import Partition, batch_of
from tests.partition.helpers_rules import identity, open_log

pa = pytest.importorskip("pyarrow")

from logstore.partition.reading import arrow  # noqa: E402
from tests.partition.helpers_arrow import assert_same_rows, records_in  # noqa: E402

WAYS = ["plain"] if compiled is None else ["plain", "compiled"]

SHAPES = [
    NewRecord(b"value", b"key", (), 5),
    NewRecord(None, b"key"),
    NewRecord(b"value", None),
    NewRecord(None, None),
    NewRecord(b"", b""),
    NewRecord(b"v" * 63, b"k" * 64, (), 1_700_000_000_001),
    NewRecord(b"v" * 10_000, b"k" * 200),
    NewRecord(
        b"value", b"key", (("name", b"x"), ("", b""), ("name", None), ("\N{SNOWMAN}\U0001f600", b"y" * 70))
    ),
    NewRecord(None, None, (("only", None),), 0),
]


@pytest.fixture(params=WAYS, autouse=True)
def way(request, monkeypatch):
    """Each test runs with the compiled columns, if there are any, and with the plain ones."""
    if request.param == "plain":
        monkeypatch.setattr(arrow, "Columns", PlainColumns)
    return request.param


@pytest.fixture
def log(tmp_path):
    return open_log(tmp_path / "t-0")


# Shapes -----------------------------------------------------------------------------------------------------


def test_an_empty_log_is_an_empty_table(log):
    table = log.read_arrow()
    assert table.num_rows == 0
    assert table.schema.names == ["offset", "timestamp_ms", "key", "value", "headers"]
    assert list(log.iterate_arrow()) == []


def test_every_shape_of_record_comes_back(log):
    log.extend(SHAPES)
    log.extend(SHAPES * 7)
    for record in SHAPES:
        log.append(*record[:1], key=record.key, headers=record.headers)
    assert assert_same_rows(log).num_rows == 9 * len(SHAPES)


def test_nulls_are_null_and_empty_is_empty(log):
    log.extend([(None, b""), (b"", None)])
    table = log.read_arrow(columns=["key", "value"])
    assert table.to_pylist() == [{"key": None, "value": b""}, {"key": b"", "value": None}]
    assert table["key"].null_count == table["value"].null_count == 1


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 1000])
def test_nulls_keep_their_place_in_every_number_of_rows(log, count):
    log.extend([(None if i % 3 else b"k", None if i % 5 == 0 else b"v%d" % i) for i in range(count)])
    log.extend([(b"k", b"v")] * 3)
    log.extend([(b"k", None)])
    assert_same_rows(log)


def test_every_range_of_offsets_is_what_a_row_read_gives(log):
    for batch in ([b"a"], [b"b", b"c", b"d"], [b"e", b"f"]):
        log.extend([NewRecord(value, None, (("h", value),)) for value in batch])
    for start in range(7):
        for stop in range(start, 8):
            assert_same_rows(log, start, stop)


def test_segments_follow_each_other(tmp_path):
    partition = Partition(tmp_path / "t-0")
    partition.write_segments(7, 1, 5, batch=3)
    for start in range(0, 13, 2):
        assert_same_rows(partition.log, start)
    partition.close()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back(tmp_path, codec):
    log = open_log(tmp_path / "t-0", compression_type=codec)
    for _ in range(3):
        log.extend(SHAPES * 5)
    assert_same_rows(log)
    assert_same_rows(log, 4, 61)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("name", [b"\xff", b"\xe2\x82", b"a\xed\xa0\x80b", b"\xf0\x9f\x98\x80\xc0"])
def test_what_is_no_utf_8_in_a_header_key_is_replaced_as_in_rows(log, name, codec):
    good = encode_batch([b"k"] * 3, [b"v"] * 3, 5, [[("good", b"x")], [("~" * len(name), None)], []])
    odd = seal_batch(decode_header(good), good[HEADER_BYTES:].replace(b"~" * len(name), name))
    for made in (good, odd, odd, good):
        header = decode_header(made)
        section = compress(codec, made[HEADER_BYTES:])
        log.append_batch(seal_batch(header._replace(attributes=codec), section))
    table = assert_same_rows(log)
    assert table["headers"][4].as_py() == [{"key": name.decode(errors="replace"), "value": None}]
    assert bytes(log.fetch(0).data).count(compress(codec, odd[HEADER_BYTES:])) == 2  # the log keeps its bytes


def test_log_append_time_is_every_records_timestamp(tmp_path):
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    log.extend([NewRecord(b"v", None, (), 5), NewRecord(b"w", None, (("h", b"x"),), 6)])
    table = assert_same_rows(log)
    assert set(table["timestamp_ms"].to_pylist()) == {log.find_max_timestamp().timestamp_ms}


def test_gaps_and_emptied_batches_as_compaction_leaves_them(tmp_path):
    partition = Partition(tmp_path / "t-0", cleanup_policy="compact")
    whole = batch_of(0, 40)
    header = decode_header(whole)
    kept = [Record(o, 1000 + o, b"k", b"v%d" % o, ()) for o in (3, 4, 17, 39)]
    last = encode_batch([b"k"], [b"v"], [77], base_offset=50, partition_leader_epoch=0)
    emptied = encode_records_batch([], like=header._replace(base_offset=41, last_offset_delta=4))
    with_horizon = encode_records_batch(kept, like=header, delete_horizon_ms=123_456)
    log = partition.log
    for batch in (with_horizon, emptied, last):
        log.append_replicated(batch)
    for start in (0, 3, 5, 18, 39, 40, 43, 50, 51):
        assert_same_rows(log, start)
    assert_same_rows(log, 4, 18)
    partition.close()


@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_old_magics_come_back(tmp_path, magic):
    stamp = -1 if magic == 0 else 1_600_000_000_000
    rows = [Record(o, stamp, b"k" if o % 2 else None, b"value %d" % o, ()) for o in range(12)]
    data = b"".join(encode_entry(magic, row) for row in rows[:4])
    inner = [row._replace(offset=row.offset - 4 if magic else row.offset) for row in rows[4:9]]
    data += encode_wrapper(magic, Codec.GZIP, inner, offset=8)
    data += b"".join(encode_entry(magic, row) for row in rows[9:])
    path = tmp_path / "t-0"
    path.mkdir()
    (path / "00000000000000000000.log").write_bytes(data + batch_of(12, 5))
    log = open_log(path)
    assert [record.offset for record in log.read()] == list(range(17))
    for start in range(17):
        assert_same_rows(log, start)
    assert_same_rows(log, 5, 8)


@pytest.mark.parametrize("case", case_names())
def test_what_brokers_wrote_comes_back(tmp_path, case):
    shutil.copytree(DATA / case, tmp_path / "broker")
    with logstore.open(tmp_path / "broker", read_only=True) as store:
        for name in store:
            for log in store[name]:
                for isolation in Isolation:
                    assert_same_rows(log, isolation=isolation)
                    assert_same_rows(
                        log, (log.log_start_offset + log.log_end_offset) // 2, isolation=isolation
                    )


# Isolation --------------------------------------------------------------------------------------------------


def test_committed_reads_leave_out_aborted_transactions_and_markers(log):
    log.extend([b"plain"])
    for number, is_committed in enumerate([True, False, True, False]):
        producer = identity(0, producer=number, transactional=True)
        log.extend([b"t%d" % number] * 5, producer=producer)
        log.extend([b"between"])
        log.append_end_marker(number, 0, committed=is_committed)
    log.extend([b"open"], producer=identity(0, producer=9, transactional=True))
    log.extend([b"after"])
    for isolation in Isolation:
        for start in (0, 1, 3, 8, 13):
            assert_same_rows(log, start, isolation=isolation)
    found = log.read_arrow(columns=["value"], isolation=Isolation.COMMITTED)["value"].to_pylist()
    assert set(found) == {b"plain", b"t0", b"t2", b"between"}


def test_a_managed_high_watermark_bounds_columns(log):
    log.set_role(Role.LEADER)
    log.extend([b"a", b"b", b"c"])
    log.update_high_watermark(2)
    assert assert_same_rows(log).num_rows == 2
    assert assert_same_rows(log, isolation=Isolation.LOG_END).num_rows == 3


def test_gathered_records_are_read_too(log):
    log.append(b"gathered")
    assert log.read_arrow(columns=["value"]).to_pylist() == [{"value": b"gathered"}]


# Columns and limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["value"], ["headers", "offset"], ["timestamp_ms", "key"], ("offset",)])
def test_a_projection_gives_those_columns_in_that_order(log, names):
    log.extend(SHAPES * 3)
    whole = log.read_arrow()
    assert log.read_arrow(columns=names).equals(whole.select(list(names)))
    assert log.read_arrow(4, 9, columns=iter(names)).equals(whole.select(list(names)).slice(4, 5))


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        (["valu"], "'valu'"),
        (["value", "value"], "twice"),
        ([], "empty"),
        ("value", "list"),
        (7, "7"),
        ([None], "None"),
    ],
)
def test_a_projection_that_cannot_be_is_refused_by_name(log, columns, word):
    with pytest.raises(UsageError, match=word):
        log.read_arrow(columns=columns)


@pytest.mark.parametrize(
    "limits", [{"batch_rows": 0}, {"batch_bytes": 0}, {"batch_rows": 1.5}, {"batch_rows": True}]
)
def test_a_limit_that_cannot_be_is_refused_by_name(log, limits):
    with pytest.raises(UsageError, match=next(iter(limits))):
        log.iterate_arrow(**limits)


def test_record_batches_are_bounded_however_the_log_is_cut(log):
    log.extend([b"v" * 100] * 1000)
    for _ in range(200):
        log.extend([b"v" * 100] * 7)
    by_rows = [batch.num_rows for batch in log.iterate_arrow(batch_rows=128)]
    assert max(by_rows) <= 128
    assert sum(by_rows) == 2400
    assert min(by_rows[:-1]) > 64, "small batches of the log are joined"
    by_bytes = list(log.iterate_arrow(batch_bytes=20_000))
    assert max(batch.nbytes for batch in by_bytes) <= 20_000
    assert sum(batch.num_rows for batch in by_bytes) == 2400


def test_one_record_larger_than_the_limit_comes_alone(log):
    log.extend([b"a", b"v" * 5000, b"b"])
    assert [batch.num_rows for batch in log.iterate_arrow(batch_bytes=1000)] == [1, 1, 1]


def test_batches_larger_than_a_piece_come_back(tmp_path):
    log = open_log(
        tmp_path / "t-0", batch_bytes=4 * 2**20, max_message_bytes=8 * 2**20, segment_bytes=64 * 2**20
    )
    log.extend([b"first"])
    log.extend([b"v" * 1000] * 3000)
    log.extend([b"x" * 2**21])
    log.extend([b"last"])
    assert log.read_arrow(columns=["value"])["value"].to_pylist() == [record.value for record in log.read()]


def test_what_a_reader_gave_stays_as_it_was(log):
    for number in range(20):
        log.extend([b"%d" % (number % 10)] * 50)
    batches = []
    for number, batch in enumerate(log.iterate_arrow(batch_rows=50, columns=["value"])):
        if number % 3:
            batches.append((number, batch))
    for number, batch in batches:
        assert batch["value"].to_pylist() == [b"%d" % (number % 10)] * 50


def test_iterating_takes_a_bounded_amount_of_memory(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=2**30)
    for _ in range(48):
        log.extend([b"v" * 1000] * 1000)
    log.close()
    program = f"""
import resource, logstore
log = logstore.Log.open({str(tmp_path / "t-0")!r})
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
batches = iter(log.iterate_arrow(batch_bytes=2**21))
next(batches), next(batches)
before, count = peak(), sum(batch.num_rows for batch in batches)
print(count, peak() - before)
log.close()
"""
    count, grown_kib = map(int, run_python(program).split())
    assert count > 40_000
    assert grown_kib < 12 * 1024


def test_columns_are_read_while_others_append(log):
    """The compiled code works without the GIL: readers and writers meet."""
    done = []

    def write():
        for number in range(60):
            log.extend([(b"k%d" % number, b"v" * 300)] * 100)
        done.append(True)

    def read():
        while not done:
            table = log.read_arrow(columns=["offset", "key"])
            assert table["offset"].to_pylist() == list(range(table.num_rows))

    with ThreadPoolExecutor() as pool:
        for future in [pool.submit(write), *(pool.submit(read) for _ in range(3))]:
            future.result()
    assert log.read_arrow().num_rows == 6000


# Errors -----------------------------------------------------------------------------------------------------


def test_offsets_outside_of_the_log_are_refused_at_the_call(log):
    log.extend([b"a"])
    with pytest.raises(OffsetOutOfRangeError):
        log.iterate_arrow(2)
    with pytest.raises(UsageError):
        log.read_arrow("0")
    with pytest.raises(UsageError):
        log.read_arrow(isolation="committed")


def test_a_closed_log_is_refused(log):
    log.extend([b"a"])
    log.close()
    with pytest.raises(ClosedError):
        log.read_arrow()


@pytest.mark.parametrize("number", [0, 3, 7])
def test_what_is_before_a_damaged_batch_is_given_and_then_its_error(tmp_path, number):
    partition = Partition(tmp_path / "t-0")
    partition.write(80, batch=10)
    position = partition.corrupt_batch(number)
    found = []
    with pytest.raises(CorruptionError, match="checksum") as by_columns:
        found.extend(row for batch in partition.log.iterate_arrow() for row in records_in(batch))
    with pytest.raises(CorruptionError) as by_rows:
        list(partition.log.read())
    assert [record.offset for record in found] == list(range(10 * number))
    assert str(by_columns.value) == str(by_rows.value)
    assert by_columns.value.position == position
    with pytest.raises(CorruptionError):
        partition.log.read_arrow()
    assert partition.log.read_arrow(stop=10 * number).num_rows == 10 * number
    partition.crash()


def test_a_record_that_does_not_decode_is_refused_with_its_batch(tmp_path):
    partition = Partition(tmp_path / "t-0")
    partition.write(5, batch=5)
    batch = encode_batch([b"k"] * 2, [b"v"] * 2, [1, 2], [(("h", b"x"),)] * 2, base_offset=5)
    records = bytes(batch[HEADER_BYTES:]).replace(b"\x02h", b"\x01h")  # a header key that is null
    whole = seal_batch(decode_header(batch), records)
    log = partition.log
    log.append_replicated(whole)
    with pytest.raises(CorruptionError, match="null key"):
        log.read_arrow()
    with pytest.raises(CorruptionError, match="null key"):
        log.read_arrow(columns=["offset"])
    assert log.read_arrow(stop=5).num_rows == 5
    partition.crash()


def test_a_log_that_is_cut_meanwhile_is_out_of_range_not_corrupt(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=100)
    for _ in range(3000):
        log.extend([b"v" * 1000])
    batches = iter(log.iterate_arrow(batch_rows=10))
    next(batches)
    log.truncate_to(20)
    with pytest.raises(OffsetOutOfRangeError, match="truncated"):
        list(batches)


# Readers elsewhere ------------------------------------------------------------------------------------------


def test_a_follower_in_another_store_reads_columns(tmp_path):
    with logstore.open(tmp_path / "s") as writer, logstore.open(tmp_path / "s", read_only=True) as reader:
        log = writer.create_topic("t")[0]
        log.extend([b"a", b"b"])
        assert_same_rows(reader["t"][0])
        log.extend([b"c"])
        assert assert_same_rows(reader["t"][0]).num_rows == 3


def test_a_follower_goes_on_where_the_writer_took_segments_away(tmp_path):
    config = TopicConfig(segment_bytes=20_000, file_delete_delay_ms=0)
    with logstore.open(tmp_path / "s") as writer, logstore.open(tmp_path / "s", read_only=True) as reader:
        log = writer.create_topic("t", config=config)[0]
        for _ in range(300):
            log.extend([b"v" * 1000])
        batches = iter(reader["t"][0].iterate_arrow(batch_rows=20))
        first = next(batches)
        log.delete_before(40)
        with pytest.raises(OffsetOutOfRangeError):
            list(reader["t"][0].iterate_arrow(first.num_rows))
        log.truncate_to(250)
        rest = [
            offset for batch in reader["t"][0].iterate_arrow(40) for offset in batch["offset"].to_pylist()
        ]
        assert rest == list(range(40, 250))
