"""One transaction of a producer, as a ``with`` statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from logstore.arguments import shown
from logstore.broker.requests import OffsetCommitRequest
from logstore.clients.commits import as_offset
from logstore.clients.offsets import check_partition
from logstore.clients.transactions.transacting import Outcome, Transacting
from logstore.errors import InvalidTransactionStateError, LogstoreError, UsageError
from logstore.model import OffsetAndMetadata


class Commits(Protocol):
    """A consumer, for all that a transaction needs of it."""

    def commit_request(self, offsets: Any = None) -> OffsetCommitRequest:
        """What a commit would ask for."""
        ...


class Transaction:
    """All that is sent inside of the ``with`` statement counts, in all topics and partitions, or nothing of
    it does. Made by :meth:`.Producer.transaction`.

    Leaving the block commits; an exception aborts, and is raised on.
    """

    __slots__ = ("_flush", "_is_over", "_outcome", "_transacting", "_was_used")

    def __init__(self, transacting: Transacting, flush: Callable[[], None]) -> None:
        """``flush`` returns when every record that was sent is delivered or has failed."""
        self._transacting = transacting
        self._flush = flush
        self._was_used = False
        self._is_over = False
        self._outcome = Outcome.ABORTED

    def __enter__(self) -> Self:
        """
        Raises:
            InvalidTransactionStateError: it was used before, or the producer has another one open.
            ProducerFencedError: another producer has the transactional id.
        """
        if self._was_used:
            raise InvalidTransactionStateError(
                f"the transaction of {self._transacting.name!r} was used, and each is used once; begin "
                "another: with producer.transaction(): ..."
            )
        self._transacting.begin()
        self._was_used = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except LogstoreError as failure:
            if error is not None:
                error.add_note(f"and the transaction could not be aborted: {failure}")

    def commit_offsets(
        self,
        consumer: Commits | str,
        offsets: Mapping[Any, int | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit what a consumer has read: it counts together with what the transaction sends.

        Args:
            consumer: a consumer of a group; or the name of a group, with ``offsets``.
            offsets: the next offset to read, by partition. By default the consumer's positions.

        Raises:
            UsageError: the consumer has no group, or an offset is no such.
            FencedError, RetriableError: the consumer is no member of its group any more, or the group
                rebalances. The transaction can only be aborted.
            InvalidTransactionStateError: the transaction is over, or its outcome is not known.
            LogstoreError: the coordinator refuses. The transaction can only be aborted.
        """
        self._check_open()
        self._transacting.check_may_send()
        if isinstance(consumer, str):
            if offsets is None:
                raise UsageError("a group's name needs offsets: commit_offsets('billing', {...})")
            values = {check_partition(each): as_offset(value) for each, value in offsets.items()}
            request = OffsetCommitRequest(consumer, values)
        elif hasattr(consumer, "commit_request"):
            request = consumer.commit_request(offsets)
        else:
            raise UsageError(
                f"{shown(consumer)} is neither a consumer nor the name of a group; of one in asyncio, give "
                "consumer.sync"
            )
        if request.offsets:
            self._transacting.commit_offsets(request)

    def commit(self) -> None:
        """Let all that was sent count. Returns when readers of committed records see it, and no power cut can
        take it. Leaving the ``with`` statement does it, too.

        Raises:
            LogstoreError: a record was not delivered. The transaction was aborted.
            ProducerFencedError: it was aborted, because its time was up, or another producer has the id.
            RetriableError, StorageError: there was no answer, or the disk refused: the outcome is not known.
                Call it again; or :meth:`abort`, which says if it was too late for that.
            InvalidTransactionStateError: the transaction is over; or it is being aborted, and only
                :meth:`abort` can be called again.
        """
        self._check_open()
        transacting = self._transacting
        if transacting.is_aborting:  # maybe because a record is missing
            raise InvalidTransactionStateError(
                f"the transaction of {transacting.name!r} is being aborted, and cannot be committed any "
                "more; call abort() again"
            )
        if not transacting.is_in_doubt:
            try:
                self._flush()
                if transacting.error is not None:
                    raise transacting.error
            except BaseException as error:
                try:
                    self.abort()
                except LogstoreError as failure:
                    error.add_note(f"and the transaction could not be aborted: {failure}")
                raise
        self._end(committed=True)

    def abort(self) -> None:
        """Let nothing of it count. An exception in the ``with`` statement does it, too.

        Raises:
            RetriableError, StorageError: there was no answer, or the disk refused. It is aborted when its
                time is up, or by the next producer with its transactional id.
            ProducerFencedError: it was aborted already, because its time was up, or another producer has the
                id.
            InvalidTransactionStateError: the transaction is over; or it is committed, after a
                :meth:`commit` without an answer.
        """
        self._check_open()
        transacting = self._transacting
        if not transacting.is_in_doubt:
            self._drop()
        if transacting.is_fenced:
            self._is_over = True
            transacting.forget()
            return
        if self._end(committed=False):
            raise InvalidTransactionStateError(
                f"the transaction of {transacting.name!r} is committed, and cannot be aborted: the commit "
                "without an answer has come through"
            )

    def _drop(self) -> None:
        """Have all that was not sent yet fail, and wait for what was."""
        self._transacting.note_failure(
            InvalidTransactionStateError(f"the transaction of {self._transacting.name!r} was aborted")
        )
        try:
            self._flush()
        except LogstoreError as error:  # which is what aborting does to records
            if type(error) is UsageError:
                raise  # in a callback, which would wait for itself

    def _end(self, *, committed: bool) -> bool:
        try:
            return self._transacting.end(committed=committed)
        finally:
            if not self._transacting.is_open:
                self._note_end()

    def _note_end(self) -> None:
        self._is_over, self._outcome = True, self._transacting.outcome

    @property
    def was_committed(self) -> bool:
        """Whether it was committed, as far as is known."""
        return self._outcome is Outcome.COMMITTED

    @property
    def is_in_doubt(self) -> bool:
        """Whether :meth:`commit` or :meth:`abort` has had no answer: call it again."""
        return not self._is_over and self._was_used and self._transacting.is_in_doubt

    @property
    def is_aborting(self) -> bool:
        """Whether it is :meth:`abort` that has had no answer. A :meth:`commit` calls it too, if a record was
        not delivered."""
        return self.is_in_doubt and self._transacting.is_aborting

    def _check_open(self) -> None:
        name = self._transacting.name
        if self._was_used and not self._is_over and not self._transacting.is_open:  # the producer was closed
            self._note_end()
        if self._is_over:
            raise InvalidTransactionStateError(
                f"the transaction of {name!r} is over: {self._outcome.value}; begin another: with "
                "producer.transaction(): ..."
            )
        if not self._was_used:
            raise InvalidTransactionStateError(
                f"the transaction of {name!r} has not begun: with producer.transaction() as transaction: ..."
            )
        self._transacting.check_mine()

    def __repr__(self) -> str:
        state = "over" if self._is_over else "open" if self._was_used else "not begun"
        return f"<Transaction of {self._transacting.name!r}: {state}>"
