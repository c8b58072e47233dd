"""A coordinator of the newer protocol on a clock set by hand, with topics and a storage in memory."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.coordinator import ConsumerGroupCoordinator
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    TopicIdPartition,
)
from logstore.broker.consumer_groups.stored import Row, group_of
from logstore.errors import StorageError
from logstore.format.messages.consumer_group_records import decode_consumer_group_key
from logstore.schedule import Scheduler
from logstore.testing import ManualClock
from tests.broker.groups.stage import WatchedTimers

GROUP = "g"


class Topic(NamedTuple):
    topic_id: uuid.UUID
    partition_count: int


class MemoryStorage:
    """Keeps rows; may fail, also after some rows, as if the process had died there."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[bytes, bytes]] = {}
        self.is_failing = False
        self.keeps: int | None = None
        """How many rows of the next call stay before it fails."""
        self.stored: list[Row] = []
        """By the last call."""

    def store(self, group_id: str, rows: Sequence[Row]) -> None:
        if self.is_failing:
            raise StorageError(None, "the disk is full")
        self.stored = list(rows)
        kept, self.keeps = self.keeps, None
        known = self.rows.setdefault(group_id, {})
        for key, value in rows if kept is None else rows[:kept]:
            if value is None:
                known.pop(key, None)
            else:
                known[key] = value
        if kept is not None:
            raise StorageError(None, "the process dies")

    def delete(self, group_id: str) -> None:
        self.forget(group_id)

    def forget(self, group_id: str) -> None:
        if self.is_failing:
            raise StorageError(None, "the disk is full")
        self.rows.pop(group_id, None)

    def load(self) -> list[Group]:
        return [
            group_of(name, {decode_consumer_group_key(key): value for key, value in rows.items()})
            for name, rows in self.rows.items()
            if rows
        ]


class Stage:
    """One coordinator and its surroundings."""

    def __init__(self, topics: dict[str, int] | None = None, **config: int) -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.storage = MemoryStorage()
        self.config = ConsumerGroupConfig(**config)
        self.topics: dict[str, Topic] = {}
        self._topic_numbers = itertools.count(1)
        self._member_numbers = itertools.count(1)
        for name, count in (topics or {}).items():
            self.set_topic(name, count)
        self.start()

    def start(self) -> None:
        """A coordinator that knows what is stored."""
        self.timers = WatchedTimers(self.scheduler, self.clock)
        self.scheduler.run_due()
        self.coordinator = ConsumerGroupCoordinator(
            self.storage,
            self.timers,
            lambda: self.topics,
            config_of=lambda group_id: self.config,
            new_member_id=lambda: f"m{next(self._member_numbers)}",
        )
        self.coordinator.restore(self.storage.load())

    def set_topic(self, name: str, partition_count: int, *, is_new: bool = False) -> None:
        """Make a topic, or give it partitions; 0 deletes it."""
        topics = dict(self.topics)
        known = None if is_new else topics.pop(name, None)
        if partition_count:
            topic_id = known.topic_id if known else uuid.UUID(int=next(self._topic_numbers))
            topics[name] = Topic(topic_id, partition_count)
        self.topics = topics

    def partitions(self, *names: str) -> frozenset[TopicIdPartition]:
        return frozenset(
            TopicIdPartition(topic.topic_id, number)
            for name, topic in self.topics.items()
            if name in names
            for number in range(topic.partition_count)
        )

    def numbers(self, partitions) -> list[str]:
        """Partitions as ``orders-0``, of topics that are there."""
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        return sorted(f"{names[each.topic_id]}-{each.partition}" for each in partitions)

    @property
    def group(self) -> Group | None:
        known = self.coordinator._groups.get(GROUP)
        return known.group if known else None

    def beat(self, member_id: str, epoch: int, **fields) -> ConsumerGroupHeartbeatResult:
        beat = ConsumerGroupHeartbeat(GROUP, member_id, epoch, client_id="c", client_host="h", **fields)
        return self.coordinator.heartbeat(beat)

    def join(self, member_id: str, *topics: str, **fields) -> ConsumerGroupHeartbeatResult:
        given = {"rebalance_timeout_ms": 10_000, "topics": topics, "owned": frozenset()}
        return self.beat(member_id, 0, **(given | fields))

    def wait(self, ms: int) -> None:
        """Let time pass, from timer to timer."""
        end_ms = self.clock.monotonic_ms() + ms
        while self.timers.armed and self.timers.armed[0].due_ms <= end_ms:
            self.clock.advance(max(self.timers.armed[0].due_ms - self.clock.monotonic_ms(), 0))
            self.scheduler.run_due()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        self.scheduler.run_due()


class Client:
    """A consumer that does what it is told: it gives up, takes, and says so in its next heartbeat."""

    def __init__(self, stage: Stage, member_id: str, *topics: str, **fields) -> None:
        self.stage, self.member_id = stage, member_id
        self.epoch = 0
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.instance_id = fields.get("instance_id")
        self.take(stage.join(member_id, *topics, **fields))

    def take(self, result: ConsumerGroupHeartbeatResult) -> ErrorCode:
        self.error = result.error
        if result.error is ErrorCode.NONE:
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self.owned = frozenset(result.assignment)
        return result.error

    def beat(self, **fields) -> ErrorCode:
        given = {"owned": self.owned, "instance_id": self.instance_id}
        return self.take(self.stage.beat(self.member_id, self.epoch, **(given | fields)))

    @property
    def shown(self) -> list[str]:
        return self.stage.numbers(self.owned)


def settle(*clients: Client) -> None:
    """Until all are where they shall be."""
    for _ in range(4):
        for client in clients:
            assert client.beat() is ErrorCode.NONE, client.member_id
