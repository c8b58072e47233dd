"""What recovery hands to the compiled run over batches, and gets back.

The run checks and indexes ordinary batches without an object per batch. The tuples of ints have the order of
the C structures; what the fields decide is written in :mod:`logstore.partition.recovery.loader` and
:mod:`logstore.partition.segments.indexes`, whose plain code the run follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class RunRules(NamedTuple):
    """What does not change during a run."""

    base_offset: int
    """Of the segment."""
    dense_from: int
    """From this offset on a gap in the offsets means loss; -1 if it never does."""
    latest_epoch: int
    """The run ends in front of a batch of a newer leader epoch."""
    interval_bytes: int
    """Of the indexes."""


class IndexProgress(NamedTuple):
    """Where the filling of a segment's indexes stands."""

    bytes_since_entry: int
    largest_timestamp_ms: int
    largest_timestamp_offset: int
    least_offset: int
    """The least that an offset index entry may have."""
    offset_room: int
    """Entries that still fit into the offset index."""
    time_room: int
    last_time_ms: int
    """Of the last time index entry: -1 and the base offset if there is none."""
    last_time_offset: int


class RunPlace(NamedTuple):
    """Where a run stands among the offsets."""

    end_offset: int
    """After the last batch."""
    gap_position: int
    """Where the last batch begins in the file."""
    gap_offset: int
    """The end offset before the last batch if there is a gap in front of it, else -1."""
    producer_position: int
    """Where the first batch with a producer begins in the file, -1 if none had one."""


class Run(NamedTuple):
    """The batches that one run went over."""

    stop: int
    """Where it ended in the buffer."""
    place: RunPlace
    progress: IndexProgress
    offset_entries: bytes
    """What comes to the end of the offset index, as it stands in the file."""
    time_entries: bytes


class IndexRun(Protocol):
    """The run over buffer[position:end], of which ``position`` lies at ``file_position`` in the file.

    It ends in front of the first batch that is not whole, sound, and of a kind to which nothing happens but
    being indexed. None for numbers that are out of range. Needs no GIL: two runs use two cores.
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
