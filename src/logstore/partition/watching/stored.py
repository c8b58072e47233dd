"""The stored state of a log besides its records. Values only; a read-only log makes them."""

from __future__ import annotations

from dataclasses import dataclass

from logstore.format.checkpoint import EpochEntry
from logstore.format.snapshot import ProducerSnapshotEntry
from logstore.model import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredState:
    """The stored state of one log at one moment. None for checkpoints that are not stored."""

    role: Role
    recovery_point: int | None
    """Everything below it was durable at the last checkpoint."""
    log_start_offset: int | None
    """Stored only if records were deleted."""
    high_watermark: int | None
    cleaner_offset: int | None
    """The log was compacted below it."""
    epochs: tuple[EpochEntry, ...]
    """The stored history of leader epochs, oldest first."""
    producers: tuple[ProducerSnapshotEntry, ...]
    """The producers at the end of the log, as a writer would know them after opening it."""
    segments: tuple[tuple[str, int], ...]
    """Path and bytes of each ``.log`` file, oldest first."""
