"""A log that can be read and checked, whether it is open for writing or not.

It has the method that starts a check. The checks themselves are elsewhere, because few programs need them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.arguments import check_callback
from logstore.partition.reading.readable import ReadableLog

if TYPE_CHECKING:
    from logstore.partition.checking.facts import LogFacts
    from logstore.partition.checking.files import StoredCheckpoints
    from logstore.partition.checking.findings import OnVerifyProgress, VerifyReport


class CheckableLog(ReadableLog):
    """Reading and checking one partition."""

    def verify(self, *, on_progress: OnVerifyProgress | None = None) -> VerifyReport:
        """Check everything that can be checked: each batch with all its records and its place among the
        others, indexes, snapshots and checkpoints. Changes nothing. The report is true if there is no
        problem. Each problem names file, position and offsets, and the next step. ``docs/verify.md`` lists
        the checks.

        Appends go on meanwhile; the lock is taken only for a moment. Damage is reported, never raised. Cost:
        one read of the log, two if there is damage, and 0.3 ms per MiB for records of 100 bytes in large
        batches (small batches cost 3 µs each; compressed ones are decompressed). Memory: 256 KiB or one
        batch, and the index files of one segment.

        Args:
            on_progress: called after each piece with a
                :class:`~logstore.partition.checking.findings.VerifyProgress`; an exception in it aborts the
                check.

        Raises:
            ClosedError: the log is closed, or was closed during the check, for example because its topic was
                deleted.
            UnknownTopicError: another process has deleted the topic.
            StorageError: this process's user lacks the permission to read something.
        """
        from logstore.partition.checking.files import StoredCheckpoints  # few programs get here
        from logstore.partition.checking.verify import ProgressSteps, verify_log

        check_callback(on_progress, "on_progress")
        self._check_usable()
        context = self._context
        checkpoints = StoredCheckpoints(context.files, context.home.path)

        def source() -> LogFacts:
            facts = self.facts_to_check(checkpoints)
            return replace(facts, findings=[*facts.findings, *checkpoints.findings])

        steps = None
        if on_progress is not None:
            steps = ProgressSteps(on_progress, source().log_bytes)
            steps.partition = self.partition
        return verify_log(source, context.clock, steps)

    @abstractmethod
    def facts_to_check(self, checkpoints: StoredCheckpoints) -> LogFacts:
        """What the log must hold now, for a check.

        Raises:
            ClosedError, ForkedError: the log cannot be used.
            UnknownTopicError: another process has deleted the topic.
        """

    @abstractmethod
    def _check_usable(self) -> None:
        """
        Raises:
            ClosedError, ForkedError: the log cannot be used.
        """
