"""The disk. Only this module touches it (with :mod:`~logstore.lock` and :mod:`~logstore.inotify`, which serve
it, and :mod:`~logstore.large_files`), so everything above can run against another implementation.

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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from logstore.arguments import plain_text, shown
from logstore.errors import (
    CorruptionError,
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
PRIVATE_FILE_MODE = 0o600
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


class VolumeSpace(NamedTuple):
    """The room on the volume that a directory is on."""

    total_bytes: int
    usable_bytes: int
    """What this user may still write."""


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

    def open(self, path: str, *, write: bool = False, create: bool = False, private: bool = False) -> File:
        """Open an existing file, or with ``create`` one that may not exist yet. With both ``create`` and
        ``private`` only this process's user may open it, even if others could before."""
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

    def space(self, path: str) -> VolumeSpace:
        """The room on the volume that the path is on."""
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

    def is_locked(self, path: str) -> bool:
        """Whether somebody holds the lock on the file ``path``, here or in another process; false if there is
        no such file. Does not take it, not even for a moment."""
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
            size = len(rest[0]) if len(rest) == 1 else sum(map(len, rest))
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
            if self._descriptor >= 0 and not sys.is_finalizing():  # else what is finalized after it may write
                self.close()


if sys.platform == "darwin":  # fsync there leaves the data in the drive's cache

    def _flush_descriptor(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def _flush_descriptor(descriptor: int) -> None:
        os.fdatasync(descriptor)


def _open_descriptor(path: str, flags: int, mode: int = FILE_MODE) -> int:
    """Open a regular file, never through a symbolic link, never inherited by a child program."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
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


def _create_descriptor(path: str, flags: int, mode: int = FILE_MODE) -> int:
    """Open a regular file, and create it if it is not there. What root creates goes to the owner of the
    directory: otherwise a command that is run once as root leaves files that the owner cannot open."""
    if os.geteuid() != 0 or os.path.lexists(path):
        return _open_descriptor(path, flags | os.O_CREAT, mode)
    try:
        descriptor = _open_descriptor(path, flags | os.O_CREAT | os.O_EXCL, mode)
    except StorageError as error:
        if error.errno != errno.EEXIST:
            raise
        return _open_descriptor(path, flags | os.O_CREAT, mode)
    give_to_owner(os.path.dirname(path), descriptor)
    return descriptor


def give_to_owner(directory: str, descriptor: int) -> None:
    """Give what root has made in a directory to the directory's owner and group. Where root may not, as on
    some network file systems, it stays as it is."""
    with contextlib.suppress(OSError):
        owner = os.stat(directory or os.curdir)
        if os.geteuid() == 0 != owner.st_uid:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _open_private(path: str, flags: int) -> int:
    """Also a file that was there with another mode, as a copy may have left it, becomes private."""
    descriptor = _create_descriptor(path, flags, PRIVATE_FILE_MODE)
    try:
        os.fchmod(descriptor, PRIVATE_FILE_MODE)
    except OSError as error:
        os.close(descriptor)
        raise storage_error(error, path, "setting the mode of") from error
    return descriptor


class OsFiles:
    """The operating system's file system."""

    def absolute(self, path: str) -> str:
        with reported(path, "looking at"):  # the working directory may be gone
            return os.path.abspath(path)

    def open(self, path: str, *, write: bool = False, create: bool = False, private: bool = False) -> File:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        if create and private:
            return OsFile(path, _open_private(path, flags))
        return OsFile(path, _create_descriptor(path, flags) if create else _open_descriptor(path, flags))

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        with reported(path, "listing"), os.scandir(path) as entries:
            return [DirectoryEntry(e.name, e.is_dir(follow_symlinks=False)) for e in entries]

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(_mode_of(path))

    def is_directory(self, path: str) -> bool:
        return stat.S_ISDIR(_mode_of(path))

    def size_bytes(self, path: str) -> int:
        with reported(path, "reading the size of"):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        with reported(path, "reading the time of"):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with reported(path, "setting the time of"):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def changed_ns(self, path: str) -> int:
        with reported(path, "reading the time of"):
            return os.stat(path).st_mtime_ns

    def stamp(self, path: str) -> FileStamp:
        with reported(path, "looking at"):
            status = os.stat(path)
        return FileStamp(status.st_ino, status.st_size, status.st_ctime_ns)

    def rename(self, old: str, new: str) -> None:
        with reported(old, "renaming"):
            os.replace(old, new)

    def link(self, path: str, new: str) -> None:
        with reported(path, "linking"):
            os.link(path, new)

    def link_count(self, path: str) -> int:
        with reported(path, "looking at"):
            return os.stat(path).st_nlink

    def space(self, path: str) -> VolumeSpace:
        with reported(path, "reading the space of"):
            status = os.statvfs(path)
        return VolumeSpace(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def exchange(self, path: str, other: str) -> None:
        with reported(path, "exchanging"):
            _exchange(os.fsencode(path), os.fsencode(other))

    def remove(self, path: str) -> None:
        with reported(path, "removing"):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        with reported(path, "creating"):
            os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        with reported(path, "removing"):
            os.rmdir(path)

    def flush_directory(self, path: str) -> None:
        with reported(path, "flushing"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def watch(self, directories: Sequence[str]) -> DirectoryWatch:
        from logstore.inotify import InotifyWatch  # ctypes, and few programs get here

        return InotifyWatch(directories)

    def lock(self, path: str, *, timeout_ms: int = 0) -> Lock:
        return OsLock(path, lambda: _create_descriptor(path, os.O_RDWR), timeout_ms)

    def is_locked(self, path: str) -> bool:
        return OsLock.is_held(path, lambda: _open_descriptor(path, os.O_RDWR))


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
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last is of a NUL in it
        return 0
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # nothing can have such a name
            return 0
        raise storage_error(error, path, "looking at") from error


class reported:  # noqa: N801 - used as contextlib's are
    """Turn an error of the system into ours, which names the path and what was tried.

    Not by ``contextlib.contextmanager``: from Python 3.12 on an error that passes through that is part of a
    circle, and keeps all that its frames refer to, such as open files, until the collector comes.
    """

    __slots__ = ("_action", "_path")

    def __init__(self, path: str, action: str) -> None:
        self._path = path
        self._action = action

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(error, self._path, self._action) from error


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
    if type(name) is not str:
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


# Removals ---------------------------------------------------------------------------------------------------


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

    @classmethod
    def of(cls, files: Files) -> tuple[Removals, Files]:
        """The counts, and the same object as :class:`Files`, to pass to the action."""
        removals = cls(files)
        return removals, cast(Files, removals)


def is_open_to_others(files: Files, path: str) -> bool:
    """Whether users other than its owner may read or change a file."""
    if not isinstance(files, OsFiles):
        return False
    with reported(path, "looking at"):
        return bool(os.stat(path).st_mode & 0o077)


# Whole small files ------------------------------------------------------------------------------------------


def read_whole_file(files: Files, path: str) -> bytes:
    """The contents of a file that fits into memory many times."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size_bytes())
    finally:
        file.close()


def read_small_files(
    files: Files, directory: str, names: Iterable[str], limit_bytes: int
) -> dict[str, bytes]:
    """Like :func:`read_small_file` for several files of one directory: those that there are, by name."""
    read = {name: read_small_file(files, f"{directory}/{name}", limit_bytes) for name in names}
    return {name: data for name, data in read.items() if data is not None}


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


def write_small_file(files: Files, path: str, data: Bytes, *, private: bool = False) -> None:
    """Replace the contents of a small file, durably and atomically: a crash leaves the old or the new file.
    With ``private`` only this process's user may read it.

    Kafka's protocol: write ``<path>.tmp``, flush it, rename it over the old file, flush the directory.
    """
    write_small_files(files, parent_of(path), {path.rpartition("/")[2]: data}, private=private)


def write_small_files(
    files: Files, directory: str, contents: Mapping[str, Bytes], *, private: bool = False
) -> None:
    """Like :func:`write_small_file` for several files of one directory, by name. A crash leaves the old or
    the new one of each; when the call returns, all are new."""
    replace_small_files(files, directory, contents, private=private)
    files.flush_directory(directory)


def replace_small_files(
    files: Files, directory: str, contents: Mapping[str, Bytes], *, private: bool = False
) -> None:
    """The same, but a crash leaves the old or the new ones until the directory is flushed."""
    for name, data in contents.items():
        write_new_file(files, f"{directory}/{name}.tmp", data, private=private)
    for name in contents:
        files.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")


def write_new_file(files: Files, path: str, data: Bytes, *, private: bool = False) -> None:
    """Write a whole file and flush it, without making its name durable."""
    file = files.open(path, create=True, private=True) if private else files.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [data])
        file.flush()
    finally:
        file.close()


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
