"""Splits a segment whose offsets are out of reach of its 32-bit indexes (KAFKA-6264: very old brokers could
write one when a compacted topic's offsets had wide gaps).

The outputs replace the segment by the steps described in :mod:`~logstore.partition.recovery.leftovers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from logstore.errors import CorruptionError
from logstore.files import File, Files
from logstore.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET
from logstore.partition.segments.segment import Segment
from logstore.partition.segments.walk import PIECE_BYTES, Walk


def split_segment(files: Files, directory: str, base_offset: int) -> list[int]:
    """Split a segment into several whose offsets fit, and return their base offsets.

    Batches keep their bytes. The indexes of the outputs are built when they are first used.

    Raises:
        CorruptionError: the segment cannot be walked to its end.
    """
    bases = _write_outputs(files, directory, base_offset)
    _rename_each(files, directory, bases[::-1], CLEANED_SUFFIX, SWAP_SUFFIX)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX):
        path = f"{directory}/{segment_file_name(base_offset, suffix)}"
        if files.is_file(path):
            files.rename(path, path + DELETED_SUFFIX)
    files.flush_directory(directory)
    _rename_each(files, directory, bases, SWAP_SUFFIX, "")
    return bases


def _rename_each(files: Files, directory: str, bases: list[int], old: str, new: str) -> None:
    """Rename one after the other, each durable before the next: a finished replacement is told from an
    unfinished one by this order."""
    for base in bases:
        path = f"{directory}/{segment_file_name(base, LOG_SUFFIX)}"
        files.rename(path + old, path + new)
        files.flush_directory(directory)


def _write_outputs(files: Files, directory: str, base_offset: int) -> list[int]:
    """Write the new segments, and return their base offsets. The first has the old segment's base, even if it
    stays empty, so that no offset is left without a segment."""
    source = files.open(f"{directory}/{segment_file_name(base_offset, LOG_SUFFIX)}")
    size = source.size_bytes()
    bases = [base_offset]
    output = _begin(files, directory, base_offset)
    output_size = 0
    walk = Walk(source.read_at, 0, size, check=True, piece_bytes=PIECE_BYTES)
    for piece in walk:
        for position, header in piece.batches:
            if header.last_offset - bases[-1] > MAX_RELATIVE_OFFSET:
                _finish(output)
                bases.append(header.base_offset)
                output = _begin(files, directory, bases[-1])
                output_size = 0
            output.write_at(output_size, [memoryview(piece.buffer)[position : position + header.size_bytes]])
            output_size += header.size_bytes
    _finish(output)
    if walk.position < size:
        fault = walk.fault or CorruptionError("the last batch is incomplete", position=walk.position)
        raise fault.located(source.path)
    files.flush_directory(directory)
    return bases


def _begin(files: Files, directory: str, base: int) -> File:
    file = files.open(f"{directory}/{segment_file_name(base, LOG_SUFFIX)}{CLEANED_SUFFIX}", create=True)
    file.truncate(0)
    return file


def _finish(output: File) -> None:
    output.flush()
    output.close()


def find_overflow(files: Files, bases: Sequence[int], sealed: Callable[[int], Segment]) -> int | None:
    """The base of a sealed segment with offsets out of its indexes' reach, as of old brokers; or None."""
    for base, next_base in pairwise(bases):
        may_overflow = next_base - base - 1 > MAX_RELATIVE_OFFSET  # else the names tell that it does not
        if may_overflow and _last_offset(files, sealed(base)) - base > MAX_RELATIVE_OFFSET:
            return base
    return None


def _last_offset(files: Files, segment: Segment) -> int:
    last = segment.base_offset - 1
    file = files.open(segment.path)
    for piece in Walk(file.read_at, 0, file.size_bytes(), check=False, piece_bytes=PIECE_BYTES):
        last = piece.batches[-1][1].last_offset
    file.close()
    return last
