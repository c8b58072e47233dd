"""A disk in memory that keeps a trace of its operations.

Pass :class:`MemoryFiles` to :func:`logstore.open` in place of the machine's file system. It is fast (nothing
leaves the process), begins from an :class:`Image`, and its trace has all operations in order. The trace is
the input of :mod:`~logstore.testing.crash`, and of tests that check the exact file operations of an action.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from logstore.errors import FencedError, StorageError, storage_error
from logstore.files import DirectoryEntry, FileStamp, VolumeSpace
from logstore.lock import HELD_HERE, refused, tries
from logstore.model import Bytes
from logstore.testing.operations import (
    Create,
    Exchange,
    FlushDirectory,
    FlushFile,
    Link,
    LoseUnflushed,
    MakeDirectory,
    Note,
    Operation,
    Remove,
    Rename,
    Trace,
    Truncate,
    Write,
)

ROOT = 0
"""The number of the root directory."""
VOLUME_BYTES = 2**40
"""The size of the disk, as it says. Nothing is refused for want of room."""


@dataclass(slots=True)
class Image:
    """The contents of a disk. Several disks may share one, so it never changes: a disk copies what it
    changes."""

    directories: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    """The names in each directory, each with the number of its file or directory."""
    files: dict[int, bytes] = field(default_factory=dict)
    behind: dict[int, bytes] = field(default_factory=dict)
    """What the disk holds after the end of a file, in its last block: bytes that were written although the
    new size was not. They cannot be read until the file grows over them."""

    def reachable(self) -> Image:
        """Without the files and directories that no name leads to."""
        found = Image({}, {})
        waiting = [ROOT]
        while waiting:
            number = waiting.pop()
            names = found.directories[number] = self.directories[number]
            for inode in names.values():
                if inode in self.directories:
                    waiting.append(inode)
                else:
                    found.files[inode] = self.files[inode]
                    if inode in self.behind:
                        found.behind[inode] = self.behind[inode]
        return found

    def paths(self) -> dict[str, bytes]:
        """The contents of every file by its path."""
        found: dict[str, bytes] = {}
        waiting = [("", ROOT)]
        while waiting:
            path, number = waiting.pop()
            for name, inode in self.directories[number].items():
                if inode in self.directories:
                    waiting.append((f"{path}/{name}", inode))
                else:
                    found[f"{path}/{name}"] = self.files[inode]
        return found


class MemoryFile:
    """An open file of a :class:`MemoryFiles`. It outlives its name, as an open file does."""

    __slots__ = ("_files", "_inode", "path")

    def __init__(self, files: MemoryFiles, path: str, inode: int) -> None:
        self._files = files
        self._inode = inode
        self.path = path

    def size_bytes(self) -> int:
        return len(self._files.contents[self._inode])

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return bytes(self._files.contents[self._inode][position : position + size_bytes])

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        data = b"".join(buffers)
        self._files.begin(Write(self.path, self._inode, position, data))
        contents = self._files.changeable(self._inode)
        if len(contents) < position:
            contents.extend(bytes(position - len(contents)))
        contents[position : position + len(data)] = data
        self._files.touch(self._inode)

    def truncate(self, size_bytes: int) -> None:
        self._files.begin(Truncate(self.path, self._inode, size_bytes))
        contents = self._files.changeable(self._inode)
        if size_bytes < len(contents):
            del contents[size_bytes:]
        else:
            contents.extend(bytes(size_bytes - len(contents)))
        self._files.touch(self._inode)

    def flush(self) -> None:
        self._files.begin(FlushFile(self.path, self._inode))

    def lose_unflushed(self) -> None:
        """Act like a failed flush: unflushed data stays readable, but later flushes do not write it."""
        self._files.begin(LoseUnflushed(self.path, self._inode))

    def map(self) -> Bytes:
        return bytes(self._files.contents[self._inode])

    def close(self) -> None:
        pass


class _MemoryLock:
    """A lock; lost when its file is removed or replaced, like the machine's."""

    def __init__(self, files: MemoryFiles, held: set[int], path: str, inode: int) -> None:
        self._files = files
        self._held = held
        self._path = path
        self._inode = inode

    def check(self) -> None:
        if self._files._find_or_none(self._path) != self._inode:
            raise FencedError(
                f"{self._path} was removed or replaced: close this, and open the directory again"
            )

    def release(self) -> None:
        self._held.discard(self._inode)


class _MemoryWatch:
    """A watch that reports every change on the disk, in any directory."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._seen = files._change_count
        self._is_woken = False

    def wait(self, timeout_ms: int) -> bool:
        with self._files._change_lock:
            self._files._changing.wait_for(self._has_news, timeout_ms / 1000)
            has_news = self._has_news()
            self._seen, self._is_woken = self._files._change_count, False
        return has_news

    def _has_news(self) -> bool:
        return self._is_woken or self._files._change_count != self._seen

    def wake(self) -> None:
        with self._files._change_lock:
            self._is_woken = True
            self._files._changing.notify_all()

    def close(self) -> None:
        pass


class MemoryFiles:
    """A file system in memory; implements :class:`~logstore.files.Files`.

    Threads may share it, but must not change the same file at the same time; logstore never does.
    """

    def __init__(
        self,
        image: Image | None = None,
        *,
        now_ms: Callable[[], int] = lambda: 1_700_000_000_000,
        before: Callable[[Operation], None] | None = None,
    ) -> None:
        """
        Args:
            image: the contents at the beginning; default: empty.
            now_ms: the clock of the file times.
            before: called before each operation, when it is in the trace but not done yet; may raise.
        """
        image = image or Image()
        self._image = image
        self._directories = {number: dict(names) for number, names in image.directories.items()}
        self.contents: dict[int, bytes | bytearray] = dict(image.files)
        self.trace: Trace = []
        self.before = before
        self._now_ms = now_ms
        self._modified_ms: dict[int, int] = {}
        self._change_count = 0
        self._changed: dict[int, int] = {}
        self._name_counts = Counter(inode for names in self._directories.values() for inode in names.values())
        """How many names each existing file or directory has."""
        self._next_number = max([*self._directories, *self.contents]) + 1
        self._held: set[int] = set()
        self._lock = threading.Lock()
        self._change_lock = threading.RLock()
        """Guards the count of changes."""
        self._changing = threading.Condition(self._change_lock)

    @property
    def image(self) -> Image:
        """The contents at the beginning."""
        return self._image

    def now(self) -> Image:
        """The contents now: the state after a crash of only the process."""
        directories = {number: dict(names) for number, names in self._directories.items()}
        return Image(directories, {number: bytes(data) for number, data in self.contents.items()}).reachable()

    def note(self, said: Any) -> None:
        """Put a note into the trace, for the checks of states after it."""
        self.trace.append(Note(said))

    # What files and operations share

    def begin(self, operation: Operation) -> None:
        """Put an operation into the trace, just before doing it."""
        self.trace.append(operation)
        if self.before is not None:
            self.before(operation)

    def changeable(self, inode: int) -> bytearray:
        contents = self.contents[inode]
        if not isinstance(contents, bytearray):
            contents = self.contents[inode] = bytearray(contents)
        return contents

    def touch(self, number: int) -> None:
        self._modified_ms[number] = self._now_ms()
        with self._change_lock:
            self._change_count += 1
            self._changed[number] = self._change_count
            self._changing.notify_all()

    def _new_number(self) -> int:
        with self._lock:
            number = self._next_number
            self._next_number += 1
        return number

    # Paths

    def absolute(self, path: str) -> str:
        return "/" + os.path.normpath(path).lstrip("/")

    def _find(self, path: str, action: str = "opening") -> int:
        number = ROOT
        for name in filter(None, path.split("/")):
            names = self._directories.get(number)
            if names is None or name not in names:
                raise _error(errno.ENOENT, path, action)
            number = names[name]
        return number

    def _find_or_none(self, path: str) -> int | None:
        try:
            return self._find(path)
        except StorageError:
            return None

    def _parent(self, path: str, action: str) -> tuple[int, str]:
        directory, _, name = path.rpartition("/")
        number = self._find(directory, action)
        if number not in self._directories:
            raise _error(errno.ENOTDIR, path, action)
        return number, name

    # Files

    def open(
        self, path: str, *, write: bool = False, create: bool = False, private: bool = False
    ) -> MemoryFile:
        directory, name = self._parent(path, "opening")
        inode = self._directories[directory].get(name)
        if inode is None:
            if not create:
                raise _error(errno.ENOENT, path, "opening")
            inode = self._new_number()
            self.begin(Create(path, directory, name, inode))
            self.contents[inode] = b""
            self._directories[directory][name] = inode
            self._name_counts[inode] += 1
            self.touch(directory)
            self.touch(inode)
        elif inode in self._directories:
            raise _error(errno.EISDIR, path, "opening")
        return MemoryFile(self, path, inode)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        names = self._directories.get(self._find(path, "listing"))
        if names is None:
            raise _error(errno.ENOTDIR, path, "listing")
        return [DirectoryEntry(name, inode in self._directories) for name, inode in sorted(names.items())]

    def is_file(self, path: str) -> bool:
        return self._find_or_none(path) in self.contents

    def is_directory(self, path: str) -> bool:
        return self._find_or_none(path) in self._directories

    def size_bytes(self, path: str) -> int:
        return len(self.contents[self._find(path, "reading the size of")])

    def modified_ms(self, path: str) -> int:
        return self._modified_ms.get(self._find(path, "reading the time of"), self._now_ms())

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._modified_ms[self._find(path, "setting the time of")] = modified_ms

    def changed_ns(self, path: str) -> int:
        return self._changed.get(self._find(path, "reading the time of"), 0)

    def stamp(self, path: str) -> FileStamp:
        number = self._find(path, "looking at")
        return FileStamp(number, len(self.contents.get(number, b"")), self._changed.get(number, 0))

    def rename(self, old: str, new: str) -> None:
        directory, name = self._parent(old, "renaming")
        new_directory, new_name = self._parent(new, "renaming")
        names = self._directories[directory]
        if name not in names:
            raise _error(errno.ENOENT, old, "renaming")
        if new_directory != directory:
            raise _error(errno.EXDEV, old, "renaming")
        target = self._directories.get(names.get(new_name, -1))
        if target:
            raise _error(errno.ENOTEMPTY, old, "renaming")
        self.begin(Rename(old, directory, name, new_name))
        if new_name in names and new_name != name:
            self._name_counts[names[new_name]] -= 1
        names[new_name] = names.pop(name)
        self.touch(directory)

    def link(self, path: str, new: str) -> None:
        inode = self._find(path, "linking")
        directory, name = self._parent(new, "linking")
        if inode in self._directories or name in self._directories[directory]:
            raise _error(errno.EPERM if inode in self._directories else errno.EEXIST, new, "linking")
        self.begin(Link(new, directory, name, inode))
        self._directories[directory][name] = inode
        self._name_counts[inode] += 1
        self.touch(directory)
        self.touch(inode)

    def link_count(self, path: str) -> int:
        return self._name_counts[self._find(path, "looking at")]

    def space(self, path: str) -> VolumeSpace:
        self._find(path, "reading the space of")
        return VolumeSpace(VOLUME_BYTES, VOLUME_BYTES - sum(map(len, list(self.contents.values()))))

    def exchange(self, path: str, other: str) -> None:
        directory, name = self._parent(path, "exchanging")
        other_directory, other_name = self._parent(other, "exchanging")
        names = self._directories[directory]
        if other_directory != directory or name not in names or other_name not in names:
            raise _error(errno.EXDEV if other_directory != directory else errno.ENOENT, path, "exchanging")
        self.begin(Exchange(path, directory, name, other_name))
        names[name], names[other_name] = names[other_name], names[name]
        self.touch(directory)

    def remove(self, path: str) -> None:
        directory, name = self._parent(path, "removing")
        inode = self._directories[directory].get(name)
        if inode is None or inode in self._directories:
            raise _error(errno.ENOENT if inode is None else errno.EISDIR, path, "removing")
        self.begin(Remove(path, directory, name))
        del self._directories[directory][name]
        self._name_counts[inode] -= 1
        self.touch(directory)

    def make_directory(self, path: str) -> None:
        made = ""
        for name in filter(None, path.split("/")):
            parent, made = made, f"{made}/{name}"
            if self._find_or_none(made) is not None:
                continue
            directory, number = self._find(parent), self._new_number()
            self.begin(MakeDirectory(made, directory, name, number))
            self._directories[number] = {}
            self._directories[directory][name] = number
            self.touch(directory)

    def remove_directory(self, path: str) -> None:
        directory, name = self._parent(path, "removing")
        number = self._find(path, "removing")
        if self._directories.get(number):
            raise _error(errno.ENOTEMPTY, path, "removing")
        self.begin(Remove(path, directory, name))
        del self._directories[directory][name]
        self.touch(directory)

    def flush_directory(self, path: str) -> None:
        self.begin(FlushDirectory(path, self._find(path, "flushing")))

    def watch(self, directories: Sequence[str]) -> _MemoryWatch:
        for path in directories:
            self._find(path, "watching")
        return _MemoryWatch(self)

    def lock(self, path: str, *, timeout_ms: int = 0) -> _MemoryLock:
        for _ in tries(timeout_ms):
            inode = self.open(path, create=True)._inode
            with self._lock:
                if inode not in self._held:
                    self._held.add(inode)
                    return _MemoryLock(self, self._held, path, inode)
        raise refused(path, "this process", HELD_HERE, timeout_ms)

    def is_locked(self, path: str) -> bool:
        with self._lock:
            return self._find_or_none(path) in self._held


def _error(number: int, path: str, action: str) -> StorageError:
    return storage_error(OSError(number, os.strerror(number)), path, action)


def trace_lines(trace: Iterable[Operation | Note], root: str = "") -> list[str]:
    """The trace as lines of text that a test can compare. Paths below ``root`` are shown relative to it."""
    lines = [str(entry).replace(f"{root}/", "") for entry in trace]
    return [f"{line.removesuffix(root)}." if root and line.endswith(f" {root}") else line for line in lines]
