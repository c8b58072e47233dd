"""The log cleaner on a clock set by hand: which log is next, when, and what becomes of failures."""

from __future__ import annotations

import pytest

import logstore
from logstore.clock import SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import (
    ClosedError,
    CorruptionError,
    InvalidConfigError,
    ReadOnlyError,
    StorageError,
    UsageError,
)
from logstore.logdir.cleaning import LONGEST_RETRY_MS, retry_delay_ms
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.testing import ManualClock
from tests.logdir.helpers import flip_byte, log_files, open_store, snapshot
from tests.logdir.helpers_cleaner import (
    BACKOFF_MS,
    COMPACTED,
    CONFIG,
    latest_of,
    record_count,
    soil,
    unfinished_files,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(tmp_path, clock):
    with open_store(tmp_path / "store", config=CONFIG, clock=clock) as store:
        yield store


@pytest.fixture
def cleaned(monkeypatch):
    """The partitions whose compaction was begun, in order."""
    order, compact = [], Log.compact

    def noting(log, **options):
        order.append(log.partition)
        return compact(log, **options)

    monkeypatch.setattr(Log, "compact", noting)
    return order


def let_pass(store, milliseconds=BACKOFF_MS):
    store._directory.context.clock.advance(milliseconds)
    store.run_background()


# Which and when ---------------------------------------------------------------------------------------------


def test_a_dirty_log_is_cleaned_unasked(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    latest = soil(log)
    let_pass(store)
    assert latest_of(log) == latest
    assert record_count(log) < 35
    status = store.cleaner.status()[T0]
    assert (status.state, status.progress, status.last_error) == ("idle", None, None)
    assert status.last_report.saved_bytes > 0
    assert status.last_report_ms == store._directory.context.clock.now_ms()
    assert status.dirty_ratio == 0
    assert status.cleanable_bytes == 0


def test_the_dirtiest_goes_first_and_what_is_not_dirty_enough_stays(store, cleaned):
    topic = store.create_topic("t", partitions=4, config=COMPACTED)
    for log in topic:
        soil(log, keys=40)
    store.compact(now=True)
    cleaned.clear()
    for log, count in zip(topic, (60, 400, 10, 150), strict=True):
        soil(log, count, keys=40)
    ratios = [log.dirtiness().ratio for log in topic]
    assert ratios[1] > ratios[3] > ratios[0] > 0.5 > ratios[2]
    let_pass(store)
    assert [partition.partition for partition in cleaned] == [1, 3, 0]


def test_the_cleaner_looks_each_time_its_backoff_is_over(store, clock, cleaned):
    log = store.create_topic("t", config=COMPACTED)[0]
    let_pass(store)
    assert cleaned == []
    soil(log)
    let_pass(store, BACKOFF_MS - 1)
    assert cleaned == []
    let_pass(store, 1)
    assert cleaned == [T0]
    let_pass(store, 10 * BACKOFF_MS)
    assert cleaned == [T0]


def test_wake_makes_it_look_now(store, cleaned):
    soil(store.create_topic("t", config=COMPACTED)[0])
    store.run_background()
    cleaned.clear()
    soil(store["t"][0])
    store.cleaner.wake()
    store.run_background()
    assert cleaned == [T0]


def test_one_that_is_overdue_is_cleaned_though_it_is_not_dirty_enough(store, clock, cleaned):
    config = COMPACTED.with_settings(min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=60_000)
    log = store.create_topic("t", config=config)[0]
    soil(log, keys=40)
    store.compact(now=True)
    soil(log)
    cleaned.clear()
    let_pass(store, 2 * BACKOFF_MS)
    assert cleaned == []
    let_pass(store, 60_000)
    assert cleaned == [T0]


def test_topics_that_were_there_at_the_open_are_cleaned(tmp_path, store, clock):
    latest = soil(store.create_topic("t", config=COMPACTED)[0])
    store.close()
    with open_store(store.path, config=CONFIG, clock=clock) as again:
        let_pass(again)
        assert record_count(again["t"][0]) < 35
        assert latest_of(again["t"][0]) == latest


def test_a_topic_that_becomes_compacted_is_cleaned(store):
    topic = store.create_topic("t")
    soil(topic[0], 100)
    topic.configure(COMPACTED)
    soil(topic[0], 60)
    let_pass(store)
    assert record_count(topic[0]) < 60


def test_without_compacted_topics_there_is_no_cleaner_and_no_module_of_it(store):
    soil(store.create_topic("t")[0])
    let_pass(store)
    assert store._directory._cleaner is None
    assert store.cleaner.status() == {}


def test_switched_off_it_does_nothing_by_itself(tmp_path, clock, cleaned):
    config = StoreConfig(linger_ms=0, log_cleaner_enable=False)
    with open_store(tmp_path / "store", config=config, clock=clock) as store:
        log = store.create_topic("t", config=COMPACTED)[0]
        soil(log)
        let_pass(store, 10 * BACKOFF_MS)
        store.cleaner.wake()
        store.run_background()
        assert cleaned == []
        assert store.cleaner.status()[T0].dirty_ratio == 1
        store.compact()
        assert cleaned == [T0]


def test_a_round_that_changes_nothing_is_not_repeated_at_once(store, monkeypatch, cleaned):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    dirtiness = log.dirtiness()
    store.compact(now=True)
    monkeypatch.setattr(Log, "dirtiness", lambda log: dirtiness)  # as if there were something to do
    cleaned.clear()
    let_pass(store)
    let_pass(store, BACKOFF_MS - 1)
    assert cleaned == [T0]
    let_pass(store, 1)
    assert cleaned == [T0, T0]


# Failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failed_count", "delay_ms"),
    [(1, 15_000), (2, 30_000), (8, 1_920_000), (9, LONGEST_RETRY_MS), (10_000, LONGEST_RETRY_MS)],
)
def test_retries_wait_twice_as_long_each_time_up_to_an_hour(failed_count, delay_ms):
    assert retry_delay_ms(failed_count, BACKOFF_MS) == delay_ms


def test_a_backoff_above_the_hour_stays(store):
    assert retry_delay_ms(3, 2 * LONGEST_RETRY_MS) == 2 * LONGEST_RETRY_MS


def failing(log, error, attempts):
    """Let the log's compaction fail; ``attempts`` gets the times, and the options."""
    clock = log._context.clock

    def compact(**options):
        attempts.append((clock.monotonic_ms(), options))
        raise error

    log.compact = compact


def test_a_failure_is_shown_and_retried_ever_more_slowly_and_healed(store, clock, caplog):
    topic = store.create_topic("t", partitions=2, config=COMPACTED)
    latest = soil(topic[0])
    attempts = []
    failing(topic[0], StorageError(5, "the disk is tired", "x"), attempts)
    began_ms = clock.monotonic_ms()
    for _ in range(8):
        let_pass(store)
    times = [(at - began_ms) // BACKOFF_MS for at, _ in attempts]
    assert times == [1, 2, 4, 8]
    status = store.cleaner.status()[T0]
    assert (status.state, status.failed_attempt_count) == ("waiting to retry", 4)
    assert "tired" in str(status.last_error)
    assert status.last_error_ms == clock.now_ms()
    assert status.retry_at_ms == clock.now_ms() + 8 * BACKOFF_MS
    assert caplog.text.count("tired") == 1  # once for each distinct error
    failing(topic[0], StorageError(5, "the disk is ill", "x"), attempts)
    let_pass(store, 8 * BACKOFF_MS)
    assert caplog.text.count("ill") == 1
    del topic[0].compact
    let_pass(store, 16 * BACKOFF_MS)
    status = store.cleaner.status()[T0]
    assert (status.state, status.failed_attempt_count) == ("idle", 0)
    assert (status.last_error, status.last_error_ms, status.retry_at_ms) == (None, None, None)
    assert latest_of(topic[0]) == latest
    assert record_count(topic[0]) < 35


@pytest.mark.parametrize("error", [CorruptionError("rot"), ValueError("a bug"), AssertionError("another")])
def test_an_error_of_one_partition_stops_no_other(store, error):
    topic = store.create_topic("t", partitions=2, config=COMPACTED)
    for log in topic:
        soil(log)
    failing(topic[0], error, [])
    let_pass(store)
    status = store.cleaner.status()
    assert status[T0].last_error is error
    assert (status[T1].last_error, status[T1].last_report.round_count) == (None, 1)


def test_a_log_that_cannot_say_how_dirty_it_is_counts_as_failed(store):
    topic = store.create_topic("t", partitions=2, config=COMPACTED)
    for log in topic:
        soil(log)

    def dirtiness():
        raise CorruptionError("a header is damaged")

    topic[0].dirtiness = dirtiness
    let_pass(store)
    status = store.cleaner.status()
    assert "header" in str(status[T0].last_error)
    assert status[T0].dirtiness is None
    assert (status[T0].dirty_ratio, status[T0].cleanable_bytes) == (0, 0)
    assert status[T1].last_report.round_count == 1


@pytest.mark.damaged
def test_damage_is_retried_always_visible_and_healed_when_it_is_mended(store, caplog):
    log = store.create_topic("t", config=COMPACTED)[0]
    latest = soil(log)
    path = log_files(log.directory)[1]
    flip_byte(path, 80)
    before = snapshot(log.directory).keys()
    for _ in range(5):
        let_pass(store)
    status = store.cleaner.status()[T0]
    assert isinstance(status.last_error, CorruptionError)
    assert status.last_error.path == str(path)
    assert (status.state, status.failed_attempt_count) == ("waiting to retry", 3)
    assert unfinished_files(log.directory) == []
    assert before - snapshot(log.directory).keys() == set()
    flip_byte(path, 80)
    let_pass(store, LONGEST_RETRY_MS)
    assert store.cleaner.status()[T0].last_error is None
    assert latest_of(log) == latest


def test_where_memory_runs_out_the_next_map_is_smaller(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    attempts = []
    failing(log, MemoryError("no room for the map"), attempts)
    let_pass(store)
    assert isinstance(store.cleaner.status()[T0].last_error, MemoryError)
    for _ in range(12):
        let_pass(store, LONGEST_RETRY_MS)
    sizes = [options["map_bytes"] // 2**20 for _, options in attempts]
    assert sizes == [128, 64, 32, 16, 8, 4, 2, 1, 1, 1, 1, 1, 1]
    del log.compact
    let_pass(store, LONGEST_RETRY_MS)
    assert store.cleaner.status()[T0].last_error is None
    assert record_count(log) < 35


def test_threads_share_the_memory(tmp_path, clock):
    config = StoreConfig(linger_ms=0, log_cleaner_threads=4, log_cleaner_dedupe_buffer_size=8 * 2**20)
    with open_store(tmp_path / "store", config=config, clock=clock) as store:
        log = store.create_topic("t", config=COMPACTED)[0]
        soil(log)
        attempts = []
        failing(log, StorageError(5, "x", "x"), attempts)
        let_pass(store)
        assert attempts[0][1]["map_bytes"] == 2 * 2**20


def test_a_log_that_is_opened_again_is_tried_at_once(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    failing(log, StorageError(5, "tired", "x"), [])
    for _ in range(4):
        let_pass(store)
    log = store["t"].reopen(0)
    let_pass(store)
    assert store.cleaner.status()[T0].failed_attempt_count == 0
    assert record_count(log) < 35


def test_a_log_that_needs_to_be_opened_again_is_left_alone(store, cleaned):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    log.writer.guard.poison(StorageError(5, "fsync failed", "x"))
    let_pass(store)
    assert cleaned == []
    assert store.cleaner.status()[T0].dirty_ratio == 1
    store["t"].reopen(0)
    let_pass(store)
    assert cleaned == [T0]


def in_round(log, action):
    """Let something happen in the middle of the log's next compaction."""
    compact, steps = Log.compact, []

    def disturbed(*, throttle, **options):
        def step(size_bytes):
            throttle(size_bytes)
            steps.append(size_bytes)
            if len(steps) == 3:
                action()

        del log.compact
        return compact(log, throttle=step, **options)

    log.compact = disturbed
    return steps


def test_a_truncation_calls_the_round_off_and_is_no_failure(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    latest = soil(log, 100)
    steps = in_round(log, lambda: log.truncate_to(99))
    let_pass(store)
    assert len(steps) == 3
    status = store.cleaner.status()[T0]
    assert (status.state, status.last_report) == ("idle", None)
    assert unfinished_files(log.directory) == []
    log.extend([(b"k4", latest[b"k4"])])
    let_pass(store)
    assert store.cleaner.status()[T0].last_report.round_count == 1
    assert latest_of(log) == latest


def test_retention_of_a_compacted_topic_is_enforced_and_does_not_harm_a_round(store, clock):
    clock.jump(SystemClock().now_ms() - clock.now_ms())  # segments without records go by their file's time
    config = COMPACTED.with_settings(cleanup_policy="compact,delete", retention_ms=100_000)
    log = store.create_topic("t", config=config)[0]
    soil(log, 40, text=b"old")
    clock.advance(90_000)
    latest = soil(log, 60)
    removed = []

    def expire():
        clock.advance(20_000)
        removed.append(log.enforce_retention())

    in_round(log, expire)
    store.cleaner.wake()
    store.run_background()
    assert removed[0] > 0
    let_pass(store)
    let_pass(store)
    assert latest_of(log) == latest
    assert store.cleaner.status()[T0].last_error is None
    clock.advance(100_000)
    let_pass(store, store._directory.config.log_retention_check_interval_ms)
    assert record_count(log) == 0


# By hand ----------------------------------------------------------------------------------------------------


def test_compact_does_all_compacted_topics_in_the_calling_thread(store):
    for name, config in (("t", COMPACTED), ("u", COMPACTED), ("plain", TopicConfig(segment_bytes=2_000))):
        for log in store.create_topic(name, partitions=2, config=config):
            soil(log)
    seen = []
    reports = store.compact(now=True, on_progress=seen.append)
    assert set(reports) == {TopicPartition(name, n) for name in ("t", "u") for n in (0, 1)}
    assert {progress.partition for progress in seen} == set(reports)
    assert all(report.saved_bytes > 0 for report in reports.values())
    assert [record_count(log) for log in store["t"]] == [5, 5]
    assert [record_count(log) for log in store["plain"]] == [60, 60]
    assert store.cleaner.status()[T0].last_report == reports[T0]
    assert set(store["u"].compact()) == {TopicPartition("u", 0), TopicPartition("u", 1)}


def test_a_dry_run_changes_nothing(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    store.flush()
    before = snapshot(store.path)
    (report,) = store["t"].compact(dry_run=True).values()
    assert report.is_dry_run
    assert report.saved_bytes > 0
    assert snapshot(store.path) == before
    assert store.cleaner.status()[T0].last_report is None
    assert store.compact()[T0].saved_bytes == report.saved_bytes


def test_what_fails_by_hand_is_raised_when_the_others_are_done(store):
    topic = store.create_topic("t", partitions=2, config=COMPACTED)
    for log in topic:
        soil(log)
    failing(topic[0], StorageError(5, "tired", "x"), [])
    with pytest.raises(StorageError, match="tired"):
        store.compact()
    assert record_count(topic[1]) < 35


def test_compacting_by_hand_heals(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    failing(log, StorageError(5, "tired", "x"), [])
    let_pass(store)
    del log.compact
    store.compact()
    assert store.cleaner.status()[T0].last_error is None


def test_a_topic_that_is_not_compacted_is_refused(store):
    with pytest.raises(UsageError, match="cleanup_policy"):
        store.create_topic("t").compact()


def test_the_partition_is_shown_as_being_cleaned(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    seen = []
    in_round(log, lambda: seen.append(store.cleaner.status()[T0]))
    let_pass(store)
    assert seen[0].state == "cleaning"
    assert 0 < seen[0].progress < 1
    by_hand = []
    soil(log)
    store.compact(now=True, on_progress=lambda _: by_hand.append(store.cleaner.status()[T0]))
    assert {(status.state, status.progress) for status in by_hand} == {("cleaning", None)}


# Beginning and end ------------------------------------------------------------------------------------------


def test_of_a_deleted_topic_nothing_is_known_any_more(store):
    log = store.create_topic("t", config=COMPACTED)[0]
    soil(log)
    failing(log, StorageError(5, "tired", "x"), [])
    let_pass(store)
    store.delete_topic("t")
    assert store.cleaner.status() == {}
    let_pass(store)
    assert store._directory.cleaner._cleanings == {}
    store.create_topic("t", config=COMPACTED)
    assert store.cleaner.status()[T0].failed_attempt_count == 0


@pytest.mark.parametrize("end", ["close", "delete_topic", "abandon"])
def test_the_end_may_come_from_within_a_round(tmp_path, clock, end):
    store = open_store(tmp_path / "store", config=CONFIG, clock=clock)
    log = store.create_topic("t", config=COMPACTED)[0]
    latest = soil(log)
    actions = {
        "close": store.close,
        "delete_topic": lambda: store.delete_topic("t"),
        "abandon": store._directory.abandon,
    }
    in_round(log, actions[end])
    clock.advance(BACKOFF_MS)
    store.run_background()
    assert log.is_closed
    store.close()
    assert unfinished_files(store.path) == []
    with open_store(store.path, config=CONFIG, clock=clock) as again:
        assert [latest_of(again["t"][0])] == [latest] if "t" in again else end == "delete_topic"


def test_a_read_only_store_has_no_cleaner(store):
    store.create_topic("t", config=COMPACTED)
    with logstore.open(store.path, read_only=True) as reader:
        for use in (lambda: reader.cleaner, reader.compact, reader["t"].compact):
            with pytest.raises(ReadOnlyError):
                use()


def test_after_the_close_it_refuses(store):
    cleaner = store.cleaner
    topic = store.create_topic("t", config=COMPACTED)
    store.close()
    for use in (lambda: store.cleaner, cleaner.status, cleaner.wake, store.compact, topic.compact):
        with pytest.raises(ClosedError):
            use()


@pytest.mark.parametrize(
    "settings",
    [
        {"log_cleaner_enable": 1},
        {"log_cleaner_threads": 0},
        {"log_cleaner_threads": 2.0},
        {"log_cleaner_dedupe_buffer_size": 2**20 - 1},
        {"log_cleaner_dedupe_buffer_size": 3 * 2**20, "log_cleaner_threads": 4},
        {"log_cleaner_io_max_bytes_per_second": 0},
        {"log_cleaner_backoff_ms": 0},
    ],
)
def test_a_bad_setting_is_refused_by_name(settings):
    with pytest.raises(InvalidConfigError, match=next(iter(settings))):
        StoreConfig(**settings)
