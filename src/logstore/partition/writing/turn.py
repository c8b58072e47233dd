"""One compaction of a log at a time, and none any more when the log goes.

Lock: ``_lock`` is held for as long as a compaction runs, and by nobody who holds the log's lock.
"""

from __future__ import annotations

import threading
from types import TracebackType

from logstore.errors import ClosedError, UsageError
from logstore.model import TopicPartition
from logstore.turns import Latch


class CompactionTurn:
    """Entered by whoever compacts the log; waits for the one before."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        """Whose turn it is, or, where the lock is free, was when an interrupt came."""
        self._ended = Latch()

    def own_lock(self) -> threading.Lock:
        """The lock, which goes in front of the turn in a ``with`` statement: waits for the one before. The
        interpreter releases it there by itself; an interrupt in a function of ours could leave it held.

        Raises:
            UsageError: this thread is at it already.
        """
        if self._lock.locked() and self._thread_id == threading.get_ident():
            raise UsageError(f"a compaction of {self._partition} was called by what its progress calls")
        return self._lock

    def __enter__(self) -> None:
        self._thread_id = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread_id = None

    @property
    def is_taken(self) -> bool:
        """Whether a compaction is under way."""
        return self._lock.locked()

    def sleep(self, delay_ms: int) -> None:
        """For the compaction: do nothing for a while. Ends at once when the log goes.

        Raises:
            ClosedError: it does.
        """
        self._ended.wait(delay_ms / 1000)
        self.check()

    def check(self) -> None:
        """Called by the compaction, after every step.

        Raises:
            ClosedError: the log is going: leave nothing behind, at once.
        """
        if self._ended.is_open:
            raise ClosedError(f"{self._partition} was closed, or its topic deleted, while it was compacted")

    def end(self) -> None:
        """Make the compaction under way stop, and wait until it has cleaned up. There will be no other. Not
        for whoever holds the log's lock; what the compaction itself calls does not wait."""
        self._ended.open()
        if self._thread_id != threading.get_ident():
            with self._lock:
                pass
