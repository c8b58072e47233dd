"""What a backup reports, while it runs and at its end. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from logstore.model import TopicPartition
from logstore.partition.checking.findings import Finding


class BackupProgress(NamedTuple):
    """How far a backup has come."""

    partition: TopicPartition
    done_bytes: int
    """Bytes of ``.log`` files that are in the backup and verified, over all partitions."""
    total_bytes: int
    """Bytes of ``.log`` files at the beginning. ``done_bytes`` may pass this if a log grows or its segments
    are replaced."""


OnBackupProgress = Callable[[BackupProgress], object]
"""Called after each piece that was copied or verified, by one thread at a time. It may sleep to limit the
rate. An exception aborts the backup; an earlier one stays as it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackedUpPartition:
    """One partition of a backup."""

    partition: TopicPartition
    log_start_offset: int
    log_end_offset: int
    """The first offset that the backup does not have."""
    segment_count: int = 0
    copied_bytes: int = 0
    """Bytes of ``.log`` files that were copied."""
    linked_bytes: int = 0
    """Bytes of ``.log`` files that store and backup now share, instead of a copy."""
    kept_bytes: int = 0
    """Bytes of ``.log`` files that were in the earlier backup and have not changed since."""
    verified_bytes: int = 0
    """Bytes of ``.log`` files that were read and checked: all new ones."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all its ``.log`` files."""
        return self.copied_bytes + self.linked_bytes + self.kept_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupReport:
    """What :meth:`Store.backup` did. ``print(report)`` shows it."""

    path: str
    """The absolute path of the backup, through symbolic links."""
    is_incremental: bool
    """Whether there was an earlier backup of the store, from which unchanged files were taken."""
    partitions: tuple[BackedUpPartition, ...]
    damaged: tuple[Finding, ...] = ()
    """The damage in the store, with the paths there. Empty unless ``accept_damage`` was given."""
    elapsed_ms: int = 0

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics that have partitions in the backup."""
        return tuple(sorted({each.partition.topic for each in self.partitions}))

    @property
    def copied_bytes(self) -> int:
        """See :attr:`BackedUpPartition.copied_bytes`; over all partitions, like the next three."""
        return sum(each.copied_bytes for each in self.partitions)

    @property
    def linked_bytes(self) -> int:
        return sum(each.linked_bytes for each in self.partitions)

    @property
    def kept_bytes(self) -> int:
        return sum(each.kept_bytes for each in self.partitions)

    @property
    def verified_bytes(self) -> int:
        return sum(each.verified_bytes for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all ``.log`` files of the backup."""
        return sum(each.size_bytes for each in self.partitions)

    def __str__(self) -> str:
        kind = "incremental backup" if self.is_incremental else "backup"
        lines = [
            f"{kind} to {self.path}: {len(self.topics)} topics, {len(self.partitions)} partitions, "
            f"{self.size_bytes} bytes ({self.copied_bytes} copied, {self.linked_bytes} linked, "
            f"{self.kept_bytes} kept; {self.verified_bytes} verified) in {self.elapsed_ms} ms"
        ]
        lines += [f"  damaged in the store: {finding}" for finding in self.damaged]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: the partitions, and the report's other fields."""
        from logstore.showing import show_report, table_of_fields, table_of_findings  # few programs get here

        return show_report(
            self,
            partitions=table_of_fields(self.partitions),
            damaged=table_of_findings("damaged", self.damaged, len(self.damaged)),
        )
