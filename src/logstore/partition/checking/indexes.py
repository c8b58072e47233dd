"""Checks the indexes of a segment against its batches, as the batches pass in order.

Each index is walked once, beside the batches: an entry must name an existing batch and be right about it.
Several batches are checked at once against the entries of their place; if anything is wrong or missing, they
are checked one by one. This module knows no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from logstore.errors import CorruptionError
from logstore.format.header import BatchHeader
from logstore.format.index import check_offset_index, check_time_index
from logstore.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Layout
from logstore.model import NO_TIMESTAMP_MS
from logstore.partition.checking.findings import Finding, FindingKind, Findings
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET

_NOWHERE = 2**63  # behind every file
_NO_ROW = (0, _NOWHERE)
BULK_ENTRIES: Final = 65_536
"""From this many entries on, their order is checked with arrays. They belong to 256 MiB of log, which takes
longer to read than numpy takes to load."""

_MAX_FAULTS = 3  # in one index; later entries are probably wrong too and tell nothing new


def _check_order(check: Callable[..., None], entries: bytes, layout: Layout, base_offset: int) -> None:
    is_large = len(entries) >= BULK_ENTRIES * layout.size_bytes
    check(entries, len(entries), base_offset, as_arrays=is_large)


def _rows_behind(entries: bytes, number: int, layout: Layout, place: int) -> Iterator[tuple[Any, ...]]:
    """The entries behind the one with this number. Empty if that entry has no ``place``."""
    if place == _NOWHERE:
        return iter(())
    return layout.iter_unpack(memoryview(entries)[(number + 1) * layout.size_bytes :])


class StoredIndex(NamedTuple):
    """An index file as it was read."""

    path: str
    base_offset: int
    """That of its segment."""
    entries: bytes
    is_whole: bool
    """If not, anything may follow the entries in front."""


class OffsetIndexCheck:
    """The walk along an offset index."""

    def __init__(
        self,
        findings: Findings,
        index: StoredIndex,
        *,
        trusted_end: int,
        end_position: int,
        interval_bytes: int,
    ) -> None:
        """Entries for offsets from ``trusted_end`` on, and positions from ``end_position`` on, are not
        checked. ``interval_bytes`` is how far a batch may lie behind the last entry without an entry of its
        own."""
        self.next_position = _NOWHERE
        """The position of the batch that the next entry names."""
        self.sparse_position = interval_bytes
        """A batch that begins behind this position should have had an entry."""
        self._findings = findings
        self._path, self._base_offset, self._entries, self._is_whole = index
        self._trusted_end = trusted_end
        self._end_position = end_position
        self._interval_bytes = interval_bytes
        self.has_faults = False
        self._number = -1
        self._fault_count = 0
        self._offset = -1
        self._wide: tuple[int, int] | None = None  # number and offset of an entry that names a later batch
        self._rows = self._checked_rows()
        self._advance()

    def _checked_rows(self) -> Iterator[tuple[Any, ...]]:
        try:
            _check_order(check_offset_index, self._entries, OFFSET_INDEX_ENTRY, self._base_offset)
        except CorruptionError as error:
            self.has_faults = True
            if self._is_whole:
                self._problem(error.reason, error.position or 0)
            return iter(())
        return OFFSET_INDEX_ENTRY.iter_unpack(self._entries)

    def _advance(self) -> None:
        row = next(self._rows, None)
        self._number += 1
        self.next_position = _NOWHERE
        if row is not None and self._fault_count < _MAX_FAULTS:
            relative, position = row
            offset = self._base_offset + relative
            if offset < self._trusted_end and position < self._end_position:
                self._offset, self.next_position = offset, position

    def agrees(self, batches: Sequence[tuple[int, BatchHeader]], start: int) -> bool:
        """Whether consecutive batches, given by their positions relative to ``start``, agree with the index:
        each entry for this range names one of them, and none lacks an entry. If so, they are met; otherwise
        nothing has changed. Takes a quarter of the time of :meth:`meet`."""
        if self._wide is not None or self._fault_count:
            return False
        base, number, dense_to = self._base_offset, self._number, self.sparse_position
        offset, next_position = self._offset, self.next_position
        rows = _rows_behind(self._entries, number, OFFSET_INDEX_ENTRY, next_position)
        for at, header in batches:
            position = start + at
            if position == next_position:
                if header[0] + header[6] != offset or offset >= self._trusted_end:
                    return False
                number += 1
                dense_to = position + self._interval_bytes
                relative, next_position = next(rows, _NO_ROW)
                offset = base + relative
            elif position > next_position or position > dense_to:
                return False
        if start + batches[-1][0] >= self._end_position:
            return False
        if number != self._number:
            self.sparse_position = dense_to
            self._go_to(number)
        return True

    def _go_to(self, number: int) -> None:
        """The entry with this number is the next one."""
        at = number * OFFSET_INDEX_ENTRY.size_bytes
        self._rows = OFFSET_INDEX_ENTRY.iter_unpack(memoryview(self._entries)[at:])
        self._number = number - 1
        self._advance()

    def meet(self, header: BatchHeader, position: int) -> None:
        """Check a batch that begins at ``position``, at or behind :attr:`next_position`."""
        while self.next_position < position:
            self._entry_problem(f"no batch begins at position {self.next_position}")
            self._advance()
        if self.next_position != position:
            return
        if self._wide is not None:
            self._problem_of(*self._wide, "no batch ends there")
            self._wide = None
        if self._offset > header.last_offset:
            self._wide = self._number, self._offset
        elif self._offset != header.last_offset:
            self._entry_problem(f"the batch at position {position} ends with {header.last_offset}")
        self.sparse_position = position + self._interval_bytes
        self._advance()

    def meet_wide(self, header: BatchHeader) -> None:
        """Check a batch while an earlier entry still waits for the batch with its offset."""
        if self._wide is None or header.last_offset < self._wide[1]:
            return
        number, offset = self._wide
        if header.last_offset == offset:
            self._note(FindingKind.WIDE_INDEX_ENTRY, f"entry {number} names the last of several batches")
        else:
            self._problem_of(number, offset, "no batch ends there")
        self._wide = None

    @property
    def is_waiting(self) -> bool:
        """Whether :meth:`meet_wide` must be called for the next batch."""
        return self._wide is not None

    def lack(self, position: int) -> None:
        """Note a batch without an entry that begins at ``position``, behind :attr:`sparse_position`."""
        self.sparse_position = _NOWHERE  # once is enough
        self._note(
            FindingKind.SPARSE_INDEX,
            f"no entry for the batches from position {position} of the log on",
        )

    def finish(self, end: int, end_offset: int, *, may_be_lost: bool) -> int:
        """The batches end at position ``end``, and ``end_offset`` follows. Entries that name later offsets
        are wrong, unless their batches ``may_be_lost``: then the last such offset is returned, otherwise
        -1."""
        if self._wide is not None:
            self._problem_of(*self._wide, "no batch ends there")
            self._wide = None
        lost = -1
        while self.next_position != _NOWHERE:
            if may_be_lost and self.next_position >= end and self._offset >= end_offset:
                lost = self._offset
            else:
                self._entry_problem(
                    f"no batch begins at position {self.next_position}; the log ends at {end}"
                )
            self._advance()
        return lost

    def position_behind(self, position: int) -> int | None:
        """Where a batch begins behind ``position``, by the next entry there; None if there is no entry."""
        self.skip_to(position + 1)
        return None if self.next_position == _NOWHERE else self.next_position

    def skip_to(self, position: int) -> None:
        """The batches up to ``position`` cannot be read."""
        self._wide = None
        while self.next_position < position:
            self._advance()
        self.sparse_position = max(self.sparse_position, position + self._interval_bytes)

    def _entry_problem(self, reason: str) -> None:
        self._problem_of(self._number, self._offset, reason)

    def _problem_of(self, number: int, offset: int, reason: str) -> None:
        self._problem(
            f"entry {number} names offset {offset}: {reason}", number * OFFSET_INDEX_ENTRY.size_bytes
        )

    def _problem(self, reason: str, position: int) -> None:
        self._fault_count += 1
        self._findings.problem(
            Finding(kind=FindingKind.OFFSET_INDEX, path=self._path, position=position, reason=reason)
        )

    def _note(self, kind: FindingKind, reason: str) -> None:
        self._findings.note(Finding(kind=kind, path=self._path, reason=reason))


class TimeIndexCheck:
    """The walk along a time index. It also finds the largest timestamp."""

    def __init__(self, findings: Findings, index: StoredIndex, *, end_offset: int) -> None:
        """Entries for offsets from ``end_offset`` on are not checked."""
        self._path, self._base_offset, self._entries, self._is_whole = index
        self.next_offset = _NOWHERE
        """The last offset of the batch that the next entry names."""
        self.largest_ms = NO_TIMESTAMP_MS
        """The largest timestamp of all batches."""
        self._largest_offset = self._base_offset
        self.kept_ms = NO_TIMESTAMP_MS
        """The largest timestamp of the batches with records; never above :attr:`largest_ms`."""
        self._kept_offset = self._base_offset
        self._findings = findings
        self._end_offset = end_offset
        self._number = -1
        self._fault_count = 0
        self._timestamp_ms = NO_TIMESTAMP_MS
        self.has_faults = False
        """Whether something was wrong or batches could not be read: the rest cannot be judged."""
        self._rows = self._checked_rows()
        self._advance()

    def _checked_rows(self) -> Iterator[tuple[Any, ...]]:
        try:
            _check_order(check_time_index, self._entries, TIME_INDEX_ENTRY, self._base_offset)
        except CorruptionError as error:
            self.has_faults = True
            if self._is_whole:
                self._problem(error.reason, error.position or 0)
            return iter(())
        return TIME_INDEX_ENTRY.iter_unpack(self._entries)

    def _advance(self) -> None:
        row = next(self._rows, None)
        self._number += 1
        self.next_offset = _NOWHERE
        if (
            row is not None
            and self._base_offset + row[1] < self._end_offset
            and self._fault_count < _MAX_FAULTS
        ):
            self._timestamp_ms, self.next_offset = row[0], self._base_offset + row[1]

    def agrees(self, batches: Sequence[tuple[int, BatchHeader]]) -> bool:
        """Like :meth:`OffsetIndexCheck.agrees`: whether each entry for these batches names one of them, and
        the largest timestamp up to it."""
        if self.has_faults or self.largest_ms != self.kept_ms:
            return False
        base, number, last_offset = self._base_offset, self._number, -1
        entry_ms, next_offset = self._timestamp_ms, self.next_offset
        rows = _rows_behind(self._entries, number, TIME_INDEX_ENTRY, next_offset)
        largest_ms, largest_offset = self.largest_ms, self._largest_offset
        for _, header in batches:
            if header[0] <= last_offset:
                return False
            last_offset, timestamp_ms = header[0] + header[6], header[8]
            if timestamp_ms > largest_ms:
                if not header[12]:  # without records: from here on the two largest timestamps differ
                    return False
                largest_ms, largest_offset = timestamp_ms, last_offset
            if last_offset >= next_offset:
                if last_offset != next_offset or not entry_ms == timestamp_ms == largest_ms:
                    return False
                number += 1
                entry_ms, relative = next(rows, _NO_ROW)
                next_offset = base + relative
                if next_offset <= last_offset:
                    return False
        if last_offset >= self._end_offset:
            return False
        if largest_ms > self.largest_ms:
            self.largest_ms = self.kept_ms = largest_ms
            self._largest_offset = self._kept_offset = largest_offset
        if number != self._number:
            self._go_to(number)
        return True

    def _go_to(self, number: int) -> None:
        """The entry with this number is the next one."""
        at = number * TIME_INDEX_ENTRY.size_bytes
        self._rows = TIME_INDEX_ENTRY.iter_unpack(memoryview(self._entries)[at:])
        self._number = number - 1
        self._advance()

    def note_largest(self, header: BatchHeader) -> None:
        """Note the timestamp of a batch that is larger than all before it, or, if it has records, larger than
        those of all batches with records. Kafka writes entries for batches without records too."""
        if header.max_timestamp_ms > self.largest_ms:
            self.largest_ms = header.max_timestamp_ms
            self._largest_offset = header.last_offset
        if header.record_count and header.max_timestamp_ms > self.kept_ms:
            self.kept_ms = header.max_timestamp_ms
            self._kept_offset = header.last_offset

    def skip_to(self, offset: int) -> None:
        """The batches up to ``offset`` cannot be read."""
        self.has_faults = True
        while self.next_offset < offset:
            self._advance()

    def meet(self, header: BatchHeader) -> None:
        """Check a batch that reaches :attr:`next_offset`. Call :meth:`note_largest` first."""
        while self.next_offset <= header.last_offset:
            if self.next_offset < header.base_offset:
                self._entry_problem("no batch ends there")
            elif self._timestamp_ms != header.max_timestamp_ms:
                self._entry_problem(f"the largest timestamp of its batch is {header.max_timestamp_ms}")
            elif self._timestamp_ms not in (self.largest_ms, self.kept_ms):
                self._entry_problem(f"a batch before it has {self.largest_ms}")
            elif self.next_offset != header.last_offset:
                self._findings.note(
                    Finding(
                        kind=FindingKind.WIDE_INDEX_ENTRY,
                        path=self._path,
                        reason=f"entry {self._number} names offset {self.next_offset}; its batch ends with "
                        f"{header.last_offset}",
                    )
                )
            self._advance()

    def finish(self, end_offset: int, *, may_be_lost: bool, is_closed: bool) -> int:
        """Like :meth:`OffsetIndexCheck.finish`. ``is_closed``: the index must end with the largest timestamp,
        as in a sealed segment."""
        lost = -1
        while self.next_offset != _NOWHERE:
            if may_be_lost and self.next_offset >= end_offset:
                lost = self.next_offset
            else:
                self._entry_problem("no batch ends there")
            self._advance()
        if is_closed and lost < 0:
            self._check_closing_entry()
        return lost

    def _check_closing_entry(self) -> None:
        if self.has_faults or self.kept_ms == NO_TIMESTAMP_MS:
            return
        last = (
            TIME_INDEX_ENTRY.unpack_from(self._entries, len(self._entries) - TIME_INDEX_ENTRY.size_bytes)
            if self._entries
            else None
        )
        relative = self._largest_offset - self._base_offset
        right = {(self.largest_ms, relative), (self.kept_ms, self._kept_offset - self._base_offset)}
        if last not in right and relative <= MAX_RELATIVE_OFFSET:
            shown = "none" if last is None else f"timestamp {last[0]} of offset {self._base_offset + last[1]}"
            self._problem(
                f"the last entry is {shown}; the largest timestamp is {self.kept_ms} of offset "
                f"{self._kept_offset}",
                len(self._entries),
            )

    def _entry_problem(self, reason: str) -> None:
        self._problem(
            f"entry {self._number} names offset {self.next_offset}, timestamp {self._timestamp_ms}: {reason}",
            self._number * TIME_INDEX_ENTRY.size_bytes,
        )

    def _problem(self, reason: str, position: int) -> None:
        self._fault_count += 1
        self.has_faults = True
        self._findings.problem(
            Finding(kind=FindingKind.TIME_INDEX, path=self._path, position=position, reason=reason)
        )
