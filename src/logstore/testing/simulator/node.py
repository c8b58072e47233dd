"""A node of a simulated cluster: one process at a time, on one disk.

It does what the rules say, on a log that is a list, or on a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from logstore.replica.rules.actions import (
    Action,
    BeginEpoch,
    DeleteBefore,
    Fetch,
    FetchAnswer,
    Propose,
    RaiseHighWatermark,
    StartAt,
    StepDown,
    Take,
    TruncateTo,
)
from logstore.replica.rules.electing import elect, prefer
from logstore.replica.rules.leading import ReplicaConfig
from logstore.replica.rules.partition_state import Living, Member, PartitionState
from logstore.replica.rules.reassigning import arrive, is_moving, origin, reassign
from logstore.replica.rules.replica import Replica
from logstore.testing.simulator.coordinator import COORDINATOR, Coordinator
from logstore.testing.simulator.model_log import SimulatedLog
from logstore.testing.simulator.network import World
from logstore.testing.simulator.watcher import Watcher

LEASE_MS: Final = 400
"""How long after the coordinator was asked, and has answered, a node may lead. Less than a session, by more
than clocks drift."""
_TICK_MS: Final = 20
_BEAT_MS: Final = 100
_GIVE_UP_MS: Final = 150
_FLUSH_SHARE: Final = 0.3
_PREFER_SHARE: Final = 0.3


@dataclass(slots=True)
class Disk:
    """What outlives a process."""

    log: SimulatedLog
    last_life: int = 0
    is_whole: bool = True
    """Whether nothing was lost since: the process was stopped, or killed on a machine that ran on."""


class _Promised(NamedTuple):
    """A record that is to be acknowledged."""

    offset: int
    value: int


class Node:
    """Of a cluster with one partition."""

    def __init__(
        self,
        world: World,
        node_id: int,
        nodes: Mapping[int, Node],
        watcher: Watcher,
        config: ReplicaConfig,
        drift: float,
        log: SimulatedLog,
    ) -> None:
        self.node_id = node_id
        self.disk = Disk(log)
        self.is_running = self.is_paused = False
        self.move_share = 0.0
        """How often it sends the partition elsewhere, as the controller that has nothing else to do."""
        self.coordinator: Coordinator
        self._world = world
        self._nodes = nodes
        self._watcher = watcher
        self._config = config
        self._drift = drift
        self._start_count = 0
        self._held: list[Callable[[], object]] = []
        """What arrived while it was paused."""
        self._was_whole = True
        self._begin_process()

    def _begin_process(self) -> None:
        self.replica: Replica | None = None
        """Once it has registered."""
        self._rate = 1 + self._world.rng.uniform(-self._drift, self._drift)
        self._lease_until = -1.0
        self._beat_at = -1.0
        self._asked: tuple[Fetch, float] | None = None
        self._promised: list[_Promised] = []
        self._newest_version = -1
        """Of the states of which it knows."""

    @property
    def log(self) -> SimulatedLog:
        return self.disk.log

    @property
    def is_whole(self) -> bool:
        """Whether it has lost nothing of which the coordinator does not know."""
        return self._is_process_whole if self.is_running else self.disk.is_whole

    @property
    def _is_process_whole(self) -> bool:
        return self._was_whole or self.replica is not None

    @property
    def _is_durable(self) -> bool:
        return self._config.is_durable

    def _now_ms(self) -> float:
        """By its own clock."""
        return self._world.now_ms * self._rate

    # Its processes

    def start(self) -> None:
        """A process begins."""
        self._start_count += 1
        self.is_running, self.is_paused = True, False
        self._was_whole, self.disk.is_whole = self.disk.is_whole, False
        self.log.restart()
        self._begin_process()
        self._world.network.connect(self.node_id, self._receive)
        self._tick(self._start_count)

    def _end(self) -> None:
        self.is_running = False
        self._held = []
        self._world.network.disconnect(self.node_id)

    def stop(self) -> None:
        """It ends as it should."""
        self._end()
        self.log.flush()
        self.disk.is_whole = self._is_process_whole

    def kill(self) -> None:
        """The process is killed; the machine runs on, and has what was written."""
        self._end()
        self.disk.is_whole = self._is_process_whole

    def cut_power(self) -> None:
        """The machine ends: what was not flushed may be gone."""
        self._end()
        self.log.crash(self._world.rng)
        self._watcher.note_cut(self.node_id, 0)
        self.disk.is_whole = False

    def pause(self) -> None:
        """The process stands still; its clock goes on."""
        self.is_paused = True

    def resume(self) -> None:
        """It goes on, with what has arrived meanwhile."""
        self.is_paused = False
        held, self._held = self._held, []
        for call in held:
            if self.is_running:
                self._receive(call)

    def _receive(self, call: Callable[[], object]) -> None:
        if self.is_paused:
            self._held.append(call)
        else:
            call()

    # The coordinator

    def _tick(self, start: int) -> None:
        if not self.is_running or start != self._start_count:
            return
        self._world.call_later(_TICK_MS, lambda: self._tick(start))
        if self.is_paused:
            return
        now_ms = self._now_ms()
        if now_ms >= self._beat_at:
            self._beat_at = now_ms + _BEAT_MS
            self._beat(start, now_ms)
        if self.replica is not None:
            self._check_lease()
            self._work(self.replica, now_ms)

    def _beat(self, start: int, now_ms: float) -> None:
        node_id, coordinator = self.node_id, self.coordinator
        if self.replica is not None:
            life = self.replica.member.life
            self._say(lambda: coordinator.beat(node_id, life, now_ms))
        else:
            last_life, is_whole = self.disk.last_life, self._was_whole
            self._say(lambda: coordinator.register(node_id, start, last_life, is_whole=is_whole))

    def _say(self, call: Callable[[], object]) -> None:
        self._world.network.send(self.node_id, COORDINATOR, call)

    def on_registered(self, start: int, life: int) -> None:
        if start != self._start_count or self.replica is not None:
            return
        self.disk.last_life = life
        self.replica = Replica(Member(self.node_id, life), self.log, self._config)
        self._beat_at = -1.0

    def on_expired(self, life: int) -> None:
        """It was not heard of for too long: it begins again, having lost nothing."""
        if self.replica is None or self.replica.member.life != life:
            return
        self._do(self.replica.on_lease_ended())
        self.kill()
        self.start()

    def on_alive(self, life: int, sent_ms: float) -> None:
        if self.replica is not None and self.replica.member.life == life:
            self._lease_until = max(self._lease_until, sent_ms + LEASE_MS)

    @property
    def _has_lease(self) -> bool:
        """Whether it may lead now."""
        return self._now_ms() <= self._lease_until

    def _check_lease(self) -> None:
        """In front of what only a leader may do."""
        if self.replica is not None and self.replica.leads and not self._has_lease:
            self._do(self.replica.on_lease_ended())

    def on_state(self, state: PartitionState) -> None:
        if self.replica is None or state.version < self._newest_version:
            return
        self._newest_version = state.version
        if self.node_id not in state.replicas:
            self._delete(self.replica)
        elif self._has_lease:
            self._do(self.replica.on_state(state, int(self._now_ms())))

    def _delete(self, replica: Replica) -> None:
        """The partition is on other nodes."""
        self._do(replica.on_lease_ended())
        self.replica = Replica(replica.member, self.log, self._config)
        self._asked = None
        if self.log.log_end_offset:
            self._watcher.counts["deletions"] += 1
        self.log.delete()
        self._watcher.note_cut(self.node_id, 0)

    def on_living(self, life: int, living: Living, state: PartitionState) -> None:
        """As the controller."""
        if self.replica is None or self.replica.member.life != life:
            return
        wanted, hands_over = self._decide(state, living)
        if wanted is not None:
            member, coordinator, chosen = self.replica.member, self.coordinator, wanted
            self._say(lambda: coordinator.propose(member, chosen, as_controller=True, hands_over=hands_over))

    def _decide(self, state: PartitionState, living: Living) -> tuple[PartitionState | None, bool]:
        """What to change, and whether a leader that leads well may be replaced by that."""
        min_isr, is_durable = self._config.min_insync_replicas, self._config.is_durable
        election = elect(state, living, min_isr=min_isr, is_durable=is_durable)
        if election.state != state:
            self._watcher.note_election(election.choice)
            return election.state, False
        arrived = arrive(state, living, min_isr=min_isr, is_durable=is_durable)
        if arrived is not None:
            self._watcher.counts["moves that ended"] += 1
            return arrived, True
        chance = self._world.rng.random()
        if chance < _PREFER_SHARE:
            return prefer(state, living, min_isr=min_isr, is_durable=is_durable), True
        if chance < _PREFER_SHARE + self.move_share:
            self._watcher.counts["moves"] += 1
            goal = self._draw_goal(state, living)
            return reassign(state, goal, living, min_isr=min_isr, is_durable=is_durable), True
        return None, False

    def _draw_goal(self, state: PartitionState, living: Living) -> tuple[int, ...]:
        """Some living nodes; or where it came from."""
        rng = self._world.rng
        if is_moving(state) and rng.random() < 0.5:
            return origin(state)
        return tuple(rng.sample(sorted(living), rng.randint(1, len(living))))

    # The partition

    def _work(self, replica: Replica, now_ms: float) -> None:
        """What is to be done from time to time."""
        if self._is_durable and self._world.rng.random() < _FLUSH_SHARE:
            self.log.flush()
            self._do(replica.on_growth(int(now_ms)))
        if self._asked is not None and now_ms - self._asked[1] > _GIVE_UP_MS:
            fetch, self._asked = self._asked[0], None
            self._do(replica.on_answer(fetch, None))
        self._go_on(replica)

    def _go_on(self, replica: Replica) -> None:
        if self._is_durable and not replica.leads:
            self.log.flush()  # in front of the fetch that tells of it
        self._do(replica.on_tick(int(self._now_ms())))

    def on_produce(self, value: int) -> None:
        """A client sends a record, to be acknowledged by all."""
        replica = self.replica
        self._check_lease()
        if replica is None or replica.leading is None or not replica.leading.has_enough:
            return
        epoch = replica.leader_epoch
        self._watcher.note_append(self.node_id, epoch, was_handed_over=epoch in self.coordinator.handed_over)
        self._promised.append(_Promised(self.log.append(value), value))
        self._do(replica.on_growth(int(self._now_ms())))

    def on_fetch(self, follower: Member, fetch: Fetch) -> None:
        """A follower asks."""
        replica, log = self.replica, self.log
        self._check_lease()
        if replica is None or not replica.leads or replica.leader_epoch != fetch.leader_epoch:
            return
        check = replica.on_fetch(follower, fetch.offset, fetch.last_fetched_epoch, int(self._now_ms()))
        self._do(check.actions)
        is_refused = check.diverging is not None or check.is_out_of_range
        found = b"" if is_refused else log.batches_from(fetch.offset)
        answer = FetchAnswer(
            fetch.leader_epoch,
            log.high_watermark,
            log.log_start_offset,
            check.diverging,
            check.is_out_of_range,
            bool(found),
        )
        asking = self._nodes[follower.node_id]
        self._world.network.send(
            self.node_id, follower.node_id, lambda: asking.on_answer(fetch, answer, found)
        )

    def on_answer(self, fetch: Fetch, answer: FetchAnswer, batches: Any) -> None:
        """The leader has answered."""
        replica = self.replica
        if replica is None or self._asked is None or self._asked[0] is not fetch:
            return
        self._asked = None
        self._do(replica.on_answer(fetch, answer), batches)
        self._go_on(replica)

    def _do(self, actions: list[Action], batches: Any = None) -> None:
        for action in actions:
            self._do_one(action, batches)

    def _do_one(self, action: Action, batches: Any) -> None:
        replica, log = self.replica, self.log
        assert replica is not None
        match action:
            case Fetch():
                self._asked = (action, self._now_ms())
                member, leader = replica.member, self._nodes[action.leader_id]
                self._world.network.send(
                    self.node_id, action.leader_id, lambda: leader.on_fetch(member, action)
                )
            case Take(epoch):
                log.append_replicated(batches, epoch)
            case TruncateTo(offset) | StartAt(offset):
                log.truncate_to(offset)
                self._watcher.counts["truncations"] += 1
                self._watcher.note_cut(self.node_id, log.log_end_offset)
            case BeginEpoch(epoch):
                was_handed_over = epoch in self.coordinator.handed_over
                self._watcher.note_leader(self.node_id, epoch, log, was_handed_over=was_handed_over)
                log.begin_epoch(epoch)
            case RaiseHighWatermark(offset):
                self._raise_high_watermark(replica, offset)
            case Propose(state):
                self._watcher.counts["proposals"] += 1
                member, coordinator = replica.member, self.coordinator
                self._say(lambda: coordinator.propose(member, state))
            case StepDown():
                self._promised = []
            case DeleteBefore():  # pragma: no cover - nothing is deleted here
                raise NotImplementedError

    def _raise_high_watermark(self, replica: Replica, offset: int) -> None:
        if replica.leads:
            self._watcher.note_high_watermark(self.log, offset)
        self.log.raise_high_watermark(offset)
        self._watcher.check_readable(self.node_id, self.log)
        promised, self._promised = self._promised, []
        for each in promised:
            if each.offset < self.log.high_watermark:
                self._watcher.note_acknowledged(each.value, each.offset)
            else:
                self._promised.append(each)
