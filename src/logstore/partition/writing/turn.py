"""Compactions of a log take turns, and the one under way stops when the log is closed.

Lock: ``_lock`` is held while a compaction runs. Never take it with the log's lock held.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

from logstore.errors import ClosedError, UsageError
from logstore.model import TopicPartition
from logstore.turns import Latch

_LONGEST_PAUSE_SECONDS: Final = 0.1
"""After so long a compaction that sleeps looks whether somebody waits for it."""


class CompactionTurn:
    """The right to compact the log. Entering it waits for the compaction before."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._lock = threading.Lock()
        self.thread_id: int | None = None
        """The thread whose turn it is. If the lock is free: the thread that an interrupt stopped."""
        self._is_ended = False
        self._pause: Latch | None = None
        """What the compaction sleeps on; made by the first that does."""
        self._coming: set[int] = set()
        """The threads that have come for the turn and do not have it yet. One that was interrupted meanwhile
        stays here until it comes again, and no compaction of the log sleeps."""

    def own_lock(self) -> threading.Lock:
        """The lock, to be named before the turn in a ``with`` statement; it waits for the compaction before.
        There the interpreter itself releases the lock; an interrupt in one of our functions could leave it
        held.

        Raises:
            UsageError: this thread is compacting the log already.
        """
        if self._lock.locked() and self.thread_id == threading.get_ident():
            raise UsageError(
                f"a progress callback of {self._partition} called compact() or erase() while one is running"
            )
        self._coming.add(threading.get_ident())
        return self._lock

    def __enter__(self) -> None:
        self.thread_id = threading.get_ident()
        self._coming.discard(self.thread_id)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thread_id = None

    @property
    def is_taken(self) -> bool:
        """Whether a compaction is under way."""
        return self._lock.locked()

    def sleep(self, delay_ms: int) -> None:
        """Pause the compaction, unless somebody waits for it. Ends at once when the log is closed.

        Raises:
            ClosedError: the log is closed.
        """
        end = time.monotonic() + delay_ms / 1000
        pause = self._pause = self._pause or Latch()
        self.check()  # last: an end that has not seen the pause is seen here
        while not self._coming and (left_seconds := end - time.monotonic()) > 0:
            pause.wait(min(left_seconds, _LONGEST_PAUSE_SECONDS))
            self.check()

    def check(self) -> None:
        """The compaction calls this after every step.

        Raises:
            ClosedError: the log is being closed: clean up and stop at once.
        """
        if self._is_ended:
            raise ClosedError(f"{self._partition} was closed, or its topic deleted, while it was compacted")

    def end(self) -> None:
        """Stop the compaction under way, wait until it has cleaned up, and allow no other. Do not call it
        with the log's lock held. A call from inside the compaction does not wait."""
        self._is_ended = True
        if self._pause is not None:
            self._pause.open()
        if self.thread_id != threading.get_ident():
            with self._lock:
                pass
