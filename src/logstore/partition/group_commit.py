"""Group commit: one fsync serves everybody who waits for one.

The first thread that needs a flush performs it for all that was appended before it began; threads that arrive
meanwhile wait, and the next of them flushes for all the others. Knows offsets and a function that flushes;
nothing of files. What is durable it asks the log each time: a truncation may lower it at any moment.

Lock: ``_changed`` guards ``_is_flushing``; it is not held while flushing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class GroupCommit:
    """``flush()`` makes everything appended so far durable; ``durable_offset()`` says how far that is."""

    def __init__(self, flush: Callable[[], None], durable_offset: Callable[[], int]) -> None:
        self._flush = flush
        self._durable_offset = durable_offset
        self._changed = threading.Condition()
        self._is_flushing = False

    def wait_until_durable(self, offset: int) -> None:
        """Return when everything that was below ``offset`` at the time of the call is durable (or was cut off
        the log since), flushing if nobody else does.

        Raises what ``flush`` raises in this thread; a thread that waited for another's failed flush tries
        itself, and learns from its own call what is wrong.
        """
        with self._changed:
            while self._is_flushing and self._durable_offset() < offset:
                self._changed.wait()
            if self._durable_offset() >= offset:
                return
            self._is_flushing = True
        try:
            self._flush()
        finally:
            with self._changed:
                self._is_flushing = False
                self._changed.notify_all()
