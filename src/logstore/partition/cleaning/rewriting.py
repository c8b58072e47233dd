"""What compaction and erasing have in common: segments of one log are written anew while it goes on."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from logstore.errors import RetriableError, StorageError
from logstore.partition.cleaning.cleaned_segment import CleanedSegment

if TYPE_CHECKING:
    from logstore.partition.log import Log
    from logstore.partition.writing.core import LogCore


class Rewriting(ABC):
    """One call. Used once, by whoever has the log's turn."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._context = log._context
        self._core: LogCore = log._core
        self._truncation_count = 0
        """Of the view that the call began with."""

    def _check(self) -> None:
        """
        Raises:
            ClosedError, RetriableError: the log changed, or goes.
        """
        self._log._check_usable()
        self._log._compacting.check()
        if self._core.truncations.count != self._truncation_count:
            raise self._end_was_cut()

    @abstractmethod
    def _end_was_cut(self) -> RetriableError:
        """What is raised if the log was truncated meanwhile."""

    def _new_segment(self, base_offset: int, expected_bytes: int) -> CleanedSegment:
        return CleanedSegment(
            self._context.files,
            self._log.directory,
            base_offset,
            index_limit_bytes=self._core.config.segment_index_bytes,
            expected_bytes=expected_bytes,
        )

    def _discard(self, output: CleanedSegment) -> None:
        """Remove what there is of an output that failed; after a failed swap the next open decides what
        counts."""
        if not self._log.needs_reopen:
            with contextlib.suppress(StorageError):
                output.remove()
