"""What a partition of ``__share_group_state`` says, in memory: share-partition -> state.

Records are applied in the order of the log, as Kafka does: a snapshot takes the place of all before it, and
an update changes what is there. Updates are kept as they are until the state is asked for, so that an update
costs the same however long the state is. No I/O and no lock: the owner has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from logstore.broker.internal_topic import Row
from logstore.broker.share.stored import ShareChange, ShareState, combine
from logstore.errors import CorruptionError, UsageError
from logstore.format.messages.share_records import (
    UNCHANGED,
    DecodedShareKey,
    ShareBatch,
    ShareKey,
    ShareSnapshot,
    ShareUpdate,
    decode_share_key,
    decode_share_snapshot,
    decode_share_update,
    encode_share_key,
    encode_share_snapshot,
    encode_share_update,
)
from logstore.model import Record

_LONGEST_TAIL: Final = 4_096
"""Batches of updates that are kept as they are."""
_MAX_INT32: Final = 2**31 - 1

Change = ShareState | ShareChange | None
"""All of the state, what has changed in it, or that it is deleted."""


class PlannedRow(NamedTuple):
    """A row that is to be appended."""

    row: Row
    snapshot_of: ShareKey | None
    """If it is a snapshot, whose."""


class _Known:
    """A share-partition."""

    __slots__ = (
        "batches",
        "changed_ms",
        "has_changed",
        "leader_epoch",
        "snapshot_epoch",
        "snapshot_key",
        "snapshot_offset",
        "start_offset",
        "state_epoch",
        "tail",
        "update_count",
        "update_key",
    )

    def __init__(self, key: ShareKey, offset: int) -> None:
        self.snapshot_key = encode_share_key(key, is_snapshot=True)
        self.update_key = encode_share_key(key, is_snapshot=False)
        self.state_epoch = 0
        self.leader_epoch = 0
        self.start_offset = 0
        self.batches: tuple[ShareBatch, ...] = ()
        self.tail: list[ShareBatch] = []
        """What updates say, and ``batches`` does not yet."""
        self.has_changed = False
        """Whether ``batches`` is behind ``tail`` or ``start_offset``."""
        self.snapshot_epoch = 0
        self.snapshot_offset = offset
        """Of the last snapshot: records before it say nothing any more."""
        self.update_count = 0
        """Updates since then."""
        self.changed_ms = 0

    def state(self) -> ShareState:
        if self.has_changed:
            self.has_changed = False
            self.batches = combine(self.start_offset, self.batches, self.tail)
            self.tail.clear()
        return ShareState(self.state_epoch, self.leader_epoch, self.start_offset, self.batches)

    def set_state(self, state: ShareState) -> None:
        self.state_epoch, self.leader_epoch, self.start_offset, batches = state
        self.batches = combine(self.start_offset, (), batches)
        self.tail.clear()
        self.has_changed = False
        self.update_count = 0

    def change(self, start_offset: int, leader_epoch: int, batches: Iterable[ShareBatch]) -> None:
        if start_offset != UNCHANGED:
            if start_offset < self.start_offset:
                self.state()  # what lies below the old one is gone all the same
            self.start_offset = start_offset
        if leader_epoch != UNCHANGED:
            self.leader_epoch = leader_epoch
        self.tail.extend(batches)
        self.has_changed = True
        if len(self.tail) > _LONGEST_TAIL:
            self.state()
        self.update_count += 1


class ShareTable:
    """Of one partition of the topic."""

    def __init__(self) -> None:
        self._known: dict[ShareKey, _Known] = {}
        self._keys: dict[bytes, DecodedShareKey] = {}
        """The keys of records, decoded."""

    def __len__(self) -> int:
        return len(self._known)

    # Looking

    def states(self) -> dict[ShareKey, ShareState]:
        """The state of each share-partition."""
        return {key: known.state() for key, known in self._known.items()}

    def state(self, key: ShareKey) -> ShareState | None:
        """That of one; None if it has none."""
        known = self._known.get(key)
        return None if known is None else known.state()

    def lowest_snapshot_offset(self) -> int | None:
        """Records below this offset say nothing any more; None if there is no state."""
        return min((known.snapshot_offset for known in self._known.values()), default=None)

    def keys_before(self, offset: int) -> list[ShareKey]:
        """The share-partitions whose last snapshot lies below an offset."""
        return [key for key, known in self._known.items() if known.snapshot_offset < offset]

    # Reading

    def apply_records(self, records: Iterable[Record], producer_id: int | None) -> None:
        """Take over records that were read. Nothing is written here in transactions.

        Raises:
            CorruptionError: a key or value is damaged.
            UnsupportedVersionError: a value is of a later version.
        """
        if producer_id is not None:
            return
        for offset, _, key, value, _ in records:
            if key is None:
                raise CorruptionError("a record of __share_group_state without a key", base_offset=offset)
            decoded = self._keys.get(key)
            if decoded is None:
                decoded = decode_share_key(key)
                if decoded is None:
                    continue
                self._keys[key] = decoded
            if not decoded.is_snapshot:
                self._apply_update(decoded.key, value, offset)
            elif value is None:
                self._remove(decoded.key)
            else:
                self._apply_snapshot(decoded.key, value, offset)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Nothing is written here in transactions."""

    def _apply_snapshot(self, key: ShareKey, data: bytes, offset: int) -> None:
        value = decode_share_snapshot(data)
        known = self._require(key, offset)
        known.set_state(ShareState(value.state_epoch, value.leader_epoch, value.start_offset, value.batches))
        known.snapshot_epoch = value.snapshot_epoch
        known.snapshot_offset = offset
        known.changed_ms = value.create_timestamp_ms

    def _apply_update(self, key: ShareKey, data: bytes | None, offset: int) -> None:
        if data is None:
            return
        value = decode_share_update(data)
        known = self._known.get(key)
        if known is None:
            known = self._require(key, offset)
            known.snapshot_epoch = value.snapshot_epoch
        known.change(value.start_offset, value.leader_epoch, value.batches)

    def _require(self, key: ShareKey, offset: int) -> _Known:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(key, offset)
        return known

    def _remove(self, key: ShareKey) -> _Known | None:
        known = self._known.pop(key, None)
        if known is not None:
            self._keys.pop(known.snapshot_key, None)
            self._keys.pop(known.update_key, None)
        return known

    # Writing

    def plan(
        self, changes: Iterable[tuple[ShareKey, Change]], *, updates_per_snapshot: int, now_ms: int
    ) -> list[PlannedRow]:
        """Take over changes. Returns the rows that say so: a table whose rows were not appended, each at the
        offset that :meth:`note_snapshot` then hears of, is to be thrown away.

        Raises:
            UsageError: a change of a share-partition that has no state yet; or a number does not fit.
        """
        planned: list[PlannedRow] = []
        for key, change in changes:
            if change is None:
                removed = self._remove(key)
                if removed is not None:
                    planned.append(PlannedRow((removed.snapshot_key, None), None))
            elif isinstance(change, ShareState):
                planned.append(self._plan_state(key, change, now_ms))
            else:
                planned.append(self._plan_change(key, change, updates_per_snapshot, now_ms))
        return planned

    def plan_again(self, keys: Iterable[ShareKey], now_ms: int) -> list[PlannedRow]:
        """New snapshots of states that have not changed. As :meth:`plan`."""
        return [self._snapshot(key, self._known[key], now_ms) for key in keys]

    def note_snapshot(self, key: ShareKey, offset: int) -> None:
        """A planned snapshot was appended."""
        known = self._known.get(key)
        if known is not None:  # else it was deleted by the same plan
            known.snapshot_offset = offset

    def _plan_state(self, key: ShareKey, state: ShareState, now_ms: int) -> PlannedRow:
        known = self._known.get(key)
        if known is None:
            known = self._require(key, 0)
            known.snapshot_epoch = -1
        known.set_state(state)
        known.changed_ms = now_ms
        return self._snapshot(key, known, now_ms)

    def _plan_change(
        self, key: ShareKey, change: ShareChange, updates_per_snapshot: int, now_ms: int
    ) -> PlannedRow:
        known = self._known.get(key)
        if known is None:
            raise UsageError(f"{key} has no state yet; write all of it first")
        start_offset, batches, leader_epoch, complete_count = change
        known.change(start_offset, leader_epoch, batches)
        if known.update_count > updates_per_snapshot:
            known.changed_ms = now_ms
            return self._snapshot(key, known, now_ms)
        update = ShareUpdate(known.snapshot_epoch, leader_epoch, start_offset, complete_count, batches)
        return PlannedRow((known.update_key, encode_share_update(update)), None)

    def _snapshot(self, key: ShareKey, known: _Known, now_ms: int) -> PlannedRow:
        state = known.state()
        known.snapshot_epoch += 1
        known.update_count = 0
        snapshot = ShareSnapshot(
            snapshot_epoch=known.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=min(state.delivery_complete_count, _MAX_INT32),
            create_timestamp_ms=known.changed_ms,
            write_timestamp_ms=now_ms,
            batches=state.batches,
        )
        return PlannedRow((known.snapshot_key, encode_share_snapshot(snapshot)), key)
