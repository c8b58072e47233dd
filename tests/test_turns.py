from __future__ import annotations

import signal
import threading
import time
from types import SimpleNamespace

import pytest

import logstore
from logstore.config import StoreConfig
from logstore.errors import ClosedError, StorageError
from logstore.files import OsFile, OsFiles
from logstore.logdir import open_logs, upkeep
from logstore.logdir.upkeep import for_each
from logstore.partition.state.home import LogHome
from logstore.turns import Bell, OtherThreads, take_turns


class ItemError(Exception):
    pass


def fail_at(*numbers):
    done = []

    def action(number):
        done.append(number)
        if number in numbers:
            raise ItemError(number)

    return action, done


@pytest.mark.parametrize("at_a_time", [1, 3, 50])
def test_all_are_done_and_the_first_failure_is_raised(at_a_time):
    action, done = fail_at(3, 7)
    with pytest.raises(ItemError, match="3"):
        take_turns(action, range(20), at_a_time=at_a_time)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_closed_logs_do_not_count(at_a_time):
    writer = SimpleNamespace(check_not_within=lambda flushes: None)
    logs = [SimpleNamespace(number=number, writer=writer) for number in range(5)]

    def action(log):
        if log.number:
            raise ClosedError("x")

    for_each(action, logs, at_a_time=at_a_time)
    for_each(action, [], at_a_time=at_a_time)


def test_so_many_are_done_at_a_time():
    together = threading.Barrier(4, timeout=20)
    take_turns(lambda _: together.wait(), range(8), at_a_time=4)


def test_one_at_a_time_stays_in_this_thread():
    threads = set()
    take_turns(lambda _: threads.add(threading.current_thread()), range(8))
    assert threads == {threading.current_thread()}


def test_where_no_thread_can_be_had_all_are_done_all_the_same(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    action, done = fail_at()
    take_turns(action, range(5), at_a_time=4)
    assert done == list(range(5))


def test_an_interrupt_leaves_the_rest_and_waits_for_those_who_are_busy():
    here = threading.current_thread()
    is_busy, ended = threading.Event(), []

    def action(number):
        if threading.current_thread() is here:
            assert is_busy.wait(20)
            raise KeyboardInterrupt
        is_busy.set()
        time.sleep(0.2)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        take_turns(action, range(100), at_a_time=2)
    assert len(ended) == 1


@pytest.fixture
def interruptible():
    """Whatever others have made of Ctrl-C in this process, as Spark does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_the_waiting_comes_when_all_are_done():
    here = threading.current_thread()
    ended = []

    def action(number):
        if threading.current_thread() is here:
            return
        time.sleep(0.1)  # until the other one waits
        for _ in range(3):
            signal.pthread_kill(here.ident, signal.SIGINT)
            time.sleep(0.1)
        ended.append(number)

    def take_one(number):
        if threading.current_thread() is here:
            assert is_busy.wait(20)
        else:
            is_busy.set()
        action(number)

    is_busy = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        take_turns(take_one, range(2), at_a_time=2)
    assert len(ended) == 1


@pytest.mark.usefixtures("interruptible")
def test_impatience_does_not_leave_other_threads_at_work():
    """A second interrupt comes while the first one waits for them."""
    here = threading.current_thread()
    done = []

    def action(number):
        for _ in range(3):
            signal.pthread_kill(here.ident, signal.SIGINT)
            time.sleep(0.05)
        done.append(number)

    def act_beside():
        with OtherThreads(1, "beside") as threads:
            for begun in [threads.submit(action, number) for number in range(10)]:
                begun.result()

    with pytest.raises(KeyboardInterrupt):
        act_beside()
    assert done == [0]


@pytest.mark.usefixtures("interruptible")
def test_an_open_that_is_interrupted_twice_has_its_directory_until_nobody_changes_it(tmp_path, monkeypatch):
    store = logstore.open(tmp_path)
    for log in store.create_topic("t", partitions=4):
        log.extend([b"v"])
    store._directory.abandon()
    here, load, release = threading.current_thread(), open_logs.open_log, LogHome.release
    busy, released = [], []

    def load_slowly(*args, **options):
        busy.append(1)
        for _ in range(3):
            signal.pthread_kill(here.ident, signal.SIGINT)
            time.sleep(0.05)
        log = load(*args, **options)
        busy.pop()
        return log

    def note_release(home):
        released.append(len(busy))
        release(home)

    with monkeypatch.context() as patch:
        patch.setattr(open_logs, "open_log", load_slowly)
        patch.setattr(LogHome, "release", note_release)
        with pytest.raises(KeyboardInterrupt):
            logstore.open(tmp_path)
    assert released == [0]
    with logstore.open(tmp_path) as store:
        assert len(store["t"]) == 4


# The store on the machine's own disk -----------------------------------------------------------------------


@pytest.fixture
def together(monkeypatch):
    """Lets no flush of a file return before another one of the same kind has begun, while it is armed."""
    waiting = {}

    def arm(*suffixes):
        waiting.clear()
        waiting.update({suffix: threading.Barrier(2, timeout=20) for suffix in suffixes})

    flush = OsFile.flush

    def flush_together(self):
        for suffix, barrier in waiting.items():
            if self.path.endswith(suffix):
                barrier.wait()
        flush(self)

    monkeypatch.setattr(OsFile, "flush", flush_together)
    return arm


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store", config=StoreConfig(linger_ms=60_000)) as store:
        store.create_topic("t", partitions=2)
        yield store


def append_to_both(store):
    for number in range(2):
        store["t"][number].append(b"x")


@pytest.mark.parametrize(
    "flush",
    [
        lambda store: store.flush(),
        lambda store: store["t"].flush(),
        lambda store: store.checkpoint(),
        lambda store: store.close(),
        lambda store: store["t"].extend([(b"%d" % key, b"x") for key in range(20)], flush=True),
    ],
    ids=["store", "topic", "checkpoint", "close", "extend"],
)
def test_logs_are_flushed_at_the_same_time(store, together, monkeypatch, flush):
    monkeypatch.setattr(upkeep, "WORTH_THREADS_SECONDS", -1)
    append_to_both(store)
    together(".log")
    flush(store)
    together()
    path = store.path
    store.close()
    with logstore.open(path) as store:
        assert store.was_clean
        assert all(list(log.read()) for log in store["t"])


def test_partitions_are_made_at_the_same_time(store, together):
    together("partition.metadata.tmp", ".snapshot.tmp")
    store.create_topic("more", partitions=2)
    together()
    append_to_both(store)
    assert [len(list(log.read())) for log in store["t"]] == [1, 1]


def test_a_flush_that_fails_leaves_the_others_flushed(store, monkeypatch):
    flush = OsFile.flush

    def refuse(self):
        if "/t-0/" in self.path and self.path.endswith(".log"):
            raise StorageError(5, "no", self.path)
        flush(self)

    append_to_both(store)
    monkeypatch.setattr(OsFile, "flush", refuse)
    with pytest.raises(StorageError, match="/t-0/"):
        store.flush()
    monkeypatch.undo()
    assert store["t"][1].durable_offset == 1
    assert store["t"][0].needs_reopen
    store["t"].reopen(0)


def test_short_flushes_stay_in_this_thread_and_long_ones_do_not(store, monkeypatch):
    def threads_of_a_flush():
        append_to_both(store)
        threads.clear()
        store.flush()
        return len(threads)

    flush, threads = OsFile.flush, set()

    def flush_slowly(self):
        threads.add(threading.get_ident())
        time.sleep(0.05)
        flush(self)

    store.flush()
    monkeypatch.setattr(upkeep, "WORTH_THREADS_SECONDS", 0.05)
    monkeypatch.setattr(OsFile, "flush", flush_slowly)
    assert threads_of_a_flush() == 1  # nobody knows yet how long it takes
    assert threads_of_a_flush() == 2
    monkeypatch.setattr(OsFile, "flush", lambda self: (threads.add(threading.get_ident()), flush(self)))
    threads_of_a_flush()
    assert threads_of_a_flush() == 1


def test_other_disks_than_the_machines_are_flushed_in_order(tmp_path, monkeypatch):
    class OwnFiles(OsFiles):
        pass

    with logstore.open(tmp_path / "store", files=OwnFiles(), config=StoreConfig(linger_ms=60_000)) as store:
        store.create_topic("t", partitions=4)
        for log in store["t"]:
            log.append(b"x")
        flushed_by = []
        flush = OsFile.flush
        monkeypatch.setattr(
            OsFile, "flush", lambda self: (flushed_by.append(threading.current_thread()), flush(self))
        )
        store.flush()
        assert set(flushed_by) == {threading.current_thread()}


def test_a_bell_wakes_once_however_often_it_rang():
    bell = Bell()
    assert not bell.wait(0)
    threads = [threading.Thread(target=bell.ring) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bell.wait(0)
    assert not bell.wait(0)


def test_a_bell_wakes_who_waits():
    bell, woken = Bell(), []
    thread = threading.Thread(target=lambda: woken.append(bell.wait(10)))
    thread.start()
    bell.ring()
    thread.join()
    assert woken == [True]
