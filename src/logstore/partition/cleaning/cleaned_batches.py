"""Decides what compaction does with each batch: keep it as it is, rewrite it with fewer records, empty it, or
drop it.

It decides by the offset map (is a record the latest of its key), by the transactions, by the producers that
are still active, and by the delete horizon: the first round that meets a tombstone, or a marker of a
transaction without data, writes into its batch when it may go; a round after that time removes it (KIP-534).
A batch that is kept stays the same byte for byte. The rules are Kafka's, with one exception: a tombstone in a
batch of magic 0 or 1 gets a horizon like any other, in a batch of magic 2; Kafka goes by the time of its
file.

This module knows buffers but no files. The checksums of its batches are already checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final, NamedTuple

from logstore.format.batch import decode_batch, encode_records_batch, keep_records, records_section
from logstore.format.compression import Codec
from logstore.format.control import ControlType, decode_control_record
from logstore.format.header import CONTROL_BIT, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from logstore.format.index import AbortedTransactions
from logstore.format.offset_map import OffsetMap, Standing, marks_of
from logstore.model import AbortedTransaction, Bytes, Record
from logstore.partition.state.producer_state import ProducerState


class CleanedTransactions:
    """The transactions of one pass over a log, batch by batch in order: which data is aborted, and which
    markers are no longer needed.

    The records of an aborted transaction go at once. Its marker stays as long as a pass still meets a batch
    of the transaction, even one that goes in this pass. A marker without its transaction does no harm, but a
    transaction without its marker would never end. The same is true of commit markers. The rules are Kafka's.

    ``aborted`` are all known aborted transactions of the log; those that ended below the pass do no harm.
    """

    def __init__(self, aborted: AbortedTransactions, start_offset: int = 0) -> None:
        ahead = [entry for entry in aborted if entry.last_offset >= start_offset]
        self._ahead = deque(sorted(ahead, key=lambda entry: entry.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        """The aborted transactions that have begun, by producer."""
        self._met: set[int] = set()
        """The producers with a batch of their current transaction in this pass."""

    def _begin_until(self, offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            entry = self._ahead.popleft()
            self._aborted[entry.producer_id] = entry

    def meet_data(self, header: BatchHeader) -> bool:
        """Take in a batch that is not a control batch; returns whether its records are aborted."""
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        self._begin_until(header.last_offset)
        self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def meet_marker(self, header: BatchHeader, kind: ControlType) -> tuple[bool, AbortedTransaction | None]:
        """Take in a marker, ABORT or COMMIT. Returns whether a batch of its transaction was met, and its
        entry in the transaction index.

        Raises:
            CorruptionError: the index contradicts the marker. Going by the index would keep aborted records
                in place of committed ones, or drop committed ones.
        """
        self._begin_until(header.last_offset)
        entry = self._aborted.pop(header.producer_id, None)
        was_met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        if was_met and (entry is not None) is not (kind is ControlType.ABORT):
            said = "no aborted transaction" if entry is None else "an aborted transaction"
            raise header.damage(
                f"the marker says {kind.name} for producer {header.producer_id}, but the transaction indexes "
                f"have {said}",
                0,
            )
        return was_met, entry


KEPT: Final = bytearray()
"""A result of :meth:`BatchCleaner.clean`: the batch stays as it is."""

_MAX_HORIZON_MS = 2**63 - 1


_STAYS = marks_of(Standing.LATEST, Standing.TOMBSTONE, Standing.BEYOND)
_STAYS_IN_TIME = marks_of(Standing.LATEST, Standing.BEYOND)


class LastOfProducer(NamedTuple):
    """Where an active producer's last batch lies. Without that batch its next sequence would be lost."""

    last_offset: int | None
    """None if it has no data, only a marker of this epoch."""
    producer_epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        if self.last_offset is not None:
            return header.last_offset == self.last_offset
        return header.is_control and header.producer_epoch == self.producer_epoch


def last_of_producers(states: Mapping[int, ProducerState]) -> dict[int, LastOfProducer]:
    """The last batch of each active producer, by producer id."""
    return {
        producer_id: LastOfProducer(
            state.batches[-1].last_offset if state.batches else None, state.producer_epoch
        )
        for producer_id, state in states.items()
    }


@dataclass(slots=True)
class CleaningCounts:
    """Counts of what happened to batches and records."""

    read_batches: int = 0
    kept_batches: int = 0
    rewritten_batches: int = 0
    joined_batches: int = 0
    read_records: int = 0
    kept_records: int = 0
    kept_tombstones: int = 0
    removed_tombstones: int = 0
    removed_markers: int = 0
    removed_keyless: int = 0
    removed_aborted: int = 0


class CleaningRules(NamedTuple):
    """The rules of one round."""

    end_offset: int
    """The map knows all records below it; batches from here on stay as they are."""
    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastOfProducer]
    level_of: Callable[[Codec], int | None]
    """Returns the level to compress with."""

    @property
    def horizon_ms(self) -> int:
        """When tombstones and markers met now for the first time may go."""
        return min(self.now_ms + self.delete_retention_ms, _MAX_HORIZON_MS)


class BatchCleaner:
    """One round's decisions, for batches in the order of their offsets. Adds to ``counts``."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        rules: CleaningRules,
        counts: CleaningCounts,
    ) -> None:
        self.counts = counts
        self._offsets = offsets
        self._transactions = transactions
        self._rules = rules
        self._aborted: list[AbortedTransaction] = []

    def clean(self, buffer: Bytes, position: int, header: BatchHeader) -> bytearray | None:
        """Clean the batch at ``position``. Returns :data:`KEPT`, the batch to write in its place, or None if
        it goes.

        Raises:
            CorruptionError: its records do not decode, or its marker contradicts the transaction index.
        """
        counts = self.counts
        counts.read_batches += 1
        if header.base_offset >= self._rules.end_offset:
            cleaned: bytearray | None = KEPT
        elif header.attributes & CONTROL_BIT:
            cleaned = self._clean_control(buffer, position, header)
        elif self._transactions.meet_data(header):
            counts.read_records += header.record_count
            counts.removed_aborted += header.record_count
            cleaned = self._without_records(header)
        elif header.record_count:
            cleaned = self._clean_data(buffer, position, header)
        else:
            cleaned = self._without_records(header)
        if cleaned is not None:
            counts.kept_batches += 1
            counts.rewritten_batches += cleaned is not KEPT
        return cleaned

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers stayed since the last call, for the new index."""
        aborted, self._aborted = self._aborted, []
        return aborted

    # Batches without records

    def _without_records(self, header: BatchHeader) -> bytearray | None:
        """A batch without records stays if its producer or the round's end offset needs it."""
        rules = self._rules
        last = rules.producers.get(header.producer_id)
        is_needed = header.next_offset == rules.end_offset or (last is not None and last.is_in(header))
        if not is_needed or header.magic != MAGIC:
            return None
        return encode_records_batch((), like=header) if header.record_count else KEPT

    # Control batches

    def _clean_control(self, buffer: Bytes, position: int, header: BatchHeader) -> bytearray | None:
        if not header.record_count:
            return self._without_records(header)
        records = decode_batch(buffer, position, header)
        kind = decode_control_record(records[0]).control_type
        if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
            return KEPT
        is_needed, aborted = self._transactions.meet_marker(header, kind)
        if is_needed:
            if aborted is not None:
                self._aborted.append(aborted)
            return KEPT
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return encode_records_batch(records, like=header, delete_horizon_ms=self._rules.horizon_ms)
        if self._rules.now_ms < horizon_ms:
            return KEPT
        self.counts.removed_markers += 1
        return self._without_records(header)

    # Data

    def _clean_data(self, buffer: Bytes, position: int, header: BatchHeader) -> bytearray | None:
        if header.magic != MAGIC:
            return self._clean_legacy(decode_batch(buffer, position, header), header)
        section, start, end = records_section(buffer, position, header)
        standings = self._offsets.classify_section(
            section, start, end, header.record_count, header.base_offset, header.last_offset_delta
        )
        if standings.count(Standing.LATEST) == len(standings):
            self.counts.read_records += len(standings)
            self.counts.kept_records += len(standings)
            return KEPT
        stays, needs_horizon = self._staying(standings, header)
        left_count = stays.count(1)
        if not left_count:
            return self._without_records(header)
        if needs_horizon:
            records = decode_batch(buffer, position, header)
            return self._rewrite(records, stays, header, self._rules.horizon_ms)
        if left_count == len(stays):
            return KEPT
        return keep_records(section, start, end, stays, like=header, level=self._rules.level_of(header.codec))

    def _clean_legacy(self, records: list[Record], header: BatchHeader) -> bytearray | None:
        """Clean an entry of magic 0 or 1; if it changes, it becomes a batch of magic 2."""
        standings = self._offsets.classify(records)
        stays, needs_horizon = self._staying(standings, header)
        left_count = stays.count(1)
        if not left_count:
            return None
        if left_count == len(stays) and not needs_horizon:
            return KEPT
        horizon_ms = self._rules.horizon_ms if needs_horizon else None
        return self._rewrite(records, stays, header, horizon_ms)

    def _rewrite(
        self, records: list[Record], stays: bytes, header: BatchHeader, horizon_ms: int | None
    ) -> bytearray:
        left = list(compress(records, stays))
        level = self._rules.level_of(header.codec)
        return encode_records_batch(left, like=header, level=level, delete_horizon_ms=horizon_ms)

    def _staying(self, standings: bytes, header: BatchHeader) -> tuple[bytes, bool]:
        """1 for each record that stays and 0 for each that goes; and whether a delete horizon is needed."""
        counts = self.counts
        count = len(standings)
        tombstones = standings.count(Standing.TOMBSTONE)
        keyless = standings.count(Standing.KEYLESS)
        horizon_ms = header.delete_horizon_ms
        counts.read_records += count
        counts.removed_keyless += keyless
        counts.kept_records += count - keyless - standings.count(Standing.SUPERSEDED)
        if tombstones and horizon_ms is not None and self._rules.now_ms >= horizon_ms:
            counts.kept_records -= tombstones
            counts.removed_tombstones += tombstones
            return standings.translate(_STAYS_IN_TIME), False
        counts.kept_tombstones += tombstones
        return standings.translate(_STAYS), tombstones > 0 and horizon_ms is None
