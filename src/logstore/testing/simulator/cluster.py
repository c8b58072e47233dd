"""A partition on some nodes of a simulated network, under faults that a seed decides on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from logstore.replica.rules.leading import ReplicaConfig
from logstore.replica.rules.partition_state import Member, PartitionState
from logstore.replica.rules.reassigning import is_moving
from logstore.testing.simulator.coordinator import COORDINATOR, Coordinator
from logstore.testing.simulator.model_log import ModelLog, SimulatedLog
from logstore.testing.simulator.network import NetworkFaults, World
from logstore.testing.simulator.node import Node
from logstore.testing.simulator.watcher import ViolationError, Watcher

FAULTS: Final = ("kill", "stop", "cut power", "pause", "isolate", "cut way")
_LAG_MS: Final = 300
_LONGEST_FAULT_MS: Final = 3_000
_QUIET_MS: Final = 6_000
"""How long the nodes have, in the end, to get well."""
_CLIENT: Final = "client"


class Plan(NamedTuple):
    """What happens in a run."""

    node_count: int = 3
    min_insync_replicas: int = 2
    is_durable: bool = False
    """Whether replicas tell of nothing that they have not flushed. If not, a machine loses the end of its log
    only while another one that may lead has it."""
    network: NetworkFaults = NetworkFaults()
    fault_ms: int = 150
    """A fault so often, on the average."""
    faults: tuple[str, ...] = FAULTS
    drift: float = 0.05
    """Clocks go faster or slower by up to this share."""
    move_share: float = 0.05
    """How often a controller that has nothing else to do sends the partition to other nodes."""
    until_ms: int = 6_000
    """How long there are faults."""

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Each run leaves some kinds of faults out, so that the others meet undisturbed."""
        rng = random.Random(f"plan {seed}")
        node_count = rng.choice([3, 3, 3, 5])
        return cls(
            node_count=node_count,
            min_insync_replicas=rng.choice([2, 2, 2, 1] if node_count == 3 else [2, 3]),
            is_durable=rng.random() < 0.3,
            network=NetworkFaults(
                most_delay_ms=rng.choice([5, 30, 100]),
                loss=rng.choice([0.0, 0.0, 0.02, 0.2]),
                duplication=rng.choice([0.0, 0.1]),
            ),
            fault_ms=rng.choice([60, 150, 400]),
            faults=tuple(fault for fault in FAULTS if rng.random() < 0.6) or FAULTS,
        )


class Cluster:
    """The nodes, their coordinator, a client, and chance."""

    def __init__(
        self, seed: int, plan: Plan | None = None, make_log: Callable[[], SimulatedLog] = ModelLog
    ) -> None:
        self.plan = plan = plan or Plan.draw(seed)
        self.world = World(seed, plan.network)
        self.watcher = Watcher()
        self.nodes: dict[int, Node] = {}
        config = ReplicaConfig(_LAG_MS, plan.min_insync_replicas, plan.is_durable)
        for node_id in range(1, plan.node_count + 1):
            self.nodes[node_id] = Node(
                self.world, node_id, self.nodes, self.watcher, config, plan.drift, make_log()
            )
        state = PartitionState(tuple(self.nodes), None, 0, tuple(Member(each, 0) for each in self.nodes))
        self.coordinator = Coordinator(self.world, state, self.nodes, self._count_state)
        for node in self.nodes.values():
            node.coordinator, node.move_share = self.coordinator, plan.move_share
        self._value = 0
        self._has_faults = True

    def _count_state(self) -> None:
        self.watcher.counts["states"] += 1

    def run(self) -> Watcher:
        """With faults, and then without, until all is well.

        Raises:
            ViolationError: something did not hold, or all is not well.
        """
        for node in self.nodes.values():
            node.start()
        self._produce()
        self._fault()
        self.world.run(self.plan.until_ms)
        self._heal()
        self.world.run(self.plan.until_ms + _QUIET_MS)
        self._check_end()
        return self.watcher

    def _produce(self) -> None:
        rng = self.world.rng
        self.world.call_later(rng.randint(1, 40), self._produce)
        self._value += 1
        node, value = rng.choice(list(self.nodes.values())), self._value
        self.world.network.send(_CLIENT, node.node_id, lambda: node.on_produce(value))

    # Faults

    def _fault(self) -> None:
        if not self._has_faults:
            return
        rng = self.world.rng
        self.world.call_later(rng.randint(1, 2 * self.plan.fault_ms), self._fault)
        node = rng.choice(list(self.nodes.values()))
        fault, length_ms = rng.choice(self.plan.faults), rng.randint(1, _LONGEST_FAULT_MS)
        if fault in ("isolate", "cut way"):
            self._cut(node, fault)
            self.world.call_later(length_ms, self.world.network.heal)
        elif not node.is_running or (fault == "cut power" and not self._may_lose(node)):
            return
        elif fault == "pause":
            node.pause()
            self.world.call_later(length_ms, lambda: node.resume() if node.is_paused else None)
        else:
            {"kill": node.kill, "stop": node.stop, "cut power": node.cut_power}[fault]()
            self.world.call_later(length_ms, lambda: None if node.is_running else node.start())
        self.watcher.counts[f"faults: {fault}"] += 1

    def _cut(self, node: Node, fault: str) -> None:
        network, rng = self.world.network, self.world.rng
        others = [*(each for each in self.nodes if each != node.node_id), COORDINATOR]
        if fault == "isolate":
            network.isolate(node.node_id, others)
        else:
            source, target = rng.sample([node.node_id, rng.choice(others)], 2)
            network.cut(source, target)

    def _may_lose(self, node: Node) -> bool:
        """Whether the end of this node's log may be lost: another that may lead has all of it."""
        state = self.coordinator.state
        others = [each for each in (*state.isr, *state.eligible) if each.node_id != node.node_id]
        return self.plan.is_durable or any(
            self.coordinator.is_whole(each) and self.nodes[each.node_id].is_whole for each in others
        )

    def _heal(self) -> None:
        self._has_faults = False
        self.world.network.heal()
        self.world.network.faults = NetworkFaults()
        for node in self.nodes.values():
            node.move_share = 0.0
            if not node.is_running:
                node.start()
            elif node.is_paused:
                node.resume()

    def _check_end(self) -> None:
        """
        Raises:
            ViolationError: not all is well.
        """
        state, committed = self.coordinator.state, self.watcher.committed
        leading = [each for each in self.nodes.values() if each.replica is not None and each.replica.leads]
        if len(leading) != 1:
            raise ViolationError(f"{len(leading)} nodes lead, without faults: {state}")
        if len(state.isr) != len(state.replicas):
            raise ViolationError(f"not all have caught up, without faults: {state}")
        if is_moving(state):
            raise ViolationError(f"it still moves, without faults: {state}")
        for node in self.nodes.values():
            self.watcher.check_readable(node.node_id, node.log)
            if node.node_id not in state.replicas and node.log.log_end_offset:
                raise ViolationError(f"node {node.node_id} has not deleted its log: {state}")
        for value, offset in self.watcher.acknowledged.items():
            if committed[offset] != value:
                raise ViolationError(f"value {value} was acknowledged at {offset}, and is not there")
        shortest = min(self.nodes[each].log.high_watermark for each in state.replicas)
        if shortest <= max(self.watcher.acknowledged.values(), default=-1) - _QUIET_MS // 20:
            raise ViolationError(f"a node has committed {shortest} of {len(committed)} records")


def simulate(seed: int, plan: Plan | None = None, make_log: Callable[[], SimulatedLog] = ModelLog) -> Watcher:
    """Run a partition under faults. Returns what was seen. Cost: 30 ms with logs that are lists.

    Raises:
        ViolationError: something did not hold; names the seed, which repeats the run.
    """
    try:
        return Cluster(seed, plan, make_log).run()
    except ViolationError as error:
        raise ViolationError(f"seed {seed}: {error}") from None
