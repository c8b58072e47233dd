"""The calls to the system fail, or do less than they were asked to, under a log on the machine's own disk."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import random
import signal
from contextlib import contextmanager, suppress

import pytest

from logstore import files as seam
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import DiskFullError, StorageError
from logstore.files import OsFiles
from logstore.partition.log import Log
from logstore.testing import ManualClock
from tests.crash.history import History
from tests.crash.writer import Writer, check_lookups, check_producers, found_in
from tests.faults.partition import check_refuses, settle
from tests.rotation import rotating

CONFIG = TopicConfig(segment_bytes=1_500, index_interval_bytes=100, retention_ms=-1)

CALLS = "open close pwritev pwrite pread preadv fdatasync fsync ftruncate replace unlink stat fstat scandir"
NUMBERS = [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR]
WORKLOADS = {
    "append and flush": lambda s: s.append(3, flush=True),
    "append much": lambda s: s.append(40, size_bytes=60),
    "roll": lambda s: s.roll(),
    "checkpoint": lambda s: s.checkpoint(),
    "truncate": lambda s: s.truncate(),
    "delete before": lambda s: s.delete_before(),
    "stop and start": lambda s: s.stop_and_start(),
    "recover": lambda s: s.recover(),
}


class Session(Writer):
    """A log in a directory of this machine."""

    def __init__(self, path):
        self.path = str(path)
        self.said = []
        self.is_open = True
        clock = ManualClock()
        super().__init__(self._open(clock), self.said.append, random.Random(1), clock, 0)

    def _open(self, clock):
        return Log.open(self.path, config=CONFIG, store_config=StoreConfig(linger_ms=0), clock=clock)

    def open_again(self):
        self.log = self._open(self.clock)
        self.is_open = True
        self.begin()

    def stop_and_start(self):
        self.is_open = False
        self.log.close()
        self.open_again()

    def recover(self):
        self.is_open = False
        self.log.abandon()
        self.log._context.home.release()
        self.open_again()

    def history(self):
        return History(self.said)


@contextmanager
def failing_calls(monkeypatch, number, at):
    """Call number ``at`` to the system fails. Yields a list of those that were made."""
    made = []
    gc.collect()  # what closes files by itself does so now

    def failing(name, call):
        def instead(*arguments, **options):
            made.append(name)
            if len(made) == at:
                if name == "close":  # the descriptor is gone all the same
                    call(*arguments)
                raise OSError(number, os.strerror(number))
            return call(*arguments, **options)

        return instead

    with monkeypatch.context() as patch:
        for name in CALLS.split():
            patch.setattr(seam.os, name, failing(name, getattr(os, name)))
        yield made


def every_call(monkeypatch, tmp_path, name, number, step=1):
    """Let call 1, 1 + ``step``, ... fail until the workload passes untouched; returns how many failed."""
    for count, at in enumerate(itertools.count(1, step)):
        session = Session(tmp_path / f"{at}" / "t-0")
        for _ in range(3):
            session.append(3, size_bytes=150, flush=True)
        session.append(2)
        with failing_calls(monkeypatch, number, at) as made, suppress(StorageError):
            WORKLOADS[name](session)
        if len(made) < at:
            return count
        try:
            go_on(session)
        except Exception as error:
            error.add_note(f"call {at}, {made[at - 1]}, of {name!r} failed with {errno.errorcode[number]}")
            raise
    raise AssertionError("unreachable")


def go_on(session):
    if session.is_open:
        settle(session, session.history)
        if session.log.needs_reopen:
            check_refuses(session.log)
            with suppress(StorageError):
                session.log.close()
            session.open_again()
    else:
        with suppress(StorageError):
            session.log.close()
        session.open_again()
    session.append(2, flush=True)
    session.stop_and_start()
    assert session.log.recovery.was_clean
    found = found_in(session.log)
    session.history().check(found)
    check_lookups(session.log, found)
    check_producers(session.log)
    session.log.close()


@pytest.fixture(scope="module", autouse=True)
def _known_paths(tmp_path_factory):
    """Directories are made before calls fail: pytest makes its own with the same functions."""
    tmp_path_factory.getbasetemp()


def test_some_calls_fail(monkeypatch, tmp_path):
    assert every_call(monkeypatch, tmp_path, "append much", errno.EIO, step=5) >= 4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), rotating(itertools.product(WORKLOADS, NUMBERS), 8))
def test_each_call_fails(monkeypatch, tmp_path, name, number):
    assert every_call(monkeypatch, tmp_path, name, number) >= 2


# Less than asked


@pytest.fixture
def short_calls(monkeypatch):
    """Lets reads and writes do no more than so many bytes, each by another amount."""

    def shorten(most_bytes):
        rng = random.Random(most_bytes)
        pwritev, pwrite, preadv, pread = os.pwritev, os.pwrite, os.preadv, os.pread
        part = lambda data: memoryview(data)[: rng.randint(1, most_bytes)]  # noqa: E731
        monkeypatch.setattr(
            seam.os, "pwritev", lambda fd, buffers, at: pwritev(fd, [part(b"".join(buffers))], at)
        )
        monkeypatch.setattr(seam.os, "pwrite", lambda fd, data, at: pwrite(fd, part(data), at))
        monkeypatch.setattr(seam.os, "preadv", lambda fd, buffers, at: preadv(fd, [part(buffers[0])], at))
        monkeypatch.setattr(seam.os, "pread", lambda fd, size, at: pread(fd, rng.randint(1, most_bytes), at))

    return shorten


@pytest.mark.parametrize("most_bytes", [1, 13, 700])
def test_what_is_written_and_read_in_parts_is_whole(tmp_path, short_calls, most_bytes):
    session = Session(tmp_path / "t-0")
    short_calls(most_bytes)
    for _ in range(4):
        session.append(5, size_bytes=90)
        session.append_as_producer()
    session.stop_and_start()
    session.recover()
    found = found_in(session.log)
    assert found.end == 28
    session.history().check(found)
    check_lookups(session.log, found)


def test_a_write_that_goes_nowhere_is_a_full_disk(tmp_path, monkeypatch):
    file = OsFiles().open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr(seam.os, "pwritev", lambda descriptor, buffers, position: 2)
    monkeypatch.setattr(seam.os, "pwrite", lambda descriptor, data, position: 0)
    with pytest.raises(DiskFullError, match="writing"):
        file.write_at(0, [b"abc", b"def"])


def test_a_read_that_ends_early_is_the_end_of_the_file(tmp_path):
    file = OsFiles().open(str(tmp_path / "file"), create=True)
    file.write_at(0, [b"abcdef"])
    assert file.read_at(4, 100) == b"ef"
    assert file.read_into(3, memoryview(bytearray(100))) == 3


@pytest.mark.parametrize("name", ["is_file", "is_directory", "size_bytes"])
def test_a_disk_that_cannot_tell_what_is_there_is_an_error(tmp_path, monkeypatch, name):
    def stat(path, **options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(seam.os, "stat", stat)
    with pytest.raises(StorageError):
        getattr(OsFiles(), name)(str(tmp_path / "file"))


@pytest.mark.parametrize("name", ["is_file", "is_directory"])
def test_what_is_not_there_is_no_error(tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    look = getattr(OsFiles(), name)
    assert not look(str(tmp_path / "missing"))
    assert not look(str(tmp_path / "file" / "below"))


def test_an_error_on_closing_is_an_error_of_storage(tmp_path, monkeypatch):
    file = OsFiles().open(str(tmp_path / "file"), create=True)
    with failing_calls(monkeypatch, errno.EIO, 1), pytest.raises(StorageError, match="closing"):
        file.close()


def test_signals_interrupt_nothing(tmp_path):
    """Python calls again what a signal interrupted (PEP 475)."""
    seen = []
    session = Session(tmp_path / "t-0")
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(None))
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        while len(seen) < 200:
            session.append(2, size_bytes=200, flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    end = session.end
    session.recover()
    found = found_in(session.log)
    assert found.end == end
    session.history().check(found)
