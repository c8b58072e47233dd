"""The one thread that waits for all connections that nothing is done for: until bytes come, until some can be
sent, until a time.

Lock: ``_lock`` guards the timers. Registrations are the kernel's; each reports once.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from logstore.errors import RetriableError, UsageError
from logstore.warning import warn

_SWEEP_SECONDS: Final = 1.0
_HUNG_UP: Final = 0x2000 | 0x010 | 0x008
"""EPOLLRDHUP, EPOLLHUP and EPOLLERR: the client is gone."""

Resume = Callable[[bool], None]
"""Is told whether the client has hung up."""


class Watch:
    """See the module."""

    def __init__(self, name: str, sweep: Callable[[], object]) -> None:
        if not hasattr(select, "epoll"):
            raise UsageError("listening needs Linux: other systems have no epoll")
        self._epoll = select.epoll()
        self._sweep = sweep
        self._resumes: dict[int, Resume] = {}
        self._lock = threading.Lock()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._epoll.register(self._woken.fileno(), select.EPOLLIN)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to wait.

        Raises:
            RetriableError: the process may have no more threads. Nothing is left of the object.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            self._dispose()
            raise RetriableError(f"no thread can be started to listen: {error}") from None

    def add_listening(self, listening: socket.socket, accept: Callable[[], object]) -> None:
        """Call ``accept`` whenever a client connects."""

        def resume(_: bool) -> None:
            accept()

        self._resumes[listening.fileno()] = resume
        self._epoll.register(listening.fileno(), select.EPOLLIN)

    def remove_listening(self, listening: socket.socket) -> None:
        """Take no more clients."""
        self.remove(listening.fileno())

    def add(self, descriptor: int, resume: Resume) -> None:
        """Know a connection; nothing is waited for yet."""
        self._resumes[descriptor] = resume
        self._epoll.register(descriptor, select.EPOLLONESHOT)

    def remove(self, descriptor: int) -> None:
        """Forget a connection, before its socket is closed."""
        if self._resumes.pop(descriptor, None) is not None:
            try:
                self._epoll.unregister(descriptor)
            except (OSError, ValueError):
                return  # the watch, or the connection, is closed already

    def until_readable(self, descriptor: int) -> None:
        """Resume it when bytes come, or the end."""
        self._epoll.modify(descriptor, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT)

    def until_writable(self, descriptor: int) -> None:
        """Resume it when bytes can be sent."""
        self._epoll.modify(descriptor, select.EPOLLOUT | select.EPOLLONESHOT)

    def until_gone(self, descriptor: int) -> None:
        """Resume it when the client hangs up."""
        self._epoll.modify(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Call ``action`` once, then."""
        due = time.monotonic() + seconds
        with self._lock:
            heapq.heappush(self._timers, (due, next(self._order), action))
            is_first = self._timers[0][0] == due
        if is_first:
            self._wake()

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except (BlockingIOError, OSError):
            return  # it is awake, or closed

    def _run(self) -> None:
        next_sweep = time.monotonic() + _SWEEP_SECONDS
        while not self._is_closed:
            timeout = max(min(next_sweep, self._next_due()) - time.monotonic(), 0)
            for resume, events in self._ready(timeout):
                self._call(lambda each=resume, bits=events: each(bool(bits & _HUNG_UP)))  # type: ignore[misc]
            self._run_due()
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + _SWEEP_SECONDS
                self._call(self._sweep)
        self._dispose()

    def _ready(self, timeout: float) -> list[tuple[Resume, int]]:
        """Whom to resume, and why: found before any is called. A descriptor may be another connection's after
        the first, and who has hung up is the one that had it."""
        ready = []
        for descriptor, events in self._epoll.poll(timeout):
            resume = self._resumes.get(descriptor)
            if descriptor == self._woken.fileno():
                self._drain()
            elif resume is not None:
                ready.append((resume, events))
        return ready

    def _dispose(self) -> None:
        self._epoll.close()
        self._waker.close()
        self._woken.close()

    def _drain(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            return

    def _next_due(self) -> float:
        with self._lock:
            return self._timers[0][0] if self._timers else float("inf")

    def _run_due(self) -> None:
        now = time.monotonic()
        due = []
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                due.append(heapq.heappop(self._timers)[2])
        for action in due:
            self._call(action)

    def _call(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            warn("listening went on after an error: %s: %s", type(error).__name__, error)

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._wake()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join()
