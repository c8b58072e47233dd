"""The little language of the tests about a partition's files: write, read, reopen, crash, damage.

Every record's value is a function of its offset, so a wrong, missing or foreign record shows without a model
beside the log.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError, storage_error
from logstore.files import File, Files, OsFiles
from logstore.format.batch import encode_batch
from logstore.format.compression import Codec
from logstore.format.header import BatchHeader
from logstore.format.loops import scan_batches
from logstore.format.names import LOG_SUFFIX, segment_file_name
from logstore.model import NewRecord
from logstore.partition.log import Log
from logstore.testing import ManualClock

FIRST_MS = 1_600_000_000_000
"""The timestamp of the record at offset 0; each record is one second later than the one before."""


def value_of(offset: int, size_bytes: int = 40) -> bytes:
    """The value that the record at ``offset`` must have."""
    return f"value of {offset} ".encode().ljust(size_bytes, b".")


def time_of(offset: int) -> int:
    return FIRST_MS + offset * 1000


def batch_of(
    base_offset: int, count: int, *, size_bytes: int = 40, codec: Codec = Codec.NONE, epoch: int = 0
) -> bytearray:
    """An encoded batch of right records."""
    offsets = range(base_offset, base_offset + count)
    return encode_batch(
        [None] * count,
        [value_of(offset, size_bytes) for offset in offsets],
        [time_of(offset) for offset in offsets],
        base_offset=base_offset,
        codec=codec,
        partition_leader_epoch=epoch,
    )


def drop(log: Log) -> None:
    """Release a log as the death of the process would: nothing more is written, the lock is free."""
    log.abandon()
    log._context.scheduler.stop()
    log._context.home.release()


class Partition:
    """One partition's directory, and the log that has it open, if any."""

    def __init__(self, path: Path, *, files: Files | None = None, **config: Any) -> None:
        self.path = path
        self.files = files or UnflushedFiles()
        self.size_bytes = 40
        self.clock = ManualClock()
        self.config = TopicConfig(**{"segment_bytes": 2**20, "index_interval_bytes": 100} | config)
        self._log: Log | None = None

    # The log

    @property
    def log(self) -> Log:
        if self._log is None:
            self.open()
        assert self._log is not None
        return self._log

    def open(self, *, accept_loss: bool = False, files: Files | None = None) -> Log:
        self._log = Log.open(
            str(self.path),
            config=self.config,
            store_config=StoreConfig(linger_ms=0),
            files=files or self.files,
            clock=self.clock,
            accept_loss=accept_loss,
        )
        return self._log

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def crash(self) -> None:
        """The process dies; what it wrote stays."""
        if self._log is not None:
            drop(self._log)
            self._log = None

    def reopen(self, *, accept_loss: bool = False) -> Log:
        """Stop cleanly if it is open, and open again."""
        self.close()
        return self.open(accept_loss=accept_loss)

    def recover(self, *, accept_loss: bool = False) -> Log:
        """Crash, and open again."""
        self.crash()
        return self.open(accept_loss=accept_loss)

    def dies_during(self, action: Callable[[], object], count: int) -> bool:
        """Let the process die in ``action`` after ``count`` changes; False if the action finished."""
        self.log._context.files.watch = crash_after(count).watch
        try:
            action()
        except Crash:
            return True
        finally:
            self.files = UnflushedFiles()
            self.crash()
        return False

    # Records

    def write(self, count: int, *, batch: int = 1) -> range:
        """Append ``count`` right records, ``batch`` of them in each batch."""
        first = self.log.log_end_offset
        for base in range(first, first + count, batch):
            offsets = range(base, min(base + batch, first + count))
            self.log.extend(
                [NewRecord(value_of(o, self.size_bytes), timestamp_ms=time_of(o)) for o in offsets]
            )
        return range(first, first + count)

    def write_segments(self, *counts: int, batch: int = 1) -> None:
        """One segment for each count."""
        for number, count in enumerate(counts):
            if number:
                self.log.roll()
            self.write(count, batch=batch)

    def checkpoint(self) -> None:
        """Move the stored recovery point to the log end."""
        self.log.checkpoint()
        self.log._context.home.store_checkpoints()

    def read(self, start: int | None = None, stop: int | None = None) -> list[int]:
        """The offsets that can be read. Every record must be right."""
        return [check_record(record, self.size_bytes) for record in self.log.read(start, stop)]

    # The files

    def file(self, base_offset: int = 0, suffix: str = LOG_SUFFIX) -> Path:
        return self.path / segment_file_name(base_offset, suffix)

    def names(self, pattern: str = "*") -> list[str]:
        return sorted(path.name for path in self.path.glob(pattern))

    def bases(self) -> list[int]:
        return [int(name.split(".")[0]) for name in self.names("*.log")]

    def batches(self, base_offset: int = 0) -> list[tuple[int, BatchHeader]]:
        """(position, header) of each batch in a segment's file."""
        data = self.file(base_offset).read_bytes()
        return scan_batches(data, 0, len(data), check=False)[0]

    def corrupt(self, position: int, base_offset: int = 0, *, suffix: str = LOG_SUFFIX) -> None:
        """Change one byte of a file."""
        with self.file(base_offset, suffix).open("r+b") as file:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ 0x55]))

    def corrupt_batch(self, number: int, base_offset: int = 0) -> int:
        """Damage a batch's records; returns where it begins."""
        position, header = self.batches(base_offset)[number]
        self.corrupt(position + header.size_bytes - 5, base_offset)
        return position

    def truncate_file(self, size_bytes: int, base_offset: int = 0, *, suffix: str = LOG_SUFFIX) -> None:
        with self.file(base_offset, suffix).open("r+b") as file:
            file.truncate(size_bytes)

    def extend_file(self, data: bytes, base_offset: int = 0, *, suffix: str = LOG_SUFFIX) -> None:
        with self.file(base_offset, suffix).open("ab") as file:
            file.write(data)

    def write_file(self, data: bytes, base_offset: int = 0, *, suffix: str = LOG_SUFFIX) -> None:
        self.file(base_offset, suffix).write_bytes(data)

    def rename(self, base_offset: int, old: str, new: str) -> None:
        self.file(base_offset, old).rename(self.path / (segment_file_name(base_offset, "") + new))

    def kept_aside(self) -> bytes:
        """The bytes that recoveries cut off and kept."""
        return b"".join((self.path / name).read_bytes() for name in self.names("*.torn-*"))

    def copy(self) -> Partition:
        """The same files in another directory of the same name (checkpoints use it), which replaces the last
        copy. The lock file is not copied: reading it here would drop the lock."""
        path = self.path.parent / "copy" / self.path.name
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path, path, ignore=shutil.ignore_patterns(".lock"))
        copy = Partition(path)
        copy.config, copy.size_bytes = self.config, self.size_bytes
        return copy


def check_record(record: Any, size_bytes: int = 40) -> int:
    """The offset of a record that must be right."""
    assert record.value == value_of(record.offset, size_bytes), record
    assert record.timestamp_ms == time_of(record.offset), record
    return int(record.offset)


def read_or_refuse(offsets: Callable[[], list[int]], expected: Iterable[int]) -> bool:
    """Whether a read was refused with a CorruptionError that says where; otherwise it must be exactly
    right."""
    try:
        found = offsets()
    except CorruptionError as error:
        return is_located(error)
    assert found == list(expected)
    return False


def is_located(error: CorruptionError, path: Path | None = None) -> bool:
    """True; fails if the error does not say where."""
    assert error.position is not None
    assert error.path == str(path) if path is not None else error.path is not None
    return True


def in_child(action: Callable[[], object]) -> str:
    """Run ``action`` in a forked child; returns its result as text, or the name of the error it raises."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            answer = str(action())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(there, answer.encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


# Disks that fail or watch -----------------------------------------------------------------------------------


class Crash(BaseException):
    """The process stops here. Not an Exception: no code may handle it."""


class WatchedFile:
    """A file that reports every change to a :class:`WatchedFiles`."""

    def __init__(self, file: File, watch: Callable[[str, str], None]) -> None:
        self._file = file
        self._watch = watch
        self.path = file.path

    def write_at(self, position: int, buffers: Any) -> None:
        self._watch("write", self.path)
        self._file.write_at(position, buffers)

    def truncate(self, size_bytes: int) -> None:
        self._watch("truncate", self.path)
        self._file.truncate(size_bytes)

    def flush(self) -> None:
        self._watch("flush", self.path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class WatchedFiles(OsFiles):
    """The machine's disk; notes every change in ``trace`` as (what, file name) before making it. ``before``
    may raise to stop it. Flushes are only noted: files survive the death of a process anyway, and waiting for
    the disk would take most of the tests' time."""

    def __init__(self, before: Callable[[str, str], None] | None = None) -> None:
        self.trace: list[tuple[str, str]] = []
        self.before = before

    def watch(self, action: str, path: str) -> None:
        if self.before is not None:
            self.before(action, path)
        self.trace.append((action, path.rpartition("/")[2]))

    def open(self, path: str, *, write: bool = False, create: bool = False) -> Any:
        if create:
            self.watch("create", path)
        return WatchedFile(super().open(path, write=write, create=create), self.watch)

    def rename(self, old: str, new: str) -> None:
        self.watch("rename", old)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.watch("remove", path)
        super().remove(path)

    def flush_directory(self, path: str) -> None:
        self.watch("flush directory", path)


class UnflushedFiles(WatchedFiles):
    """Like :class:`WatchedFiles`, without notes."""

    def watch(self, action: str, path: str) -> None:
        pass


def crash_after(count: int) -> WatchedFiles:
    """A disk whose process dies before change number ``count`` + 1."""

    def before(action: str, path: str) -> None:
        if len(files.trace) >= count:
            raise Crash

    files = WatchedFiles(before)
    return files


@contextmanager
def failing(files: WatchedFiles, action: str, name: str, errno: int) -> Iterator[None]:
    """Inside this context, ``action`` fails on files whose name contains ``name``."""

    def before(seen: str, path: str) -> None:
        if seen == action and name in path:
            raise storage_error(OSError(errno, "made to fail"), path, action)

    files.before = before
    try:
        yield
    finally:
        files.before = None
