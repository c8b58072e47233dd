"""The same scripts of deletions of offsets (KIP-496) against a stock Kafka 3.9 and against our broker: the
same answers, and the same groups afterwards. 20 s, most of them until the broker has started."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import OffsetCommitRequest, OffsetDeleteRequest
from logstore.model import OffsetAndMetadata, TopicPartition
from tests.broker.groups.test_as_kafka import Match, Player, Theirs, _has_coordinator
from tests.broker.rig import Rig
from tests.interop import clients
from tests.interop.kafka import OLD, KafkaBroker, require_kafka, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.consumer import group as wire

pytestmark = pytest.mark.interop

TOPICS = ("orders", "bills")

SCRIPTS = {
    "without members": """
        forget a orders
        commit a orders,bills
        forget a nowhere
        forget a orders,nowhere
        describe a
        commit a orders
        forget a bills
        forget a bills
        describe a
        forget a orders
        describe a
        forget a orders
        delete a
        """,
    "with members": """
        join a v3
        sync a a=0
        commit a orders,bills
        forget a orders
        forget a orders,bills
        describe a
        forget a bills,nowhere
        heartbeat a
        join b v3
        forget a bills
        join a v3
        forget a bills
        sync b
        sync a a=0 b=1
        forget a bills
        forget a orders
        leave b
        leave a
        """,
    "a rebalance with other topics": """
        join a v3 protocols=range:bills
        sync a a=0
        commit a orders,bills
        forget a orders
        join b v3 protocols=range:orders
        commit a orders,bills
        forget a orders
        forget a bills
        join a v3 protocols=range:bills
        forget a orders
        """,
    "before a first generation": """
        commit a orders
        join a v3
        forget a orders
        join b v3
        forget a bills
        forget a orders
        """,
    "after its members": """
        join a v3
        sync a a=0
        commit a orders,bills
        leave a
        forget a orders
        describe a
        forget a bills
        describe a
        """,
    "a group that never had an offset": """
        join a v3
        sync a a=0
        forget a bills
        describe a
        leave a
        describe a
        forget a nowhere
        describe a
        forget a bills
        describe a
        """,
    "members that are no consumers": """
        join a v3 type=connect
        sync a a=0
        commit a orders
        forget a orders
        forget a bills
        leave a
        forget a bills
        describe a
        forget a orders
        describe a
        """,
}


class Outcome(NamedTuple):
    """The group's error, and that of each topic."""

    error: str
    errors: tuple[tuple[str, str], ...]


def outcome(error: int, errors: Any) -> Outcome:
    return Outcome(
        ErrorCode(error).name, tuple(sorted((topic, ErrorCode(code).name) for topic, code in errors))
    )


class OurBroker:
    """Our broker, with both topics."""

    def __init__(self) -> None:
        self._rig = Rig()
        for topic in TOPICS:
            self._rig.directory.create_topic(topic, 1, None)
        self._pending: list[tuple[str, Any]] = []

    def send(self, name: str, verb: str, version: int, request: Any) -> None:
        broker: Any = self._rig.broker
        if verb == "commit":
            group_id, generation, member_id, topics = request
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1) for topic in topics}
            pending = broker.offset_commit(OffsetCommitRequest(group_id, offsets, generation, member_id))
        elif verb == "forget":
            group_id, _, _, topics = request
            partitions = tuple(TopicPartition(topic, 0) for topic in topics)
            pending = broker.offset_delete(OffsetDeleteRequest(group_id, partitions))
        else:
            pending = getattr(broker, verb)(tuple(request) if isinstance(request, list) else request)
        self._pending.append((name, pending))

    def answers(self) -> list[tuple[str, Any]]:
        self._rig.pass_time(0)
        found = [(name, pending.poll()) for name, pending in self._pending]
        self._pending = [each for each in self._pending if each[1].poll() is None]
        return [(name, self._plain(result)) for name, result in found if result is not None]

    def _plain(self, result: Any) -> Any:
        if not hasattr(result, "errors"):
            return result
        error = result.error if hasattr(result, "_fields") and "error" in result._fields else 0
        return outcome(error, ((partition.topic, code) for partition, code in result.errors.items()))


class TheirBroker(Theirs):
    def _commit(self, name, version, commit):
        group_id, generation, member_id, topics = commit
        topic = wire.OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        request = wire.OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=None,
            topics=[topic(name=each, partitions=[partition]) for each in topics],
            version=7,
        )
        self.call(name, request, wire.OffsetCommitResponse, 7, lambda response: self._read(response, 0))

    def _forget(self, name, version, forgets):
        group_id, _, _, topics = forgets
        topic = wire.OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = topic.OffsetDeleteRequestPartition(partition_index=0)
        request = wire.OffsetDeleteRequest(
            group_id=group_id,
            topics=[topic(name=each, partitions=[partition]) for each in topics],
            version=0,
        )
        self.call(
            name,
            request,
            wire.OffsetDeleteResponse,
            0,
            lambda response: self._read(response, response.error_code),
        )

    def _read(self, response, error):
        return outcome(error, ((each.name, each.partitions[0].error_code) for each in response.topics))


class OffsetsPlayer(Player):
    def play(self, step: str) -> None:
        verb, name, *words = step.split()
        if verb not in ("commit", "forget"):
            super().play(step)
            return
        member = self._generations.get(name, -1), self._ids.get(name, "")
        self.side.send(name, verb, 0, (self._group_id, *member, words[0].split(",")))

    def hear(self, name: str, answer: Any) -> Any:
        return answer if isinstance(answer, Outcome) else super().hear(name, answer)


class OffsetsMatch(Match):
    def __init__(self, port: int, title: str) -> None:
        self.title = title
        self.ours = OffsetsPlayer(OurBroker(), title)
        self.theirs = OffsetsPlayer(TheirBroker(port), title)


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    require_kafka(OLD)
    config = {"group.coordinator.new.enable": "false", "num.io.threads": 1}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), version=OLD, config=config) as broker:
        clients.create_topics(broker.bootstrap, dict.fromkeys(TOPICS, 1), {})
        wait_for(lambda: _has_coordinator(broker.port), "the group coordinator")
        yield broker.port


@pytest.mark.parametrize("title", SCRIPTS)
def test_the_answers_are_kafkas(port, title):
    match = OffsetsMatch(port, title)
    try:
        match.play(SCRIPTS[title])
    finally:
        match.theirs.side.close()
