"""Runs one action for several logs, partitions or files, also in parallel. Knows none of them."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from logstore.files import Files, OsFiles

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")

FLUSHED_AT_A_TIME: Final = 8
"""Flushing a log is waiting for the disk, and a file system flushes several files in little more than the
time of one: on ext4 eight files take 1.2 ms together, and 2 to 30 ms one after the other."""
WORTH_THREADS_SECONDS: Final = 0.0005
"""Work that takes less in total is done before threads for it have started."""
_LOOKED_AGAIN_SECONDS: Final = 0.05
"""How often a waiting thread looks by itself, in case an interrupt prevented its wake-up."""


def take_turns(
    action: Callable[[T], object],
    items: Iterable[T],
    *,
    at_a_time: int = 1,
    ignored: tuple[type[Exception], ...] = (),
) -> None:
    """Run the action for every item, even if it fails for others; then raise the error of the first item that
    failed. An error of a class that is ``ignored`` is no failure.

    With ``at_a_time`` above one, other threads share the work; if the system grants none, this thread does it
    alone. When the call returns, no thread is still working. That also holds after an interrupt, which leaves
    the remaining items undone.
    """
    _Turns(action, items, ignored).take(at_a_time)


class OtherThreads:
    """Threads that do what is submitted to them, for one block of code. When that is left, none of them is
    still at work. That also holds after an interrupt, which leaves undone what has not begun, and if others
    follow while it waits for the rest.

    ``ThreadPoolExecutor`` alone does not do that: who is interrupted twice leaves its threads at work.
    """

    def __init__(self, count: int, name: str) -> None:
        from concurrent.futures import ThreadPoolExecutor  # takes long, and few programs get here

        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._actions = _Begun()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._actions.wait()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def submit(self, action: Callable[[T], R], item: T) -> Future[R]:
        """
        Raises:
            RuntimeError: the system grants no more threads. Those that there are may do it nevertheless.
        """
        return self._pool.submit(self._run, action, item)

    def finish(self) -> None:
        """Wait until all is done that was submitted. Nothing else can be."""
        self._pool.shutdown()

    def _run(self, action: Callable[[T], R], item: T) -> R:
        end = self._actions.begin()
        if end is None:
            raise RuntimeError("it is over")  # nobody asks any more
        try:
            return action(item)
        finally:
            end.open()


def flushed_at_a_time(files: Files) -> int:
    """How many files to flush at a time. Only one unless ``files`` is the real disk: tests rely on the
    order."""
    return FLUSHED_AT_A_TIME if type(files) is OsFiles else 1


def take_if_free(acquire: Callable[[bool], bool], taken: list[bool]) -> bool:
    """Take a lock unless another thread has it, and note in ``taken`` that it was taken. An interrupt can
    come right after that: call this inside ``try``, and in ``finally`` release the lock if anything is noted.
    """
    taken.extend(filter(None, map(acquire, (False,))))  # one call: no interrupt between taking and noting
    return bool(taken)


def held_here(lock: threading.RLock) -> Callable[[], bool]:
    """Tells whether the calling thread has the lock. Cost: 40 ns."""
    answer: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]  # as threading.Condition does
    return answer


class Bell:
    """Wakes one thread. Ringing while that is awake makes its next wait return at once.

    Not :class:`threading.Event`, which takes 1.2 KB and 1 µs: thousands of producers have one each.
    """

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake the thread. Never waits."""
        if self._silence.locked():
            with contextlib.suppress(RuntimeError):  # another thread was faster
                self._silence.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it rings. Returns whether it did, within so many seconds."""
        return self._silence.acquire(timeout=seconds)


class SafeEvent:
    """As :class:`threading.Event`, and safe in signal handlers. A handler runs in the thread that waits, also
    while that is about to wait: if it set an ``Event``, it would wait for a lock that its own thread has, for
    ever. A ``SimpleQueue`` can be put into at any time.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._rings: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Whether it was set, and not cleared since."""
        return self._is_set

    def set(self) -> None:
        """Wake all who wait. From any thread, and from a signal handler."""
        if not self._is_set:
            self._is_set = True
            self._rings.put(None)

    def clear(self) -> None:
        """Let those wait who wait from now on."""
        self._is_set = False
        with contextlib.suppress(Empty):
            while True:
                self._rings.get_nowait()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is set, at the latest after so many seconds. It may return earlier than that."""
        if not self._is_set:
            with contextlib.suppress(Empty):
                self._rings.get(timeout=None if timeout is None else max(timeout, 0.0))
            if self._is_set:
                self._rings.put(None)  # others may wait, too
        return self._is_set


class Latch:
    """Opens once and releases all waiting threads.

    Not :class:`threading.Event`: its ``set`` and ``wait`` are Python code, and an interrupt inside them can
    leave its lock held. Every thread that uses it would then wait forever.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._closed = threading.Lock()
        """Held until the latch is open. It only wakes threads; ``is_open`` is what counts."""
        self._closed.acquire()

    def open(self) -> None:
        """Release one waiting thread at once, and the others within 50 ms."""
        self.is_open = True
        with contextlib.suppress(RuntimeError):  # already released
            self._closed.release()

    def wait(self, timeout_seconds: float = math.inf) -> None:
        """Wait until the latch is open, or the timeout has passed."""
        deadline = time.monotonic() + timeout_seconds
        while not self.is_open and (left := deadline - time.monotonic()) > 0:
            self._closed.acquire(timeout=min(left, _LOOKED_AGAIN_SECONDS))


class _Turns(Generic[T]):
    """The items, each taken by the next free thread."""

    def __init__(
        self, action: Callable[[T], object], items: Iterable[T], ignored: tuple[type[Exception], ...]
    ) -> None:
        self._action = action
        self._ignored = ignored
        self._turns = deque(enumerate(items))
        self._failures: dict[int, Exception] = {}
        self._others = _Begun()

    def take(self, at_a_time: int) -> None:
        try:
            for _ in range(1, min(at_a_time, len(self._turns))):
                self._start_thread()
            self._work()
        except BaseException:
            self._turns.clear()
            raise
        finally:
            self._others.wait()
        if self._failures:
            raise self._failures[min(self._failures)]

    def _start_thread(self) -> None:
        if sys.is_finalizing():  # Python 3.11 would wait forever for it to begin
            return
        thread = threading.Thread(target=self._work_beside, name="logstore-turn", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread available, or the interpreter is shutting down
            thread.start()

    def _work_beside(self) -> None:
        end = self._others.begin()
        if end is None:
            return
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
            except self._ignored:
                continue
            except Exception as error:
                self._failures[number] = error


class _Begun:
    """What other threads have begun and must end before it is over. What has not begun is not waited for:
    after an interrupt it is not known whether a thread was started, and it may never begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards both of the following."""
        self._is_over = False
        self._ends: list[Latch] = []

    def begin(self) -> Latch | None:
        """A latch, to be opened at the end. None if it is over already: do nothing then."""
        end = Latch()
        with self._lock:
            if self._is_over:
                return None
            self._ends.append(end)
        return end

    def wait(self) -> None:
        """Let nothing begin any more, and wait for what has, in spite of interrupts: until its end it uses
        what it works on. The last interrupt is raised then."""
        interrupt: BaseException | None = None
        while True:
            try:
                self._wait()
                break
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _wait(self) -> None:
        with self._lock:
            self._is_over = True
        for end in self._ends:
            end.wait()
