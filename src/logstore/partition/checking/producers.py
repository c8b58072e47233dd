"""Checks the producer state against the batches: snapshots, transaction indexes, memory.

The batches are replayed as in recovery. If the replay is not complete (a snapshot at the beginning is
missing, a batch was damaged, compaction removed batches), only the part it has seen is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from logstore.errors import CorruptionError, LogstoreError, is_denied
from logstore.files import Files, read_small_file
from logstore.format.header import NO_EPOCH, BatchHeader
from logstore.format.snapshot import ProducerSnapshotEntry, decode_snapshot
from logstore.model import AbortedTransaction
from logstore.partition.checking.findings import Finding, FindingKind, Findings
from logstore.partition.state.producer_replay import replay_batch
from logstore.partition.state.producer_state import REMEMBERED_BATCHES, ProducerState, ProducerStates
from logstore.partition.state.sidecars import MAX_SNAPSHOT_BYTES, snapshot_path

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's ``transaction.max.timeout.ms``: no coordinator leaves a transaction open for longer."""
_NONE_LEFT = 2**63


class ProducerCheck:
    """The replay of one log."""

    def __init__(
        self, findings: Findings, files: Files, directory: str, base_offset: int, snapshots: Sequence[int]
    ) -> None:
        """``snapshots``: the offsets of those to check, ascending. ``base_offset``: the log's."""
        self.next_snapshot = _NONE_LEFT
        """The offset of the next snapshot: call :meth:`meet_snapshots` at the first batch at or behind it."""
        self.is_complete = base_offset == 0
        """Whether the replay has seen every batch and snapshot it needs."""
        self._findings = findings
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._states = ProducerStates()
        self._states.clear(base_offset)
        self._aborted: list[AbortedTransaction] = []
        self._snapshots = iter(snapshots)
        self._advance()
        self._begin()

    def _advance(self) -> None:
        self.next_snapshot = next(self._snapshots, _NONE_LEFT)

    def _begin(self) -> None:
        """Start from the snapshot at the log's first offset: it knows the producers of deleted batches."""
        while self.next_snapshot < self._base_offset:
            self._read(self.next_snapshot)
            self._advance()
        if self.next_snapshot == self._base_offset:
            entries = self._read(self._base_offset)
            if entries is not None:
                self._states.load_snapshot(entries, self._base_offset, 0)
                self.is_complete = True
            self._advance()

    def meet(self, header: BatchHeader, buffer: bytes, position: int) -> None:
        """Replay a sound batch with a producer.

        Raises:
            LogstoreError: it contradicts the earlier batches.
        """
        for done in replay_batch(self._states, header, buffer, position, 0):
            if done.is_aborted:
                self._aborted.append(done.index_entry)

    def meet_snapshots(self, offset: int) -> None:
        """Compare the snapshots up to ``offset``: the replay has reached the first batch at or behind it."""
        while self.next_snapshot <= offset:
            entries = self._read(self.next_snapshot)
            if entries is not None:
                self._compare_snapshot(entries)
            self._advance()

    def finish(self, end_offset: int, known: Mapping[int, ProducerState] | None) -> None:
        """End the replay at the log end; ``known`` is the producer state in the writer's memory."""
        self.meet_snapshots(end_offset)
        if known is not None:
            self._compare_memory(known)

    def late(self, now_ms: int, transaction_timeout_ms: int) -> list[int]:
        """The producers whose open transaction hangs, by the timestamps of the batches."""
        known = self._states.active_producers()
        late = self._states.late_transactions(now_ms, transaction_timeout_ms)
        return [producer_id for producer_id in late if 0 <= known[producer_id].appended_ms <= now_ms]

    # Snapshots

    def _read(self, offset: int) -> list[ProducerSnapshotEntry] | None:
        """The entries; None if the file is damaged or was removed meanwhile."""
        path = snapshot_path(self._directory, offset)
        try:
            data = read_small_file(self._files, path, MAX_SNAPSHOT_BYTES)
            return decode_snapshot(data) if data is not None else None
        except CorruptionError as error:
            self._snapshot_problem(offset, error.reason, error.position)
        except LogstoreError as error:
            if is_denied(error):
                raise
            self._snapshot_problem(offset, str(error))
        return None

    def _compare_snapshot(self, entries: Sequence[ProducerSnapshotEntry]) -> None:
        states = ProducerStates()
        states.load_snapshot(entries, self.next_snapshot, 0)
        stored = states.active_producers()
        reason = self._difference(stored, is_exact=False)
        if reason is not None:
            self._snapshot_problem(self.next_snapshot, reason)

    def _snapshot_problem(self, offset: int, reason: str, position: int | None = None) -> None:
        self._findings.problem(
            Finding(
                kind=FindingKind.SNAPSHOT,
                path=snapshot_path(self._directory, offset),
                position=position,
                reason=reason,
            )
        )

    # Memory

    def _compare_memory(self, known: Mapping[int, ProducerState]) -> None:
        reason = self._difference(known, is_exact=True)
        if reason is not None:
            self._findings.problem(
                Finding(kind=FindingKind.PRODUCERS, path=self._directory, reason=f"in memory: {reason}")
            )

    def _difference(self, stored: Mapping[int, ProducerState], *, is_exact: bool) -> str | None:
        """What contradicts the replay, or None. ``is_exact``: not only of the last batches."""
        if not self.is_complete:
            return None
        replayed = self._states.active_producers()
        for producer_id, state in stored.items():
            mine = replayed.get(producer_id)
            if mine is None:
                return f"producer {producer_id} is in no batch"
            if not _is_same(state, mine, is_exact):
                return f"producer {producer_id} is {_shown(state)}; the batches say {_shown(mine)}"
        for producer_id, mine in replayed.items():  # one that was idle for long may be forgotten
            if producer_id not in stored and mine.transaction_first_offset is not None:
                return f"the open transaction of producer {producer_id} is missing"
        return None

    # Transaction indexes

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions since the last call, in the order of their markers."""
        aborted, self._aborted = self._aborted, []
        return aborted


def _is_same(stored: ProducerState, replayed: ProducerState, is_exact: bool) -> bool:
    """Whether both states agree, as far as both reach: a producer that was forgotten while idle and came back
    is known only from there on. Timestamps of single batches are not compared: a batch from a snapshot may
    have the timestamp of the marker behind it, because a snapshot stores only one."""
    most = REMEMBERED_BATCHES if is_exact else 1
    count = min(len(stored.batches), len(replayed.batches), most)
    return (
        stored.producer_epoch == replayed.producer_epoch
        and stored.timestamp_ms == replayed.timestamp_ms
        and stored.transaction_first_offset == replayed.transaction_first_offset
        and stored.coordinator_epoch in (replayed.coordinator_epoch, NO_EPOCH)
        and _last_batches(stored, count) == _last_batches(replayed, count)
    )


def _last_batches(state: ProducerState, count: int) -> list[tuple[int, int, int]]:
    batches = state.batches[len(state.batches) - count :]
    return [(batch.last_sequence, batch.last_offset, batch.offset_delta) for batch in batches]


def _shown(state: ProducerState) -> str:
    last = state.batches[-1] if state.batches else None
    batch = f"sequence {last.last_sequence} at offset {last.last_offset}" if last else "without a batch"
    transaction = state.transaction_first_offset
    began = "" if transaction is None else f", in the transaction that began at offset {transaction}"
    return f"epoch {state.producer_epoch}, {batch}{began}"
