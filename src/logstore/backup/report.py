"""What a backup says of itself, while it runs and at its end. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from logstore.model import TopicPartition
from logstore.partition.checking.findings import Finding


class BackupProgress(NamedTuple):
    """How far a backup is."""

    partition: TopicPartition
    done_bytes: int
    """Of ``.log`` files, all partitions together: in the backup, and verified."""
    total_bytes: int
    """What they had at the beginning. A log that grows, or of which segments are replaced, may pass it."""


OnBackupProgress = Callable[[BackupProgress], object]
"""Called after each piece that was copied or verified, by one thread at a time. It may sleep, to bound the
rate; what it raises aborts the backup, and an earlier one stays as it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackedUpPartition:
    """One partition of a backup."""

    partition: TopicPartition
    log_start_offset: int
    log_end_offset: int
    """The first offset that the backup does not have."""
    segment_count: int = 0
    copied_bytes: int = 0
    """Of ``.log`` files that were copied."""
    linked_bytes: int = 0
    """Of those that the store and the backup have in common from now on: they were not copied."""
    kept_bytes: int = 0
    """Of those that were in the earlier backup, and have not changed since."""
    verified_bytes: int = 0
    """Of those that were read and checked: all that is new."""

    @property
    def size_bytes(self) -> int:
        """Of all its ``.log`` files."""
        return self.copied_bytes + self.linked_bytes + self.kept_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupReport:
    """What :meth:`Store.backup` has done. ``print(report)`` shows it."""

    path: str
    """The absolute path of the backup, through symbolic links."""
    is_incremental: bool
    """Whether there was an earlier backup of the store, from which unchanged files were taken."""
    partitions: tuple[BackedUpPartition, ...]
    damaged: tuple[Finding, ...] = ()
    """What is damaged in the store, with the paths there. Empty unless ``accept_damage`` was given."""
    elapsed_ms: int = 0

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics that have partitions in the backup."""
        return tuple(sorted({each.partition.topic for each in self.partitions}))

    @property
    def copied_bytes(self) -> int:
        """See :attr:`BackedUpPartition.copied_bytes`; of all partitions, as are the next three."""
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
        """Of all ``.log`` files of the backup."""
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
        """What a notebook shows: the partitions, and what is to be known of them."""
        from logstore.showing import show_report, table_of_fields, table_of_findings  # few programs get here

        return show_report(
            self,
            partitions=table_of_fields(self.partitions),
            damaged=table_of_findings("damaged", self.damaged, len(self.damaged)),
        )
