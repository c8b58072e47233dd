"""Calls to the outside, in the order of the changes that caused them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from logstore.warning import warn


class Outbox:
    """What a group has to tell others: answers, and snapshots to store.

    A call is added under the lock and made without it, so it may come back with another request. One thread
    at a time makes the calls of a group, so that what is stored last is what was decided last; other threads
    leave theirs to it.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._calls: deque[Callable[[], object]] = deque()
        self._is_sending = False

    def add(self, call: Callable[[], object]) -> None:
        """Make this call when the change is over. The lock is held."""
        self._calls.append(call)

    def turn(self, change: Callable[[], None]) -> None:
        """Run a change under the lock, then make the calls that it added. An error in a call is logged."""
        try:
            with self._lock:
                change()
        finally:
            self.send()

    def send(self) -> None:
        """Make the calls. The lock is not held. Returns at once if another thread is at it."""
        with self._lock:
            if self._is_sending or not self._calls:
                return
            self._is_sending = True
        try:
            while self._send_next():
                pass
        except BaseException:
            self._is_sending = False
            raise

    def _send_next(self) -> bool:
        with self._lock:
            if not self._calls:
                self._is_sending = False
                return False
            call = self._calls.popleft()
        try:
            call()
        except Exception as error:
            warn("the answer of a group could not be given: %s: %s", type(error).__name__, error)
        return True
