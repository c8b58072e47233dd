"""Processes that consume as a group of the newer protocol, on a clock set by hand.

A process does what Kafka's clients do: it sends heartbeats, gives up what is not assigned to it any more,
says so, and takes what is. Some take their time to give up. Answers may be lost; a process that has none says
all of itself again, with the epoch that it knows. A stalled process does nothing, and goes on later as if no
time had passed.
"""

from __future__ import annotations

import random
from collections import Counter

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat, TopicIdPartition
from logstore.broker.consumer_groups.states import GroupState
from tests.broker.consumer_groups.stage import GROUP, Stage

TICK_MS = 1_000
BEAT_MS = 5_000
REBALANCE_MS = 20_000
SETTLED_MS = 120_000
"""Enough for sessions and rebalances to end, and for some heartbeats after that."""

_NOTHING: frozenset[TopicIdPartition] = frozenset()
_RETRY = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_REJOIN = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
_FATAL = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID}


class World:
    """A coordinator, topics, and processes."""

    def __init__(self, seed: int) -> None:
        self.stage = Stage({"orders": 3, "bills": 2, "jobs": 1})
        self.random = random.Random(seed)
        self.processes: list[Process] = []
        self.group_epoch = 0

    @property
    def live(self) -> list[Process]:
        """Those that run."""
        return [process for process in self.processes if process.is_alive and not process.is_stalled]

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.stage.wait(TICK_MS)
            self.random.shuffle(self.processes)
            for process in self.live:
                process.act()
            self.check()

    def check(self) -> None:
        """No partition has two owners; epochs only rise; and what is stored is the group."""
        group = self.stage.group
        if group is None:
            return
        owners = Counter(
            partition for process in self.processes if process.is_member for partition in process.owned
        )
        assert not [each for each, count in owners.items() if count > 1]
        held = Counter(each for member in group.members.values() for each in member.held)
        assert not [each for each, count in held.items() if count > 1]
        assert group.holders.keys() == held.keys()
        targets = Counter(each for target in group.targets.values() for each in target)
        assert not [each for each, count in targets.items() if count > 1]
        assert group.epoch >= self.group_epoch
        self.group_epoch = group.epoch
        assert group.assignment_epoch <= group.epoch
        assert all(member.epoch <= group.epoch for member in group.members.values())
        assert self.stage.storage.load() == [group]

    def restart(self) -> None:
        before = self.stage.group
        self.stage.coordinator.close()
        assert not self.stage.timers.armed
        self.stage.start()
        if before is not None and self.stage.group is not None:
            self.group_epoch = min(self.group_epoch, self.stage.group.epoch)

    def settle(self) -> None:
        """Let things calm down, and check that each partition is owned by a member that wants it."""
        self.stage.storage.is_failing = False
        self.stage.storage.keeps = None
        for process in self.processes:
            process.losing = 0
        self.pass_time(SETTLED_MS)
        group, live = self.stage.group, self.live
        assert {process.member_id for process in live} == set(group.members if group else ())
        if not live:
            assert group is None or group.state is GroupState.EMPTY
            return
        assert group.state is GroupState.STABLE
        assert {process.epoch for process in live} == {group.epoch}
        owned = Counter(partition for process in live for partition in process.owned)
        assert owned == Counter(self.stage.partitions(*{name for each in live for name in each.wanted}))
        for process in live:
            assert process.owned <= self.stage.partitions(*process.wanted)
            assert process.owned == group.members[process.member_id].assigned.keys()


class Process:
    """One consumer."""

    _started = 0

    def __init__(
        self, world: World, topics: frozenset[str], *, pattern: str = "", instance_id: str | None = None
    ) -> None:
        Process._started += 1
        self.started = Process._started
        self.world = world
        self.topics, self.pattern, self.instance_id = topics, pattern, instance_id
        self.member_id = f"p{self.started}"
        self.epoch = 0
        self.owned = _NOTHING
        self.giving_up = _NOTHING
        """What it was told to give up, and still works on."""
        self.coming = _NOTHING
        """What it may take after that."""
        self.patience = 0
        """How many beats it takes to give up."""
        self.losing = 0
        """How many answers are lost from now on."""
        self.is_alive, self.is_stalled = True, False
        self._is_full = True
        """Whether the next heartbeat says all."""
        self._beat_ms = -BEAT_MS
        world.processes.append(self)

    def __repr__(self) -> str:
        return f"<{self.member_id} in {self.epoch}: {len(self.owned)}>"

    @property
    def wanted(self) -> set[str]:
        """The names of its topics."""
        matched = {name for name in self.world.stage.topics if self.pattern and self.pattern in name}
        return set(self.topics) | matched

    @property
    def is_member(self) -> bool:
        """Whether the coordinator counts on what it owns: else it was removed, and will hear of that."""
        group = self.world.stage.group
        member = group.members.get(self.member_id) if group is not None else None
        if not self.is_alive or member is None:
            return False
        return self.epoch in (member.epoch, member.previous_epoch)

    def subscribe(self, topics: frozenset[str], pattern: str = "") -> None:
        self.topics, self.pattern = topics, pattern
        self._is_full = True

    def leave(self, *, for_a_while: bool = False) -> None:
        self.is_alive = False
        if self.epoch > 0:
            epoch = -2 if for_a_while else -1
            self.world.stage.coordinator.heartbeat(
                ConsumerGroupHeartbeat(GROUP, self.member_id, epoch, self.instance_id)
            )

    def act(self) -> None:
        """What it does when it gets time."""
        now_ms = self.world.stage.clock.monotonic_ms()
        if now_ms - self._beat_ms < BEAT_MS and not self._is_full:
            return
        self._beat_ms = now_ms
        self._give_up()
        request = ConsumerGroupHeartbeat(GROUP, self.member_id, self.epoch, self.instance_id)
        if self._is_full:
            request = request._replace(
                rebalance_timeout_ms=REBALANCE_MS,
                topics=tuple(sorted(self.topics)),
                pattern=f".*{self.pattern}.*" if self.pattern else "",
                owned=self.owned,
            )
        elif self.world.random.random() < 0.8:  # it may leave out what has not changed
            request = request._replace(owned=self.owned)
        result = self.world.stage.coordinator.heartbeat(request)
        if self.losing:
            self.losing -= 1
            self._is_full = True
            return
        self._take(result)

    def _give_up(self) -> None:
        if self.patience:
            self.patience -= 1
        else:
            self.owned = (self.owned - self.giving_up) | self.coming
            self.giving_up = self.coming = _NOTHING

    def _take(self, result) -> None:
        self._is_full = result.error is not ErrorCode.NONE
        if result.error in _REJOIN:
            self.epoch, self.owned, self.giving_up, self.coming = 0, _NOTHING, _NOTHING, _NOTHING
        elif result.error in _FATAL:
            self.is_alive = False
        elif result.error is ErrorCode.NONE:
            assert result.member_epoch >= self.epoch
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self._reach(frozenset(result.assignment))
        else:
            assert result.error in _RETRY

    def _reach(self, assignment: frozenset[TopicIdPartition]) -> None:
        self.giving_up = self.owned - assignment
        self.coming = assignment - self.owned
        if not self.giving_up:
            self.owned, self.coming = assignment, _NOTHING
        else:
            self.patience = self.world.random.choice([0, 0, 1, 2])
            self._give_up()
