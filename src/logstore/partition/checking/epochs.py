"""Checks the leader epochs of batches against the stored history."""

from __future__ import annotations

from logstore.format.header import MAGIC, NO_EPOCH, BatchHeader
from logstore.partition.checking.facts import EVERYTHING
from logstore.partition.state.leader_epochs import LeaderEpochs


class EpochCheck:
    """The check of the leader epochs of one log's batches."""

    def __init__(
        self, history: LeaderEpochs | None, log_start_offset: int, complete_to: int = EVERYTHING
    ) -> None:
        self.epoch = -1
        """The epoch of all batches up to :attr:`valid_to`. A batch with another epoch must be checked."""
        self.valid_to = -1
        self._history = history
        self._log_start_offset = log_start_offset
        self._complete_to = complete_to
        self._latest = -1

    def meet(self, header: BatchHeader) -> str | None:
        """What is wrong with the batch's epoch, or None."""
        epoch = header.partition_leader_epoch
        if epoch < NO_EPOCH:
            return f"leader epoch {epoch}"
        if header.magic < MAGIC or epoch < 0:
            return None
        if self._history is None:
            return self._meet_unknown(epoch)
        entries = self._history.entries
        if header.base_offset >= self._complete_to and epoch > (entries[-1].epoch if entries else NO_EPOCH):
            return self._meet_unknown(epoch)
        if not entries:
            is_deleted = header.last_offset < self._log_start_offset  # their history is not kept
            return None if is_deleted else f"leader epoch {epoch}; the history has none"
        covering = self._history.epoch_for_offset(header.last_offset)
        if covering is None:  # below the log start, where the history does not reach
            return (
                None if epoch <= entries[0].epoch else f"leader epoch {epoch} in front of {entries[0].epoch}"
            )
        if covering != epoch:
            return f"leader epoch {epoch}; the history says {covering}"
        begins = self._history.epoch_for_offset(header.base_offset)
        if begins is not None and begins != epoch:
            return f"the history begins leader epoch {epoch} inside the batch"
        following = [entry.start_offset for entry in entries if entry.epoch > epoch]
        self.epoch, self.valid_to = epoch, (following[0] if following else EVERYTHING) - 1
        return None

    def _meet_unknown(self, epoch: int) -> str | None:
        """Without a history, epochs must not fall."""
        before, self._latest = self._latest, max(self._latest, epoch)
        return f"leader epoch {epoch} behind {before}" if epoch < before else None
