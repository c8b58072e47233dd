"""Opening, closing, locking, clean stops and crashes of a store."""

import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ClosedError, LockedError, RetriableError
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles
from tests.logdir.helpers import (
    Child,
    CountingFiles,
    QuickFiles,
    crash,
    names_in,
    open_store,
    run_python,
    values,
)

MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


def fill(store, partitions=4, count=100):
    topic = store.require_topic("t", partitions=partitions, config=TopicConfig(segment_bytes=20_000))
    for log in topic:
        for _ in range(count):
            log.extend([b"v" * 100] * 10)
    return topic


# After close ------------------------------------------------------------------------------------------------

STORE_USES = {
    "getitem": lambda store: store["t"],
    "get": lambda store: store.get("t"),
    "in": lambda store: "t" in store,
    "iter": list,
    "len": len,
    "items": lambda store: list(store.items()),
    "create_topic": lambda store: store.create_topic("u"),
    "require_topic": lambda store: store.require_topic("t"),
    "delete_topic": lambda store: store.delete_topic("t"),
    "flush": lambda store: store.flush(),
    "checkpoint": lambda store: store.checkpoint(),
    "enforce_retention": lambda store: store.enforce_retention(),
    "run_background": lambda store: store.run_background(),
    "compact": lambda store: store.compact(),
    "cleaner": lambda store: store.cleaner,
}
TOPIC_USES = {
    "getitem": lambda topic: topic[0],
    "len": len,
    "iter": list,
    "config": lambda topic: topic.config,
    "topic_id": lambda topic: topic.topic_id,
    "append": lambda topic: topic.append(b"v"),
    "extend": lambda topic: topic.extend([b"v"]),
    "flush": lambda topic: topic.flush(),
    "configure": lambda topic: topic.configure(retention_ms=5),
    "add_partitions": lambda topic: topic.add_partitions(9),
    "reopen": lambda topic: topic.reopen(0),
    "partition_for": lambda topic: topic.partition_for(b"k"),
    "compact": lambda topic: topic.compact(),
}
LOG_USES = {
    "append": lambda log: log.append(b"v"),
    "extend": lambda log: log.extend([b"v"]),
    "read": lambda log: list(log.read()),
    "fetch": lambda log: log.fetch(0),
    "follow": lambda log: list(log.follow(timeout=0)),
    "flush": lambda log: log.flush(),
    "checkpoint": lambda log: log.checkpoint(),
    "roll": lambda log: log.roll(),
    "truncate_to": lambda log: log.truncate_to(0),
    "delete_before": lambda log: log.delete_before(0),
    "enforce_retention": lambda log: log.enforce_retention(),
    "log_end_offset": lambda log: log.log_end_offset,
    "offset_at": lambda log: log.offset_at(5),
    "compact": lambda log: log.compact(),
    "dirtiness": lambda log: log.dirtiness(),
}


@pytest.mark.parametrize("use", STORE_USES.values(), ids=STORE_USES)
def test_a_closed_store_refuses(path, use):
    store = open_store(path)
    store.create_topic("t")
    store.close()
    with pytest.raises(ClosedError):
        use(store)


@pytest.mark.parametrize("use", TOPIC_USES.values(), ids=TOPIC_USES)
def test_a_topic_of_a_closed_store_refuses(path, use):
    store = open_store(path)
    topic = store.create_topic("t")
    store.close()
    with pytest.raises(ClosedError):
        use(topic)


@pytest.mark.parametrize("use", LOG_USES.values(), ids=LOG_USES)
def test_a_log_of_a_closed_store_refuses(path, use):
    store = open_store(path)
    log = store.create_topic("t")[0]
    store.close()
    with pytest.raises(ClosedError):
        use(log)


def test_a_closed_store_can_be_shown_and_closed_again(path):
    store = open_store(path)
    store.close()
    store.close()
    assert "ClosedError" in repr(store)
    assert (store.path, store.is_read_only, store.damaged) == (str(path), False, {})


def test_an_error_in_the_with_block_closes_the_store_and_goes_on(path):
    with contextlib.suppress(ZeroDivisionError), open_store(path) as store:
        store.create_topic("t").append(b"v")
        _ = 1 / 0
    with open_store(path) as store:
        assert store.was_clean
        assert values(store["t"][0]) == [b"v"]


def test_closing_writes_what_still_gathers(path):
    with open_store(path, config=StoreConfig(linger_ms=1_000_000)) as store:
        store.create_topic("t").append(b"v")
    with open_store(path) as store:
        assert values(store["t"][0]) == [b"v"]


def test_closing_stops_the_background_thread(path):
    store = open_store(path, clock=None)
    thread = store._directory.context.scheduler._thread
    assert thread.is_alive()
    store.close()
    assert not thread.is_alive()


# The lock ---------------------------------------------------------------------------------------------------


def test_a_second_open_in_the_same_process_is_refused(path):
    with open_store(path) as store:
        with pytest.raises(LockedError, match="this process"):
            open_store(path)
        store.create_topic("t").append(b"v", flush=True)  # the first one goes on, and holds the lock
        with pytest.raises(RetriableError):
            open_store(path)


def test_a_second_open_through_another_name_of_the_directory_is_refused(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    with open_store(path), pytest.raises(LockedError):
        open_store(tmp_path / "link")


def test_closing_lets_go_of_the_lock(path):
    open_store(path).close()
    open_store(path).close()


HOLDER = """
import sys, logstore
store = logstore.open(sys.argv[1])
print("open")
sys.stdin.readline()
"""


def test_an_open_by_another_process_is_refused_and_it_is_named(path):
    with Child(HOLDER, path) as holder:
        assert holder.hear() == "open"
        with pytest.raises(LockedError, match=rf"process {holder.pid}\b.*read_only=True"):
            open_store(path)
        with open_store(path, read_only=True) as reader:
            assert list(reader) == []
        holder.kill()
    open_store(path).close()  # the system let go of a dead process's lock


def test_two_stores_of_one_process_live_side_by_side(tmp_path):
    with open_store(tmp_path / "a") as a, open_store(tmp_path / "b") as b:
        a.create_topic("t").append(b"a")
        b.create_topic("t").append(b"b")
        assert (values(a["t"][0]), values(b["t"][0])) == ([b"a"], [b"b"])


def test_a_partition_of_an_open_store_cannot_be_opened_alone(path):
    with open_store(path) as store:
        store.create_topic("t")
        with pytest.raises(logstore.UsageError, match="belongs to the store around it"):
            logstore.Log.open(str(path / "t-0"))


# Clean stop -------------------------------------------------------------------------------------------------


def test_the_marker_is_there_only_between_a_clean_stop_and_the_next_open(path):
    store = open_store(path)
    assert MARKER not in names_in(path)
    store.close()
    assert MARKER in names_in(path)
    store = open_store(path)
    assert (store.was_clean, MARKER in names_in(path)) == (True, False)
    crash(store)
    with open_store(path) as store:
        assert not store.was_clean


def test_the_removal_of_the_marker_is_durable_before_anything_is_opened(path):
    """Could a power cut bring it back, the next open would trust a log that nobody closed."""
    with open_store(path) as store:
        fill(store, count=1)
    calls = []

    class Recorded(QuickFiles):
        def remove(self, path):
            calls.append(("remove", os.path.basename(path)))
            super().remove(path)

        def flush_directory(self, path):
            calls.append(("flush", os.path.basename(path)))

        def open(self, path, *, write=False, create=False):
            if path.endswith(".log"):
                calls.append(("open", "log"))
            return super().open(path, write=write, create=create)

    open_store(path, files=Recorded()).close()
    removed = calls.index(("remove", MARKER))
    assert calls[removed + 1] == ("flush", "store")
    assert ("open", "log") not in calls[: removed + 1]


def test_the_marker_is_the_last_thing_that_a_close_writes(path):
    written = []

    class Recorded(QuickFiles):
        def open(self, path, *, write=False, create=False):
            if write or create:
                written.append(os.path.basename(path))
            return super().open(path, write=write, create=create)

    with open_store(path, files=Recorded()) as store:
        fill(store, count=1)
    assert written[-1] == MARKER


def test_after_a_clean_stop_next_to_nothing_is_read(path):
    with open_store(path) as store:
        topic = store.create_topic("t", partitions=4)
        for log in topic:
            for _ in range(100):
                log.extend([b"v" * 1_000] * 10)
    files = CountingFiles()
    with open_store(path, files=files) as store:
        assert store.was_clean
        assert all(log.recovery.scanned_bytes <= 20_000 for log in store["t"])
        assert sum(log.size_bytes for log in store["t"]) > 4_000_000
    assert files.log_counts["read_bytes"] <= 4 * 100_000


def opened_by(path, topic):
    """How many files of the topic's partition an open and a close of the store open."""
    seen = []

    class Opens(QuickFiles):
        def open(self, path, *, write=False, create=False):
            seen.append(path)
            return super().open(path, write=write, create=create)

    with open_store(path, files=Opens()) as store:
        assert store.was_clean
    return sum(f"/{topic}-0/" in each for each in seen)


def test_a_clean_open_costs_the_same_however_many_segments_there_are(path):
    with open_store(path) as store:
        for name, count in (("few", 2), ("many", 60)):
            log = store.create_topic(name, config=TopicConfig(segment_bytes=1_000))[0]
            log.extend([b"v" * 400] * count)
        assert store["many"][0].segment_count > 20
    assert opened_by(path, "many") == opened_by(path, "few") <= 12


# Recovery ---------------------------------------------------------------------------------------------------


def test_after_a_crash_everything_that_was_written_is_there(path):
    store = open_store(path)
    fill(store)
    crash(store)
    with open_store(path) as store:
        assert not store.was_clean
        assert [log.log_end_offset for log in store["t"]] == [1000] * 4


def test_progress_is_told_once_for_each_partition_in_order_with_the_total(path):
    store = open_store(path)
    fill(store, partitions=12, count=5)
    crash(store)
    told = []
    open_store(path, on_progress=told.append).close()
    assert [each.done_count for each in told] == list(range(1, 13))
    assert {each.total_count for each in told} == {12}
    assert [each.partition for each in told] == [TopicPartition("t", number) for number in range(12)]
    assert all(each.report.recovered_segments >= 1 for each in told)


def test_progress_names_a_partition_that_cannot_be_opened(path):
    with open_store(path) as store:
        fill(store, partitions=3, count=1)
    for file in (path / "t-1").iterdir():
        file.unlink()
    (path / "t-1").rmdir()
    told = []
    open_store(path, on_progress=told.append).close()
    assert [each.report is None for each in told] == [False, True, False]


def test_an_error_in_the_progress_callback_ends_the_open_and_lets_go_of_the_lock(path):
    open_store(path).close()
    with open_store(path) as store:
        fill(store, count=1)

    def fail(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        open_store(path, on_progress=fail)
    with open_store(path) as store:
        assert len(store["t"]) == 4


def test_an_interrupt_waits_for_the_recoveries_under_way_and_begins_no_others(path):
    store = open_store(path)
    fill(store, partitions=12, count=1)
    crash(store)
    seen = set()

    class Slow(QuickFiles):
        def list_directory(self, path):
            if path.rpartition("/")[2].startswith("t-"):
                seen.add(path)
                time.sleep(0.005)
            return super().list_directory(path)

    def interrupt(_):
        seen.clear()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_store(path, clock=None, files=Slow(), on_progress=interrupt)
    assert len(seen) <= 4
    open_store(path).close()


def test_recovery_works_on_several_partitions_at_a_time(path):
    store = open_store(path)
    fill(store, partitions=4, count=1)
    crash(store)
    running, most = [], []

    class Slow(QuickFiles):
        def list_directory(self, path):
            if path.rpartition("/")[2].startswith("t-"):
                running.append(path)
                most.append(len(set(running)))
                time.sleep(0.01)
                running.remove(path)
            return super().list_directory(path)

    config = StoreConfig(num_recovery_threads_per_data_dir=3)
    open_store(path, clock=None, files=Slow(), config=config).close()
    assert max(most) in (2, 3)


@pytest.fixture
def hasty_threads():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_on_a_clock_set_by_hand_a_recovery_does_the_same_each_time_in_the_same_order():
    """A rule of the testing kit would not make the same state again."""
    orders = set()
    for _ in range(5):
        files = MemoryFiles()
        store = logstore.open("/s", files=files, clock=ManualClock())
        for log in store.create_topic("t", partitions=6):
            log.extend([b"v" * 100] * 50, flush=True)
        crash(store)
        begin = len(files.trace)
        crash(logstore.open("/s", files=files, clock=ManualClock()))
        steps = [(type(step).__name__, getattr(step, "path", None)) for step in files.trace[begin:]]
        orders.add(tuple(steps))
    assert len(orders) == 1


def test_a_recovered_store_needs_no_second_recovery(path):
    store = open_store(path)
    fill(store)
    crash(store)
    crash(open_store(path))
    told = []
    open_store(path, on_progress=told.append).close()
    assert sum(each.report.scanned_bytes for each in told) < 50_000


@pytest.mark.parametrize("opens", [logstore.open, logstore.Log.open])
def test_an_open_for_which_there_is_no_thread_lets_go_of_the_lock(path, opens, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RetriableError, match="no thread"):
            opens(path)
    opens(path).close()


def test_a_recovery_for_which_there_is_no_thread_can_be_tried_again(path, monkeypatch):
    store = logstore.open(path)
    store.create_topic("t", partitions=3)
    store["t"][2].append(b"v", flush=True)
    crash(store)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RetriableError, match="no thread can be started for the recovery"):
            logstore.open(path)
    with logstore.open(path) as store:
        assert [bytes(record.value) for record in store["t"][2]] == [b"v"]


class _TracedFiles(QuickFiles):
    """Notes what is created and when the lock goes; and does something while the marker is written."""

    def __init__(self):
        self.steps, self.action = [], None

    def open(self, path, *, write=False, create=False):
        if create:
            self.steps.append(path.rpartition("/")[2])
        return super().open(path, write=write, create=create)

    def flush_directory(self, path):
        action = self.action
        if action is not None and MARKER in self.steps:
            self.action = None
            action()
        super().flush_directory(path)

    def lock(self, path, *, timeout_ms=0):
        return _TracedLock(super().lock(path, timeout_ms=timeout_ms), self.steps)


class _TracedLock:
    def __init__(self, lock, steps):
        self._lock, self._steps = lock, steps

    def check(self):
        self._lock.check()

    def release(self):
        self._steps.append("released")
        self._lock.release()


@pytest.mark.parametrize("opens", [logstore.open, logstore.Log.open])
def test_of_two_threads_that_close_one_does_it_while_it_has_the_lock(path, opens):
    """The other one wrote the marker when the lock was gone, and another process could be writing."""
    files = _TracedFiles()
    opened = opens(path, files=files)
    other = threading.Thread(target=opened.close)
    files.action = lambda: (other.start(), time.sleep(0.05))
    opened.close()
    other.join()
    assert files.steps.count(MARKER) == 1
    assert files.steps[-2:] == [MARKER, "released"]


# The end of a program that has not closed its store ---------------------------------------------------------

APPEND = "import logstore, os, sys, threading, time; {}; log.append(b'1'); log.append(b'2'); {}"
OPENINGS = {
    "store": "store = logstore.open(sys.argv[1]); log = store.require_topic('t')[0]",
    "alone": "log = logstore.Log.open(sys.argv[1] + '/t-0')",
    "nobody holds the store": "log = logstore.open(sys.argv[1]).require_topic('t')[0]",
    "lz4": "store = logstore.open(sys.argv[1]); "
    "log = store.create_topic('t', config=logstore.TopicConfig(compression_type='lz4'))[0]",
    "a long linger": "store = logstore.open(sys.argv[1], config=logstore.StoreConfig(linger_ms=3_600_000)); "
    "log = store.require_topic('t')[0]",
}
ENDINGS = {
    "last line": "pass",
    "sys.exit": "sys.exit(3)",
    "exception": "1 / 0",
    "exit in a with": "exec('with store:\\n sys.exit()') if 'store' in globals() else None",
    "forked child": "os._exit(0) if os.fork() and os.wait() else sys.exit()",
}


def values_left(path):
    if (path / "t-0" / ".lock").exists():
        with Log.open(path / "t-0") as log:
            return values(log)
    with logstore.open(path, read_only=True) as store:
        return values(store["t"][0])


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
@pytest.mark.parametrize("ending", ["last line", "sys.exit", "exception", "exit in a with"])
def test_a_program_that_ends_writes_what_was_gathering(path, opening, ending):
    path.mkdir()
    run_python(APPEND.format(opening, ENDINGS[ending]), path, check=False)
    assert values_left(path) == [b"1", b"2"]


def test_a_program_waits_for_what_the_background_is_writing_as_it_ends(path):
    slow = (
        "write, begun = log.writer.core.write, threading.Event(); "
        "log.writer.core.write = lambda *what: (begun.set(), time.sleep(0.3), write(*what))[2]"
    )
    run_python(APPEND.format(f"{OPENINGS['store']}; {slow}", "begun.wait()"), path)
    assert values_left(path) == [b"1", b"2"]


def test_the_end_of_a_forked_child_writes_nothing(path):
    """Its parent ends without exit functions, as if killed: so whatever is there, the child wrote."""
    run_python(APPEND.format(OPENINGS["a long linger"], ENDINGS["forked child"]), path, check=False)
    assert values_left(path) == []


def test_what_cannot_be_written_at_the_end_is_told(path):
    refusing = "log.writer.core.write = lambda *_: (_ for _ in ()).throw(error)"
    error = "error = logstore.StorageError(28, 'no room', 'somewhere')"
    done = subprocess.run(
        [sys.executable, "-c", APPEND.format(OPENINGS["store"], f"{error}; {refusing}"), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "are lost at the end of the program: [Errno 28] no room: 'somewhere'" in done.stderr
    assert "Traceback" not in done.stderr
