"""The interface of every contender. Small on purpose: to add one, write a few short methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from benchmarks.records import Row, Stored


class Contender(ABC):
    """An append-only store of records in a directory. The constructor opens or creates it.

    With ``is_durable`` an append returns when a power cut can no longer lose the batch; otherwise when the
    death of the process can no longer lose it.
    """

    settings: ClassVar[str]
    """One line for the report: how it is used, with which settings."""
    promise: ClassVar[str]
    """One line for the report: durability, checksums, indexes."""

    looks_at_values: ClassVar[bool] = True
    """Whether :meth:`sum_values` says how large they are; if not, it may go through the store many times."""

    @abstractmethod
    def __init__(self, directory: str, *, is_durable: bool = False) -> None: ...

    def prepare(self, rows: list[Row]) -> Any:
        """A batch in the form that :meth:`append` takes; off the clock. Rows as they are, for most."""
        return rows

    @abstractmethod
    def append(self, batch: Any) -> None:
        """Store one prepared batch."""

    def append_one(self, row: Row) -> None:
        """Store one record, by the call that the library has for it; from several threads at once."""
        self.append([row])

    def connect(self) -> Contender:
        """What another thread uses to append to the same store."""
        return self

    def settle(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what appending has put off, so that everything survives the process; on the clock."""

    @abstractmethod
    def read_all(self) -> Iterator[Stored]:
        """Every record in order, with all its fields; what was appended is checked with it."""

    def sum_values(self) -> tuple[int, int]:
        """Go through all records in order, as quickly as the library lets one, and look at each value:
        (number of records, bytes of their values). This is what sequential reads are timed in."""
        count = size_bytes = 0
        for _, _, _, value in self.read_all():
            count += 1
            size_bytes += len(value)
        return count, size_bytes

    def read_one(self, offset: int) -> Any:
        """One record by its number, as of now, in the library's own form."""
        raise NotImplementedError(f"{type(self).__name__} finds no single records")

    def read_at_time(self, timestamp_ms: int) -> Any:
        """The first record at or after a time, likewise."""
        raise NotImplementedError(f"{type(self).__name__} finds nothing by time")

    @staticmethod
    def as_stored(record: Any) -> Stored:
        """The fields of what :meth:`read_one` returned; off the clock."""
        offset, timestamp_ms, key, value = record
        return offset, timestamp_ms, key, value

    @abstractmethod
    def close(self) -> None:
        """Stop cleanly."""

    @staticmethod
    @abstractmethod
    def version() -> str:
        """Of the library that does the work."""

    @staticmethod
    def why_missing() -> str | None:
        """What the installed library lacks for this use of it; None if nothing."""
        return None
