"""A coordinator on the simulated network. It never fails itself; what is said to it and by it may get lost.

It keeps what each coordinator keeps: who lives, and since when each has lost nothing; who is the controller;
and the state of the partition, which is replaced by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from logstore.replica.coordination.interface import Node
from logstore.replica.coordination.registering import NodeRecord, begin_life
from logstore.replica.rules.partition_state import Living, Member, PartitionState, Registration
from logstore.testing.simulator.network import World

COORDINATOR: Final = "coordinator"
SESSION_MS: Final = 600
_LOOK_MS: Final = 20


class Registered(Protocol):
    """What a node can be told."""

    def on_registered(self, start: int, life: int) -> object: ...

    def on_expired(self, life: int) -> object: ...

    def on_alive(self, life: int, sent_ms: float) -> object: ...

    def on_state(self, state: PartitionState) -> object: ...

    def on_living(self, life: int, living: Living, state: PartitionState) -> object: ...


@dataclass(slots=True)
class _Known:
    """Of a node, also while it is gone."""

    start: int = 0
    """Which of its processes has registered: the answer may get lost, and is asked for again."""
    confirmed_life: int = 0
    """The last of which its disk knows."""
    whole_since: int = 0
    durable_since: int = 0
    disk_since: int = 0
    heard_ms: int = -1


class Coordinator:
    """Of one partition."""

    def __init__(
        self,
        world: World,
        state: PartitionState,
        nodes: Mapping[int, Registered],
        on_change: Callable[[], object],
    ) -> None:
        """``on_change`` is called when the state was replaced."""
        self._world = world
        self._nodes = nodes
        self._on_change = on_change
        self.state = state
        self.living: dict[int, Registration] = {}
        self.controller: Member | None = None
        self.handed_over: set[int] = set()
        """The leader epochs that were ended while their leader lived."""
        self._lives = 0
        self._known = {node_id: _Known() for node_id in state.replicas}
        world.network.connect(COORDINATOR, lambda call: call())
        self._look()

    def is_whole(self, member: Member) -> bool:
        """Whether the node has lost nothing since that life, as far as is known here."""
        return member.life >= self._known[member.node_id].whole_since

    def _tell(self, node_id: int, call: Callable[[], object]) -> None:
        self._world.network.send(COORDINATOR, node_id, call)

    # What nodes ask

    def register(self, node_id: int, start: int, last_life: int, *, is_whole: bool) -> None:
        """A process of a node has started. ``is_whole``: it has lost nothing since ``last_life``."""
        node, known = self._nodes[node_id], self._known[node_id]
        if start < known.start:
            return  # of an earlier process, late: its connection has ended with it
        present = self.living.get(node_id)
        if present is None or known.start != start:
            known.start = start
            self._lives += 1
            present = self._registration(node_id, last_life, is_whole=is_whole)
            self._remove(node_id)
            self.living[node_id] = present
            known.heard_ms = self._world.now_ms
            self._tell_controller()
        life = present.life
        self._tell(node_id, lambda: node.on_registered(start, life))

    def _registration(self, node_id: int, last_life: int, *, is_whole: bool) -> Registration:
        life, known = self._lives, self._known[node_id]
        record = begin_life(
            NodeRecord(
                known.confirmed_life, known.whole_since, known.durable_since, disk_since=known.disk_since
            ),
            Node(node_id, "", last_life, is_whole),
            life,
        )
        known.whole_since, known.durable_since = record.whole_since, record.durable_since
        known.disk_since = record.disk_since
        since = known.whole_since, known.durable_since
        return Registration(node_id, life, *since, disk_since=known.disk_since)

    def beat(self, node_id: int, life: int, sent_ms: float) -> None:
        """A node is alive, and has its life on its disk."""
        node, alive = self._nodes[node_id], self.living.get(node_id)
        if alive is None or alive.life != life:
            self._tell(node_id, lambda: node.on_expired(life))
            return
        known, state = self._known[node_id], self.state
        known.confirmed_life, known.heard_ms = life, self._world.now_ms
        if self.controller is None:
            self.controller = alive.member
        self._tell(node_id, lambda: node.on_alive(life, sent_ms))
        self._tell(node_id, lambda: node.on_state(state))
        if self.controller == alive.member:
            self._tell_controller()

    def propose(
        self,
        proposer: Member,
        state: PartitionState,
        *,
        as_controller: bool = False,
        hands_over: bool = False,
    ) -> None:
        """Replace the state, if it is still the one that the proposer has seen. ``hands_over``: its leader
        leads well, and is to let another."""
        alive = self.living.get(proposer.node_id)
        may = alive is not None and alive.member == proposer
        if as_controller and self.controller != proposer:
            may = False
        if not may or not self.is_newest(state):
            return
        if hands_over:
            self.handed_over.add(self.state.leader_epoch)
        self.state = replaced = state._replace(version=self.state.version + 1)
        self._on_change()
        for node_id in self._nodes:
            self._tell(node_id, lambda node=self._nodes[node_id]: node.on_state(replaced))  # type: ignore[misc]

    def is_newest(self, state: PartitionState) -> bool:
        """Whether nothing has changed since."""
        return state.version == self.state.version

    # What it does by itself

    def _look(self) -> None:
        """Who was not heard of for long is gone."""
        for node_id in list(self.living):
            if self._world.now_ms - self._known[node_id].heard_ms > SESSION_MS:
                self._remove(node_id)
                self._tell_controller()
        self._world.call_later(_LOOK_MS, self._look)

    def _remove(self, node_id: int) -> None:
        self.living.pop(node_id, None)
        if self.controller is not None and self.controller.node_id == node_id:
            self.controller = None

    def _tell_controller(self) -> None:
        if self.controller is not None:
            node_id, life = self.controller
            node, living, state = self._nodes[node_id], dict(self.living), self.state
            self._tell(node_id, lambda: node.on_living(life, living, state))
