"""Disks that are full to the last byte, and limits that the system sets."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap

import pytest

import logstore
from tests.figures import report
from tests.kernel.disks import missing_for, namespace_command
from tests.kernel.programs import memory_directory, run_program


@pytest.fixture(params=["tmpfs", "ext4"])
def kind(request):
    missing = missing_for(request.param) if request.param != "tmpfs" else ""
    if missing or not namespace_command():
        pytest.skip(f"no full {request.param} here: {missing or 'no mount namespace'}")
    return request.param


def fill(kind, seed):
    with memory_directory() as path:
        return run_program("full_disk", kind, seed, f"{path}/full", within=namespace_command())


def test_a_full_disk_refuses_loses_nothing_and_gets_room_by_retention(kind):
    filled = fill(kind, 1)
    assert filled["refused"] == 6
    assert filled["changes"] == 4
    assert filled["records"] > 500


@pytest.mark.soak
def test_many_full_disks(kind):
    seeds = range(100, 150)
    filled = [fill(kind, seed) for seed in seeds]
    count = sum(row["refused"] + row["changes"] + row["opens"] for row in filled)
    report(f"full disks, {kind}", count=count, failures=0, seconds=0, detail="what was refused")


READ_PROGRAM = """
import sys, logstore
with logstore.open(sys.argv[1], read_only=True) as store:
    assert [record.value for record in store["t"][0].read()] == [b"v"] * 3
try:
    logstore.open(sys.argv[1])
except OSError as error:
    print(error.errno)
"""


def test_a_read_only_file_system_can_be_read_and_not_written(tmp_path):
    """A bind mount; another one than the tests' own, so that no write of theirs is in the way."""

    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")[0].extend([b"v"] * 3)
    if not namespace_command():
        pytest.skip("no mount namespace here")
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77; exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        [
            *namespace_command(),
            "sh",
            "-c",
            script,
            "sh",
            tmp_path / "s",
            sys.executable,
            READ_PROGRAM,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    assert done.stdout == f"{errno.EROFS}\n", done.stderr


LIMITED = """
    import resource, sys, logstore
    from logstore.config import StoreConfig
    from logstore.errors import DiskFullError
    from logstore.testing import ManualClock

    config = StoreConfig(linger_ms=int(sys.argv[2]))
    store = logstore.open(sys.argv[1], config=config, clock=ManualClock())
    log = store.create_topic("t")[0]
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    appended = 0
    while True:
        value = b"%d|" % appended + bytes(appended * 331 % 3_000)
        try:
            log.append(value)  # SIGXFSZ does not end the process: Python ignores it
            appended += 1
            log.flush()
        except DiskFullError:
            break
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.flush()
    values = [record.value for record in log.read()]
    assert values == [b"%d|" % n + bytes(n * 331 % 3_000) for n in range(appended)], len(values)
    store.close()
    with logstore.open(sys.argv[1]) as store:
        assert store.was_clean
        assert len(list(store["t"][0].read())) == appended
    print(appended)
"""


@pytest.mark.parametrize("linger_ms", [0, 1_000])
def test_a_file_size_limit_keeps_gathered_records_until_it_is_raised(tmp_path, linger_ms):
    """The last write is a short one, which raises nothing: the rest of it meets the limit."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), tmp_path / "s", str(linger_ms)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10


NO_DESCRIPTORS = """
    import os, resource, sys, logstore

    with logstore.open(sys.argv[1]) as store:
        store.create_topic("t").append(b"v", flush=True)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = 0
    for free in range(12):
        used = len(os.listdir("/proc/self/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + free, limit[1]))
        store = None
        try:
            store = logstore.open(sys.argv[1])
            store["t"].append(b"w", flush=True)
            opened += 1
        except logstore.LogstoreError as error:
            assert "Too many open files" in str(error), error
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        if store is not None:
            store.close()
    with logstore.open(sys.argv[1]) as store:
        assert not store.damaged
        assert [record.value for record in store["t"][0].read()] == [b"v"] + [b"w"] * opened
    print(opened)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_a_store_that_opens_with_too_few_descriptors_says_so_and_loses_nothing(tmp_path):
    """With none left, one, two, ...: every step of the open meets the limit once."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NO_DESCRIPTORS), tmp_path / "s"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 12
