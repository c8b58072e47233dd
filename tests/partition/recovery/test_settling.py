"""What an open after a crash makes durable, and what it leaves alone because it is durable already."""

import itertools
import struct
import threading
import time

import pytest

import logstore
from logstore import NewRecord, TopicConfig
from logstore.errors import StorageError
from logstore.files import OsFiles
from logstore.logdir import open_logs
from logstore.partition.writing.writer import LogWriter
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.operations import FlushFile, Truncate, Write
from tests.crash.partition import abandon, open_partition
from tests.partition.helpers_rules import values_of

LOG_PATH = f"/t-0/{0:020}.log"


NOTHING = [("FlushDirectory", "/t-0")] * 2
"""For the marker of a clean stop, and the checkpoints: the log's directory is a small store, too."""


def operations_on_the_log(done):
    """The kinds and paths, without those of the small store."""
    told = [(type(each).__name__, getattr(each, "path", "")) for each in done]
    return [
        each
        for each in told
        if not any(name in each[1] for name in ("lock", "checkpoint", "leader-epoch", "cleansh"))
    ]


@pytest.fixture
def files():
    """With a log of three records that a checkpoint has, whose writer has died."""
    found = MemoryFiles()
    log = open_partition(found)
    log.extend([b"a", b"b", b"c"])
    log.checkpoint()
    abandon(log)
    return found


def reopen(files, **options):
    """The log, and what opening it has changed."""
    done = []
    files.before = done.append
    log = open_partition(files, **options)
    files.before = None
    return log, operations_on_the_log(done)


def test_a_log_that_ends_at_its_checkpoint_is_not_touched(files):
    log, done = reopen(files)
    assert done == NOTHING
    assert not log.recovery.was_clean
    assert values_of(log) == [b"a", b"b", b"c"]
    assert log.durable_offset == 3


def test_the_first_append_comes_after_what_a_power_cut_may_have_left_behind_the_end(files):
    log, _ = reopen(files)
    done = []
    files.before = done.append
    log.extend([b"d"])
    on_log = [each for each in done if getattr(each, "path", "") == LOG_PATH]
    assert [type(each) for each in on_log] == [Truncate, FlushFile, Write]
    log.extend([b"e"])
    assert [type(each) for each in done if getattr(each, "path", "") == LOG_PATH][3:] == [Write]


@pytest.mark.parametrize("first", ["time", "append", "close"])
def test_that_is_done_in_the_background_unless_something_else_comes_first(files, first):
    clock = ManualClock()
    log, _ = reopen(files, clock=clock)
    done = []
    files.before = done.append
    if first == "append":
        log.extend([b"d"], flush=True)
    elif first == "close":
        log.close()
    log._context.scheduler.run_due()
    cuts = [each for each in done if isinstance(each, Truncate) and each.path == LOG_PATH]
    assert len(cuts) == 1


def test_a_second_crash_finds_nothing_to_do_either(files):
    log, _ = reopen(files)
    abandon(log)
    log, done = reopen(files)
    assert done == NOTHING
    log.extend([b"d"])
    log.close()
    assert values_of(open_partition(files)) == [b"a", b"b", b"c", b"d"]


def test_closing_it_stores_nothing_but_the_marker_if_its_end_was_cleared_before(files):
    clock = ManualClock()
    log, _ = reopen(files, clock=clock)
    log._context.scheduler.run_due()
    log.close()
    log = open_partition(files)  # a clean stop: the time index is closed
    log.close()
    log = open_partition(files)
    abandon(log)
    log, done = reopen(files)
    assert done == NOTHING
    assert log.offset_at(0) == 0
    assert values_of(log) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("name", [".snapshot", ".index", ".timeindex"])
@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_what_a_log_without_a_change_lacks_is_made_again(files, name, how):
    path = f"/t-0/{3 if name == '.snapshot' else 0:020}{name}"
    if how == "removed":
        files.remove(path)
    else:
        file = files.open(path, create=True)
        file.write_at(0, [b"garbage"])
        file.close()
    log, done = reopen(files)
    assert ("FlushFile", LOG_PATH) in done
    assert files.is_file(path)
    assert log.recovery.recovered_segments == 1
    abandon(log)
    assert reopen(files)[1] == NOTHING


def test_an_empty_log_needs_no_snapshot():
    files = MemoryFiles()
    abandon(open_partition(files))
    abandon(reopen(files)[0])
    log, done = reopen(files)
    assert done == NOTHING
    assert not any(each.name.endswith(".snapshot") for each in files.list_directory("/t-0"))
    assert log.verify().is_sound
    log.close()
    log = open_partition(files)
    assert log.recovery.was_clean
    log.append(b"x", flush=True)
    abandon(log)
    assert [each.value for each in reopen(files)[0].read(0)] == [b"x"]


@pytest.mark.parametrize("contents", [b"", b"garbage"])
def test_a_damaged_snapshot_of_an_empty_log_is_made_again(contents):
    files = MemoryFiles()
    abandon(open_partition(files))
    file = files.open(f"/t-0/{0:020}.snapshot", create=True)
    file.write_at(0, [contents])
    file.close()
    log, _ = reopen(files)
    assert files.size_bytes(f"/t-0/{0:020}.snapshot") > len(contents)
    assert log.verify().is_sound
    abandon(log)
    assert reopen(files)[1] == NOTHING


def test_garbage_in_the_time_index_of_an_empty_log_is_not_kept():
    files = MemoryFiles()
    abandon(open_partition(files))
    file = files.open(f"/t-0/{0:020}.timeindex", create=True)
    file.write_at(0, [struct.pack(">qi", -(2**61), -(2**30))])  # no batch contradicts it
    file.close()
    log, _ = reopen(files)
    assert log.verify().is_sound
    log.extend([b"a"])
    log.close()
    log = open_partition(files)
    assert log.verify().is_sound


def test_a_log_whose_flush_has_failed_is_written_anew_though_it_ends_at_its_checkpoint(files):
    files.open("/t-0/.failed-flush", create=True).close()
    log, done = reopen(files)
    assert ("Create", LOG_PATH + ".tmp") in done
    assert not files.is_file("/t-0/.failed-flush")
    assert values_of(log) == [b"a", b"b", b"c"]
    abandon(log)
    assert reopen(files)[1] == NOTHING


def test_a_log_that_goes_on_behind_its_checkpoint_is_flushed_once(files):
    log = open_partition(files)
    log.extend([b"d"])
    abandon(log)
    log, done = reopen(files)
    flushed = [path for kind, path in done if kind == "FlushFile"]
    assert flushed == [LOG_PATH, f"/t-0/{4:020}.snapshot.tmp"]
    assert log.durable_offset == 4
    abandon(log)
    assert reopen(files)[1] == NOTHING


def test_an_index_does_not_name_what_an_accepted_loss_has_cut_off(tmp_path):
    config = TopicConfig(index_interval_bytes=200)
    log = logstore.Log.open(tmp_path / "t-0", config=config)
    for number in range(20):
        log.extend([NewRecord(b"%03d" % number * 20, timestamp_ms=number)], flush=True)
    log.close()  # the last entry of the time index names the last batch
    log = logstore.Log.open(tmp_path / "t-0", config=config)
    abandon(log)
    path = tmp_path / "t-0" / f"{0:020}.log"
    contents = bytearray(path.read_bytes())
    contents[-5] ^= 1
    path.write_bytes(contents)
    log = logstore.Log.open(tmp_path / "t-0", config=config, accept_loss=True)
    assert log.log_end_offset == 19
    assert log.writer.core.active.time_index.last_entry.offset == 18
    assert log.writer.core.truncations.cuts == ((1, 19),)  # followers under way ask for it
    assert log.verify().is_sound


def test_on_a_slow_disk_several_logs_are_made_durable_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(open_logs, "flushed_at_a_time", lambda _: 4)
    monkeypatch.setattr(open_logs, "WORTH_THREADS_SECONDS", 0.0)
    store = logstore.open(tmp_path / "store")
    for log in store.create_topic("t", partitions=9):
        log.extend([b"v"])
    store._directory.abandon()
    settle, numbers, barrier = LogWriter.settle, itertools.count(), threading.Barrier(4)

    def wait_for_others(writer):
        if next(numbers):  # the first shows how long it takes
            barrier.wait(10)
        settle(writer)

    monkeypatch.setattr(LogWriter, "settle", wait_for_others)
    seen = []
    with logstore.open(tmp_path / "store", on_progress=seen.append) as store:
        assert [values_of(log) for log in store["t"]] == [[b"v"]] * 9
        assert [each.done_count for each in seen] == [*range(1, 10)]
        assert [each.partition.partition for each in seen] == [*range(9)]


@pytest.mark.parametrize("granted", [0, 1, 3])
def test_where_no_more_threads_are_to_be_had_those_there_are_do(tmp_path, monkeypatch, granted):
    monkeypatch.setattr(open_logs, "WORTH_THREADS_SECONDS", 0.0)
    store = logstore.open(tmp_path / "store")
    for log in store.create_topic("t", partitions=30):
        log.extend([b"v"])
    store._directory.abandon()
    start, numbers = threading.Thread.start, itertools.count()

    def refuse(thread):
        if thread.name.startswith("logstore-settle") and next(numbers) >= granted:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    settle = LogWriter.settle
    monkeypatch.setattr(LogWriter, "settle", lambda writer: time.sleep(0.002) or settle(writer))
    with logstore.open(tmp_path / "store") as store:
        assert not store.damaged
        assert [values_of(log) for log in store["t"]] == [[b"v"]] * 30
        assert [log.writer.unsettled for log in store["t"]] == [None] * 30
    assert next(numbers) > granted


def test_a_log_that_cannot_be_made_durable_is_damaged_and_the_others_work(tmp_path):
    store = logstore.open(tmp_path / "store")
    topic = store.create_topic("t", partitions=3)
    for log in topic:
        log.extend([b"v"])
    store._directory.abandon()
    files = RefusingFiles("/t-1/")
    with logstore.open(tmp_path / "store", files=files) as store:
        assert [str(partition) for partition in store.damaged] == ["t-1"]
        assert values_of(store["t"][0]) == values_of(store["t"][2]) == [b"v"]
        with pytest.raises(StorageError):
            store["t"][1]
        files.refused = "nothing"
        assert values_of(store["t"].reopen(1)) == [b"v"]


def test_a_store_clears_the_ends_of_its_logs_in_the_background():
    files, clock = MemoryFiles(), ManualClock()
    store = logstore.open("/store", files=files, clock=clock)
    for log in store.create_topic("t", partitions=3):
        log.extend([b"v"])
    store._directory.checkpoint()
    store._directory.abandon()
    done = []
    store = logstore.open("/store", files=files, clock=clock)
    files.before = done.append
    store._directory.context.scheduler.run_due()
    assert [type(each) for each in done] == [Truncate, FlushFile] * 3
    for log in store["t"]:
        log.extend([b"w"])
    assert [type(each) for each in done[6:]] == [Write] * 3


class RefusingFiles(OsFiles):
    def __init__(self, refused):
        self.refused = refused

    def open(self, path, *, write=False, create=False, private=False):
        if create and self.refused in path and ".snapshot" in path:
            raise StorageError(5, "Input/output error", path)
        return super().open(path, write=write, create=create, private=private)
