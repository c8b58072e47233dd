"""The offset index and the time index of a segment, opened by path.

Lookups use entries read into memory, so that a disk that cannot read the file raises an error. Arrays of the
entries lie over the mapped file.
"""

from __future__ import annotations

import operator
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from logstore.arguments import check_flag, shown
from logstore.errors import ClosedError, CorruptionError, StorageError, UsageError
from logstore.files import File, Files, OsFiles, PathLike, check_path, parent_of
from logstore.format.index import (
    MAX_POSITION,
    OffsetPosition,
    TimestampOffset,
    check_offset_index,
    check_time_index,
    encode_offset_entry,
    encode_time_entry,
    find_offset,
    find_timestamp,
    offset_entry,
    time_entry,
    used_bytes,
)
from logstore.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Layout
from logstore.format.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, parse_segment_file_name
from logstore.model import BoundToProcess, how_to_make_int
from logstore.partition.arguments import check_offset
from logstore.partition.checking.findings import Finding, FindingKind, Findings, VerifyReport
from logstore.partition.segments.indexes import MAX_INDEX_BYTES

if TYPE_CHECKING:
    from numpy import int32, int64, void
    from numpy.typing import NDArray

_EntryT = TypeVar("_EntryT", OffsetPosition, TimestampOffset)


class _IndexFile(BoundToProcess, Generic[_EntryT]):
    """The common part of both indexes: a file of ascending entries of one size."""

    _layout: ClassVar[Layout]
    _suffix: ClassVar[str]
    _kind: ClassVar[FindingKind]

    def __init__(self, files: Files, path: str, base_offset: int, *, is_writable: bool, create: bool) -> None:
        """Use :meth:`open`."""
        self.path: str = path
        """Absolute path of the file."""
        self.base_offset: int = base_offset
        """The offset that the entries are relative to."""
        self.is_writable: bool = is_writable
        self._files = files
        self._file: File | None = files.open(path, write=is_writable, create=create)
        self._entries = self._read(self._file)
        self._array: NDArray[void] | None = None

    @classmethod
    def open(
        cls,
        path: PathLike,
        *,
        base_offset: int | None = None,
        writable: bool = False,
        create: bool = False,
        files: Files | None = None,
    ) -> Self:
        """Open an index file, to read it or to append entries.

        Zeros after the last entry are left out: a broker preallocates the indexes of the active segment at
        their full size, 10 MiB.

        Args:
            path: the index file.
            base_offset: the segment's, which the entries are relative to. Needed only if the file's name does
                not begin with it as 20 digits.
            writable: allow ``append``. Never for an index of an open log.
            create: also allow ``append``, and create the file if there is none.
            files: another file system, for tests.

        Cost: reading the file once. Its entries stay in memory: at most 10 MiB for a broker's.

        Raises:
            StorageError: there is no such file, or it may not be read: ``errno`` says which.
            CorruptionError: it does not consist of whole entries, is larger than 256 MiB, or is not a regular
                file.
            UsageError: ``path`` is not a path, ``base_offset`` is not an offset, or the base offset is not
                known.
        """
        files = files or OsFiles()
        is_new = check_flag(create, "create")
        is_writable = check_flag(writable, "writable") or is_new
        full_path = files.absolute(check_path(path, f"a file of index entries, {cls._suffix}"))
        if base_offset is None:
            parsed = parse_segment_file_name(full_path.rpartition("/")[2])
            if parsed is None:
                raise UsageError(f"the name of {full_path} does not say the base offset; give base_offset=")
            base_offset = parsed.base_offset
        check_offset(base_offset, "base_offset")
        return cls(files, full_path, base_offset, is_writable=is_writable, create=is_new)

    def close(self) -> None:
        """Close the file. Entries that were read, and arrays, stay usable."""
        self._file = self._array = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} of {len(self)} entries>"

    @property
    def _opened(self) -> File:
        if self._file is None:
            raise ClosedError(f"{self.path} is closed; open it again")
        return self._file

    def _read(self, file: File) -> bytearray:
        size_bytes = file.size_bytes()
        if size_bytes > MAX_INDEX_BYTES:
            raise CorruptionError(f"is larger than {MAX_INDEX_BYTES} bytes", path=self.path)
        data = file.read_at(0, size_bytes)
        if len(data) % self._layout.size_bytes:
            whole_bytes = len(data) - len(data) % self._layout.size_bytes
            raise CorruptionError(
                f"{len(data)} bytes are not whole entries of {self._layout.size_bytes}",
                path=self.path,
                position=whole_bytes,
            )
        return bytearray(memoryview(data)[: used_bytes(data, self._layout)])

    # Entries

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries) // self._layout.size_bytes

    def __getitem__(self, number: int) -> _EntryT:
        """An entry by its number; negative numbers count from the end."""
        try:
            return self._entry(range(len(self))[operator.index(number)])
        except TypeError:
            raise UsageError(f"an entry's number is {shown(number)}; it must be a whole number") from None

    def __iter__(self) -> Iterator[_EntryT]:
        return (self._entry(number) for number in range(len(self)))

    @abstractmethod
    def _entry(self, number: int) -> _EntryT: ...

    @property
    def entries(self) -> NDArray[void]:
        """All entries as one NumPy array over the mapped file: nothing is copied, and nothing read before it
        is used. The array is one-dimensional, structured and read-only, with big-endian fields as in the
        file.

        If the file becomes shorter, or the disk fails to read it, using the array ends the process (SIGBUS).
        Use :meth:`read_entries` where that may happen. Cost: mapping the file, the first time.

        Raises:
            CorruptionError: the file became shorter since it was opened.
            ClosedError: it is closed.
        """
        from logstore.format import entry_arrays  # numpy is slow to import

        file = self._opened
        if self._array is None or len(self._array) != len(self):
            mapped = file.map() if len(self) else b""
            if len(mapped) < len(self._entries):
                raise CorruptionError(f"became shorter than {len(self._entries)} bytes", path=self.path)
            self._array = entry_arrays.entries_of(mapped, self._layout, len(self))
        return self._array

    def read_entries(self) -> NDArray[void]:
        """Like :attr:`entries`, as a copy in memory."""
        from logstore.format import entry_arrays

        return entry_arrays.entries_of(bytes(self._entries), self._layout, len(self))

    @property
    def relative_offsets(self) -> NDArray[int32]:
        """The offsets relative to the base offset, as in the file: a column of :attr:`entries`, ``>i4``."""
        column: NDArray[int32] = self.entries["relative_offset"]
        return column

    @property
    def offsets(self) -> NDArray[int64]:
        """The absolute offsets, int64; computed at each access."""
        made: NDArray[int64] = self.relative_offsets.astype("int64")
        made += self.base_offset
        return made

    # Changes

    def _append(self, entry: bytes) -> None:
        file, size_bytes = self._opened, len(self._entries)
        if not self.is_writable:
            raise UsageError(f"{self.path} is open for reading; open it with writable=True")
        try:
            file.write_at(size_bytes, [entry])
        except StorageError:
            with suppress(StorageError):  # part of the entry may be there
                if size_bytes < file.size_bytes() < size_bytes + len(entry):
                    file.truncate(size_bytes)
            raise
        self._entries += entry

    def flush(self) -> None:
        """Make the appended entries durable, and the name of the file.

        Raises:
            StorageError: it failed; write the index again.
        """
        file = self._opened
        if self.is_writable:
            file.flush()
            self._files.flush_directory(parent_of(self.path))

    # Checks

    def check(self) -> VerifyReport:
        """Check that the entries ascend from the base offset on. The report is true if they do; else it names
        the first that does not. :meth:`.Segment.check` also checks that they lead to the right batches. Cost:
        2 ns for each entry."""
        started = time.monotonic()
        findings = Findings(partition_count=0)
        try:
            self._check_order()
        except CorruptionError as error:
            findings.problem(
                Finding(kind=self._kind, path=self.path, position=error.position, reason=error.reason)
            )
        return findings.report(int((time.monotonic() - started) * 1000))

    @abstractmethod
    def _check_order(self) -> None: ...


class OffsetIndex(_IndexFile[OffsetPosition]):
    """An offset index (``.index``). For some batches, about one in 4 KiB of log, it has the last offset and
    the position where the batch begins in the ``.log`` file.

    ::

        with logstore.OffsetIndex.open("orders-0/00000000000000368769.index") as index:
            print(len(index), index.lookup(400_000))
            gaps = numpy.diff(index.positions)

    ``len``, iteration and ``index[number]`` give the entries as ``(offset, position)``. The fields of
    :attr:`entries` are ``relative_offset`` and ``position``, both ``>i4``. An index is only a hint, which
    readers check against the log. One thread at a time may append; any may read.
    """

    _layout = OFFSET_INDEX_ENTRY
    _suffix = INDEX_SUFFIX
    _kind = FindingKind.OFFSET_INDEX

    def _entry(self, number: int) -> OffsetPosition:
        return offset_entry(self._entries, number, self.base_offset)

    @property
    def positions(self) -> NDArray[int32]:
        """Where the batches begin, in bytes: a column of :attr:`entries`, ``>i4``."""
        column: NDArray[int32] = self.entries["position"]
        return column

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset at or below ``offset``: the record is in that batch or after it.
        If there is none: the base offset and position 0. Cost: a binary search, 3 µs in 300,000 entries.

        Raises:
            UsageError: not a whole number.
            OffsetOutOfRangeError: negative, or beyond 64 bits.
        """
        return find_offset(self._entries, len(self), self.base_offset, check_offset(offset, "offset"))

    def append(self, offset: int, position: int) -> None:
        """Add an entry to the file: the batch that ends with ``offset`` begins at ``position`` bytes. Durable
        with :meth:`flush`.

        Raises:
            UsageError: the index was not opened with ``writable``; or offset or position is not a whole
                number, is not above the last entry's, or is more than 2^31 - 1 from the segment's beginning.
            StorageError: the entry could not be written; the file is as it was.
        """
        check_offset(offset, "offset")
        if type(position) is not int or not 0 <= position <= MAX_POSITION:
            raise UsageError(
                f"position is {shown(position)}; it must be a whole number, 0 to {MAX_POSITION}"
                + how_to_make_int(position)
            )
        if len(self):
            last = self[-1]
            if offset <= last.offset or position <= last.position:
                raise UsageError(f"({offset}, {position}) is not above {tuple(last)} ({self.path})")
        self._append(encode_offset_entry(self.base_offset, offset, position))

    def _check_order(self) -> None:
        check_offset_index(self._entries, len(self._entries), self.base_offset, as_arrays=True)


class TimeIndex(_IndexFile[TimestampOffset]):
    """A time index (``.timeindex``). For a growing largest timestamp, it has the last offset of the batch
    with that timestamp.

    ``len``, iteration and ``index[number]`` give the entries as ``(timestamp_ms, offset)``. The fields of
    :attr:`entries` are ``timestamp``, ``>i8``, and ``relative_offset``, ``>i4``. Otherwise like
    :class:`OffsetIndex`.
    """

    _layout = TIME_INDEX_ENTRY
    _suffix = TIME_INDEX_SUFFIX
    _kind = FindingKind.TIME_INDEX

    def _entry(self, number: int) -> TimestampOffset:
        return time_entry(self._entries, number, self.base_offset)

    @property
    def timestamps(self) -> NDArray[int64]:
        """The timestamps in milliseconds since the epoch: a column of :attr:`entries`, ``>i8``."""
        column: NDArray[int64] = self.entries["timestamp"]
        return column

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The entry with the largest timestamp at or below ``timestamp_ms``: up to its offset no record is
        later. If there is none: -1 and the base offset. Cost: a binary search.

        Raises:
            UsageError: not a whole number of milliseconds, 0 or above.
        """
        _check_timestamp(timestamp_ms)
        return find_timestamp(self._entries, len(self), self.base_offset, timestamp_ms)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry to the file: up to ``offset`` no timestamp is larger. Durable with :meth:`flush`.

        Raises:
            UsageError: the index was not opened with ``writable``; or an argument is not a whole number; or
                the timestamp is not above the last entry's; or the offset is below the last entry's, or more
                than 2^31 - 1 above the base offset.
            StorageError: the entry could not be written; the file is as it was.
        """
        _check_timestamp(timestamp_ms)
        check_offset(offset, "offset")
        if len(self):
            last = self[-1]
            if timestamp_ms <= last.timestamp_ms or offset < last.offset:
                raise UsageError(f"({timestamp_ms}, {offset}) is not above {tuple(last)} ({self.path})")
        self._append(encode_time_entry(self.base_offset, timestamp_ms, offset))

    def _check_order(self) -> None:
        check_time_index(self._entries, len(self._entries), self.base_offset, as_arrays=True)


def _check_timestamp(timestamp_ms: int) -> None:
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms < 2**63:
        raise UsageError(
            f"timestamp_ms is {shown(timestamp_ms)}; it must be whole milliseconds, 0 or above"
            + how_to_make_int(timestamp_ms)
        )
