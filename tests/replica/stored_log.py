"""The real log as that of a simulated node, on a disk in memory that loses what was not flushed."""

from __future__ import annotations

import itertools
import random

from logstore.config import TopicConfig
from logstore.model import Isolation, Role
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.memory import Image
from logstore.testing.operations import Note

_CONFIG = TopicConfig(segment_bytes=600, flush_ms=2**62)
_FETCH_BYTES = 700


class StoredLog:
    """See :class:`~logstore.testing.simulator.model_log.SimulatedLog`."""

    def __init__(self) -> None:
        self._open(MemoryFiles())

    def _open(self, files: MemoryFiles) -> None:
        self._files = files
        self._log = Log.open("/log", files=files, clock=ManualClock(), config=_CONFIG)
        if self._log.role is Role.ALONE:
            self._log.set_role(Role.FOLLOWER)

    # What is known

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def durable_offset(self) -> int:
        return self._log.durable_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    def last_epoch(self) -> int:
        entries = self._log.epoch_entries
        return entries[-1].epoch if entries else -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._log.end_offset_for_epoch(epoch)

    def values(self, start: int, stop: int) -> list[int]:
        start = max(start, self._log.log_start_offset)
        stop = min(stop, self._log.log_end_offset)
        if start >= stop:
            return []
        found = self._log.read(start, isolation=Isolation.LOG_END)
        return [int(each.value) for each in itertools.takewhile(lambda each: each.offset < stop, found)]

    # What is done

    def begin_epoch(self, epoch: int) -> None:
        self._log.set_role(Role.LEADER)
        self._log.assign_leader_epoch(epoch)

    def append(self, value: int) -> int:
        return self._log.extend([b"%d" % value]).start

    def batches_from(self, offset: int) -> bytes:
        fetched = self._log.fetch(offset, max_bytes=_FETCH_BYTES, isolation=Isolation.LOG_END)
        return bytes(fetched.data)

    def append_replicated(self, batches: bytes, leader_epoch: int) -> None:
        self._follow()
        self._log.append_replicated(batches, leader_epoch=leader_epoch)

    def raise_high_watermark(self, offset: int) -> None:
        self._log.update_high_watermark(offset)

    def truncate_to(self, offset: int) -> None:
        self._follow()
        self._log.truncate_to(offset)

    def delete(self) -> None:
        self._open(MemoryFiles())

    def _follow(self) -> None:
        if self._log.role is not Role.FOLLOWER:
            self._log.set_role(Role.FOLLOWER)

    def flush(self) -> None:
        self._log.flush()

    # What happens to it

    def restart(self) -> None:
        """The process before was killed: what it wrote is there."""
        self._open(MemoryFiles(self._files.now()))

    def crash(self, rng: random.Random) -> None:
        self._open(MemoryFiles(self._after_power_cut(rng)))

    def _after_power_cut(self, rng: random.Random) -> Image:
        states = CrashStates(self._files.image, rng.randrange(2**32))
        for operation in self._files.trace:
            if not isinstance(operation, Note):
                states.follow(operation)
        choices = list(itertools.islice(states.choices(20, rng), 20))
        return states.image(rng.choice(choices))
