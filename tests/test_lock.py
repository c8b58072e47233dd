"""One writer for each directory: refused by name, freed by close and by death, safe from forked children."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from logstore.errors import ForkedError, LockedError, UsageError
from logstore.files import OsFiles
from logstore.partition.log import Log
from tests.partition.helpers import in_child

pytestmark = pytest.mark.disk


def run_python(code, *arguments):
    """Start another process; it says "ready" when it is."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process):
    process.stdin.close()
    process.stdout.close()
    process.wait()


HOLD_LOG = """
    import sys
    from logstore.partition.log import Log
    log = Log.open(sys.argv[1])
    log.extend([b"x"] * 3)
    print("ready", flush=True)
    sys.stdin.read()
    log.close()
"""

HOLD_LOCK = """
    import fcntl, sys
    file = open(sys.argv[1], "w")
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as java.nio's FileChannel.tryLock does
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_in_another_process_is_refused_by_name(partition):
    holder = run_python(HOLD_LOG, partition.path)
    with pytest.raises(LockedError, match=f"process {holder.pid}"):
        partition.open()
    finish(holder)
    assert partition.log.log_end_offset == 3


def test_a_writer_that_is_not_seen_is_told_of_too(partition):
    """From a container of its own, as it were. 0.3 s."""
    holder = run_python(HOLD_LOG, partition.path)
    code = """
        import sys
        from logstore.errors import LockedError
        from logstore.partition.log import Log
        try:
            Log.open(sys.argv[1])
        except LockedError as error:
            print(error)
    """
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", textwrap.dedent(code)]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command[:4], "true"], capture_output=True).returncode
    ):
        finish(holder)
        pytest.skip("no process may have others that it does not see")
    done = subprocess.run([*command, str(partition.path)], capture_output=True, text=True, timeout=60)
    finish(holder)
    assert (
        "another process (which is not seen from here: another user's, or in another container" in done.stdout
    )


def test_the_lock_of_a_killed_process_is_free(partition):
    holder = run_python(HOLD_LOG, partition.path)
    holder.kill()
    finish(holder)
    assert partition.log.log_end_offset == 3


def test_a_lock_that_a_broker_holds_is_honoured(partition):
    partition.path.mkdir()
    holder = run_python(HOLD_LOCK, partition.path / ".lock")
    with pytest.raises(LockedError, match=f"process {holder.pid}"):
        partition.open()
    finish(holder)
    partition.open()


def test_a_broker_is_refused_while_we_hold_the_lock(partition):
    partition.write(1)
    code = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    found = subprocess.run(
        [sys.executable, "-c", code, str(partition.path / ".lock")], capture_output=True, check=False
    )
    assert b"BlockingIOError" in found.stderr


def test_a_second_open_in_the_same_process_is_refused(partition):
    partition.write(3)
    with pytest.raises(LockedError, match="this process"):
        Log.open(str(partition.path))
    assert partition.write(2) == range(3, 5)


def test_the_refused_open_does_not_give_the_lock_away(partition):
    """A process loses a record lock when it closes any descriptor of the file."""
    partition.write(3)
    with pytest.raises(LockedError):
        Log.open(str(partition.path))
    gc.collect()
    code = "import sys; from logstore.partition.log import Log; Log.open(sys.argv[1])"
    found = subprocess.run(
        [sys.executable, "-c", code, str(partition.path)], capture_output=True, check=False
    )
    assert b"LockedError" in found.stderr
    assert str(os.getpid()).encode() in found.stderr


def test_a_second_open_by_another_name_is_refused(partition, tmp_path):
    partition.write(3)
    os.symlink(partition.path, tmp_path / "alias-0")
    with pytest.raises(LockedError, match="this process"):
        Log.open(str(tmp_path / "alias-0"))


def test_the_lock_is_free_after_close(partition):
    partition.write(3)
    partition.close()
    with Log.open(str(partition.path)) as again:
        assert again.log_end_offset == 3


def test_the_lock_is_free_after_an_open_that_failed(partition):
    partition.write(3)
    partition.close()
    partition.corrupt_batch(2)
    for _ in range(2):
        with pytest.raises(Exception, match="durable"):
            partition.open()
    partition.open(accept_loss=True)


def test_the_lock_is_released_once_only(tmp_path):
    files = OsFiles()
    lock = files.lock(str(tmp_path / ".lock"))
    lock.release()
    again = files.lock(str(tmp_path / ".lock"))
    lock.release()
    with pytest.raises(LockedError):
        files.lock(str(tmp_path / ".lock"))
    again.release()


def test_a_partition_inside_a_store_is_refused(tmp_path):
    (tmp_path / ".lock").write_bytes(b"")
    with pytest.raises(UsageError, match="belongs to the store"):
        Log.open(str(tmp_path / "t-0"))


# Forked children


USES = {
    "append": lambda log: log.append(b"x"),
    "extend": lambda log: log.extend([b"x"]),
    "read": lambda log: list(log.read()),
    "fetch": lambda log: log.fetch(0),
    "flush": lambda log: log.flush(),
    "log_end_offset": lambda log: log.log_end_offset,
    "truncate_to": lambda log: log.truncate_to(0),
    "roll": lambda log: log.roll(),
}


@pytest.mark.parametrize("use", USES, ids=str)
def test_a_forked_child_may_not_use_the_log(partition, use):
    partition.write(3)
    assert in_child(lambda: USES[use](partition.log)).startswith(f"{ForkedError.__name__}:")
    assert partition.write(2) == range(3, 5)
    assert partition.read() == list(range(5))


def test_a_forked_child_that_closes_the_log_does_the_parent_no_harm(partition):
    partition.write(3)
    assert in_child(partition.log.close) == "None"
    assert not (partition.path / ".kafka_cleanshutdown").exists()
    with pytest.raises(LockedError):
        Log.open(str(partition.path))
    code = "import sys; from logstore.partition.log import Log; Log.open(sys.argv[1])"
    found = subprocess.run(
        [sys.executable, "-c", code, str(partition.path)], capture_output=True, check=False
    )
    assert b"LockedError" in found.stderr
    assert partition.write(2) == range(3, 5)


def test_what_was_gathered_is_not_written_twice_by_a_forked_child(tmp_path):
    log = Log.open(str(tmp_path / "t-0"))
    log.append(b"gathered")
    in_child(lambda: log.close())
    in_child(lambda: log.flush())
    log.flush()
    assert [record.value for record in log.read()] == [b"gathered"]
    log.close()


def test_a_forked_child_is_refused_the_directory_while_the_parent_has_it(partition):
    partition.write(3)
    assert in_child(lambda: Log.open(str(partition.path))).startswith(f"{LockedError.__name__}:")
    assert partition.write(1) == range(3, 4)


def test_a_forked_child_may_open_the_directory_after_the_parent_closed_it(partition):
    partition.write(3)
    partition.close()

    def open_and_append():
        with Log.open(str(partition.path)) as log:
            return log.append(b"x")

    assert in_child(open_and_append) == "3"


def test_a_forked_child_that_outlives_its_parent_does_not_hold_the_lock(partition):
    """Open descriptors are inherited, and with them a lock of an open file: the child's first act is to close
    it."""
    code = """
        import os, sys, time
        from logstore.partition.log import Log
        log = Log.open(sys.argv[1])
        log.extend([b"x"])
        if os.fork() == 0:
            print("ready", flush=True)
            os.close(1)
            sys.stdin.read()
            os._exit(0)
        os._exit(9)
    """
    parent = run_python(code, partition.path)
    parent.wait()
    assert partition.log.log_end_offset == 1
    finish(parent)


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="looks into /proc/locks")
def test_the_lock_is_a_record_lock_of_the_open_file(partition):
    """Java's FileChannel.tryLock takes a record lock; ``flock`` would not be seen by a broker."""
    partition.write(1)
    inode = (partition.path / ".lock").stat().st_ino
    with open("/proc/locks") as locks:
        assert any("OFDLCK" in line and f":{inode} " in line for line in locks)
