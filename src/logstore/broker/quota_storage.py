"""The quotas of a directory: kept in its ``quotas.json``, and applied to the clients of its broker.

Lock: ``_lock`` is held while quotas change, also while the file is written. Requests that are measured never
wait for it.
"""

from __future__ import annotations

import threading

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.quotas.altering import alter, describe
from logstore.broker.quotas.limits import Limits
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    AlterClientQuotasResult,
    AlteredQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResult,
)
from logstore.errors import LogstoreError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.quotas import Quotas, read_quotas, write_quotas
from logstore.warning import warn


class StoredQuotas:
    """Of one broker. A damaged file does not keep records from being used: then there are no limits, a
    warning says so, and requests about quotas are refused with what is wrong. Each of them looks again."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        context = directory.context
        self.limits = Limits(
            context.clock,
            window_count=directory.config.quota_window_num,
            window_ms=directory.config.quota_window_size_seconds * 1000,
        )
        """What clients are held to."""
        self._lock = threading.Lock()
        self._quotas: Quotas = {}
        self._must_read = False
        """Whether the file could not be read so far."""
        try:
            self._read_locked()
        except LogstoreError as error:
            warn("no client is held to a quota: %s", error)
            self._must_read = True

    def _read_locked(self) -> None:
        """
        Raises:
            CorruptionError, UnsupportedVersionError: the file cannot be read.
        """
        self._quotas = read_quotas(self._directory.context.files, self._directory.path)
        self._must_read = False
        self.limits.put(self._quotas)

    def describe(self, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResult:
        """The quotas that are set."""
        try:
            with self._lock:
                if self._must_read:
                    self._read_locked()
            return DescribeClientQuotasResult(ErrorCode.NONE, describe(self._quotas, request))
        except LogstoreError as error:
            return DescribeClientQuotasResult(code_of(error), message=str(error))

    def alter(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResult:
        """Change quotas. The answer comes when they are durable; a crash before it leaves all changes of the
        request, or none."""
        with self._lock:
            try:
                if self._must_read:
                    self._read_locked()
                altered, outcomes = alter(self._quotas, request)
                if altered != self._quotas and not request.validate_only:
                    self._store_locked(altered)
            except LogstoreError as error:
                code, why = code_of(error), str(error)
                outcomes = tuple(AlteredQuotas(each.entity, code, why) for each in request.alterations)
        return AlterClientQuotasResult(outcomes)

    def _store_locked(self, quotas: Quotas) -> None:
        """
        Raises:
            ClosedError, FencedError, StorageError: nothing has changed.
        """
        self._directory.check_open()
        context = self._directory.context
        context.home.check_held()
        write_quotas(context.files, self._directory.path, quotas)
        self._quotas = quotas
        self.limits.put(quotas)
