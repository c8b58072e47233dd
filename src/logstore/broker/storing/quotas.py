"""The quotas of a directory: kept in its ``quotas.json``, and applied to the clients of its broker. Requests
that are measured never wait for a change.
"""

from __future__ import annotations

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
from logstore.logdir.kept import Kept
from logstore.logdir.quotas import QUOTAS_FILE, Quotas
from logstore.warning import warn


class StoredQuotas:
    """Of one broker. A damaged file does not keep records from being used: then there are no limits, a
    warning says so, and requests about quotas are refused with what is wrong. Each of them looks again."""

    def __init__(self, directory: LogDirectory) -> None:
        context = directory.context
        self.limits = Limits(
            context.clock,
            window_count=directory.config.quota_window_num,
            window_ms=directory.config.quota_window_size_seconds * 1000,
        )
        """What clients are held to."""
        self.kept = Kept[Quotas](directory, QUOTAS_FILE, {}, self.limits.put)
        """Where they are kept."""
        try:
            self.kept.load()
        except LogstoreError as error:
            warn("no client is held to a quota: %s", error)

    def describe(self, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResult:
        """The quotas that are set."""
        try:
            self.kept.load()
            return DescribeClientQuotasResult(ErrorCode.NONE, describe(self.kept.value, request))
        except LogstoreError as error:
            return DescribeClientQuotasResult(code_of(error), message=str(error))

    def alter(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResult:
        """Change quotas. The answer comes when they are durable; a crash before it leaves all changes of the
        request, or none."""
        outcomes: tuple[AlteredQuotas, ...] = ()

        def change(quotas: Quotas) -> Quotas:
            nonlocal outcomes
            altered, outcomes = alter(quotas, request)
            return altered

        try:
            self.kept.load()
            if request.validate_only:
                change(self.kept.value)
            else:
                self.kept.change(change)
        except LogstoreError as error:
            code, why = code_of(error), str(error)
            outcomes = tuple(AlteredQuotas(each.entity, code, why) for each in request.alterations)
        return AlterClientQuotasResult(outcomes)
