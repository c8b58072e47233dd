"""Arguments and results of the compiled run over batches, which recovery uses.

The run checks and indexes ordinary batches without an object per batch. The tuples of ints have the order of
the C structures. :mod:`logstore.partition.recovery.loader` and :mod:`logstore.partition.segments.indexes`
explain what the fields decide; the run follows their plain code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class RunRules(NamedTuple):
    """The values that do not change during a run."""

    base_offset: int
    """The base offset of the segment."""
    dense_from: int
    """From this offset on a gap in the offsets means loss; -1 if it never does."""
    latest_epoch: int
    """The run ends before a batch of a newer leader epoch."""
    interval_bytes: int
    """Bytes of log between two index entries."""


class IndexProgress(NamedTuple):
    """How far a segment's indexes are filled."""

    bytes_since_entry: int
    largest_timestamp_ms: int
    largest_timestamp_offset: int
    least_offset: int
    """The lowest offset that the next offset index entry may have."""
    offset_room: int
    """How many entries still fit into the offset index; ``time_room``: into the time index."""
    time_room: int
    last_time_ms: int
    """Timestamp and offset of the last time index entry; -1 and the base offset if there is none."""
    last_time_offset: int


class RunPlace(NamedTuple):
    """How far a run has come in the file."""

    end_offset: int
    """The offset after the last batch."""
    gap_position: int
    """Where the last batch begins in the file."""
    gap_offset: int
    """The end offset before the last batch if there is a gap before it, else -1."""
    producer_position: int
    """Where the first batch with a producer begins in the file, -1 if none had one."""


class Run(NamedTuple):
    """The result of one run."""

    stop: int
    """Where it ended in the buffer."""
    place: RunPlace
    progress: IndexProgress
    offset_entries: bytes
    """The bytes to append to the offset index; ``time_entries``: to the time index."""
    time_entries: bytes


class IndexRun(Protocol):
    """The run over buffer[position:end]; ``position`` corresponds to ``file_position`` in the file.

    It ends before the first batch that is cut, damaged, or needs more than being indexed. None for numbers
    that are out of range. Releases the GIL: two runs use two cores.
    """

    def __call__(
        self,
        buffer: ReadableBuffer,
        position: int,
        end: int,
        file_position: int,
        rules: RunRules,
        place: RunPlace,
        progress: IndexProgress,
    ) -> Run | None: ...
