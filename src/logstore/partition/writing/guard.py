"""What is around every change of a log: its lock, the gate of what gathers, and whether it may still change.

A change that fails leaves the log as it was. One that stops half-way (an fsync that failed, an error after
the log was written but before what belongs to it) makes the log refuse all further changes until it is
reopened; reading goes on.

Lock: :attr:`Guard.lock` guards every change of the log and serialises writers. The exception are single
appends about which all is ordinary: while the gate of :mod:`~logstore.partition.writing.gathering` is open,
rows are added without the lock. An append that holds the lock opens it, and whoever takes the lock for a
change closes it. Readers never take the lock: they work on an immutable view that is replaced in one
assignment after the disk was changed. Fsyncs run outside of it, so appends go on during a flush.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from logstore.errors import FencedError, LogstoreError, ReopenRequiredError
from logstore.model import TopicPartition
from logstore.partition.segments.failed_flushes import tell_failed_flush
from logstore.partition.state.context import LogContext
from logstore.partition.writing.core import LogCore
from logstore.partition.writing.waits import Waits

Poison = Callable[[BaseException], None]


class Guard:
    """Of one log. A change is ``with guard.own_lock(), guard as core: ...``."""

    __slots__ = (
        "_close_gate",
        "_context",
        "_directory",
        "_fork_flag",
        "_partition",
        "_waits",
        "core",
        "failure",
        "is_closed",
        "lock",
    )

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        waits: Waits,
        close_gate: Callable[[], None],
        make_core: Callable[[Poison], LogCore],
    ) -> None:
        self._context = context
        self._fork_flag = context.fork_flag
        self._directory = directory
        self._partition = partition
        self._waits = waits
        self._close_gate = close_gate
        self.lock = threading.RLock()
        self.failure: BaseException | None = None
        """What makes the log refuse changes until it is reopened."""
        self.is_closed = False
        self.core = make_core(self.poison)
        """What is changed."""

    def own_lock(self) -> threading.RLock:
        """The lock, which goes in front of the guard in a ``with`` statement. The interpreter releases it
        there by itself: an interrupt cannot come first, as it can in a function of ours."""
        if self.is_closed or self._fork_flag.is_forked:
            self.check_usable()  # first: in a forked child the lock may never be released
        return self.lock

    def __enter__(self) -> LogCore:
        """With the lock held.

        Raises:
            ReopenRequiredError, FencedError, ClosedError, ForkedError: the log may not change.
        """
        self._close_gate()
        if self.is_closed or self.failure is not None:
            self.check_writable_locked()
        return self.core

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.poison_if_unexpected(error)

    def check_usable(self) -> None:
        """
        Raises:
            ClosedError, ForkedError: the log cannot be used.
        """
        if self.is_closed or self._fork_flag.is_forked:  # each append asks, and more than once
            self._fork_flag.check_usable(self._partition, is_closed=self.is_closed)

    def check_writable_locked(self) -> None:
        """
        Raises:
            ReopenRequiredError, FencedError: a failure made the log refuse changes.
            ClosedError, ForkedError: it cannot be used at all.
        """
        self.check_usable()
        if isinstance(self.failure, FencedError):
            raise FencedError(str(self.failure))
        if self.failure is not None:
            tell_failed_flush(self._context.files, self._directory)
            raise self.reopen_required(
                f"{self._partition} must be reopened before it is written again "
                f"(topic.reopen({self._partition.partition}), or close and open it)"
            )

    def reopen_required(self, what: str) -> ReopenRequiredError:
        """The error that says ``what`` and why."""
        failure = self.failure
        why = str(failure) or type(failure).__name__  # Ctrl-C says nothing
        return ReopenRequiredError(
            getattr(failure, "errno", None), f"{what}, because of: {why}", self._directory
        )

    def check_owned(self) -> None:
        """Nothing is acknowledged that another writer of the directory may not have met: whoever opens it
        from now on finds what was flushed.

        Raises:
            FencedError: the directory's lock was lost. The log refuses all further changes.
        """
        try:
            self._context.home.check_held()
        except FencedError as error:
            self.poison(error)
            raise

    def poison(self, error: BaseException) -> None:
        """Refuse all further changes: memory and disk may not agree."""
        self.failure = error
        self._close_gate()  # behind it: whoever opens the gate looks at the failure afterwards
        self._waits.end()

    def poison_if_unexpected(self, error: BaseException) -> None:
        """After an error with the lock held. One of ours means that the change was refused or undone, unless
        it poisoned the log itself; anything else may have struck half-way. The directory's lock, once lost,
        stays lost."""
        if not isinstance(error, LogstoreError) or type(error) is FencedError:
            self.poison(error)
