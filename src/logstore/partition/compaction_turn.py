"""One compaction of a log at a time, and none any more when the log goes.

Lock: ``_lock`` is held for as long as a compaction runs, and by nobody who holds the log's lock.
"""

from __future__ import annotations

import threading
from types import TracebackType

from logstore.errors import ClosedError, UsageError
from logstore.model import TopicPartition


class CompactionTurn:
    """Entered by whoever compacts the log; waits for the one before."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._has_ended = False

    def __enter__(self) -> None:
        if self._thread_id == threading.get_ident():
            raise UsageError(f"a compaction of {self._partition} was called by what its progress calls")
        self._lock.acquire()
        self._thread_id = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread_id = None
        self._lock.release()

    def check(self) -> None:
        """Called by the compaction, after every step.

        Raises:
            ClosedError: the log is going: leave nothing behind, at once.
        """
        if self._has_ended:
            raise ClosedError(f"{self._partition} was closed, or its topic deleted, while it was compacted")

    def end(self) -> None:
        """Make the compaction under way stop, and wait until it has cleaned up. There will be no other. Not
        for whoever holds the log's lock; what the compaction itself calls does not wait."""
        self._has_ended = True
        if self._thread_id != threading.get_ident():
            with self._lock:
                pass
