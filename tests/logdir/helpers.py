"""The little language of these tests: open and reopen stores, break files, count and fail file operations."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import StorageError
from logstore.files import OsFile, OsFiles
from logstore.logdir import open_logs
from logstore.testing import ManualClock
from tests.file_operations import BY_PATH

SMALL = TopicConfig(segment_bytes=1000, flush_ms=1_000)


class QuickFile(OsFile):
    __slots__ = ()

    def flush(self):
        pass


class QuickFiles(OsFiles):
    """The disk without fsync: a dead process leaves the same files."""

    file_class = QuickFile

    def open(self, path, *, write=False, create=False):
        opened = super().open(path, write=write, create=create)
        file = self.file_class(path, opened._descriptor)
        opened._descriptor = -1
        return file

    def flush_directory(self, path):
        pass


def open_store(path, **options):
    """A store on a manual clock (no thread runs) and a disk without fsync."""
    options.setdefault("clock", ManualClock())
    options.setdefault("files", QuickFiles())
    return logstore.open(str(path), **options)


def crash(store):
    """Release a store as the death of its process would."""
    store._directory.abandon()


def values(log, *arguments, **options):
    return [record.value for record in log.read(*arguments, **options)]


def names_in(path):
    return sorted(entry.name for entry in Path(path).iterdir())


def log_files(path):
    return sorted(Path(path).glob("*.log"))


def flip_byte(path, position):
    data = bytearray(Path(path).read_bytes())
    data[position] ^= 0xFF
    Path(path).write_bytes(data)


def snapshot(path):
    """Everything that a write would change: names, contents, sizes and times. Leaves out the time of
    ``.lock``, which changes when a process asks for it."""
    found = {}
    for folder, folders, files in os.walk(path):
        for name in [*folders, *files]:
            full = os.path.join(folder, name)
            status = os.stat(full)
            data = Path(full).read_bytes() if name in files else b""
            changed_ns = 0 if name == ".lock" else status.st_mtime_ns
            found[full] = (status.st_size, changed_ns, status.st_mode, data)
    return found


class CountingFile(QuickFile):
    """Counts the bytes that are read from it."""

    __slots__ = ("counts",)

    def read_at(self, position, size_bytes):
        data = super().read_at(position, size_bytes)
        self.counts["reads"] += 1
        self.counts["read_bytes"] += len(data)
        return data

    def read_into(self, position, buffer):
        count = super().read_into(position, buffer)
        self.counts["reads"] += 1
        self.counts["read_bytes"] += count
        return count

    def read_aside(self, position, size_bytes):
        return self.read_at(position, size_bytes)

    def map(self):
        self.counts["maps"] += 1
        return super().map()


class CountingFiles(QuickFiles):
    """Counts opens and reads, those of .log files apart."""

    file_class = CountingFile

    def __init__(self):
        self.counts = dict.fromkeys(("opens", "lists", "maps", "reads", "read_bytes", "log_read_bytes"), 0)
        self.log_counts = dict.fromkeys(("reads", "read_bytes", "maps"), 0)

    def open(self, path, *, write=False, create=False):
        file = super().open(path, write=write, create=create)
        file.counts = self.log_counts if path.endswith(".log") else self.counts
        self.counts["opens"] += 1
        return file

    def list_directory(self, path):
        self.counts["lists"] += 1
        return super().list_directory(path)


class FailingFile(QuickFile):
    __slots__ = ("failing",)

    def write_at(self, position, buffers):
        self.failing.tick()
        super().write_at(position, buffers)

    def truncate(self, size_bytes):
        self.failing.tick()
        super().truncate(size_bytes)

    def flush(self):
        self.failing.tick()


class FailingFiles(QuickFiles):
    """Raises at the Nth operation that changes the disk, and at every later one: the process is dead."""

    file_class = FailingFile

    def __init__(self, fail_at=None, *, once=False):
        self.left = fail_at
        self.once = once
        self.has_failed = False

    def tick(self):
        if self.left is None or (self.has_failed and self.once):
            return
        self.left -= 1
        if self.left < 0:
            self.has_failed = True
            raise StorageError(5, "the test pulled the plug", "")

    def open(self, path, *, write=False, create=False):
        if create and not os.path.exists(path):
            self.tick()
        file = super().open(path, write=write, create=create)
        file.failing = self
        return file


def _ticking(name):
    def operation(self, *arguments):
        self.tick()
        return getattr(QuickFiles, name)(self, *arguments)

    return operation


for _name in BY_PATH:
    setattr(FailingFiles, _name, _ticking(_name))


def run_python(code, *arguments, check=True, timeout=60, **options):
    """Run a separate program; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout


class Child:
    """A Python program that runs beside the test; the test sends it lines, and it answers with lines."""

    def __init__(self, code, *arguments):
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(code), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    @property
    def pid(self):
        return self._process.pid

    def say(self, line=""):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self):
        return self._process.stdout.readline().strip()

    def ask(self, line=""):
        self.say(line)
        return self.hear()

    def kill(self):
        self._process.kill()
        self._process.wait()


def kept_config(**settings):
    return StoreConfig(topic=TopicConfig(**settings))


def note_opened(monkeypatch):
    """The names of the logs that are opened from now on, in a list that grows."""
    names, open_log = [], open_logs.open_log

    def note(context, path, partition, *arguments, **options):
        names.append(str(partition))
        return open_log(context, path, partition, *arguments, **options)

    monkeypatch.setattr(open_logs, "open_log", note)
    return names
