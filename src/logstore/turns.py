"""The same for several logs, partitions or files, also at the same time. Knows none of them."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from logstore.files import Files, OsFiles

T = TypeVar("T")

FLUSHED_AT_A_TIME: Final = 8
"""Making a log durable is waiting for the disk, and a file system makes several files durable in little more
than the time of one: on ext4 eight files in 1.2 ms, and one after the other in 2 to 30 ms."""
WORTH_THREADS_SECONDS: Final = 0.0005
"""What takes less, all together, is over before threads for it have begun."""
_LOOKED_AGAIN_SECONDS: Final = 0.05
"""Whoever waits looks by himself so often, in case an interrupt kept him from being woken."""


def take_turns(action: Callable[[T], object], items: Iterable[T], *, at_a_time: int = 1) -> None:
    """Do it for every one, whatever becomes of the others; then raise the failure of the first that failed.

    With ``at_a_time`` above one, other threads take turns with this one; where the system grants none, it is
    alone. None of them is busy any more on the return, also after an interrupt, which leaves the rest
    undone.
    """
    _Turns(action, items).take(at_a_time)


def flushed_at_a_time(files: Files) -> int:
    """One after the other on anything but the machine's own disk: there tests count on the order."""
    return FLUSHED_AT_A_TIME if type(files) is OsFiles else 1


def take_if_free(acquire: Callable[[bool], bool], taken: list[bool]) -> bool:
    """Take a lock unless another thread has it, and note in ``taken`` that it was taken. An interrupt can
    strike right behind: call this inside ``try``, and in ``finally`` release the lock if anything is noted.
    """
    taken.extend(filter(None, map(acquire, (False,))))  # one call: nothing strikes between taking and noting
    return bool(taken)


class Latch:
    """Is opened once, and whoever waits goes on.

    Not :class:`threading.Event`: an interrupt inside its ``set`` or ``wait``, which are Python, can leave its
    lock held, and then every thread that comes to it hangs.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._closed = threading.Lock()
        """Held until it is open. Only wakes: ``is_open`` is what counts."""
        self._closed.acquire()

    def open(self) -> None:
        """Let one that waits go on at once, and others soon."""
        self.is_open = True
        with contextlib.suppress(RuntimeError):  # it was released before
            self._closed.release()

    def wait(self, timeout_seconds: float = math.inf) -> None:
        """Until it is open, or the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while not self.is_open and (left := deadline - time.monotonic()) > 0:
            self._closed.acquire(timeout=min(left, _LOOKED_AGAIN_SECONDS))


class _Turns(Generic[T]):
    """Each item is for the thread that comes next."""

    def __init__(self, action: Callable[[T], object], items: Iterable[T]) -> None:
        self._action = action
        self._turns = deque(enumerate(items))
        self._failures: dict[int, Exception] = {}
        self._lock = threading.Lock()
        """Guards who comes, and that nobody comes any more."""
        self._is_over = False
        self._ends: list[Latch] = []
        """Of the other threads that have come. Who was started and has not come is not waited for: an
        interrupt may hide whether a thread was started, and make that it never comes."""

    def take(self, at_a_time: int) -> None:
        try:
            for _ in range(1, min(at_a_time, len(self._turns))):
                self._start_thread()
            self._work()
        except BaseException:
            self._turns.clear()
            raise
        finally:
            self._wait_for_threads()
        if self._failures:
            raise self._failures[min(self._failures)]

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work_beside, name="logstore-turn", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread to be had, or the interpreter ends
            thread.start()

    def _work_beside(self) -> None:
        end = Latch()
        with self._lock:
            if self._is_over:
                return
            self._ends.append(end)
        try:
            self._work()
        finally:
            end.open()

    def _work(self) -> None:
        while self._turns:
            try:
                number, item = self._turns.popleft()
            except IndexError:  # another thread took the last
                return
            try:
                self._action(item)
            except Exception as error:
                self._failures[number] = error

    def _wait_for_threads(self) -> None:
        """An interrupt is raised when all are done: what they work on must not be let go before."""
        interrupt: BaseException | None = None
        while True:
            try:
                with self._lock:
                    self._is_over = True
                for end in self._ends:
                    end.wait()
                break
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
