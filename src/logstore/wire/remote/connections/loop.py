"""The one thread of a client of brokers elsewhere: it waits for all sockets and all times at once.

What is given to it is called in that thread, one thing at a time, and must not block. The thread starts with
the first thing to do, and ends with :meth:`Loop.close`.

Lock: ``_lock`` guards what is to be done soon, the times, and whether the thread runs. Nothing is called with
it held.
"""

from __future__ import annotations

import contextlib
import heapq
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from logstore.errors import RetriableError, socket_error
from logstore.warning import warn

Action = Callable[[], object]
OnReady = Callable[[int], object]
"""Called with what a socket is ready for: ``READ``, ``WRITE`` or both."""

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE


class Timer:
    """Something to do at a time."""

    __slots__ = ("action", "due")

    def __init__(self, due: float, action: Action) -> None:
        self.due = due
        self.action: Action | None = action

    def cancel(self) -> None:
        """Do not do it, unless it is being done."""
        self.action = None

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class Loop:
    """Of one client. All methods but ``watch`` and ``forget`` may be called in any thread."""

    def __init__(self, name: str) -> None:
        """
        Raises:
            StorageError: the process may have no more files open.
        """
        self._name = name
        try:
            self._selector = selectors.DefaultSelector()
            self._wakes, self._woken = socket.socketpair()
        except OSError as error:
            raise socket_error(error, "cannot wait for brokers") from error
        for each in (self._wakes, self._woken):
            each.setblocking(False)
        self._selector.register(self._woken, READ, self._drain)
        self._lock = threading.Lock()
        self._soon: deque[Action] = deque()
        self._timers: list[Timer] = []
        self._thread: threading.Thread | None = None
        self._is_asleep = False
        self._is_closed = False

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the loop's."""
        return self._thread is threading.current_thread()

    @property
    def is_closed(self) -> bool:
        """Whether it ends, so that nothing is worth trying again."""
        return self._is_closed

    def call_soon(self, action: Action) -> None:
        """Do it in the thread. Nothing is done any more after :meth:`close`.

        Raises:
            RetriableError: the process may have no more threads.
        """
        with self._lock:
            if self._is_closed:
                return
            self._wake_locked()  # first: it may be refused a thread
            self._soon.append(action)

    def call_later(self, ms: float, action: Action) -> Timer:
        """Do it in the thread, so many milliseconds from now."""
        timer = Timer(time.monotonic() + ms / 1000, action)
        self._keep(timer)
        return timer

    def _keep(self, timer: Timer) -> bool:
        """Returns whether its time will come."""
        with self._lock:
            if self._is_closed:
                return False
            heapq.heappush(self._timers, timer)
            if self._timers[0] is timer:
                self._wake_locked()
            return True

    def try_later(self, ms: float, action: Action) -> None:
        """The same for what is to be tried again: if the loop was closed meanwhile, at once and here, as it
        has to find that it is too late. The action looks at :attr:`is_closed` before it tries again."""
        timer = Timer(time.monotonic() + ms / 1000, action)
        if not self._keep(timer):
            _guarded(action)

    def _wake_locked(self) -> None:
        if self._thread is None:
            thread = self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._thread = None  # the next call tries again
                raise RetriableError(f"no thread can be started for a connection: {error}") from None
        elif self._is_asleep:
            with contextlib.suppress(BlockingIOError):  # it is woken already
                self._wakes.send(b"\0")
            self._is_asleep = False  # last: Ctrl-C in between must not leave it asleep

    def close(self) -> None:
        """End the thread, and wait for that. What is to be done soon or later is done now: it finds that it
        is too late. Call it once."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            if thread is not None and self._is_asleep:
                self._wakes.send(b"\0")
        if thread is not None and not self.is_here:
            thread.join()
        elif thread is None:
            self._dispose()

    # In the thread

    def watch(self, sock: socket.socket, events: int, on_ready: OnReady) -> None:
        """Call ``on_ready`` whenever the socket is ready for one of the events; none, if they are 0."""
        is_known = sock in self._selector.get_map()
        if not events:
            if is_known:
                self._selector.unregister(sock)
        elif is_known:
            self._selector.modify(sock, events, on_ready)
        else:
            self._selector.register(sock, events, on_ready)

    def forget(self, sock: socket.socket) -> None:
        """Watch the socket no more. Before it is closed."""
        if sock.fileno() >= 0 and sock in self._selector.get_map():
            self._selector.unregister(sock)

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            self._dispose()

    def _step(self) -> bool:
        with self._lock:
            if self._is_closed and not self._soon:
                late, self._timers = self._timers, []
                if not late:
                    return False
                self._soon.extend(each.action for each in late if each.action is not None)
            seconds = self._seconds_locked()
            self._is_asleep = seconds != 0
        ready = self._selector.select(seconds)
        with self._lock:
            self._is_asleep = False
            soon, self._soon = self._soon, deque()
            now = time.monotonic()
            while self._timers and self._timers[0].due <= now:
                action = heapq.heappop(self._timers).action
                if action is not None:
                    soon.append(action)
        for key, events in ready:
            on_ready: OnReady = key.data
            _guarded(lambda on_ready=on_ready, events=events: on_ready(events))  # type: ignore[misc]
        for action in soon:
            _guarded(action)
        return True

    def _seconds_locked(self) -> float | None:
        if self._soon or self._is_closed:
            return 0
        while self._timers and self._timers[0].action is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(self._timers[0].due - time.monotonic(), 0)

    def _drain(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _dispose(self) -> None:
        self._selector.close()
        self._wakes.close()
        self._woken.close()


def _guarded(action: Action) -> None:
    """A fault of ours in one request must not end the thread that serves all others."""
    try:
        action()
    except Exception as error:
        warn("a request to a broker failed: %s: %s", type(error).__name__, error)
