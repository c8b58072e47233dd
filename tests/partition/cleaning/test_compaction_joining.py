"""Which of the small batches that compaction leaves become one."""

import pytest

from logstore.format.batch import seal_batch
from logstore.format.header import HEADER_BYTES, decode_header
from logstore.model import NewRecord
from logstore.partition.cleaning.joined_batches import SMALL_BYTES, JoiningRules
from logstore.testing import ManualClock
from tests.partition.helpers_compaction import end, left, open_compacted, put, reopen, transact
from tests.partition.helpers_rules import START_MS, batch, headers_of, identity, names_in


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    return open_compacted(tmp_path / "topic-0", clock=clock)


def spans(log):
    """First and last offset of each batch."""
    return [(header.base_offset, header.last_offset) for header in headers_of(log)]


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_small_batches_become_one_and_records_keep_everything(tmp_path, codec):
    log = open_compacted(tmp_path / "topic-0", compression_type=codec)
    for number in range(10):
        headers = (("number", b"%d" % number),)
        log.extend([NewRecord(b"v%d" % number, b"k%d" % (number % 9), headers, START_MS - number)])
    before = list(log.read())
    report = log.compact(now=True)
    assert spans(log) == [(1, 9)]
    assert list(log.read()) == before[1:]
    assert (report.joined_batch_count, report.kept_batch_count) == (9, 1)
    assert list(reopen(log, how="crash").read()) == before[1:]


def test_a_batch_is_at_most_as_large_as_others(tmp_path):
    log = open_compacted(tmp_path / "topic-0", batch_bytes=500)
    for number in range(20):
        put(log, **{f"key {number}": "v" * 50})
    log.compact(now=True)
    assert all(300 < header.size_bytes <= 500 for header in headers_of(log)[:-1])
    assert len(left(log)) == 20


@pytest.mark.parametrize("batch_bytes", [256 * 1024, 64 * 1024 * 1024])
def test_what_compresses_well_is_not_joined_to_a_batch_that_no_reader_decompresses(tmp_path, batch_bytes):
    log = open_compacted(
        tmp_path / "topic-0",
        compression_type="zstd",
        compression_zstd_level=-5,
        max_message_bytes=100_000_000,
        batch_bytes=batch_bytes,
    )
    for number in range(5):
        log.extend([(b"key %d" % number, bytes(15 * 1024 * 1024))])
    log.compact(now=True)
    assert [len(record.value) for record in log.read()] == [15 * 1024 * 1024] * 5
    assert log.verify().is_sound


def test_joined_records_are_some_megabytes_at_most(tmp_path):
    log = open_compacted(tmp_path / "topic-0", compression_type="zstd")
    for number in range(10):
        log.extend([(b"key %d" % number, bytes(1_000_000))])
    log.compact(now=True)
    assert spans(log) == [(0, 3), (4, 7), (8, 9)]
    assert len(left(log)) == 10


def test_large_batches_stay_apart(log):
    for number in range(3):
        put(log, **{f"key {number}": "v" * SMALL_BYTES})
    before = log.fetch(0).data
    log.compact(now=True)
    assert log.fetch(0).data == before


def test_a_header_key_that_is_not_utf_8_keeps_its_bytes(log):
    for number in range(7):
        made = batch(b"v", key=b"%d" % number, headers=[[("~name", b"x")]])
        if number in (0, 3):
            made = seal_batch(decode_header(made), made[HEADER_BYTES:].replace(b"~", b"\xff"))
        log.append_batch(made)
    log.compact(now=True)
    assert spans(log) == [(0, 0), (1, 2), (3, 3), (4, 6)]
    assert bytes(log.fetch(0).data).count(b"\xffname") == 2
    shown = [name for record in log.read() for name, _ in record.headers]
    assert [name for name in shown if name != "~name"] == ["\ufffdname"] * 2


def test_batches_of_an_active_producer_stay_apart(log):
    for number in range(3):
        log.extend([NewRecord(b"1", b"k%d" % number)], producer=identity(number))
    log.compact(now=True)
    assert spans(log) == [(0, 0), (1, 1), (2, 2)]


def test_batches_of_a_former_producer_join_when_they_have_lost_records(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock, producer_id_expiration_ms=500)
    for number in range(3):
        rows = [NewRecord(b"1", b"same"), NewRecord(b"1", b"k%d" % number)]
        log.extend(rows, producer=identity(number * 2))
    clock.advance(500)
    log.expire_producers()
    log.compact(now=True)
    assert spans(log) == [(0, 3), (4, 5)]
    assert [header.producer_id for header in headers_of(log)] == [-1, 7]


def test_transactions_stay_apart(log):
    transact(log, 7, 0, a="1")
    transact(log, 7, 1, b="1")
    end(log, 7, committed=True)
    put(log, c="1")
    put(log, d="1")
    log.compact(now=True)
    assert spans(log) == [(0, 0), (1, 1), (2, 2), (3, 4)]


def test_tombstones_that_wait_for_their_time_stay_apart(log):
    put(log, a=None)
    put(log, b=None)
    put(log, c="1")
    log.compact(now=True)
    assert spans(log) == [(0, 0), (1, 1), (2, 2)]


def test_leader_epochs_stay_apart(log):
    put(log, a="1")
    put(log, b="1")
    log.assign_leader_epoch(3)
    put(log, c="1")
    put(log, d="1")
    log.compact(now=True)
    assert spans(log) == [(0, 1), (2, 3)]
    assert [header.partition_leader_epoch for header in headers_of(log)] == [0, 3]


def test_append_times_stay_what_they_are(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock, message_timestamp_type="LogAppendTime")
    for key in "abcd":
        put(log, **{key: "1"})
        clock.advance(5 * (key == "b"))
    log.compact(now=True)
    assert spans(log) == [(0, 1), (2, 3)]
    assert [record.timestamp_ms - START_MS for record in log.read()] == [0, 0, 5, 5]


def test_batches_of_several_segments_join(log):
    for key in "abc":
        put(log, **{key: "1"})
        log.roll()
    log.compact(now=True)
    assert spans(log) == [(0, 2)]


def test_what_was_joined_once_is_left_alone(log):
    for number in range(10):
        put(log, **{f"key {number}": "1"})
    log.compact(now=True)
    names, before = names_in(log, "*.log"), log.fetch(0).data
    report = log.compact(now=True)
    assert report.written_bytes == 0
    assert (names_in(log, "*.log"), log.fetch(0).data) == (names, before)


def test_a_lone_segment_that_keeps_all_is_not_written(log):
    put(log, a="1")
    assert log.compact(now=True).written_bytes == 0
    put(log, b="v" * 200_000)
    put(log, c="1")
    log.roll()
    report = log.compact(now=True)
    assert report.segment_count_after == report.segment_count_before - 1
    assert report.written_bytes == report.kept_bytes


def test_what_is_in_front_of_the_first_change_is_kept(tmp_path):
    log = open_compacted(tmp_path / "topic-0", max_message_bytes=10_000_000, batch_bytes=1_000_000)
    for number in range(40):
        put(log, **{f"key {number}": f"{number}" * 50_000})
    put(log, last="1")
    put(log, last="2")
    report = log.compact(now=True)
    assert report.written_bytes == report.kept_bytes == report.read_bytes - 73
    assert left(log).keys() == {*range(40), 41}


def test_offsets_out_of_reach_of_a_header_are_not_joined():
    rules = JoiningRules(2**62, 10_000, (), lambda codec: None)
    first = decode_header(batch(b"v", base_offset=10))
    assert rules.fits(first, 100, decode_header(batch(b"v", base_offset=2**31 + 9)))
    assert not rules.fits(first, 100, decode_header(batch(b"v", base_offset=2**31 + 10)))
