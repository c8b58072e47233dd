"""The logs of simulated nodes: what is asked of one, and one that is a list."""

from __future__ import annotations

import random
from typing import Any, NamedTuple, Protocol

from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.replica.rules.leading import LogFacts


class SimulatedLog(LogFacts, Protocol):
    """A log on a disk that survives its process, or loses what was not flushed."""

    def restart(self) -> None:
        """A new process opens it."""

    def crash(self, rng: random.Random) -> None:
        """The power is cut: the end that was not flushed is there or not, and the high watermark is an older
        one."""

    def begin_epoch(self, epoch: int) -> None:
        """As a leader: see :meth:`.Log.assign_leader_epoch`."""

    def append(self, value: int) -> int:
        """As a leader. Returns the offset."""
        ...

    def batches_from(self, offset: int) -> Any:
        """Some of what a follower gets from there on; something that is false if there is nothing."""
        ...

    def append_replicated(self, batches: Any, leader_epoch: int) -> None:
        """As a follower."""

    def raise_high_watermark(self, offset: int) -> None:
        """As far as the log reaches."""

    def truncate_to(self, offset: int) -> None:
        """Durable on return."""

    def delete(self) -> None:
        """Everything, leader epochs, too."""

    def flush(self) -> None: ...

    def values(self, start: int, stop: int) -> list[int]:
        """What is at these offsets."""
        ...


_MOST_ENTRIES = 8
"""In an answer to a fetch."""


class Entry(NamedTuple):
    """A record, as far as replication sees it."""

    epoch: int
    value: int


class ModelLog:
    """A log without retention. All writes reach the page cache at once, and the disk with :meth:`flush`."""

    log_start_offset = 0

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs()
        self.durable_offset = 0
        self.high_watermark = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    def last_epoch(self) -> int:
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, len(self.entries))

    def begin_epoch(self, epoch: int) -> None:
        if epoch < self.last_epoch():
            raise ValueError(f"epoch {epoch} is below {self.last_epoch()}")
        self._note_epoch(epoch)

    def _note_epoch(self, epoch: int) -> None:
        if epoch > self.last_epoch():
            self.epochs.assign(epoch, len(self.entries))

    def append(self, value: int) -> int:
        self.entries.append(Entry(self.last_epoch(), value))
        return len(self.entries) - 1

    def batches_from(self, offset: int) -> list[Entry]:
        return self.entries[offset : offset + _MOST_ENTRIES]

    def append_replicated(self, batches: list[Entry], leader_epoch: int) -> None:
        for entry in batches:
            if entry.epoch < self.last_epoch():
                raise ValueError(f"a record of epoch {entry.epoch} behind epoch {self.last_epoch()}")
            self._note_epoch(entry.epoch)
            self.entries.append(entry)

    def raise_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, len(self.entries)))

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset:]
        self.epochs.truncate_from_end(offset)
        self.durable_offset = min(self.durable_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)

    def delete(self) -> None:
        self.truncate_to(0)
        self.epochs = LeaderEpochs()

    def flush(self) -> None:
        self.durable_offset = len(self.entries)

    def values(self, start: int, stop: int) -> list[int]:
        return [entry.value for entry in self.entries[start:stop]]

    def restart(self) -> None:
        pass

    def crash(self, rng: random.Random) -> None:
        self.truncate_to(rng.randint(self.durable_offset, len(self.entries)))
        self.flush()
        self.high_watermark = rng.randint(0, self.high_watermark)
