"""Processes that consume as a group, on a clock set by hand: what the tests of sequences of events play with.

A process does what Kafka's clients do: it joins, brings the assignment if it leads, syncs, sends heartbeats,
and joins again when it is told to. The leader assigns by ranges, and joins again when it sees new partitions.
Answers reach a process at its next tick, unless it is stalled; a crashed one never hears of them.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from logstore.broker.groups.states import State
from logstore.broker.groups.subscriptions import decode_topics
from tests.broker.groups.stage import Stage, subscription

GROUP = "g"
TICK_MS = 500
HEARTBEAT_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 8_000
SETTLED_MS = 60_000
"""Enough for sessions to end, and for rebalances after that."""


class World:
    """A coordinator, topics, and processes."""

    def __init__(self, seed: int) -> None:
        self.stage = Stage()
        self.random = random.Random(seed)
        self.partitions = Counter(orders=2, bills=3, jobs=1)
        self.metadata_version = 0
        self.assigned_version = 0
        """Of the topics, when a leader last assigned."""
        self.processes: list[Process] = []

    @property
    def now_ms(self) -> int:
        return self.stage.clock.monotonic_ms()

    @property
    def live(self) -> list[Process]:
        """Those that run."""
        return [process for process in self.processes if process.is_alive and not process.is_stalled]

    def partitions_of(self, topics: set[str]) -> set[str]:
        return {f"{topic}-{number}" for topic in topics for number in range(self.partitions[topic])}

    def assign(self, subscriptions: dict[str, frozenset[str]]) -> dict[str, bytes]:
        """By ranges: of each topic, neighbours to the same member."""
        parts: dict[str, list[str]] = {member_id: [] for member_id in subscriptions}
        for topic, count in self.partitions.items():
            takers = sorted(member_id for member_id, topics in subscriptions.items() if topic in topics)
            for number in range(count if takers else 0):
                parts[takers[number * len(takers) // count]].append(f"{topic}-{number}")
        return {member_id: "+".join(part).encode() for member_id, part in parts.items()}

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.stage.wait(TICK_MS)
            self.random.shuffle(self.processes)
            for process in self.live:
                process.act()
            self.check_owners()

    def check_owners(self) -> None:
        """No two live members of a generation have the same partition."""
        owners: dict[tuple[int, str], Process] = {}
        for process in self.live:
            for partition in process.owned:
                other = owners.setdefault((process.generation, partition), process)
                is_fenced = self._is_fenced(other) or self._is_fenced(process)
                assert other is process or is_fenced, (partition, other, process)

    def _is_fenced(self, process: Process) -> bool:
        """Whether it has lost its instance id to another process, and will hear of that."""
        return any(
            other.instance_id == process.instance_id and other.started > process.started
            for other in self.processes
            if process.instance_id is not None
        )

    def settle(self) -> None:
        """Let things calm down, and check that each partition is owned by a member that wants it."""
        self.stage.storage.error = ErrorCode.NONE
        self.stage.storage.release()
        self.pass_time(SETTLED_MS)
        live = self.live
        group = self.group
        assert {process.member_id for process in live} == set(group.members if group else ())
        if not live:
            assert group is None or group.state is State.EMPTY
            return
        assert group.state is State.STABLE
        assert {process.generation for process in live} == {group.generation}
        owned = Counter(partition for process in live for partition in process.owned)
        wanted = self.partitions_of({topic for process in live for topic in process.topics})
        assert owned == Counter(wanted)
        for process in live:
            assert process.owned <= self.partitions_of(set(process.topics))

    @property
    def group(self) -> Any:
        known = self.stage.coordinator._groups.get(GROUP)
        return known.group if known else None


class Process:
    """One consumer."""

    _started = 0

    def __init__(
        self, world: World, topics: frozenset[str], instance_id: str | None, *, requires_member_id: bool
    ) -> None:
        Process._started += 1
        self.started = Process._started
        self.world = world
        self.topics = topics
        self.instance_id = instance_id
        self.requires_member_id = requires_member_id
        self.is_alive = True
        self.is_stalled = False
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[str] = frozenset()
        self.join_count = 0
        self._is_leader = False
        self._seen_version = -1
        """Of the metadata, by the leader."""
        self._is_in = False
        """Whether it has its part, or waits for an answer that leads there."""
        self._has_part = False
        self._heard_ms = 0
        self._inbox: deque[tuple[Callable[[Any], None], Any]] = deque()
        world.processes.append(self)

    def __repr__(self) -> str:
        return f"<{self.started}: {self.member_id} in {self.generation}, {sorted(self.owned)}>"

    def crash(self) -> None:
        self.is_alive = False

    def leave(self) -> None:
        self.crash()
        if self.instance_id is None and self.member_id:
            self._send("leave_group", LeaveGroup(GROUP, (LeavingMember(self.member_id),)), lambda _: None)

    def act(self) -> None:
        """What it does when it gets time."""
        while self._inbox and self.is_alive:
            handle, result = self._inbox.popleft()
            handle(result)
        if not self.is_alive:
            return
        if not self._is_in:
            self._join()
        elif self._is_leader and self._has_part and self._seen_version != self.world.metadata_version:
            self.rejoin()
        elif self.generation >= 0 and self.world.now_ms - self._heard_ms >= HEARTBEAT_MS:
            self._heard_ms = self.world.now_ms
            beat = Heartbeat(GROUP, self.generation, self.member_id, self.instance_id)
            number = self.join_count
            self._send("heartbeat", beat, lambda error: number == self.join_count and self._is_refused(error))

    def rejoin(self) -> None:
        """Give up everything, and join at the next tick."""
        self._is_in = False
        self._is_leader = False
        self._has_part = False
        self.owned = frozenset()

    def _send(self, call: str, request: Any, handle: Callable[[Any], None]) -> None:
        done = self.world.stage.once(lambda result: self._inbox.append((handle, result)))
        getattr(self.world.stage.coordinator, call)(request, done)

    def _join(self) -> None:
        self._is_in = True
        self._heard_ms = self.world.now_ms
        self.join_count += 1
        number = self.join_count
        self.generation = -1
        request = JoinGroup(
            GROUP,
            "consumer",
            (GroupProtocol("range", subscription(*sorted(self.topics))),),
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
            self.instance_id,
            "c",
            requires_member_id=self.requires_member_id,
            can_skip_assignment=True,
        )
        self._send("join_group", request, lambda result: number == self.join_count and self._on_join(result))

    def _on_join(self, result: Any) -> None:
        if self._is_refused(result.error):
            if result.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = result.member_id
            return
        self.member_id, self.generation = result.member_id, result.generation
        self._is_leader = result.leader_id == result.member_id
        parts = {}
        if self._is_leader and not result.skip_assignment:
            self.world.assigned_version = self.world.metadata_version
            topics = {member.member_id: decode_topics(member.metadata) for member in result.members}
            parts = self.world.assign(topics)
        # Kafka's clients that skip the assignment miss what has changed meanwhile (KIP-814); these do not.
        self._seen_version = self.world.assigned_version
        number = self.join_count
        request = SyncGroup(
            GROUP, self.generation, self.member_id, self.instance_id, "consumer", "range", parts
        )
        self._send("sync_group", request, lambda result: number == self.join_count and self._on_sync(result))

    def _on_sync(self, result: Any) -> None:
        if not self._is_refused(result.error):
            self._has_part = True
            self.owned = frozenset(filter(None, result.assignment.decode().split("+")))

    def _is_refused(self, error: ErrorCode) -> bool:
        """Go on after an error as Kafka's clients do."""
        if error is ErrorCode.NONE:
            return False
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.crash()
        self.rejoin()
        return True
