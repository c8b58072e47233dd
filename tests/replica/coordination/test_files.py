"""What is particular to a coordinator in files. 3 s."""

from __future__ import annotations

import errno
import logging
import shutil
import sys
import threading
import time

import pytest

from logstore.errors import ForkedError, LogstoreError, StorageError, UsageError
from logstore.files import OsFiles
from logstore.replica.coordination.files import FileCoordinator, FileTree
from logstore.replica.coordination.registering import NodeRecord, begin_life
from logstore.testing import MemoryFiles
from tests.partition.helpers import in_child
from tests.replica.coordination.places import SESSION_MS, Disk, eventually, register


@pytest.fixture
def open_one(tmp_path):
    opened = []

    def open_one(**options):
        opened.append(FileCoordinator(tmp_path / "c", **{"session_ms": SESSION_MS, **options}))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.mark.parametrize("address", ["zookeeper://localhost:2181/kafka", "zookeper://localhost"])
def test_an_address_is_no_directory(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"'{address}' is no directory; for ZooKeeper, give a ZooKeeperCoo"):
        FileCoordinator(address)
    assert not list(tmp_path.iterdir())


class SlowClock:
    """One that a test makes late; the system's otherwise."""

    def __init__(self):
        self.late_ms = 0

    def now_ms(self):
        return time.time_ns() // 1_000_000

    def monotonic_ms(self):
        return time.monotonic_ns() // 1_000_000 + self.late_ms


def test_a_lease_that_has_run_out_comes_back_by_a_change(open_one):
    """The sign of life may have come too late for who is about to close the session."""
    clock = SlowClock()
    coordinator = open_one(clock=clock)
    session = register(coordinator, 1)
    log = coordinator._tree._log
    before = log.image.number
    time.sleep(SESSION_MS / 1000)
    assert log.image.number == before  # signs of life that are in time are no changes
    with coordinator._tree._lock:
        clock.late_ms += SESSION_MS * 4 // 5
        assert not session.has_lease
        time.sleep(SESSION_MS / 4000)
        assert not session.has_lease  # it was not confirmed yet
    eventually(lambda: session.has_lease)
    assert log.image.number == before + 1


def test_the_clock_is_looked_at_before_the_sign_of_life(open_one):
    """Else somebody could close a session because of a sign that was replaced within the lease."""
    clock = SlowClock()

    class Late(OsFiles):
        def open(self, path, **options):
            if path.endswith(".sign"):  # it was stopped between its two looks
                clock.late_ms = 10 * SESSION_MS
            return super().open(path, **options)

    here = open_one()
    session = register(here, 1)
    tree = FileTree(here._tree.name, SESSION_MS, Late(), clock)  # without its threads
    tree.bury()
    assert clock.late_ms
    assert len(tree._log.image.sessions) == 1
    assert session.has_lease
    tree.bury()
    assert not tree._log.image.sessions
    eventually(lambda: session.is_lost)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_directory_that_is_gone_ends_the_lease(open_one, tmp_path, how):
    coordinator = open_one()
    lost = threading.Event()
    disk = Disk()
    session = coordinator.register(disk.node(1), disk.remember, on_lost=lost.set)
    if how == "removed":
        shutil.rmtree(tmp_path / "c")
    else:
        (tmp_path / "c").rename(tmp_path / "d")
        FileCoordinator(tmp_path / "c").close()
    assert lost.wait(20)
    assert not session.has_lease


def test_nobody_makes_a_directory_again_that_was_moved_away(open_one, tmp_path):
    coordinator, disk = open_one(), Disk()
    session = coordinator.register(disk.node(1), disk.remember)
    (tmp_path / "c").rename(tmp_path / "away")
    eventually(lambda: session.is_lost)
    with pytest.raises(LogstoreError):
        coordinator.register(disk.node(1), disk.remember)
    assert not (tmp_path / "c").exists()
    (tmp_path / "away").rename(tmp_path / "c")
    again = coordinator.register(disk.node(1), disk.remember)
    eventually(lambda: [*coordinator.view.registrations.values()] == [again.registration])
    assert again.has_lease


def test_who_reads_the_log_is_told_what_to_do_about_a_directory_that_is_gone(open_one, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    coordinator, disk = open_one(), Disk()
    coordinator.register(disk.node(1), disk.remember)
    (tmp_path / "c").rename(tmp_path / "away")
    eventually(lambda: "cannot be used" in caplog.text)
    (told,) = [each.getMessage() for each in caplog.records if "cannot be used" in each.getMessage()]
    assert str(tmp_path / "c") in told
    assert "Put back what was there: until then this process leads nothing" in told
    assert "logstore serve --config FILE --new-cluster" in told
    assert "can be used again" not in caplog.text
    (tmp_path / "away").rename(tmp_path / "c")
    eventually(lambda: f"the coordinator {tmp_path / 'c'} can be used again" in caplog.text)


def test_it_works_where_there_are_no_watches(open_one):
    class Unwatched(OsFiles):
        def watch(self, directories):
            raise StorageError(errno.ENOSYS, "no watches", directories[0])

    here, there = open_one(files=Unwatched()), open_one(files=Unwatched())
    session = register(here, 1)
    eventually(lambda: 1 in there.view.living)
    session.close()
    eventually(lambda: 1 not in there.view.living)


def test_where_nothing_happens_little_is_looked_at(open_one):
    """But for whether others live. Costs 3 s."""

    class Counted(OsFiles):
        def is_locked(self, path):
            looks.append("lock")
            return super().is_locked(path)

        def list_directory(self, path):
            looks.append("directory")
            return super().list_directory(path)

        def open(self, path, **options):
            looks.append(path.rpartition(".")[2])
            return super().open(path, **options)

    looks = []
    here, there = open_one(files=Counted(), session_ms=4_000), open_one(session_ms=4_000)
    session = register(there, 1)
    eventually(lambda: 1 in here.view.living)
    looks.clear()
    eventually(lambda: looks.count("lock") >= 30)
    assert looks.count("directory") <= 10
    assert looks.count("sign") <= 5
    session.close()
    eventually(lambda: 1 not in here.view.living)


def test_it_works_in_memory(tmp_path):
    files = MemoryFiles()
    with_others = [FileCoordinator("/c", files=files) for _ in range(2)]
    register(with_others[0], 1)
    eventually(lambda: 1 in with_others[1].view.living)
    for each in with_others:
        each.close()
    assert not files.list_directory("/c/sessions")


def test_a_forked_child_is_told_to_open_its_own(open_one):
    coordinator = open_one()
    session = register(coordinator, 1)

    def use():
        for call in (
            lambda: coordinator.read_state(("t", 0)),
            lambda: register(coordinator, 1),
            session.try_to_control,
            session.leave,
            session.close,
        ):
            with pytest.raises(ForkedError):
                call()
        coordinator.close()

    with coordinator._tree._lock:  # which the child then finds held
        assert in_child(use) == "None"
    assert session.has_lease
    session.leave()


def test_wrong_arguments_are_named(tmp_path, open_one):
    for wrong in (
        lambda: FileCoordinator(""),
        lambda: open_one(session_ms=10),
        lambda: open_one(cluster_id=""),
        lambda: register(open_one(), -1),
        lambda: open_one().watch(None),
    ):
        with pytest.raises(UsageError):
            wrong()


def test_files_that_are_locked_are_told_apart(tmp_path):
    files, path = OsFiles(), str(tmp_path / "lock")
    assert not files.is_locked(path)
    lock = files.lock(path)
    assert files.is_locked(path)
    lock.check()  # to ask did not give it away
    lock.release()
    assert not files.is_locked(path)
    memory = MemoryFiles()
    assert not memory.is_locked("/lock")
    lock = memory.lock("/lock")
    assert memory.is_locked("/lock")
    lock.release()
    assert not memory.is_locked("/lock")


def test_a_directory_in_memory_does_not_replace_one_that_is_not_empty():
    for files, root in ((MemoryFiles(), "/"),):
        for name in "ab":
            files.make_directory(f"{root}{name}")
        files.open(f"{root}b/file", create=True).close()
        with pytest.raises(StorageError) as caught:
            files.rename(f"{root}a", f"{root}b")
        assert caught.value.errno == errno.ENOTEMPTY
        files.rename(f"{root}b", f"{root}a")


@pytest.mark.parametrize(
    ("disk_id", "last_life", "is_whole", "expected"),
    [
        ("d", 5, True, (2, 1, 0)),
        ("d", 5, False, (9, 1, 0)),
        ("d", 7, True, (2, 1, 0)),  # a life that never began
        ("d", 4, True, (9, 9, 9)),
        ("e", 5, True, (9, 9, 9)),
        ("e", 0, False, (9, 9, 9)),
    ],
)
def test_what_a_node_has_kept(disk_id, last_life, is_whole, expected):
    node = Disk(disk_id).node(1, is_whole=is_whole)._replace(last_life=last_life)
    whole_since, durable_since, disk_since = expected
    found = begin_life(NodeRecord(5, 2, 1, "d"), node, 9)
    assert found == (9, whole_since, durable_since, disk_id, disk_since)


def test_a_damaged_disk_has_kept_nothing_for_sure():
    node = Disk("d").node(1, is_whole=False)._replace(last_life=5, keeps_flushed=False)
    assert begin_life(NodeRecord(5, 2, 1, "d"), node, 9) == (9, 9, 9, "d", 0)


def test_without_kazoo_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("kazoo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "logstore.replica.coordination.zookeeper", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ImportError, match=r"embedded-logstore\[zookeeper\]"):
        import logstore.replica.coordination.zookeeper  # noqa: F401
