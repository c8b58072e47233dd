"""The facts against which a check compares a log's files: from its writer's memory or from its checkpoints.

Values only. They are made by :mod:`~logstore.partition.checking.facts_of_writer` and
:mod:`~logstore.partition.checking.facts_of_files`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from logstore.files import Files
from logstore.partition.checking.findings import Finding
from logstore.partition.recovery.leftovers import Names
from logstore.partition.segments.indexes import IndexEntries
from logstore.partition.segments.lone import LoneNames
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.producer_state import ProducerState

EVERYTHING: Final = 2**63 - 1
"""A ``trusted_end`` above all offsets."""


class SegmentToCheck(NamedTuple):
    """A segment as it should be."""

    base_offset: int
    next_base: int | None
    """The base offset of the next segment; None for the last."""
    size_bytes: int | None
    """The size of its batches; None means the size of the file."""
    offset_index: IndexEntries | None = None
    """The index in the writer's memory; None means as in the file."""
    time_index: IndexEntries | None = None
    alone: LoneNames | None = None
    """The files of a segment that is checked without its log: whether it is sealed, and whether a missing
    file ever existed, is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFacts:
    """What a log must hold."""

    files: Files
    directory: str
    segments: Sequence[SegmentToCheck]
    log_bytes: int
    """The size of the .log files."""
    names: Names
    """The files of the directory that belong to segments."""
    log_start_offset: int
    log_end_offset: int | None
    """None means what the files say."""
    recovery_point: int
    trusted_end: int
    """Below it everything is durable and must be right, including indexes and snapshots. It is EVERYTHING for
    a log that a writer has open or closed cleanly, otherwise the recovery point."""
    dense_from: int | None
    """From here on a gap means loss; None means never."""
    notes_gaps: bool
    """Whether a gap is worth a note. False if compaction leaves gaps."""
    index_interval_bytes: int
    index_limit_bytes: int
    deleted_below: int = 0
    """Records below it were deleted, by the stored log start."""
    swapped: frozenset[str] = frozenset()
    """The names of the files that count as segments but do not have their plain names yet."""
    epochs: LeaderEpochs | None
    """None if unknown."""
    epochs_complete_to: int = EVERYTHING
    """From this offset on batches may have newer epochs, which a writer stores with its next checkpoint."""
    producers: Mapping[int, ProducerState] | None
    """The producers in the writer's memory; None if there is no writer here."""
    late_producers: Sequence[int] | None = ()
    """The producers whose transactions should have ended; None means what the batches say."""
    findings: Sequence[Finding] = ()
    """Problems in these facts themselves."""
    stamp: object
    """Changes when something that was there may be gone."""
