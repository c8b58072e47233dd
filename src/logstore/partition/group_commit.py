"""Group commit: one fsync serves everybody who waits for one.

The first thread that needs a flush performs it for all that was appended before it began; threads that arrive
meanwhile wait, and the next of them flushes for all the others. Knows offsets and a function that flushes;
nothing of files.

Lock: ``_changed`` guards the fields; it is not held while flushing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class GroupCommit:
    """``flush()`` makes everything appended so far durable and returns the offset after it."""

    def __init__(self, flush: Callable[[], int]) -> None:
        self._flush = flush
        self._changed = threading.Condition()
        self._is_flushing = False
        self._durable_offset = -1

    def wait_until_durable(self, offset: int) -> None:
        """Return when everything below ``offset`` is durable, flushing if nobody else does.

        Raises what ``flush`` raises in this thread; a thread that waited for another's failed flush tries
        itself, and learns from its own call what is wrong.
        """
        while True:
            with self._changed:
                while self._is_flushing and self._durable_offset < offset:
                    self._changed.wait()
                if self._durable_offset >= offset:
                    return
                self._is_flushing = True
            self._lead()

    def _lead(self) -> None:
        durable = -1
        try:
            durable = self._flush()
        finally:
            with self._changed:
                self._is_flushing = False
                self._durable_offset = max(self._durable_offset, durable)
                self._changed.notify_all()

    def lower_to(self, offset: int) -> None:
        """Forget that anything above ``offset`` was durable: the log was cut there."""
        with self._changed:
            self._durable_offset = min(self._durable_offset, offset)
