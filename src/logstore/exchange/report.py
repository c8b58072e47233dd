"""What a handover will do, or has done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from logstore.model import TopicPartition


class HandoverProgress(NamedTuple):
    """How far the copying has come; given to the ``on_progress`` of :func:`logstore.handover`."""

    partition: TopicPartition
    done_bytes: int
    total_bytes: int
    """Of all partitions."""


OnHandoverProgress = Callable[[HandoverProgress], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class HandedPartition:
    """One partition of a handover."""

    partition: TopicPartition
    log_start_offset: int
    log_end_offset: int
    """Of the copy: behind the markers of the transactions that are aborted there."""
    size_bytes: int
    """Bytes to copy."""
    lowered_epoch: int | None = None
    """The broker's leader epoch, if the source has later ones: they are lowered to it. Else None."""
    aborted: tuple[int, ...] = ()
    """The producers whose open transactions are aborted in the copy."""
    was_placed: bool = False
    """Whether the target had all its records already, as after an earlier call."""

    def __str__(self) -> str:
        what = f"{self.partition}: offsets {self.log_start_offset} to {self.log_end_offset}"
        parts = [what, f"{self.size_bytes} bytes"]
        if self.was_placed:
            parts.append("already in the target")
        if self.lowered_epoch is not None:
            parts.append(f"leader epochs above {self.lowered_epoch} lowered to it")
        if self.aborted:
            parts.append(f"open transactions aborted: producers {', '.join(map(str, self.aborted))}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class HandoverReport:
    """What :func:`logstore.handover` did; with ``dry_run``, what it would do. ``print(report)`` shows it."""

    source: str
    target: str
    is_to_broker: bool
    """Whether the target is a broker's log directory."""
    is_dry_run: bool
    partitions: tuple[HandedPartition, ...]
    created_topics: tuple[str, ...] = ()
    """Topics that were created in the target store."""
    share_groups: tuple[str, ...] = ()
    """The share groups that go on in the target where they are in the source."""
    notes: tuple[str, ...] = ()
    """What is not handed over, and other remarks."""

    @property
    def size_bytes(self) -> int:
        """Bytes to copy, without partitions that the target had already."""
        return sum(each.size_bytes for each in self.partitions if not each.was_placed)

    def __str__(self) -> str:
        verb = "would hand over" if self.is_dry_run else "handed over"
        to = "the broker's log directory" if self.is_to_broker else "the store"
        lines = [f"{verb} {len(self.partitions)} partitions, {self.size_bytes} bytes, to {to} {self.target}"]
        lines += [f"  {each}" for each in self.partitions]
        lines += [f"  topic {name} is created in the target" for name in self.created_topics]
        lines += [f"  share group {name} goes on where it is" for name in self.share_groups]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: the partitions, and the report's other fields."""
        from logstore.showing import show_report, table_of_fields  # few programs get here

        return show_report(self, partitions=table_of_fields(self.partitions))
