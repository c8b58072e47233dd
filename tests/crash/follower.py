"""A follower's log with the gaps of its leader's: a scenario of the crash explorer.

The leader's log is a fixed sequence of offsets, with some missing. After a crash the log must be a prefix of
that sequence, and have everything that was durable.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from logstore.config import TopicConfig
from logstore.format.batch import encode_batch
from logstore.model import Isolation, Role
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles
from tests.crash.partition import abandon, open_partition
from tests.crash.scenario import RandomScenario

CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=100)
LEADERS = [offset for offset in range(400) if offset % 7 not in (2, 3) and offset % 11 != 5]
"""The offsets of the leader's log."""
LEADER_THAT_FOLLOWS = (
    "become leader",
    "replicate",
    "roll",
    "replicate",
    "become follower",
    "replicate",
    "roll",
    "flush",
)


class Is(NamedTuple):
    """A note: the log was made to be this."""

    role: Role


class Held(NamedTuple):
    """A note: everything below this offset is durable."""

    offset: int


class _Session:
    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self._say = files.note
        self._rng = rng
        clock = ManualClock()
        self._log = open_partition(files, clock=clock, config=CONFIG)
        if not any(isinstance(note, Is) for note in said):
            self._log.set_role(Role.FOLLOWER)
            self._say(Is(Role.FOLLOWER))
        self._hold()

    def _hold(self) -> None:
        """Note that an open makes durable what it found."""
        self._say(Held(self._log.durable_offset))

    def replicate(self) -> None:
        end = self._log.log_end_offset
        coming = [offset for offset in LEADERS if offset >= end][: self._rng.randint(1, 3)]
        data = b"".join(
            bytes(encode_batch([b"k"], [b"%d" % offset * 20], 1_700_000_000_000, base_offset=offset))
            for offset in coming
        )
        self._log.append_replicated(data)

    def flush(self) -> None:
        self._log.flush()
        self._hold()

    def checkpoint(self) -> None:
        self._log.checkpoint()
        self._hold()

    def roll(self) -> None:
        self._log.roll()

    def lead(self) -> None:
        """Lead for a moment."""
        self.become_leader()
        self.become_follower()

    def lead_for_now(self) -> None:
        """Without a word on the disk."""
        self._log.lead(self._log.leader_epoch + 1)
        self._log.stop_leading()

    def become_leader(self) -> None:
        self._log.set_role(Role.LEADER)

    def become_follower(self) -> None:
        self._log.set_role(Role.FOLLOWER)


class FollowerScenario(RandomScenario):
    """Sessions of one follower."""

    table = {  # noqa: RUF012 - as in the others
        "replicate": (8, _Session.replicate),
        "flush": (2, _Session.flush),
        "checkpoint": (1, _Session.checkpoint),
        "roll": (3, _Session.roll),
        "lead": (1, _Session.lead),
        "lead for now": (1, _Session.lead_for_now),
        "become leader": (0, _Session.become_leader),
        "become follower": (0, _Session.become_follower),
    }

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> _Session:
        return _Session(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        held = max((note.offset for note in said if isinstance(note, Held)), default=0)
        log = open_partition(files, config=CONFIG)
        found = _offsets(log)
        assert found == LEADERS[: len(found)], f"HOLE or LOST: {found}"
        missing = [offset for offset in LEADERS if offset < held and offset not in found]
        assert not missing, f"LOST: {missing} were durable"
        assert log.verify(), str(log.verify())
        abandon(log)
        again = open_partition(MemoryFiles(files.now()), config=CONFIG)
        assert _offsets(again) == found, "the second open found another log"
        abandon(again)


def _offsets(log: Log) -> list[int]:
    return [record.offset for record in log.read(isolation=Isolation.LOG_END)]
