"""Ownership of a directory: an exclusive lock on one file, which a Kafka broker takes and respects as well.

Kafka's Java code takes a POSIX record lock, which does not see ``flock``. A record lock belongs to the
process, and the system drops it as soon as the process closes *any* descriptor of the file: a program that
copies its own directory loses the lock. Linux can bind the same lock to the open file instead
(``F_OFD_SETLK``); it is used where the system has it. The two kinds exclude each other.

Forked children share such a lock. A child closes its descriptor first of all. :meth:`OsLock.release` unlocks
explicitly instead of relying on the close: a child forked by a C library may still have the file open.

Other systems get a record lock, and :meth:`OsLock.check` takes it once more: either this succeeds and no
other process had it meanwhile, or the lock is lost. The holder writes its process id and a random mark into
the file, and empties the file on release. Kafka neither reads nor writes the contents.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import ClassVar

from logstore.errors import ClosedError, FencedError, ForkedError, LockedError, StorageError, storage_error

_FLOCK = struct.Struct("hhqqi")
"""``struct flock``: type, whence, start, length, process id."""
_FLOCK_BYTES = 32
_KNOWS_FLOCK = sys.platform == "linux" and sys.maxsize > 2**32
_TAKE_OPEN_FILE_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if _KNOWS_FLOCK else None
"""The command for a lock that is bound to the open file; None if the system has no such locks."""
_ASK_OPEN_FILE_LOCK: int | None = getattr(fcntl, "F_OFD_GETLK", None) if _KNOWS_FLOCK else None
"""The command that tells whether such a lock could be taken."""
_MAX_MARK_BYTES = 64
_HELD = (errno.EAGAIN, errno.EACCES)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.05

is_unwanted: ContextVar[Callable[[], bool]] = ContextVar("is_unwanted", default=lambda: False)
"""Whether whoever waits for a lock here wants it no more; asked before each pause. For threads that nothing
interrupts."""


def tries(timeout_ms: int) -> Iterator[bool]:
    """Yields once for each try at a lock: true for the last try, false before. The first try is immediate,
    the others follow after pauses that grow to 50 ms. The system can wait for a lock, but without a timeout.

    Pauses are shortened at random, so that no waiter is always late. There is no queue: the longest waiter is
    not necessarily next. The time is the machine's, whatever clock a store has.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    pause = _FIRST_PAUSE_SECONDS
    while (left := deadline - time.monotonic()) > 0 and not is_unwanted.get()():
        yield False
        time.sleep(min(pause * random.uniform(0.5, 1), left))  # noqa: S311 - jitter, not secrets
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    yield True


def refused(path: str, holder: str, advice: str, timeout_ms: int) -> LockedError:
    """The error after the last try."""
    wait = f"wait longer; waited {timeout_ms} ms" if timeout_ms else "wait for it: open(timeout=30)"
    return LockedError(f"{path} is held by {holder}", f"{advice}, or {wait}")


HELD_HERE = "the directory is already open for writing; use what is open, close it first"
_HELD_THERE = (
    "the directory is open for writing there; open it with read_only=True, close it there, stop that process"
)


class OsLock:
    """The lock on one file, held from the constructor on."""

    _held: ClassVar[dict[tuple[int, int], OsLock]] = {}
    """By device and inode; guarded by ``_registry_lock``. Prevents opening a held file a second time: closing
    it would drop a record lock."""
    _registry_lock = threading.RLock()
    """A fork waits for it, so that the child knows every descriptor. Reentrant: a signal handler may fork."""

    def __init__(self, path: str, open_file: Callable[[], int], timeout_ms: int = 0) -> None:
        """
        Args:
            open_file: opens the file for reading and writing, and creates it if necessary.
            timeout_ms: how long to try.

        Raises:
            LockedError: another process, or this one, holds it; names the holder where the system tells.
            StorageError: the system refused.
        """
        self._path = path
        self._is_of_open_file = _TAKE_OPEN_FILE_LOCK is not None
        self._mark: bytes | None = None
        self._lost: str | None = None
        self._descriptor = -1
        for is_last in tries(timeout_ms):
            with self._registry_lock:
                if self._take(open_file, timeout_ms, is_last=is_last):
                    return

    def _take(self, open_file: Callable[[], int], timeout_ms: int, *, is_last: bool) -> bool:
        """Try once; returns whether the lock was free. Only the last try finds out who holds it, since that
        takes longer than a try."""
        if self._is_held_here():
            if is_last:
                raise refused(self._path, "this process", HELD_HERE, timeout_ms)
            return False
        descriptor = open_file()
        try:
            is_taken = self._try_take(descriptor)
            if is_taken:
                self._key = _identity(self._ask(os.fstat, descriptor))
                self._put_mark(descriptor)
            elif is_last:
                raise refused(self._path, _holder_of(descriptor), _HELD_THERE, timeout_ms)
        except BaseException:
            os.close(descriptor)
            raise
        if not is_taken:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        self._held[self._key] = self
        return True

    @classmethod
    def is_held(cls, path: str, open_file: Callable[[], int]) -> bool:
        """Whether anybody holds the lock on a file; false if there is no file.

        Args:
            open_file: opens the file for reading and writing.
        """
        with cls._registry_lock:
            try:
                if _identity(os.stat(path)) in cls._held:
                    return True  # opening the file, and closing it, would drop a record lock
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError as error:
                raise storage_error(error, path, "looking at") from error
            try:
                descriptor = open_file()
            except StorageError as error:
                if error.errno == errno.ENOENT:
                    return False
                raise
            try:
                return _is_locked_elsewhere(descriptor)
            except OSError as error:
                raise storage_error(error, path, "looking at the lock of") from error
            finally:
                os.close(descriptor)

    def _is_held_here(self) -> bool:
        try:
            key = _identity(self._ask(os.stat, self._path))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise  # opening the file once more, and closing it, would drop a record lock held here
            return False
        return key in self._held

    def _ask(self, ask: Callable[..., os.stat_result], what: str | int) -> os.stat_result:
        try:
            return ask(what)
        except OSError as error:
            raise storage_error(error, self._path, "locking") from error

    def _try_take(self, descriptor: int) -> bool:
        """Returns whether the lock was free. Uses a record lock if the file system or kernel cannot lock open
        files (EINVAL)."""
        try:
            if self._is_of_open_file and _TAKE_OPEN_FILE_LOCK is not None:
                try:
                    fcntl.fcntl(descriptor, _TAKE_OPEN_FILE_LOCK, _flock(fcntl.F_WRLCK))
                    return True
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    self._is_of_open_file = False
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in _HELD:
                return False
            raise storage_error(error, self._path, "locking") from error

    def _put_mark(self, descriptor: int) -> None:
        """Write who holds the lock. Not possible on a full disk: other processes then cannot name the
        holder."""
        mark = b"%d %s\n" % (os.getpid(), os.urandom(8).hex().encode())
        with contextlib.suppress(OSError):
            if os.pwrite(descriptor, mark, 0) == len(mark):
                os.ftruncate(descriptor, len(mark))
                self._mark = mark

    def check(self) -> None:
        """See :meth:`Lock.check`. Cost: one to three system calls, 1 to 3 µs."""
        if self._lost is None and self._descriptor >= 0:
            self._lost = self._why_lost()
        if self._lost is not None:
            raise FencedError(
                f"{self._path} {self._lost}: another process may have opened the directory for writing. "
                "Nothing further is written; close this, and open the directory again"
            )

    def _why_lost(self) -> str | None:
        try:
            if _identity(self._ask(os.stat, self._path)) != self._key:
                return "was replaced by another file"
        except StorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return "was removed"
        if self._is_of_open_file:
            return None
        if not self._try_take(self._descriptor):
            return "was let go, because this process has opened and closed it, and is held by another process"
        if self._mark is not None and self._read_mark() != self._mark:
            return (
                "was let go, because this process has opened and closed it, and was taken by another process"
            )
        return None

    def _read_mark(self) -> bytes:
        try:
            return os.pread(self._descriptor, _MAX_MARK_BYTES, 0)
        except OSError as error:
            raise storage_error(error, self._path, "reading") from error

    def release(self) -> None:
        with self._registry_lock:
            descriptor = self._descriptor
            if descriptor < 0:
                return
            with contextlib.suppress(FencedError, OSError):  # a lost file is not ours to empty
                self.check()
                os.ftruncate(descriptor, 0)
            self._descriptor = -1
            self._held.pop(self._key, None)
            try:
                try:
                    self._unlock(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise storage_error(error, self._path, "unlocking") from error

    def _unlock(self, descriptor: int) -> None:
        """Needed because closing does not unlock while a forked child has the descriptor too."""
        if self._is_of_open_file and _TAKE_OPEN_FILE_LOCK is not None:
            fcntl.fcntl(descriptor, _TAKE_OPEN_FILE_LOCK, _flock(fcntl.F_UNLCK))

    @classmethod
    def _forget_in_child(cls) -> None:
        """Runs in a forked child: the locks belong to the parent."""
        cls._registry_lock = threading.RLock()
        for lock in cls._held.values():
            descriptor, lock._descriptor = lock._descriptor, -1
            with contextlib.suppress(OSError):
                os.close(descriptor)
        cls._held.clear()


os.register_at_fork(
    before=lambda: OsLock._registry_lock.acquire(),
    after_in_parent=lambda: OsLock._registry_lock.release(),
    after_in_child=OsLock._forget_in_child,
)


def _flock(kind: int) -> bytes:
    """A ``struct flock`` for the whole file."""
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0).ljust(_FLOCK_BYTES, b"\0")


def _is_locked_elsewhere(descriptor: int) -> bool:
    """Whether another process has a lock on the open file, or another descriptor has one."""
    if _ASK_OPEN_FILE_LOCK is not None:
        try:
            answer = fcntl.fcntl(descriptor, _ASK_OPEN_FILE_LOCK, _flock(fcntl.F_WRLCK))
            return bool(_FLOCK.unpack_from(answer)[0] != fcntl.F_UNLCK)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing lets it go
    except OSError as error:
        if error.errno in _HELD:
            return True
        raise
    return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# Who holds it -----------------------------------------------------------------------------------------------


def _holder_of(descriptor: int) -> str:
    """The holder of the lock, in words. For a record lock the system knows the process. For a lock of an open
    file it only knows which processes have the file open; the process id in the file is tried first."""
    pid = _process_of_record_lock(descriptor)
    if pid is None:
        pid = _process_of_open_file_lock(descriptor)
    if pid:
        return f"process {pid}"
    return "another process (which is not seen from here: another user's, or in another container or machine)"


def _process_of_record_lock(descriptor: int) -> int | None:
    if not _KNOWS_FLOCK:
        return None
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _flock(fcntl.F_WRLCK))
    except OSError:
        return None
    pid = int(_FLOCK.unpack_from(answer)[4])
    return pid if pid > 0 else None  # -1: the lock of an open file


def _process_of_open_file_lock(descriptor: int) -> int | None:
    """The process that took the lock, or if that has ended, one that inherited it. The process id in the file
    may be stale or from another host, so it counts only if that process has the lock."""
    try:
        inode = os.fstat(descriptor).st_ino
        first = os.pread(descriptor, _MAX_MARK_BYTES, 0).split(b" ")[0]
        others = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return None
    candidates = [int(first)] if first.isdigit() else []
    return next((pid for pid in candidates + others if _has_open_file_lock(pid, inode)), None)


def _has_open_file_lock(pid: int, inode: int) -> bool:
    directory = f"/proc/{pid}/fdinfo"
    try:
        names = os.listdir(directory)
    except OSError:  # the process has ended, or belongs to another user
        return False
    return any(_says_locked(f"{directory}/{name}", inode) for name in names)


def _says_locked(path: str, inode: int) -> bool:
    try:
        with open(path, "rb") as file:
            text = file.read(4096)
    except OSError:
        return False
    return b"OFDLCK" in text and b":%d " % inode in text


class ForkFlag:
    """Becomes true in a child that was forked while the flag existed. A store holds one: the child shares the
    parent's descriptors but neither its lock nor its threads, so it must not write."""

    __slots__ = ("is_forked",)

    _of_this_process: ClassVar[ForkFlag]

    def __init__(self) -> None:
        self.is_forked = False

    @classmethod
    def watch(cls) -> ForkFlag:
        """The flag of this process, which all share."""
        return cls._of_this_process

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
    def _begin_process(cls) -> None:
        """A child has a flag of its own, for what it makes itself."""
        cls._of_this_process.is_forked = True
        cls._of_this_process = cls()


ForkFlag._of_this_process = ForkFlag()
os.register_at_fork(after_in_child=ForkFlag._begin_process)
