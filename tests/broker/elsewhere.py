"""A broker under test that is elsewhere: the same words as those of :mod:`tests.broker.rig`, on a clock that
runs by itself. What was left by the test before is deleted first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import (
    ACKS_LEADER,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchPartition,
    FetchRequest,
    FetchResult,
    MetadataRequest,
    NewTopic,
    ProducePartition,
    ProduceRequest,
)
from logstore.broker.share.requests import LEAVING, ShareGroupHeartbeat
from logstore.clock import SystemClock
from logstore.model import TopicPartition
from tests.broker.rig import T0, Rig, batch_of

ANSWER_SECONDS = 90


class ElsewhereRig(Rig):
    """A broker with the topic ``t`` of two partitions; others are made when they are named."""

    def __init__(self, broker: Broker, *, topics: Iterable[tuple[str, int]] = (("t", 2),)) -> None:
        self.clock = SystemClock()
        self.broker = broker
        self._clean()
        for name, partitions in topics:
            self.create_topic(name, partitions)

    def _clean(self) -> None:
        """Internal topics stay: a broker makes them once."""
        every = self.now(self.broker.metadata(MetadataRequest())).topics
        names = tuple(each.name for each in every if not each.is_internal)
        if names:
            self.now(self.broker.delete_topics(DeleteTopicsRequest(names)))
        groups = tuple(each.group_id for each in self.now(self.broker.list_groups()).groups)
        for group in self.now(self.broker.describe_groups(groups)):
            leaving = tuple(LeavingMember(each.member_id) for each in group.members)
            if leaving:
                self.now(self.broker.leave_group(LeaveGroup(group.group_id, leaving)))
        self.now(self.broker.delete_groups(groups))
        shared = self.now(self.broker.list_share_groups()).groups
        for described in self.now(self.broker.describe_share_groups(shared)):
            for member in described.members:
                leaves = ShareGroupHeartbeat(described.group, member.member_id, LEAVING)
                self.now(self.broker.share_group_heartbeat(leaves))
        self.now(self.broker.delete_share_groups(shared))

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        topic = NewTopic(name, partitions, {key.replace("_", "."): value for key, value in settings.items()})
        (made,) = self.now(self.broker.create_topics(CreateTopicsRequest((topic,)))).topics
        assert made.error is ErrorCode.NONE, made

    def pass_time(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def now(self, pending: Pending[Any]) -> Any:
        """The result, which is there soon."""
        result = wait_for(pending, ANSWER_SECONDS)
        assert result is not None, "no answer comes"
        return result

    soon = now

    def produce(self, *values: bytes, to: TopicPartition = T0, acks: int = ACKS_LEADER, **fields: Any) -> Any:
        data = batch_of(values, self.clock.now_ms(), **fields)
        return self.now(self.ask(data, to=to, acks=acks)).partitions[0]

    def ask(self, data: bytes, *, to: TopicPartition = T0, acks: int = ACKS_LEADER, timeout_ms: int = 1000):
        return self.broker.produce(ProduceRequest(acks, timeout_ms, (ProducePartition(to, data),)))

    def fetch(self, *wanted: FetchPartition, **options: Any) -> Pending[FetchResult]:
        return self.broker.fetch(FetchRequest(wanted, **options))


def chosen(tests: type, *names: str) -> type:
    """The same class of tests with only those of these names, for another module with another ``rig``."""
    kept: dict[str, Callable[..., Any]] = {
        name: value
        for name, value in vars(tests).items()
        if callable(value) and (name in names or not name.startswith("test_"))
    }
    missing = set(names) - set(kept)
    assert not missing, f"{tests.__name__} has no {missing}"
    return type(tests.__name__, (), {"__doc__": tests.__doc__, **kept})
