"""Threads that work on connections: as many as there is work for, up to a limit.

Lock: ``_lock`` guards the counts. Nothing is called with it held, except a queue that never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from logstore.warning import warn

_IDLE_SECONDS: Final = 10

Work = Callable[[], None]


class Workers:
    """Runs pieces of work, each in one thread."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0
        """How many wait for work, and have not been promised any."""
        self._backlog = 0
        """How many pieces no thread was there for."""
        self._is_closed = False

    @property
    def has_room(self) -> bool:
        """Whether work that comes now begins at once."""
        return self._idle > 0 or (self._count < self._most and not self._backlog)

    @property
    def count(self) -> int:
        """How many threads there are."""
        return self._count

    def submit(self, work: Work) -> None:
        """Run it soon."""
        is_new = False
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._count < self._most and not self._is_closed:
                self._count += 1
                is_new = True
            else:
                self._backlog += 1
            self._queue.put(work)
        if is_new:
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads: those that there are go on
            warn("no thread for a request could be started: %s", error)
            with self._lock:
                self._count -= 1
                self._backlog += 1

    def _run(self) -> None:
        while True:
            try:
                work = self._queue.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self._may_end():
                    return
                continue
            if work is None:
                return
            try:
                work()
            except Exception as error:
                warn("a request failed: %s: %s", type(error).__name__, error)
            del work  # an idle thread keeps no connection
            with self._lock:
                if self._backlog:
                    self._backlog -= 1
                else:
                    self._idle += 1

    def _may_end(self) -> bool:
        with self._lock:
            if not self._idle:
                return False  # work was promised just now
            self._idle -= 1
            self._count -= 1
            return True

    def close(self) -> None:
        """End the threads that wait; those that work end after it."""
        with self._lock:
            self._is_closed = True
            count = self._count
        for _ in range(count):
            self._queue.put(None)
