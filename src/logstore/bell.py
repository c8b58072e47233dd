"""What a thread waits for, and a signal handler may ring."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Bell:
    """As ``threading.Event``, and safe in signal handlers. A handler runs in the thread that waits, also
    while that is about to wait: if it set an ``Event``, it would wait for a lock that its own thread has, for
    ever. A ``SimpleQueue`` can be put into at any time.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._rings: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """From any thread, and from a signal handler."""
        if not self._is_set:
            self._is_set = True
            self._rings.put(None)

    def clear(self) -> None:
        self._is_set = False
        with suppress(Empty):
            while True:
                self._rings.get_nowait()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is set, at the latest after so many seconds. It may return earlier than that."""
        if not self._is_set:
            with suppress(Empty):
                self._rings.get(timeout=None if timeout is None else max(timeout, 0.0))
            if self._is_set:
                self._rings.put(None)  # others may wait, too
        return self._is_set
