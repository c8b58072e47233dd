"""The transactional id of a producer: who it is, and what its open transaction has.

A producer with a transactional id sends in transactions only. Before the first batch of a partition, the
coordinator is told of the partition; the sender asks :meth:`Transacting.let` whether a batch may go.

All but ``let`` is called by the thread that uses the producer; ``let`` by the one that drives its sender.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar

from logstore.broker.broker import Broker
from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import RETRIABLE, error_of
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import InitProducerIdRequest, OffsetCommitRequest
from logstore.broker.transactions.requests import (
    AddOffsetsToTransaction,
    AddPartitionsResult,
    AddPartitionsToTransaction,
    EndTransaction,
    EndTransactionResult,
    TransactionalProducer,
)
from logstore.clients.settings import ProducerConfig
from logstore.clock import Clock
from logstore.errors import (
    ClosedError,
    ForkedError,
    InvalidTransactionStateError,
    LogstoreError,
    RetriableError,
    UsageError,
)
from logstore.model import TopicPartition

T = TypeVar("T")

RunBackground = Callable[[], int]
"""Does what is due in the background; returns how much that was."""

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class Outcome(Enum):
    """What is known of a transaction that is over."""

    COMMITTED = "it was committed"
    ABORTED = "it was aborted"
    UNKNOWN = "it is not known whether it was committed"


class Transacting:
    """Of one producer."""

    __slots__ = (
        "_added",
        "_adding",
        "_broker",
        "_clock",
        "_commit_asks",
        "_config",
        "_error",
        "_has_offsets",
        "_is_fenced",
        "_retry_at_ms",
        "_run_background",
        "_wake",
        "is_aborting",
        "is_in_doubt",
        "me",
        "name",
        "outcome",
        "owner",
        "refusal",
    )

    def __init__(
        self,
        broker: Broker,
        name: str,
        config: ProducerConfig,
        clock: Clock,
        wake: Callable[[], object],
        run_background: RunBackground | None,
    ) -> None:
        """``run_background``: for a broker whose clock is set by hand, and which has no threads."""
        self.name = name
        self._broker = broker
        self._config = config
        self._clock = clock
        self._wake = wake
        self._run_background = run_background
        self.me = TransactionalProducer(name, -1, -1)
        """The transactional id, with the producer's id and epoch."""
        self.owner: int | None = None
        """The thread that has begun the open transaction."""
        self._error: LogstoreError | None = None
        self._is_fenced = False
        self._added: frozenset[TopicPartition] = frozenset()
        self._has_offsets = False
        self._adding: Pending[AddPartitionsResult] | None = None
        self._retry_at_ms = -1
        self.refusal: str | None = None
        """Why the coordinator does not let a partition in now. It is asked again."""
        self.is_in_doubt = False
        """Whether an end was asked for, and its outcome is not known."""
        self.is_aborting = False
        """Whether an abort was asked for: then nothing may ask for a commit any more."""
        self._commit_asks = 0
        """How often the commit was asked for: an answer to the first may be lost."""
        self.outcome = Outcome.ABORTED
        """Of the last transaction."""

    @property
    def identity(self) -> tuple[int, int]:
        """The producer's id and epoch."""
        return self.me[1:]

    def start(self) -> None:
        """Take the transactional id: an older producer that has it is shut out, and its open transaction
        aborted.

        Raises:
            RetriableError: no answer within ``max_block_ms``.
            LogstoreError: the coordinator refuses.
        """
        request = InitProducerIdRequest(self.name, self._config.transaction_timeout_ms)
        result = self._ask_again(
            lambda: self._broker.init_producer_id(request), lambda result: result.error, "let it start"
        )
        is_told = result.message not in (None, result.error.name)
        self._check(result.error, f"starting: {result.message}" if is_told else "starting")
        self.me = TransactionalProducer(self.name, result.producer_id, result.producer_epoch)

    # One transaction

    @property
    def is_open(self) -> bool:
        return self.owner is not None

    def begin(self) -> None:
        """
        Raises:
            InvalidTransactionStateError: one is open, or the outcome of the last is not known.
            UsageError: another thread has begun one.
            ProducerFencedError: another producer has the id.
        """
        if self._is_fenced and self._error is not None:
            raise self._error
        if self.owner is not None:
            self.check_may_send()
            raise InvalidTransactionStateError(
                f"transactional id {self.name!r} has an open transaction; commit or abort it first"
            )
        self._error = None
        self.outcome = Outcome.ABORTED
        self.owner = threading.get_ident()

    def check_mine(self) -> None:
        """
        Raises:
            InvalidTransactionStateError: no transaction is open.
            UsageError: another thread has begun it.
        """
        if self.owner is None:
            raise InvalidTransactionStateError(
                f"a producer with transactional id {self.name!r} sends in transactions only: "
                "with producer.transaction(): ..."
            )
        if self.owner != threading.get_ident():
            raise UsageError(
                f"the open transaction of {self.name!r} was begun by another thread, and only that may use "
                "it; give each thread a producer with a transactional id of its own"
            )

    def check_may_send(self) -> None:
        """
        Raises:
            InvalidTransactionStateError: no transaction is open, or its end was asked for.
            UsageError: another thread has begun it.
        """
        self.check_mine()
        if self.is_in_doubt:
            doubt = _DOUBTS[not self.is_aborting]
            raise InvalidTransactionStateError(f"the transaction of {self.name!r} is ending: {doubt}")

    def note_failure(self, error: LogstoreError, code: ErrorCode = NONE) -> None:
        """A record was not delivered: the transaction can only be aborted."""
        self._error = self._error or error
        self._is_fenced = self._is_fenced or code in _FENCED

    def note_refused(self, error: LogstoreError) -> None:
        """A record was refused, maybe in a block that goes on without it: all or nothing is nothing then."""
        is_of_record = not isinstance(error, InvalidTransactionStateError | ClosedError | ForkedError)
        if is_of_record and self.owner == threading.get_ident() and not self.is_in_doubt:
            self.note_failure(error)

    @property
    def error(self) -> LogstoreError | None:
        """Why the transaction can only be aborted."""
        return self._error

    @property
    def is_fenced(self) -> bool:
        """Whether another producer has the id, or the transaction's time was up: nothing can be sent any
        more."""
        return self._is_fenced

    def let(self, partition: TopicPartition, waiting: Iterable[TopicPartition], now_ms: int) -> bool:
        """Whether a batch of the partition may be sent. If not, the coordinator is asked to let all that are
        ``waiting`` into the transaction; ``wake`` is called when it has answered."""
        if self._error is not None:
            return False
        if partition in self._added:
            return True
        if self._adding is None:
            if now_ms < self._retry_at_ms:
                return False
            wanted = tuple({partition, *waiting} - self._added)
            self._adding = self._broker.add_partitions_to_transaction(
                AddPartitionsToTransaction(self.me, wanted)
            )
        result = self._adding.poll()
        if result is None:
            self._adding.on_wake(self._wake)
            return False
        self._adding = None
        (code,) = set(result.errors.values())
        if code is NONE:
            self._added = _shared(self._added.union(result.errors))
            self.refusal = None
            return partition in self._added
        topics = sorted({repr(each.topic) for each in result.errors})
        more = f" and {len(topics) - _MOST_NAMES} more topics" if len(topics) > _MOST_NAMES else ""
        error = self._error_of(code, f"adding partitions of {', '.join(topics[:_MOST_NAMES])}{more}")
        if code in RETRIABLE:
            self._retry_at_ms = now_ms + self._config.retry_backoff_ms
            self.refusal = str(error)
        else:
            self.note_failure(error, code)
        return partition in self._added

    def commit_offsets(self, request: OffsetCommitRequest) -> None:
        """Commit a group's offsets with the transaction.

        Raises:
            LogstoreError: they are refused. The transaction can only be aborted.
        """
        self._check_no_error()
        adds = AddOffsetsToTransaction(self.me, request.group)
        code = self._ask_again(
            lambda: self._broker.add_offsets_to_transaction(adds), lambda code: code, "take the group in"
        )
        self._has_offsets = self._has_offsets or code is NONE
        what = "committing offsets"
        if code is NONE:
            commits = request._replace(transaction=self.me)
            result = self._ask_again(
                lambda: self._broker.offset_commit(commits), lambda result: result.error, "commit the offsets"
            )
            code = result.error
            refused = next((each for each, why in result.errors.items() if why is not NONE), None)
            what = f"committing the offset of {refused}"
        if code is not NONE:
            self.note_failure(self._error_of(code, f"{what} for group {request.group!r}"), code)
            self._check_no_error()

    def _check_no_error(self) -> None:
        if self._error is not None:
            raise self._error

    def end(self, *, committed: bool) -> bool:
        """Commit or abort. The records were delivered before.

        Returns:
            Whether it is committed: also if an abort came too late, after a commit without an answer.

        Raises:
            RetriableError: no answer within ``max_block_ms``: the outcome is not known. Ask again.
            ProducerFencedError: another producer has the id, or the time of the transaction was up: it was
                aborted.
            LogstoreError: the disk refused. The outcome is not known.
        """
        if self._added or self._has_offsets:
            self.is_in_doubt, self.is_aborting = True, not committed
            result = self._ask_for_end(committed)
            if result.error is ErrorCode.INVALID_TXN_STATE and self._commit_asks and not committed:
                committed, self.is_aborting = True, False
                result = self._ask_for_end(committed)  # for the epoch of the next one
            if result.error is not NONE:
                self._refuse_end(result.error, committed)
            self.me = TransactionalProducer(self.name, result.producer_id, result.producer_epoch)
        self.forget()
        self.outcome = Outcome.COMMITTED if committed else Outcome.ABORTED
        return committed

    def _refuse_end(self, code: ErrorCode, committed: bool) -> None:
        """
        Raises:
            LogstoreError: always.
        """
        doubt = _DOUBTS[committed]
        if code in _FENCED or code is ErrorCode.INVALID_TXN_STATE:
            if self._commit_asks > committed:  # an earlier one may have come through
                self.outcome = Outcome.UNKNOWN
            doubt = ""
            self.forget()
        self._check(code, "committing" if committed else "aborting", doubt)

    def _ask_for_end(self, committed: bool) -> EndTransactionResult:
        request = EndTransaction(self.me, committed, takes_epoch=True)

        def ask() -> Pending[EndTransactionResult]:
            self._commit_asks += committed
            return self._broker.end_transaction(request)

        return self._ask_again(
            ask,
            lambda result: result.error,
            "answer the commit" if committed else "answer the abort",
            _DOUBTS[committed],
        )

    def forget(self) -> None:
        """The transaction is over."""
        self.owner = None
        self.is_in_doubt = self.is_aborting = False
        self._commit_asks = 0
        self._added = frozenset()
        self._has_offsets = False
        self._adding, self._retry_at_ms, self.refusal = None, -1, None
        if not self._is_fenced:
            self._error = None

    # Asking

    def _ask_again(
        self, ask: Callable[[], Pending[T]], code_of: Callable[[T], ErrorCode], what: str, then: str = ""
    ) -> T:
        """The answer; asks again, while that says so."""
        deadline_ms = self._clock.monotonic_ms() + self._config.max_block_ms
        while True:
            result = self._answer(ask(), deadline_ms)
            if result is None:
                raise RetriableError(
                    f"transactional id {self.name!r}: the coordinator did not {what} within max_block_ms "
                    f"({self._config.max_block_ms})" + (then and f": {then}")
                )
            code = code_of(result)
            if code is NONE or code not in _AGAIN or self._run_background is not None:
                return result
            if self._clock.monotonic_ms() >= deadline_ms:
                return result
            threading.Event().wait(self._config.retry_backoff_ms / 1000)

    def _answer(self, pending: Pending[T], deadline_ms: int) -> T | None:
        result = pending.poll()
        if self._run_background is not None:
            while result is None and self._run_background():
                result = pending.poll()
        if result is None:
            result = wait_for(pending, max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000)
        return result

    def _check(self, code: ErrorCode, what: str, then: str = "") -> None:
        if code is not NONE:
            error = self._error_of(code, what, then)
            if code in _FENCED:
                self.note_failure(error, code)
            raise error

    def _error_of(self, code: ErrorCode, what: str, then: str = "") -> LogstoreError:
        why = code.name
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            why = "a log cannot be written; a warning tells which, and why"
        elif code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            why = (
                f"transaction_timeout_ms ({self._config.transaction_timeout_ms}) is longer than the store's "
                "transaction_max_timeout_ms"
            )
        elif code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            why = (
                "the id was not used for longer than transactional.id.expiration.ms and is forgotten, or "
                "deleted. Make a new producer"
            )
        elif code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            why = (
                "the broker refuses the login: the password was changed, or the user is gone. Connect with "
                "one that holds"
            )
        elif code in _FENCED:
            why = (
                "another producer has taken the id, or the transaction was open for longer than "
                f"transaction_timeout_ms ({self._config.transaction_timeout_ms}); {self.outcome.value}. "
                "Make a new producer"
            )
        return error_of(code, f"transactional id {self.name!r}: {what}: {why}" + (then and f"; {then}"))


def _shared(partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
    """The same set, in one object for all producers: thousands may send to few topics. A large set stays
    as it is: it would be kept when the others are gone."""
    return _kept(partitions) if len(partitions) <= _FEW else partitions


_FEW: Final = 16
_MOST_NAMES: Final = 5


@lru_cache(maxsize=64)
def _kept(partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
    return partitions


_DOUBTS: Final = {
    True: "it is not known whether it is committed; call commit() again, which tells",
    False: "it is not known whether it is aborted; call abort() again, or leave it to its time-out",
}
"""Of a commit, and of an abort."""

_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
