"""The transaction coordinator: all transactional ids, and the calls of Kafka's transaction protocol.

Every request takes ``done``, which is called exactly once with the result, without a lock held: at once, or
when the storage or the logs have done their part. No thread waits for any of that.

The order of an end is what makes it whole:

1. everything that the transaction has written becomes durable, so that no power cut takes a part of it;
2. the decision is stored durably;
3. the markers are appended, and the producer gets its answer: soon, too, if markers elsewhere take long;
4. when the markers are durable, the transaction is over. Until then the next request of the id waits.

Where topics are replicated, what all in-sync replicas have takes the place of what is durable.

That it is over is stored with what comes next of the id, or a little later: a crash before that finds the
decision and the markers, and comes to the same end.

Locks: each entry has two. ``lock`` guards what is known of the id. ``writing`` is held while a batch of the
transaction is checked and appended, and while markers are: no batch gets behind its marker. ``writing`` is
taken first. Neither is held during a call to the storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
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
    TAKES_EPOCHS,
    NewProducerId,
    Producer,
    Step,
    Transaction,
    add,
    as_restored,
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
_PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT


class TransactionStorage(Protocol):
    """Where transactions are kept. Each call answers ``done`` exactly once, possibly before it returns, and
    without a lock held. The calls for one id come one at a time."""

    def store(self, transaction: Transaction, done: Done[ErrorCode], *, durable: bool) -> None:
        """Keep this in place of what was known of the id. A dead one is forgotten. With ``durable`` it
        survives a power cut when the answer comes."""
        ...

    def store_all(self, transactions: Collection[Transaction]) -> frozenset[str]:
        """Keep all of these, in few writes, for which nothing waits. Returns the ids of those that a log has
        refused."""
        ...


class TransactionLogs(Protocol):
    """The partitions that transactions write to."""

    @property
    def refusal(self) -> ErrorCode:
        """What a client is told that asks again while markers, or the end itself, cannot be written."""
        ...

    def make_durable(self, partitions: Collection[TopicPartition], done: Done[ErrorCode]) -> None:
        """Answer once all that is in these partitions survives a power cut. Those that are gone do not
        count."""
        ...

    def flush(self, partitions: Collection[TopicPartition]) -> ErrorCode:
        """The same, waiting for it."""
        ...

    def append_markers(
        self, transaction: Transaction, partitions: Collection[TopicPartition]
    ) -> Pending[frozenset[TopicPartition]]:
        """End the transaction in these partitions, as its state says. The result are those that did not take
        the marker, and may take it later; those that are gone need none. Into partitions of this directory
        it is appended before the call returns."""
        ...

    def open_transactions(self) -> dict[int, dict[TopicPartition, int]] | None:
        """Of each producer id: the partitions that have records of it without a marker, and their epoch. None
        if other nodes have some of the partitions, and nothing is lost in a power cut of one of them."""
        ...


_Open = tuple[int, int, int]
"""An open transaction: id and epoch of its producer, and when it began."""


def _open_name(known: Transaction) -> _Open:
    return known.producer_id, known.producer_epoch, known.start_ms


class _Entry:
    """One transactional id. It stays when the id is forgotten: a caller may be about to use it."""

    __slots__ = (
        "has_timer",
        "is_changing",
        "is_ending",
        "is_marked",
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
        self.is_marked = False
        """Whether all markers are there, and only have to be durable."""
        self.retry: Callable[[], None] | None = None
        """What is left of the end, if a log refuses it. A timer calls it, and the next request."""
        self.has_timer = False
        self.waiting: list[Callable[[], None]] | None = None  # mostly: a list takes memory in each id


class _Once:
    """A call that is made the first time only."""

    __slots__ = ("_call", "_lock")

    def __init__(self, call: Callable[[], object] | None) -> None:
        self._lock = threading.Lock()
        self._call = call

    def __call__(self) -> None:
        with self._lock:
            call, self._call = self._call, None
        if call is not None:
            call()


class TransactionCoordinator:
    """Decides the transactions of one directory, or of a cluster."""

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
        self._open_since: dict[_Open, int] = {}
        self._lock = threading.Lock()
        """Guards the entries, not what they hold."""
        self._unstored: set[_Entry] = set()
        """Those whose last transaction is over, and the end of it not stored. While there are any, a timer
        runs. Guarded by the same lock."""
        self._is_closed = False
        self._look_later()

    # Life

    def restore(self, transactions: Iterable[Transaction]) -> None:
        """Take over what was stored, before the first request, and finish what was decided.

        A power cut may have taken the record that a transaction began, or got a further partition, and left
        the records themselves. Those of an open transaction are added to it. All others are aborted: they
        were not committed, since that is durable before any marker.
        """
        entries = {each.transactional_id: _Entry(as_restored(each)) for each in transactions}
        with self._lock:
            self._entries.update(entries)
        open_partitions = self._logs.open_transactions()
        for entry in entries.values():
            known = entry.transaction
            assert known is not None
            if open_partitions is None:
                self._go_on(entry, known.partitions)
                continue
            found = open_partitions.get(known.producer_id, {})
            if known.state is TransactionState.ONGOING:
                entry.transaction = known._replace(partitions=known.partitions.union(found))
                continue
            mine = {partition for partition, epoch in found.items() if _is_of(known, partition, epoch)}
            self._abort_lost(known, {each: epoch for each, epoch in found.items() if each not in mine})
            self._go_on(entry, mine)

    def _go_on(self, entry: _Entry, partitions: Collection[TopicPartition]) -> None:
        """Finish what was decided, if anything was."""
        if entry.transaction is not None and entry.transaction.state.is_ending:
            entry.is_changing = entry.is_ending = True
            self._mark(entry, partitions)

    def _abort_lost(self, known: Transaction, partitions: dict[TopicPartition, int]) -> None:
        refused = {}
        for partition, epoch in partitions.items():
            inform(
                "transactional id %r: aborting in %s what a power cut has left of a transaction",
                known.transactional_id,
                partition,
            )
            lost = known._replace(state=TransactionState.PREPARE_ABORT, producer_epoch=epoch)
            if self._logs.append_markers(lost, [partition]).poll():
                refused[partition] = epoch
        if refused:
            self._timers.after(self._config.marker_retry_ms, lambda: self._abort_lost(known, refused))

    def close(self) -> None:
        """Answer every later request with COORDINATOR_NOT_AVAILABLE, and store what is over. Open
        transactions stay open: the next coordinator goes on with them."""
        with self._lock:
            self._is_closed = True
            entries = list(self._entries.values())
        for entry in entries:
            known = entry.transaction
            if entry.is_marked and known is not None:
                self._complete(entry, self._logs.flush(known.partitions))
        self._store_ends()
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
            is_given = error is NONE and known is not None
            done((error, Producer(known.producer_id, known.producer_epoch) if is_given and known else NOBODY))

        self._ask(self._entry(transactional_id, creates=True), decide, answer)

    def add_partitions(self, request: AddPartitionsToTransaction, done: Done[AddPartitionsResult]) -> None:
        """Let the transaction write to partitions."""
        asks = request.producer

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
                request.producer,
                self._timers.now_ms(),
                self._new_producer_id,
                committed=request.committed,
                takes_epoch=request.takes_epoch,
            )

        def answer(error: ErrorCode, known: Transaction | None) -> None:
            if error is not NONE or known is None:
                done(EndTransactionResult(error))
            elif known.next_producer_id >= 0:
                done(EndTransactionResult(error, known.next_producer_id, 0))
            else:
                done(EndTransactionResult(error, known.producer_id, known.producer_epoch))

        self._ask(self._entry(request.producer.transactional_id), decide, answer)

    def writing(self, transactional_id: str, partition: TopicPartition) -> AbstractContextManager[Any]:
        """The transaction does not end inside of the block: no batch gets behind its marker."""
        entry = self._entry(transactional_id)
        return nullcontext() if entry is None else entry.writing

    def check_batch(self, asks: TransactionalProducer, partition: TopicPartition) -> ErrorCode:
        """Whether a batch of the transaction may be appended to the partition, inside of :meth:`writing`."""
        entry = self._entry(asks.transactional_id)
        if entry is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        with entry.lock:
            if entry.is_ending:
                return ErrorCode.CONCURRENT_TRANSACTIONS
            return check_batch(entry.transaction, asks, partition)

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
            NONE,
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
        self._open_since = open_since = self._look_at_open(entries, now_ms)

        def step(known: Transaction | None) -> Step:
            return expire(known, now_ms, expiration_ms, self._open_ms(open_since, known))

        for entry in entries:
            if not entry.is_changing and step(entry.transaction).after is not None:
                self._ask(entry, step, lambda error, _: None)

    def _look_at_open(self, entries: Iterable[_Entry], now_ms: int) -> dict[_Open, int]:
        """Since when each open transaction was seen to be open, by the monotonic clock: the clock that says
        when it began may be set back."""
        monotonic_ms = self._timers.monotonic_ms()
        interval_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        found = {}
        for entry in entries:
            known = entry.transaction
            if known is not None and known.state is TransactionState.ONGOING:
                first_seen_ms = monotonic_ms - min(max(now_ms - known.start_ms, 0), interval_ms)
                name = _open_name(known)
                found[name] = self._open_since.get(name, first_seen_ms)
        return found

    def _open_ms(self, open_since: Mapping[_Open, int], known: Transaction | None) -> int:
        since_ms = None if known is None else open_since.get(_open_name(known))
        return 0 if since_ms is None else self._timers.monotonic_ms() - since_ms

    # Changing

    def _entry(self, transactional_id: str, *, creates: bool = False) -> _Entry | None:
        entry = self._entries.get(transactional_id)
        if entry is None and creates:
            with self._lock:
                entry = self._entries.setdefault(transactional_id, _Entry())
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
                entry.waiting = entry.waiting or []
                entry.waiting.append(lambda: self._ask(entry, decide, answer, has_tried=is_tried))
                step = None
            elif entry.is_changing:
                step = Step(self._logs.refusal)
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
        if error is NONE:
            self._ask(entry, decide, answer)
        else:
            answer(error, None)

    def _change(
        self, entry: _Entry, after: Transaction, answer: Callable[[ErrorCode, Transaction | None], None]
    ) -> None:
        def store(error: ErrorCode) -> None:
            if error is NONE:
                self._storage.store(after, stored, durable=after.state in _DURABLE)
            else:
                stored(error)

        def stored(error: ErrorCode) -> None:
            with entry.lock:
                if error is NONE:
                    entry.transaction = None if after.state is TransactionState.DEAD else after
                if error is not NONE or not after.state.is_ending:
                    entry.is_changing = entry.is_ending = False
            if error is NONE and after.state.is_ending:
                self._mark(entry, after.partitions, lambda: answer(error, after))
                return
            answer(error, after if error is NONE else None)
            self._run_waiting(entry)

        if after.state is _PREPARE_COMMIT:
            with entry.writing:
                pass  # a batch that was let in before is in its log now
            self._logs.make_durable(after.partitions, store)
        else:
            store(NONE)

    def _mark(
        self, entry: _Entry, partitions: Collection[TopicPartition], answer: Callable[[], None] | None = None
    ) -> None:
        """Append the markers; those that are refused, later."""
        after = entry.transaction
        assert after is not None
        with entry.writing:
            marking = self._logs.append_markers(after, partitions)
        answer_once = _Once(answer)
        if answer is not None and marking.poll() is None:
            self._timers.after(self._config.marker_patience_ms, answer_once)

        def look() -> None:
            refused = marking.poll()
            if refused is None:
                marking.on_wake(lambda: self._timers.after(0, look))
                return
            answer_once()
            if refused:
                self._stick(entry, lambda: self._mark(entry, refused))
            else:
                entry.is_marked = True
                self._logs.make_durable(after.partitions, lambda error: self._complete(entry, error))

        look()

    def _complete(self, entry: _Entry, error: ErrorCode = NONE) -> None:
        """All markers are there, and durable unless there was an error."""
        known = entry.transaction
        assert known is not None
        if not known.state.is_ending:
            return  # the coordinator was closed meanwhile, and did it
        if error is not NONE:
            self._stick(
                entry,
                lambda: self._logs.make_durable(known.partitions, lambda error: self._complete(entry, error)),
            )
            return
        after = complete(known, self._timers.now_ms())

        def stored(error: ErrorCode) -> None:
            if error is not NONE:
                self._stick(entry, lambda: self._complete(entry))
                return
            with entry.lock:
                entry.transaction = after
                entry.is_changing = entry.is_ending = entry.is_marked = False
            self._run_waiting(entry)

        if known.client_version < TAKES_EPOCHS or after.producer_id != known.producer_id:
            # No record of the next transaction may be durable before this is: if it has the same epoch, it
            # would get this one's markers after a power cut; if it has another id, it would get none.
            self._storage.store(after, stored, durable=True)
        else:
            stored(NONE)
            self._store_later({entry}, self._config.end_linger_ms)

    def _store_later(self, entries: set[_Entry], delay_ms: int) -> None:
        with self._lock:
            needs_timer = not (self._unstored or self._is_closed)
            self._unstored |= entries
        if needs_timer:
            self._timers.after(delay_ms, self._store_ends)

    def _store_ends(self) -> None:
        """Store what is over, unless more has come of its id since."""
        with self._lock:
            entries, self._unstored = self._unstored, set()
        ends: dict[_Entry, Transaction] = {}
        left: set[_Entry] = set()
        for entry in entries:
            with entry.lock:
                known = entry.transaction
                if entry.is_changing:
                    left.add(entry)
                elif known is not None and known.state.is_over:
                    entry.is_changing = True
                    ends[entry] = known
        try:
            refused = self._storage.store_all(ends.values()) if ends else frozenset()
            left.update(each for each, known in ends.items() if known.transactional_id in refused)
        finally:
            for entry in ends:
                with entry.lock:
                    entry.is_changing = False
                self._run_waiting(entry)
        if left:
            self._store_later(left, self._config.marker_retry_ms)

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
        if entry.waiting is None:  # and nobody begins to wait for what is over
            return
        with entry.lock:
            waiting, entry.waiting = entry.waiting, None
        for ask in waiting or ():
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
    return known.client_version < TAKES_EPOCHS or epoch < known.producer_epoch
