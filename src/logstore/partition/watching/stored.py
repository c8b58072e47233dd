"""What the files of a log say of it besides its records. Values only; a read-only log makes them."""

from __future__ import annotations

from dataclasses import dataclass

from logstore.format.checkpoint import EpochEntry
from logstore.format.snapshot import ProducerSnapshotEntry
from logstore.model import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredState:
    """One log, as of one look. Of the checkpoints None is what is not stored."""

    role: Role
    recovery_point: int | None
    """Below it everything was durable at the last checkpoint."""
    log_start_offset: int | None
    """Stored where records were deleted."""
    high_watermark: int | None
    cleaner_offset: int | None
    """Below it the log was compacted."""
    epochs: tuple[EpochEntry, ...]
    """The stored history of leader epochs, oldest first."""
    producers: tuple[ProducerSnapshotEntry, ...]
    """At the end of the log: those that a writer would know after opening it."""
    segments: tuple[tuple[str, int], ...]
    """Path and bytes of each ``.log`` file, oldest first."""
