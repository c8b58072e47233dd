"""Which part of a log may be cleaned, and which log is next."""

import pytest

from logstore.config import TopicConfig
from logstore.partition.cleaning.dirtiness import CleanableFacts, Dirtiness, most_dirty_first, plan_cleaning

NOW_MS = 1_000_000


def facts(*segments):
    """Segments of ten offsets and 100 bytes each; ``segments`` are (oldest, newest) timestamps, and the last
    one is active."""

    def of(number, times):
        oldest_ms, newest_ms = times
        return CleanableFacts(number * 10, number * 10 + 10, 100, lambda: newest_ms, lambda: oldest_ms)

    return [of(number, times) for number, times in enumerate(segments)]


OLD = (1, 1)


def plan(segments, *, stored=None, start=0, stable=None, now_ms=NOW_MS, **config):
    end = segments[-1].next_base_offset
    return plan_cleaning(
        segments,
        config=TopicConfig(cleanup_policy="compact", **config),
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=end if stable is None else stable,
        stored_offset=stored,
        now_ms=now_ms,
    )


def test_a_log_that_was_never_cleaned_is_dirty_from_its_start():
    found = plan(facts(OLD, OLD, OLD), start=3)
    assert (found.first_dirty_offset, found.clean_bytes, found.cleanable_bytes) == (3, 0, 200)
    assert found.ratio == 1


def test_what_was_cleaned_counts_as_clean():
    found = plan(facts(OLD, OLD, OLD, OLD), stored=10)
    assert (found.first_dirty_offset, found.clean_bytes, found.cleanable_bytes) == (10, 100, 200)


def test_a_segment_that_is_clean_in_part_counts_once_and_as_dirty():
    found = plan(facts(OLD, OLD, OLD), stored=15)
    assert (found.clean_bytes, found.cleanable_bytes) == (100, 100)


@pytest.mark.parametrize("stored", [4, 31])
def test_a_stored_offset_outside_of_the_log_counts_as_none(stored):
    found = plan(facts(OLD, OLD, OLD), stored=stored, start=5)
    assert found.first_dirty_offset == 5
    assert found.is_stored_offset_wrong


def test_the_active_segment_is_left_alone():
    assert plan(facts(OLD, OLD, OLD)).first_uncleanable_offset == 20


def test_nothing_from_the_last_stable_offset_on_is_cleanable():
    found = plan(facts(OLD, OLD, OLD), stable=13)
    assert (found.first_uncleanable_offset, found.cleanable_bytes) == (13, 100)


def test_the_first_uncleanable_offset_is_never_below_the_dirty_one():
    found = plan(facts(OLD, OLD, OLD), stored=20, stable=13)
    assert (found.first_uncleanable_offset, found.cleanable_bytes) == (20, 0)


def test_a_segment_with_a_young_record_waits_and_all_behind_it():
    segments = facts(OLD, (1, NOW_MS - 50), OLD, OLD)
    assert plan(segments, min_compaction_lag_ms=50).first_uncleanable_offset == 30
    assert plan(segments, min_compaction_lag_ms=51).first_uncleanable_offset == 10


def test_without_a_lag_no_segment_is_asked_for_its_times():
    def fail():
        raise AssertionError("asked")

    segments = [CleanableFacts(0, 10, 100, fail, fail), CleanableFacts(10, 20, 0, fail, fail)]
    assert plan(segments).cleanable_bytes == 100


def test_a_clock_that_went_back_makes_nothing_old_enough():
    segments = facts((NOW_MS, NOW_MS), OLD)
    found = plan(segments, now_ms=NOW_MS - 500, min_compaction_lag_ms=1, max_compaction_lag_ms=100)
    assert found.cleanable_bytes == 0
    assert not found.is_overdue


def test_a_clock_near_zero_makes_nothing_overdue():
    assert not plan(facts((5, 5), OLD), now_ms=50, max_compaction_lag_ms=100).is_overdue


def test_a_log_with_an_old_dirty_record_is_overdue():
    segments = facts(OLD, (NOW_MS - 101, NOW_MS), OLD)
    settings = {"stored": 10, "max_compaction_lag_ms": 100, "min_cleanable_dirty_ratio": 1}
    found = plan(segments, **settings)
    assert found.is_overdue
    assert found.is_eligible
    assert not plan(segments, **settings | {"max_compaction_lag_ms": 101}).is_eligible


def test_records_without_a_timestamp_are_never_overdue():
    assert not plan(facts((-1, -1), OLD), max_compaction_lag_ms=100).is_overdue


def test_overdue_but_not_cleanable_is_not_eligible():
    found = plan(facts(OLD, OLD), stable=0, max_compaction_lag_ms=100)
    assert found.is_overdue
    assert not found.is_eligible


def test_the_ratio_must_be_passed():
    segments = facts(OLD, OLD, OLD)
    assert not plan(segments, stored=10, min_cleanable_dirty_ratio=0.5).is_eligible
    assert plan(segments, stored=10, min_cleanable_dirty_ratio=0.49).is_eligible


def test_an_empty_log_is_not_eligible():
    found = plan([CleanableFacts(0, 0, 0, lambda: -1, lambda: -1)], min_cleanable_dirty_ratio=0)
    assert found.ratio == 0
    assert not found.is_eligible


def dirtiness(clean, cleanable, *, is_overdue=False):
    return Dirtiness(
        first_dirty_offset=0,
        first_uncleanable_offset=10,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        is_overdue=is_overdue,
        min_ratio=0.5,
    )


def test_the_dirtiest_log_is_next_and_others_are_left_out():
    logs = [
        ("overdue", dirtiness(90, 10, is_overdue=True)),
        ("half", dirtiness(50, 50)),
        ("most", dirtiness(10, 90)),
        ("large", dirtiness(20, 180)),
        ("some", dirtiness(40, 60)),
    ]
    assert most_dirty_first(logs) == ["large", "most", "some", "overdue"]
