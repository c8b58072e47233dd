"""The transaction coordinator: all transactional ids, and the calls of Kafka's transaction protocol.

Every request takes ``done``, which is called exactly once with the result, without a lock held: at once, or
when the storage or the logs have done their part. No thread waits for any of that.

The order of an end is what makes it whole:

1. everything that the transaction has written becomes durable, so that no power cut takes a part of it;
2. the decision is stored durably;
3. the markers are appended, and the producer gets its answer;
4. when the markers are durable, the end is stored. Until then the next request of the id waits.

Locks: each entry has two. ``lock`` guards what is known of the id. ``writing`` is held while a batch of the
transaction is checked and appended, and while markers are: no batch gets behind its marker. ``writing`` is
taken first. Neither is held during a call to the storage.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.timers import Timers
from logstore.broker.transactions.config import TransactionConfig
from logstore.broker.transactions.requests import (
    AddPartitionsResult,
    AddPartitionsToTransaction,
    DescribedTransaction,
    Done,
    EndTransaction,
    EndTransactionResult,
    ListedTransaction,
    ListTransactions,
    TransactionalProducer,
)
from logstore.broker.transactions.states import TransactionState
from logstore.broker.transactions.transaction import (
    NOBODY,
    NewProducerId,
    Producer,
    Step,
    Transaction,
    add,
    begin_anew,
    check_batch,
    complete,
    end,
    expire,
)
from logstore.model import TopicPartition
from logstore.warning import inform

T = TypeVar("T")

_DEFAULTS: Final = TransactionConfig()


class TransactionStorage(Protocol):
    """Where transactions are kept. Each call answers ``done`` exactly once, possibly before it returns, and
    without a lock held. The calls for one id come one at a time."""

    def store(self, transaction: Transaction, done: Done[ErrorCode], *, durable: bool) -> None:
        """Keep this in place of what was known of the id. A dead one is forgotten. With ``durable`` it
        survives a power cut when the answer comes."""
        ...


class TransactionLogs(Protocol):
    """The partitions that transactions write to."""

    def make_durable(self, partitions: Collection[TopicPartition], done: Done[ErrorCode]) -> None:
        """Answer once all that is in these partitions survives a power cut. Those that are gone do not
        count."""
        ...

    def append_markers(
        self, transaction: Transaction, partitions: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """End the transaction in these partitions, as its state says. Returns those that did not take the
        marker, and may take it later; those that are gone need none."""
        ...

    def open_transactions(self) -> dict[int, dict[TopicPartition, int]]:
        """Of each producer id: the partitions that have records of it without a marker, and their epoch."""
        ...


class _Entry:
    """One transactional id. It stays when the id is forgotten: a caller may be about to use it."""

    __slots__ = (
        "has_timer",
        "is_changing",
        "is_ending",
        "lock",
        "retry",
        "transaction",
        "waiting",
        "writing",
    )

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.lock = threading.Lock()
        self.writing = threading.RLock()
        self.transaction = transaction
        self.is_changing = False
        """Whether something is being stored or marked, and others wait."""
        self.is_ending = False
        """Whether that is the end of the transaction: it takes no batch any more."""
        self.retry: Callable[[], None] | None = None
        """What is left of the end, if a log refuses it. A timer calls it, and the next request."""
        self.has_timer = False
        self.waiting: deque[Callable[[], None]] = deque()


class TransactionCoordinator:
    """Decides the transactions of one directory."""

    def __init__(
        self,
        storage: TransactionStorage,
        logs: TransactionLogs,
        timers: Timers,
        *,
        new_producer_id: NewProducerId,
        config: TransactionConfig = _DEFAULTS,
    ) -> None:
        self._storage = storage
        self._logs = logs
        self._timers = timers
        self._config = config
        self._new_producer_id = new_producer_id
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        """Guards the entries, not what they hold."""
        self._is_closed = False
        self._look_later()

    # Life

    def restore(self, transactions: Iterable[Transaction]) -> None:
        """Take over what was stored, before the first request, and finish what was decided.

        A power cut may have taken the record that a transaction began, or got a further partition, and left
        the records themselves. Those of an open transaction are added to it. All others are aborted: they
        were not committed, since that is durable before any marker.
        """
        entries = {each.transactional_id: _Entry(each) for each in transactions}
        with self._lock:
            self._entries.update(entries)
        open_partitions = self._logs.open_transactions()
        for entry in entries.values():
            known = entry.transaction
            assert known is not None
            found = open_partitions.get(known.producer_id, {})
            if known.state is TransactionState.ONGOING:
                entry.transaction = known._replace(partitions=known.partitions.union(found))
                continue
            mine = {partition for partition, epoch in found.items() if _is_of(known, partition, epoch)}
            self._abort_lost(known, {each: epoch for each, epoch in found.items() if each not in mine})
            if known.state.is_ending:
                entry.is_changing = entry.is_ending = True
                self._mark(entry, mine)

    def _abort_lost(self, known: Transaction, partitions: dict[TopicPartition, int]) -> None:
        refused = {}
        for partition, epoch in partitions.items():
            inform(
                "transactional id %r: aborting in %s what a power cut has left of a transaction",
                known.transactional_id,
                partition,
            )
            lost = known._replace(state=TransactionState.PREPARE_ABORT, producer_epoch=epoch)
            if self._logs.append_markers(lost, [partition]):
                refused[partition] = epoch
        if refused:
            self._timers.after(self._config.marker_retry_ms, lambda: self._abort_lost(known, refused))

    def close(self) -> None:
        """Answer every later request with COORDINATOR_NOT_AVAILABLE. Open transactions stay open: the next
        coordinator goes on with them."""
        with self._lock:
            self._is_closed = True
            entries = list(self._entries.values())
        for entry in entries:
            self._run_waiting(entry)

    # Requests of producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, asks: Producer, done: Done[tuple[ErrorCode, Producer]]
    ) -> None:
        """Give the id to a producer that starts: it gets the next epoch, and an open transaction is
        aborted."""
        if not transactional_id:
            done((ErrorCode.INVALID_REQUEST, NOBODY))
            return
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            done((ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY))
            return

        def decide(known: Transaction | None) -> Step:
            now_ms = self._timers.now_ms()
            return begin_anew(known, transactional_id, asks, timeout_ms, now_ms, self._new_producer_id)

        def answer(error: ErrorCode, known: Transaction | None) -> None:
            is_given = error is ErrorCode.NONE and known is not None
            done((error, Producer(known.producer_id, known.producer_epoch) if is_given and known else NOBODY))

        self._ask(self._entry(transactional_id, creates=True), decide, answer)

    def add_partitions(self, request: AddPartitionsToTransaction, done: Done[AddPartitionsResult]) -> None:
        """Let the transaction write to partitions."""
        asks = _producer_of(request.producer)

        def answer(error: ErrorCode, known: Transaction | None) -> None:
            done(AddPartitionsResult(dict.fromkeys(request.partitions, error)))

        self._ask(
            self._entry(request.producer.transactional_id),
            lambda known: add(known, asks, request.partitions, self._timers.now_ms()),
            answer,
        )

    def end(self, request: EndTransaction, done: Done[EndTransactionResult]) -> None:
        """Commit or abort. Answers when readers see the outcome."""

        def decide(known: Transaction | None) -> Step:
            return end(
                known,
                _producer_of(request.producer),
                self._timers.now_ms(),
                self._new_producer_id,
                committed=request.committed,
                takes_epoch=request.takes_epoch,
            )

        def answer(error: ErrorCode, known: Transaction | None) -> None:
            if error is not ErrorCode.NONE or known is None:
                done(EndTransactionResult(error))
            elif known.next_producer_id >= 0:
                done(EndTransactionResult(error, known.next_producer_id, 0))
            else:
                done(EndTransactionResult(error, known.producer_id, known.producer_epoch))

        self._ask(self._entry(request.producer.transactional_id), decide, answer)

    @contextmanager
    def writing(self, asks: TransactionalProducer, partition: TopicPartition) -> Iterator[ErrorCode]:
        """Whether a batch of the transaction may be appended to the partition, inside of the block."""
        entry = self._entry(asks.transactional_id)
        if entry is None:
            yield ErrorCode.INVALID_PRODUCER_ID_MAPPING
            return
        with entry.writing:
            with entry.lock:
                if entry.is_ending:
                    code = ErrorCode.CONCURRENT_TRANSACTIONS
                else:
                    code = check_batch(entry.transaction, _producer_of(asks), partition)
            yield code

    # Looking

    def find(self, wanted: ListTransactions) -> tuple[ListedTransaction, ...]:
        """The transactional ids that pass the filter."""
        now_ms = self._timers.now_ms()
        return tuple(
            ListedTransaction(known.transactional_id, known.producer_id, known.state)
            for known in self._all()
            if (not wanted.states or known.state in wanted.states)
            and (not wanted.producer_ids or known.producer_id in wanted.producer_ids)
            and (
                wanted.open_for_ms < 0
                or (known.state is TransactionState.ONGOING and now_ms - known.start_ms > wanted.open_for_ms)
            )
        )

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """What is known of a transactional id."""
        entry = self._entry(transactional_id)
        known = None if entry is None else entry.transaction
        if known is None:
            return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        return DescribedTransaction(
            ErrorCode.NONE,
            transactional_id,
            known.state,
            known.timeout_ms,
            known.start_ms,
            known.producer_id,
            known.producer_epoch,
            known.partitions,
        )

    def _all(self) -> list[Transaction]:
        with self._lock:
            entries = list(self._entries.values())
        return [entry.transaction for entry in entries if entry.transaction is not None]

    # Time

    def _look_later(self) -> None:
        interval_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._timers.after(interval_ms, self._look)

    def _look(self) -> None:
        if self._is_closed:
            return
        try:
            self.expire()
        finally:
            self._look_later()

    def expire(self) -> None:
        """Abort what is open for too long, and forget what was not used for long."""
        now_ms = self._timers.now_ms()
        expiration_ms = self._config.transactional_id_expiration_ms
        with self._lock:
            entries = list(self._entries.values())
        for entry in entries:
            known = entry.transaction
            if not entry.is_changing and expire(known, now_ms, expiration_ms).after is not None:
                self._ask(
                    entry,
                    lambda known: expire(known, now_ms, expiration_ms),
                    lambda error, _: None,
                )

    # Changing

    def _entry(self, transactional_id: str, *, creates: bool = False) -> _Entry | None:
        with self._lock:
            entry = self._entries.get(transactional_id)
            if entry is None and creates:
                entry = self._entries[transactional_id] = _Entry()
            return entry

    def _ask(
        self,
        entry: _Entry | None,
        decide: Callable[[Transaction | None], Step],
        answer: Callable[[ErrorCode, Transaction | None], None],
        *,
        has_tried: bool = False,
    ) -> None:
        """Decide, store what changes, and answer. While something else of the id is under way, wait; what a
        log has refused is tried once more."""
        if entry is None:
            answer(decide(None).error, None)
            return
        with entry.lock:
            step: Step | None
            if self._is_closed:
                step = Step(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif entry.is_changing and (entry.retry is None or not has_tried):
                is_tried = has_tried or entry.retry is not None
                entry.waiting.append(lambda: self._ask(entry, decide, answer, has_tried=is_tried))
                step = None
            elif entry.is_changing:
                step = Step(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                step = decide(entry.transaction)
                if step.after is not None:
                    entry.is_changing = True
                    entry.is_ending = step.after.state.is_ending
            known = entry.transaction
        if step is None:
            self._retry(entry)
            return
        if step.after is None:
            answer(step.error, known)
            return
        if step.error is ErrorCode.CONCURRENT_TRANSACTIONS:  # something else comes first
            self._change(entry, step.after, lambda error, known: self._again(entry, decide, answer, error))
        else:
            self._change(entry, step.after, answer)

    def _again(
        self,
        entry: _Entry,
        decide: Callable[[Transaction | None], Step],
        answer: Callable[[ErrorCode, Transaction | None], None],
        error: ErrorCode,
    ) -> None:
        if error is ErrorCode.NONE:
            self._ask(entry, decide, answer)
        else:
            answer(error, None)

    def _change(
        self, entry: _Entry, after: Transaction, answer: Callable[[ErrorCode, Transaction | None], None]
    ) -> None:
        def store(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                stored(error)
                return
            is_durable = after.state in _DURABLE
            self._storage.store(after, stored, durable=is_durable)

        def stored(error: ErrorCode) -> None:
            with entry.lock:
                if error is ErrorCode.NONE:
                    entry.transaction = None if after.state is TransactionState.DEAD else after
                if error is not ErrorCode.NONE or not after.state.is_ending:
                    entry.is_changing = entry.is_ending = False
            if error is ErrorCode.NONE and after.state.is_ending:
                self._mark(entry, after.partitions, lambda: answer(error, after))
                return
            answer(error, after if error is ErrorCode.NONE else None)
            self._run_waiting(entry)

        if after.state is TransactionState.PREPARE_COMMIT:
            with entry.writing:
                pass  # a batch that was let in before is in its log now
            self._logs.make_durable(after.partitions, store)
        else:
            store(ErrorCode.NONE)

    def _mark(
        self, entry: _Entry, partitions: Collection[TopicPartition], answer: Callable[[], None] | None = None
    ) -> None:
        """Append the markers; those that are refused, later."""
        after = entry.transaction
        assert after is not None
        with entry.writing:
            refused = self._logs.append_markers(after, partitions)
        if answer is not None:
            answer()
        if refused:
            self._stick(entry, lambda: self._mark(entry, refused))
        else:
            self._logs.make_durable(after.partitions, lambda error: self._complete(entry, error))

    def _complete(self, entry: _Entry, error: ErrorCode = ErrorCode.NONE) -> None:
        """All markers are there, and durable unless there was an error."""
        known = entry.transaction
        assert known is not None
        if error is not ErrorCode.NONE:
            self._stick(
                entry,
                lambda: self._logs.make_durable(known.partitions, lambda error: self._complete(entry, error)),
            )
            return
        after = complete(known, self._timers.now_ms())

        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._stick(entry, lambda: self._complete(entry))
                return
            with entry.lock:
                entry.transaction = after
                entry.is_changing = entry.is_ending = False
            self._run_waiting(entry)

        # Where two transactions have the same epoch, no record of the next may be durable before this is:
        # after a power cut it would get this one's markers.
        self._storage.store(after, stored, durable=known.client_version < 2)

    def _stick(self, entry: _Entry, action: Callable[[], None]) -> None:
        """Try again later. Those who wait are told of it."""
        with entry.lock:
            entry.retry = action
            needs_timer = not (entry.has_timer or self._is_closed)
            entry.has_timer = entry.has_timer or needs_timer
        self._run_waiting(entry)
        if needs_timer:
            self._timers.after(self._config.marker_retry_ms, lambda: self._on_timer(entry))

    def _on_timer(self, entry: _Entry) -> None:
        entry.has_timer = False
        self._retry(entry)

    def _retry(self, entry: _Entry) -> None:
        """Go on with what a log has refused, if no other request does."""
        with entry.lock:
            action, entry.retry = entry.retry, None
        if action is not None:
            action()

    def _run_waiting(self, entry: _Entry) -> None:
        """Ask again for all that wait now; the first of them may make the others wait once more."""
        with entry.lock:
            waiting, entry.waiting = entry.waiting, deque()
        for ask in waiting:
            ask()


_DURABLE: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
)
"""States that are durable before anybody acts on them: an epoch that was given out, and a decision."""


def _is_of(known: Transaction, partition: TopicPartition, epoch: int) -> bool:
    """Whether records without a marker are of this transaction, whose end is decided. They may be of the next
    one, if that has another epoch; else the next one has not begun."""
    if not known.state.is_ending or partition not in known.partitions:
        return False
    return known.client_version < 2 or epoch < known.producer_epoch


def _producer_of(asks: TransactionalProducer) -> Producer:
    return Producer(asks.producer_id, asks.producer_epoch)
