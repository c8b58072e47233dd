"""A partition's log, as the rules look at it."""

from __future__ import annotations

from logstore.format.header import NO_EPOCH
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.partition.log import Log


class StoredFacts:
    """See :class:`~logstore.replica.rules.leading.LogFacts`. Each look is at the log that is open now: one
    that was damaged may be opened again."""

    __slots__ = ("_directory", "partition")

    def __init__(self, directory: LogDirectory, partition: TopicPartition) -> None:
        self._directory = directory
        self.partition = partition

    @property
    def log(self) -> Log:
        """
        Raises:
            LogstoreError: it cannot be used.
        """
        return self._directory.log(self.partition)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def durable_offset(self) -> int:
        return self.log.durable_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def last_epoch(self) -> int:
        entries = self.log.epoch_entries
        return entries[-1].epoch if entries else NO_EPOCH

    def end_offset_for_epoch(self, epoch: int, /) -> tuple[int, int]:
        return self.log.end_offset_for_epoch(epoch)
