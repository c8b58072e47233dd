"""Who waits for a log to change.

Lock: ``_lock`` guards who waits; it is taken with or without the log's lock, and nothing is taken behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Waits:
    """Of one log."""

    __slots__ = ("_changed", "_lock", "count")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # entered by its lock: see logstore.schedule
        self.count = 0
        """How many threads wait: an append need not call :meth:`notify` for none."""

    def notify(self) -> None:
        """The log has changed."""
        if self.count:
            with self._lock:
                self._changed.notify_all()

    def wait(self, is_unchanged: Callable[[], bool], timeout_ms: int) -> None:
        """Return when the log has changed, or after the timeout."""
        with self._lock:
            self.count += 1
            try:
                if is_unchanged():
                    self._changed.wait(timeout_ms / 1000)
            finally:
                self.count -= 1
