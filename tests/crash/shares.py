"""States of share-partitions in sessions, and deletion of what newer snapshots have replaced: a scenario of
the crash explorer.

After a cut the states are what they were after one of the writes, the last durable one or a later: all
changes of a write, or none of them.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import logstore
from logstore.broker.share.stored import ShareChange, ShareState, apply_change
from logstore.broker.storing.share_table import Change
from logstore.broker.storing.shares import ShareStorage
from logstore.config import StoreConfig
from logstore.format.messages.share_records import ShareBatch, ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.testing import ManualClock, MemoryFiles
from tests.crash.scenario import RandomScenario

KEYS = tuple(ShareKey("orders", uuid.UUID(int=7), number) for number in range(3))
CONFIG = StoreConfig(
    log_cleaner_enable=False,
    num_recovery_threads_per_data_dir=1,
    share_coordinator_snapshot_update_records_per_snapshot=2,
)
SEGMENT_BYTES = 2_000

States = Mapping[ShareKey, ShareState]


class Changing(NamedTuple):
    """The states may be these from now on."""

    states: States


class Durable(NamedTuple):
    """A call has returned that promises all changes before it."""


class Found(NamedTuple):
    """A session has found these states, and goes on from there."""

    states: States


def allowed_states(said: Sequence[Any]) -> list[States]:
    """What may be there, the last one if nothing is lost."""
    allowed: list[States] = [{}]
    for note in said:
        if isinstance(note, Changing):
            allowed.append(note.states)
        elif isinstance(note, Durable):
            allowed = allowed[-1:]
        elif isinstance(note, Found):
            allowed = [note.states]
    return allowed


class SharesSession:
    """A store that is open on a disk."""

    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self.rng = rng
        self.say = files.note
        self._files = files
        self._number = 1_000 * len(said)
        self._clock = ManualClock()
        self._open()

    def _open(self) -> None:
        self.store = logstore.open("/store", files=self._files, clock=self._clock, config=CONFIG)
        self.storage = ShareStorage(self.store._directory)
        self.states = self.storage.load()
        self.say(Found(dict(self.states)))

    def write(self, *, flush: bool = False) -> None:
        changes = [self._change(self.rng.choice(KEYS)) for _ in range(self.rng.randint(1, 4))]
        self.say(Changing(dict(self.states)))
        self.storage.write(changes, flush=flush)
        self._say_durable(flush)
        topic = self.store.get(SHARE_STATE_TOPIC)
        if topic is not None and topic.config.segment_bytes != SEGMENT_BYTES:
            topic.configure(segment_bytes=SEGMENT_BYTES)

    def _change(self, key: ShareKey) -> tuple[ShareKey, Change]:
        self._number += 1
        number = self._number
        if key not in self.states:
            self.states[key] = ShareState(number, 0, number)
            return key, self.states[key]
        if self.rng.random() < 0.1:
            del self.states[key]
            return key, None
        batch = ShareBatch(number + 1, number + self.rng.randint(1, 9), self.rng.choice((0, 2, 4)), 1, number)
        change = ShareChange(self.rng.choice((-1, number - 3)), (batch,))
        self.states[key] = apply_change(self.states[key], change)
        return key, change

    def _say_durable(self, flush: bool) -> None:
        if flush:
            self.say(Durable())

    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.say(Durable())

    def wait(self) -> None:
        """Let replaced files go."""
        self._clock.advance(120_000)
        self.store.run_background()

    def reopen(self) -> None:
        self.store.close()
        self.say(Durable())
        self._open()


ACTIONS: dict[str, tuple[int, Callable[[SharesSession], None]]] = {
    "write": (6, lambda session: session.write()),
    "write and flush": (4, lambda session: session.write(flush=True)),
    "wait": (1, SharesSession.wait),
    "checkpoint": (1, SharesSession.checkpoint),
    "reopen": (1, SharesSession.reopen),
}


class SharesScenario(RandomScenario):
    """Sessions of writes."""

    table = ACTIONS
    first = ("write",)

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> SharesSession:
        return SharesSession(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        with logstore.open("/store", files=files, clock=ManualClock(), config=CONFIG) as store:
            storage = ShareStorage(store._directory)
            found = storage.load()
            allowed = allowed_states(said)
            assert found in allowed, f"the states are {found}; they may be one of {allowed}"
            with logstore.open("/store", files=files, clock=ManualClock(), read_only=True) as reader:
                assert ShareStorage(reader._directory).load() == found
            storage.write([(KEYS[0], ShareState(0, 0, 10**9)), (KEYS[0], ShareChange(10**9 + 1))])
        with logstore.open("/store", files=files, clock=ManualClock(), config=CONFIG) as store:
            expected = {**found, KEYS[0]: ShareState(0, 0, 10**9 + 1)}
            assert ShareStorage(store._directory).load() == expected
