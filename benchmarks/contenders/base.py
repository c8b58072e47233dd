"""What every contender can do. Small on purpose: whoever wants to add one writes six short methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.records import Row, Stored


class Contender(ABC):
    """An append-only store of records in a directory. Making one opens it, or creates it.

    With ``is_durable`` an append returns when a power cut cannot take the batch; without, when the death of
    the process cannot.
    """

    description: ClassVar[str]
    """One line for the report: what it is and how it is set."""

    @abstractmethod
    def __init__(self, directory: str, *, is_durable: bool = False) -> None: ...

    @abstractmethod
    def append(self, rows: list[Row]) -> None:
        """Store one batch."""

    def settle(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what appending has put off, so that everything survives the process; on the clock."""

    @abstractmethod
    def read_all(self) -> Iterator[Stored]:
        """Every record in order, by the quickest loop that the library offers."""

    @abstractmethod
    def read_one(self, offset: int) -> Stored:
        """One record by its number, as of now."""

    @abstractmethod
    def close(self) -> None:
        """Stop cleanly."""

    @staticmethod
    @abstractmethod
    def version() -> str:
        """Of the library that does the work."""
