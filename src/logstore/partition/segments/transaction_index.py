"""The list of a segment's aborted transactions, as an object over a file (``.txnindex``).

Readers of committed records need it. Recovery completes it above the recovery point, from the markers in the
log. The entry format is in :mod:`logstore.format.index`.
"""

from __future__ import annotations

from typing import Self

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.files import Files, read_small_file, write_small_file
from logstore.format.index import (
    AbortedTransactions,
    decode_aborted_transactions,
    encode_aborted_transaction,
)
from logstore.model import AbortedTransaction
from logstore.partition.segments.failed_flushes import opening_to_flush

MAX_TRANSACTION_INDEX_BYTES = 256 * 1024 * 1024


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment (``.txnindex``), oldest marker first.

    The file is created with the first entry. Entries are written as they come and flushed with the segment.
    """

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self.entries = AbortedTransactions()
        self.is_flushed = True
        """Whether all entries are known to be on the disk."""

    @classmethod
    def open(cls, files: Files, path: str, base_offset: int) -> Self:
        """Read the file; a missing file is an empty index.

        Raises:
            CorruptionError, UnsupportedVersionError: the entries are damaged, or from a newer version.
        """
        index = cls(files, path, base_offset)
        data = read_small_file(files, path, MAX_TRANSACTION_INDEX_BYTES)
        if data:
            try:
                index.entries = decode_aborted_transactions(data, base_offset)
            except UnsupportedVersionError as error:
                raise UnsupportedVersionError(f"{error} ({path})") from None
            except CorruptionError as error:
                raise error.located(path) from None
        index.is_flushed = not index.entries
        return index

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry to the file, then to memory.

        Raises:
            UsageError: its marker is not above the last one's.
        """
        if self.entries and aborted.last_offset <= self.entries[-1].last_offset:
            raise UsageError(f"marker {aborted.last_offset} is not above {self.entries[-1].last_offset}")
        entries = self.entries.joined([aborted])
        entry = encode_aborted_transaction(aborted)
        file = self._files.open(self.path, create=True)
        try:
            file.write_at(len(self.entries) * len(entry), [entry])
        finally:
            file.close()
        self.entries = entries
        self.is_flushed = False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from the first whose marker is at or above ``offset``; the file is replaced."""
        keep = self.entries.below(offset)
        if len(keep) == len(self.entries):
            return
        write_small_file(self._files, self.path, b"".join(map(encode_aborted_transaction, keep)))
        self.entries = keep

    def flush(self) -> None:
        """Make the entries durable.

        Raises:
            NotOpenedError: the file could not be opened; no flush was tried.
            StorageError: the flush failed.
        """
        if self.is_flushed:
            return
        with opening_to_flush():
            file = self._files.open(self.path, write=True)
        self.is_flushed = True  # first: entries added meanwhile may not be flushed
        try:
            file.flush()
        except BaseException:
            self.is_flushed = False
            raise
        finally:
            file.close()
