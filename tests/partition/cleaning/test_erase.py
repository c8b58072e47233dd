"""Erasing chosen records: what goes, what stays, what the files hold afterwards."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import random
import threading
from pathlib import Path

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    ReadOnlyError,
    RetriableError,
    StorageError,
    UsageError,
)
from logstore.files import OsFiles
from logstore.format.compression import Codec
from logstore.model import Isolation, NewRecord, Record, Role
from logstore.partition.cleaning.reports import MAX_LISTED_OFFSETS
from logstore.partition.reading.lookup import record_at
from logstore.partition.recovery.aside import KEPT_FILES
from logstore.testing import ManualClock
from tests.format.legacy_writer import encode_entry, encode_wrapper
from tests.partition.helpers_compaction import end, open_compacted, put, reopen, transact
from tests.partition.helpers_compaction import left as rows_left
from tests.partition.helpers_erase import has_trace, is_dense, left
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFiles,
    bases_of,
    crash,
    headers_of,
    identity,
    names_in,
    open_log,
)

SECRET = b"Where Alice lives"
KEY = b"alice"
CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]


def fill(log, count=12, *, secrets=(4, 5), batch=3):
    """Batches of ``batch`` records; the offsets ``secrets`` hold the secret under its key."""
    for base in range(log.log_end_offset, log.log_end_offset + count, batch):
        log.extend([record_of(offset, secrets) for offset in range(base, base + batch)])


def record_of(offset, secrets=()):
    if offset in secrets:
        return NewRecord(SECRET + b" %d" % offset, KEY, timestamp_ms=START_MS + offset)
    return NewRecord(b"value %d" % offset, b"key %d" % offset, timestamp_ms=START_MS + offset)


def without(*gone, count=12):
    return {offset: b"value %d" % offset for offset in range(count) if offset not in gone}


# What goes and what stays -----------------------------------------------------------------------------------


def test_the_records_of_a_key_go_and_the_others_keep_their_offsets(log):
    fill(log)
    report = log.erase(keys=[KEY])
    assert left(log) == without(4, 5)
    assert report.offsets == (4, 5)
    assert report.record_count == 2


def test_tombstones_of_the_key_go_too(log):
    log.extend([NewRecord(None, KEY), NewRecord(b"x", b"other")])
    assert log.erase(keys=[KEY]).record_count == 1
    assert left(log) == {1: b"x"}


def test_offsets_and_ranges_go(log):
    fill(log, secrets=())
    assert log.erase(offsets=[0, range(4, 6), range(10, 12, 1), range(8, 6, -1)]).record_count == 7
    assert left(log) == without(0, 4, 5, 7, 8, 10, 11)


def test_one_offset_needs_no_list(log):
    fill(log, secrets=())
    log.erase(offsets=7)
    log.erase(offsets=range(2))
    assert left(log) == without(0, 1, 7)


def test_a_range_with_steps(log):
    fill(log, secrets=())
    log.erase(offsets=range(0, 12, 5))
    assert left(log) == without(0, 5, 10)


def test_keys_and_offsets_together(log):
    fill(log)
    assert log.erase(keys=[KEY], offsets=[0, 4]).offsets == (0, 4, 5)
    assert left(log) == without(0, 4, 5)


def test_keys_as_any_bytes(log):
    fill(log, secrets=())
    log.erase(keys=(bytearray(b"key 1"), memoryview(b"key 2")))
    assert left(log) == without(1, 2)


def test_the_empty_key_is_a_key_and_no_key_is_none(log):
    log.extend([NewRecord(b"empty", b""), NewRecord(b"none", None)])
    log.erase(keys=[b""])
    assert left(log) == {1: b"none"}


def test_what_is_not_there_is_no_error(log):
    fill(log)
    report = log.erase(keys=[b"nobody"], offsets=[1_000, range(50, 60)])
    assert (report.record_count, report.rewritten_segment_count, report.offsets) == (0, 0, ())
    assert report.size_bytes_before == report.size_bytes_after == log.size_bytes


def test_nothing_asked_for_is_nothing_done(log):
    fill(log)
    assert log.erase(keys=[]).record_count == 0
    assert log.erase(offsets=[]).record_count == 0
    assert bases_of(log) == [0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "nothing to erase"),
        ({"keys": b"alice"}, "list of keys"),
        ({"keys": 5}, "list of keys"),
        ({"keys": ["alice"]}, "a key is str"),
        ({"keys": [None]}, "a key is NoneType"),
        ({"offsets": "12"}, "numbers and ranges"),
        ({"offsets": [-1]}, "below 0"),
        ({"offsets": range(-5, 5)}, "below 0"),
        ({"offsets": [1.5]}, "an offset is 1.5"),
        ({"offsets": [True]}, "an offset is True"),
    ],
)
def test_nonsense_is_refused(log, arguments, said):
    fill(log)
    with pytest.raises(UsageError, match=said):
        log.erase(**arguments)
    assert len(left(log)) == 12


@pytest.mark.parametrize("codec", CODECS)
def test_no_file_holds_the_value_or_the_key_any_more(tmp_path, codec):
    log = open_log(tmp_path / "t-0", compression_type=codec, segment_bytes=1_000)
    fill(log, 60, secrets=(0, 17, 18, 19, 30, 59))
    assert has_trace(tmp_path, SECRET)
    assert has_trace(tmp_path, KEY)
    log.erase(keys=[KEY])
    assert left(log) == without(0, 17, 18, 19, 30, 59, count=60)
    assert not has_trace(tmp_path, SECRET)
    assert not has_trace(tmp_path, KEY)
    log.close()
    assert not has_trace(tmp_path, SECRET)


def test_headers_go_with_the_record(tmp_path, log):
    log.extend([NewRecord(b"v", b"k", headers=[("name", SECRET)])])
    log.erase(offsets=0)
    assert not has_trace(tmp_path, SECRET)


def test_records_in_old_and_new_segments_go(log):
    fill(log, 6, secrets=(1,))
    log.roll()
    fill(log, 6, secrets=())
    log.roll()
    fill(log, 6, secrets=(14,))
    report = log.erase(keys=[KEY])
    assert left(log) == without(1, 14, count=18)
    assert report.rewritten_segment_count == 2
    assert bases_of(log) == [0, 6, 12, 18]


def test_an_active_segment_without_such_a_record_is_not_rolled(log):
    fill(log, 6, secrets=(1,))
    log.roll()
    fill(log, 6, secrets=())
    log.erase(keys=[KEY])
    assert bases_of(log) == [0, 6]


def test_segments_without_such_a_record_are_not_written(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 6, secrets=())
    log.roll()
    fill(log, 6, secrets=(8,))
    log.erase(keys=[KEY])
    assert [name for op, name in files.operations if name.endswith(".cleaned") and op == "create"] == [
        "00000000000000000006.log.cleaned",
        "00000000000000000006.index.cleaned",
        "00000000000000000006.timeindex.cleaned",
    ]


def test_what_gathers_counts(tmp_path):
    log = open_log(tmp_path / "t-0", linger_ms=60_000)
    log.append(SECRET, key=KEY)
    log.append(b"other", key=b"bob")
    assert log.erase(keys=[KEY]).record_count == 1
    assert left(log) == {1: b"other"}
    assert not has_trace(tmp_path, SECRET)


def test_records_below_the_log_start_that_are_still_there_go(tmp_path, log):
    fill(log)
    log.delete_before(9)
    assert has_trace(tmp_path, SECRET)
    assert log.erase(keys=[KEY]).record_count == 2
    assert not has_trace(tmp_path, SECRET)
    assert left(log) == without(*range(9))


def test_offsets_of_segments_that_retention_took_are_not_there(log):
    fill(log)
    log.roll()
    fill(log, secrets=())
    log.delete_before(12)
    assert log.erase(offsets=range(12)).record_count == 0


def test_records_above_the_high_watermark_go(log):
    log.set_role(Role.LEADER)
    fill(log)
    log.erase(keys=[KEY])
    assert left(log) == without(4, 5)
    assert log.high_watermark == 0


def test_a_second_call_finds_nothing(log):
    fill(log)
    log.erase(keys=[KEY])
    report = log.erase(keys=[KEY], offsets=[4, 5])
    assert (report.record_count, report.rewritten_segment_count) == (0, 0)


def test_appends_go_on_where_they_were(log):
    fill(log)
    log.erase(keys=[KEY], offsets=[11])
    assert log.extend([b"next"]) == range(12, 13)


# Batches and their places -----------------------------------------------------------------------------------


def test_a_batch_that_loses_all_records_stays_as_a_header(log):
    fill(log, secrets=(3, 4, 5))
    report = log.erase(keys=[KEY])
    assert [(h.base_offset, h.last_offset, h.record_count) for h in headers_of(log)] == [
        (0, 2, 3),
        (3, 5, 0),
        (6, 8, 3),
        (9, 11, 3),
    ]
    assert report.rewritten_batch_count == report.emptied_batch_count == 1


def test_offsets_stay_dense_for_a_recovery_behind_a_truncation(tmp_path, log):
    """The recovery point falls below the batches that have lost records: they must not look like a loss."""
    fill(log, 6, secrets=(0, 1, 2, 5))
    log.roll()
    fill(log, 6, secrets=())
    log.erase(keys=[KEY])
    assert is_dense(log)
    log.truncate_to(9)
    log.truncate_to(6)
    again = reopen(log, how="crash")
    assert left(again) == {3: b"value 3", 4: b"value 4"}
    assert again.log_end_offset == 6
    assert not again.recovery.cut_bytes


def test_the_last_records_of_a_log_leave_its_end(tmp_path, log):
    fill(log, secrets=(9, 10, 11))
    log.erase(keys=[KEY])
    again = reopen(log, how="crash")
    assert again.log_end_offset == 12


def test_all_records_of_a_log(log):
    fill(log)
    log.erase(offsets=range(12))
    assert left(log) == {}
    assert (log.log_start_offset, log.log_end_offset) == (0, 12)
    again = reopen(log)
    assert (again.log_start_offset, again.log_end_offset) == (0, 12)


def test_batches_that_keep_all_keep_their_bytes(log):
    fill(log)
    before = {h.base_offset: (h.crc, h.size_bytes) for h in headers_of(log)}
    log.erase(keys=[KEY])
    after = {h.base_offset: (h.crc, h.size_bytes) for h in headers_of(log)}
    assert {base for base in before if before[base] != after[base]} == {3}


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_stays(tmp_path, codec):
    log = open_log(tmp_path / "t-0", compression_type=codec)
    fill(log)
    codecs = [header.codec for header in headers_of(log)]
    log.erase(keys=[KEY])
    assert [header.codec for header in headers_of(log)] == codecs


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("gone", [(0, 1), (2,), (0, 1, 2, 3), (4,)])
def test_records_of_old_formats(tmp_path, magic, gone):
    """What loses a record becomes a batch of today, from the first offset of the old entry on."""
    path = tmp_path / "t-0"
    log = open_log(path)
    log.close()
    made = [
        Record(offset, START_MS if magic else -1, KEY if offset in gone else b"k", b"%d" % offset)
        for offset in range(5)
    ]
    inner = [
        record._replace(offset=record.offset if magic == 0 else number)
        for number, record in enumerate(made[:4])
    ]
    wrapped = encode_wrapper(magic, Codec.GZIP, inner, offset=3)
    Path(path, f"{0:020}.log").write_bytes(wrapped + encode_entry(magic, made[4]))
    for name in ("index", "timeindex"):
        Path(path, f"{0:020}.{name}").unlink()
    for checkpoint in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        Path(path, checkpoint).unlink()
    log = open_log(path)
    assert len(left(log)) == 5
    assert log.erase(keys=[KEY]).offsets == gone
    assert left(log) == {offset: b"%d" % offset for offset in range(5) if offset not in gone}
    assert not has_trace(path, KEY)


# Transactions and producers ---------------------------------------------------------------------------------


def test_markers_stay(log):
    transact(log, 7, 0, a="1", b="2")
    marker = end(log, 7, committed=True)
    transact(log, 8, 0, a="3", c="4")
    aborted = end(log, 8, committed=False)
    report = log.erase(keys=[b"a"], offsets=[marker, aborted])
    assert report.offsets == (0, 3)
    assert rows_left(log) == {1: ("b", "2"), 4: ("c", "4")}
    assert rows_left(log, isolation=Isolation.COMMITTED) == {1: ("b", "2")}
    assert [h.base_offset for h in headers_of(log) if h.is_control] == [marker, aborted]


def test_records_of_an_open_transaction_go_and_it_stays_open(log):
    transact(log, 7, 0, a="1", b="2")
    transact(log, 7, 2, a="3")
    log.erase(keys=[b"a"])
    assert rows_left(log) == {1: ("b", "2")}
    assert log.last_stable_offset == 0
    again = reopen(log, how="crash", keep_snapshots=False)
    assert again.last_stable_offset == 0
    transact(again, 7, 3, d="4")
    end(again, 7, committed=True)
    assert rows_left(again, isolation=Isolation.COMMITTED) == {1: ("b", "2"), 3: ("d", "4")}


@pytest.mark.parametrize("how", ["stays open", "clean", "crash"])
def test_a_producer_is_known_by_batches_without_records(log, how):
    first = put_as(log, 0, "a", "b")
    second = put_as(log, 2, "a")
    log.erase(keys=[b"a", b"b"])
    if how != "stays open":
        log = reopen(log, how=how, keep_snapshots=how == "clean")
    assert put_as(log, 2, "a") == second
    if how == "stays open":
        assert put_as(log, 0, "a", "b") == first
    assert put_as(log, 3, "c") == range(3, 4)


def put_as(log, sequence, *keys):
    return log.extend([NewRecord(b"v", key.encode()) for key in keys], producer=identity(sequence))


def test_snapshots_of_segments_stay(log):
    put_as(log, 0, "a")
    log.roll()
    put_as(log, 1, "a")
    log.roll()
    put_as(log, 2, "a")
    before = {name for name in names_in(log, "*.snapshot") if not name.startswith(f"{3:020}")}
    log.erase(keys=[b"a"])
    assert before <= set(names_in(log, "*.snapshot"))


def test_leader_epochs_stay(log):
    for epoch in (1, 2, 3):
        log.assign_leader_epoch(epoch)
        fill(log, 3, secrets=range(9))
    before = log.epoch_entries
    log.erase(keys=[KEY])
    assert log.epoch_entries == before
    Path(log.directory, "leader-epoch-checkpoint").unlink()
    assert reopen(log, how="crash").epoch_entries == before


# Lookups ----------------------------------------------------------------------------------------------------


def test_lookups_by_time_pass_over_what_is_gone(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=600, index_interval_bytes=100)
    fill(log, 60, secrets=range(20, 40))
    log.erase(keys=[KEY])
    for reopened in (False, True):
        if reopened:
            log = reopen(log)
        for offset in range(60):
            wanted = offset if not 20 <= offset < 40 else 40
            found = log.find_timestamp(START_MS + offset)
            assert found is not None
            assert (found.offset, found.timestamp_ms) == (wanted, START_MS + wanted)


def test_the_largest_timestamp_is_that_of_a_record_that_is_left(log):
    fill(log, secrets=(8, 9, 10, 11))
    log.erase(keys=[KEY])
    assert log.find_max_timestamp().offset == 7


def test_single_records_are_found(tmp_path):
    log = open_log(tmp_path / "t-0", compression_type="lz4", index_interval_bytes=100)
    fill(log, 30, secrets=(4, 5, 12, 13, 14))
    log.erase(keys=[KEY])
    for offset in range(30):
        record = log.record_at(offset)
        assert (None if record is None else record.value) == left(log).get(offset)


def test_no_cache_holds_what_is_gone(tmp_path):
    log = open_log(tmp_path / "t-0", compression_type="zstd")
    fill(log)
    assert log.record_at(4).value == SECRET + b" 4"
    assert len(log._context.batches)
    log.erase(keys=[KEY])
    assert not len(log._context.batches)
    assert log.record_at(4) is None


def test_no_cache_learns_it_again_from_a_reader_under_way(tmp_path):
    log = open_log(tmp_path / "t-0", compression_type="zstd")
    fill(log)
    log.roll()
    view, cache = log._current_view(), log._context.batches
    log.erase(keys=[KEY])
    assert record_at(view, 4, Isolation.HIGH_WATERMARK, cache).value == SECRET + b" 4"
    assert not len(cache)
    assert record_at(log._current_view(), 3, Isolation.HIGH_WATERMARK, cache) is not None
    assert len(cache)


def test_a_flush_under_way_does_not_stumble_over_a_segment_that_was_replaced(log):
    fill(log)
    log.roll()
    plan = log.writer.durability._plan_flush_locked()
    assert log.writer.core.segments[0] in plan.segments
    log.erase(keys=[KEY])
    log.writer.durability.flush_files(plan)
    assert not log.needs_reopen


# Files that are no part of the log --------------------------------------------------------------------------


def test_the_old_files_are_gone_at_once(tmp_path):
    log = open_log(tmp_path / "t-0", file_delete_delay_ms=60_000)
    fill(log)
    log.erase(keys=[KEY])
    assert names_in(log, "*.deleted") == names_in(log, "*.cleaned") == names_in(log, "*.swap") == []


@pytest.mark.parametrize("key", [KEY, b"bob"])
def test_what_compaction_left_to_be_removed_goes(tmp_path, key):
    log = open_compacted(tmp_path / "t-0", file_delete_delay_ms=60_000)
    put(log, alice="secret", bob="1")
    put(log, alice=None)
    log.compact(now=True)
    assert has_trace(tmp_path, b"secret")
    log.erase(keys=[key])
    assert not has_trace(tmp_path, b"secret")


def test_what_retention_left_to_be_removed_goes_even_if_the_log_has_no_such_record(tmp_path):
    log = open_log(tmp_path / "t-0", file_delete_delay_ms=60_000)
    fill(log)
    log.roll()
    log.delete_before(12)
    assert has_trace(tmp_path, SECRET)
    report = log.erase(keys=[KEY])
    assert report.record_count == 0
    assert "00000000000000000000.log.deleted" in report.removed_files
    assert not has_trace(tmp_path, SECRET)


def test_what_compaction_left_is_told_also_if_its_segment_is_rewritten(tmp_path):
    """The files of the rewritten segment take the names of those that compaction has left."""
    log = open_log(tmp_path / "t-0", cleanup_policy="compact", file_delete_delay_ms=60_000)
    log.extend([(KEY, SECRET)] * 3)
    log.compact(now=True)
    plan = log.erase(keys=[KEY], dry_run=True)
    assert "00000000000000000000.log.deleted" in plan.removed_files
    assert log.erase(keys=[KEY]).removed_files == plan.removed_files
    assert not has_trace(tmp_path, SECRET)


def test_what_recovery_set_aside_goes(tmp_path, log):
    fill(log)
    crash(log)
    path = Path(log.directory, f"{0:020}.log")
    path.write_bytes(path.read_bytes()[:-10])
    log = open_log(log.directory)
    (aside,) = names_in(log, "*.torn-*")
    assert log.erase(offsets=[0]).removed_files == (aside,)
    assert names_in(log, "*.torn-*") == []
    assert KEPT_FILES


def test_what_a_failed_append_left_behind_the_end_goes(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, secrets=())
    active = log.writer.core.active
    active.log_file.write_at(active.size_bytes, [SECRET])
    log.erase(keys=[KEY])
    assert not has_trace(tmp_path, SECRET)


def test_other_files_stay(tmp_path, log):
    fill(log)
    Path(log.directory, "notes.txt").write_text("mine")
    log.erase(keys=[KEY])
    assert Path(log.directory, "notes.txt").read_text() == "mine"


# Dry runs, progress, reports --------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=400, file_delete_delay_ms=60_000, compression_type="gzip")
    fill(log, 60, secrets=(0, 17, 18, 19, 30, 59))
    log.delete_before(4)
    log.flush()
    before = {name: Path(log.directory, name).read_bytes() for name in names_in(log) if name != ".lock"}
    dry = log.erase(keys=[KEY], dry_run=True)
    assert {
        name: Path(log.directory, name).read_bytes() for name in names_in(log) if name != ".lock"
    } == before
    wet = log.erase(keys=[KEY])
    for field in dry.__slots__:
        if field not in ("is_dry_run", "elapsed_ms"):
            assert getattr(dry, field) == getattr(wet, field), field
    assert wet.size_bytes_after == log.size_bytes
    assert (dry.is_dry_run, wet.is_dry_run) == (True, False)


def test_the_list_of_offsets_is_bounded(log):
    log.extend([NewRecord(b"v", KEY)] * (MAX_LISTED_OFFSETS + 5))
    report = log.erase(keys=[KEY])
    assert report.offsets == tuple(range(MAX_LISTED_OFFSETS))
    assert report.record_count == MAX_LISTED_OFFSETS + 5


def test_progress_is_told_up_to_the_end(log):
    fill(log)
    seen = []
    log.erase(keys=[KEY], on_progress=seen.append)
    assert [each.partition for each in seen] == [log.partition] * 2
    assert seen[-1].done_bytes == seen[-1].total_bytes > seen[0].done_bytes > 0


def test_progress_may_end_it(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    fill(log, 60, secrets=range(0, 60, 7))
    count = log.segment_count

    def stop(progress):
        if progress.done_bytes > progress.total_bytes * 3 // 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        log.erase(keys=[KEY], on_progress=stop)
    some = left(log)
    assert without(*range(0, 60, 7), count=60).items() < some.items()
    assert names_in(log, "*.cleaned") == []
    assert log.segment_count >= count
    log.erase(keys=[KEY])
    assert left(log) == without(*range(0, 60, 7), count=60)


def test_what_progress_calls_cannot_erase(log):
    fill(log)
    with pytest.raises(UsageError):
        log.erase(keys=[KEY], on_progress=lambda _: log.erase(keys=[KEY]))


# What may come between --------------------------------------------------------------------------------------


def test_what_is_appended_meanwhile_stays(log):
    fill(log)

    def append(progress):
        log.extend([NewRecord(b"new", KEY)])

    report = log.erase(keys=[KEY], on_progress=append)
    assert report.record_count == 2
    assert [offset for offset, value in left(log).items() if value == b"new"] == [12, 13]


def test_a_truncation_meanwhile_ends_it(log):
    fill(log)
    with pytest.raises(RetriableError, match="call again"):
        log.erase(keys=[KEY], on_progress=lambda _: log.truncate_to(9))
    assert names_in(log, "*.cleaned") == []
    log.erase(keys=[KEY])
    assert left(log) == without(4, 5, count=9)


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_retention_meanwhile(tmp_path, step):
    log = open_log(tmp_path / "t-0", file_delete_delay_ms=0)
    for _ in range(2):
        fill(log, secrets=(4, 16))
        log.roll()
    fill(log, secrets=())
    steps = []

    def delete(progress):
        steps.append(progress)
        if len(steps) == step:
            log.delete_before(12)
            log._context.scheduler.run_due()

    log.erase(keys=[KEY], on_progress=delete)
    assert len(steps) >= step
    assert left(log) == {o: b"value %d" % o for o in range(12, 36) if o != 16}
    assert not has_trace(tmp_path, SECRET)


def test_closing_meanwhile_ends_it(log):
    fill(log)
    with pytest.raises(UsageError):
        log.erase(keys=[KEY], on_progress=lambda _: log.close())
    again = open_log(log.directory)
    assert len(left(again)) == 12


@pytest.mark.damaged
@pytest.mark.parametrize("arguments", [{"keys": [KEY]}, {"offsets": [4]}])
def test_damage_is_told_with_its_place_and_changes_nothing(tmp_path, arguments):
    log = open_log(tmp_path / "t-0")
    fill(log, 6, secrets=(4,))
    second = headers_of(log)[0].size_bytes
    path = Path(log.directory, f"{0:020}.log")
    data = bytearray(path.read_bytes())
    data[second + 70] ^= 1
    path.write_bytes(data)
    before = names_in(log)
    with pytest.raises(CorruptionError) as caught:
        log.erase(**arguments)
    assert (caught.value.path, caught.value.position) == (str(path), second)
    assert names_in(log) == before
    assert path.read_bytes() == data


@pytest.mark.damaged
def test_damage_behind_the_record_changes_nothing_in_front(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    fill(log, 60, secrets=range(0, 60, 7))
    before = left(log)
    path = Path(log.directory, names_in(log, "*.log")[-2])
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        log.erase(keys=[KEY])
    assert log.record_at(0).value == before[0]


def test_an_offset_in_a_sound_segment_goes_beside_a_damaged_one(tmp_path):
    log = open_log(tmp_path / "t-0")
    fill(log)
    log.roll()
    fill(log)
    path = Path(log.directory, f"{0:020}.log")
    sound = path.read_bytes()
    path.write_bytes(bytes([*sound[:-3], sound[-3] ^ 1, *sound[-2:]]))
    assert log.erase(offsets=[13]).record_count == 1
    path.write_bytes(sound)


def test_old_bytes_that_cannot_be_removed_are_told(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    fill(log)
    files.refuse("remove", ".log.deleted")
    with pytest.raises(StorageError) as caught:
        log.erase(keys=[KEY])
    assert caught.value.errno == errno.EIO
    files.heal()
    assert not left(log).keys() & {4, 5}
    assert "00000000000000000000.log.deleted" in log.erase(keys=[KEY]).removed_files
    assert not has_trace(tmp_path, SECRET)


def test_a_full_disk_leaves_everything_as_it_was(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    fill(log)
    log.roll()
    log.checkpoint()
    files.fill()
    with pytest.raises(StorageError):
        log.erase(keys=[KEY])
    files.heal()
    assert len(left(log)) == 12
    assert names_in(log, "*.cleaned") == []
    log.erase(keys=[KEY])
    assert left(log) == without(4, 5)


def test_a_compacted_log(tmp_path):
    log = open_compacted(tmp_path / "t-0")
    put(log, alice="1", bob="1")
    put(log, alice="2", carol="1")
    log.compact(now=True)
    put(log, alice="3", bob=None)
    log.erase(keys=[KEY])
    assert rows_left(log) == {1: ("bob", "1"), 3: ("carol", "1"), 5: ("bob", None)}
    log.compact(now=True)
    assert rows_left(log) == {3: ("carol", "1"), 5: ("bob", None)}


def test_it_is_durable_on_return(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    fill(log)
    log.erase(keys=[KEY])
    names = [name for op, name in files.operations if op in ("remove", "flush_directory")]
    assert names[-1] == "t-0", "the last removal is flushed"
    assert log.durable_offset == 12
    with pytest.raises(OffsetOutOfRangeError):
        log.record_at(12)


# Readers under way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.COMMITTED])
def test_a_reader_under_way_finishes_with_what_it_has(tmp_path, isolation):
    """Its files are gone, and of aborted transactions it learns from a file that is gone, too."""
    log = open_log(tmp_path / "t-0", segment_bytes=500, max_open_segments=1)
    fill(log, 60, secrets=range(0, 60, 7))
    transact(log, 7, 0, a="1", alice="2")
    end(log, 7, committed=False)
    fill(log, 30, secrets=())
    wanted = list(log.read(isolation=isolation))
    readers = [log.read(isolation=isolation) for _ in range(3)]
    met = [[next(reader) for _ in range(10 * number)] for number, reader in enumerate(readers)]
    log.erase(keys=[KEY])
    assert has_trace(tmp_path, b"value")
    assert not has_trace(tmp_path, SECRET)
    for seen, reader in zip(met, readers, strict=True):
        assert seen + list(reader) == wanted


class Meddling(OsFiles):
    """Does something right before a file with this suffix is opened."""

    def __init__(self):
        self.suffix = None
        self.action = None

    def open(self, path, *, write=False, create=False):
        if self.suffix is not None and path.endswith(self.suffix):
            self.suffix = None
            self.action()
        return super().open(path, write=write, create=create)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_reader_that_is_about_to_open_a_file_when_it_goes(tmp_path, suffix, is_sealed):
    files = Meddling()
    log = open_log(tmp_path / "t-0", files=files)
    fill(log)
    transact(log, 7, 0, alice="1")
    end(log, 7, committed=False)
    if is_sealed:
        log.roll()
    wanted = list(log.read(isolation=Isolation.COMMITTED))
    log.writer.core.segments[0].forget_files()
    files.action = lambda: log.erase(keys=[KEY])
    files.suffix = suffix
    reader = log.read(isolation=Isolation.COMMITTED)
    assert list(reader) == wanted
    if files.suffix is not None:  # the active segment has its indexes in memory
        assert not is_sealed
        files.suffix = None
        log.erase(keys=[KEY])
    assert list(log.read(isolation=Isolation.COMMITTED)) == [each for each in wanted if each.key != KEY]


def test_a_reader_under_way_in_segments_that_wait_to_be_removed(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=500, max_open_segments=1, file_delete_delay_ms=60_000)
    fill(log, 60)
    wanted = list(log.read())
    reader = log.read()
    first = next(reader)
    log.delete_before(40)
    log.erase(keys=[KEY])
    assert names_in(log, "*.deleted") == []
    assert [first, *reader] == wanted


def test_the_disk_frees_the_old_bytes_with_the_last_reader(tmp_path):
    log = open_log(tmp_path / "t-0")
    fill(log)
    reader = log.read()
    next(reader)
    log.erase(keys=[KEY])
    assert len(deleted_files_open(tmp_path)) > 0
    list(reader)
    del reader
    gc.collect()
    assert deleted_files_open(tmp_path) == []


def deleted_files_open(folder):
    links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [name for name in (*links, *maps) if str(folder) in name and name.endswith("(deleted)")]


def test_threads_that_read_see_the_log_before_or_after(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=2_000, compression_type="lz4", max_open_segments=2)
    fill(log, 600, secrets=range(0, 600, 11))
    before = left(log)
    gone = {offset for offset, value in before.items() if value.startswith(SECRET)}
    ended, failures, rounds = threading.Event(), [], []

    def read():
        rng = random.Random(threading.get_ident())
        while not ended.is_set():
            try:
                start = rng.randrange(600)
                found = {record.offset: record.value for record in log.read(start)}
                assert found.items() <= before.items()
                assert before.keys() - found.keys() <= gone | set(range(start))
                record = log.record_at(start)
                assert record is None or record.value == before[start]
                assert record is not None or start in gone
                rounds.append(start)
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for part in range(6):
        log.erase(offsets=[offset for offset in gone if offset % 6 == part])
    ended.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(rounds) >= 3
    assert left(log).keys() == before.keys() - gone
    assert not has_trace(tmp_path, SECRET)


def test_a_follower_elsewhere_goes_on(tmp_path):
    """It sees each record once, in order; those that were erased before it came there it never sees."""
    with logstore.open(tmp_path / "store", clock=ManualClock()) as store:
        log = store.create_topic("t", config=TopicConfig(segment_bytes=700))[0]
        fill(log, 90, secrets=range(0, 90, 9))
        with logstore.open(tmp_path / "store", read_only=True) as elsewhere:
            follower = elsewhere["t"][0].follow(0, timeout=5)
            met = [next(follower) for _ in range(20)]
            log.erase(keys=[KEY])
            log.extend([b"end"])
            met += itertools.takewhile(lambda record: record.value != b"end", follower)
            offsets = [record.offset for record in met]
            assert offsets == sorted(set(offsets))
            assert {offset for offset in range(90) if offset % 9} <= set(offsets)
            assert list(elsewhere["t"][0].read()) == list(log.read())
            with pytest.raises(ReadOnlyError):
                elsewhere["t"][0].erase(keys=[KEY])


# Topics -----------------------------------------------------------------------------------------------------


def test_a_topic_erases_a_key_in_all_partitions(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=3)
        for log in topic:
            log.extend([NewRecord(SECRET, KEY), NewRecord(b"v", b"bob")])
        reports = topic.erase(keys=iter([KEY]))
        assert {each: report.record_count for each, report in reports.items()} == {
            log.partition: 1 for log in topic
        }
        assert not has_trace(tmp_path, SECRET)
        assert [left(log) for log in topic] == [{1: b"v"}] * 3
        with pytest.raises(UsageError):
            topic.erase(keys=KEY)


@pytest.mark.damaged
def test_a_topic_tells_of_a_partition_where_it_failed_and_erases_in_the_others(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=3)
        for log in topic:
            log.extend([NewRecord(SECRET, KEY), NewRecord(b"v", b"bob")], flush=True)
        path = tmp_path / "store" / "t-1" / f"{0:020}.log"
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CorruptionError) as caught:
            topic.erase(keys=[KEY])
        assert caught.value.path == str(path)
        assert [left(topic[number]) for number in (0, 2)] == [{1: b"v"}] * 2
