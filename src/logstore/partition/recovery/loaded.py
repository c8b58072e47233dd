"""A partition as recovery has loaded it, and what that found and did. Knows nothing of how."""

from __future__ import annotations

from dataclasses import dataclass, field

from logstore.model import Role
from logstore.partition.segments.active import ActiveSegment
from logstore.partition.segments.segment import Segment
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.producer_state import ProducerStates


@dataclass(slots=True)
class RecoveryReport:
    """What opening a partition found and did."""

    was_clean: bool
    scanned_bytes: int = 0
    recovered_segments: int = 0
    cut_bytes: int = 0
    kept_aside: list[str] = field(default_factory=list)
    """The files with the bytes that were cut."""
    split_segments: int = 0
    lost_segments: list[int] = field(default_factory=list)
    """The base offsets of segments that are missing between others: their indexes are there."""

    def _repr_html_(self) -> str:
        """The view in a notebook: the fields that are not 0 or empty."""
        from logstore.showing import show_report  # few programs get here

        return show_report(self)


@dataclass(slots=True)
class LoadedLog:
    """A partition as it was loaded."""

    segments: list[Segment]
    """Ascending; the last is the active one."""
    log_start_offset: int
    log_end_offset: int
    producers: ProducerStates
    epochs: LeaderEpochs
    report: RecoveryReport
    is_settled: bool
    """Whether all of it is durable. Otherwise the caller must make it so, and store a checkpoint."""
    is_new: bool
    """Whether its last segment was just created."""
    high_watermark: int | None
    """The stored one."""
    snapshots: list[int]
    """The offsets of the producer snapshots that were found, and are there."""
    has_failed_flush: bool
    """Whether an earlier flush had failed: all that was read is written anew, and still to be flushed."""
    role: Role
    cuts: tuple[tuple[int, int], ...]
    """See :class:`.Truncations`."""
    may_have_gaps: bool = False
    """Whether a gap in its offsets cannot be told from a loss: see :meth:`LogCore.roll`."""
    leader_epoch: int = 0
    """In which it goes on."""

    @property
    def active(self) -> ActiveSegment:
        active = self.segments[-1]
        assert isinstance(active, ActiveSegment)
        return active
