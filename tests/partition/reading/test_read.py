"""Reading records and raw batches (section 3.5 of the storage rules)."""

import threading

import pytest

from logstore.errors import ClosedError, LogstoreError, OffsetOutOfRangeError, UsageError
from logstore.model import Isolation, NewRecord, Record, Role
from logstore.partition.reading.readable import MAX_FETCH_BYTES
from tests.partition.helpers_rules import (
    START_MS,
    add,
    add_batches,
    add_segments,
    batch,
    decode_all,
    offsets_of,
    open_log,
    values_of,
)


@pytest.fixture
def batches(log):
    """Two batches of three records in one segment, two of two in the next."""
    add(log, b"0", b"1", b"2")
    add(log, b"3", b"4", b"5")
    log.roll()
    add(log, b"6", b"7")
    add(log, b"8", b"9")
    return log


def fetched(log, offset, **options):
    return [record.offset for record in decode_all(log.fetch(offset, **options).data)]


# Bounds


@pytest.mark.parametrize("read", ["read", "fetch", "follow"])
@pytest.mark.parametrize("offset", [1, 11, 2**62])
def test_outside_the_log_is_out_of_range(batches, read, offset):
    batches.delete_before(2)
    with pytest.raises(OffsetOutOfRangeError, match=r"holds 2 to 10"):
        getattr(batches, read)(offset)


def test_a_read_at_the_end_is_empty(batches):
    assert list(batches.read(10)) == []
    assert batches.fetch(10).data == b""
    assert batches.fetch(10).next_offset == 10


def test_an_empty_log_reads_as_nothing(log):
    assert list(log) == []
    assert log.fetch(0)[:3] == (b"", 0, ())


def test_a_read_without_bounds_is_the_whole_log(batches):
    assert values_of(batches) == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("start", range(11))
def test_records_below_the_start_are_dropped(batches, start):
    assert offsets_of(batches, start) == list(range(start, 10))


@pytest.mark.parametrize("stop", range(11))
def test_records_from_the_stop_on_are_left_out(batches, stop):
    assert offsets_of(batches, stop=stop) == list(range(stop))


def test_a_stop_past_the_end_or_below_the_start_is_no_error(batches):
    assert offsets_of(batches, 8, stop=99) == [8, 9]
    assert offsets_of(batches, 8, stop=3) == []


def test_records_below_the_log_start_are_not_read(batches):
    batches.delete_before(4)
    assert offsets_of(batches) == [4, 5, 6, 7, 8, 9]


def test_a_record_is_read_as_it_was_written(log):
    headers = (("h", b"x"), ("empty", b""), ("null", None), ("h", b"again"), ("ü", b"\xff"))
    log.extend([NewRecord(b"v", b"k", headers, START_MS - 5)])
    assert list(log) == [Record(0, START_MS - 5, b"k", b"v", headers)]


def test_the_end_of_a_read_is_fixed_when_it_begins(log):
    add(log, b"a")
    records = log.read()
    add(log, b"b")
    assert [record.value for record in records] == [b"a"]


# Raw batches


@pytest.mark.parametrize("offset", [3, 4, 5])
def test_a_fetch_returns_batches_whole(batches, offset):
    assert fetched(batches, offset) == [3, 4, 5]


def test_a_fetch_never_crosses_a_segment(batches):
    answer = batches.fetch(0)
    assert (fetched(batches, 0), answer.next_offset) == ([0, 1, 2, 3, 4, 5], 6)
    assert fetched(batches, 6) == [6, 7, 8, 9]


def test_a_fetch_takes_whole_batches_up_to_max_bytes(batches):
    size = len(batches.fetch(0, max_bytes=1).data)
    assert fetched(batches, 0, max_bytes=2 * size - 1) == [0, 1, 2]
    assert fetched(batches, 0, max_bytes=2 * size) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("max_bytes", [0, 1])
def test_the_first_batch_comes_even_if_it_is_larger(batches, max_bytes):
    assert fetched(batches, 1, max_bytes=max_bytes) == [0, 1, 2]


def test_without_min_one_batch_nothing_that_is_too_large_comes(batches):
    answer = batches.fetch(1, max_bytes=10, min_one_batch=False)
    assert (answer.data, answer.next_offset) == (b"", 1)


def test_a_fetch_is_at_most_the_limit_unless_asked_for_more(log):
    for _ in range(3):
        add(log, b"x" * (MAX_FETCH_BYTES // 2 - 100))
    assert len(fetched(log, 0)) == 2
    assert len(fetched(log, 0, max_bytes=2 * MAX_FETCH_BYTES)) == 3


def test_a_fetch_tells_the_offsets_of_the_log(batches):
    batches.delete_before(1)
    assert batches.fetch(3)[3:] == (1, 10, 10)


def test_a_fetch_returns_what_is_on_disk(log):
    data = batch(b"a", b"b", codec=4)
    log.append_replicated(data)
    assert log.fetch(0).data == data


# Gaps


def test_a_gap_at_the_end_of_a_segment_is_skipped(log):
    add(log, b"0", b"1")
    log.truncate_to(1)  # the batch goes whole: offset 0 stays unused
    add(log, b"x")
    assert offsets_of(log, 0) == [1]
    assert fetched(log, 0) == [1]


def test_a_gap_before_a_batch_is_skipped(log):
    log.append_replicated(batch(b"a", base_offset=5))
    log.append_replicated(batch(b"b", base_offset=9))
    assert offsets_of(log, 0) == offsets_of(log, 5) == [5, 9]
    assert offsets_of(log, 6) == fetched(log, 7) == [9]


def test_empty_segments_are_skipped(log):
    log.append_replicated(batch(b"a"))
    log.truncate_to(0)
    log.append_replicated(batch(b"b", base_offset=3))
    assert offsets_of(log) == [3]


# Arguments


@pytest.mark.parametrize("offset", [True, "1", 1.0, b"1"])
@pytest.mark.parametrize("call", ["read", "fetch", "follow", "delete_before", "truncate_to"])
def test_an_offset_must_be_a_whole_number(log, call, offset):
    with pytest.raises(UsageError, match="must be a whole number"):
        getattr(log, call)(offset)


@pytest.mark.parametrize("offset", [-1, -(2**70), 2**63])
@pytest.mark.parametrize("call", ["read", "fetch", "follow", "delete_before", "truncate_to"])
def test_an_offset_must_fit_63_bits(log, call, offset):
    with pytest.raises(OffsetOutOfRangeError):
        getattr(log, call)(offset)


@pytest.mark.parametrize("stop", [-1, True, "9"])
def test_a_stop_is_held_against_the_same_rules(log, stop):
    with pytest.raises(UsageError, match="stop"):
        log.read(stop=stop)


@pytest.mark.parametrize("call", ["read", "fetch", "follow"])
def test_an_isolation_must_be_one(log, call):
    with pytest.raises(UsageError, match="isolation"):
        getattr(log, call)(0, isolation="committed")


@pytest.mark.parametrize("max_bytes", [-1, True, 1.5, "1"])
def test_max_bytes_must_be_a_size(log, max_bytes):
    with pytest.raises(UsageError, match="max_bytes"):
        log.fetch(0, max_bytes=max_bytes)


@pytest.mark.parametrize("timeout", [-1, True, "1", float("nan")])
def test_a_timeout_must_be_a_time(log, timeout):
    with pytest.raises(UsageError, match="timeout"):
        log.follow(timeout=timeout)


def test_a_closed_log_is_not_read(log):
    log.close()
    for call in (log.read, lambda: log.fetch(0), lambda: log.log_end_offset):
        with pytest.raises(ClosedError):
            call()


# Changes during a read


def small_batches(log, count):
    add_batches(log, count, size_bytes=1000)


def test_an_iteration_goes_on_over_a_roll(log):
    small_batches(log, 200)
    records = log.read()
    first = next(records).offset
    log.roll()
    small_batches(log, 5)
    assert [first, *(record.offset for record in records)] == list(range(200))


def test_an_iteration_goes_on_while_retention_takes_its_segments(tmp_path):
    log = open_log(tmp_path / "t-0")
    add_segments(log, 20)
    records = log.read()
    assert next(records).offset == 0
    log.delete_before(20)
    assert [record.offset for record in records] == list(range(1, 20))


def test_an_iteration_over_what_is_truncated_ends_or_says_so(log):
    for _ in range(300):
        log.extend([bytes(4096)])  # more than an iterator reads at once
    records = log.read()
    seen = [next(records)]
    log.truncate_to(100)
    with pytest.raises(OffsetOutOfRangeError, match="truncated"):
        seen.extend(records)
    assert [record.offset for record in seen] == list(range(len(seen)))
    assert offsets_of(log) == list(range(100))


def test_an_iteration_below_a_truncation_is_not_disturbed(log):
    small_batches(log, 300)
    records = log.read(stop=50)
    assert next(records).offset == 0
    log.truncate_to(100)
    assert [record.offset for record in records] == list(range(1, 50))


def test_reads_from_threads_see_a_growing_prefix(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=4000, index_interval_bytes=100)
    failures, stop = [], threading.Event()

    def read_again_and_again():
        last = 0
        while not stop.is_set():
            seen = values_of(log)
            if seen != [b"%d" % n for n in range(len(seen))] or len(seen) < last:
                failures.append(seen)
            last = len(seen)

    threads = [threading.Thread(target=read_again_and_again) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(0, 1500, 3):
        add(log, b"%d" % number, b"%d" % (number + 1))
        log.append(b"%d" % (number + 2))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert log.segment_count > 5


def test_reads_from_threads_during_rolls_retention_and_truncation_return_only_what_was_written(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=2000, max_open_segments=2)
    failures, stop = [], threading.Event()

    def read_again_and_again():
        while not stop.is_set():
            try:
                for record in log.read(log.log_start_offset):
                    if record.value != b"%d" % record.offset:
                        failures.append(record)
            except OffsetOutOfRangeError:
                continue
            except LogstoreError as error:
                failures.append(error)

    threads = [threading.Thread(target=read_again_and_again) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(120):
        end = log.log_end_offset
        log.extend([b"%d" % offset for offset in range(end, end + 10)])
        if number % 7 == 6:
            log.truncate_to(log.log_end_offset - 25)
        if number % 10 == 9:
            log.delete_before(log.log_end_offset - 40)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


# Following


def test_following_begins_at_the_end_and_waits_for_more(log):
    add(log, b"old")
    records = log.follow(timeout=5)
    writer = threading.Timer(0.05, lambda: add(log, b"new"))
    writer.start()
    assert next(records).value == b"new"
    writer.join()


def test_following_ends_after_the_timeout(log):
    add(log, b"a")
    assert [record.value for record in log.follow(0, timeout=0.01)] == [b"a"]


def test_following_does_not_spin_while_the_disk_refuses_what_is_gathered(log):
    log.append(b"a")
    log.writer.gathering.rows.has_failed = True
    waits = []
    wait = log.writer.wait_for_growth
    log.writer.wait_for_growth = lambda view, ms: (waits.append(ms), wait(view, ms))
    assert list(log.follow(timeout=0.05)) == []
    assert len(waits) < 5


def test_a_follower_that_falls_out_of_the_log_is_told(log):
    add_segments(log, 3)
    records = log.follow(0, timeout=1)
    assert next(records).offset == 0
    log.delete_before(3)
    add(log, b"x")
    rest = [record.offset for record in records if record.offset != 3]
    assert rest == [1, 2]  # they belong to the view that it is still reading


def test_reading_at_the_log_end_ignores_the_high_watermark(log):
    log.set_role(Role.LEADER)
    add(log, b"a")
    assert offsets_of(log, isolation=Isolation.LOG_END) == [0]
