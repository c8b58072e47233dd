"""Staged files: batches that a task has encoded and that are not in a log yet.

A task writes files into the store's directory, batch after batch as they become ready: one file for each
partition that begins with much data, and one for all others. Until a commit adopts them the batches have no
offsets and no leader epoch; the field of the epoch, which no checksum covers, says for which of the file's
targets a batch is. A commit may place the batches of a file with one target directly in it, to make it a
segment; a later reader still recovers what the task wrote. Brokers ignore files in their directory, and so
does logstore. Knows nothing of topics' rules or commits.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from logstore.errors import CorruptionError, StorageError
from logstore.files import File, Files
from logstore.format import checksum
from logstore.format.batch import NewBatch, check_batch, decode_header, place_batch, reseal_batch
from logstore.format.header import HEADER_BYTES, MAGIC, BatchHeader
from logstore.large_files import let_go
from logstore.partition.state.home import STAGED_SUFFIX
from logstore.spark.flush_ahead import FlushAhead
from logstore.warning import inform

PIECE_BYTES: Final = 1024 * 1024
"""The memory for reading a staged file, unless a batch is larger. A piece stays in a core's cache from file
to checksum to log: with 8 MiB, reading and checking takes 1.4 times as long."""
OWN_FILE_BYTES: Final = 1024 * 1024
"""A partition gets its own file if its first batches have this many bytes: then more will follow."""
MOST_OWN_FILES: Final = 8
"""How many partitions of a task may have their own files. Each costs a flush at the task's end."""
MOST_OPEN_FILES: Final = 2 * MOST_OWN_FILES
"""How many files a task may have open. Full files stay open until they are flushed."""

_NAME = re.compile(r"spark-(?P<sink>[0-9a-f]{16})-(?P<batch>[0-9]+)-[0-9]+-[0-9a-f]{16}\.staged")


class Target(NamedTuple):
    """A partition to write to. The topic's id distinguishes it from a later topic of the same name."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class StagedPart(NamedTuple):
    """The contents of a staged file for one partition."""

    target: Target
    batch_count: int
    record_count: int


class StagedFile(NamedTuple):
    """What a task reports to the commit about a file."""

    name: str
    size_bytes: int
    checksum: int
    """CRC-32C of all batch headers, which have the checksums of the rest."""
    parts: tuple[StagedPart, ...]
    """The parts, by their numbers in the file."""


def staged_name(sink: str, batch_id: int, task: int) -> str:
    """A new name for a file of one attempt of a task."""
    return f"{_prefix(sink)}{batch_id}-{task}-{secrets.token_hex(8)}{STAGED_SUFFIX}"


def _prefix(sink: str) -> str:
    return f"spark-{hashlib.sha256(sink.encode()).hexdigest()[:16]}-"


def is_staged_name(name: str) -> bool:
    """Whether a file of this name is a staged one."""
    return _NAME.fullmatch(name) is not None


def staged_among(names: Iterable[str], sink: str, *, up_to: int) -> dict[str, bool]:
    """The staged files among files of these names, and whether each is of a sink's batch up to ``up_to``."""
    prefix, found = _prefix(sink), filter(None, map(_NAME.fullmatch, names))
    return {each[0]: each[0].startswith(prefix) and int(each["batch"]) <= up_to for each in found}


class StagedWriter:
    """Writes the staged files of a task; none if the task has no rows."""

    def __init__(self, files: Files, directory: str, new_name: Callable[[], str]) -> None:
        """``new_name`` returns the name of the next file, a different one each time."""
        self._files = files
        self._directory = directory
        self._new_name = new_name
        self._ahead = FlushAhead(self._flush)
        self._written: list[_StagedFileWriter] = []
        self._shared: _StagedFileWriter | None = None
        self._own: dict[Target, _StagedFileWriter] = {}

    def append(self, target: Target, batches: Sequence[NewBatch], segment_bytes: int) -> None:
        """Write encoded batches, each at base offset 0, for a partition whose segments have at most
        ``segment_bytes``.

        Raises:
            StorageError: the disk failed; the files are then useless.
        """
        if not batches:
            return
        size_bytes = sum(map(len, batches))
        self._writer_for(target, size_bytes, segment_bytes).append(target, batches, size_bytes)
        self._ahead.note(size_bytes)

    def _writer_for(self, target: Target, size_bytes: int, segment_bytes: int) -> _StagedFileWriter:
        own = self._own.get(target)
        if own is not None and own.size_bytes + size_bytes <= segment_bytes:
            return own
        if own is not None or self._gets_own(target, size_bytes):
            if own is not None:
                own.is_full = True
            self._own[target] = self._new_writer()
            return self._own[target]
        if self._shared is None:
            self._shared = self._new_writer()
        return self._shared

    def _gets_own(self, target: Target, size_bytes: int) -> bool:
        is_first = self._shared is None or not self._shared.has(target)
        return is_first and size_bytes >= OWN_FILE_BYTES and len(self._own) < MOST_OWN_FILES

    def _new_writer(self) -> _StagedFileWriter:
        if sum(not writer.is_closed for writer in self._written) >= MOST_OPEN_FILES:
            self._ahead.stop()
            self._flush()
        writer = _StagedFileWriter(self._files, self._directory, self._new_name())
        self._written.append(writer)
        return writer

    def _flush(self) -> None:
        for writer in list(self._written):
            writer.flush()

    def finish(self) -> list[StagedFile]:
        """Make the contents durable; the commit makes the names durable. Returns the files; a target's
        batches are in the order of the files, and in the order within each file."""
        self._ahead.finish()
        return [writer.finish() for writer in self._written]

    def discard(self) -> None:
        """Remove the files, as far as the disk allows; later commits remove the rest."""
        self._ahead.stop()
        for writer in self._written:
            writer.discard()
        if self._written:
            inform(
                "%s: removed %d staged files, %d bytes: their task failed",
                self._directory,
                len(self._written),
                sum(writer.size_bytes for writer in self._written),
            )


class _StagedFileWriter:
    """Writes one file."""

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self._files = files
        self._path = f"{directory}/{name}"
        self._name = name
        self._file = files.open(self._path, create=True)
        self._is_flushed = False
        self.is_full = False
        """Whether the file gets no more batches; it is then closed when it is flushed."""
        self.is_closed = False
        self.size_bytes = 0
        self._checksum = 0
        self._numbers: dict[Target, int] = {}
        self._counts: list[list[int]] = []

    def has(self, target: Target) -> bool:
        return target in self._numbers

    def append(self, target: Target, batches: Sequence[NewBatch], size_bytes: int) -> None:
        number = self._numbers.setdefault(target, len(self._numbers))
        if number == len(self._counts):
            self._counts.append([0, 0])
        counts = self._counts[number]
        for batch in batches:
            header = place_batch(batch, 0, number)
            self._checksum = checksum.crc32c(memoryview(batch)[:HEADER_BYTES], self._checksum)
            counts[0] += 1
            counts[1] += header.record_count
        self._file.write_at(self.size_bytes, batches)
        self._is_flushed = False  # last: a flush may have begun before the write, and ended
        self.size_bytes += size_bytes

    def flush(self) -> None:
        if not self._is_flushed:
            self._is_flushed = True  # first: what is written meanwhile may not be flushed
            self._file.flush()
        if self.is_full and self._is_flushed:  # in this order: the last write came before is_full
            self._close()

    def _close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._file.close()

    def finish(self) -> StagedFile:
        self._close()
        parts = [
            StagedPart(target, *counts) for target, counts in zip(self._numbers, self._counts, strict=True)
        ]
        return StagedFile(self._name, self.size_bytes, self._checksum, tuple(parts))

    def discard(self) -> None:
        with contextlib.suppress(StorageError):
            self._close()
        with contextlib.suppress(StorageError):
            self._files.remove(self._path)


class StagedBatch(NamedTuple):
    """One batch in memory; the memory may be changed."""

    position: int
    """Where the batch begins in the file."""
    number: int
    """The number of its target in the file."""
    record_count: int
    batch: memoryview


def read_staged(
    files: Files, directory: str, staged: StagedFile, *, lets_go: bool = False
) -> Iterator[list[StagedBatch]]:
    """The batches of a staged file in order, in pieces of about ``PIECE_BYTES``. A piece is valid until you
    ask for the next one, which reuses its memory. Records are not checked; at the end it is checked that the
    file has exactly the batches that the task wrote. With ``lets_go`` a piece does not stay in the system's
    cache either.

    The batches of a file with one target are returned as the task wrote them, even if a commit has since
    changed their places, fully or in part: the task left these fields empty, and the checksums follow from
    the rest. If a batch's checksum is wrong, its place or its records may be damaged. Before such a batch is
    returned, all headers are restored and compared with the checksum that the task reported.

    Raises:
        StorageError: the file does not exist, or cannot be read.
        CorruptionError: it is not what the task wrote.
    """
    path = f"{directory}/{staged.name}"
    file = files.open(path)
    try:
        yield from _Reading(file, path, staged, lets_go).pieces()
    finally:
        file.close()


class _Reading:
    def __init__(self, file: File, path: str, staged: StagedFile, lets_go: bool) -> None:
        self._lets_go = lets_go
        self._file = file
        self._path = path
        self._staged = staged
        self._checksum = 0
        self._counts = [[0, 0] for _ in staged.parts]
        self._room = memoryview(b"")
        self._is_one_target = len(staged.parts) == 1
        self._is_trial = False
        """Whether this is only a check, whose batches are not used."""
        self._first_odd: int | None = None
        """The position of the first batch with a wrong checksum."""

    def pieces(self) -> Iterator[list[StagedBatch]]:
        size = self._file.size_bytes()
        if size != self._staged.size_bytes:
            raise self._damage(f"has {size} bytes; the task wrote {self._staged.size_bytes}", 0)
        position, wanted = 0, PIECE_BYTES
        while position < size:
            buffer = self._buffer(min(wanted, size - position))
            if self._file.read_into(position, buffer) != len(buffer):
                raise self._damage("became shorter while it was read", position)
            batches, used, wanted = self._split(buffer, position)
            if not used and position + len(buffer) == size:
                raise self._damage("ends inside a batch", position)
            position += used
            if batches:
                yield batches
            if self._lets_go:
                let_go(self._file, position)
        if self._checksum != self._staged.checksum:
            reason = f"checksum {self._checksum:#010x} is not {self._staged.checksum:#010x}"
            if self._first_odd is not None:
                reason += f"; the first batch whose own checksum is wrong begins at {self._first_odd}"
            raise self._damage(reason, self._first_odd or 0)
        for part, counts in zip(self._staged.parts, self._counts, strict=True):
            if [part.batch_count, part.record_count] != counts:
                raise self._damage(f"has (batches, records) {counts} for {part.target}", 0)

    def _buffer(self, size_bytes: int) -> memoryview:
        if len(self._room) < size_bytes:
            self._room = memoryview(bytearray(size_bytes))
        return self._room[:size_bytes]

    def _split(self, buffer: memoryview, position: int) -> tuple[list[StagedBatch], int, int]:
        """The whole batches in the buffer, their size together, and how much to read next."""
        batches: list[StagedBatch] = []
        at = 0
        while at + HEADER_BYTES <= len(buffer):
            try:
                header = decode_header(buffer, at)
            except CorruptionError as fault:
                raise self._damage(fault.reason, position + at) from None
            end = at + header.size_bytes
            if end > len(buffer):
                return batches, at, max(PIECE_BYTES, header.size_bytes)
            if self._is_one_target:
                header = self._restored(header, buffer[at:end], position + at)
            self._note(header, buffer[at : at + HEADER_BYTES], position + at)
            number = header.partition_leader_epoch
            batches.append(StagedBatch(position + at, number, header.record_count, buffer[at:end]))
            at = end
        return batches, at, max(PIECE_BYTES, HEADER_BYTES)

    def _restored(self, header: BatchHeader, batch: memoryview, position: int) -> BatchHeader:
        if header.magic != MAGIC:
            return header
        is_odd = False
        try:
            check_batch(batch, 0, header)
        except CorruptionError:
            is_odd = True
            self._note_odd(position)
        without_place = header._replace(
            base_offset=0, partition_leader_epoch=0, producer_id=-1, producer_epoch=-1, base_sequence=-1
        )
        return reseal_batch(batch, without_place) if is_odd or header != without_place else header

    def _note_odd(self, position: int) -> None:
        """
        Raises:
            CorruptionError: more than places is damaged, here or elsewhere.
        """
        if self._first_odd is None:
            self._first_odd = position
            if not self._is_trial:
                trial = _Reading(self._file, self._path, self._staged, self._lets_go)
                trial._is_trial = True
                for _ in trial.pieces():
                    pass

    def _note(self, header: BatchHeader, encoded: memoryview, position: int) -> None:
        number = header.partition_leader_epoch
        if not 0 <= number < len(self._counts):
            raise self._damage(f"has a batch for target {number} of {len(self._counts)}", position)
        self._counts[number][0] += 1
        self._counts[number][1] += header.record_count
        self._checksum = checksum.crc32c(encoded, self._checksum)

    def _damage(self, reason: str, position: int) -> CorruptionError:
        return CorruptionError(reason, path=self._path, position=position)
