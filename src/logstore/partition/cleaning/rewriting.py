"""The shared part of compaction and erasing: rewriting segments of a log that stays in use."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod

from logstore.errors import RetriableError, StorageError
from logstore.partition.cleaning.cleaned_segment import CleanedSegment
from logstore.partition.writing.core import LogCore
from logstore.partition.writing.writer import LogWriter


class Rewriting(ABC):
    """One call of either. Used once, by the thread that has the log's turn."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._context = log.context
        self._core: LogCore = log.core
        self._truncation_count = 0
        """The truncation count of the view that the call began with."""

    def _check(self) -> None:
        """
        Raises:
            ClosedError, RetriableError: the log is being closed, or was truncated meanwhile.
        """
        self._log.guard.check_usable()
        self._log.turn.check()
        if self._core.truncations.count != self._truncation_count:
            raise self._end_was_cut()

    @abstractmethod
    def _end_was_cut(self) -> RetriableError:
        """The error to raise if the log was truncated meanwhile."""

    def _new_segment(self, base_offset: int, expected_bytes: int) -> CleanedSegment:
        return CleanedSegment(
            self._context.files,
            self._log.directory,
            base_offset,
            index_limit_bytes=self._core.config.segment_index_bytes,
            expected_bytes=expected_bytes,
        )

    def _discard(self, output: CleanedSegment) -> None:
        """Remove the files of a failed output. After a failed swap they stay: the next open decides."""
        if self._log.guard.failure is None:
            with contextlib.suppress(StorageError):
                output.remove()
