"""An output of compaction: a segment under ``.cleaned`` names, which replaces others when it is done.

It is written with large writes, and has an index entry for every batch except the first, as far as the
topic's ``segment_index_bytes`` allow: a cleaned segment has no dense run of offsets to guess by. When it is
finished, everything is durable except its names. This module does not know which records are kept and why.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable

from logstore.errors import StorageError
from logstore.files import File, Files
from logstore.format.header import BatchHeader
from logstore.format.index import AbortedTransactions, encode_aborted_transaction
from logstore.format.layout import TIME_INDEX_ENTRY
from logstore.format.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.model import AbortedTransaction, Bytes
from logstore.partition.segments.indexes import IndexBuilder

_KINDS = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)
"""The log comes last: as long as it has its ``.cleaned`` name, the output is unfinished."""


class CleanedSegment:
    """One output, while it is written."""

    def __init__(
        self, files: Files, directory: str, base_offset: int, *, index_limit_bytes: int, expected_bytes: int
    ) -> None:
        """``expected_bytes``: how large the log may become. The indexes must have room for that."""
        self.base_offset = base_offset
        self.size_bytes = self.written_bytes = 0
        self._files = files
        self._directory = directory
        self._waiting: list[Bytes] = []
        self._aborted: list[AbortedTransaction] = []
        self._indexes = IndexBuilder.empty(
            files,
            (self._path_of(INDEX_SUFFIX), self._path_of(TIME_INDEX_SUFFIX)),
            base_offset,
            _interval_bytes(index_limit_bytes, expected_bytes),
            index_limit_bytes,
        )
        self._indexes.clear()
        self._log = self._create()

    def _path_of(self, kind: str) -> str:
        return f"{self._directory}/{segment_file_name(self.base_offset, kind)}{CLEANED_SUFFIX}"

    def _create(self) -> File:
        try:
            log = self._files.open(self._path_of(LOG_SUFFIX), create=True)
            log.truncate(0)
        except StorageError:
            with contextlib.suppress(StorageError):
                self.remove()
            raise
        return log

    def add(self, batches: Iterable[BatchHeader], data: Bytes) -> None:
        """Append batches; ``data`` holds them one after the other. It must not change until :meth:`write`."""
        position = self.size_bytes
        for header in batches:
            self._indexes.add(header, position)
            position += header.size_bytes
        self.size_bytes = position
        self._waiting.append(data)

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Note aborted transactions whose markers were added, in their order."""
        self._aborted += aborted

    def write(self) -> None:
        """Write the added batches in one piece."""
        if self._waiting:
            self._log.write_at(self.written_bytes, self._waiting)
            self._waiting, self.written_bytes = [], self.size_bytes

    def finish(self, modified_ms: int) -> list[str]:
        """Write the rest and make all files durable, the log with this modification time: retention uses it
        if no record has a timestamp. Returns the kinds of the files, the log last."""
        self.write()
        self._indexes.close()
        self._indexes.offset_index.store(flush=True)
        self._indexes.time_index.store(flush=True)
        if self._aborted:
            self._store_aborted()
        self._files.set_modified_ms(self._path_of(LOG_SUFFIX), modified_ms)
        self._log.flush()
        self._log.close()
        return [kind for kind in _KINDS if self._aborted or kind != TRANSACTION_INDEX_SUFFIX]

    def _store_aborted(self) -> None:
        entries = AbortedTransactions(sorted(set(self._aborted), key=lambda entry: entry.last_offset))
        file = self._files.open(self._path_of(TRANSACTION_INDEX_SUFFIX), create=True)
        try:
            file.truncate(0)
            file.write_at(0, [b"".join(map(encode_aborted_transaction, entries))])
            file.flush()
        finally:
            file.close()

    def remove(self) -> None:
        """Remove its files. If the disk refuses, the next swap or the next open removes them."""
        failure: StorageError | None = None
        for kind in _KINDS:
            try:
                self._files.remove(self._path_of(kind))
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    failure = failure or error
        if failure is not None:
            raise failure


def _interval_bytes(index_limit_bytes: int, expected_bytes: int) -> int:
    """The index interval: smaller than a batch, so that each gets an entry, if the indexes have room."""
    return expected_bytes // max(index_limit_bytes // TIME_INDEX_ENTRY.size_bytes - 1, 1)
