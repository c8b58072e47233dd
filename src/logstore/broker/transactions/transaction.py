"""What is known of a transactional id, and what each request makes of it: pure decisions.

A function takes what is known and a request, and returns a :class:`Step`: the error to answer, and what is
known afterwards if that changes. Nothing here waits, writes or has a lock.

Two numbers say who may write: the producer's id, which a transactional id keeps, and its epoch. Each start of
a producer takes the next epoch, and shuts out those who still have an earlier one (KIP-98, KIP-360). With
KIP-890 each transaction takes the next epoch as well, so that a late batch of one transaction cannot get into
the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from logstore.broker.codes import ErrorCode
from logstore.broker.transactions.states import Event, TransactionState, next_state
from logstore.model import TopicPartition

NO_ID: Final = -1
MAX_EPOCH: Final = 2**15 - 1
"""Only markers have it: a producer that comes so far gets a new id."""

NewProducerId = Callable[[], int]


class Transaction(NamedTuple):
    """A transactional id: its producer, and its last transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Those that the transaction writes to."""
    start_ms: int = -1
    """When the transaction got its first partition."""
    last_update_ms: int = -1
    previous_producer_id: int = NO_ID
    """The id before this one, if its epochs were used up."""
    next_producer_id: int = NO_ID
    """The id after this transaction, if the epochs are used up."""
    last_epoch: int = -1
    """The epoch before this one, if the producer itself has asked for the change: it may ask once more, if it
    has not heard the answer. Not stored."""
    client_version: int = 0
    """2 if each transaction takes the next epoch."""


class Step(NamedTuple):
    """What a request comes to."""

    error: ErrorCode
    after: Transaction | None = None
    """What is to be stored; None if nothing changes."""


class Producer(NamedTuple):
    """Who asks."""

    producer_id: int
    producer_epoch: int


NOBODY: Final = Producer(NO_ID, -1)


class Asks(Protocol):
    """Anything that says which producer asks."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


TAKES_EPOCHS: Final = 2
"""The version of a client that takes the next epoch with each end of a transaction (KIP-890)."""
_NONE = Step(ErrorCode.NONE)
_ONGOING: Final = TransactionState.ONGOING  # Python 3.11 takes 70 ns to find a member of an enum
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
_CONCURRENT = Step(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED = Step(ErrorCode.PRODUCER_FENCED)
_UNKNOWN = Step(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRONG_STATE = Step(ErrorCode.INVALID_TXN_STATE)


def begin_anew(
    known: Transaction | None,
    transactional_id: str,
    asks: Producer,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Step:
    """A producer starts, or one that knows its id and epoch wants the next epoch (KIP-360). An open
    transaction is aborted first: the step says so, and the request is to be asked once more."""
    if known is None:
        return Step(
            ErrorCode.NONE,
            Transaction(transactional_id, new_producer_id(), 0, timeout_ms, last_update_ms=now_ms),
        )
    if known.state.is_ending:
        return _CONCURRENT
    if asks != NOBODY:
        if _is_asked_again(known, asks) and known.state is not TransactionState.ONGOING:
            return _begun_again(known, timeout_ms, now_ms)
        if asks != (known.producer_id, known.producer_epoch):
            return _FENCED
    if known.state is TransactionState.ONGOING:
        last_epoch = known.producer_epoch if asks != NOBODY else -1
        return Step(ErrorCode.CONCURRENT_TRANSACTIONS, fence(known, now_ms)._replace(last_epoch=last_epoch))
    after = known._replace(
        state=next_state(known.state, Event.BEGINS_ANEW),
        timeout_ms=timeout_ms,
        start_ms=-1,
        last_update_ms=now_ms,
        producer_epoch=known.producer_epoch + 1,
        last_epoch=known.producer_epoch if asks != NOBODY else -1,
    )
    if known.producer_epoch >= MAX_EPOCH - 1:
        after = _with_new_id(after, new_producer_id())
    return Step(ErrorCode.NONE, after)


def _begun_again(known: Transaction, timeout_ms: int, now_ms: int) -> Step:
    """The producer has its next epoch already. What was open for the one before has ended: an end of a
    transaction that comes now is not taken for the end of that."""
    if known.state is TransactionState.EMPTY:
        return _NONE
    state = next_state(known.state, Event.BEGINS_ANEW)
    after = known._replace(state=state, timeout_ms=timeout_ms, start_ms=-1, last_update_ms=now_ms)
    return Step(ErrorCode.NONE, after)


def add(known: Transaction | None, asks: Asks, partitions: Collection[TopicPartition], now_ms: int) -> Step:
    """The transaction writes to these partitions. The first ones begin it."""
    refused = _check(known, asks)
    if known is None or refused is not None:
        return refused or _UNKNOWN
    is_open = known.state is _ONGOING
    if is_open and known.partitions.issuperset(partitions):
        return _NONE
    return _step(
        _moved(
            known,
            Event.ADDS,
            known.producer_epoch,
            _shared(known.partitions.union(partitions) if is_open else frozenset(partitions)),
            known.start_ms if is_open else now_ms,
            now_ms,
            known.last_epoch,
            known.client_version,
        )
    )


def end(
    known: Transaction | None,
    asks: Asks,
    now_ms: int,
    new_producer_id: NewProducerId,
    *,
    committed: bool,
    takes_epoch: bool,
) -> Step:
    """The producer commits or aborts. ``takes_epoch``: its next transaction has the next epoch."""
    if known is not None and takes_epoch and _is_asked_again(known, asks):
        return _ended(known.state, committed)
    refused = _check(known, asks, may_be_ending=True)
    if known is None or refused is not None:
        return refused or _UNKNOWN
    if known.state is not _ONGOING and (committed or not takes_epoch):
        return _WRONG_STATE if takes_epoch else _ended(known.state, committed)
    if known.state.is_ending:
        return _CONCURRENT
    epoch = known.producer_epoch + 1 if takes_epoch else known.producer_epoch
    after = _moved(
        known,
        Event.COMMITS if committed else Event.ABORTS,
        epoch,
        known.partitions,
        known.start_ms,
        now_ms,
        known.producer_epoch if takes_epoch else -1,
        TAKES_EPOCHS if takes_epoch else 0,
    )
    if takes_epoch and epoch >= MAX_EPOCH:
        after = after._replace(next_producer_id=new_producer_id())
    return _step(after)


def _ended(state: TransactionState, committed: bool) -> Step:
    """The answer to an end that may have come before."""
    if state is TransactionState.ONGOING:
        return _FENCED
    if state is (TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT):
        return _NONE
    if state is (TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT):
        return _CONCURRENT
    return _WRONG_STATE


def fence(known: Transaction, now_ms: int) -> Transaction:
    """Abort an open transaction against its producer, which the next epoch shuts out."""
    return known._replace(
        state=next_state(known.state, Event.FENCES),
        producer_epoch=known.producer_epoch + 1,
        last_update_ms=now_ms,
        last_epoch=-1,
        client_version=0,  # the producer has not asked: it is not told of the next epoch
    )


def as_restored(stored: Transaction) -> Transaction:
    """What is known of an id from what was stored. A producer that has ended a transaction takes the next
    epoch, and may not have heard of it: it may ask once more, with the epoch that it had."""
    is_at_end = stored.state.is_ending or stored.state.is_over
    if not is_at_end or stored.client_version < TAKES_EPOCHS:
        return stored
    if stored.producer_epoch == 0 and stored.previous_producer_id != NO_ID:
        return stored._replace(last_epoch=MAX_EPOCH - 1)
    return stored._replace(last_epoch=stored.producer_epoch - 1)


def expire(known: Transaction | None, now_ms: int, expiration_ms: int, open_ms: int = 0) -> Step:
    """The time: abort a transaction that is open for too long, forget an id that was not used for long.
    ``open_ms``: so long it was seen to be open, whatever the clock says."""
    if known is None:
        return _NONE
    if known.state is TransactionState.ONGOING:
        if max(now_ms - known.start_ms, open_ms) > known.timeout_ms:
            return Step(ErrorCode.NONE, fence(known, now_ms))
    elif not known.state.is_ending and now_ms - known.last_update_ms > expiration_ms:
        return Step(ErrorCode.NONE, known._replace(state=next_state(known.state, Event.EXPIRES)))
    return _NONE


def complete(known: Transaction, now_ms: int) -> Transaction:
    """All markers are durable."""
    after = _moved(
        known,
        Event.MARKED,
        known.producer_epoch,
        _NO_PARTITIONS,
        known.start_ms,
        now_ms,
        known.last_epoch,
        known.client_version,
    )
    return after if known.next_producer_id == NO_ID else _with_new_id(after, known.next_producer_id)


def check_batch(known: Transaction | None, asks: Asks, partition: TopicPartition) -> ErrorCode:
    """Whether a batch of the transaction may go into the partition now (KIP-890)."""
    refused = _check(known, asks)
    if known is None or refused is not None:
        return (refused or _UNKNOWN).error
    if known.state is _ONGOING and partition in known.partitions:
        return _NONE.error
    return ErrorCode.INVALID_TXN_STATE


def _step(after: Transaction) -> Step:
    return tuple.__new__(Step, (_NONE.error, after))


def _moved(
    known: Transaction,
    event: Event,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    start_ms: int,
    last_update_ms: int,
    last_epoch: int,
    client_version: int,
) -> Transaction:
    """The transaction after an event; the other fields stay. A third of the cost of ``_replace``: each
    transaction comes here three times."""
    name, producer_id, _, timeout_ms, state, _, _, _, previous_id, next_id, _, _ = known
    fields = (
        name,
        producer_id,
        producer_epoch,
        timeout_ms,
        next_state(state, event),
        partitions,
        start_ms,
        last_update_ms,
        previous_id,
        next_id,
        last_epoch,
        client_version,
    )
    return tuple.__new__(Transaction, fields)


def _shared(partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
    """The same set, in one object for all transactions: most write to few topics. A large set stays
    as it is: it would be kept when the others are gone."""
    return _kept(partitions) if len(partitions) <= _FEW else partitions


_FEW: Final = 16


@lru_cache(maxsize=1024)
def _kept(partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
    return partitions


def _check(known: Transaction | None, asks: Asks, *, may_be_ending: bool = False) -> Step | None:
    if known is None or asks.producer_id != known.producer_id:
        return _UNKNOWN
    if asks.producer_epoch != known.producer_epoch:
        return _FENCED
    return _CONCURRENT if known.state.is_ending and not may_be_ending else None


def _is_asked_again(known: Transaction, asks: Asks) -> bool:
    """Whether the producer asks with the epoch that it had before its last request."""
    if asks.producer_epoch < 0 or asks.producer_epoch != known.last_epoch:
        return False
    if asks.producer_id == known.producer_id:
        return True
    return known.producer_epoch == 0 and asks.producer_id == known.previous_producer_id


def _with_new_id(transaction: Transaction, producer_id: int) -> Transaction:
    return transaction._replace(
        producer_id=producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_ID,
    )
