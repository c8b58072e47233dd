"""The disk that fails: short writes, no room, no permission, no descriptors, fsync errors. What was
acknowledged stays, what was not is refused with an error that says why, and reading goes on."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

import logstore
from logstore.errors import (
    CorruptionError,
    DiskFullError,
    ReopenRequiredError,
    StorageError,
    storage_error,
)
from logstore.files import OsFiles, read_small_file, write_small_file
from logstore.large_files import MAPPED_PIECE_BYTES, FilePieces
from tests.partition.helpers import Partition, WatchedFiles, failing, in_child
from tests.permissions import let_others_in
from tests.pythons import find_python

pytestmark = pytest.mark.disk


@pytest.fixture
def partition(tmp_path):
    made = Partition(tmp_path / "t-0", files=WatchedFiles())
    yield made
    made.crash()


def open_file(tmp_path, name="file"):
    return OsFiles().open(str(tmp_path / name), create=True)


# Single files


@pytest.mark.parametrize("step", [1, 7, 100])
def test_short_writes_are_completed(tmp_path, monkeypatch, step):
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: os.pwrite(fd, b"".join(buffers)[:step], at))
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:step], at))
    file = open_file(tmp_path)
    file.write_at(3, [b"abc", memoryview(b"defgh"), bytearray(200)])
    assert (tmp_path / "file").read_bytes() == bytes(3) + b"abcdefgh" + bytes(200)


def test_a_write_that_takes_nothing_is_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(DiskFullError):
        open_file(tmp_path).write_at(0, [b"abc"])


def test_short_reads_are_completed_up_to_the_end(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(bytes(range(200)))
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: whole(fd, min(size, 9), at))
    file = open_file(tmp_path)
    assert file.read_at(10, 100) == bytes(range(10, 110))
    assert file.read_at(150, 100) == bytes(range(150, 200))
    assert file.read_at(500, 10) == b""


def test_more_buffers_than_one_call_takes_are_written(tmp_path):
    file = open_file(tmp_path)
    file.write_at(0, [bytes([number % 256]) for number in range(3000)])
    assert file.read_at(0, 3001) == bytes(number % 256 for number in range(3000))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_is_a_full_disk(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pwritev", refuse)
    with pytest.raises(DiskFullError) as refused:
        open_file(tmp_path).write_at(0, [b"abc"])
    assert (refused.value.errno, refused.value.filename) == (code, str(tmp_path / "file"))


@pytest.mark.parametrize("call", ["pread", "pwritev", "ftruncate", "fdatasync"])
def test_an_io_error_names_the_file_and_the_number(tmp_path, monkeypatch, call):
    def refuse(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = open_file(tmp_path)
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError, match="Input/output error") as refused:
        {
            "pread": lambda: file.read_at(0, 1),
            "pwritev": lambda: file.write_at(0, [b"x"]),
            "ftruncate": lambda: file.truncate(0),
            "fdatasync": file.flush,
        }[call]()
    assert (refused.value.errno, refused.value.filename) == (errno.EIO, str(tmp_path / "file"))
    assert not isinstance(refused.value, DiskFullError)


def test_the_room_on_a_volume(tmp_path):
    total_bytes, usable_bytes = OsFiles().space(str(tmp_path))
    assert total_bytes == shutil.disk_usage(tmp_path).total
    assert 0 <= usable_bytes < total_bytes
    with pytest.raises(StorageError, match="nowhere"):
        OsFiles().space(str(tmp_path / "nowhere"))


def test_a_storage_error_is_an_os_error():
    error = storage_error(OSError(errno.EACCES, "denied"), "/x", "opening")
    assert isinstance(error, OSError)
    assert str(error) == "[Errno 13] opening: denied (this process's user needs the permission): '/x'"


def test_a_small_file_above_its_limit_is_refused_unread(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(CorruptionError, match="larger than 100 bytes"):
        read_small_file(OsFiles(), str(tmp_path / "file"), 100)


def test_a_small_file_takes_no_more_memory_than_it_has(tmp_path):
    write_small_file(OsFiles(), str(tmp_path / "file"), b"small")
    assert read_small_file(OsFiles(), str(tmp_path / "file"), 2**50) == b"small"


def test_a_small_file_is_replaced_in_the_order_that_a_power_cut_asks_for(tmp_path):
    files = WatchedFiles()
    write_small_file(files, str(tmp_path / "file"), b"new")
    assert [action for action, _ in files.trace] == [
        "create",
        "truncate",
        "write",
        "flush",
        "rename",
        "flush directory",
    ]
    assert {name for _, name in files.trace[:5]} == {"file.tmp"}


# A log on a disk that fails


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_append_is_undone_and_the_next_one_works(partition, code):
    partition.write(5)
    with failing(partition.files, "write", ".log", code), pytest.raises(StorageError):
        partition.write(1)
    assert partition.read() == list(range(5))
    assert partition.write(3) == range(5, 8)
    partition.recover()
    assert partition.log.recovery.cut_bytes == 0
    assert partition.read() == list(range(8))


def test_what_a_failed_append_left_is_cut_before_the_next_one(partition, monkeypatch):
    """Its rest could otherwise stand behind the next batch, whole and valid."""
    partition.write(5)
    file = partition.log.writer.core.active.log_file

    def write_and_fail(action, path):
        if action == "write" and path.endswith(".log"):
            file._file.write_at(file.size_bytes(), [bytes(500)])
        if action in ("write", "truncate") and path.endswith(".log"):
            raise StorageError(errno.EIO, "made to fail", path)

    partition.files.before = write_and_fail
    with pytest.raises(StorageError):
        partition.write(1)
    partition.files.before = None
    assert file.size_bytes() > partition.log.size_bytes
    partition.write(1)
    assert file.size_bytes() == partition.log.size_bytes
    assert partition.read() == list(range(6))


@pytest.mark.parametrize("name", [".log", ".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("action", ["create", "write", "flush", "rename"])
def test_a_roll_that_fails_loses_nothing(partition, action, name):
    partition.write(5)
    partition.log.flush()
    with failing(partition.files, action, name, errno.ENOSPC):
        try:
            partition.log.roll()
            partition.write(1)
        except StorageError:
            pass
    partition.recover()
    known = partition.log.log_end_offset
    assert partition.read() == list(range(known))
    assert known >= 5
    assert partition.write(2) == range(known, known + 2)


def test_after_a_failed_fsync_nothing_is_acknowledged_until_the_log_is_reopened(partition):
    partition.write(5)
    partition.log.flush()
    partition.write(5)
    with (
        failing(partition.files, "flush", ".log", errno.EIO),
        pytest.raises(StorageError, match="made to fail"),
    ):
        partition.log.flush()
    assert partition.log.needs_reopen
    for use in (
        partition.log.flush,
        partition.log.roll,
        lambda: partition.write(1),
        partition.log.checkpoint,
    ):
        with pytest.raises(ReopenRequiredError):
            use()
    assert partition.log.durable_offset == 5
    assert partition.read() == list(range(10))
    with pytest.raises(ReopenRequiredError, match="from offset 5 on"):
        partition.close()
    report = partition.open().recovery
    assert not report.was_clean
    assert report.scanned_bytes > 0
    assert partition.read() == list(range(10))
    assert partition.log.durable_offset == 10
    assert partition.write(2) == range(10, 12)


def test_after_a_failed_fsync_of_a_sealed_segment_nothing_is_acknowledged(partition):
    partition.write_segments(5, 5)
    with failing(partition.files, "flush", "0000.timeindex", errno.EIO), pytest.raises(StorageError):
        partition.log.flush()
    assert partition.log.durable_offset == 0
    with pytest.raises(ReopenRequiredError):
        partition.write(1)


def test_a_recovery_whose_fsync_fails_can_be_tried_again(partition):
    partition.write(5)
    partition.crash()
    with failing(partition.files, "flush", ".log", errno.EIO), pytest.raises(StorageError):
        partition.open()
    assert partition.open().log_end_offset == 5


def test_rebuilt_indexes_that_cannot_be_stored_do_not_stop_a_reader(partition):
    partition.write_segments(30, 1, batch=3)
    partition.close()
    partition.file(0, ".index").unlink()
    partition.open()
    with failing(partition.files, "create", ".index", errno.ENOSPC):
        assert partition.read(20) == list(range(20, 31))
    assert not partition.file(0, ".index").exists()


# Limits of the system


def run_python(code, *arguments):
    """The JSON that another process prints."""
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


FILL = """
    import json, resource, sys
    from logstore.config import StoreConfig
    from logstore.errors import DiskFullError
    from logstore.partition.log import Log

    log = Log.open(sys.argv[1], store_config=StoreConfig(linger_ms=0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    acknowledged = refused = 0
    while refused < 3:
        try:
            acknowledged = log.extend([b"%d" % acknowledged + bytes(900)], flush=True).stop
        except DiskFullError as error:
            refused += 1
            assert error.filename.endswith(".log"), error
            assert "ulimit -f" in str(error)
    assert len(list(log.read())) == acknowledged
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert log.extend([b"%d" % acknowledged + bytes(900)]).start == acknowledged
    log.close()
    print(json.dumps(acknowledged))
"""


def test_a_file_size_limit_refuses_appends_until_it_is_raised(partition):
    acknowledged = run_python(FILL, partition.path)
    assert acknowledged == 20
    partition.open()
    assert partition.log.recovery.was_clean
    found = [int(record.value.rstrip(b"\0")) for record in partition.log.read()]
    assert found == list(range(acknowledged + 1))


FULL_DISK = """
    import json, os, sys
    from logstore.config import StoreConfig, TopicConfig
    from logstore.errors import DiskFullError
    from logstore.partition.log import Log

    path = sys.argv[1] + "/t-0"
    options = dict(config=TopicConfig(segment_bytes=50_000), store_config=StoreConfig(linger_ms=0))
    log = Log.open(path, **options)
    acknowledged = refused = 0
    while refused < 5:
        try:
            acknowledged = log.extend([b"%d" % acknowledged + bytes(900)], flush=True).stop
        except DiskFullError:
            refused += 1
    assert len(list(log.read())) == acknowledged, "while full"
    os.unlink(sys.argv[1] + "/ballast")
    assert log.extend([b"%d" % acknowledged + bytes(900)], flush=True).start == acknowledged
    log.close()
    log = Log.open(path, **options)
    values = [int(record.value.rstrip(b"\\0")) for record in log.read()]
    assert values == list(range(acknowledged + 1)), values[-3:]
    print(json.dumps(acknowledged))
"""


def test_a_full_disk_refuses_appends_until_there_is_room(tmp_path):
    """A real one: a file system of one mebibyte, in a mount namespace of its own."""
    script = (
        'mount -t tmpfs -o size=1m none "$1" || exit 77; '
        'head -c 100000 /dev/zero > "$1/ballast"; exec "$2" -c "$3" "$1"'
    )
    found = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", tmp_path, sys.executable, textwrap.dedent(FULL_DISK)],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == 77 or "unshare" in found.stderr:
        pytest.skip(f"no mount namespace here: {found.stderr.strip()}")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) > 500


NO_DESCRIPTORS = """
    import json, os, resource, sys
    from logstore.config import StoreConfig, TopicConfig
    from logstore.errors import StorageError
    from logstore.partition.log import Log

    log = Log.open(sys.argv[1], store_config=StoreConfig(linger_ms=0, max_open_segments=4))
    for _ in range(20):
        log.extend([b"x"])
        log.roll()
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, used + 12))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    end = log.extend([b"y"]).stop
    try:
        log.roll()
    except StorageError as error:
        refused = error.errno
    for descriptor in taken:
        os.close(descriptor)
    assert len(list(log.read())) == end
    assert not log.needs_reopen
    log.roll()
    log.close()
    print(json.dumps([refused, end]))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_without_descriptors_appending_goes_on_and_a_roll_is_refused(partition):
    assert run_python(NO_DESCRIPTORS, partition.path) == [errno.EMFILE, 21]
    assert partition.log.log_end_offset == 21


NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_directory_without_permission_is_refused_by_name(partition):
    partition.write(3)
    partition.close()
    let_others_in(partition.path)
    partition.path.chmod(0o755)

    def open_as_nobody():
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        partition.open()

    assert in_child(open_as_nobody) == (
        f"StorageError: [Errno {errno.EACCES}] opening: Permission denied "
        f"(this process's user needs the permission): '{partition.path / '.lock'}'"
    )
    assert partition.open().log_end_offset == 3


DENIED = """
    import json, sys
    from logstore.errors import StorageError
    from logstore.partition.log import Log

    try:
        Log.open(sys.argv[1])
    except StorageError as error:
        print(json.dumps([error.errno, error.filename]))
"""


def test_a_read_only_file_system_is_refused_by_name(tmp_path):
    partition = Partition(tmp_path / "t-0")
    partition.write(3)
    partition.close()
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77; exec "$2" -c "$3" "$1/t-0"'
    found = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", tmp_path, sys.executable, textwrap.dedent(DENIED)],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == 77 or "unshare" in found.stderr:
        pytest.skip(f"no mount namespace here: {found.stderr.strip()}")
    assert json.loads(found.stdout) == [errno.EROFS, str(partition.path / ".lock")]


def test_files_are_not_readable_by_others(partition):
    partition.write_segments(3, 3)
    partition.close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in partition.path.iterdir()}
    assert all(mode & 0o007 == 0 for mode in modes.values()), modes
    assert partition.path.stat().st_mode & 0o777 == 0o750


def test_descriptors_do_not_go_over_to_other_programs(partition):
    partition.write(3)
    flags = [
        os.get_inheritable(int(name))
        for name in os.listdir("/proc/self/fd")
        if os.path.realpath(f"/proc/self/fd/{name}").startswith(str(partition.path))
    ]
    assert flags
    assert not any(flags)


def test_closing_a_log_closes_its_files(tmp_path):
    def open_here():
        names = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        return [name for name in names if name.startswith(str(tmp_path))]

    partition = Partition(tmp_path / "t-0")
    partition.write_segments(5, 5, 5)
    assert partition.read() == list(range(15))
    assert open_here()
    partition.close()
    gc.collect()  # a file is closed with its last reference, which may be in a cycle
    assert open_here() == []


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs /proc")
def test_a_pass_over_a_large_file_keeps_one_piece_in_memory(tmp_path):
    size_bytes = 6 * MAPPED_PIECE_BYTES
    file = OsFiles().open(str(tmp_path / "large"), create=True)
    file.truncate(size_bytes)
    before, most, position = mapped_memory_bytes(), 0, 0
    with closing(FilePieces(file, size_bytes)) as pieces:
        while position < size_bytes:
            _, start, end = pieces.piece(position)
            position += end - start
            most = max(most, mapped_memory_bytes())
    assert most - before < 2 * MAPPED_PIECE_BYTES


def mapped_memory_bytes():
    """Of files, or of shared memory in case the directory is."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_an_error_of_the_system_leaves_no_circle(minor):
    """What its frames refer to, such as the files of replaced segments, is let go at once. 0.2 s each."""
    python = find_python(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} here")
    program = """
        import gc
        from logstore.errors import StorageError
        from logstore.files import OsFiles

        gc.collect()
        gc.disable()
        try:
            OsFiles().remove("/not/there")
        except StorageError as error:
            print(error)
        print(gc.collect())
    """
    done = subprocess.run(
        [python, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(logstore.__file__).parent.parent)},
    )
    assert done.stdout.splitlines()[1:] == ["0"], done.stderr
