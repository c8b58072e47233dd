"""What a store does by itself, step by step on a clock set by hand; and once on the real one."""

import threading
import time

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import StorageError
from logstore.model import ProducerIdentity, TopicPartition
from logstore.testing import ManualClock
from tests.logdir.helpers import QuickFiles, crash, names_in, open_store, values

T0 = TopicPartition("t", 0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path, clock):
    store = open_store(path, clock=clock)
    yield store
    crash(store)


def pass_time(store, clock, ms):
    """Let the time pass in steps, as the background thread would see it."""
    for _ in range(10):
        clock.advance(ms // 10)
        store.run_background()


def file_bytes(path):
    return sum(file.stat().st_size for file in path.glob("*.log"))


def test_a_single_append_is_written_after_the_linger_time(store, clock, path):
    store.create_topic("t").append(b"v")
    clock.advance(4)
    store.run_background()
    assert file_bytes(path / "t-0") == 0
    clock.advance(1)
    store.run_background()
    assert file_bytes(path / "t-0") > 0


def test_written_data_is_flushed_after_flush_ms(store, clock):
    log = store.create_topic("t", config=TopicConfig(flush_ms=700))[0]
    log.extend([b"v"])
    clock.advance(699)
    store.run_background()
    assert log.durable_offset == 0
    clock.advance(1)
    store.run_background()
    assert log.durable_offset == 1


def test_retention_deletes_old_segments_and_their_files_after_the_delay(store, clock, path):
    config = TopicConfig(segment_bytes=1_000, retention_ms=3_600_000, file_delete_delay_ms=60_000)
    log = store.create_topic("t", config=config)[0]
    log.extend([b"v" * 100] * 50)
    clock.advance(3_600_001)
    store.run_background()
    assert log.log_start_offset == 50
    assert [name for name in names_in(path / "t-0") if name.endswith(".deleted")]
    clock.advance(60_000)
    store.run_background()
    assert not [name for name in names_in(path / "t-0") if name.endswith(".deleted")]


def test_logs_that_roll_together_store_their_recovery_points_together(store, clock, monkeypatch):
    stored = []
    topic = store.create_topic("t", partitions=20, config=TopicConfig(flush_ms=1_000))
    for log in topic:
        log.extend([b"v"])
        log.roll()
        log.extend([b"v"])
    home = store._directory.context.home
    whole = home.store_checkpoints
    monkeypatch.setattr(home, "store_checkpoints", lambda: (stored.append(True), whole()))
    clock.advance(1_000)
    store.run_background()
    assert [home.recovery_point(log.partition) for log in topic] == [1] * 20
    assert stored == [True]


@pytest.mark.parametrize("name", ["_retention", "_checkpoints"])
def test_flushes_come_between_the_logs_of_a_long_round(store, clock, name, monkeypatch):
    store.create_topic("t", partitions=200)
    done = []

    def work(log):
        clock.advance(10)
        done.append(log.partition.partition)

    all_logs = getattr(store._directory._upkeep, name)
    monkeypatch.setattr(all_logs, "_action", work)
    all_logs.begin()
    assert 0 < len(done) < 200
    scheduler = store._directory.context.scheduler
    scheduler.after(0, "flush", lambda: done.append("flush"), is_waiting=True)
    all_logs.begin()  # the next one is due already
    scheduler.run_due()
    assert len(done) == 201
    assert done[-1] != "flush"


def test_a_log_that_fails_does_not_end_a_round(store, clock, monkeypatch):
    store.create_topic("t", partitions=100)
    done = []

    def work(log):
        clock.advance(10)
        done.append(log.partition.partition)
        if log.partition.partition == 3:
            raise StorageError(5, "failed", "x")

    retention = store._directory._upkeep._retention
    monkeypatch.setattr(retention, "_action", work)
    retention.begin()
    store.run_background()
    assert store._directory.context.scheduler.failure_count == 1
    assert sorted(done) == list(range(100))


def test_retention_by_size_keeps_the_newest(store, clock):
    config = TopicConfig(segment_bytes=1_000, retention_bytes=3_000)
    log = store.create_topic("t", config=config)[0]
    log.extend([b"v" * 100] * 200)
    clock.advance(30_000)
    store.run_background()
    assert 3_000 <= log.size_bytes < 4_000


def test_enforce_retention_tells_what_went_and_what_would_go(store, clock):
    config = TopicConfig(segment_bytes=1_000, retention_bytes=3_000)
    topic = store.create_topic("t", partitions=2, config=config)
    topic[0].extend([b"v" * 100] * 100)
    before = topic[0].segment_count
    would = store.enforce_retention(dry_run=True)
    assert topic[0].segment_count == before
    assert store.enforce_retention() == would == {T0: before - topic[0].segment_count}
    assert store.enforce_retention() == {}


def test_the_recovery_point_is_stored_each_minute(store, clock, path):
    store.create_topic("t")[0].extend([b"v"] * 7)
    clock.advance(59_999)
    store.run_background()
    assert "t 0 7" not in (path / "recovery-point-offset-checkpoint").read_text()
    clock.advance(1)
    store.run_background()
    assert "t 0 7" in (path / "recovery-point-offset-checkpoint").read_text()


def test_the_high_watermark_is_stored_each_five_seconds(store, clock, path):
    store.create_topic("t")[0].extend([b"v"] * 7)
    clock.advance(5_000)
    store.run_background()
    assert (path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 7\n"


def test_what_does_not_change_is_not_stored_again(store, clock, path):
    store.create_topic("t")[0].extend([b"v"] * 7)
    pass_time(store, clock, 120_000)
    before = (path / "replication-offset-checkpoint").stat().st_mtime_ns
    clock.advance(5_000)
    store.run_background()
    assert (path / "replication-offset-checkpoint").stat().st_mtime_ns == before


def test_idle_producers_are_forgotten_after_a_day(store, clock):
    log = store.create_topic("t")[0]
    log.extend([b"v"], producer=ProducerIdentity(7, 0, 0))
    pass_time(store, clock, 86_000_000)
    assert 7 in log.writer.core.producers.active_producers()
    pass_time(store, clock, 2_000_000)
    assert log.writer.core.producers.active_producers() == {}


def test_a_failure_in_one_partition_does_not_keep_others_from_their_checkpoint(
    store, clock, path, monkeypatch
):
    topic = store.create_topic("t", partitions=3)
    for log in topic:
        log.extend([b"v"] * 7)

    def refuse():
        raise StorageError(5, "no", "")

    monkeypatch.setattr(topic[0]._core.active, "flush", refuse)
    clock.advance(60_000)
    store.run_background()
    stored = (path / "recovery-point-offset-checkpoint").read_text()
    assert "t 1 7" in stored
    assert "t 2 7" in stored
    assert "t 0 7" not in stored


def test_a_topic_that_is_deleted_during_background_work_is_not_remembered(store, clock, path):
    log = store.create_topic("t")[0]
    log.extend([b"v"] * 7)
    store.delete_topic("t")
    pass_time(store, clock, 200_000)
    for name in ("recovery-point", "replication", "log-start"):
        assert "t 0" not in (path / f"{name}-offset-checkpoint").read_text()


class _SlowRecovery(QuickFiles):
    """Nobody gets on with what is opened of one partition."""

    def __init__(self):
        self.is_stopped = False
        self.began, self.may_go_on = threading.Event(), threading.Event()

    def open(self, path, *, write=False, create=False):
        if self.is_stopped and "/slow-0/" in path:
            self.began.set()
            assert self.may_go_on.wait(20)
        return super().open(path, write=write, create=create)


def test_others_are_flushed_while_a_partition_is_reopened(path):
    config = StoreConfig(
        linger_ms=1, replica_high_watermark_checkpoint_interval_ms=5, topic=TopicConfig(flush_ms=5)
    )
    files = _SlowRecovery()
    with open_store(path, clock=None, files=files, config=config) as store:
        log, slow = store.create_topic("t")[0], store.create_topic("slow")
        files.is_stopped = True
        reopening = threading.Thread(target=slow.reopen, args=(0,))
        reopening.start()
        try:
            assert files.began.wait(10)
            time.sleep(0.05)  # time for the high watermarks
            for number in range(3):
                log.append(b"v")
                deadline = time.monotonic() + 5
                while log.writer.core.durable_offset <= number and time.monotonic() < deadline:
                    time.sleep(0.005)
                assert log.writer.core.durable_offset == number + 1
        finally:
            files.is_stopped = False
            files.may_go_on.set()
            reopening.join()


class _SlowRemoval(QuickFiles):
    def __init__(self):
        self.began, self.may_go_on = threading.Event(), threading.Event()

    def remove(self, path):
        if path.endswith(".log.deleted"):
            self.began.set()
            assert self.may_go_on.wait(20)
        super().remove(path)


@pytest.mark.parametrize("end", ["close", "erase", "delete_topic"])
def test_appends_go_on_while_files_are_removed_and_ends_wait_for_it(path, clock, end):
    files = _SlowRemoval()
    store = open_store(path, clock=clock, files=files)
    topic = store.create_topic("t", config=TopicConfig(segment_bytes=1_000, file_delete_delay_ms=0))
    log = topic[0]
    log.extend([b"v" * 100] * 50)
    log.delete_before(40)
    removing = threading.Thread(target=store.run_background)
    removing.start()
    assert files.began.wait(10)
    appending = threading.Thread(target=log.append, args=(b"w",))
    appending.start()
    appending.join(10)
    assert not appending.is_alive()
    actions = {
        "close": store.close,
        "erase": lambda: log.erase(offsets=[45]),
        "delete_topic": lambda: store.delete_topic("t"),
    }
    ending = threading.Thread(target=actions[end])
    ending.start()
    ending.join(0.05)
    assert ending.is_alive()
    files.may_go_on.set()
    for thread in (removing, ending):
        thread.join(10)
        assert not thread.is_alive()
    assert not list(path.glob("t-0/*.deleted"))
    store.close()


def test_a_checkpoint_bounds_what_the_next_open_reads(path):
    store = open_store(path)
    log = store.create_topic("t")[0]
    for _ in range(100):
        log.extend([b"v" * 100] * 10)
    store.checkpoint()
    crash(store)
    with open_store(path) as store:
        assert not store.was_clean
        assert store["t"][0].recovery.scanned_bytes < 10_000
        assert store["t"][0].log_end_offset == 1000


def test_with_the_real_clock_a_thread_does_it_all(path):
    config = StoreConfig(
        linger_ms=1,
        log_retention_check_interval_ms=20,
        log_flush_offset_checkpoint_interval_ms=20,
        topic=TopicConfig(flush_ms=10, segment_bytes=1_000, retention_bytes=3_000, file_delete_delay_ms=10),
    )
    with open_store(path, clock=None, config=config) as store:
        log = store.create_topic("t")[0]
        for _ in range(100):
            log.append(b"v" * 100)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not (
            log.writer.core.durable_offset == 100
            and log.writer.core.log_start_offset > 0
            and not [name for name in names_in(path / "t-0") if name.endswith(".deleted")]
            and "t 0 100" in (path / "recovery-point-offset-checkpoint").read_text()
        ):
            time.sleep(0.005)
        assert time.monotonic() < deadline
        assert values(log, log.log_start_offset)[-1] == b"v" * 100
