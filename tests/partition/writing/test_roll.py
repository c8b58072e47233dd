"""Index entries while appending (section 3.3) and when a new segment begins (section 3.4)."""

import errno

import pytest

from logstore.errors import CorruptionError, StorageError
from logstore.files import OsFiles
from logstore.format.index import encode_offset_entry
from logstore.format.run import Run, RunPlace
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET, IndexBuilder, OffsetIndex, TimeIndex
from logstore.partition.state.sidecars import read_snapshot
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFiles,
    add,
    add_batches,
    bases_of,
    batch,
    crash,
    headers_of,
    identity,
    names_in,
    offsets_of,
    open_log,
    values_of,
)

BATCH_BYTES = len(batch(b"0" + b"." * 10, key=None))
"""Of one :func:`add_batches` batch."""


def active(log):
    return log.writer.core.active


def indexed(log):
    """(offset, position) of the active segment's index entries."""
    index = active(log).offset_index
    return [tuple(index.entry(number)) for number in range(index.entry_count)]


# Index entries


def test_the_first_batch_is_never_indexed(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    add_batches(log, 1)
    assert indexed(log) == []


def test_with_interval_0_every_batch_but_the_first_is_indexed(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    add_batches(log, 3)
    assert indexed(log) == [(1, BATCH_BYTES), (2, 2 * BATCH_BYTES)]


def test_an_entry_comes_after_more_than_the_interval(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=2 * BATCH_BYTES)
    add_batches(log, 7)
    assert indexed(log) == [(3, 3 * BATCH_BYTES), (6, 6 * BATCH_BYTES)]


def test_an_entry_has_the_last_offset_of_its_batch(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    first = add(log, b"a")
    assert first == range(1)
    size = log.size_bytes
    add(log, b"b", b"c", b"d")
    assert indexed(log) == [(3, size)]


def test_each_batch_of_a_follower_may_be_indexed(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    log.append_replicated(batch(b"a") + batch(b"b", base_offset=1) + batch(b"c", base_offset=2))
    assert [offset for offset, _ in indexed(log)] == [1, 2]


def test_the_time_index_gets_the_largest_timestamp_and_the_last_offset_of_its_batch(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    log.append_replicated(batch(b"a", b"b", timestamp_ms=[90, 10]))
    log.append_replicated(batch(b"c", base_offset=2, timestamp_ms=50))
    log.append_replicated(batch(b"d", base_offset=3, timestamp_ms=95))
    index = active(log).time_index
    assert [tuple(index.entry(n)) for n in range(index.entry_count)] == [(90, 1), (95, 3)]


# Roll by size


def test_a_segment_rolls_before_it_would_grow_past_segment_bytes(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=2 * BATCH_BYTES)
    add_batches(log, 5)
    assert bases_of(log) == [0, 2, 4]
    assert [segment.size_bytes for segment in log.writer.core.segments] == [2 * BATCH_BYTES] * 2 + [
        BATCH_BYTES
    ]


# Roll by time


def test_a_segment_rolls_by_the_timestamps_of_its_records(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    for offset, timestamp_ms in enumerate((50, 1050, 1051, 1052)):
        log.append_replicated(batch(b"a", base_offset=offset, timestamp_ms=timestamp_ms))
    assert bases_of(log) == [0, 2]


def test_the_first_append_of_a_segment_sets_its_time(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    log.append_replicated(batch(b"a", b"b", timestamp_ms=[100, 900]))
    log.append_replicated(batch(b"c", base_offset=2, timestamp_ms=10))
    log.append_replicated(batch(b"d", base_offset=3, timestamp_ms=1900))
    assert bases_of(log) == [0]
    log.append_replicated(batch(b"e", base_offset=4, timestamp_ms=1901))
    assert bases_of(log) == [0, 4]


def test_the_wall_clock_does_not_roll_a_segment_whose_records_have_timestamps(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    log.append_replicated(batch(b"a", timestamp_ms=50))
    log._context.clock.advance(100_000)
    log.append_replicated(batch(b"b", base_offset=1, timestamp_ms=60))
    assert bases_of(log) == [0]


def test_without_timestamps_the_age_of_the_segment_counts(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    log.append_replicated(batch(b"a", timestamp_ms=-1))
    log._context.clock.advance(1000)
    log.append_replicated(batch(b"b", base_offset=1, timestamp_ms=-1))
    assert bases_of(log) == [0]
    log._context.clock.advance(1)
    log.append_replicated(batch(b"c", base_offset=2, timestamp_ms=-1))
    assert bases_of(log) == [0, 2]


def test_an_empty_segment_never_rolls_by_time(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    log._context.clock.advance(5000)
    add(log, b"a")
    assert bases_of(log) == [0]


def test_a_future_record_rolls_at_once(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    add(log, b"a")
    log.extend([(None, b"b", START_MS + 2000)])
    assert bases_of(log) == [0, 1]


def test_the_time_of_a_reopened_segment_is_that_of_its_first_batch(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    log.append_replicated(batch(b"a", timestamp_ms=50))
    log.append_replicated(batch(b"b", base_offset=1, timestamp_ms=900))
    log.close()
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    log.append_replicated(batch(b"c", base_offset=2, timestamp_ms=1051))
    assert bases_of(log) == [0, 2]


def test_a_compacted_topic_rolls_by_the_compaction_lag(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=10_000, max_compaction_lag_ms=1000, cleanup_policy="compact")
    log.append_replicated(batch(b"a", timestamp_ms=50))
    log.append_replicated(batch(b"b", base_offset=1, timestamp_ms=1051))
    assert bases_of(log) == [0, 1]


def test_the_compaction_lag_does_not_roll_other_topics(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=10_000, max_compaction_lag_ms=1000)
    log.append_replicated(batch(b"a", timestamp_ms=50))
    log.append_replicated(batch(b"b", base_offset=1, timestamp_ms=1051))
    assert bases_of(log) == [0]


@pytest.mark.parametrize(("jitter_ms", "highest"), [(0, 0), (100, 100), (5000, 999)])
def test_jitter_is_drawn_once_per_segment_below_the_segment_time(tmp_path, jitter_ms, highest):
    log = open_log(tmp_path / "t-0", segment_ms=1000, segment_jitter_ms=jitter_ms)
    drawn = set()
    for _ in range(60):
        add_batches(log, 1)
        log.roll()
        drawn.add(active(log).jitter_ms)
    assert 0 <= min(drawn) <= max(drawn) <= highest
    assert len(drawn) > 20 or highest == 0


def test_jitter_stays_below_the_compaction_lag(tmp_path):
    log = open_log(
        tmp_path / "t-0", segment_jitter_ms=10_000, max_compaction_lag_ms=10, cleanup_policy="compact"
    )
    log.roll()
    assert 0 <= active(log).jitter_ms < 10


def test_jitter_is_taken_off_the_segment_time(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    active(log).jitter_ms = 300
    log.append_replicated(batch(b"a", timestamp_ms=50))
    log.append_replicated(batch(b"b", base_offset=1, timestamp_ms=750))
    assert bases_of(log) == [0]
    log.append_replicated(batch(b"c", base_offset=2, timestamp_ms=751))
    assert bases_of(log) == [0, 2]


# Roll by index and by offset


def test_a_full_offset_index_rolls(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0, segment_index_bytes=5 * 8)
    add_batches(log, 13)
    assert bases_of(log) == [0, 6, 12]  # five entries; the first batch has none


def test_a_full_time_index_rolls(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0, segment_index_bytes=4 * 12)
    for offset in range(9):
        log.append_replicated(batch(b"a", base_offset=offset, timestamp_ms=offset))
    assert bases_of(log) == [0, 4, 8]  # three entries, and the slot of the closing one


def test_the_smallest_index_size_makes_a_segment_of_each_batch(tmp_path):
    log = open_log(tmp_path / "t-0", segment_index_bytes=4)
    add_batches(log, 3)
    assert bases_of(log) == [0, 1, 2]
    assert offsets_of(log) == [0, 1, 2]


def test_an_offset_out_of_reach_rolls(log):
    log.append_replicated(batch(b"a"))
    log.append_replicated(batch(b"b", base_offset=MAX_RELATIVE_OFFSET))
    assert bases_of(log) == [0]
    log.append_replicated(batch(b"c", base_offset=MAX_RELATIVE_OFFSET + 1))
    assert bases_of(log) == [0, MAX_RELATIVE_OFFSET + 1]
    assert offsets_of(log) == [0, MAX_RELATIVE_OFFSET, MAX_RELATIVE_OFFSET + 1]


def test_an_append_that_spans_more_than_a_segment_can_index_is_refused(log):
    log.append_replicated(batch(b"a"))
    far = batch(b"b", base_offset=1) + batch(b"c", base_offset=MAX_RELATIVE_OFFSET + 2)
    with pytest.raises(CorruptionError, match="span more"):
        log.append_replicated(far)
    assert bases_of(log) == [0]
    log.append_replicated(batch(b"b", base_offset=1))


# The new segment


def test_the_new_base_is_the_log_end(log):
    add(log, b"a", b"b")
    log.roll()
    assert bases_of(log) == [0, 2]
    assert values_of(log) == [b"a", b"b"]


def test_after_a_gap_the_new_base_is_the_first_offset_of_the_append(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=100)
    log.append_replicated(batch(b"a" * 10))
    log.append_replicated(batch(b"b" * 10, base_offset=50))
    assert bases_of(log) == [0, 50]
    assert offsets_of(log, 1) == [50]


def test_rolling_an_empty_active_segment_makes_it_anew(tmp_path):
    log = open_log(tmp_path / "t-0", segment_index_bytes=4)
    log.reconfigure(open_log(tmp_path / "u-0").config)
    before = active(log)
    log.roll()
    assert bases_of(log) == [0]
    assert active(log) is not before
    assert not active(log).indexes.is_full
    add_batches(log, 2)
    assert offsets_of(log) == [0, 1]


def test_a_roll_stores_the_producers_with_the_next_checkpoint(log):
    add(log, b"a", producer=identity(0))
    log.roll()
    add(log, b"b", producer=identity(1))
    assert f"{1:020}.snapshot" not in names_in(log, "*.snapshot")
    log.checkpoint()
    assert f"{1:020}.snapshot" in names_in(log, "*.snapshot")


def test_the_producers_of_a_roll_are_those_of_its_moment(log):
    for sequence in range(3):
        add(log, b"a", producer=identity(sequence))
        log.roll()
    log.checkpoint()
    for offset in (1, 2, 3):
        (entry,) = read_snapshot(log._context.files, log.directory, offset)
        assert entry.last_sequence == offset - 1


def test_producers_are_stored_before_their_batches_go(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    add(log, b"a", producer=identity(0))
    log.roll()
    assert log.enforce_retention() == 1
    crash(log)
    assert open_log(tmp_path / "t-0").last_of_producer(7).next_sequence == 1


def test_a_sealed_segment_has_a_closing_time_entry(log):
    log.extend([(None, b"a", START_MS + 5)])
    log.roll()
    assert tuple(log.writer.core.segments[0].largest_timestamp) == (START_MS + 5, 0)


def test_no_append_waits_for_a_roll_to_be_durable(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    files.operations.clear()
    log.roll()
    add(log, b"b")
    assert not [operation for operation in files.operations if "flush" in operation[0]]


def test_a_new_segment_is_in_the_directory_before_anything_in_it_is_called_durable(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    log.roll()
    add(log, b"b")
    files.operations.clear()
    files.refuse("flush_directory", "t-0")
    with pytest.raises(StorageError):
        log.flush()
    assert log.durable_offset == 0
    assert log.needs_reopen


def test_a_roll_that_fails_is_undone_durably(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, segment_bytes=100)
    add(log, b"x" * 10)
    files.refuse("create", f"{1:020}.index", errno.ENOSPC)
    with pytest.raises(StorageError):
        add(log, b"y" * 10)
    assert files.operations[-1][0] == "flush_directory"
    assert names_in(log, "*.log") == [f"{0:020}.log"]
    files.heal()
    add(log, b"y" * 10)
    assert bases_of(log) == [0, 1]


def test_a_roll_that_cannot_be_undone_needs_a_reopen(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    files.fault = lambda operation, path: (
        errno.EIO if operation == "remove" or path.endswith(f"{1:020}.index") else None
    )
    with pytest.raises(StorageError):
        log.roll()
    assert log.needs_reopen
    assert values_of(log) == [b"a"]
    files.heal()
    crash(log)
    log = open_log(tmp_path / "t-0")
    add(log, b"b")
    assert values_of(log) == [b"a", b"b"]


def test_what_is_gathered_goes_into_the_old_segment(log):
    log.append(b"a")
    log.roll()
    assert bases_of(log) == [0, 1]
    assert values_of(log) == [b"a"]


def test_a_run_of_recovery_that_fills_an_index_leaves_no_room_for_the_batches_behind(log):
    builder = IndexBuilder(OffsetIndex(OsFiles(), "a", 0, 16), TimeIndex(OsFiles(), "b", 0, 36), 0)
    entries = encode_offset_entry(0, 4, 100) + encode_offset_entry(0, 8, 200)
    builder.add_run(Run(0, RunPlace(9, -1, -1, -1), builder.progress, entries, b""))
    add(log, b"a")
    builder.add(headers_of(log)[0]._replace(base_offset=9), 300)
    assert (builder.is_full, builder.offset_index.entry_count) == (True, 2)
