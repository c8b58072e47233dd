"""What a partition may contain after a power cut, according to what its writer has noted before.

Each value names the one before it when it was appended, so that the contents alone show if a log's records
come from different pasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

FIRST = b"none"
ERASED = b"erased"
"""Stands for an erased record."""


class Appending(NamedTuple):
    """These values are about to be written, at these offsets."""

    offset: int
    values: tuple[bytes, ...]


class Durable(NamedTuple):
    """A call has returned that promises everything below ``offset``."""

    offset: int


class Deleting(NamedTuple):
    """Records below ``before`` may disappear from now on."""

    before: int


class Deleted(NamedTuple):
    """The log start is ``start``, durably."""

    start: int


class Truncating(NamedTuple):
    """Records from ``floor`` on may disappear from now on."""

    floor: int


class Truncated(NamedTuple):
    """The log ends at ``end``, durably."""

    end: int


class Erasing(NamedTuple):
    """The records at these offsets may disappear from now on."""

    offsets: tuple[int, ...]


class Erased(NamedTuple):
    """These records are gone for good, and nothing on the disk shows what they were."""

    offsets: tuple[int, ...]


class Refused(NamedTuple):
    """An append was refused, and the log ends at ``end``. Until other records are there, or this end is
    durable, a crash may bring back the refused records."""

    end: int


class Opened(NamedTuple):
    """A session has found the log like this."""

    start: int
    values: tuple[bytes, ...]
    durable: int


class Found(NamedTuple):
    """What a reader finds."""

    start: int
    values: tuple[bytes, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.values)


def next_value(number: int, previous: bytes, size_bytes: int) -> bytes:
    """A value that names itself and the one before it."""
    return b"%d<%b|" % (number, name_of(previous)) + b"." * size_bytes


def name_of(value: bytes) -> bytes:
    return value.partition(b"<")[0]


def previous_of(value: bytes) -> bytes:
    return value.partition(b"<")[2].partition(b"|")[0]


class History:
    """Folds the notes of all sessions into what may be found now."""

    def __init__(self, said: Iterable[Any]) -> None:
        self.line: dict[int, bytes] = {}
        """The writer's view of the log, by offset."""
        self.end = 0
        self.durable = 0
        self.start_low = 0
        self.start_high = 0
        self.erased: set[bytes] = set()
        """Values that must not be anywhere on the disk."""
        self._may_go: set[int] = set()
        self._allowed: dict[int, set[bytes]] = {}
        for note in said:
            self._fold(note)

    @property
    def last(self) -> bytes:
        return self.line.get(self.end - 1, FIRST)

    def _fold(self, note: Any) -> None:
        if isinstance(note, Appending):
            for offset, value in enumerate(note.values, note.offset):
                self.line[offset] = value
                self._allowed.setdefault(offset, set()).add(value)
            self.end = note.offset + len(note.values)
        elif isinstance(note, Durable):
            for offset in self.line.keys() & range(self.durable, note.offset):
                self._allowed[offset] = {self.line[offset]} | ({ERASED} if offset in self._may_go else set())
            self.durable = max(self.durable, note.offset)
        elif isinstance(note, Deleting):
            self.start_high = max(self.start_high, note.before)
        elif isinstance(note, Deleted):
            self.start_low = max(self.start_low, note.start)
        elif isinstance(note, Truncating):
            self.durable = min(self.durable, note.floor)
        elif isinstance(note, Truncated):
            self._cut(note.end)
        elif isinstance(note, Erasing):
            self._may_go |= set(note.offsets)
            for offset in note.offsets:
                self._allowed[offset].add(ERASED)
        elif isinstance(note, Erased):
            self._may_go = set()
            for offset in note.offsets:
                self.erased.add(self.line[offset])
                self._allowed[offset] = {ERASED}
                self.line[offset] = ERASED
        elif isinstance(note, Refused):
            for offset in range(note.end, self.end):
                del self.line[offset]
            self.end = note.end
        elif isinstance(note, Opened):
            self._open(note)

    def _open(self, note: Opened) -> None:
        end = note.start + len(note.values)
        self._cut(end)
        for offset, value in enumerate(note.values, note.start):
            self.line[offset] = value
            if offset in self._may_go or value == ERASED:
                self._allowed[offset] = {value}  # an interrupted erasure is neither undone nor continued
        self._may_go = set()
        self.end = end
        self._fold(Durable(min(note.durable, end)))
        self._fold(Deleted(note.start))

    def _cut(self, end: int) -> None:
        for offset in [offset for offset in self.line if offset >= end]:
            del self.line[offset]
        for offset in [offset for offset in self._allowed if offset >= end]:
            del self._allowed[offset]
        self.end = end
        self.durable = min(self.durable, end)

    def check(self, found: Found) -> None:
        """Raise unless the records are an allowed state of this log, with everything that was promised."""
        assert self.start_low <= found.start <= max(self.start_high, self.start_low), (
            f"the log starts at {found.start}; it must start at {self.start_low} to {self.start_high}"
        )
        assert found.end >= self.durable, (
            f"LOST: the log ends at {found.end}, everything below {self.durable} was promised"
        )
        self._check_values(found)
        self._check_line(found.values)

    def _check_values(self, found: Found) -> None:
        for offset, value in enumerate(found.values, found.start):
            allowed = self._allowed.get(offset, set())
            assert value in allowed, (
                f"WRONG: at offset {offset} is {value[:30]!r}; it must be one of {[v[:30] for v in allowed]}"
            )

    @staticmethod
    def _check_line(values: Sequence[bytes]) -> None:
        for first, second in pairwise(values):
            if ERASED in (first, second):
                continue
            assert previous_of(second) == name_of(first), (
                f"MIXED: {second[:30]!r} follows {first[:30]!r}, which it was not appended behind"
            )
