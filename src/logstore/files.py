"""The disk. Only this module touches it (with :mod:`~logstore.lock` and :mod:`~logstore.inotify`, which serve
it), so everything above can run against another implementation.

Two protocols, :class:`File` and :class:`Files`, and their implementation on the operating system. They are
narrow on purpose: positioned reads and writes, truncate, flush, rename, remove, list. Every method raises
:class:`~logstore.errors.StorageError` (a full disk: :class:`~logstore.errors.DiskFullError`) with the path.

What survives a power cut: file contents after :meth:`File.flush`; creation, renaming and removal of a name
after :meth:`Files.flush_directory` of its directory. Assume nothing else.
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
"""What users may pass as a path."""

DIRECTORY_MODE = 0o750
FILE_MODE = 0o640
_MAX_BUFFERS_PER_WRITE = 512  # below every system's IOV_MAX


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool


class FileStamp(NamedTuple):
    """Identifies a file and its state: differs if another file has the name, or if the file was changed."""

    number: int
    """The inode number: stays the same when the file is renamed."""
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
        """Fill ``buffer`` with bytes from ``position`` on. Returns how many were read; fewer only at the end
        of the file. Takes a sixth less time than :meth:`read_at`, which allocates memory."""
        ...

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        """Write all the buffers one after another from ``position``. After an error the file may hold part of
        them."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def flush(self) -> None:
        """Make the contents and the size durable. After an error the data may be gone from both memory and
        disk: a second flush that succeeds proves nothing."""
        ...

    def map(self) -> MappedBytes:
        """The whole file as a read-only buffer. The file must not be truncated in place while the buffer is
        in use: touching a page that is gone kills the process."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """Exclusive ownership of a directory."""

    def check(self) -> None:
        """
        Raises:
            FencedError: the lock was lost: the file was removed or replaced, or the system dropped the lock,
                and another process may own the directory. It stays lost.
        """
        ...

    def release(self) -> None: ...


class DirectoryWatch(Protocol):
    """Waits until something changes in some directories: a name appears, disappears or leads to another file,
    or a file is written or cut. The caller finds out what changed; it may be nothing that matters to it.

    A file system may report nothing at all, for example what another machine does on a network disk. So look
    now and then, whatever :meth:`wait` says.
    """

    def wait(self, timeout_ms: int) -> bool:
        """Returns true as soon as something has changed since the last wait, false after the timeout. Look
        after it returns: the next wait reports what changes meanwhile. One thread at a time."""
        ...

    def wake(self) -> None:
        """Make the waiting thread return at once. Call it from any thread."""
        ...

    def close(self) -> None:
        """Stop watching. Call it from the thread that waits, while it is not waiting."""
        ...


class Files(Protocol):
    """A file system."""

    def absolute(self, path: str) -> str: ...

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open an existing file, or with ``create`` one that may not exist yet."""
        ...

    def list_directory(self, path: str) -> list[DirectoryEntry]: ...

    def is_file(self, path: str) -> bool:
        """False if there is no such file. Raises if the disk cannot tell: a file wrongly taken for missing
        would not be flushed, or would reappear later."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def changed_ns(self, path: str) -> int:
        """A number that changes when the directory's names change; followers in other processes use it."""
        ...

    def stamp(self, path: str) -> FileStamp:
        """Tells a file from another one that takes its name; readers in other processes use it."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename, atomically replacing ``new``."""
        ...

    def link(self, path: str, new: str) -> None:
        """Give a file a second name, which must not exist yet. Some file systems cannot, and no link leads
        from one file system to another."""
        ...

    def link_count(self, path: str) -> int:
        """How many names a file has. All of them show what is written in place through one."""
        ...

    def exchange(self, path: str, other: str) -> None:
        """Atomically swap two names of one directory. Some file systems cannot."""
        ...

    def remove(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; does nothing if it exists."""
        ...

    def remove_directory(self, path: str) -> None: ...

    def flush_directory(self, path: str) -> None: ...

    def watch(self, directories: Sequence[str]) -> DirectoryWatch:
        """Watch for changes in these directories, not in those below them; for readers in other processes.

        Raises:
            StorageError: the system has no watches (ENOSYS), or no more are allowed now.
        """
        ...

    def lock(self, path: str, *, timeout_ms: int = 0) -> Lock:
        """Take the exclusive lock on the file ``path``, creating the file; wait at most ``timeout_ms``.

        Raises:
            LockedError: another process, or this one, holds it; names the holder where the system tells.
        """
        ...


class OsFile:
    """A file of the operating system. Its descriptor is closed with the last reference to the object, so a
    reader can go on with a file that was dropped from a cache or unlinked meanwhile."""

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
        """See :func:`read_aside`. On Linux: reads cached bytes without waiting; reads the others without
        read-ahead, then drops them from the cache. POSIX_FADV_RANDOM comes first, because asking what is
        cached triggers read-ahead too."""
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
        with contextlib.suppress(OSError):  # from 0: a large page is dropped only as a whole
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
        # The system may write less than asked without an error (a disk that fills up, RLIMIT_FSIZE): go on
        # until all is written or the system reports an error.
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
        """See :func:`copy_file`. Raises OSError if these two files cannot be copied this way."""
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
            except OSError as error:  # a network file system may report a failed write only here
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
    """``renameat2`` with ``RENAME_EXCHANGE``: Linux 3.15 or later, on most file systems. Python does not
    offer it."""
    import ctypes  # 4 ms, and few programs get here

    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None, use_errno=True), "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here, is_exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if libc.renameat2(here, path, here, other, is_exchange):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mode_of(path: str) -> int:
    """The mode of what the path leads to; 0 if there is nothing."""
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
    """A path as text. ``kind`` is what it must lead to, for the error message.

    Raises:
        UsageError: it is not text, is empty, or contains a NUL or what the file system cannot encode.
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
"""One or two milliseconds of work, the longest that a user's interrupt has to wait. Also the memory that one
pass takes."""
READ_PIECE_BYTES = 1024 * 1024


class Removals:
    """Counts the files that an action removes, and their bytes: wraps the disk that the action uses."""

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
        """This object as :class:`Files`, to pass to the action."""
        return cast(Files, self)


class FilePieces:
    """The first ``size_bytes`` bytes of a file for one pass over them, without a copy where possible.

    Maps the file and loads the pages of each piece before handing it out, so that a disk error shows up while
    loading, and not as a signal that kills the process. If the pages cannot be loaded (a disk error, no
    compiled module, or a system other than Linux 5.14 or later), the piece is read instead, and a disk error
    is raised as usual. Pages behind the pass are released: it takes the memory of one piece, however large
    the file. The file must not be cut before :meth:`close`.

    Loading is 1.2 times as fast as touching page after page, and 1.5 times as fast as reading (1 GiB in the
    page cache, pieces of 1 to 32 MiB).
    """

    def __init__(self, file: File, size_bytes: int, *, can_map: bool = True) -> None:
        """``can_map=False`` reads every piece: for a file that another process may cut at any time."""
        self._file = file
        self._size_bytes = size_bytes
        self._mapped: MappedBytes | None = None
        self._can_map = can_map and compiled is not None
        self._let_go_to = 0

    def piece(self, position: int) -> tuple[MappedBytes, int, int]:
        """A buffer, and the start and end in it of the piece that begins at ``position`` in the file."""
        if self._can_map:
            end = min(position + MAPPED_PIECE_BYTES, self._size_bytes)
            self._can_map = self._load(position, end)
            if self._mapped is not None and self._can_map:
                return self._mapped, position, end
        data = self._file.read_at(position, min(READ_PIECE_BYTES, self._size_bytes - position))
        return data, 0, len(data)

    def _load(self, position: int, end: int) -> bool:
        """Load the pages up to ``end``; returns whether they are mapped and in memory. A buffer that is not a
        map has no pages to load."""
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
        """Release the pages before ``position``; they stay in the system's cache."""
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
    """Like :meth:`File.read_at`, but where the system allows, bytes that were not in its cache do not stay
    there. For passes over data that is not needed soon."""
    if isinstance(file, OsFile) and hasattr(os, "RWF_NOWAIT"):
        return file.read_aside(position, size_bytes)
    return file.read_at(position, size_bytes)


def let_go(file: File, end: int) -> None:
    """Tell the system, where it listens, that the flushed bytes before ``end`` are not needed again: it can
    use their memory for what is written next."""
    if isinstance(file, OsFile) and hasattr(os, "posix_fadvise"):
        file.let_go(end)


# Copies and room --------------------------------------------------------------------------------------------


_COPY_PIECE_BYTES = 16 * 1024 * 1024
_NO_RANGE_COPY = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.EIO}
)


def copy_file(files: Files, path: str, new: str, on_bytes: Callable[[int], object] | None = None) -> None:
    """Copy a file that does not change meanwhile, and flush the copy; its name is not durable yet. A later
    change of one file does not reach the other: XFS and Btrfs share blocks only until one is changed.
    ``on_bytes`` is called with the number of bytes copied since its last call."""
    source = files.open(path)
    try:
        copy_beginning(files, source, source.size_bytes(), new, on_bytes)
    finally:
        source.close()
    files.set_modified_ms(new, files.modified_ms(path))


def copy_beginning(
    files: Files, source: File, size_bytes: int, new: str, on_bytes: Callable[[int], object] | None = None
) -> None:
    """Like :func:`copy_file` for the first ``size_bytes`` of an open file, which may grow meanwhile.

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
    """Whether two paths are on the same file system, as far as can be told. If so, their inode numbers can be
    compared, and a link between them may be possible."""
    if not isinstance(files, OsFiles):
        return True
    with _reported(path, "looking at"):
        return os.stat(path).st_dev == os.stat(other).st_dev


def free_bytes(files: Files, path: str) -> int | None:
    """How many bytes this process may still write to the disk of a directory; None if that is not known."""
    if not isinstance(files, OsFiles):
        return None
    with _reported(path, "looking at"):
        status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def foreign_owner(files: Files, path: str) -> int | None:
    """The user that owns a directory, if it is not this process's user: the owner may then have no access to
    the files that this process creates there."""
    if not isinstance(files, OsFiles):
        return None
    with _reported(path, "looking at"):
        owner = os.stat(path).st_uid
    return owner if owner != os.geteuid() else None


def remove_tree(files: Files, path: str) -> None:
    """Remove a directory and everything in it."""
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
    """Replace the contents of a small file, durably and atomically: a crash leaves the old or the new file.

    Kafka's protocol: write ``<path>.tmp``, flush it, rename it over the old file, flush the directory.
    """
    write_small_files(files, parent_of(path), {path.rpartition("/")[2]: data})


def write_small_files(files: Files, directory: str, contents: Mapping[str, Bytes]) -> None:
    """Like :func:`write_small_file` for several files of one directory, by name. A crash leaves the old or
    the new one of each; when the call returns, all are new."""
    for name, data in contents.items():
        write_new_file(files, f"{directory}/{name}.tmp", data)
    for name in contents:
        files.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")
    files.flush_directory(directory)


def write_new_file(files: Files, path: str, data: Bytes) -> None:
    """Write a whole file and flush it, without making its name durable."""
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
    """Becomes true in a child that was forked while the flag existed. A store holds one: the child shares the
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
            ClosedError: ``name`` is closed.
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
