"""A kill takes single appends of the last ``linger_ms``, 5 ms, the page said. The first write to a partition
stored its leader epoch first, which is two fsyncs; a roll was three and a snapshot; and the one thread that
did all of that also flushed. Of 1,000 partitions that got a record each 965 lost theirs when the kill came
20 ms later, and of 5,000 still 3,809 after a second.

Now no fsync stands in front of what lingers: a thread of its own writes it, rolls and epochs are made durable
behind the records, and appends take over what that thread does not get done.
"""

import threading
import time
from contextlib import contextmanager

import pytest
from benchmarks.kills import LINGER_MS, Setting, measure, shared_memory
from tests.logdir.helpers import crash as crash_store
from tests.partition.helpers_rules import WatchedFiles, add, batch, crash, offsets_of, open_log

import logstore
from logstore import Log, StoreConfig, TopicConfig
from logstore.clock import SystemClock
from logstore.errors import RetriableError
from logstore.files import OsFile, OsFiles
from logstore.schedule import Scheduler, Task

SLOW_SECONDS = 0.3


@pytest.fixture
def slow_disk(monkeypatch):
    """Within it every fsync takes its time."""

    def slowly(flush):
        def wait_and_flush(*arguments):
            time.sleep(SLOW_SECONDS)
            flush(*arguments)

        return wait_and_flush

    @contextmanager
    def slow():
        with monkeypatch.context() as patch:
            patch.setattr(OsFile, "flush", slowly(OsFile.flush))
            patch.setattr(OsFiles, "flush_directory", slowly(OsFiles.flush_directory))
            yield

    return slow


def wait_until_written(logs, seconds):
    until = time.monotonic() + seconds
    while any(log.writer.gathering.rows.row_count for log in logs) and time.monotonic() < until:
        time.sleep(0.001)
    return [log.partition for log in logs if log.writer.gathering.rows.row_count]


def test_the_first_record_of_each_partition_waits_for_no_fsync(tmp_path, slow_disk):
    with logstore.open(tmp_path) as store:
        logs = list(store.create_topic("t", partitions=20))
        with slow_disk():
            for log in logs:
                log.append(b"v")
            assert wait_until_written(logs, 2 * SLOW_SECONDS) == []


def test_what_lingers_waits_for_no_flush_under_way(tmp_path, slow_disk):
    config = TopicConfig(flush_ms=1)
    with logstore.open(tmp_path) as store:
        logs = list(store.create_topic("t", partitions=30, config=config))
        with slow_disk():
            for log in logs[:20]:
                log.extend([b"v"])
            time.sleep(0.05)  # the background flushes them
            for log in logs[20:]:
                log.append(b"v")
            assert wait_until_written(logs[20:], 0.5 * SLOW_SECONDS) == []


def test_a_roll_of_what_lingers_waits_for_no_fsync(tmp_path, slow_disk):
    with logstore.open(tmp_path) as store:
        logs = list(store.create_topic("t", partitions=10, config=TopicConfig(segment_bytes=200)))
        for log in logs:
            log.extend([b"v" * 100])
        with slow_disk():
            for log in logs:
                log.append(b"w" * 100)
            assert wait_until_written(logs, 2 * SLOW_SECONDS) == []
            assert {log.segment_count for log in logs} == {2}


def test_a_checkpoint_of_one_log_does_not_hold_up_others(tmp_path, slow_disk):
    """It holds its log's lock during some fsyncs; nothing of that log lingers then."""
    with logstore.open(tmp_path) as store:
        one, *others = store.create_topic("t", partitions=10)
        one.extend([b"v"])
        with slow_disk():
            one.append(b"v")
            checkpoint = threading.Thread(target=one.checkpoint)
            checkpoint.start()
            while checkpoint.is_alive() and one.writer.gathering.rows.row_count:
                time.sleep(0.001)
            for log in others:
                log.append(b"v")
            assert wait_until_written([one, *others], SLOW_SECONDS) == []
            assert checkpoint.is_alive()
            checkpoint.join()


def test_a_roll_that_must_wait_does_so_elsewhere(tmp_path, slow_disk):
    """A compacted log flushes the old segment before it begins a new one."""
    with logstore.open(tmp_path) as store:
        config = TopicConfig(cleanup_policy="compact", segment_bytes=200)
        compacted = list(store.create_topic("c", partitions=3, config=config))
        others = list(store.create_topic("t", partitions=3))
        for log in compacted:
            log.extend([(b"k", b"v" * 100)])
        with slow_disk():
            for log in compacted:
                log.append(b"w" * 100, key=b"k")
            for log in others:
                log.append(b"v")
            assert wait_until_written(others, SLOW_SECONDS) == []
            assert wait_until_written(compacted, 20 * SLOW_SECONDS) == []
            assert [log.log_end_offset for log in compacted] == [2, 2, 2]


def test_a_roll_that_must_wait_changes_nothing(tmp_path):
    log = open_log(tmp_path / "t-0", cleanup_policy="compact", segment_bytes=200)
    log.extend([(b"k", b"v" * 100)])
    log.writer.core.may_wait = False
    with pytest.raises(RetriableError, match="cannot roll"):
        log.roll()
    log.writer.core.may_wait = True
    assert (log.segment_count, log.needs_reopen, offsets_of(log)) == (1, False, [0])


def test_appends_cannot_outrun_the_writing(tmp_path, monkeypatch):
    """The thread gets no time: the appends write what is overdue."""
    monkeypatch.setattr("logstore.schedule._Prompt._run", lambda self: None)
    with logstore.open(tmp_path, config=StoreConfig(linger_ms=1)) as store:
        logs = list(store.create_topic("t", partitions=50))
        for _ in range(4):
            for log in logs:
                log.append(b"v")
                time.sleep(0.0005)
        assert sum(log.writer.gathering.rows.row_count for log in logs) < 20


def test_an_append_writes_the_overdue_rows_of_its_own_log(tmp_path, monkeypatch):
    monkeypatch.setattr("logstore.schedule._Prompt._run", lambda self: None)
    with logstore.open(tmp_path, config=StoreConfig(linger_ms=300)) as store:
        log = store.create_topic("t")[0]
        log.append(b"a")
        log.append(b"b")
        assert log.writer.gathering.rows.row_count == 2
        time.sleep(0.31)
        log.append(b"c")
        assert log.writer.gathering.rows.row_count == 1


def test_a_task_that_fails_does_not_end_the_thread(caplog):
    scheduler = Scheduler(SystemClock())
    done = threading.Event()
    scheduler.promptly(0, Task("one that fails", lambda: 1 / 0, None))
    scheduler.promptly(1, Task("the next", done.set, None))
    assert done.wait(10)
    scheduler.stop()
    assert "one that fails" in caplog.text


def test_a_sooner_task_wakes_the_thread():
    scheduler = Scheduler(SystemClock())
    done = threading.Event()
    scheduler.promptly(60_000, Task("later", lambda: None, None))
    time.sleep(0.02)
    scheduler.promptly(1, Task("sooner", done.set, None))
    assert done.wait(10)
    scheduler.stop()


# What is made durable behind the records --------------------------------------------------------------------


def test_the_recovery_point_waits_for_a_segment_that_was_sealed_while_it_was_flushed(tmp_path):
    """Its index got its last entries behind that flush, and nobody has made them durable."""
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, index_interval_bytes=1)
    for _ in range(5):
        add(log, b"v" * 100)
    log.writer.durability._flush_pending = True
    flush_files = log.writer.durability.flush_files

    def flush_and_roll(plan):
        seconds = flush_files(plan)
        log.writer.durability.flush_files = flush_files
        log.roll()
        return seconds

    log.writer.durability.flush_files = flush_and_roll
    log.writer.durability.background_flush()
    assert (log.durable_offset, log.writer.core.active.base_offset, len(log.writer.core.unflushed)) == (
        5,
        5,
        1,
    )
    assert log._context.home.recovery_point(log.partition) == 0
    files.operations.clear()
    log.flush()
    add(log, b"v")
    log.writer.durability.background_flush()
    log._context.scheduler.run_due()  # stores the checkpoints, for all logs together
    flushed = files.operations.index(("flush", f"{0:020}.timeindex"))
    assert flushed < files.operations.index(("rename", "recovery-point-offset-checkpoint.tmp"))
    assert log._context.home.recovery_point(log.partition) == 5


def test_a_log_that_was_killed_behind_a_roll_has_its_producers(tmp_path):
    log = Log.open(tmp_path / "t-0", config=TopicConfig(segment_bytes=200))
    for sequence in range(6):
        log.extend([b"v" * 80], producer=logstore.ProducerIdentity(7, 0, sequence))
    crash(log)
    with Log.open(tmp_path / "t-0") as log:
        assert log.last_of_producer(7).next_sequence == 6


@pytest.mark.parametrize("how", ["running", "killed"])
def test_a_check_from_elsewhere_expects_no_epoch_that_is_not_stored_yet(tmp_path, how):
    store = logstore.open(tmp_path)
    log = store.create_topic("t")[0]
    log.append_replicated(batch(b"a", partition_leader_epoch=0))
    store.checkpoint()
    for offset, epoch in ((1, 3), (2, 3), (3, 4)):
        log.append_replicated(batch(b"b", base_offset=offset, partition_leader_epoch=epoch))
    if how == "killed":
        crash_store(store)
    with logstore.open(tmp_path, read_only=True) as reader:
        assert reader["t"][0].verify()
    if how == "running":
        store.close()


# Kills ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("partition_count", [1, 100])
def test_a_kill_takes_what_the_page_says(partition_count):
    """The bound is that of a machine with other things to do: without the mend it is near a second."""
    losses = measure(shared_memory(), Setting(partition_count, 100, "on and on"), kills=2)
    assert all(loss.is_suffix for loss in losses)
    assert max(loss.oldest_ms for loss in losses) < LINGER_MS + 150
