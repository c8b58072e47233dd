"""Compactions of a log take turns, and the one under way stops when the log is closed.

Lock: ``_lock`` is held while a compaction runs. Never take it with the log's lock held.
"""

from __future__ import annotations

import threading
from types import TracebackType

from logstore.errors import ClosedError, UsageError
from logstore.model import TopicPartition
from logstore.turns import Latch


class CompactionTurn:
    """The right to compact the log. Entering it waits for the compaction before."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        """The thread whose turn it is. If the lock is free: the thread that an interrupt stopped."""
        self._ended = Latch()

    def own_lock(self) -> threading.Lock:
        """The lock, to be named before the turn in a ``with`` statement; it waits for the compaction before.
        There the interpreter itself releases the lock; an interrupt in one of our functions could leave it
        held.

        Raises:
            UsageError: this thread is compacting the log already.
        """
        if self._lock.locked() and self._thread_id == threading.get_ident():
            raise UsageError(
                f"a progress callback of {self._partition} called compact() or erase() while one is running"
            )
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
        """Pause the compaction. Ends at once when the log is closed.

        Raises:
            ClosedError: the log is closed.
        """
        self._ended.wait(delay_ms / 1000)
        self.check()

    def check(self) -> None:
        """The compaction calls this after every step.

        Raises:
            ClosedError: the log is being closed: clean up and stop at once.
        """
        if self._ended.is_open:
            raise ClosedError(f"{self._partition} was closed, or its topic deleted, while it was compacted")

    def end(self) -> None:
        """Stop the compaction under way, wait until it has cleaned up, and allow no other. Do not call it
        with the log's lock held. A call from inside the compaction does not wait."""
        self._ended.open()
        if self._thread_id != threading.get_ident():
            with self._lock:
                pass
