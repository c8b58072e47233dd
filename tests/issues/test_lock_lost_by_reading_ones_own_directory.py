"""The lock was lost by reading one's own directory, and two writers shared a log.

A POSIX record lock is dropped when the process closes *any* descriptor of the file. After a backup in the
writer's own process (``shutil.copytree(d, d + ".backup")``) another process opened the store; both got the
same offsets acknowledged as durable, the records of one were gone, and nothing was called damaged. On Linux
the lock is bound to the open file now. Where there is no such lock, the writer takes its record lock once
more before it acknowledges anything as durable, and stands down if somebody else had it meanwhile. So it does
where ``.lock`` is removed or replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import pytest
from tests.partition.helpers import in_child
from tests.test_lock import HOLD_LOG, finish, run_python

import logstore
from logstore import lock as locks
from logstore.errors import FencedError, LockedError, LogstoreError
from logstore.files import OsFiles
from logstore.model import Role
from logstore.partition.log import Log
from logstore.testing.clock import ManualClock
from logstore.testing.memory import MemoryFiles

has_open_file_locks = pytest.mark.skipif(
    locks._TAKE_OPEN_FILE_LOCK is None, reason="this system has no locks of open files"
)
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

OTHER = """
    import sys, logstore
    try:
        with logstore.open(sys.argv[1]) as store:
            print(*store["t"][0].extend([b"theirs"] * 5, flush=True))
    except logstore.RetriableError as error:
        print(error)
"""


def other_writes(path):
    """What another process gets that opens the store and appends."""
    command = [sys.executable, "-c", textwrap.dedent(OTHER), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with logstore.open(path) as store:
        store.create_topic("t")[0].extend([b"v"] * 3, flush=True)
        yield store


# What a program does with its own files ---------------------------------------------------------------------


def pack(path):
    with tarfile.open(f"{path}.tar", "w") as archive:
        archive.add(path)


def grep(path):
    subprocess.run(["grep", "-r", "nothing", path], check=False)
    for directory, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                file.read()


def through_a_link(path):
    os.symlink(path, f"{path}.link")
    shutil.copytree(f"{path}.link", f"{path}.copy")


def run_children(path):
    open(path / ".lock").close()
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=str)
        child.start()
        child.join()
    subprocess.run([sys.executable, "-c", ""], check=True)
    subprocess.run([sys.executable, "-c", ""], check=True, close_fds=False)
    in_child(gc.collect)


READS = {
    "copy": lambda path: shutil.copytree(path, f"{path}.backup"),
    "open and close": lambda path: open(path / ".lock").close(),
    "open for writing and close": lambda path: open(path / ".lock", "r+").close(),
    "tar": pack,
    "search": grep,
    "copy through a symbolic link": through_a_link,
    "a reader": lambda path: logstore.open(path, read_only=True).close(),
    "children": pytest.param(run_children, marks=pytest.mark.slow),
}


def is_locked(path):
    """Whether another process, such as a broker, cannot take its record lock."""
    code = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-S", "-E", "-c", code, str(path / ".lock")]
    found = subprocess.run(command, capture_output=True, check=False)
    assert found.returncode == 0 or b"BlockingIOError" in found.stderr
    return found.returncode != 0


@has_open_file_locks
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_use_of_its_own_files_costs_the_writer_its_lock(store, path, read):
    read(path)
    assert is_locked(path)
    assert store["t"][0].extend([b"mine"] * 5, flush=True) == range(3, 8)


@pytest.mark.slow
@has_open_file_locks
def test_after_a_copy_another_writer_is_refused_by_name(store, path):
    shutil.copytree(path, f"{path}.backup")
    assert f"held by process {os.getpid()}" in other_writes(path)


@has_open_file_locks
def test_no_use_of_its_own_files_costs_a_log_alone_its_lock(path):
    with Log.open(path) as log:
        shutil.copytree(path, f"{path}.backup")
        assert is_locked(path)
        assert log.append(b"v", flush=True) == 0


def test_a_copy_of_an_open_store_is_another_store(store, path):
    shutil.copytree(path, f"{path}.backup")
    with logstore.open(f"{path}.backup") as copy:
        assert copy["t"][0].append(b"v", flush=True) == 3


def test_the_file_is_empty_when_nobody_holds_it(store, path):
    if locks._TAKE_OPEN_FILE_LOCK is not None:
        assert (path / ".lock").read_bytes().split()[0] == b"%d" % os.getpid()
    store.close()
    assert (path / ".lock").read_bytes() == b""


@has_open_file_locks
def test_a_process_that_is_gone_is_not_named_as_the_holder(path):
    """Another process, one of a broker for example, may hold the file that says who held it before."""
    path.mkdir()
    (path / ".lock").write_bytes(b"%d 0123456789abcdef\n" % os.getpid())
    code = """
        import fcntl, struct, sys
        file = open(sys.argv[1], "r+b")
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        print("ready", flush=True)
        sys.stdin.read()
    """
    holder = run_python(code, path / ".lock")
    with pytest.raises(LockedError, match=f"held by process {holder.pid}:"):
        logstore.open(path)
    finish(holder)
    logstore.open(path).close()


# Children that a library forks, without Python's knowledge --------------------------------------------------


FORKED_BY_A_LIBRARY = """
    import ctypes, os, sys
    from logstore.partition.log import Log
    log = Log.open(sys.argv[1])
    log.extend([b"x"])
    child = ctypes.PyDLL(None).fork()  # as no other thread may have the interpreter in the child
    if child == 0:
        os.close(1)
        sys.stdin.read()
        os._exit(0)
    if sys.argv[2] == "close":
        log.close()
    print("ready", flush=True)
    print(child, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@has_open_file_locks
def test_what_is_closed_is_free_though_such_a_child_lives_on(path):
    parent = run_python(FORKED_BY_A_LIBRARY, path, "close")
    parent.wait()
    with Log.open(path) as log:
        assert log.log_end_offset == 1
    finish(parent)


@pytest.mark.slow
@has_open_file_locks
def test_such_a_child_that_outlives_a_killed_parent_is_named(path):
    parent = run_python(FORKED_BY_A_LIBRARY, path, "kill")
    child = int(parent.stdout.readline())
    parent.wait()
    with pytest.raises(LockedError, match=f"held by process {child}:"):
        Log.open(path)
    finish(parent)
    wait_for_end_of(child)
    Log.open(path).close()


def wait_for_end_of(process):
    """Until it is gone, or dead and not yet asked for its result: only then has the system closed all its
    files."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in "ZX":
            return
        ctypes.CDLL(None).usleep(10_000)
    raise AssertionError(f"{process} does not end")


# Record locks, where there is nothing else ------------------------------------------------------------------


@pytest.fixture
def record_locks(monkeypatch):
    monkeypatch.setattr(locks, "_TAKE_OPEN_FILE_LOCK", None)


@pytest.fixture
def old_store(record_locks, path):
    """Nothing in its background looks whether it has the lock, and takes it again before another does."""
    config = logstore.StoreConfig(
        log_flush_offset_checkpoint_interval_ms=2**40, replica_high_watermark_checkpoint_interval_ms=2**40
    )
    store = logstore.open(path, config=config)
    store.create_topic("t")[0].extend([b"v"] * 3, flush=True)
    store.create_topic("u")
    yield store
    with contextlib.suppress(FencedError):
        store.close()


REFUSED = (
    lambda store: store["t"].append(b"mine"),
    lambda store: store["t"][0].extend([b"mine"]),
    lambda store: store["u"].append(b"mine", flush=True),
    lambda store: store["t"][0].flush(),
    lambda store: store.checkpoint(),
    lambda store: store.create_topic("new"),
    lambda store: store.delete_topic("u"),
    lambda store: store["u"].add_partitions(2),
    lambda store: store["u"].configure(retention_ms=5),
    lambda store: store["t"].reopen(0),
    lambda store: store["u"].reopen(0),
    lambda store: store["u"][0].truncate_fully_and_start_at(7),
    lambda store: store["t"][0].delete_before(2),
    lambda store: store["u"][0].delete_before(0) or store["u"][0].checkpoint(),
    lambda store: store.close(),
)


def contents(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def lose(store, path):
    """Two writers, as it was; this one has not noticed by now."""
    open(path / ".lock").close()
    assert other_writes(path) == "3 4 5 6 7\n"


def test_a_writer_that_has_lost_its_record_lock_acknowledges_nothing(old_store, path):
    lose(old_store, path)
    with pytest.raises(FencedError, match="taken by another process"):
        old_store["t"][0].extend([b"mine"] * 5, flush=True)
    with pytest.raises(FencedError):
        old_store.close()
    with logstore.open(path) as again:
        assert not again.damaged
        assert [record.value for record in again["t"][0]][:8] == [b"v"] * 3 + [b"theirs"] * 5


@pytest.mark.slow
def test_a_writer_that_has_lost_its_record_lock_changes_nothing(old_store, path):
    lose(old_store, path)
    before = contents(path)
    old_store["t"].append(b"lingers")
    with pytest.raises(FencedError):
        old_store["t"][0].flush()
    for use in REFUSED:
        with pytest.raises(FencedError, match=r"\.lock was let go"):
            use(old_store)
    assert contents(path) == before


@pytest.mark.slow
def test_a_writer_that_loses_its_record_lock_to_one_that_has_it_still(old_store, path):
    open(path / ".lock").close()
    holder = run_python(
        """
        import sys, logstore
        store = logstore.open(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.read()
        """,
        path,
    )
    with pytest.raises(FencedError, match="is held by another process"):
        old_store["t"][0].append(b"mine", flush=True)
    finish(holder)


def test_a_record_lock_that_nobody_took_meanwhile_is_taken_again(old_store, path):
    open(path / ".lock").close()
    assert old_store["t"][0].append(b"mine", flush=True) == 3
    assert is_locked(path)
    old_store.close()
    assert not is_locked(path)


@pytest.mark.slow
def test_a_log_alone_that_has_lost_its_record_lock(record_locks, path):
    log = Log.open(path)
    log.append(b"v", flush=True)
    open(path / ".lock").close()
    finish(run_python(HOLD_LOG, path))
    with pytest.raises(FencedError):
        log.append(b"mine", flush=True)
    with pytest.raises(FencedError):
        log.append(b"mine")
    with pytest.raises(FencedError):
        log.close()
    with Log.open(path) as log:
        assert [record.value for record in log.read()] == [b"v", b"x", b"x", b"x"]


@has_open_file_locks
def test_a_kernel_that_knows_no_locks_of_open_files_gives_a_record_lock(path, monkeypatch):
    monkeypatch.setattr(locks, "_TAKE_OPEN_FILE_LOCK", 9999)  # EINVAL, as before Linux 3.15
    with logstore.open(path) as store:
        store.create_topic("t").append(b"v", flush=True)
        inode = (path / ".lock").stat().st_ino
        with open("/proc/locks") as held:
            assert any("POSIX" in line and f":{inode} " in line for line in held)


# The file itself --------------------------------------------------------------------------------------------


def replace(path):
    shutil.copy(path / ".lock", path / "copy")
    os.replace(path / "copy", path / ".lock")


@pytest.mark.slow
@pytest.mark.parametrize(
    "lose", [lambda path: os.remove(path / ".lock"), replace], ids=["removed", "replaced"]
)
def test_a_writer_whose_lock_file_is_gone_stands_down(path, lose):
    store = logstore.open(path)
    log = store.create_topic("t")[0]
    log.extend([b"v"] * 3, flush=True)
    lose(path)
    assert other_writes(path) == "3 4 5 6 7\n"
    with pytest.raises(FencedError, match=r"\.lock was (removed|replaced)"):
        log.extend([b"mine"] * 5, flush=True)
    with pytest.raises(FencedError):
        store.close()
    with logstore.open(path) as again:
        assert [record.value for record in again["t"][0]] == [b"v"] * 3 + [b"theirs"] * 5


def test_a_lock_in_memory_is_lost_with_its_file():
    files = MemoryFiles()
    files.make_directory("/d")
    held = files.lock("/d/.lock")
    held.check()
    with pytest.raises(LockedError):
        files.lock("/d/.lock")
    files.remove("/d/.lock")
    with pytest.raises(FencedError):
        held.check()
    files.lock("/d/.lock").check()


CHANGES = {
    "roll": lambda log: log.roll(),
    "assign_leader_epoch": lambda log: log.assign_leader_epoch(4),
    "delete_before": lambda log: log.delete_before(15),
    "enforce_retention": lambda log: log.enforce_retention(),
    "truncate_to": lambda log: log.truncate_to(3),
    "set_role": lambda log: log.set_role(Role.FOLLOWER),
    "checkpoint": lambda log: log.checkpoint(),
    "compact": lambda log: log.compact(now=True),
    "erase": lambda log: log.erase(keys=[b"k"]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_who_has_lost_the_lock_changes_no_file(change):
    """Rolling, a new epoch, and what is stored before the log start moves, did. Each 0.01 s."""
    files, log = log_that_lost_its_lock()
    with pytest.raises(FencedError):
        change(log)
    assert not files.trace
    with pytest.raises(FencedError):
        log.close()
    assert not files.trace


def test_nothing_is_stored_behind_rolls_by_who_has_lost_the_lock():
    """By the background, when a segment is full and durable. 0.01 s."""
    files, log = log_that_lost_its_lock()
    with pytest.raises(FencedError):
        log.writer.durability.checkpoint_if_rolled()
    assert not files.trace
    log.abandon()


def log_that_lost_its_lock():
    files = MemoryFiles()
    config = logstore.TopicConfig(segment_bytes=1000, retention_bytes=1, cleanup_policy="compact,delete")
    log = Log.open("/t-0", config=config, files=files, clock=ManualClock())
    for _ in range(10):
        log.extend([(b"k", b"v" * 100)] * 2)
    log.flush()
    files.remove("/t-0/.lock")
    files.lock("/t-0/.lock")
    files.trace.clear()
    return files, log


# Forks ------------------------------------------------------------------------------------------------------


def test_a_child_has_no_descriptor_of_the_lock(store, path):
    def look():
        found = []
        for name in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{name}"))
            except OSError:
                continue
        return any(name.endswith("/store/.lock") for name in found)

    assert look()
    assert in_child(look) == "False"


def test_a_lock_is_released_once_by_whoever_took_it(path):
    path.mkdir()
    held = OsFiles().lock(str(path / ".lock"))
    assert in_child(held.release) == "None"
    with pytest.raises(LogstoreError):
        OsFiles().lock(str(path / ".lock"))
    held.release()
    held.release()
    OsFiles().lock(str(path / ".lock")).release()
