"""What a log must hold, by its writer's memory or by its checkpoints: what a check holds its files against.

Values only. Who knows them makes them: :mod:`~logstore.partition.checking.facts_of_writer` and
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
    """A segment as it is to be."""

    base_offset: int
    next_base: int | None
    """Of the next segment; None of the last."""
    size_bytes: int | None
    """Of its batches; None: of the file."""
    offset_index: IndexEntries | None = None
    """Where the writer has it in memory; None: as the file has it."""
    time_index: IndexEntries | None = None
    alone: LoneNames | None = None
    """The files of a segment that is no part of a log, or not looked at as one: nobody knows whether it is
    sealed, nor whether a file that is not there ever was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFacts:
    """What a log must hold."""

    files: Files
    directory: str
    segments: Sequence[SegmentToCheck]
    log_bytes: int
    """Of the .log files."""
    names: Names
    """The files of the directory that belong to segments."""
    log_start_offset: int
    log_end_offset: int | None
    """None: what the files say."""
    recovery_point: int
    trusted_end: int
    """Below it everything is durable and must be right, indexes and snapshots too: EVERYTHING for what a
    writer has open or closed cleanly, else the recovery point."""
    dense_from: int | None
    """From here on a gap means loss; None: never."""
    notes_gaps: bool
    """Whether a gap is worth a note: not where compaction leaves them."""
    index_interval_bytes: int
    index_limit_bytes: int
    deleted_below: int = 0
    """Below it somebody has deleted the log, by the stored log start."""
    swapped: frozenset[str] = frozenset()
    """The names of those files that count as segments already and have not got their plain names yet."""
    epochs: LeaderEpochs | None
    """None: unknown."""
    epochs_complete_to: int = EVERYTHING
    """From there on batches may have newer epochs: a writer stores those with its next checkpoint."""
    producers: Mapping[int, ProducerState] | None
    """As they are in memory; None: nobody has them."""
    late_producers: Sequence[int] | None = ()
    """Whose transactions should have ended; None: what the batches say."""
    findings: Sequence[Finding] = ()
    """What is wrong with these facts themselves."""
    stamp: object
    """Another one when something that was there may be there no more."""
