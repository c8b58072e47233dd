"""Staged files: batches that a task has encoded, on their way into the logs.

A task writes one file into the store's directory, batch after batch as they become ready, each for some
partition. Until a commit adopts them they have no offsets and no leader epoch; the place of the epoch, which
no checksum covers, says for which of the file's targets a batch is. A broker that opens the directory ignores
files, and so does logstore. Knows no topics' rules and no commits.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from logstore.errors import CorruptionError, StorageError
from logstore.files import File, Files, let_go
from logstore.format import checksum
from logstore.format.batch import NewBatch, decode_header, place_batch
from logstore.format.header import HEADER_BYTES, BatchHeader
from logstore.spark.flush_ahead import FlushAhead

STAGED_SUFFIX: Final = ".staged"
PIECE_BYTES: Final = 1024 * 1024
"""What reading a staged file takes in memory, unless one batch is larger. It stays in the cache of a core on
its way from file to checksum to log: with 8 MiB, reading and checking takes 1.4 times as long."""

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
    """Writes one staged file. It is made with the first batch, so a task without rows leaves none."""

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self._files = files
        self._path = f"{directory}/{name}"
        self._name = name
        self._file: File | None = None
        self._ahead = FlushAhead(self._flush)
        self._size_bytes = 0
        self._checksum = 0
        self._numbers: dict[Target, int] = {}
        self._counts: list[list[int]] = []

    def append(self, target: Target, batches: Sequence[NewBatch]) -> None:
        """Write encoded batches, at base offset 0 each, for a partition.

        Raises:
            StorageError: the disk refused; the file is of no use then.
        """
        if not batches:
            return
        if self._file is None:
            self._file = self._files.open(self._path, create=True)
        number = self._numbers.setdefault(target, len(self._numbers))
        if number == len(self._counts):
            self._counts.append([0, 0])
        counts = self._counts[number]
        for batch in batches:
            header = place_batch(batch, 0, number)
            self._checksum = checksum.crc32c(memoryview(batch)[:HEADER_BYTES], self._checksum)
            counts[0] += 1
            counts[1] += header.record_count
        self._file.write_at(self._size_bytes, batches)
        size_bytes = sum(map(len, batches))
        self._size_bytes += size_bytes
        self._ahead.note(size_bytes)

    def _flush(self) -> None:
        assert self._file is not None
        self._file.flush()

    def finish(self) -> StagedFile | None:
        """Make the contents durable; the name becomes so by the commit. None if nothing was written."""
        if self._file is None:
            return None
        self._ahead.finish()
        self._file.close()
        parts = [
            StagedPart(target, *counts) for target, counts in zip(self._numbers, self._counts, strict=True)
        ]
        return StagedFile(self._name, self._size_bytes, self._checksum, tuple(parts))

    def discard(self) -> None:
        """Remove the file, as far as the disk lets; what is left goes with later commits."""
        if self._file is not None:
            self._ahead.stop()
            with contextlib.suppress(StorageError):
                self._file.close()
            with contextlib.suppress(StorageError):
                self._files.remove(self._path)


class StagedBatch(NamedTuple):
    """One batch in memory, which may be changed."""

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
            raise self._damage(f"checksum {self._checksum:#010x} is not {self._staged.checksum:#010x}", 0)
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
            self._note(header, buffer[at : at + HEADER_BYTES], position + at)
            batches.append(StagedBatch(header.partition_leader_epoch, header.record_count, buffer[at:end]))
            at = end
        return batches, at, max(PIECE_BYTES, HEADER_BYTES)

    def _note(self, header: BatchHeader, encoded: memoryview, position: int) -> None:
        number = header.partition_leader_epoch
        if not 0 <= number < len(self._counts):
            raise self._damage(f"has a batch for target {number} of {len(self._counts)}", position)
        self._counts[number][0] += 1
        self._counts[number][1] += header.record_count
        self._checksum = checksum.crc32c(encoded, self._checksum)

    def _damage(self, reason: str, position: int) -> CorruptionError:
        return CorruptionError(reason, path=self._path, position=position)
