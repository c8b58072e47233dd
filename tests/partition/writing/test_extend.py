"""Appending many records: shapes of input, batches, and what is refused."""

import errno

import pytest

from logstore.errors import (
    DiskFullError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UsageError,
)
from logstore.format.gathered import MAX_RECORD_OVERHEAD_BYTES
from logstore.format.header import HEADER_BYTES
from logstore.model import NewRecord
from logstore.partition.encoding.rows import columns_of, split_by_size
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFiles,
    add,
    bases_of,
    headers_of,
    offsets_of,
    open_log,
    values_of,
)

NOW = START_MS


def rows(log):
    return [(r.timestamp_ms, r.key, r.value, r.headers) for r in log]


# Shapes


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (b"v", (NOW, None, b"v", ())),
        (bytearray(b"v"), (NOW, None, b"v", ())),
        (memoryview(b"v"), (NOW, None, b"v", ())),
        ((b"k", b"v"), (NOW, b"k", b"v", ())),
        ((None, None), (NOW, None, None, ())),
        ((b"k", b"v", 5), (5, b"k", b"v", ())),
        ((b"k", b"v", None), (NOW, b"k", b"v", ())),
        ((b"k", b"v", 5, (("h", b"x"),)), (5, b"k", b"v", (("h", b"x"),))),
        ((b"k", b"v", 5, None), (5, b"k", b"v", ())),
        ((b"k", b"v", 5, {"h": None}), (5, b"k", b"v", (("h", None),))),
        (NewRecord(b"v"), (NOW, None, b"v", ())),
        (NewRecord(b"v", b"k", (("h", b"x"),), 5), (5, b"k", b"v", (("h", b"x"),))),
        (NewRecord(b"v", timestamp_ms=-1), (-1, None, b"v", ())),
    ],
)
def test_a_record_of_any_shape(log, given, stored):
    assert log.extend([given]) == range(1)
    assert log.extend([given, b"other"]) == range(1, 3)
    assert rows(log)[:2] == [stored, stored]


def test_any_iterable_is_taken(log):
    log.extend(value for value in (b"a", b"b"))
    log.extend({b"c"})
    log.extend(iter([b"d"]))
    assert values_of(log) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("nothing", [[], (), iter([])])
def test_nothing_is_appended_at_the_log_end(log, nothing):
    add(log, b"a")
    assert log.extend(nothing) == range(1, 1)


@pytest.mark.parametrize("records", [b"bytes", bytearray(b"x"), memoryview(b"x"), "text", 5, None])
def test_a_single_value_is_no_iterable_of_records(log, records):
    with pytest.raises(UsageError, match="records is a"):
        log.extend(records)


def test_an_error_of_the_callers_iterable_is_his(log):
    def broken():
        yield b"a"
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        log.extend(broken())
    assert add(log, b"a") == range(1)


# Wrong fields, by record and name


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("text", "record 1 is a str"),
        (5, "record 1 is a int"),
        (None, "record 1 is a NoneType"),
        ((b"k",), "record 1 is a tuple"),
        ((b"k", b"v", 1, (), 5), "record 1 is a tuple"),
        (("k", b"v"), "key of record 1 is a str"),
        ((b"k", "v"), "value of record 1 is a str"),
        ((b"k", 5), "value of record 1 is a int"),
        (NewRecord("v"), "value of record 1 is a str"),
        (NewRecord(b"v", 5), "key of record 1 is a int"),
        ((b"k", b"v", "5"), "timestamp_ms of record 1"),
        ((b"k", b"v", True), "timestamp_ms of record 1"),
        ((b"k", b"v", -2), "timestamp_ms of record 1"),
        ((b"k", b"v", 2**63), "timestamp_ms of record 1"),
        ((b"k", b"v", 1, 5), "headers of record 1 is a int"),
        ((b"k", b"v", 1, "ab"), "header of record 1"),
        ((b"k", b"v", 1, [("h", "text")]), "record 1 is a str"),
        ((b"k", b"v", 1, [(b"h", b"x")]), "header of record 1"),
        ((b"k", b"v", 1, [("h", b"x", b"y")]), "header of record 1"),
        ((b"k", b"v", 1, [("\ud800", b"x")]), "header of record 1"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_appended(log, wrong, named):
    with pytest.raises(InvalidRecordError, match=named):
        log.extend([(b"k", b"v"), wrong])
    assert log.log_end_offset == 0


def test_a_timestamp_out_of_bounds_names_its_record(log):
    with pytest.raises(InvalidTimestampError, match="record 2 "):
        log.extend([(b"k", b"v", NOW), (b"k", b"v", -1), (b"k", b"v", NOW + 4_000_000)])


def test_a_compacted_topic_needs_keys(tmp_path):
    log = open_log(tmp_path / "t-0", cleanup_policy="compact")
    with pytest.raises(InvalidRecordError, match="record 1"):
        log.extend([(b"k", b"v"), b"v"])


# Batches


def test_the_input_is_cut_into_batches_of_about_batch_bytes(tmp_path):
    log = open_log(tmp_path / "t-0", batch_bytes=HEADER_BYTES + 4 * (100 + MAX_RECORD_OVERHEAD_BYTES))
    log.extend([b"x" * 100] * 10)
    assert [header.record_count for header in headers_of(log)] == [4, 4, 2]


def test_all_batches_are_written_with_one_call(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, batch_bytes=500)
    files.operations.clear()
    log.extend([b"x" * 100] * 50)
    assert files.count("write", ".log") == 1


@pytest.mark.parametrize("sizes", [[1], [500], [500, 1, 1, 500], [10] * 30, [0, 200, 0, 200, 0]])
def test_cutting_keeps_order_and_every_record(sizes):
    columns = columns_of([(None, b"x" * size, 7 + n, {"h": b"y"}) for n, size in enumerate(sizes)], 0)
    parts = split_by_size(columns, 300)
    assert [len(value) for part in parts for value in part.values] == sizes
    stamps = [
        [p.timestamps] * p.record_count if isinstance(p.timestamps, int) else p.timestamps for p in parts
    ]
    assert [stamp for part in stamps for stamp in part] == list(range(7, 7 + len(sizes)))


def test_a_batch_never_passes_max_message_bytes(tmp_path):
    log = open_log(tmp_path / "t-0", max_message_bytes=500)
    log.extend([b"x" * (number % 400) for number in range(300)])
    assert max(header.size_bytes for header in headers_of(log)) <= 500
    assert len(offsets_of(log)) == 300


@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes"])
def test_a_record_that_is_too_large_keeps_all_out(tmp_path, limit):
    log = open_log(tmp_path / "t-0", **{limit: 500})
    with pytest.raises(RecordTooLargeError, match=limit):
        log.extend([b"x" * 400] * 5 + [b"x" * 600])
    assert log.log_end_offset == 0


def test_more_than_a_segment_is_written_segment_by_segment(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=1000, batch_bytes=500)
    assert log.extend([b"x" * 100] * 30) == range(30)
    assert len(bases_of(log)) > 3
    assert all(segment.size_bytes <= 1000 for segment in log.writer.core.segments)
    assert offsets_of(log) == list(range(30))


def test_a_disk_that_fills_up_keeps_the_segments_before(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, segment_bytes=1000, batch_bytes=500)
    files.fault = lambda operation, path: (
        errno.ENOSPC if operation == "create" and files.count("create", ".log") == 3 else None
    )
    with pytest.raises(DiskFullError):
        log.extend([b"%d" % number + b"." * 100 for number in range(40)])
    end = log.log_end_offset
    assert len(bases_of(log)) == 2
    assert 0 < end < 40
    files.heal()
    assert add(log, b"next") == range(end, end + 1)
    assert offsets_of(log) == list(range(end + 1))


def test_extend_with_flush_is_durable(log):
    log.extend([b"a", b"b"], flush=True)
    assert log.durable_offset == 2
