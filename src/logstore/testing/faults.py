"""A disk that fails on command.

:class:`FaultyFiles` wraps any other file system, in memory or the machine's, counts the operations, and makes
chosen ones fail as a real system would. Let the first operation of a program fail, then the second, and so on
until the program runs without a failure, and check each time what the program does::

    for at in itertools.count(1):
        files = FaultyFiles(MemoryFiles())
        files.fail(FAULTS["EIO"], at=at)
        use(files)
        if not files.failures:
            break  # there is no such operation: all of them have failed

A failed flush is the worst failure. The kernel has marked the pages clean by then: they stay readable, are
never written, and the next flush succeeds. Around a :class:`~logstore.testing.memory.MemoryFiles` it works
the same way: what was written since the last flush may be missing after every later power cut
(:class:`~logstore.testing.operations.LoseUnflushed`).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, NoReturn

from logstore.errors import storage_error
from logstore.files import (
    DirectoryEntry,
    DirectoryWatch,
    File,
    Files,
    FileStamp,
    Lock,
    MappedBytes,
    VolumeSpace,
)
from logstore.model import Bytes

ACTIONS: Final = {
    "lock": "locking",
    "open": "opening",
    "create": "opening",
    "read": "reading",
    "map": "mapping",
    "stat": "looking at",
    "write": "writing",
    "truncate": "truncating",
    "flush": "flushing",
    "list": "listing",
    "rename": "renaming",
    "link": "linking",
    "exchange": "exchanging",
    "remove": "removing",
    "mkdir": "creating",
    "rmdir": "removing",
    "flush directory": "flushing",
    "set time": "setting the time of",
    "watch": "watching",
}
"""The kinds of operations, and their names in error messages."""

_EVERY = frozenset(ACTIONS)
_TAKE_SPACE = frozenset(
    {
        "create",
        "write",
        "truncate",
        "flush",
        "rename",
        "link",
        "exchange",
        "mkdir",
        "flush directory",
        "watch",
    }
)
_TAKE_DESCRIPTORS = frozenset({"lock", "open", "create", "map", "list", "flush directory", "watch"})
_CHANGE = frozenset(
    {
        "lock",
        "create",
        "write",
        "truncate",
        "rename",
        "link",
        "exchange",
        "remove",
        "mkdir",
        "rmdir",
        "set time",
    }
)
_NEED_PERMISSION = _EVERY - {"read", "write", "flush"}
_LATE = _EVERY - {"read", "map", "stat", "list", "watch"}
"""What may have been done when an error is reported. The others tell something: they tell it or they fail."""


class Moment(Enum):
    """When an operation fails."""

    BEFORE = "before"
    """Nothing was done."""
    WITHIN = "within"
    """Half of the bytes of a write were written."""
    AFTER = "after"
    """Everything was done, but an error is reported anyway."""


_KINDS_AT: Final = {Moment.BEFORE: _EVERY, Moment.WITHIN: frozenset({"write"}), Moment.AFTER: _LATE}


class Fault(NamedTuple):
    """A way to fail."""

    errno: int
    kinds: frozenset[str]
    """The kinds of operations that can fail this way."""
    moment: Moment = Moment.BEFORE
    """``WITHIN`` is for writes only. ``AFTER`` is not for read, map, stat, list and watch."""


FAULTS: Final = {
    "EIO": Fault(errno.EIO, _EVERY),
    "ENOSPC": Fault(errno.ENOSPC, _TAKE_SPACE),
    "EDQUOT": Fault(errno.EDQUOT, _TAKE_SPACE),
    "EINTR": Fault(errno.EINTR, _EVERY),
    "EMFILE": Fault(errno.EMFILE, _TAKE_DESCRIPTORS),
    "EROFS": Fault(errno.EROFS, _CHANGE),
    "EACCES": Fault(errno.EACCES, _NEED_PERMISSION),
    "short write": Fault(errno.ENOSPC, frozenset({"write"}), Moment.WITHIN),
    "failed flush": Fault(errno.EIO, frozenset({"flush"})),
    "late EIO": Fault(errno.EIO, _CHANGE | {"flush directory"}, Moment.AFTER),
}
"""The ways to fail that real systems have, by name."""


@dataclass(slots=True)
class _Rule:
    """Which operations fail, and how many still pass or fail."""

    fault: Fault
    kinds: frozenset[str]
    path: str
    pass_count: int
    fail_count: int | None

    def strikes(self, kind: str, path: str) -> bool:
        """Count an operation, and say whether it fails."""
        if kind not in self.kinds or self.path not in path or self.fail_count == 0:
            return False
        if self.pass_count:
            self.pass_count -= 1
            return False
        if self.fail_count is not None:
            self.fail_count -= 1
        return True


def _meant(fault: Fault, kinds: Collection[str] | None) -> frozenset[str]:
    """The kinds of operations that will fail. Refuses an empty set: such a test would prove nothing.

    Raises:
        ValueError: nothing could fail, or ``fault`` is not a Fault.
    """
    if not isinstance(fault, Fault):
        raise ValueError(f"fault is {fault!r}; it must be a Fault, such as FAULTS['EIO']")
    if not isinstance(fault.moment, Moment):
        raise ValueError(
            f"moment of the fault is {fault.moment!r}; it must be a Moment, such as Moment.BEFORE"
        )
    can = _KINDS_AT[fault.moment]
    if isinstance(fault.kinds, str) or not fault.kinds or not can.issuperset(fault.kinds):
        raise ValueError(
            f"kinds of the fault is {fault.kinds!r}; it must be some of: "
            + ", ".join(each for each in ACTIONS if each in can)
        )
    if kinds is None:
        return frozenset(fault.kinds)
    if isinstance(kinds, str) or not _EVERY.issuperset(kinds):
        raise ValueError(f"kinds is {kinds!r}; it must be a list of some of: {', '.join(ACTIONS)}")
    meant = frozenset(fault.kinds).intersection(kinds)
    if not meant:
        raise ValueError(f"kinds is {kinds!r}; this fault only strikes: {', '.join(sorted(fault.kinds))}")
    return meant


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and value >= least


class FaultyFiles:
    """A file system around another one; implements :class:`~logstore.files.Files`. Safe to use from many
    threads, but the order of their operations, and so which one is the Nth, is then random."""

    def __init__(self, files: Files) -> None:
        self.files = files
        """The file system that does the work."""
        self.operations: list[tuple[str, str]] = []
        """Kind (see :data:`ACTIONS`) and path of every requested operation."""
        self.failures: list[tuple[str, str]] = []
        """Kind and path of every operation that failed."""
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()

    def fail(
        self,
        fault: Fault,
        *,
        at: int = 1,
        times: int | None = 1,
        kinds: Collection[str] | None = None,
        path: str = "",
    ) -> None:
        """Let operations fail from now on.

        Args:
            fault: how to fail; one of :data:`FAULTS`, or your own.
            at: which of the matching operations fails first; 1 is the next one.
            times: how many fail in a row; None for all from there on, 0 for none.
            kinds: only these kinds of operations.
            path: only operations with this in their path.

        Raises:
            ValueError: nothing could ever fail, because a kind does not exist, also one of the fault's own;
                none of the kinds can fail this way, or at its moment; or ``at`` is no number from 1 on.
        """
        meant = _meant(fault, kinds)
        if not (_is_count(at, 1) and (times is None or _is_count(times, 0)) and isinstance(path, str)):
            raise ValueError(
                f"at is {at!r}, times {times!r} and path {path!r}; at must be 1 or above, times 0 or above "
                "or None, and path a text"
            )
        with self._lock:
            self._rules.append(_Rule(fault, meant, path, at - 1, times))

    def heal(self) -> None:
        """Stop all failures."""
        with self._lock:
            self._rules.clear()

    def begin(self, kind: str, path: str) -> Fault | None:
        """Count an operation. Returns the fault that will strike later, or None.

        Raises:
            StorageError: the operation fails before anything is done.
        """
        with self._lock:
            self.operations.append((kind, path))
            struck = [rule.fault for rule in self._rules if rule.strikes(kind, path)]
            if not struck:
                return None
            self.failures.append((kind, path))
        if struck[0].moment is Moment.BEFORE:
            _fail(struck[0], kind, path)
        return struck[0]

    def end(self, fault: Fault | None, kind: str, path: str) -> None:
        """
        Raises:
            StorageError: the operation fails after it was done.
        """
        if fault is not None:
            _fail(fault, kind, path)

    # What a file system does

    def absolute(self, path: str) -> str:
        return self.files.absolute(path)

    def open(
        self, path: str, *, write: bool = False, create: bool = False, private: bool = False
    ) -> FaultyFile:
        kind = "create" if create else "open"
        fault = self.begin(kind, path)
        if private:
            file = self.files.open(path, write=write, create=create, private=True)
        else:  # a file system of a test need not know of private files
            file = self.files.open(path, write=write, create=create)
        self.end(fault, kind, path)
        return FaultyFile(self, file)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self.begin("list", path)
        return self.files.list_directory(path)

    def is_file(self, path: str) -> bool:
        self.begin("stat", path)
        return self.files.is_file(path)

    def is_directory(self, path: str) -> bool:
        self.begin("stat", path)
        return self.files.is_directory(path)

    def size_bytes(self, path: str) -> int:
        self.begin("stat", path)
        return self.files.size_bytes(path)

    def modified_ms(self, path: str) -> int:
        self.begin("stat", path)
        return self.files.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        fault = self.begin("set time", path)
        self.files.set_modified_ms(path, modified_ms)
        self.end(fault, "set time", path)

    def changed_ns(self, path: str) -> int:
        self.begin("stat", path)
        return self.files.changed_ns(path)

    def stamp(self, path: str) -> FileStamp:
        self.begin("stat", path)
        return self.files.stamp(path)

    def rename(self, old: str, new: str) -> None:
        fault = self.begin("rename", old)
        self.files.rename(old, new)
        self.end(fault, "rename", old)

    def link(self, path: str, new: str) -> None:
        fault = self.begin("link", path)
        self.files.link(path, new)
        self.end(fault, "link", path)

    def link_count(self, path: str) -> int:
        self.begin("stat", path)
        return self.files.link_count(path)

    def space(self, path: str) -> VolumeSpace:
        self.begin("stat", path)
        return self.files.space(path)

    def exchange(self, path: str, other: str) -> None:
        fault = self.begin("exchange", path)
        self.files.exchange(path, other)
        self.end(fault, "exchange", path)

    def remove(self, path: str) -> None:
        fault = self.begin("remove", path)
        self.files.remove(path)
        self.end(fault, "remove", path)

    def make_directory(self, path: str) -> None:
        fault = self.begin("mkdir", path)
        self.files.make_directory(path)
        self.end(fault, "mkdir", path)

    def remove_directory(self, path: str) -> None:
        fault = self.begin("rmdir", path)
        self.files.remove_directory(path)
        self.end(fault, "rmdir", path)

    def flush_directory(self, path: str) -> None:
        fault = self.begin("flush directory", path)
        self.files.flush_directory(path)
        self.end(fault, "flush directory", path)

    def watch(self, directories: Sequence[str]) -> DirectoryWatch:
        self.begin("watch", directories[0])
        return self.files.watch(directories)

    def lock(self, path: str, *, timeout_ms: int = 0) -> Lock:
        fault = self.begin("lock", path)
        if fault is not None:  # else the lock would be taken and never released
            _fail(fault, "lock", path)
        return self.files.lock(path, timeout_ms=timeout_ms)

    def is_locked(self, path: str) -> bool:
        self.begin("stat", path)
        return self.files.is_locked(path)


class FaultyFile:
    """An open file of a :class:`FaultyFiles`."""

    __slots__ = ("_file", "_files", "path")

    def __init__(self, files: FaultyFiles, file: File) -> None:
        self._files = files
        self._file = file
        self.path = file.path

    def size_bytes(self) -> int:
        self._files.begin("stat", self.path)
        return self._file.size_bytes()

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._files.begin("read", self.path)
        return self._file.read_at(position, size_bytes)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._files.begin("read", self.path)
        return self._file.read_into(position, buffer)

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        fault = self._files.begin("write", self.path)
        if fault is not None and fault.moment is Moment.WITHIN:
            data = b"".join(buffers)
            buffers = [data[: len(data) // 2]]
        self._file.write_at(position, buffers)
        self._files.end(fault, "write", self.path)

    def truncate(self, size_bytes: int) -> None:
        fault = self._files.begin("truncate", self.path)
        self._file.truncate(size_bytes)
        self._files.end(fault, "truncate", self.path)

    def flush(self) -> None:
        try:
            fault = self._files.begin("flush", self.path)
        except OSError as error:
            lose = getattr(self._file, "lose_unflushed", None)
            if lose is not None and error.errno != errno.EINTR:
                lose()
            raise
        self._file.flush()
        self._files.end(fault, "flush", self.path)

    def map(self) -> MappedBytes:
        self._files.begin("map", self.path)
        return self._file.map()

    def close(self) -> None:
        self._file.close()


def _fail(fault: Fault, kind: str, path: str) -> NoReturn:
    raise storage_error(OSError(fault.errno, os.strerror(fault.errno)), path, ACTIONS[kind])
