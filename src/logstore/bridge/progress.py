"""How far a bridge has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from logstore.errors import LogstoreError
from logstore.model import TopicPartition

NOT_ASKED: Final = "the cluster has not told yet how far it is"
"""Why nothing is copied yet."""


class PartitionProgress(NamedTuple):
    """One partition of a bridge."""

    partition: TopicPartition
    position: int
    """The next offset to copy; everything below was copied."""
    end_offset: int
    """Where the side that is copied from ends: the cluster's high watermark, as it was last seen; or the last
    stable offset of a store that is pushed, as it is now."""

    @property
    def lag(self) -> int:
        """How many offsets are left."""
        return max(self.end_offset - self.position, 0)


class PullProgress(NamedTuple):
    """What a :class:`.PullBridge` has done since it was made."""

    partitions: tuple[PartitionProgress, ...]
    batch_count: int
    """Batches that were copied."""
    byte_count: int
    """Their size."""
    truncated_count: int
    """Offsets that were cut off here, since the cluster has lost or replaced their records."""
    skipped_count: int
    """Offsets that the cluster had deleted before they were copied."""
    trouble: str | None
    """Why nothing is copied at the moment, or not all of it; None if nothing is wrong. Also told in the
    beginning, until it is known where each partition ends at the cluster, and of a standby with topics that
    are ``stopped``."""
    stopped: Mapping[str, LogstoreError]
    """Of a standby: topics that cannot be copied any more, and why; they are not among ``partitions``. The
    others are copied."""

    @property
    def lag(self) -> int:
        """How many offsets are left in all partitions, as far as their ends were seen: all is copied when
        this is 0 and there is no ``trouble``."""
        return sum(each.lag for each in self.partitions)

    def __str__(self) -> str:
        return (
            f"{_counted(self.batch_count, 'batch', 'batches')}, {_counted(self.byte_count, 'byte')} copied; "
            f"{_counted(self.lag, 'offset')} left{_told(self.trouble)}"
        )


class PushProgress(NamedTuple):
    """What a :class:`.PushBridge` has done since it was made."""

    partitions: tuple[PartitionProgress, ...]
    record_count: int
    """Records that were committed at the cluster."""
    byte_count: int
    """The size of their keys and values."""
    transaction_count: int
    skipped_count: int
    """Offsets that were deleted here before they were pushed."""
    trouble: str | None
    """Why nothing is pushed at the moment; None if nothing is wrong. At first, and while another producer
    begins, that the cluster has not told yet how far it is: then ``lag`` is 0."""

    @property
    def lag(self) -> int:
        """How many offsets are left in all partitions that were seen, also of what was appended just now: all
        is pushed when this is 0 and there is no ``trouble``."""
        return sum(each.lag for each in self.partitions)

    def __str__(self) -> str:
        return (
            f"{_counted(self.record_count, 'record')}, {_counted(self.byte_count, 'byte')} pushed in "
            f"{_counted(self.transaction_count, 'transaction')}; {_counted(self.lag, 'offset')} left"
            f"{_told(self.trouble)}"
        )


def _told(trouble: str | None) -> str:
    return "" if trouble is None else f"; {trouble}"


def _counted(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
