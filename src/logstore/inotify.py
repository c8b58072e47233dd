"""Linux's inotify, for :mod:`~logstore.files` alone: a thread sleeps until something changes in a directory.

One instance serves all waiting threads of the process: a user may have 128 instances, and descriptors are
limited too. The first watch opens it, the last one closes it. It has no thread of its own: one of the waiting
threads takes the seat and listens. The others sleep until it hears something for them, or leaves the seat to
one of them.

A forked child shares the instance with its parent, and one misses what the other reads. So a child closes its
descriptors first of all, and opens its own instance when it needs one.

Lock: ``_Instance.lock`` guards everything here. No thread holds it while it waits for an event.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
import threading
import time
from collections.abc import Sequence
from typing import ClassVar

from logstore.errors import StorageError, storage_error

_EVENT = struct.Struct("iIII")
"""``struct inotify_event``: watch descriptor, mask, cookie, bytes of the name behind it."""
_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLY_DIRECTORY = 0x1000000
_WANTED = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY
"""Nothing that a reader does is among these: readers do not wake each other."""
_GONE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED | _OVERFLOW
"""The path may lead to another directory now."""
_READ_BYTES = 65_536
_RENEWED_SECONDS = 1.0
"""How often a watch checks that its paths still lead to the directories it watches: no event tells that a
directory further up was replaced. Also the longest time that a thread listens without a pause."""


class _Calls:
    """The three system calls, which Python does not offer."""

    def __init__(self) -> None:
        """
        Raises:
            OSError: the system has no inotify.
        """
        try:
            library = ctypes.CDLL(None, use_errno=True)
            self._init, self._add, self._remove = (
                library.inotify_init1,
                library.inotify_add_watch,
                library.inotify_rm_watch,
            )
            self.make_event = os.eventfd
        except (OSError, AttributeError, TypeError):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        self._add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)

    def init(self) -> int:
        return self._checked(self._init(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, descriptor: int, path: str) -> int:
        return self._checked(self._add(descriptor, os.fsencode(path), _WANTED))

    def remove(self, descriptor: int, number: int) -> None:
        self._remove(descriptor, number)  # fails if the directory is gone, and the watch with it

    def _checked(self, answer: int) -> int:
        if answer < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return answer


class _Instance:
    """The process's inotify instance. Hold the lock for each call except :meth:`listen` and :meth:`close`."""

    lock: ClassVar[threading.RLock] = threading.RLock()
    """Reentrant: the garbage collector may close an iterator, and with it a watch, in any thread at any
    point. For the same reason, loops go through copies of sets."""
    shared: ClassVar[_Instance | None] = None

    def __init__(self) -> None:
        """
        Raises:
            OSError: the system has no inotify, or allows no further instance.
        """
        self._calls = _Calls()
        self._descriptor = self._calls.init()
        try:
            self._bell = self._calls.make_event(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.watches: set[InotifyWatch] = set()
        self.sleepers: set[InotifyWatch] = set()
        """The watches whose thread sleeps while another one listens."""
        self._by_number: dict[int, set[InotifyWatch]] = {}
        self._listener: InotifyWatch | None = None
        self._listens_until = 0.0
        """When the seat becomes free even if an interrupt kept the listener from leaving it. So two threads
        may listen at the end of a turn, and each may hear events for the other."""

    def add(self, watch: InotifyWatch, path: str) -> int:
        number = self._calls.add(self._descriptor, path)
        self._by_number.setdefault(number, set()).add(watch)
        return number

    def remove(self, watch: InotifyWatch, number: int) -> None:
        watches = self._by_number.get(number)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._by_number[number]
                self._calls.remove(self._descriptor, number)

    def has_listener(self) -> bool:
        return self._listener is not None and time.monotonic() < self._listens_until

    def take_seat(self, watch: InotifyWatch, seconds: float) -> None:
        self._listener, self._listens_until = watch, time.monotonic() + seconds

    def listen(self, watch: InotifyWatch, seconds: float) -> None:
        """Wait for events, and tell the watches that they concern."""
        poll = select.poll()  # not shared: the next turn may begin before this one ends
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        try:
            poll.poll(int(seconds * 1000) + 1)
        finally:
            with self.lock:
                if self._listener is watch:  # else the bell is for another thread
                    self._listener = None
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._bell)
                self._tell_all()

    def offer_seat(self) -> None:
        """Wake one sleeper if no thread listens. It takes the seat; or, if it has been told something, it
        returns and offers the seat again."""
        if not self.has_listener():
            for watch in tuple(self.sleepers)[:1]:
                watch.condition.notify()

    def ring(self, watch: InotifyWatch) -> None:
        """Interrupt the watch's listening, if it has the seat. It may not have begun to listen yet."""
        if self._listener is watch:
            os.eventfd_write(self._bell, 1)

    def _tell_all(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, _READ_BYTES):
                position = 0
                while position < len(data):
                    number, mask, _, name_bytes = _EVENT.unpack_from(data, position)
                    position += _EVENT.size + name_bytes
                    self._tell(number, mask)

    def _tell(self, number: int, mask: int) -> None:
        concerned = self.watches if mask & _OVERFLOW else self._by_number.get(number, ())
        for watch in tuple(concerned):
            watch.tell(is_gone=bool(mask & _GONE))
        if mask & _IGNORED:
            self._by_number.pop(number, None)

    def close(self) -> None:
        """Close the instance; takes the system 15 ms."""
        os.close(self._descriptor)
        os.close(self._bell)

    @classmethod
    def forget_in_child(cls) -> None:
        """Runs in a forked child: the instance belongs to the parent."""
        instance, cls.shared, cls.lock = cls.shared, None, threading.RLock()
        if instance is not None:
            instance.watches.clear()
            instance.close()


os.register_at_fork(
    before=lambda: _Instance.lock.acquire(),
    after_in_parent=lambda: _Instance.lock.release(),
    after_in_child=_Instance.forget_in_child,
)


class InotifyWatch:
    """Waits for changes of the names in some directories, and of the contents of their files."""

    def __init__(self, paths: Sequence[str]) -> None:
        """
        Raises:
            StorageError: the system has no inotify (ENOSYS), the user has as many instances as allowed
                (EMFILE, ``fs.inotify.max_user_instances``) or watches (ENOSPC, ``max_user_watches``), or a
                directory does not exist.
        """
        self._paths = tuple(paths)
        self._numbers: set[int] = set()
        self.is_told = False
        """Whether something has changed since the last wait."""
        self._is_gone = False
        self._renewed_at = time.monotonic()
        with _Instance.lock:
            self.condition = threading.Condition(_Instance.lock)
            try:
                if _Instance.shared is None:
                    _Instance.shared = _Instance()
            except OSError as error:
                raise storage_error(error, self._paths[0], "watching") from error
            self._instance = _Instance.shared
            self._instance.watches.add(self)
        try:
            with _Instance.lock:
                self._renew()
        except BaseException:
            self.close()
            raise

    def _renew(self) -> bool:
        """Watch the directories that the paths lead to now; returns whether any is another than before.

        Raises:
            StorageError: see the constructor. The old directories are still watched.
        """
        numbers: set[int] = set()
        for path in self._paths:
            try:
                numbers.add(self._instance.add(self, path))
            except OSError as error:
                for number in numbers - self._numbers:
                    self._instance.remove(self, number)
                raise storage_error(error, path, "watching") from error
        old, self._numbers = self._numbers, numbers
        for number in old - numbers:
            self._instance.remove(self, number)
        self._is_gone = False
        return numbers != old

    def _renew_if_due(self) -> bool:
        now = time.monotonic()
        if not self._is_gone and now - self._renewed_at < _RENEWED_SECONDS:
            return False
        self._renewed_at = now
        with contextlib.suppress(StorageError):
            return self._renew()
        return False

    def tell(self, *, is_gone: bool) -> None:
        """Note that something has changed in one of the directories. Hold the lock."""
        self.is_told = True
        self._is_gone |= is_gone
        self.condition.notify()
        self._instance.ring(self)

    def wait(self, timeout_ms: int) -> bool:
        """Returns true as soon as something has changed since the last wait, false after the timeout. One
        thread at a time."""
        deadline = time.monotonic() + timeout_ms / 1000
        with _Instance.lock:
            self.is_told |= self._renew_if_due()
        try:
            while True:
                with _Instance.lock:
                    left = min(deadline - time.monotonic(), _RENEWED_SECONDS)
                    if self.is_told or left <= 0:
                        is_told, self.is_told = self.is_told, False
                        return is_told
                    is_listener = not self._instance.has_listener()
                    if is_listener:
                        self._instance.take_seat(self, left)
                    else:
                        self._sleep(left)
                if is_listener:
                    self._instance.listen(self, left)
        finally:
            with _Instance.lock:
                self._instance.offer_seat()

    def _sleep(self, seconds: float) -> None:
        self._instance.sleepers.add(self)
        try:
            self.condition.wait(seconds)
        finally:
            self._instance.sleepers.discard(self)

    def wake(self) -> None:
        """Make the waiting thread return at once. Call it from any thread."""
        with _Instance.lock:
            if self in self._instance.watches:
                self.tell(is_gone=False)

    def close(self) -> None:
        """Stop watching. Call it from the thread that waits, while it is not waiting."""
        instance = self._instance
        with _Instance.lock:
            if self not in instance.watches:
                return  # already closed, or it belongs to the parent process
            instance.watches.discard(self)
            for number in tuple(self._numbers):
                instance.remove(self, number)
            self._numbers.clear()
            is_last = not instance.watches
            if is_last:
                _Instance.shared = None
        if is_last:
            instance.close()
