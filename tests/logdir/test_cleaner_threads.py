"""The log cleaner's threads, on the machine's clock: they begin, work beside others, and end when told to."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ClosedError, ForkedError, LogstoreError
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.partition.writing.turn import CompactionTurn
from logstore.testing import ManualClock
from tests.logdir.helpers import QuickFiles
from tests.logdir.helpers_cleaner import COMPACTED, latest_of, record_count, soil, unfinished_files
from tests.test_fork import in_child

HOUR_MS = 3_600_000
EAGER = StoreConfig(linger_ms=0, log_cleaner_backoff_ms=10)
SLOW = StoreConfig(linger_ms=0, log_cleaner_backoff_ms=10, log_cleaner_io_max_bytes_per_second=1)
"""A round sleeps for hours after its first step."""


def open_store(path, config=EAGER, **options):
    options.setdefault("files", QuickFiles())
    return logstore.open(str(path), config=config, **options)


others = set()
"""Threads of stores that other tests of the process have left open."""


def cleaner_threads():
    """Those that the test has begun."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("logstore-cleaner") and thread not in others
    ]


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    others.clear()
    others.update(cleaner_threads())
    yield
    assert cleaner_threads() == []


@pytest.fixture
def looks_up_seldom(monkeypatch):
    """A round that sleeps does not notice that it is waited for. Comes before ``sleeping``."""
    monkeypatch.setattr("logstore.partition.writing.turn._LONGEST_PAUSE_SECONDS", HOUR_MS / 1000)


@pytest.fixture
def sleeping(tmp_path):
    """A store with a round under way that sleeps."""
    with open_store(tmp_path / "store", SLOW) as store:
        log = store.create_topic("t", config=COMPACTED)[0]
        latest = soil(log)
        wait_for(lambda: log.writer.turn.is_taken)
        time.sleep(0.05)
        yield store, log, latest


# Beginning --------------------------------------------------------------------------------------------------


def test_a_compacted_topic_shrinks_without_being_asked(tmp_path):
    with open_store(tmp_path / "store") as store:
        log = store.create_topic("t", config=COMPACTED)[0]
        latest = soil(log)
        wait_for(lambda: record_count(log) < 35)
        assert latest_of(log) == latest


def test_threads_begin_with_the_first_compacted_topic(tmp_path):
    with open_store(tmp_path / "store", StoreConfig(log_cleaner_threads=3)) as store:
        store.create_topic("plain").append(b"v")
        assert cleaner_threads() == []
        store.create_topic("t", config=COMPACTED)
        store.create_topic("u", config=COMPACTED)
        assert len(cleaner_threads()) == 3
        assert all(thread.daemon for thread in cleaner_threads())
        with open_store(tmp_path / "store", read_only=True):
            assert len(cleaner_threads()) == 3
    with open_store(tmp_path / "store"):
        assert len(cleaner_threads()) == 1


def test_a_topic_that_becomes_compacted_begins_them(tmp_path):
    with open_store(tmp_path / "store") as store:
        topic = store.create_topic("t")
        assert cleaner_threads() == []
        topic.configure(cleanup_policy="compact")
        assert len(cleaner_threads()) == 1


@pytest.mark.parametrize(
    "options", [{"config": StoreConfig(log_cleaner_enable=False)}, {"clock": ManualClock()}]
)
def test_switched_off_or_on_a_clock_set_by_hand_there_are_none(tmp_path, options):
    with open_store(tmp_path / "store", **options) as store:
        soil(store.create_topic("t", config=COMPACTED)[0])
        assert cleaner_threads() == []


def test_a_process_that_may_have_no_more_threads_is_told_and_tries_again(tmp_path, monkeypatch, caplog):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("logstore-cleaner"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with open_store(tmp_path / "store") as store:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        store.create_topic("t", config=COMPACTED)
        assert "can't start new thread" in caplog.text
        monkeypatch.undo()
        store.create_topic("u", config=COMPACTED)
        assert len(cleaner_threads()) == 1


# At work ----------------------------------------------------------------------------------------------------


def test_two_threads_clean_two_logs_and_never_the_same(tmp_path, monkeypatch):
    together, compact = threading.Barrier(2), Log.compact
    under_way, overlaps, sides = set(), [], set()
    guard = threading.Lock()

    def watched(log, **options):
        with guard:
            overlaps.append(log.partition in under_way)
            under_way.add(log.partition)
            sides.add(threading.current_thread().name)
        try:
            if not together.broken:
                together.wait(20)  # only two at a time come through
            return compact(log, **options)
        finally:
            with guard:
                under_way.discard(log.partition)

    config = StoreConfig(linger_ms=0, log_cleaner_backoff_ms=10, log_cleaner_threads=2)
    with open_store(tmp_path / "store", config) as store:
        topic = store.create_topic("t", partitions=2, config=COMPACTED)
        monkeypatch.setattr(Log, "compact", watched)
        latest = [soil(log) for log in topic]
        wait_for(lambda: all(status.last_report for status in store.cleaner.status().values()))
        together.abort()
        for _ in range(5):
            latest = [soil(log) for log in topic]
            wait_for(lambda: not any(status.dirty_ratio for status in store.cleaner.status().values()))
        assert [latest_of(log) for log in topic] == latest
        assert all(status.last_error is None for status in store.cleaner.status().values())
    assert len(overlaps) > 4
    assert True not in overlaps
    assert sides == {"logstore-cleaner-0", "logstore-cleaner-1"}


def test_appends_reads_and_retention_go_on_and_the_end_is_exact(tmp_path):
    """Each writer has keys of its own, so that it knows what they hold."""
    config = StoreConfig(linger_ms=1, log_cleaner_backoff_ms=1, log_cleaner_threads=2)
    topic_config = TopicConfig(
        cleanup_policy="compact,delete",
        retention_ms=-1,
        segment_bytes=20_000,
        delete_retention_ms=HOUR_MS,  # a reader that began before a tombstone went would miss it
        min_cleanable_dirty_ratio=0.2,
        file_delete_delay_ms=50,
    )
    failures, done = [], threading.Event()

    def write(topic, seed, latest):
        chance = random.Random(seed)
        try:
            for number in range(1_500):
                key = b"%d-%d" % (seed, chance.randrange(40))
                value = None if chance.random() < 0.1 else b"%d" % number * chance.randrange(1, 30)
                if chance.random() < 0.5:
                    topic.append(value, key=key)
                else:
                    topic.extend([(key, value)])
                latest[key] = value
        except BaseException as error:
            failures.append(error)

    def read(log):
        try:
            while not done.is_set():
                offsets = [record.offset for record in log.read()]
                assert offsets == sorted(set(offsets))
        except BaseException as error:
            failures.append(error)

    with open_store(tmp_path / "store", config) as store:
        topic = store.create_topic("t", partitions=2, config=topic_config)
        expected = [{} for _ in range(3)]
        writers = [
            threading.Thread(target=write, args=(topic, seed, latest)) for seed, latest in enumerate(expected)
        ]
        readers = [threading.Thread(target=read, args=(log,)) for log in topic]
        for thread in writers + readers:
            thread.start()
        for thread in writers:
            thread.join()
        wait_for(lambda: all(status.last_report for status in store.cleaner.status().values()))
        done.set()
        for thread in readers:
            thread.join()
        assert failures == []
        assert all(status.last_error is None for status in store.cleaner.status().values())
        found = latest_of(topic[0]) | latest_of(topic[1])
        wanted = {key: value for latest in expected for key, value in latest.items() if value is not None}
        assert found == wanted
        assert sum(map(record_count, topic)) < 4_500
        assert store.verify(), store.verify()
    with open_store(tmp_path / "store", config) as store:
        assert latest_of(store["t"][0]) | latest_of(store["t"][1]) == wanted


def test_no_error_ends_a_thread(tmp_path, monkeypatch):
    compact, left = (
        Log.compact,
        [MemoryError("no room"), ValueError("a bug"), SystemExit("who would do that")],
    )

    def failing(log, **options):
        if left:
            raise left.pop()
        return compact(log, **options)

    with open_store(tmp_path / "store") as store:
        monkeypatch.setattr(Log, "compact", failing)
        log = store.create_topic("t", config=COMPACTED)[0]
        soil(log)
        (thread,) = cleaner_threads()
        wait_for(lambda: record_count(log) < 35)
        assert left == []
        assert thread.is_alive()


def test_the_rate_is_kept(tmp_path):
    rate = 40_000
    config = StoreConfig(linger_ms=0, log_cleaner_backoff_ms=10, log_cleaner_io_max_bytes_per_second=rate)
    with open_store(tmp_path / "store", config) as store:
        log = store.create_topic("t", config=COMPACTED.with_settings(cleanup_policy="delete"))[0]
        soil(log, 150)
        store["t"].configure(COMPACTED)
        wait_for(lambda: store.cleaner.status()[TopicPartition("t", 0)].last_report)
        report = store.cleaner.status()[TopicPartition("t", 0)].last_report
        moved_bytes = 2 * report.read_bytes + report.written_bytes  # the first pass fills the map
        assert report.elapsed_ms >= (moved_bytes / rate - 0.5) * 1000 > 200  # less what may be made up for


# The end ----------------------------------------------------------------------------------------------------


def ends_promptly(action):
    began = time.monotonic()
    action()
    assert time.monotonic() - began < 10


def test_closing_calls_a_round_off_at_once_and_leaves_nothing_behind(sleeping, tmp_path):
    store, _, latest = sleeping
    ends_promptly(store.close)
    assert cleaner_threads() == []
    assert unfinished_files(tmp_path) == []
    with open_store(tmp_path / "store") as again:
        assert again.was_clean
        assert latest_of(again["t"][0]) == latest


def test_deleting_a_topic_calls_its_round_off_at_once(sleeping, tmp_path):
    store, log, _ = sleeping
    ends_promptly(lambda: store.delete_topic("t"))
    assert unfinished_files(tmp_path) == []
    assert log.is_closed
    again = store.create_topic("t", config=COMPACTED)[0]
    assert latest_of(again) == {}
    again.extend([(b"k", b"v")])
    assert os.path.isdir(again.directory)
    assert latest_of(again) == {b"k": b"v"}


def test_closing_or_reopening_one_log_calls_its_round_off_at_once(sleeping, tmp_path):
    store, log, latest = sleeping
    ends_promptly(log.close)
    assert unfinished_files(tmp_path) == []
    ends_promptly(lambda: store["t"].reopen(0))
    assert latest_of(store["t"][0]) == latest


def test_a_round_that_sleeps_stops_neither_appends_nor_reads_nor_truncation(sleeping):
    store, log, latest = sleeping
    ends_promptly(lambda: (latest.update(soil(log, text=b"w")), store.checkpoint(), log.roll()))
    assert latest_of(log) == latest
    ends_promptly(lambda: log.truncate_to(100))
    ends_promptly(store.enforce_retention)
    assert record_count(log) == 100


def test_closing_waits_for_no_backoff(tmp_path):
    store = open_store(tmp_path / "store", StoreConfig(log_cleaner_backoff_ms=2**63 - 1))
    store.create_topic("t", config=COMPACTED)
    time.sleep(0.05)
    ends_promptly(store.close)


def test_wake_wakes(tmp_path):
    with open_store(tmp_path / "store", StoreConfig(linger_ms=0, log_cleaner_backoff_ms=HOUR_MS)) as store:
        log = store.create_topic("t", config=COMPACTED)[0]
        time.sleep(0.05)
        soil(log)
        store.cleaner.wake()
        wait_for(lambda: record_count(log) < 35)


def test_compacting_by_hand_waits_for_the_round_under_way_and_ends_with_the_store(looks_up_seldom, sleeping):
    store, _, _ = sleeping
    seen = []

    def compact():
        try:
            store.compact(now=True)
        except LogstoreError as error:
            seen.append(error)

    waiting = threading.Thread(target=compact)
    waiting.start()
    time.sleep(0.05)
    assert waiting.is_alive()
    store.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert [type(error) for error in seen] in ([], [ClosedError])  # for_each passes closed logs over


def test_stores_open_and_close_while_they_are_cleaned(tmp_path):
    """Whenever the end comes, nothing is lost and nothing is left behind."""
    latest, chance = {}, random.Random(1)
    for _ in range(25):
        with open_store(tmp_path / "store", StoreConfig(linger_ms=0, log_cleaner_backoff_ms=1)) as store:
            log = store.require_topic("t", config=COMPACTED)[0]
            latest |= soil(log, chance.randrange(60), text=b"%d" % chance.randrange(1000))
            time.sleep(chance.random() * 0.01)
        assert unfinished_files(tmp_path) == []
    with open_store(tmp_path / "store") as store:
        assert latest_of(store["t"][0]) == latest


@pytest.mark.parametrize("call", [Log.compact, lambda log: log.erase(keys=[b"k0"])], ids=["compact", "erase"])
def test_who_calls_does_not_wait_for_a_round_that_sleeps(sleeping, call):
    """The limit is for the background: from then on the round goes on without it."""
    _, log, latest = sleeping
    calling = threading.Thread(target=call, args=(log,), daemon=True)
    calling.start()
    calling.join(60)
    assert not calling.is_alive()
    found = latest_of(log)
    assert found | {b"k0": latest[b"k0"]} == latest
    assert record_count(log) < 35


def test_who_comes_before_the_round_has_begun_is_noticed():
    """The round has the lock and has not begun: a flag that it clears then would be cleared too late."""
    turn = CompactionTurn(TopicPartition("t", 0))
    with turn.own_lock():
        coming = threading.Thread(target=turn.own_lock)
        coming.start()
        coming.join()
        with turn:
            ends_promptly(lambda: turn.sleep(HOUR_MS))


# Forks ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(sleeping):
    store, log, latest = sleeping
    cleaner = store.cleaner

    def check():
        for use in (cleaner.status, cleaner.wake, lambda: store.cleaner, store.compact, log.compact):
            with pytest.raises(ForkedError):
                use()
        store.close()
        assert os.path.exists(log.directory)

    in_child(check)
    with cleaner._changed:  # another thread may hold it at the fork
        in_child(check)
    assert log.writer.turn.is_taken
    assert latest_of(log) == latest
