"""Commits of groups in sessions, and compaction of the topic that has them: a scenario of the crash explorer.

After a cut each group has what it had after one of its changes, the last flushed one or a later: all offsets
of a commit, or none of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import logstore
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.config import StoreConfig
from logstore.format.names import OFFSETS_TOPIC
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.testing import ManualClock, MemoryFiles
from tests.crash.scenario import RandomScenario

GROUPS = ("a", "b")
PARTITIONS = tuple(TopicPartition("orders", number) for number in range(4))
CONFIG = StoreConfig(log_cleaner_enable=False, num_recovery_threads_per_data_dir=1)
SEGMENT_BYTES = 700

State = Mapping[TopicPartition, int]


class Changing(NamedTuple):
    """The group may have these offsets from now on, instead of what it has."""

    group: str
    state: State


class Durable(NamedTuple):
    """A call has returned that promises all changes before it."""


class Found(NamedTuple):
    """A session has found the groups like this, and goes on from there."""

    states: Mapping[str, State]


def allowed_states(said: Sequence[Any]) -> dict[str, list[State]]:
    """What each group may have, the last one if nothing is lost."""
    allowed: dict[str, list[State]] = {group: [{}] for group in GROUPS}
    for note in said:
        if isinstance(note, Changing):
            allowed[note.group].append(note.state)
        elif isinstance(note, Durable):
            allowed = {group: states[-1:] for group, states in allowed.items()}
        elif isinstance(note, Found):
            allowed = {group: [note.states[group]] for group in GROUPS}
    return allowed


def states_in(committed: CommittedOffsets) -> dict[str, State]:
    return {
        group: {partition: value.offset for partition, value in committed.fetch(group).items()}
        for group in GROUPS
    }


class OffsetsSession:
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
        self.committed = CommittedOffsets(self.store._directory)
        self.states = states_in(self.committed)
        self.say(Found(dict(self.states)))

    def commit(self, *, flush: bool = False) -> None:
        self._number += 1
        group = self.rng.choice(GROUPS)
        offsets = dict.fromkeys(self.rng.sample(PARTITIONS, self.rng.randint(1, 4)), self._number)
        self._change(group, {**self.states[group], **offsets})
        note = "n" * self.rng.choice((0, 100))
        self.committed.commit(
            group, {each: OffsetAndMetadata(offset, note) for each, offset in offsets.items()}, flush=flush
        )
        self._say_durable(flush)
        if self.store[OFFSETS_TOPIC].config.segment_bytes != SEGMENT_BYTES:
            self.store[OFFSETS_TOPIC].configure(segment_bytes=SEGMENT_BYTES)

    def delete(self) -> None:
        group, flush = self.rng.choice(GROUPS), self.rng.random() < 0.5
        if self.states[group]:
            self._change(group, {})
            self.committed.delete(group, flush=flush)
            self._say_durable(flush)

    def _change(self, group: str, state: State) -> None:
        self.states[group] = state
        self.say(Changing(group, state))

    def _say_durable(self, flush: bool) -> None:
        if flush:
            self.say(Durable())

    def compact(self) -> None:
        if OFFSETS_TOPIC in self.store:
            self.store[OFFSETS_TOPIC][0].compact(now=True)

    def wait(self) -> None:
        """Let tombstones and replaced files go."""
        self._clock.advance(2 * 86_400_000)
        self.store.run_background()

    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.say(Durable())

    def reopen(self) -> None:
        self.store.close()
        self.say(Durable())
        self._open()


ACTIONS: dict[str, tuple[int, Callable[[OffsetsSession], None]]] = {
    "commit": (5, lambda session: session.commit()),
    "commit and flush": (4, lambda session: session.commit(flush=True)),
    "delete": (2, OffsetsSession.delete),
    "compact": (3, OffsetsSession.compact),
    "wait": (1, OffsetsSession.wait),
    "checkpoint": (1, OffsetsSession.checkpoint),
    "reopen": (1, OffsetsSession.reopen),
}


class OffsetsScenario(RandomScenario):
    """Sessions of commits."""

    table = ACTIONS
    first = ("commit",)

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> OffsetsSession:
        return OffsetsSession(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        with logstore.open("/store", files=files, clock=ManualClock(), config=CONFIG) as store:
            committed = CommittedOffsets(store._directory)
            found = states_in(committed)
            for group, states in allowed_states(said).items():
                assert found[group] in states, (
                    f"group {group!r} has {found[group]}; it may be one of {states}"
                )
            with logstore.open("/store", files=files, clock=ManualClock(), read_only=True) as reader:
                assert states_in(CommittedOffsets(reader._directory)) == found
            offset = OffsetAndMetadata(10**9)
            committed.commit("a", {PARTITIONS[0]: offset})
            store["__consumer_offsets"][0].compact(now=True)
        with logstore.open("/store", files=files, clock=ManualClock(), config=CONFIG) as store:
            expected = {**found, "a": {**found["a"], PARTITIONS[0]: offset.offset}}
            assert states_in(CommittedOffsets(store._directory)) == expected
