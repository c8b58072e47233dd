"""Staged files: batches that a task has encoded, on their way into the logs.

A task writes files into the store's directory, batch after batch as they become ready: one of its own for
each partition that begins with much, and one for all others. Until a commit adopts them they have no offsets
and no leader epoch; the place of the epoch, which no checksum covers, says for which of the file's targets a
batch is. A commit may place the batches of a file with one target right there, to make it a segment: whoever
reads it later finds out what the task wrote. A broker that opens the directory ignores files, and so does
logstore. Knows no topics' rules and no commits.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from logstore.errors import CorruptionError, StorageError
from logstore.files import File, Files, let_go
from logstore.format import checksum
from logstore.format.batch import NewBatch, check_batch, decode_header, place_batch, reseal_batch
from logstore.format.header import HEADER_BYTES, MAGIC, BatchHeader
from logstore.spark.flush_ahead import FlushAhead
from logstore.warning import inform

STAGED_SUFFIX: Final = ".staged"
PIECE_BYTES: Final = 1024 * 1024
"""What reading a staged file takes in memory, unless one batch is larger. It stays in the cache of a core on
its way from file to checksum to log: with 8 MiB, reading and checking takes 1.4 times as long."""
OWN_FILE_BYTES: Final = 1024 * 1024
"""A partition has a file of its own if its first batches have so many bytes: then there will be more."""
MOST_OWN_FILES: Final = 8
"""So many partitions of a task have files of their own: as many flushes at its end."""
MOST_OPEN_FILES: Final = 2 * MOST_OWN_FILES
"""Of a task: files that are full stay open until they are flushed, if that is not too long."""

_NAME = re.compile(r"spark-(?P<sink>[0-9a-f]{16})-(?P<batch>[0-9]+)-[0-9]+-[0-9a-f]{16}\.staged")


class Target(NamedTuple):
    """A partition to write to. The topic's id tells it from one that takes its name later."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class StagedPart(NamedTuple):
    """What a staged file holds for one partition."""

    target: Target
    batch_count: int
    record_count: int


class StagedFile(NamedTuple):
    """What a task tells the commit of its file."""

    name: str
    size_bytes: int
    checksum: int
    """CRC-32C of all batch headers, which hold the checksums of what is behind them."""
    parts: tuple[StagedPart, ...]
    """By their numbers in the file."""


def staged_name(sink: str, batch_id: int, task: int) -> str:
    """A new name for the file of one attempt of a task."""
    return f"{_prefix(sink)}{batch_id}-{task}-{secrets.token_hex(8)}{STAGED_SUFFIX}"


def _prefix(sink: str) -> str:
    return f"spark-{hashlib.sha256(sink.encode()).hexdigest()[:16]}-"


def is_staged_name(name: str) -> bool:
    """Whether a file of this name is a staged one."""
    return _NAME.fullmatch(name) is not None


def is_name_of(name: str, sink: str, *, up_to: int) -> bool:
    """Whether it is the name of a staged file of a sink, of a batch up to ``up_to``."""
    found = _NAME.fullmatch(name)
    return found is not None and name.startswith(_prefix(sink)) and int(found["batch"]) <= up_to


class StagedWriter:
    """Writes the staged files of a task; one without rows leaves none."""

    def __init__(self, files: Files, directory: str, new_name: Callable[[], str]) -> None:
        """``new_name``: the name of the next file, another one each time."""
        self._files = files
        self._directory = directory
        self._new_name = new_name
        self._ahead = FlushAhead(self._flush)
        self._written: list[_StagedFileWriter] = []
        self._shared: _StagedFileWriter | None = None
        self._own: dict[Target, _StagedFileWriter] = {}

    def append(self, target: Target, batches: Sequence[NewBatch], segment_bytes: int) -> None:
        """Write encoded batches, at base offset 0 each, for a partition whose segments have at most so many
        bytes.

        Raises:
            StorageError: the disk refused; the files are of no use then.
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
        """Make the contents durable; the names become so by the commit. A target's batches are in the files
        of this order, in theirs."""
        self._ahead.finish()
        return [writer.finish() for writer in self._written]

    def discard(self) -> None:
        """Remove the files, as far as the disk lets; what is left goes with later commits."""
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
        """Nothing more is written; it is closed when it is flushed."""
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
            self._is_flushed = True  # first: what is written meanwhile may not be
            self._file.flush()
        if self.is_full and self._is_flushed:  # in this order: the last write came before it was full
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
    """One batch in memory, which may be changed."""

    position: int
    """In the file."""
    number: int
    """Of the target in the file."""
    record_count: int
    batch: memoryview


def read_staged(
    files: Files, directory: str, staged: StagedFile, *, lets_go: bool = False
) -> Iterator[list[StagedBatch]]:
    """The batches of a staged file in their order, in pieces of about ``PIECE_BYTES``; each piece is good
    until the next is asked for, which takes its memory. Their records are not checked here; that the file is
    the one which the task wrote, batch by batch, is checked at the end. With ``lets_go`` a piece does not
    stay in the system's cache either.

    The batches of a file with one target are as the task wrote them, whatever was changed of their places
    since, also in part: these had no values then, and the checksums follow from the rest. Where a checksum
    does not hold, its place or its records may be at fault: then all headers are put right and held against
    the checksum that the task has told, before such a batch is given.

    Raises:
        StorageError: the file is not there, or cannot be read.
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
        """Nobody is given the batches."""
        self._first_odd: int | None = None
        """The first batch with a checksum that does not hold."""

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
                reason += f"; the first batch with a wrong one of its own begins at {self._first_odd}"
            raise self._damage(reason, self._first_odd or 0)
        for part, counts in zip(self._staged.parts, self._counts, strict=True):
            if [part.batch_count, part.record_count] != counts:
                raise self._damage(f"has (batches, records) {counts} for {part.target}", 0)

    def _buffer(self, size_bytes: int) -> memoryview:
        if len(self._room) < size_bytes:
            self._room = memoryview(bytearray(size_bytes))
        return self._room[:size_bytes]

    def _split(self, buffer: memoryview, position: int) -> tuple[list[StagedBatch], int, int]:
        """The whole batches in the buffer, the bytes that they take, and how much to read next."""
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
            CorruptionError: not only places are at fault, here or elsewhere.
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
