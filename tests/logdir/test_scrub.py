"""The background scrubber: it finds what rots, at the rate it was given, and changes nothing."""

from __future__ import annotations

import os

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import InvalidConfigError
from logstore.files import OsFiles
from logstore.large_files import read_aside
from logstore.logdir.scrub import STEP_MS
from logstore.model import TopicPartition
from logstore.partition.checking.facts_of_writer import facts_to_scrub
from logstore.testing import ManualClock
from tests.logdir.helpers import SMALL, CountingFiles, QuickFiles, flip_byte, log_files, open_store, snapshot
from tests.page_cache import cached_pages, forget, needs_mincore

INTERVAL_MS = 10_000_000  # longer than anything else waits for
SCRUBBING = StoreConfig(
    topic=TopicConfig(segment_bytes=1000, retention_ms=-1),
    linger_ms=0,
    scrub_interval_ms=INTERVAL_MS,
    scrub_bytes_per_second=100_000,
)


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store", config=SCRUBBING, clock=ManualClock()) as store:
        topic = store.create_topic("t", partitions=2)
        for number in range(40):
            topic.append(b"v" * 100, partition=number % 2)
        store.checkpoint()
        yield store


def let_pass(store, milliseconds, step_ms=STEP_MS):
    """Move the clock in steps; background work runs at each."""
    clock = store._directory.context.clock
    for _ in range(0, milliseconds, step_ms):
        clock.advance(step_ms)
        store.run_background()


def scrub(store):
    """One whole pass."""
    store._directory.context.clock.advance(INTERVAL_MS)
    store.run_background()
    let_pass(store, 3_000)


def test_sound_logs_are_sound(store):
    scrub(store)
    assert store.damage_found == {}


@pytest.mark.damaged
def test_damage_is_found_told_and_left_alone(store, caplog):
    path = log_files(store["t"][1].directory)[1]
    flip_byte(path, 80)
    before = snapshot(store["t"][1].directory)
    with caplog.at_level("WARNING", logger="logstore"):
        scrub(store)
    assert list(store.damage_found) == [TopicPartition("t", 1)]
    report = store.damage_found[TopicPartition("t", 1)]
    assert [problem.path for problem in report.problems] == [str(path)]
    assert str(path) in caplog.text
    assert snapshot(store["t"][1].directory) == before
    flip_byte(path, 80)
    scrub(store)
    assert store.damage_found == {}


@pytest.mark.damaged
def test_where_memory_runs_out_the_others_and_the_next_pass_have_their_turn(store, monkeypatch, caplog):
    """It was the end of scrubbing, for all logs and for good."""
    path = log_files(store["t"][1].directory)[1]
    flip_byte(path, 80)
    passed = []

    def facts(log):
        if log.partition.partition == 0:
            passed.append(log)
            raise MemoryError
        return facts_to_scrub(log)

    monkeypatch.setattr("logstore.logdir.scrub.facts_to_scrub", facts)
    scrub(store)
    assert list(store.damage_found) == [TopicPartition("t", 1)]
    assert "MemoryError" in caplog.text
    scrub(store)
    assert len(passed) == 2
    flip_byte(path, 80)


@pytest.mark.damaged
def test_only_sealed_segments_below_the_recovery_point_are_read(store):
    topic = store["t"]
    for _ in range(20):
        topic.append(b"v" * 100, partition=0)
    above = [path for path in log_files(topic[0].directory) if int(path.stem) >= 20]
    for path in [*above, log_files(topic[1].directory)[-1]]:
        flip_byte(path, 80)
    home = store._directory.context.home
    assert home.recovery_point(TopicPartition("t", 0)) == 20
    topic[0]._checkpoint_if_rolled = lambda: None
    scrubber = store._directory._scrubber
    assert sum(scrubber._pass()) > 0
    assert store.damage_found == {}


def test_it_keeps_to_its_rate(tmp_path):
    files = CountingFiles()
    config = StoreConfig(topic=SMALL, scrub_interval_ms=INTERVAL_MS, scrub_bytes_per_second=5_000)
    clock = ManualClock()
    with open_store(tmp_path / "store", config=config, clock=clock, files=files) as store:
        store.create_topic("t")[0].extend([b"v" * 100] * 5, flush=True)
        for _ in range(60):
            store["t"][0].extend([b"v" * 500])
        store.checkpoint()
        clock.advance(INTERVAL_MS)
        before = files.log_counts["read_bytes"]
        store.run_background()
        let_pass(store, 2_000)
        read_bytes = files.log_counts["read_bytes"] - before
        assert 5_000 < read_bytes < 15_000  # in 2 seconds, with what is read for the end of a piece
        let_pass(store, 20_000)
        assert files.log_counts["read_bytes"] - before > 30_000
        assert store.damage_found == {}


def test_it_is_off_by_default(tmp_path):
    with open_store(tmp_path / "store") as store:
        assert store._directory._scrubber is None
        assert store.damage_found == {}
    with open_store(tmp_path / "store", read_only=True) as store:
        assert store.damage_found == {}


def test_a_log_that_is_cut_or_deleted_during_a_pass_says_nothing(store):
    steps = store._directory._scrubber._pass()
    next(steps)
    store["t"][0].truncate_to(3)
    store.delete_topic("t")
    for _ in steps:
        pass
    assert store.damage_found == {}


@pytest.mark.damaged
def test_a_deleted_topic_is_forgotten(store):
    flip_byte(log_files(store["t"][1].directory)[1], 80)
    scrub(store)
    assert store.damage_found
    store.delete_topic("t")
    scrub(store)
    assert store.damage_found == {}


@pytest.mark.parametrize(
    "setting", [{"scrub_interval_ms": -2}, {"scrub_bytes_per_second": 0}, {"scrub_bytes_per_second": 1.5}]
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InvalidConfigError, match=next(iter(setting))):
        StoreConfig(**setting)


@pytest.mark.parametrize("files", [OsFiles(), QuickFiles()])
def test_bytes_read_aside_are_those_of_the_file(tmp_path, files):
    data = os.urandom(300_000)
    (tmp_path / "file").write_bytes(data)
    file = files.open(str(tmp_path / "file"))
    for _ in range(2):
        for position, size in ((0, 10), (5, 200_000), (299_990, 100), (300_000, 10), (400_000, 10)):
            assert read_aside(file, position, size) == data[position : position + size]
    file.close()


@pytest.mark.disk
@needs_mincore
def test_a_file_read_aside_does_not_stay_in_memory(tmp_path):
    data = os.urandom(3_000_000)
    path = tmp_path / "file"
    path.write_bytes(data)
    forget(path)
    file = OsFiles().open(str(path))
    found = [read_aside(file, position, 100_000) for position in range(0, len(data), 100_000)]
    file.close()
    assert b"".join(found) == data
    assert sum(cached_pages(path)) < 64  # of 733: pages at the borders of two reads


@pytest.mark.disk
@needs_mincore
def test_a_file_read_aside_stays_in_memory_if_it_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(3_000_000))
    forget(path)
    path.read_bytes()
    file = OsFiles().open(str(path))
    for position in range(0, 3_000_000, 100_000):
        read_aside(file, position, 100_000)
    file.close()
    assert all(cached_pages(path))
