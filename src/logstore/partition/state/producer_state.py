"""The producer state of a partition: idempotence and open transactions (KIP-98).

It knows sequences, epochs, the last five batches of each producer, which transactions are open, and from
these the first unstable offset. It does not know files, clocks or records: snapshots come and go as entries
(``format.snapshot``), times are arguments, markers arrive decoded.

An append is planned and then applied. :meth:`ProducerStates.begin` returns a plan. Each batch of the call is
added to it and checked against the state after the earlier batches of the same call. Nothing is visible until
:meth:`ProducerStates.apply`. A plan that raised is dropped.

These are the rules, in the order in which they are tried. *Last* is the last sequence of the producer's
newest batch, -1 if none is remembered.

====================  ======================================================  ================================
batch                 condition                                               outcome
====================  ======================================================  ================================
data, client          same epoch, and first and last sequence of one of the   duplicate: that batch, nothing
                      last five stored batches                                is added
data, not replicated  epoch below the known one                               ProducerFencedError
data, client          producer unknown                                        any sequence is accepted
data, client          epoch above the known one, first sequence not 0         OutOfOrderError
data, client          same epoch, first sequence not *last* + 1               OutOfOrderError
                      (0 after 2^31 - 1)
data                  transaction open, batch not transactional               InvalidTransactionStateError
data                  transactional, none open                                a transaction opens at its base
marker, not repl.     epoch below the known one                               ProducerFencedError
marker, not repl.     coordinator epoch below the known one                   LeaderFencedError
marker                transaction open                                        it is completed
marker                none open                                               only the epochs are noted
any                   epoch differs from the known one                        its batches are forgotten
====================  ======================================================  ================================

"Not replicated" is the origin CLIENT or COORDINATOR. Replicated or replayed batches were checked by the
leader: a lower epoch is then taken over as it is.

There are three deviations from Kafka, all on the safe side. A producer expires by the time of its last append
here, not by the timestamp of its records, so old-dated data does not make its producer unknown. A snapshot's
producers are all kept when it is loaded, with the load as their last use; a snapshot stores the timestamp of
the last batch, as Kafka's do, so a broker that loads it decides by its own rule. And a producer that was
unknown before a call is known from the second batch of that call on, so a gap inside one call is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logstore.errors import (
    InvalidTransactionStateError,
    LeaderFencedError,
    OutOfOrderError,
    ProducerFencedError,
)
from logstore.format.header import NO_EPOCH, NO_SEQUENCE, BatchHeader
from logstore.format.snapshot import ProducerSnapshotEntry
from logstore.model import AbortedTransaction, AppendOrigin

REMEMBERED_BATCHES = 5
"""A client may have five produce requests in flight and repeat any of them (Kafka's producer allows
``max.in.flight.requests.per.connection`` up to 5 with idempotence)."""

LATE_TRANSACTION_BUFFER_MS = 300_000
"""A transaction is late this long after its timeout: the coordinator should have ended it by then."""

_NO_OFFSET = -1
_SEQUENCE_COUNT = 2**31


class RememberedBatch(NamedTuple):
    """One of a producer's last batches, as it was stored."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset minus base offset."""
    timestamp_ms: int
    """The largest timestamp of the batch."""

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) % _SEQUENCE_COUNT


_NO_BATCH = RememberedBatch(NO_SEQUENCE, _NO_OFFSET, 0, -1)


class ProducerState(NamedTuple):
    """The state of one producer. Never changed in place; each event makes a new one."""

    producer_epoch: int
    batches: tuple[RememberedBatch, ...] = ()
    """At most REMEMBERED_BATCHES, oldest first, all of ``producer_epoch``."""
    timestamp_ms: int = -1
    """The timestamp of the newest batch or marker, as stored in a snapshot."""
    coordinator_epoch: int = NO_EPOCH
    transaction_first_offset: int | None = None
    """Where the open transaction began; None if none is open."""
    used_ms: int = 0
    """When it was last appended to or loaded, by the caller's clock. Not stored."""
    appended_ms: int = -1
    """When it was last appended to, by the caller's clock; for a loaded or replayed state, by the timestamp
    of the batch. Stored only as ``timestamp_ms``."""
    first_sequence: int = 0
    """The sequence with which the producer became known in ``producer_epoch``: the log has had none before
    it, as far as it knows. 0 if it began there, or was loaded from a snapshot, which does not tell. Not
    stored."""

    def last_append_ms(self, now_ms: int) -> int:
        """When it was last appended to, as far as known: a batch may have any timestamp."""
        return self.appended_ms if 0 <= self.appended_ms <= now_ms else self.used_ms

    @property
    def last_sequence(self) -> int:
        """The last sequence of its newest batch; -1 without a remembered batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The sequence that must come next: 0 after 2^31 - 1 and at the beginning."""
        return (self.last_sequence + 1) % _SEQUENCE_COUNT

    def has_had(self, header: BatchHeader) -> bool:
        """Whether the batch came before the newest one, and not before the first: its records were stored,
        whether or not they are remembered."""
        if header.producer_epoch != self.producer_epoch or not self.batches:
            return False
        if (self.last_sequence - header.last_sequence) % _SEQUENCE_COUNT >= _SEQUENCE_COUNT // 2:
            return False
        behind = (self.last_sequence - header.base_sequence) % _SEQUENCE_COUNT
        return (
            not self.first_sequence or behind <= (self.last_sequence - self.first_sequence) % _SEQUENCE_COUNT
        )

    def find_duplicate(self, header: BatchHeader) -> RememberedBatch | None:
        """The remembered batch that ``header`` repeats: same epoch, same first and last sequence."""
        batches = self.batches
        if header.producer_epoch != self.producer_epoch or not batches:
            return None
        base_sequence = header.base_sequence
        if base_sequence == batches[-1].last_sequence + 1:
            return None  # it comes next: five batches do not come round to that sequence
        wanted = base_sequence, header.last_sequence
        for batch in batches:
            if (batch.base_sequence, batch.last_sequence) == wanted:
                return batch
        return None


class CompletedTransaction(NamedTuple):
    """A transaction ended by a marker: the fields of its index entry, and whether it was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """First offset of the oldest open transaction of another producer, else the one after the marker."""
    is_aborted: bool

    @property
    def index_entry(self) -> AbortedTransaction:
        """The entry for the transaction index of the marker's segment, if ``is_aborted``."""
        return AbortedTransaction(*self[:4])


class ProducerAppend:
    """The plan of one append call. Add every batch that has a producer, in the order of the log.

    ``completed`` lists the transactions that the call ends. Write the aborted ones to the transaction index
    before applying the plan, so that a failing index write changes nothing here.
    """

    def __init__(
        self,
        stored: Mapping[int, ProducerState],
        opened: Mapping[int, int],
        origin: AppendOrigin,
        now_ms: int,
        is_replay: bool,
    ) -> None:
        self.completed: list[CompletedTransaction] = []
        self.changed: dict[int, ProducerState] = {}
        self.opened: dict[int, int | None] = {}
        """The first offsets of transactions that the call opens, rising; None for those that it ends."""
        self._stored = stored
        self._opened = opened
        self._origin = origin
        self._now_ms = now_ms
        self._is_replay = is_replay

    def add_data(self, header: BatchHeader) -> RememberedBatch | None:
        """Check a data batch and note it. A duplicate is not noted; the stored batch is returned instead.

        A duplicate is searched among stored batches only: a batch that comes twice in one call, or a repeated
        one behind a new one, is out of order. A batch that compaction emptied counts like any other.

        Raises:
            ProducerFencedError, OutOfOrderError, InvalidTransactionStateError: see the table.
        """
        known = self._known(header)
        if known is not None:
            if self._origin is AppendOrigin.CLIENT and header.producer_id not in self.changed:
                duplicate = known.find_duplicate(header)
                if duplicate is not None:
                    return duplicate
            self._check_data(known, header)
        first_offset = self._first_offset(header.producer_id)
        if first_offset is None and header.is_transactional:
            first_offset = header.base_offset
            self.opened.pop(header.producer_id, None)  # one that ended before: this one is the newest
            self.opened[header.producer_id] = first_offset
        self.changed[header.producer_id] = _state(
            header,
            _with_batch(known, header),
            NO_EPOCH if known is None else known.coordinator_epoch,
            first_offset,
            self._now_ms,
            self._appended_ms(header),
            _first_sequence(known, header),
        )
        return None

    def add_marker(
        self, header: BatchHeader, *, is_abort: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Check an end marker and note it. Returns the transaction that it completes, if one is open.

        A control batch that compaction emptied has no marker left and must not be added.

        Raises:
            ProducerFencedError, LeaderFencedError: see the table.
        """
        known = self._known(header)
        if known is not None:
            self._check_marker(known, header, coordinator_epoch)
        self.changed[header.producer_id] = _state(
            header,
            _batches_in(known, header.producer_epoch),
            coordinator_epoch,
            None,
            self._now_ms,
            self._appended_ms(header),
            0 if known is None else _first_sequence(known, header),
        )
        first_offset = self._first_offset(header.producer_id)
        if first_offset is None:
            return None
        self.opened[header.producer_id] = None
        oldest = self._oldest_offset()
        transaction = CompletedTransaction(
            header.producer_id,
            first_offset,
            header.base_offset,
            header.base_offset + 1 if oldest is None else oldest,
            is_abort,
        )
        self.completed.append(transaction)
        return transaction

    def _first_offset(self, producer_id: int) -> int | None:
        """Where its transaction began, if one is open."""
        if producer_id in self.opened:
            return self.opened[producer_id]
        return self._opened.get(producer_id)

    def _oldest_offset(self) -> int | None:
        """Where the oldest transaction began that is open after the call so far."""
        for producer_id, first_offset in self._opened.items():
            if producer_id not in self.opened:
                return first_offset  # what the call opens is newer
        for offset in self.opened.values():
            if offset is not None:
                return offset
        return None

    def _appended_ms(self, header: BatchHeader) -> int:
        return header.max_timestamp_ms if self._is_replay else self._now_ms

    def _known(self, header: BatchHeader) -> ProducerState | None:
        return self.changed.get(header.producer_id) or self._stored.get(header.producer_id)

    def _check_data(self, known: ProducerState, header: BatchHeader) -> None:
        if self._origin is not AppendOrigin.REPLICATION:
            _check_producer_epoch(known, header)
        if self._origin is AppendOrigin.CLIENT:
            _check_sequence(known, header)
        if known.transaction_first_offset is not None and not header.is_transactional:
            raise InvalidTransactionStateError(
                f"{_who(header)}: non-transactional data at offset {header.base_offset} in the transaction "
                f"that began at offset {known.transaction_first_offset}"
            )

    def _check_marker(self, known: ProducerState, header: BatchHeader, coordinator_epoch: int) -> None:
        if self._origin is AppendOrigin.REPLICATION:
            return
        _check_producer_epoch(known, header)
        if coordinator_epoch < known.coordinator_epoch:
            raise LeaderFencedError(
                f"{_who(header)}: marker of coordinator epoch {coordinator_epoch}; epoch "
                f"{known.coordinator_epoch} has taken over"
            )


def _state(
    header: BatchHeader,
    batches: tuple[RememberedBatch, ...],
    coordinator_epoch: int,
    first_offset: int | None,
    used_ms: int,
    appended_ms: int,
    first_sequence: int,
) -> ProducerState:
    """The state after a batch, once per append: half the cost of the class."""
    epoch, stamp_ms = header.producer_epoch, header.max_timestamp_ms
    fields = (epoch, batches, stamp_ms, coordinator_epoch, first_offset, used_ms, appended_ms, first_sequence)
    return tuple.__new__(ProducerState, fields)


def _first_sequence(known: ProducerState | None, header: BatchHeader) -> int:
    """Of an unknown producer any sequence is taken; of a known one, each epoch begins with 0."""
    if known is None:
        return max(header.base_sequence, 0)
    return known.first_sequence if known.producer_epoch == header.producer_epoch else 0


def _who(header: BatchHeader) -> str:
    return f"producer {header.producer_id} epoch {header.producer_epoch}"


def _check_producer_epoch(known: ProducerState, header: BatchHeader) -> None:
    if header.producer_epoch < known.producer_epoch:
        raise ProducerFencedError(f"{_who(header)}: epoch {known.producer_epoch} has taken over")


def _check_sequence(known: ProducerState, header: BatchHeader) -> None:
    wanted = known.next_sequence if header.producer_epoch == known.producer_epoch else 0
    if header.base_sequence != wanted:
        error = OutOfOrderError(
            f"{_who(header)}: sequence {header.base_sequence} is out of order; the next must be {wanted}"
        )
        error.was_appended = known.has_had(header)
        raise error


def _with_batch(known: ProducerState | None, header: BatchHeader) -> tuple[RememberedBatch, ...]:
    delta = header.last_offset_delta
    fields = header.last_sequence, header.base_offset + delta, delta, header.max_timestamp_ms
    batch: RememberedBatch = tuple.__new__(RememberedBatch, fields)
    return (*_batches_in(known, header.producer_epoch)[1 - REMEMBERED_BATCHES :], batch)


def _batches_in(known: ProducerState | None, producer_epoch: int) -> tuple[RememberedBatch, ...]:
    """Those that are remembered when a batch of this epoch arrives: none of another epoch."""
    return known.batches if known is not None and known.producer_epoch == producer_epoch else ()


class ProducerStates:
    """All producers of one partition. The log's lock guards it; there is one plan at a time.

    ``map_end_offset`` is the offset up to which it reflects the log, and the number of the next snapshot. The
    log sets it after every append, even of batches without a producer.
    """

    def __init__(self) -> None:
        self.map_end_offset = 0
        self.snapshot_offset = -1
        """That of the snapshot from which it was loaded; -1 if there was none."""
        self._producers: dict[int, ProducerState] = {}
        self.open_transactions: OrderedDict[int, int] = OrderedDict()
        """The first offsets of open transactions by producer, rising."""
        self.unreplicated: list[CompletedTransaction] = []
        """Those whose markers are not yet below the high watermark."""

    def begin(self, origin: AppendOrigin, now_ms: int, *, is_replay: bool = False) -> ProducerAppend:
        """Plan an append. With ``is_replay`` the batches are already in the log: their producers then count
        as used now, and as appended at the batch's timestamp."""
        return ProducerAppend(self._producers, self.open_transactions, origin, now_ms, is_replay)

    def apply(self, append: ProducerAppend) -> None:
        """Carry out a plan, once its batches are in the log. Cannot fail."""
        self._producers.update(append.changed)
        for producer_id, first_offset in append.opened.items():
            self.open_transactions.pop(producer_id, None)
            if first_offset is not None:
                self.open_transactions[producer_id] = first_offset
        self.unreplicated += append.completed

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open or whose marker is not below the high
        watermark; None if there is none. Readers of committed data stop there. Cost: linear in those that
        have ended."""
        oldest = next(iter(self.open_transactions.values())) if self.open_transactions else None
        if not self.unreplicated:
            return oldest
        pending = [done.first_offset for done in self.unreplicated if done.last_offset >= high_watermark]
        return min(pending if oldest is None else (*pending, oldest), default=None)

    @property
    def have_ended(self) -> bool:
        """Whether a transaction of any remembered producer has ended."""
        return any(state.coordinator_epoch >= 0 for state in self._producers.values())

    def add_unreplicated(self, completed: Iterable[CompletedTransaction]) -> None:
        """Take in ended transactions whose markers are not below the high watermark."""
        self.unreplicated += completed

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget completed transactions whose marker is replicated."""
        if self.unreplicated:
            self.unreplicated = [done for done in self.unreplicated if done.last_offset >= high_watermark]

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which every transaction is decided: the high watermark, or less. Forgets the ended
        transactions whose marker is below the high watermark."""
        if not (self.unreplicated or self.open_transactions):
            return high_watermark
        self.on_high_watermark(high_watermark)
        unstable = self.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def state_of(self, producer_id: int) -> ProducerState | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def active_producers(self) -> dict[int, ProducerState]:
        """A copy of the states, by producer id."""
        return dict(self._producers)

    def late_transactions(self, now_ms: int, transaction_timeout_ms: int) -> list[int]:
        """The producers whose open transaction had no append for the timeout plus LATE_TRANSACTION_BUFFER_MS:
        it hangs and holds up every reader of committed data. Opening the log does not count as an append."""
        deadline_ms = now_ms - transaction_timeout_ms - LATE_TRANSACTION_BUFFER_MS
        return [
            producer_id
            for producer_id in self.open_transactions
            if self._producers[producer_id].last_append_ms(now_ms) < deadline_ms
        ]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that were not used for ``expiration_ms``. Returns how
        many. A forgotten producer may come back with any sequence, and its duplicates are no longer
        noticed."""
        expired = [
            producer_id
            for producer_id, state in self._producers.items()
            if state.transaction_first_offset is None and now_ms - state.used_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self, end_offset: int = 0) -> None:
        """Forget everything, as when the log is emptied to go on at ``end_offset``."""
        self.load_snapshot((), end_offset, now_ms=0)
        self.snapshot_offset = -1

    def snapshot_entries(self) -> list[ProducerSnapshotEntry]:
        """The entries of a snapshot at ``map_end_offset``: each producer with its last batch only."""
        return [_to_entry(producer_id, state) for producer_id, state in self._producers.items()]

    def load_snapshot(self, entries: Iterable[ProducerSnapshotEntry], end_offset: int, now_ms: int) -> None:
        """Replace everything by a snapshot taken at ``end_offset``. If an id comes twice, the last counts."""
        self._producers = {entry.producer_id: _from_entry(entry, now_ms) for entry in entries}
        opened = [
            (state.transaction_first_offset, producer_id)
            for producer_id, state in self._producers.items()
            if state.transaction_first_offset is not None
        ]
        self.open_transactions = OrderedDict((producer_id, offset) for offset, producer_id in sorted(opened))
        self.unreplicated = []
        self.map_end_offset = self.snapshot_offset = end_offset


def _to_entry(producer_id: int, state: ProducerState) -> ProducerSnapshotEntry:
    batch = state.batches[-1] if state.batches else _NO_BATCH
    first_offset = state.transaction_first_offset
    return ProducerSnapshotEntry(
        producer_id,
        state.producer_epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        state.timestamp_ms,
        state.coordinator_epoch,
        _NO_OFFSET if first_offset is None else first_offset,
    )


def _from_entry(entry: ProducerSnapshotEntry, now_ms: int) -> ProducerState:
    batch = RememberedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
    return ProducerState(
        entry.producer_epoch,
        (batch,) if entry.last_offset >= 0 else (),
        entry.timestamp_ms,
        entry.coordinator_epoch,
        entry.transaction_first_offset if entry.transaction_first_offset >= 0 else None,
        used_ms=now_ms,
        appended_ms=entry.timestamp_ms,
    )
