"""The disk. No other module touches it (but :mod:`~logstore.lock` and :mod:`~logstore.inotify` for this one),
so everything above can run against another implementation.

Two protocols, :class:`File` and :class:`Files`, and their implementation on the operating system. They are
narrow on purpose: positioned reads and writes, truncate, flush, rename, remove, list. Every method raises
:class:`~logstore.errors.StorageError` (a full disk: :class:`~logstore.errors.DiskFullError`) with the path.

What survives a power cut: file contents after :meth:`File.flush`; creation, renaming and removal of a name
after :meth:`Files.flush_directory` of its directory. Nothing else may be assumed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import resource
import stat
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self, cast

from logstore.arguments import plain_text, shown
from logstore.build import compiled
from logstore.errors import (
    ClosedError,
    CorruptionError,
    ForkedError,
    StorageError,
    UsageError,
    storage_error,
)
from logstore.lock import OsLock
from logstore.model import Bytes

MappedBytes = Bytes | mmap.mmap
"""What :meth:`File.map` returns."""

PathLike = str | os.PathLike[str]
"""What users may give where a path is wanted."""

DIRECTORY_MODE = 0o750
FILE_MODE = 0o640
_MAX_BUFFERS_PER_WRITE = 512  # below every system's IOV_MAX


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool


class FileStamp(NamedTuple):
    """Another one when another file has the name, or when the file was changed."""

    number: int
    """Of the file, whatever its name."""
    size_bytes: int
    changed_ns: int


class File(Protocol):
    """An open file. Safe to use from many threads: no method depends on a current position."""

    path: str

    def size_bytes(self) -> int: ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to ``size_bytes`` bytes from ``position``; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` with bytes from ``position`` on; how many there were, fewer only at the end of the
        file. Saves the new memory that :meth:`read_at` takes: a sixth of its time."""
        ...

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        """Write all the buffers one after another from ``position``. On an error part of them may be in the
        file."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def flush(self) -> None:
        """Make the contents and the size durable. After an error the data may be gone from memory and disk
        alike: do not retry and assume."""
        ...

    def map(self) -> MappedBytes:
        """The whole file as a read-only buffer. Nobody may truncate the file in place while it is used:
        touching what is gone ends the process."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """Exclusive ownership of a directory."""

    def check(self) -> None:
        """
        Raises:
            FencedError: it was lost: the file was removed or replaced, or the system dropped the lock, and
                another process may have the directory. It stays lost.
        """
        ...

    def release(self) -> None: ...


class DirectoryWatch(Protocol):
    """Waits until something changes in some directories: names come, go or lead to other files, or a file is
    written to or cut. Which of it was, the caller finds out; some of what is told changes nothing for him.

    A file system may tell nothing at all, as of what another machine does on a network's disk. So look now
    and then, whatever :meth:`wait` says.
    """

    def wait(self, timeout_ms: int) -> bool:
        """Whether something has changed since the last wait, as soon as it does, or false after the timeout.
        Look behind it: what changes during the look is told by the next wait. One thread at a time."""
        ...

    def wake(self) -> None:
        """Let the thread that waits return at once. From any thread."""
        ...

    def close(self) -> None:
        """Watch no longer. By the thread that waits with it, and not while it does."""
        ...


class Files(Protocol):
    """A file system."""

    def absolute(self, path: str) -> str: ...

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open an existing file, or with ``create`` one that may not exist yet."""
        ...

    def list_directory(self, path: str) -> list[DirectoryEntry]: ...

    def is_file(self, path: str) -> bool:
        """False where there is no such file. Where the disk cannot tell, that is an error: taken for missing,
        a file would not be flushed, or come back later."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def changed_ns(self, path: str) -> int:
        """A number that changes when the directory's names change; for followers in other processes."""
        ...

    def stamp(self, path: str) -> FileStamp:
        """What tells a file from one that takes its name; for readers in other processes."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing ``new`` at once."""
        ...

    def link(self, path: str, new: str) -> None:
        """Give a file a second name, which is not there yet. Not every file system can, and none between two
        of them."""
        ...

    def link_count(self, path: str) -> int:
        """How many names a file has: what is written in place into one of several is in all of them."""
        ...

    def exchange(self, path: str, other: str) -> None:
        """Let two names of one directory change places, in one step. Not every file system can."""
        ...

    def remove(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; nothing if it is there."""
        ...

    def remove_directory(self, path: str) -> None: ...

    def flush_directory(self, path: str) -> None: ...

    def watch(self, directories: Sequence[str]) -> DirectoryWatch:
        """Be told of changes in these directories, not in those below them; for readers in other processes.

        Raises:
            StorageError: the system cannot (ENOSYS), or may not now: there are as many as allowed.
        """
        ...

    def lock(self, path: str, *, timeout_ms: int = 0) -> Lock:
        """Take the exclusive lock on the file ``path``, creating it; wait for it for so long at most.

        Raises:
            LockedError: another process, or this one, holds it; names the holder where the system tells.
        """
        ...


class OsFile:
    """A file of the operating system. Its descriptor is closed with the last reference to the object, so a
    reader may go on with a file that was dropped from a cache or unlinked meanwhile."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def size_bytes(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_error(error, self.path, "reading the size of") from error

    def read_at(self, position: int, size_bytes: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size_bytes, position)
            if len(data) == size_bytes or not data:
                return data
            return self._read_rest(position, size_bytes, data)
        except OSError as error:
            raise storage_error(error, self.path, "reading") from error

    def _read_rest(self, position: int, size_bytes: int, data: bytes) -> bytes:
        parts = [data]
        got = len(data)
        while got < size_bytes:
            part = os.pread(self._descriptor, size_bytes - got, position + got)
            if not part:
                break
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def read_aside(self, position: int, size_bytes: int) -> bytes:
        """See :func:`read_aside`. Linux: what is cached is read without waiting; the rest is read without
        reading ahead, and given back. The question what is cached makes the system read ahead as well."""
        advise = os.posix_fadvise
        with contextlib.suppress(OSError):
            advise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        cached = bytearray(size_bytes)
        with contextlib.suppress(OSError):  # EAGAIN: not in the cache; or the file system cannot say
            if os.preadv(self._descriptor, [cached], position, os.RWF_NOWAIT) == size_bytes:
                return bytes(cached)
        data = self.read_at(position, size_bytes)
        with contextlib.suppress(OSError):
            advise(self._descriptor, position, size_bytes, os.POSIX_FADV_DONTNEED)
        return data

    def let_go(self, end: int) -> None:
        """See :func:`let_go`."""
        with contextlib.suppress(OSError):  # from 0: where memory is in large pieces, one goes as a whole
            os.posix_fadvise(self._descriptor, 0, end, os.POSIX_FADV_DONTNEED)

    def read_into(self, position: int, buffer: memoryview) -> int:
        try:
            done = os.preadv(self._descriptor, [buffer], position)
            while 0 < done < len(buffer):
                more = os.preadv(self._descriptor, [buffer[done:]], position + done)
                if not more:
                    break
                done += more
            return done
        except OSError as error:
            raise storage_error(error, self.path, "reading") from error

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        # A write may take less than asked without an error (a disk that fills up, RLIMIT_FSIZE): go on until
        # all is written or the system says why not.
        try:
            rest = buffers if len(buffers) <= _MAX_BUFFERS_PER_WRITE else [b"".join(buffers)]
            size = sum(map(len, rest))
            written = os.pwritev(self._descriptor, rest, position)
            if written < size:
                self._write_rest(position + written, memoryview(b"".join(rest))[written:])
        except OSError as error:
            raise storage_error(error, self.path, "writing") from error

    def _write_rest(self, position: int, rest: memoryview) -> None:
        while rest:
            written = os.pwrite(self._descriptor, rest, position)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            position += written
            rest = rest[written:]

    def copy_to(self, target: OsFile, position: int, size_bytes: int) -> int:
        """See :func:`copy_file`. May raise OSError where the two files cannot be copied like this."""
        return os.copy_file_range(
            self._descriptor, target._descriptor, size_bytes, offset_src=position, offset_dst=position
        )

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            raise storage_error(error, self.path, "truncating") from error

    def flush(self) -> None:
        try:
            _flush_descriptor(self._descriptor)
        except OSError as error:
            raise storage_error(error, self.path, "flushing") from error

    def map(self) -> MappedBytes:
        try:
            size = self.size_bytes()
            return mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) if size else b""
        except OSError as error:
            raise storage_error(error, self.path, "mapping") from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:  # a network file system may tell here that it could not write
                raise storage_error(error, self.path, "closing") from error

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


if sys.platform == "darwin":  # fsync there leaves the data in the drive's cache

    def _flush_descriptor(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def _flush_descriptor(descriptor: int) -> None:
        os.fdatasync(descriptor)


def _open_descriptor(path: str, flags: int) -> int:
    """Open a regular file, never through a symbolic link, never inherited by a child program."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CorruptionError(
                "is a symbolic link; the engine opens regular files only", path=path
            ) from error
        raise storage_error(error, path, "opening") from error
    try:
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError as error:
        os.close(descriptor)
        raise storage_error(error, path, "opening") from error
    if not is_regular:
        os.close(descriptor)
        raise CorruptionError("is not a regular file", path=path)
    return descriptor


class OsFiles:
    """The operating system's file system."""

    def absolute(self, path: str) -> str:
        return os.path.abspath(path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return OsFile(path, _open_descriptor(path, flags | os.O_CREAT if create else flags))

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        with _reported(path, "listing"), os.scandir(path) as entries:
            return [DirectoryEntry(e.name, e.is_dir(follow_symlinks=False)) for e in entries]

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(_mode_of(path))

    def is_directory(self, path: str) -> bool:
        return stat.S_ISDIR(_mode_of(path))

    def size_bytes(self, path: str) -> int:
        with _reported(path, "reading the size of"):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        with _reported(path, "reading the time of"):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with _reported(path, "setting the time of"):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def changed_ns(self, path: str) -> int:
        with _reported(path, "reading the time of"):
            return os.stat(path).st_mtime_ns

    def stamp(self, path: str) -> FileStamp:
        with _reported(path, "looking at"):
            status = os.stat(path)
        return FileStamp(status.st_ino, status.st_size, status.st_ctime_ns)

    def rename(self, old: str, new: str) -> None:
        with _reported(old, "renaming"):
            os.replace(old, new)

    def link(self, path: str, new: str) -> None:
        with _reported(path, "linking"):
            os.link(path, new)

    def link_count(self, path: str) -> int:
        with _reported(path, "looking at"):
            return os.stat(path).st_nlink

    def exchange(self, path: str, other: str) -> None:
        with _reported(path, "exchanging"):
            _exchange(os.fsencode(path), os.fsencode(other))

    def remove(self, path: str) -> None:
        with _reported(path, "removing"):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        with _reported(path, "creating"):
            os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        with _reported(path, "removing"):
            os.rmdir(path)

    def flush_directory(self, path: str) -> None:
        with _reported(path, "flushing"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def watch(self, directories: Sequence[str]) -> DirectoryWatch:
        from logstore.inotify import InotifyWatch  # ctypes, and few programs get here

        return InotifyWatch(directories)

    def lock(self, path: str, *, timeout_ms: int = 0) -> Lock:
        return OsLock(path, lambda: _open_descriptor(path, os.O_RDWR | os.O_CREAT), timeout_ms)


def _exchange(path: bytes, other: bytes) -> None:
    """``renameat2`` with ``RENAME_EXCHANGE``: Linux 3.15, and most of its file systems. Python has no name
    for it."""
    import ctypes  # 4 ms, and few programs get here

    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None, use_errno=True), "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here, is_exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if libc.renameat2(here, path, here, other, is_exchange):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mode_of(path: str) -> int:
    """What is there; 0 for nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise storage_error(error, path, "looking at") from error


@contextlib.contextmanager
def _reported(path: str, action: str) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, path, action) from error


def open_file_limit() -> int:
    """How many files this process may have open (``RLIMIT_NOFILE``)."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def check_path(path: object, kind: str = "a directory") -> str:
    """A path as text; ``kind`` is what an error says that it must lead to.

    Raises:
        UsageError: not text, empty, with a NUL in it, or with what the file system cannot spell.
    """
    name = path.__fspath__() if isinstance(path, os.PathLike) else path
    name = plain_text(name)
    if type(name) is not str or not name or "\0" in name or not _can_be_a_name(name):
        raise UsageError(f"path is {shown(path)}; it must be the path of {kind}")
    return name


def _can_be_a_name(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


# Long reads -------------------------------------------------------------------------------------------------


MAPPED_PIECE_BYTES = 16 * 1024 * 1024
"""A millisecond of work or two: how long an interrupt of the user may have to wait. Also what a pass takes in
memory."""
READ_PIECE_BYTES = 1024 * 1024


class Removals:
    """Counts the files that an action removes, and their bytes: stands in front of the disk that it uses."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.count = self.size_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def remove(self, path: str) -> None:
        size_bytes = 0
        with contextlib.suppress(StorageError):
            size_bytes = self._files.size_bytes(path)
        self._files.remove(path)
        self.count += 1
        self.size_bytes += size_bytes

    @property
    def files(self) -> Files:
        """To be handed to what removes them."""
        return cast(Files, self)


class FilePieces:
    """The first ``size_bytes`` bytes of a file for one pass over them, without a copy where that is possible.

    The file is mapped, and before a piece is given out its pages are loaded, so that a disk error is met
    there, and not as a signal that ends the process. Where pages cannot be loaded like that (no compiled
    module, no Linux of 5.14 or later), also because of such an error, the piece is read: then the error is
    reported as any other. Pages that were passed are let go: a pass takes the memory of one piece, however
    large the file. Nobody may cut the file before :meth:`close`.

    Loading costs nothing: 1.2 times as fast as touching page after page, and 1.5 times as fast as reading
    (1 GiB in the page cache, pieces of 1 to 32 MiB).
    """

    def __init__(self, file: File, size_bytes: int, *, can_map: bool = True) -> None:
        """Without ``can_map`` every piece is read: another process may cut the file at any time."""
        self._file = file
        self._size_bytes = size_bytes
        self._mapped: MappedBytes | None = None
        self._can_map = can_map and compiled is not None
        self._let_go_to = 0

    def piece(self, position: int) -> tuple[MappedBytes, int, int]:
        """A buffer, and where in it the piece that begins at ``position`` begins and ends."""
        if self._can_map:
            end = min(position + MAPPED_PIECE_BYTES, self._size_bytes)
            self._can_map = self._load(position, end)
            if self._mapped is not None and self._can_map:
                return self._mapped, position, end
        data = self._file.read_at(position, min(READ_PIECE_BYTES, self._size_bytes - position))
        return data, 0, len(data)

    def _load(self, position: int, end: int) -> bool:
        """Whether the pages up to ``end`` are in memory and mapped. Memory that is no map has no pages."""
        if self._mapped is None:
            try:
                self._mapped = self._file.map()
            except StorageError:
                return False
        mapped = self._mapped
        if end > len(mapped):
            return False
        self._let_go(position)
        return not isinstance(mapped, mmap.mmap) or bool(compiled.load_pages(mapped, position, end))

    def _let_go(self, position: int) -> None:
        """Give back the pages in front of ``position``; they stay in the system's cache."""
        stop = position - position % mmap.PAGESIZE
        if stop > self._let_go_to and isinstance(self._mapped, mmap.mmap):
            self._mapped.madvise(mmap.MADV_DONTNEED, self._let_go_to, stop - self._let_go_to)
            self._let_go_to = stop

    def close(self) -> None:
        mapped, self._mapped = self._mapped, None
        self._can_map = False
        if isinstance(mapped, mmap.mmap):
            mapped.close()


def read_aside(file: File, position: int, size_bytes: int) -> bytes:
    """As :meth:`File.read_at`, but where the system can be asked, what was not in its cache does not stay
    there: for passes over data that nobody needs now."""
    if isinstance(file, OsFile) and hasattr(os, "RWF_NOWAIT"):
        return file.read_aside(position, size_bytes)
    return file.read_at(position, size_bytes)


def let_go(file: File, end: int) -> None:
    """Tell the system, where it can be told, that nobody reads again what is flushed and lies in front of
    ``end``: its memory is free for what is written next."""
    if isinstance(file, OsFile) and hasattr(os, "posix_fadvise"):
        file.let_go(end)


# Copies and room --------------------------------------------------------------------------------------------


_COPY_PIECE_BYTES = 16 * 1024 * 1024
_NO_RANGE_COPY = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.EIO}
)


def copy_file(files: Files, path: str, new: str, on_bytes: Callable[[int], object] | None = None) -> None:
    """Copy a file that nobody changes, and flush the copy; its name is not durable yet. The copy shares no
    block that a change of either would reach: a file system that can (XFS, Btrfs) shares them until then.
    ``on_bytes`` is told how many bytes were copied since it was called last."""
    source = files.open(path)
    try:
        copy_beginning(files, source, source.size_bytes(), new, on_bytes)
    finally:
        source.close()
    files.set_modified_ms(new, files.modified_ms(path))


def copy_beginning(
    files: Files, source: File, size_bytes: int, new: str, on_bytes: Callable[[int], object] | None = None
) -> None:
    """As :func:`copy_file` for the first ``size_bytes`` of an open file, which may grow behind them.

    Raises:
        CorruptionError: the file is shorter.
    """
    target = files.open(new, create=True)
    try:
        target.truncate(0)
        position = 0
        while position < size_bytes:
            done = _copy_piece(source, target, position, min(_COPY_PIECE_BYTES, size_bytes - position))
            if not done:
                raise CorruptionError(f"became shorter than {size_bytes} bytes", path=source.path)
            position += done
            if on_bytes is not None:
                on_bytes(done)
        target.flush()
    finally:
        target.close()


def _copy_piece(source: File, target: File, position: int, size_bytes: int) -> int:
    if isinstance(source, OsFile) and isinstance(target, OsFile) and hasattr(os, "copy_file_range"):
        try:
            return source.copy_to(target, position, size_bytes)
        except OSError as error:
            if error.errno not in _NO_RANGE_COPY:
                raise storage_error(error, target.path, "writing") from error
    data = source.read_at(position, min(size_bytes, READ_PIECE_BYTES))
    if data:
        target.write_at(position, [data])
    return len(data)


def real_path(files: Files, path: str) -> str:
    """The absolute path that a path leads to, through symbolic links."""
    return os.path.realpath(path) if isinstance(files, OsFiles) else files.absolute(path)


def are_on_one_disk(files: Files, path: str, other: str) -> bool:
    """Whether two paths are on the same file system, as far as anybody can tell: the numbers of their files
    can be compared then, and a link between them may be possible."""
    if not isinstance(files, OsFiles):
        return True
    with _reported(path, "looking at"):
        return os.stat(path).st_dev == os.stat(other).st_dev


def free_bytes(files: Files, path: str) -> int | None:
    """The room that this process may fill on the disk of a directory; None where nobody can tell."""
    if not isinstance(files, OsFiles):
        return None
    with _reported(path, "looking at"):
        status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def foreign_owner(files: Files, path: str) -> int | None:
    """The user that a directory belongs to, if that is not the one of this process: what is made in it may
    then be closed to its owner."""
    if not isinstance(files, OsFiles):
        return None
    with _reported(path, "looking at"):
        owner = os.stat(path).st_uid
    return owner if owner != os.geteuid() else None


def remove_tree(files: Files, path: str) -> None:
    """Remove a directory and all that is in it."""
    for entry in files.list_directory(path):
        if entry.is_directory:
            remove_tree(files, f"{path}/{entry.name}")
        else:
            files.remove(f"{path}/{entry.name}")
    files.remove_directory(path)


# Whole small files ------------------------------------------------------------------------------------------


def read_small_file(files: Files, path: str, limit_bytes: int) -> bytes | None:
    """The contents of a small file, or None if there is none.

    Raises:
        CorruptionError: it is larger than ``limit_bytes``.
    """
    try:
        file = files.open(path)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    data = file.read_at(0, min(file.size_bytes(), limit_bytes + 1))
    file.close()
    if len(data) > limit_bytes:
        raise CorruptionError(f"is larger than {limit_bytes} bytes", path=path)
    return data


def write_small_file(files: Files, path: str, data: Bytes) -> None:
    """Replace the contents of a small file, durably and at once: a crash leaves the old or the new one.

    Kafka's protocol: write ``<path>.tmp``, flush it, rename it over the old file, flush the directory.
    """
    write_small_files(files, parent_of(path), {path.rpartition("/")[2]: data})


def write_small_files(files: Files, directory: str, contents: Mapping[str, Bytes]) -> None:
    """As :func:`write_small_file` for some files of one directory, by name. A crash leaves of each the old or
    the new one; all are new on the return."""
    for name, data in contents.items():
        write_new_file(files, f"{directory}/{name}.tmp", data)
    for name in contents:
        files.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")
    files.flush_directory(directory)


def write_new_file(files: Files, path: str, data: Bytes) -> None:
    """Write and flush a file whole, without making its name durable."""
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [data])
        file.flush()
    finally:
        file.close()


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


# Forked children --------------------------------------------------------------------------------------------


class ForkFlag:
    """Turns true in a child that was forked while the flag existed. A store holds one: the child shares the
    parent's descriptors but neither its lock nor its threads, so it must not write."""

    _all: ClassVar[weakref.WeakSet[ForkFlag]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.is_forked = False
        self._all.add(self)

    @classmethod
    def watch(cls) -> Self:
        return cls()

    def check_usable(self, name: object, *, is_closed: bool) -> None:
        """
        Raises:
            ForkedError: this process is a child of the one that opened ``name``.
            ClosedError: it is closed.
        """
        if self.is_forked:
            raise ForkedError(f"{name} was opened by the parent of this process; open it again in the child")
        if is_closed:
            raise ClosedError(f"{name} is closed; open it again")

    @classmethod
    def _mark_all(cls) -> None:
        for flag in list(cls._all):
            flag.is_forked = True


os.register_at_fork(after_in_child=ForkFlag._mark_all)
