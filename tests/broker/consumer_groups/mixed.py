"""Consumers of both protocols that share a group, at a broker on a clock set by hand.

A process does what Kafka's clients do. An eager one gives up all before it joins again, a cooperative one
what its assignment lacks, after that. Who leads a classic group assigns by ranges; of what a cooperative
member still has it gives nothing to another.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from logstore.broker.local import LocalBroker
from logstore.broker.requests import CreatePartitionsRequest, MorePartitions
from logstore.format.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    ungrouped,
)
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from tests.broker.rig import Rig

GROUP = "g"
TICK_MS = 1_000
BEAT_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 8_000
SETTLED_MS = 150_000
"""Enough for the sessions of both protocols to end, and for rebalances after that."""

_NOTHING: frozenset[TopicPartition] = frozenset()


class World:
    """A broker with one topic, and processes."""

    def __init__(self, seed: int, partitions: int = 5) -> None:
        self.rig = Rig(partitions=partitions)
        self.partition_count = self.assigned_count = partitions
        """How many partitions there are, and how many there were when a leader last assigned."""
        self.random = random.Random(seed)
        self.processes: list[Process] = []
        self._numbers = itertools.count(1)
        self._name_members()

    def _name_members(self) -> None:
        """By numbers, so that a sequence can be repeated."""
        classic, newer = self.coordinators()
        classic._new_member_id = newer._new_member_id = lambda prefix="": f"m{next(self._numbers):04}"

    @property
    def now_ms(self) -> int:
        return self.rig.clock.monotonic_ms()

    @property
    def live(self) -> list[Process]:
        return [each for each in self.processes if each.is_alive and not each.is_stalled]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition("t", number) for number in range(self.partition_count))

    def grow(self) -> None:
        self.partition_count += 1
        request = CreatePartitionsRequest((MorePartitions("t", self.partition_count),))
        assert not self.rig.now(self.rig.broker.create_partitions(request)).topics[0].error

    def restart(self) -> None:
        """The broker is killed, and starts again. What it has not answered is lost."""
        self.rig.directory.abandon()
        config = self.rig.directory.config
        self.rig.directory = LogDirectory(
            "/data", files=self.rig.files, clock=self.rig.clock, config=config, seed=1
        )
        self.rig.broker = LocalBroker(self.rig.directory)
        self._name_members()
        for each in self.processes:
            each.excuse()
            each.forget_what_waits()

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.rig.pass_time(TICK_MS)
            self.random.shuffle(self.processes)
            for process in self.live:
                process.act()
            for process in self.processes:
                if process.is_stalled:
                    process.excuse()
            self.check()

    def coordinators(self) -> Any:
        return self.rig.broker._groups._coordinators()

    def newer(self) -> Any:
        """The group, if it has the newer protocol."""
        active = self.coordinators().newer._groups.get(GROUP)
        return active and active.group

    def classic(self) -> Any:
        active = self.coordinators().classic._groups.get(GROUP)
        return active and active.group

    def check(self) -> None:
        """The group has one protocol, also in what is stored; and no partition has two owners."""
        committed = self.rig.broker.committed
        assert not (committed.load_group(GROUP) and committed.load_consumer_group(GROUP))
        newer, classic = self.newer(), self.classic()
        assert bool(newer) == bool(committed.load_consumer_group(GROUP))
        assert not (newer and newer.members and classic and classic.members)
        owned = Counter(each for process in self.processes if process.counts() for each in process.owned)
        assert max(owned.values(), default=1) == 1, (owned, self.processes)
        if newer:
            held = Counter(each for member in newer.members.values() for each in member.held)
            assert max(held.values(), default=1) == 1
            assert newer.holders.keys() == held.keys()

    def settle(self) -> None:
        """Let things calm down. The group has the protocol of its members, and each partition an owner."""
        self.pass_time(SETTLED_MS)
        live = self.live
        has_newer = any(isinstance(process, Newer) for process in live)
        newer, classic = self.newer(), self.classic()
        members = set(newer.members if newer else ()) | set(classic.members if classic else ())
        assert members == {process.member_id for process in live}, self.processes
        if not live:
            return
        assert bool(newer) == has_newer
        state = newer.state if newer else classic.state
        assert state.value == "Stable"
        owned = Counter(each for process in live for each in process.owned)
        assert owned == Counter(self.partitions), self.processes


class Process:
    """One consumer, of either protocol."""

    def __init__(self, world: World, instance_id: str | None = None) -> None:
        self.started = len(world.processes)
        self.world, self.instance_id = world, instance_id
        self.member_id = ""
        self.epoch = -1
        self.owned = _NOTHING
        self.is_alive, self.is_stalled = True, False
        self._excused_ms = 0
        self._beat_ms = -BEAT_MS
        world.processes.append(self)

    def __repr__(self) -> str:
        numbers = sorted(each.partition for each in self.owned)
        return f"<{type(self).__name__} {self.started} {self.instance_id}: {self.epoch}, {numbers}>"

    @property
    def rig(self) -> Rig:
        return self.world.rig

    def shares_its_name(self) -> bool:
        """Whether another process has its instance id: then who joins last has it."""
        others = (each for each in self.world.processes if each is not self)
        return self.instance_id is not None and any(each.instance_id == self.instance_id for each in others)

    def excuse(self) -> None:
        """It has stalled, or the broker was killed."""
        self._excused_ms = self.world.now_ms + 2 * SESSION_MS

    @property
    def may_be_lost(self) -> bool:
        """Else it is a member as long as it lives."""
        return self.world.now_ms < self._excused_ms

    def is_due(self) -> bool:
        if self.world.now_ms - self._beat_ms < BEAT_MS:
            return False
        self._beat_ms = self.world.now_ms
        return True

    def act(self) -> None:
        raise NotImplementedError

    def counts(self) -> bool:
        """Whether the coordinator counts on what it owns: else it was removed, and will hear of that."""
        newer, classic = self.world.newer(), self.world.classic()
        if not self.is_alive:
            return False
        member = newer.members.get(self.member_id) if newer else None
        if member is not None:
            return self.epoch in (member.epoch, member.previous_epoch)
        member = classic.members.get(self.member_id) if classic else None
        return member is not None and self.epoch in (classic.generation, member.known_generation)

    def leave(self) -> None:
        raise NotImplementedError

    def forget_what_waits(self) -> None:
        pass


class Newer(Process):
    """One of the newer protocol."""

    def __init__(self, world: World, instance_id: str | None = None) -> None:
        super().__init__(world, instance_id)
        self.member_id = f"n{self.started}"
        self.epoch = 0

    def act(self) -> None:
        if not (self.is_due() or self.epoch == 0):
            return
        topic_id = self.rig.directory.topic("t").topic_id
        owned = frozenset((topic_id, each.partition) for each in self.owned)
        beat = ConsumerGroupHeartbeat(GROUP, self.member_id, self.epoch, self.instance_id, owned=owned)
        if self.epoch == 0:
            beat = beat._replace(rebalance_timeout_ms=REBALANCE_MS, topics=("t",))
        result = self.rig.now(self.rig.broker.consumer_group_heartbeat(beat))
        if result.error is ErrorCode.NONE:
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self.owned = frozenset(TopicPartition("t", each.partition) for each in result.assignment)
        elif result.error in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            self.is_alive = False
        else:
            assert result.error in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            if self.shares_its_name():
                self.is_alive = False
            assert self.may_be_lost or not self.is_alive, (self, result)
            self.epoch, self.owned = 0, _NOTHING

    def leave(self) -> None:
        self.is_alive = False
        if self.epoch > 0:
            beat = ConsumerGroupHeartbeat(GROUP, self.member_id, -1, self.instance_id)
            self.rig.now(self.rig.broker.consumer_group_heartbeat(beat))


class Classic(Process):
    """One of the classic protocol, eager or cooperative."""

    def __init__(
        self,
        world: World,
        instance_id: str | None = None,
        *,
        cooperative: bool = False,
        requires_member_id: bool = True,
    ) -> None:
        super().__init__(world, instance_id)
        self.cooperative, self.requires_member_id = cooperative, requires_member_id
        self._waiting: Any = None
        """What is not answered yet, and who takes the answer."""
        self._is_in = False
        self._is_leader = False
        self._seen_count = 0
        """How many partitions there were when a leader last assigned; kept up by the leader."""

    def forget_what_waits(self) -> None:
        if self._waiting is not None:
            self._waiting, self._is_in = None, False

    def act(self) -> None:
        if self._waiting is not None:
            pending, take = self._waiting
            result = pending.poll()
            if result is None:
                return
            self._waiting = None
            take(result)
        elif not self._is_in:
            self._join()
        elif self._is_leader and self._seen_count != self.world.partition_count:
            self._rejoin()
        elif self.is_due():
            beat = Heartbeat(GROUP, self.epoch, self.member_id, self.instance_id)
            error = self.rig.now(self.rig.broker.heartbeat(beat))
            if error is not ErrorCode.NONE:
                self._take_error(error)

    def _rejoin(self) -> None:
        self._is_in = False
        if not self.cooperative:
            self.owned = _NOTHING

    def _join(self) -> None:
        self._is_in = True
        self._is_leader = False
        said = encode_subscription(
            ConsumerProtocolSubscription(("t",), None, by_topic(sorted(self.owned)), self.epoch)
        )
        joins = JoinGroup(
            GROUP,
            "consumer",
            (GroupProtocol("some", said),),
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
            self.instance_id,
            requires_member_id=self.requires_member_id,
            can_skip_assignment=True,
        )
        self._waiting = self.rig.broker.join_group(joins), self._take_join

    def _take_join(self, result: Any) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            self._join()
        elif result.error is not ErrorCode.NONE:
            self._take_error(result.error)
        else:
            self.member_id, self.epoch = result.member_id, result.generation
            self._is_leader = result.leader_id == self.member_id
            assignments = {}
            if self._is_leader and not result.skip_assignment:
                assignments = self._assign(result.members)
                self.world.assigned_count = self.world.partition_count
            self._seen_count = self.world.assigned_count
            sync = SyncGroup(GROUP, self.epoch, self.member_id, self.instance_id, assignments=assignments)
            self._waiting = self.rig.broker.sync_group(sync), self._take_sync

    def _assign(self, members: Any) -> dict[str, bytes]:
        owners = {
            partition: each.member_id
            for each in members
            for partition in ungrouped(decode_subscription(each.metadata).owned_partitions)
        }
        takers = sorted(each.member_id for each in members)
        parts: dict[str, list[TopicPartition]] = {each: [] for each in takers}
        for number, partition in enumerate(sorted(self.world.partitions)):
            taker = takers[number * len(takers) // len(self.world.partitions)]
            if owners.get(partition, taker) == taker:
                parts[taker].append(partition)
        return {
            each: encode_assignment(ConsumerProtocolAssignment(by_topic(part)))
            for each, part in parts.items()
        }

    def _take_sync(self, result: Any) -> None:
        if result.error is not ErrorCode.NONE:
            self._take_error(result.error)
            return
        given = decode_assignment(result.assignment) if result.assignment else ConsumerProtocolAssignment()
        before, self.owned = self.owned, frozenset(ungrouped(given.assigned_partitions))
        if before - self.owned:
            self._rejoin()

    def _take_error(self, error: ErrorCode) -> None:
        self._is_in = False
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin()
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_alive = False
        elif error is ErrorCode.ILLEGAL_GENERATION:
            assert self.may_be_lost or self.epoch < 0, self
            self.epoch, self.owned = -1, _NOTHING
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            assert self.may_be_lost or self.epoch < 0, self
            self.member_id, self.epoch, self.owned = "", -1, _NOTHING
        else:
            assert error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE), error

    def leave(self) -> None:
        self.is_alive = False
        if self.instance_id is None and self.member_id:
            leaves = LeaveGroup(GROUP, (LeavingMember(self.member_id),))
            self.rig.soon(self.rig.broker.leave_group(leaves))
