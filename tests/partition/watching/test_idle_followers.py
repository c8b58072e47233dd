"""Followers beside a writer, told of changes by the file system alone: what is not told hangs here, since the
look that would find it a second later is put off for an hour. The same stories for followers that are refused
a watch, that have one which tells nothing, and in memory."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import ClosedError, OffsetOutOfRangeError, UnknownTopicError
from logstore.files import OsFiles
from logstore.model import Isolation, ProducerIdentity, Role
from logstore.partition.watching import waiting
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.logdir.helpers import Child, QuickFiles

SMALL = TopicConfig(segment_bytes=600, file_delete_delay_ms=0)


class DeafFiles(OsFiles):
    """Watches that tell nothing, as where another machine writes."""

    def watch(self, directories):
        return DeafWatch()


class DeafWatch:
    def wait(self, timeout_ms):
        time.sleep(timeout_ms / 1000)
        return False

    def wake(self):
        pass

    def close(self):
        pass


def refusing(name):
    files = FaultyFiles(OsFiles())
    files.fail(FAULTS[name], times=None, kinds=["watch"])
    return files


DISKS = {
    "told": OsFiles,
    "too many instances": lambda: refusing("EMFILE"),
    "too many watches": lambda: refusing("ENOSPC"),
    "deaf": DeafFiles,
    "memory": MemoryFiles,
}


@pytest.fixture(params=DISKS)
def disk(request, monkeypatch):
    """The file system of the followers."""
    name = request.param
    if name == "told" and sys.platform != "linux":
        pytest.skip("nothing tells here")
    monkeypatch.setattr(waiting, "PATIENCE_MS", 0)
    if name in ("told", "memory"):
        monkeypatch.setattr(waiting, "SAFETY_MS", 3_600_000)
        monkeypatch.setattr("logstore.partition.reading.readable._MAX_WAIT_MS", 3_600_000)
        monkeypatch.setattr("logstore.inotify._RENEWED_SECONDS", 3_600.0)
    return DISKS[name]()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store")


@pytest.fixture
def writer(path, disk):
    files = disk if isinstance(disk, MemoryFiles) else QuickFiles()
    with logstore.open(path, files=files, clock=ManualClock()) as store:
        store.create_topic("t", partitions=2, config=SMALL)
        yield store


class Follower(threading.Thread):
    """Follows in a thread; an answer that never comes fails instead of hanging."""

    def __init__(self, path, disk, partition=0, **options):
        super().__init__(daemon=True)
        self.store = logstore.open(path, read_only=True, files=disk)
        self.following = self.store["t"][partition].follow(0, **options)
        self.seen, self.error = [], None
        self.changed = threading.Condition()
        self.start()

    def run(self):
        try:
            for record in self.following:
                self.note(record.value)
        except Exception as error:
            self.note(error=error)

    def note(self, value=None, error=None):
        with self.changed:
            self.error = error
            if error is None:
                self.seen.append(value)
            self.changed.notify_all()

    def sees(self, values):
        with self.changed:
            assert self.changed.wait_for(lambda: self.seen == values or self.error, 30), len(self.seen)
            assert self.seen == values, self.error

    def ends_with(self, kind):
        self.join(30)
        assert not self.is_alive()
        assert isinstance(self.error, kind), self.error
        self.store.close()


def test_every_step_of_a_writer_is_seen(writer, path, disk):
    followers = [[Follower(path, disk, number) for _ in range(2)] for number in range(2)]
    logs, expected = list(writer["t"]), [[], []]
    chance = random.Random(11)

    def append(number):
        values = [b"%d" % chance.randrange(10**6) + bytes(chance.randrange(200)) for _ in range(3)]
        logs[number].extend(values)
        expected[number].extend(values)

    def append_singly(number):
        value = b"single %d" % chance.randrange(10**6)
        logs[number].append(value)
        logs[number].writer.current_view()  # writes what gathers
        expected[number].append(value)

    steps = [append, append, append_singly, lambda number: logs[number].roll()]
    steps += [lambda number: logs[number].flush(), lambda number: writer.checkpoint()]
    for _ in range(60):
        number = chance.randrange(2)
        chance.choice(steps)(number)
        if chance.random() < 0.5:
            for follower in followers[number]:
                follower.sees(expected[number])
    for each, values in zip(followers, expected, strict=True):
        for follower in each:
            follower.sees(values)
            follower.store.close()
            follower.ends_with(ClosedError)


def test_records_that_become_durable(writer, path, disk):
    log = writer["t"][0]
    follower = Follower(path, disk, isolation=Isolation.DURABLE)
    for turn in range(3):
        log.extend([b"%d" % turn])
        log.flush()
        follower.sees([b"%d" % each for each in range(turn)])
        writer.checkpoint()
        follower.sees([b"%d" % each for each in range(turn + 1)])
    follower.store.close()
    follower.ends_with(ClosedError)


def test_records_that_become_replicated(writer, path, disk):
    log = writer["t"][0]
    log.set_role(Role.LEADER)
    follower = Follower(path, disk)
    for turn in range(3):
        log.extend([b"%d" % turn])
        log.update_high_watermark(turn + 1)
        writer.checkpoint()
        follower.sees([b"%d" % each for each in range(turn + 1)])
    follower.store.close()
    follower.ends_with(ClosedError)


def test_records_of_a_transaction_that_is_decided(writer, path, disk):
    log = writer["t"][0]
    follower = Follower(path, disk, isolation=Isolation.COMMITTED)
    for turn in range(3):
        producer = ProducerIdentity(1, 0, turn, True)
        log.extend([b"%d" % turn], producer=producer)
        follower.sees([b"%d" % each for each in range(turn)])
        log.append_end_marker(1, 0, committed=True)
        follower.sees([b"%d" % each for each in range(turn + 1)])
    follower.store.close()
    follower.ends_with(ClosedError)


def test_a_log_that_is_cut_below_its_followers(writer, path, disk):
    log = writer["t"][0]
    log.extend([b"x"] * 30)
    followers = [Follower(path, disk) for _ in range(2)]
    for follower in followers:
        follower.sees([b"x"] * 30)
    log.truncate_to(10)
    for follower in followers:
        follower.ends_with(OffsetOutOfRangeError)


def test_a_topic_that_is_deleted(writer, path, disk):
    followers = [Follower(path, disk) for _ in range(2)]
    writer["t"][0].extend([b"x"])
    for follower in followers:
        follower.sees([b"x"])
    writer.delete_topic("t")
    for follower in followers:
        follower.ends_with(UnknownTopicError)


def test_a_topic_that_is_deleted_and_made_again(writer, path, disk):
    follower = Follower(path, disk)
    writer["t"][0].extend([b"x"])
    follower.sees([b"x"])
    writer.delete_topic("t")
    writer.create_topic("t", partitions=2, config=SMALL)
    follower.ends_with(UnknownTopicError)


def test_a_follower_of_a_store_that_is_closed(writer, path, disk):
    followers = [Follower(path, disk, number) for number in range(2) for _ in range(2)]
    for log in writer["t"]:
        log.extend([b"x"])
    for follower in followers:
        follower.sees([b"x"])
        follower.store.close()
    for follower in followers:
        follower.ends_with(ClosedError)


WRITER = """
    import sys, logstore
    store = logstore.open(sys.argv[1], config=logstore.StoreConfig(linger_ms=5))
    topic = store.require_topic("t", config=logstore.TopicConfig(segment_bytes=2_000))
    print("ready")
    for line in sys.stdin:
        topic[0].append(line.encode().strip())
        print(topic[0].log_end_offset)
"""


@pytest.mark.parametrize("disk", ["told", "too many instances", "deaf"], indirect=True)
def test_a_writer_in_another_process_that_is_killed_and_followed_by_another(disk, path):
    follower, count = None, 0
    for _ in range(3):
        with Child(WRITER, path) as writer:
            assert writer.hear() == "ready"
            follower = follower or Follower(path, disk)
            for _ in range(20):
                writer.ask(f"{count}")
                count += 1
                follower.sees([b"%d" % each for each in range(count)])
            writer.kill()
    follower.store.close()
    follower.ends_with(ClosedError)


@pytest.mark.skipif(sys.platform != "linux", reason="nothing tells elsewhere")
def test_the_watch_goes_with_the_iterator(path, monkeypatch):
    """A loop that is left gives the system back what it took."""
    from logstore.inotify import _Instance

    monkeypatch.setattr(waiting, "PATIENCE_MS", 0)
    with logstore.open(path) as store, logstore.open(path, read_only=True) as reader:
        log = store.create_topic("t")[0]
        following = reader["t"][0].follow(0, timeout=10)

        def extend_once_it_watches():
            while _Instance.shared is None:
                time.sleep(0.001)
            log.extend([b"x"])

        thread = threading.Thread(target=extend_once_it_watches, daemon=True)
        thread.start()
        assert next(following).value == b"x"
        thread.join()
        assert _Instance.shared is not None
        del following
        assert _Instance.shared is None
        assert list(reader["t"][0].follow(timeout=0.02)) == []
        assert _Instance.shared is None


def test_a_program_that_ends_amid_a_follow_says_nothing(path):
    with logstore.open(path) as store:
        store.create_topic("t")[0].extend([b"x"])
    code = """
        import sys, threading, time, logstore
        store = logstore.open(sys.argv[1], read_only=True)
        waits = store["t"][0].follow(0)
        print(next(waits).value)
        threading.Thread(target=lambda: next(store["t"][0].follow()), daemon=True).start()
        print(list(store["t"][0].follow(timeout=0.1)))
        left = store["t"][0].follow(0, timeout=0.1)
        next(left), next(left, None)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), path], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'x'\n[]\n", "")
