"""What is durable, and when (sections 3.8 and 8.4 of the storage rules)."""

import errno
import threading

import pytest

from logstore.config import UNLIMITED, StoreConfig, TopicConfig
from logstore.errors import ClosedError, ReopenRequiredError, StorageError
from logstore.model import Isolation
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.partition.helpers_rules import (
    WatchedFiles,
    add,
    add_batches,
    crash,
    identity,
    names_in,
    offsets_of,
    open_log,
    run_background,
    values_of,
)


@pytest.fixture
def files():
    return WatchedFiles()


@pytest.fixture
def watched(tmp_path, files):
    return open_log(tmp_path / "t-0", files=files)


def recovery_point(log):
    return log._context.home.recovery_point(log.partition)


# The durable offset


def test_an_append_is_not_durable_by_itself(watched):
    add(watched, b"a")
    assert watched.durable_offset == 0


def test_flush_makes_everything_durable(watched, files):
    add_batches(watched, 3)
    files.operations.clear()
    watched.flush()
    assert watched.durable_offset == 3
    assert files.operations == [("flush", f"{0:020}.log")]


def test_a_flush_without_anything_new_costs_nothing(watched, files):
    add(watched, b"a", flush=True)
    files.operations.clear()
    watched.flush()
    assert files.operations == []


def test_a_flush_covers_sealed_segments_and_their_indexes(watched, files):
    add(watched, b"a")
    watched.roll()
    add(watched, b"b")
    files.operations.clear()
    watched.flush()
    flushed = {name for operation, name in files.operations if operation == "flush"}
    assert flushed >= {f"{0:020}.log", f"{0:020}.index", f"{0:020}.timeindex", f"{1:020}.log"}


def test_a_flush_covers_the_aborted_transactions(watched, files):
    add(watched, b"a", producer=identity(0, transactional=True))
    watched.append_end_marker(7, 0, committed=False)
    files.operations.clear()
    watched.flush()
    assert ("flush", f"{0:020}.txnindex") in files.operations


def test_a_flush_leaves_aborted_transactions_alone_that_are_durable(watched, files):
    for _ in range(2):
        add(watched, b"a", producer=identity(0, transactional=True))
        watched.append_end_marker(7, 0, committed=False)
        watched.flush()
        files.operations.clear()
        add(watched, b"b", flush=True)
        assert files.operations == [("write", f"{0:020}.log"), ("flush", f"{0:020}.log")]


@pytest.mark.parametrize("append", ["append", "extend"])
def test_an_append_with_flush_is_durable_when_it_returns(watched, append):
    getattr(watched, append)(b"a" if append == "append" else [b"a"], flush=True)
    assert watched.durable_offset == watched.log_end_offset == 1


def test_an_append_during_the_fsync_is_not_counted_as_durable(watched, files):
    add(watched, b"a")

    def append_during_flush(operation, path):
        if operation == "flush" and path.endswith(".log"):
            files.before = lambda operation, path: None
            add(watched, b"late")

    files.before = append_during_flush
    watched.flush()
    assert watched.durable_offset == 1


def test_a_segment_that_is_sealed_during_its_fsync_is_flushed_again(watched, files):
    add(watched, b"a")

    def roll_during_flush(operation, path):
        if operation == "flush" and path.endswith(".log"):
            files.before = lambda operation, path: None
            add(watched, b"late")
            watched.roll()
            add(watched, b"in the next")

    files.before = roll_during_flush
    watched.flush()
    assert watched.durable_offset == 1
    files.operations.clear()
    watched.flush()
    assert watched.durable_offset == 3
    assert ("flush", f"{0:020}.log") in files.operations


def test_a_truncation_during_the_fsync_is_not_overrun(watched, files):
    add_batches(watched, 5)

    def truncate_during_flush(operation, path):
        if operation == "flush" and path.endswith(".log"):
            files.before = lambda operation, path: None
            watched.truncate_to(2)
            add(watched, b"new", b"new")

    files.before = truncate_during_flush
    watched.flush()
    assert watched.durable_offset == 2
    add(watched, b"newer", flush=True)
    assert watched.durable_offset == 5


def test_a_waiter_whose_records_were_truncated_meanwhile_returns(watched, files):
    add_batches(watched, 3)

    def truncate_during_flush(operation, path):
        if operation == "flush" and path.endswith(".log"):
            files.before = lambda operation, path: None
            watched.truncate_to(1)

    files.before = truncate_during_flush
    add(watched, b"gone", flush=True)
    assert watched.log_end_offset == 1


def test_retention_during_the_fsync_does_not_fail_it(tmp_path, files):
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    log.roll()
    add(log, b"b")

    def delete_during_flush(operation, path):
        if operation == "flush" and path.endswith(f"{0:020}.log"):
            files.before = lambda operation, path: None
            log.delete_before(1)

    files.before = delete_during_flush
    log.flush()
    assert log.durable_offset == 2
    assert not log.needs_reopen


# In the background


def test_what_waits_for_flush_ms_is_flushed_in_the_background(tmp_path):
    log = open_log(tmp_path / "t-0", flush_ms=1000)
    add(log, b"a")
    log._context.clock.advance(999)
    run_background(log)
    assert log.durable_offset == 0
    log._context.clock.advance(1)
    run_background(log)
    assert log.durable_offset == 1


@pytest.mark.parametrize("before_ms", [1_000_000, UNLIMITED])
def test_what_waits_is_flushed_within_the_new_time_when_flush_ms_is_lowered(tmp_path, before_ms):
    log = open_log(tmp_path / "t-0", flush_ms=before_ms)
    add(log, b"a")
    log.reconfigure(log.config.with_settings(flush_ms=1000))
    log._context.clock.advance(999)
    run_background(log)
    assert log.durable_offset == 0
    log._context.clock.advance(1)
    run_background(log)
    assert log.durable_offset == 1


def test_what_comes_after_flush_ms_was_lowered_is_flushed_in_the_new_time(tmp_path):
    log = open_log(tmp_path / "t-0", flush_ms=UNLIMITED)
    add(log, b"a")
    log.flush()
    log.reconfigure(log.config.with_settings(flush_ms=1000))
    for end in (2, 3):
        add(log, b"b")
        log._context.clock.advance(1000)
        run_background(log)
        assert log.durable_offset == end


def test_a_higher_flush_ms_lets_what_waits_be_flushed_as_it_was_promised(tmp_path):
    log = open_log(tmp_path / "t-0", flush_ms=1000)
    add(log, b"a")
    log.reconfigure(log.config.with_settings(flush_ms=UNLIMITED))
    log._context.clock.advance(1000)
    run_background(log)
    assert log.durable_offset == 1


def test_each_append_is_flushed_in_its_time(tmp_path):
    log = open_log(tmp_path / "t-0", flush_ms=1000)
    for end in (1, 2, 3):
        add(log, b"a")
        log._context.clock.advance(1000)
        run_background(log)
        assert log.durable_offset == end


def test_a_background_flush_moves_the_recovery_point_past_sealed_segments(tmp_path):
    log = open_log(tmp_path / "t-0", flush_ms=10)
    add_batches(log, 2)
    log.roll()
    add(log, b"a")
    assert recovery_point(log) == 0
    log._context.clock.advance(10)
    run_background(log)
    assert recovery_point(log) == 2


def test_flush_messages_bounds_what_is_not_durable(tmp_path):
    log = open_log(tmp_path / "t-0", flush_messages=3)
    add_batches(log, 2)
    assert log.durable_offset == 0
    add_batches(log, 1)
    assert log.durable_offset == 3


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_flush_messages_of_1_makes_every_append_durable(tmp_path, linger_ms):
    log = open_log(tmp_path / "t-0", flush_messages=1, linger_ms=linger_ms)
    log.append(b"a")
    assert log.durable_offset == 1
    add(log, b"b")
    log.append_end_marker(7, 0, committed=True)
    assert log.durable_offset == 3


# Checkpoints and closing


def test_a_checkpoint_moves_the_recovery_point_to_the_end(watched):
    add_batches(watched, 3)
    watched.checkpoint()
    assert recovery_point(watched) == watched.durable_offset == 3


def test_a_checkpoint_stores_indexes_and_producers_before_the_recovery_point(watched, files):
    for sequence in range(2):
        add(watched, bytes(5000), producer=identity(sequence))
    files.operations.clear()
    watched.checkpoint()
    assert ("flush", f"{0:020}.index") in files.operations
    assert f"{2:020}.snapshot" in names_in(watched)


def test_what_a_checkpoint_made_durable_the_next_one_leaves_alone(watched, files):
    for sequence in range(2):
        add(watched, bytes(5000), producer=identity(sequence))
    watched.checkpoint()
    files.operations.clear()
    watched.checkpoint()
    assert not [operation for operation in files.operations if operation[0] == "flush"]


def test_a_checkpoint_keeps_one_snapshot_within_a_segment(watched):
    for sequence in range(4):
        add(watched, b"a", producer=identity(sequence))
        watched.checkpoint()
    assert names_in(watched, "*.snapshot") == [f"{4:020}.snapshot"]


def test_closing_flushes(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.append(b"a")
    log.close()
    log = open_log(tmp_path / "t-0")
    assert log.durable_offset == 1
    assert log.recovery.was_clean
    assert values_of(log) == [b"a"]


def test_closing_twice_is_fine_and_a_closed_log_refuses_everything(log):
    log.close()
    log.close()
    for call in (lambda: log.append(b"a"), lambda: add(log, b"a"), log.flush, log.roll, log.checkpoint):
        with pytest.raises(ClosedError):
            call()


def test_an_append_that_returned_before_the_close_is_kept(tmp_path):
    for round_number in range(5):
        log = open_log(tmp_path / f"t-{round_number}")
        appended = []

        def append_until_closed(log=log, appended=appended):
            try:
                while True:
                    appended.append(log.append(b"a"))
            except ClosedError:
                pass

        thread = threading.Thread(target=append_until_closed)
        thread.start()
        while not appended:
            pass
        log.close()
        thread.join()
        assert offsets_of(open_log(tmp_path / f"t-{round_number}")) == appended


def test_a_close_that_fails_is_no_clean_stop(watched, files):
    watched.append(b"a")
    files.fill()
    with pytest.raises(StorageError):
        watched.close()
    files.heal()
    assert ".kafka_cleanshutdown" not in names_in(watched)
    assert not open_log(watched.directory).recovery.was_clean


def test_with_an_error_in_flight_the_log_is_closed_and_the_error_is_told(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.append(b"a")
    with pytest.raises(KeyError), log:
        raise KeyError
    assert log.is_closed
    assert values_of(open_log(tmp_path / "t-0")) == [b"a"]


# A failing fsync


def test_a_failed_fsync_refuses_writes_until_reopened(watched, files):
    add(watched, b"a")
    files.refuse("flush", ".log")
    with pytest.raises(StorageError):
        watched.flush()
    files.heal()
    for call in (
        watched.flush,
        watched.roll,
        lambda: watched.append(b"b"),
        lambda: add(watched, b"b"),
        lambda: watched.truncate_to(0),
        lambda: watched.enforce_retention(),
    ):
        with pytest.raises(ReopenRequiredError, match="refused by the test"):
            call()
    assert watched.durable_offset == 0


def test_after_a_failed_fsync_reading_goes_on(watched, files):
    add(watched, b"a")
    watched.append(b"gathered")
    files.refuse("flush", ".log")
    with pytest.raises(StorageError):
        watched.flush()
    watched.writer.gathering.rows.put((None, b"lost", 0, ()), 40)
    assert values_of(watched) == [b"a", b"gathered"]
    assert values_of(watched, isolation=Isolation.DURABLE) == []


def test_after_a_failed_fsync_a_reopen_goes_on(watched, files):
    add(watched, b"a")
    files.refuse("flush", ".log")
    with pytest.raises(StorageError):
        watched.flush()
    files.heal()
    with pytest.raises(ReopenRequiredError):
        watched.close()
    log = open_log(watched.directory)
    add(log, b"b", flush=True)
    assert values_of(log) == [b"a", b"b"]
    assert not log.recovery.was_clean


def test_a_failed_fsync_in_the_background_is_told_by_the_next_write(tmp_path, files):
    log = open_log(tmp_path / "t-0", files=files, flush_ms=10)
    add(log, b"a")
    files.refuse("flush", ".log", errno.EIO)
    log._context.clock.advance(10)
    run_background(log)
    with pytest.raises(ReopenRequiredError):
        add(log, b"b")


def test_an_unexpected_error_half_way_refuses_writes(watched, files):
    class StrangeError(Exception):
        pass

    def strange(operation, path):
        if operation == "write":
            raise StrangeError

    files.before = strange
    with pytest.raises(StrangeError):
        add(watched, b"a")
    files.before = lambda operation, path: None
    with pytest.raises(ReopenRequiredError):
        add(watched, b"b")


def test_an_aborted_transaction_that_cannot_be_noted_refuses_writes(watched, files):
    add(watched, b"a", producer=identity(0, transactional=True))
    files.refuse("create", ".txnindex", errno.ENOSPC)
    with pytest.raises(StorageError):
        watched.append_end_marker(7, 0, committed=False)
    assert watched.needs_reopen
    files.heal()
    crash(watched)
    log = open_log(watched.directory)
    assert values_of(log, isolation=Isolation.COMMITTED) == []
    assert log.last_stable_offset == log.log_end_offset == 2


# A file that cannot be opened to be flushed


@pytest.fixture
def crowded():
    """A log with sealed segments that are not flushed, and its disk, which runs out of descriptors."""
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    config = TopicConfig(segment_bytes=1000, flush_ms=700)
    log = Log.open("/p-0", files=files, clock=clock, config=config, store_config=StoreConfig(linger_ms=0))
    for _ in range(5):
        log.extend([bytes(600)])
    files.fail(FAULTS["EMFILE"], kinds=["open"], times=None)
    return log, files, clock


def test_a_flush_that_finds_no_descriptor_fails_and_the_next_one_does_it(crowded):
    log, files, _ = crowded
    with pytest.raises(StorageError) as caught:
        log.flush()
    assert (caught.value.errno, caught.value.filename[-4:]) == (errno.EMFILE, ".log")
    assert (log.durable_offset, log.needs_reopen) == (0, False)
    assert [len(record.value) for record in log.read(4)] == [600]
    files.heal()
    assert log.append(b"v", flush=True) == 5
    assert log.durable_offset == 6


def test_aborted_transactions_that_find_no_descriptor_wait_for_the_next_flush(watched, files):
    add(watched, b"a", producer=identity(0, transactional=True))
    watched.append_end_marker(7, 0, committed=False)
    files.refuse("open", ".txnindex", errno.EMFILE)
    with pytest.raises(StorageError) as caught:
        watched.flush()
    assert (caught.value.errno, caught.value.filename[-9:]) == (errno.EMFILE, ".txnindex")
    assert (watched.durable_offset, watched.needs_reopen) == (0, False)
    files.heal()
    files.operations.clear()
    watched.flush()
    assert watched.durable_offset == 2
    assert ("flush", f"{0:020}.txnindex") in files.operations


def test_the_background_tries_again_by_itself(crowded):
    log, files, clock = crowded
    clock.advance(700)
    log._context.scheduler.run_due()
    assert (log.durable_offset, log.needs_reopen) == (0, False)
    clock.advance(1_000)
    log._context.scheduler.run_due()
    assert log.durable_offset == 0
    files.heal()
    clock.advance(1_000)
    log._context.scheduler.run_due()
    assert log.durable_offset == 5
