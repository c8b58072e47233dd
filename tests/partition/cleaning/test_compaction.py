"""What compaction keeps and removes: one rule each."""

import pytest

from logstore.config import DEFAULT_MAP_BYTES
from logstore.errors import UsageError
from logstore.format.compression import Codec
from logstore.format.offset_map import OffsetMap
from logstore.model import Isolation, NewRecord, Record, Role
from logstore.partition.cleaning import joined_batches
from logstore.testing import ManualClock
from tests.format.legacy_writer import encode_entry, encode_wrapper
from tests.partition.helpers_compaction import (
    RETENTION_MS,
    batches_at,
    end,
    left,
    open_compacted,
    put,
    reopen,
    transact,
)
from tests.partition.helpers_rules import START_MS, bases_of, headers_of, identity, names_in, offsets_of

CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(autouse=True)
def _no_joining(monkeypatch):
    """Batches stay apart here: that they are joined has tests of its own."""
    monkeypatch.setattr(joined_batches, "SMALL_BYTES", 0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    return open_compacted(tmp_path / "topic-0", clock=clock)


# Records ----------------------------------------------------------------------------------------------------


def test_of_each_key_the_latest_record_is_left_at_its_offset(log):
    put(log, a="1", b="1")
    put(log, a="2", c="1")
    put(log, b="2")
    log.compact(now=True)
    assert left(log) == {2: ("a", "2"), 3: ("c", "1"), 4: ("b", "2")}


def test_a_record_keeps_its_timestamp_and_headers(log):
    wanted = NewRecord(b"v", b"k", (("name", b"x"), ("none", None)), START_MS - 5)
    log.extend([NewRecord(b"old", b"k"), wanted, NewRecord(b"old", b"other")])
    put(log, other="new")
    log.compact(now=True)
    assert next(log.read()) == Record(1, START_MS - 5, b"k", b"v", wanted.headers)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_loses_records_keeps_its_codec_and_offsets(tmp_path, codec):
    log = open_compacted(tmp_path / "topic-0", compression_type=codec)
    put(log, a="1" * 100, b="1" * 100, c="1" * 100)
    put(log, a="2", c="2")
    log.compact(now=True)
    header = headers_of(log)[0]
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
    assert header.codec is Codec.__members__.get(codec.upper(), Codec.NONE)
    assert left(log) == {1: ("b", "1" * 100), 3: ("a", "2"), 4: ("c", "2")}
    assert left(reopen(log)) == {1: ("b", "1" * 100), 3: ("a", "2"), 4: ("c", "2")}


def test_a_batch_that_keeps_all_is_kept_byte_by_byte(log):
    put(log, a="1")
    put(log, a="2", b="1")
    put(log, c="1")
    before = log.fetch(1).data
    log.compact(now=True)
    assert log.fetch(1).data == before


def test_the_largest_timestamp_of_a_batch_is_that_of_what_is_left(log):
    log.extend([NewRecord(b"1", b"a", (), START_MS), NewRecord(b"1", b"b", (), START_MS + 9)])
    put(log, b="2")
    log.compact(now=True)
    assert headers_of(log)[0].max_timestamp_ms == START_MS
    assert log.offset_at(START_MS + 1) is None


def test_a_batch_of_append_times_keeps_its_time(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock, message_timestamp_type="LogAppendTime")
    put(log, a="1", b="1")
    clock.advance(7)
    put(log, a="2")
    log.compact(now=True)
    assert [record.timestamp_ms for record in log.read()] == [START_MS, START_MS + 7]


def test_a_record_without_a_key_goes(log):
    log.reconfigure(log.config.with_settings(cleanup_policy="delete"))
    log.extend([NewRecord(b"no key"), NewRecord(b"1", b"a")])
    log.reconfigure(log.config.with_settings(cleanup_policy="compact"))
    report = log.compact(now=True)
    assert left(log) == {1: ("a", "1")}
    assert report.removed_keyless_count == 1


def test_the_last_offset_of_the_clean_part_keeps_a_batch(log):
    put(log, a="1")
    put(log, a="2")
    log.roll()
    end_of_clean = log.log_end_offset
    log.reconfigure(log.config.with_settings(cleanup_policy="delete"))
    log.extend([NewRecord(b"no key")])
    log.reconfigure(log.config.with_settings(cleanup_policy="compact"))
    log.compact(now=True)
    assert batches_at(log) == {1: 1, end_of_clean: 0}


def test_everything_may_go(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock)
    put(log, a=None)
    log.roll()
    put(log, a=None)
    for _ in range(2):
        log.compact(now=True)
        clock.advance(RETENTION_MS)
    log.roll()
    assert left(log) == {}
    assert batches_at(log) == {1: 0}
    log = reopen(log, how="crash")
    assert log.log_end_offset == 2
    assert put(log, a="1") == range(2, 3)


# Limits -----------------------------------------------------------------------------------------------------


def test_the_active_segment_is_left_alone(log):
    put(log, a="1")
    log.roll()
    put(log, a="2")
    put(log, a="3")
    before = log.fetch(1).data
    log.compact()
    assert log.fetch(1).data == before
    assert left(log) == {0: ("a", "1"), 1: ("a", "2"), 2: ("a", "3")}


def test_now_seals_the_active_segment_first(log):
    put(log, a="1")
    put(log, a="2")
    log.compact(now=True)
    assert left(log) == {1: ("a", "2")}


def test_nothing_at_or_above_the_last_stable_offset_changes(log):
    put(log, a="1")
    put(log, a="2")
    transact(log, 7, 0, a="open")
    put(log, a="3")
    put(log, a="4")
    log.compact(now=True)
    assert left(log) == {1: ("a", "2"), 2: ("a", "open"), 3: ("a", "3"), 4: ("a", "4")}
    assert log.dirtiness().first_dirty_offset == 2


def test_what_was_above_the_last_stable_offset_is_cleaned_later(log):
    put(log, a="1")
    transact(log, 7, 0, a="open")
    put(log, a="2")
    log.compact(now=True)
    end(log, 7, committed=True)
    log.compact(now=True)
    assert left(log) == {2: ("a", "2")}


def test_nothing_at_or_above_the_high_watermark_changes(log):
    log.set_role(Role.LEADER)
    put(log, a="1")
    put(log, a="2")
    put(log, a="3", b="1")
    log.update_high_watermark(3)  # inside the last batch
    log.compact(now=True)
    assert left(log) == {1: ("a", "2"), 2: ("a", "3"), 3: ("b", "1")}
    log.update_high_watermark(4)
    log.compact(now=True)
    assert left(log) == {2: ("a", "3"), 3: ("b", "1")}


def test_young_records_wait(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock, min_compaction_lag_ms=50)
    put(log, a="1")
    put(log, a="2")
    clock.advance(49)
    log.compact(now=True)
    assert left(log) == {0: ("a", "1"), 1: ("a", "2")}
    clock.advance(1)
    log.compact(now=True)
    assert left(log) == {1: ("a", "2")}


def test_a_log_that_is_clean_enough_is_left_alone(log):
    put(log, a="1" * 1000, b="1")
    log.roll()
    log.compact()
    put(log, a="2")
    log.roll()
    report = log.compact()
    assert report.round_count == 0
    assert not log.dirtiness().is_eligible
    assert log.compact(now=True).round_count == 1


def test_an_overdue_log_is_compacted_however_clean_it_is(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock, max_compaction_lag_ms=100)
    put(log, a="1" * 1000)
    log.roll()
    log.compact()
    put(log, a="2")
    log.roll()
    clock.advance(101)
    assert log.compact().round_count == 1
    assert left(log) == {1: ("a", "2")}


def test_an_empty_log_is_nothing_to_do(log):
    assert log.compact(now=True).round_count == 0
    assert bases_of(log) == [0]


def test_a_log_that_is_not_compacted_is_refused(log):
    log.reconfigure(log.config.with_settings(cleanup_policy="delete"))
    with pytest.raises(UsageError, match="not compacted"):
        log.compact()


# Tombstones -------------------------------------------------------------------------------------------------


def test_a_tombstone_is_left_until_its_time_after_the_first_compaction_is_over(log, clock):
    put(log, a="1")
    put(log, a=None, b="1")
    clock.advance(10 * RETENTION_MS)  # its own age does not count
    log.compact(now=True)
    assert left(log) == {1: ("a", None), 2: ("b", "1")}
    clock.advance(RETENTION_MS - 1)
    log.compact(now=True)
    assert left(log) == {1: ("a", None), 2: ("b", "1")}
    clock.advance(1)
    assert log.compact(now=True).removed_tombstone_count == 1
    assert left(log) == {2: ("b", "1")}


def test_a_tombstones_time_is_never_set_again(log, clock):
    put(log, a=None)
    log.compact(now=True)
    horizon_ms = headers_of(log)[0].delete_horizon_ms
    assert horizon_ms == START_MS + RETENTION_MS
    clock.advance(RETENTION_MS - 1)
    log.compact(now=True)
    assert headers_of(log)[0].delete_horizon_ms == horizon_ms


def test_a_tombstones_time_survives_a_restart(log, clock):
    put(log, a=None, b="1")
    log.compact(now=True)
    log = reopen(log)
    clock.advance(RETENTION_MS)
    log.compact(now=True)
    assert left(log) == {1: ("b", "1")}


def test_a_tombstone_that_is_superseded_goes_at_once(log):
    put(log, a=None)
    put(log, a="1")
    log.compact(now=True)
    assert left(log) == {1: ("a", "1")}


def test_records_beside_a_tombstone_keep_their_timestamps(log):
    rows = [NewRecord(None, b"a", (), START_MS - 3), NewRecord(b"1", b"b", (), START_MS + 4)]
    log.extend(rows)
    log.compact(now=True)
    assert [record.timestamp_ms for record in log.read()] == [START_MS - 3, START_MS + 4]


def test_a_tombstone_that_is_kept_for_ever_is_kept(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock, delete_retention_ms=2**63 - 1)
    put(log, a=None)
    for _ in range(2):
        log.compact(now=True)
        clock.advance(10**12)
    assert left(log) == {0: ("a", None)}


def test_without_a_retention_a_tombstone_goes_in_the_second_compaction(tmp_path):
    log = open_compacted(tmp_path / "topic-0", delete_retention_ms=0)
    put(log, a=None, b="1")
    log.compact(now=True)
    assert left(log) == {0: ("a", None), 1: ("b", "1")}
    log.compact(now=True)
    assert left(log) == {1: ("b", "1")}


# Transactions -----------------------------------------------------------------------------------------------


def test_aborted_records_go_and_do_not_supersede(log):
    put(log, a="1")
    transact(log, 7, 0, a="aborted")
    end(log, 7, committed=False)
    report = log.compact(now=True)
    assert left(log) == {0: ("a", "1")}
    assert report.removed_aborted_count == 1


def test_committed_records_supersede(log):
    put(log, a="1")
    transact(log, 7, 0, a="2")
    end(log, 7, committed=True)
    log.compact(now=True)
    assert left(log) == {1: ("a", "2")}


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_goes_when_its_time_is_over_and_no_batch_of_its_transaction_is_left(log, clock, committed):
    transact(log, 7, 0, a="1")
    transact(log, 8, 0, b="1")
    marker = end(log, 7, committed=committed)
    end(log, 8, committed=True)
    transact(log, 7, 1, c="1")  # so that the last batch of 7 lies elsewhere
    end(log, 7, committed=True)
    put(log, a="2")

    def compact_and_find():
        log.compact(now=True)
        return marker in batches_at(log)

    assert compact_and_find()  # a batch of the transaction is met, and goes
    assert compact_and_find()  # none is met: from now on its time runs
    clock.advance(RETENTION_MS - 1)
    assert compact_and_find()
    clock.advance(1)
    assert not compact_and_find()
    assert left(log, isolation=Isolation.COMMITTED).keys() == {1, 4, 6}


def test_a_marker_stays_while_a_record_of_its_transaction_does(log, clock):
    transact(log, 7, 0, a="1")
    marker = end(log, 7, committed=True)
    transact(log, 7, 1, b="1")
    end(log, 7, committed=True)
    for _ in range(3):
        log.compact(now=True)
        clock.advance(RETENTION_MS)
    assert marker in batches_at(log)


def test_an_aborted_transaction_stays_in_the_index_while_its_marker_is_needed(log):
    put(log, b="1")
    transact(log, 7, 0, a="1")
    marker = end(log, 7, committed=False)
    log.compact(now=True)
    assert [entry.last_offset for entry in log.fetch(0, isolation=Isolation.COMMITTED).aborted] == [marker]
    log = reopen(log, how="crash", keep_snapshots=False)
    assert log.last_stable_offset == log.log_end_offset


def test_aborted_records_go_even_if_the_marker_is_in_a_later_segment(log):
    put(log, a="1")
    transact(log, 7, 0, a="aborted")
    log.roll()
    end(log, 7, committed=False)
    log.roll()
    log.compact(now=True)
    assert left(log) == {0: ("a", "1")}


def test_aborted_records_go_even_if_the_marker_is_above_the_last_stable_offset(log):
    put(log, a="1")
    transact(log, 7, 0, a="aborted")
    transact(log, 8, 0, b="open")
    marker = end(log, 7, committed=False)
    put(log, a="3")
    log.compact(now=True)
    assert left(log) == {0: ("a", "1"), 2: ("b", "open"), 4: ("a", "3")}
    assert [entry.last_offset for entry in log.fetch(0, isolation=Isolation.LOG_END).aborted] == []
    entries = log.writer.core.segments[0].read_transaction_index().entries
    assert [entry.last_offset for entry in entries] == [marker]
    log = reopen(log, how="crash", keep_snapshots=False)
    assert log.last_stable_offset == 2


def test_aborted_records_at_or_above_the_last_stable_offset_are_left_alone(log):
    transact(log, 8, 0, b="open")
    transact(log, 7, 0, a="aborted")
    end(log, 7, committed=False)
    put(log, c="1")
    before = batches_at(log)
    put(log, c="2")
    log.compact(now=True)
    assert before.items() <= batches_at(log).items()
    assert left(log)[1] == ("a", "aborted")


def test_a_record_of_one_transaction_does_not_keep_the_marker_of_the_next(log, clock):
    transact(log, 7, 0, b="1")
    end(log, 7, committed=True)
    transact(log, 7, 1, a="1")
    marker = end(log, 7, committed=True)
    transact(log, 7, 2, c="1")
    end(log, 7, committed=True)
    put(log, a="2")
    for _ in range(3):
        log.compact(now=True)
        clock.advance(RETENTION_MS)
    assert batches_at(log).keys() == {0, 1, marker + 1, marker + 2, marker + 3}


def test_two_transactions_of_one_producer_are_told_apart(log):
    transact(log, 7, 0, a="1")
    end(log, 7, committed=True)
    transact(log, 7, 1, a="2")
    end(log, 7, committed=False)
    transact(log, 7, 2, b="3")
    end(log, 7, committed=True)
    log.compact(now=True)
    assert left(log) == {0: ("a", "1"), 4: ("b", "3")}


# Producers --------------------------------------------------------------------------------------------------


def send(log, sequence, **values):
    rows = [NewRecord(value.encode(), key.encode()) for key, value in values.items()]
    return log.extend(rows, producer=identity(sequence))


@pytest.mark.parametrize("how", ["clean", "crash"])
def test_the_last_batch_of_an_active_producer_is_kept_without_records(log, how):
    send(log, 0, a="1")
    last = send(log, 1, a="2", b="2")
    put(log, a="3", b="3")
    log.compact(now=True)
    assert batches_at(log) == {1: 0, 3: 2}
    log = reopen(log, how=how, keep_snapshots=how == "clean")
    assert send(log, 1, a="2", b="2") == last
    assert send(log, 3, a="4") == range(5, 6)


def test_the_empty_batch_goes_when_the_producer_is_forgotten_or_has_a_later_one(log):
    send(log, 0, a="1")
    put(log, a="2")
    log.compact(now=True)
    assert batches_at(log) == {0: 0, 1: 1}
    send(log, 1, b="1")
    log.compact(now=True)
    assert batches_at(log) == {1: 1, 2: 1}


def test_an_expired_producer_leaves_no_empty_batch(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock, producer_id_expiration_ms=500)
    send(log, 0, a="1")
    put(log, a="2")
    clock.advance(500)
    log.expire_producers()
    log.compact(now=True)
    assert batches_at(log) == {1: 1}


def test_a_producer_of_whom_only_a_marker_is_known_keeps_it(log, clock):
    transact(log, 7, 0, a="1")
    log.append_end_marker(7, 1, committed=False)  # fences epoch 0, and forgets its batches
    put(log, a="2")
    for _ in range(3):
        log.compact(now=True)
        clock.advance(RETENTION_MS)
    assert batches_at(log) == {1: 0, 2: 1}
    log = reopen(log, how="crash", keep_snapshots=False)
    assert log.last_stable_offset == log.log_end_offset


# Old formats ------------------------------------------------------------------------------------------------


def legacy_log(path, magic, *entries, **settings):
    """A log of which an old broker wrote the first segment."""
    log = open_compacted(path, **settings)
    log.append_replicated(b"".join(entries))
    return log


def old(offset, key, value, timestamp_ms=START_MS):
    return Record(offset, timestamp_ms, key, value)


@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_old_brokers_are_compacted(tmp_path, magic):
    timestamp_ms = START_MS if magic else -1
    records = [
        old(0, b"a", b"1", timestamp_ms),
        old(1, b"b", b"1", timestamp_ms),
        old(2, b"a", b"2", timestamp_ms),
    ]
    log = legacy_log(tmp_path / "topic-0", magic, *(encode_entry(magic, record) for record in records))
    log.compact(now=True)
    assert list(log.read()) == records[1:]
    assert {header.magic for header in headers_of(log)} == {magic}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_compressed_entries_of_old_brokers_are_rewritten_as_magic_2(tmp_path, magic, codec):
    timestamp_ms = START_MS if magic else -1
    records = [old(offset, key, b"v", timestamp_ms) for offset, key in enumerate([b"a", b"b", b"a", b"c"])]
    inner = [record._replace(offset=number) for number, record in enumerate(records)]
    log = legacy_log(tmp_path / "topic-0", magic, encode_wrapper(magic, codec, inner))
    log.compact(now=True)
    assert list(log.read()) == records[1:]
    assert [(header.magic, header.codec) for header in headers_of(log)] == [(2, codec)]
    assert list(reopen(log).read()) == records[1:]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_tombstone_of_an_old_broker_has_its_time_too(tmp_path, clock, magic):
    entries = [encode_entry(magic, old(0, b"a", None)), encode_entry(magic, old(1, b"b", b"1"))]
    log = legacy_log(tmp_path / "topic-0", magic, *entries, clock=clock)
    log.compact(now=True)
    clock.advance(RETENTION_MS - 1)
    log.compact(now=True)
    assert left(log) == {0: ("a", None), 1: ("b", "1")}
    clock.advance(1)
    log.compact(now=True)
    assert left(log) == {1: ("b", "1")}


# Rounds and the map -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_count", [1, 4])
def test_a_map_that_is_too_small_takes_several_rounds(tmp_path, batch_count):
    log = open_compacted(tmp_path / "topic-0")
    for number in range(batch_count):
        put(log, **{f"key {key}": f"{number}" for key in range(40)})
    put(log, **{f"key {key}": "last" for key in range(40)})
    map_bytes = 400
    report = log.compact(now=True, map_bytes=map_bytes)
    assert report.round_count >= 40 // OffsetMap(map_bytes, bytes(16)).capacity
    assert sorted(left(log).values()) == sorted((f"key {key}", "last") for key in range(40))
    assert report.first_dirty_offset_after == log.log_end_offset


def test_a_gap_at_the_end_of_a_segment_does_not_hold_up_a_round(log):
    put(log, a="1")
    put(log, b="1", c="1", d="1")
    log.truncate_to(3)  # inside the second batch, which goes whole
    assert bases_of(log) == [0, 3]
    log.compact()
    assert log.dirtiness().first_dirty_offset == 3


def test_what_was_compacted_is_below_the_recovery_point(log):
    put(log, a="1")
    put(log, a="2")
    log.compact(now=True)
    assert log._context.home.recovery_point(log.partition) == 2


def test_what_is_clean_is_remembered(log):
    put(log, a="1")
    log.compact(now=True)
    assert log.dirtiness().first_dirty_offset == 1
    assert reopen(log).dirtiness().first_dirty_offset == 1


def test_truncating_lowers_what_is_clean(log):
    put(log, a="1")
    put(log, b="1")
    put(log, c="1")
    log.compact(now=True)
    log.truncate_to(1)
    assert log.dirtiness().first_dirty_offset == 1
    put(log, a="2")
    log.compact(now=True)
    assert left(log) == {1: ("a", "2")}


def test_an_offset_that_is_beyond_the_log_is_not_believed(log):
    put(log, a="1")
    put(log, a="2")
    log._context.home.store_cleaner_offset(log.partition, 99)
    log.compact(now=True)
    assert left(log) == {1: ("a", "2")}


# Reports ----------------------------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing_and_tells_what_would_go(log):
    put(log, a="1", b="1")
    put(log, a="2")
    names, before = names_in(log), left(log)
    told = log.compact(now=True, dry_run=True)
    assert (names_in(log), left(log)) == (names, before)
    assert log.dirtiness().first_dirty_offset == 0
    done = log.compact(now=True)
    assert told.is_dry_run
    assert (told.kept_bytes, told.read_bytes) == (done.kept_bytes, done.read_bytes)
    assert told.written_bytes == 0
    assert done.size_bytes_after == log.size_bytes


def test_the_report_counts_what_happened(log, clock):
    put(log, a="1", b=None)
    put(log, a="2")
    put(log, c="1")
    report = log.compact(now=True)
    assert (report.read_batch_count, report.kept_batch_count, report.rewritten_batch_count) == (3, 3, 1)
    assert (report.read_record_count, report.kept_record_count, report.kept_tombstone_count) == (4, 3, 1)
    assert (report.key_count, report.round_count) == (3, 1)
    assert (report.first_dirty_offset_before, report.first_dirty_offset_after) == (0, 4)
    assert report.saved_bytes == report.size_bytes_before - log.size_bytes


def test_progress_is_told_and_ends_with_everything(log):
    told = []
    for number in range(20):
        put(log, a=f"{number}")
    log.compact(now=True, on_progress=told.append)
    assert [each.done_bytes for each in told] == sorted(each.done_bytes for each in told)
    assert told[-1].done_bytes == told[-1].total_bytes > 0
    assert {each.partition for each in told} == {log.partition}


def test_a_throttle_is_told_of_every_byte_read_and_written(log):
    told = []
    for number in range(20):
        put(log, a=f"{number}")
    report = log.compact(now=True, throttle=told.append)
    assert sum(told) == 2 * report.read_bytes + report.written_bytes


def test_the_default_memory_is_kafkas():
    assert DEFAULT_MAP_BYTES == 134217728


# Lookups ----------------------------------------------------------------------------------------------------


def test_every_batch_but_the_first_has_an_index_entry(tmp_path):
    log = open_compacted(tmp_path / "topic-0", index_interval_bytes=100_000)
    for number in range(50):
        put(log, **{f"key {number % 49}": "1"})
    log.compact(now=True)
    index = log.writer.core.segments[0].offset_index
    assert [index.entry(number).offset for number in range(index.entry_count)] == list(range(2, 50))


def test_a_small_index_limit_makes_the_entries_fewer(tmp_path):
    log = open_compacted(tmp_path / "topic-0", segment_index_bytes=120)
    for number in range(50):
        put(log, **{f"key {number % 40}": "1"})
    log.compact(now=True)
    assert log.writer.core.segments[0].offset_index.size_bytes <= 120
    assert [next(log.read(offset)).offset for offset in range(10, 50)] == list(range(10, 50))


def test_records_are_found_by_offset_and_time_among_gaps(tmp_path, clock):
    log = open_compacted(tmp_path / "topic-0", clock=clock)
    for number in range(60):
        put(log, **{f"key {number % 7 * (number % 3)}": f"{number}", f"solo {number}": "1"})
        clock.advance(10)
    whole = list(log.read())
    log.compact(now=True)
    there = {record.offset: record for record in log.read()}
    assert len(there) < len(whole)
    for record in whole:
        assert log.record_at(record.offset) == there.get(record.offset)
        assert offsets_of(log, record.offset)[0] == min(offset for offset in there if offset >= record.offset)
        at = log.offset_at(record.timestamp_ms)
        assert at == min(offset for offset, each in there.items() if each.timestamp_ms >= record.timestamp_ms)
