"""The guard around every change of a log: its lock, the gate for single appends, and the failure state.

A change that fails leaves the log as it was. One that stops half-way (an fsync that failed, an error after
the log was written but before what belongs to it) makes the log refuse all further changes until it is
reopened; reading goes on.

Lock: :attr:`Guard.lock` guards every change of the log and serialises writers. The exception is an ordinary
single append: while the gate of :mod:`~logstore.partition.writing.gathering` is open, rows are added without
the lock. An append that holds the lock opens the gate, and every thread that takes the lock for a change
closes it. Readers never take the lock: they work on an immutable view that is replaced in one assignment
after the disk was changed. Fsyncs run without the lock, so appends go on during a flush.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from logstore.errors import ClosedError, FencedError, LogstoreError, ReopenRequiredError, UsageError
from logstore.model import TopicPartition
from logstore.partition.segments.failed_flushes import tell_failed_flush
from logstore.partition.state.context import LogContext
from logstore.partition.writing.core import LogCore
from logstore.partition.writing.waits import Waits
from logstore.turns import held_here


def reentered(partition: TopicPartition) -> UsageError:
    """The error of a call that would see the log in the middle of a change."""
    return UsageError(
        f"{partition} is being changed by this thread: this call comes from a signal handler, a finalizer or "
        "a callback that has interrupted it. Let that set a flag or an event, and make the call elsewhere"
    )


Poison = Callable[[BaseException], None]


class Guard:
    """The guard of one log. A change is ``with guard.own_lock(), guard as core: ...``."""

    __slots__ = (
        "_began_at",
        "_close_gate",
        "_context",
        "_directory",
        "_fork_flag",
        "_partition",
        "_waits",
        "core",
        "failure",
        "is_closed",
        "is_held_here",
        "is_home_used_here",
        "is_removed",
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
        self.is_held_here = held_here(self.lock)
        """Whether the calling thread has the lock. Where a change begins, it can only have it within another
        change: that was interrupted by a signal handler or a finalizer."""
        self.is_home_used_here = context.home.is_used_here
        """Whether the calling thread changes the checkpoints. Others change them with the lock of a log held,
        so it must not wait for one."""
        self.failure: BaseException | None = None
        """The error that makes the log refuse changes until it is reopened, or None."""
        self.is_closed = False
        self.is_removed = False
        """Whether it is closed because its topic was deleted, or the partition taken out of the directory."""
        self.core = make_core(self.poison)
        """The state that is changed."""
        self._began_at = 0
        """The log end when the current change began."""

    def own_lock(self) -> threading.RLock:
        """The lock, to be named before the guard in a ``with`` statement. There the interpreter itself
        releases the lock, so no interrupt can come first, as it can in one of our functions."""
        if self.is_closed or self._fork_flag.is_forked or self.is_held_here() or self.is_home_used_here():
            self.check_entry()  # first: a forked child may never get the lock
        return self.lock

    def __enter__(self) -> LogCore:
        """Begin a change, with the lock held.

        Raises:
            ReopenRequiredError, FencedError, ClosedError, ForkedError: the log may not change.
        """
        self._close_gate()
        if self.is_closed or self.failure is not None:
            self.check_writable()
        core = self.core
        self._began_at = core.log_end_offset
        return core

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self._waits.interrupt is not None:
                self._waits.raise_interrupt()
        else:
            core = self.core
            if error is core.unbegun and core.log_end_offset == self._began_at:
                core.harmless = error
            core.unbegun = None
            self.poison_if_unexpected(error)

    def check_usable(self) -> None:
        """
        Raises:
            ClosedError, ForkedError: the log cannot be used.
        """
        if self.is_closed or self._fork_flag.is_forked:  # every append asks, more than once
            if self.is_removed and not self._fork_flag.is_forked:
                raise ClosedError(
                    f"{self._partition} was deleted; a topic that is made again under its name has another: "
                    f"store[{self._partition.topic!r}][{self._partition.partition}]"
                )
            self._fork_flag.check_usable(self._partition, is_closed=self.is_closed)

    def check_entry(self) -> None:
        """Where a change begins.

        Raises:
            ClosedError, ForkedError: the log cannot be used.
            UsageError: this thread is within a change already.
        """
        self.check_usable()
        if self.is_held_here() or self.is_home_used_here():
            raise self.reentered()

    def reentered(self) -> UsageError:
        """The error of a call where this thread is within a change of the log, or of the checkpoints, and is
        interrupted."""
        return reentered(self._partition) if self.is_held_here() else self._context.home.reentered()

    def check_writable(self) -> None:
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
        why = str(failure)
        if not isinstance(failure, LogstoreError):  # Ctrl-C says nothing, and sys.exit(0) says 0
            why = f"{type(failure).__name__}: {why}".removesuffix(": ")
        return ReopenRequiredError(
            getattr(failure, "errno", None), f"{what}, because of: {why}", self._directory
        )

    def check_owned(self) -> None:
        """Check, after a flush and before it is acknowledged, that the directory is still ours. If it is,
        every writer that opens it from now on finds what was flushed.

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
        self._close_gate()  # after the failure is set: a thread that opens the gate checks for it afterwards
        self._waits.end()

    def poison_if_unexpected(self, error: BaseException) -> None:
        """Poison the log, if this error may have left a change half-way. Called with the lock held. A
        LogstoreError means that the change was refused or undone, or that it has already poisoned the log.
        Any other error may have struck half-way, if it is not known to be harmless, and a lost directory lock
        stays lost."""
        harmless, self.core.harmless = self.core.harmless, None
        if type(error) is FencedError or not (isinstance(error, LogstoreError) or error is harmless):
            self.poison(error)
