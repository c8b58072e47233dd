"""The same scripts of raw requests against a stock Kafka 3.9 and against our coordinator: the same answers.

Compared are who is answered, and when: errors, generations, protocols, leaders and members by name,
assignments. Where Kafka leaves something to chance (a new leader among several), no script depends on it.
"""

from __future__ import annotations

import select
import socket
import struct
import time
import warnings
from typing import Any

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import Heartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from tests.broker.groups.stage import Stage, protocols
from tests.interop import clients
from tests.interop.kafka import OLD, KafkaBroker, require_kafka, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.admin import (
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
    )
    from kafka.protocol.consumer.group import (
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        OffsetCommitRequest,
        OffsetCommitResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

pytestmark = pytest.mark.interop

TOPIC = "orders"
ANSWER_SECONDS = 10
MOST_MEMBERS = 3
SHORT_MS = 3_000
"""The session of a member that is to fail: long enough for what it does before."""

SCRIPTS = {
    "two members come and go": """
        join a v3
        heartbeat a
        commit a
        sync a a=0+1
        commit a
        heartbeat a
        join b v3
        heartbeat a
        commit a
        sync a
        join a v3
        sync b
        sync a a=0 b=1
        sync b
        heartbeat b
        leave b
        heartbeat b
        commit b
        heartbeat a
        join a v3
        sync a a=0+1
        leave a
        heartbeat a
        commit a
        join a v3 new
        sync a a=0
        """,
    "a member id comes first": """
        join a v5
        heartbeat a
        join a v5
        join a v5
        sync a a=0
        join b v5
        heartbeat a
        join c v3
        join a v5
        leave b
        sync a a=0 c=1
        sync c
        join b v5
        """,
    "metadata changes": """
        join a v5
        join a v5
        join b v3
        join a v5
        sync b
        sync a a=0 b=1
        join b v3
        sync b
        join b v3 protocols=range:orders+bills
        heartbeat a
        join a v5
        join b v3 protocols=range:orders+bills
        join b v3 protocols=range:bills
        join a v5
        sync a a=0 b=1
        sync b
        join a v5
        join b v3
        """,
    "protocols": """
        join a v3 protocols=range:orders,sticky:orders
        join b v3 protocols=sticky:orders,other:orders type=connect
        join b v3 protocols=other:orders
        join b v3 protocols=
        join b v3 protocols=sticky:orders,range:orders
        join c v3 protocols=sticky:orders,range:orders
        join a v3
        sync a v5 protocol=range type=consumer
        sync a v5 protocol=sticky type=connect
        sync a v5 protocol=sticky type=consumer a=0 b=1
        sync b
        leave b
        leave c
        join a v3 protocols=other:orders
        join a v3 protocols=range:orders
        """,
    "requests that do not fit": """
        join a v3 id=nobody
        heartbeat a
        sync a
        leave a id=nobody
        commit a generation=1 id=nobody
        commit a generation=1
        join a v3 type=
        join a v3 protocols=
        join a v3 session=5
        join a v3 session=9999999
        commit a
        commit a generation=1
        join a v3 id=nobody protocols=range:orders
        join a v3
        commit b
        commit b id=nobody
        commit a generation=5
        heartbeat a generation=5
        sync a generation=5
        heartbeat a instance=x
        sync a a=0
        heartbeat a id=nobody
        """,
    "static members restart": """
        join a v9 instance=x
        sync a a=0+1
        join b v5 instance=y
        join a v9
        sync b
        sync a a=0 b=1
        join b v5 new
        sync b
        heartbeat a
        heartbeat b
        join a v9 new
        sync a
        heartbeat b
        join a v5 new
        sync a
        heartbeat b
        join c v5 instance=y
        heartbeat b
        commit b
        sync b
        join b v5
        leave b
        heartbeat c
        remove y
        heartbeat c
        remove y
        heartbeat a
        """,
    "static members restart in a rebalance": """
        join a v5 instance=x
        sync a a=0
        join b v5 instance=y
        join c v5 instance=y
        join a v5
        sync c
        join b v5 new
        sync a a=0
        heartbeat c
        join a v5
        sync a a=0 b=1
        sync b
        """,
    "a static member prefers another protocol": """
        join a v5 instance=x protocols=range:orders,sticky:orders
        sync a a=0
        join a v5 new protocols=sticky:orders,range:orders
        sync a a=0
        """,
    "described and deleted": """
        describe a
        delete a
        join a v5
        describe a
        delete a
        join a v5
        describe a
        join b v5 instance=x
        describe a
        join a v5
        describe a
        delete a
        sync b
        sync a a=0 b=1
        describe a
        leave a
        describe a
        remove x
        describe a
        commit a
        delete a
        describe a
        delete a
        heartbeat a
        """,
    "a full group": """
        join a v3
        join b v3
        join a v3
        join c v5
        join c v5
        join b v3
        join a v3
        join d v3
        join d v5
        sync a a=0 b=1 c=2
        join d v3
        leave c
        join d v5
        join d v5
        join b v3
        join a v3
        """,
}

TIMED = {
    "a member fails": (
        f"join a v3\nsync a a=0\njoin b v3 session={SHORT_MS}\njoin a v3\nsync b\nsync a a=0 b=1",
        "heartbeat a\nheartbeat b\njoin a v3\nsync a a=0+1",
    ),
    "the leader fails before it syncs": (
        f"join a v3 session={SHORT_MS}\nsync a a=0\njoin b v3\njoin a v3 session={SHORT_MS}\nsync b",
        "heartbeat a\nheartbeat b\njoin b v3\nsync b b=0",
    ),
    "a member does not join again": (
        f"join a v3 rebalance={SHORT_MS}\nsync a a=0\njoin b v3 rebalance={SHORT_MS}",
        "heartbeat a\njoin a v3\nsync b b=0",
    ),
    "a follower does not sync": (
        f"join a v3 rebalance={SHORT_MS}\nsync a a=0\njoin b v3 rebalance={SHORT_MS}\n"
        f"join a v3 rebalance={SHORT_MS}\nsync a a=0 b=1",
        "heartbeat b\nheartbeat a\njoin a v3",
    ),
    "a member id is not used": (
        f"join a v3\nsync a a=0\njoin b v5 session={SHORT_MS}\njoin c v3\njoin a v3",
        "join b v5\nsync c\nsync a a=0 c=1",
    ),
    "a static member stays away": (
        f"join a v5 instance=x rebalance={SHORT_MS}\njoin b v5 instance=y rebalance={SHORT_MS}\n"
        f"join a v5 rebalance={SHORT_MS}\nsync b\nsync a a=0 b=1\njoin a v5 rebalance={SHORT_MS}",
        "heartbeat b\nsync a a=0 b=1\nheartbeat a",
    ),
}


class Ours:
    """Our coordinator."""

    def __init__(self) -> None:
        self._stage = Stage(group_min_session_timeout_ms=100, group_max_size=MOST_MEMBERS)
        self._answers: list[tuple[str, Any]] = []

    def send(self, name: str, verb: str, version: int, request: Any) -> None:
        coordinator = self._stage.coordinator
        if verb == "commit":
            self._answers.append((name, coordinator.check_commit(*request)))
        else:
            done = self._stage.once(lambda result: self._answers.append((name, result)))
            getattr(coordinator, verb)(request, done)

    def wait(self, ms: int) -> None:
        self._stage.wait(ms)

    def answers(self) -> list[tuple[str, Any]]:
        answers, self._answers = self._answers, []
        return answers


class Theirs:
    """Connections to a broker, one for each client."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: dict[str, socket.socket] = {}
        self._waiting: dict[str, Any] = {}
        """Client -> how its answer is read."""

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def call(self, name: str, request: Any, response: Any, version: int, read: Any) -> None:
        assert name not in self._waiting, f"{name} still waits"
        if name not in self._sockets:
            self._sockets[name] = socket.create_connection(("127.0.0.1", self._port), ANSWER_SECONDS)
            self._probe(name)  # it is accepted by another thread
        request.with_header(correlation_id=1, client_id=name)
        self._sockets[name].sendall(request.encode(version=version, header=True, framed=True))
        self._waiting[name] = lambda frame: read(response.decode(frame, version=version, header=True))

    def answer(self, name: str) -> Any:
        """What the client hears."""
        if name not in self._waiting:
            return "is not asked"
        connection = self._sockets[name]
        try:
            (size,) = struct.unpack(">i", self._receive(connection, 4))
            frame = self._receive(connection, size)
        except TimeoutError:
            return "is not answered"
        return self._waiting.pop(name)(frame)

    def answered_early(self, seconds: float = 0) -> list[str]:
        """Who has an answer that nobody has asked for."""
        waiting = {self._sockets[name]: name for name in self._waiting}
        return [waiting[each] for each in select.select(list(waiting), [], [], seconds)[0]]

    def _receive(self, connection: socket.socket, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = connection.recv(count - len(parts))
            assert part, "the broker has hung up"
            parts += part
        return parts

    def send(self, name: str, verb: str, version: int, request: Any) -> None:
        """Returns when the broker has the request, and will take it before all later ones: when it answers
        this probe, what was sent before is in the queue of its only thread."""
        getattr(self, f"_{verb}")(name, version, request)
        assert self._probe("probe") is ErrorCode.UNKNOWN_MEMBER_ID

    def _probe(self, name: str) -> Any:
        self._heartbeat(name, 3, Heartbeat("no group", 0, "nobody"))
        return self.answer(name)

    def _join_group(self, name, version, joins):
        request = JoinGroupRequest(
            group_id=joins.group_id,
            session_timeout_ms=joins.session_timeout_ms,
            rebalance_timeout_ms=joins.rebalance_timeout_ms,
            member_id=joins.member_id,
            group_instance_id=joins.instance_id,
            protocol_type=joins.protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in joins.protocols
            ],
            version=version,
        )
        self.call(name, request, JoinGroupResponse, version, lambda response: response)

    def _sync_group(self, name, version, syncs):
        parts = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=part)
            for member_id, part in syncs.assignments.items()
        ]
        request = SyncGroupRequest(
            group_id=syncs.group_id,
            generation_id=syncs.generation,
            member_id=syncs.member_id,
            group_instance_id=syncs.instance_id,
            protocol_type=syncs.protocol_type,
            protocol_name=syncs.protocol,
            assignments=parts,
            version=version,
        )
        self.call(name, request, SyncGroupResponse, version, lambda response: response)

    def _heartbeat(self, name, version, beat):
        request = HeartbeatRequest(
            group_id=beat.group_id,
            generation_id=beat.generation,
            member_id=beat.member_id,
            group_instance_id=beat.instance_id,
            version=3,
        )
        self.call(name, request, HeartbeatResponse, 3, lambda response: ErrorCode(response.error_code))

    def _leave_group(self, name, version, leaves):
        members = [
            LeaveGroupRequest.MemberIdentity(member_id=m.member_id, group_instance_id=m.instance_id)
            for m in leaves.members
        ]
        request = LeaveGroupRequest(group_id=leaves.group_id, members=members, version=3)
        self.call(name, request, LeaveGroupResponse, 3, lambda response: response)

    def _describe_groups(self, name, version, group_ids):
        request = DescribeGroupsRequest(groups=group_ids, include_authorized_operations=False, version=4)
        self.call(name, request, DescribeGroupsResponse, 4, lambda response: response.groups[0])

    def _delete_groups(self, name, version, group_ids):
        request = DeleteGroupsRequest(groups_names=group_ids, version=1)
        self.call(
            name,
            request,
            DeleteGroupsResponse,
            1,
            lambda response: ErrorCode(response.results[0].error_code),
        )

    def _commit(self, name, version, commit):
        group_id, generation, member_id, instance_id = commit
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[topic(name=TOPIC, partitions=[partition])],
            version=7,
        )
        self.call(
            name,
            request,
            OffsetCommitResponse,
            7,
            lambda response: ErrorCode(response.topics[0].partitions[0].error_code),
        )


_CALLS = {
    "join": "join_group",
    "sync": "sync_group",
    "leave": "leave_group",
    "remove": "leave_group",
    "describe": "describe_groups",
    "delete": "delete_groups",
}


class Player:
    """Plays a script on one side: remembers what its clients know, and puts answers into names."""

    def __init__(self, side: Any, group_id: str) -> None:
        self.side = side
        self._group_id = group_id
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._instances: dict[str, str] = {}
        self._protocols: dict[str, str] = {}
        self._labels: dict[str, str] = {}

    def play(self, step: str) -> None:
        verb, name, *words = step.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        version = next((int(word[1:]) for word in words if word[0] == "v" and word[1:].isdecimal()), 3)
        if "new" in words:
            self._ids.pop(name, None)
        member_id = options.get("id", self._ids.get(name, ""))
        generation = int(options.get("generation", self._generations.get(name, -1)))
        instance_id = options.get("instance", self._instances.get(name))
        if verb == "join":
            if instance_id:
                self._instances[name] = instance_id
            self._protocols[name] = options.get("protocols", self._protocols.get(name, "range:orders"))
            request: Any = JoinGroup(
                self._group_id,
                options.get("type", "consumer"),
                protocols(self._protocols[name]),
                int(options.get("session", 30_000)),
                int(options.get("rebalance", 60_000)),
                member_id,
                instance_id,
                name,
                requires_member_id=version >= 4,
                can_skip_assignment=version >= 9,
            )
        elif verb == "sync":
            parts = {self._ids[key]: part.encode() for key, part in options.items() if key in self._ids}
            request = SyncGroup(
                self._group_id,
                generation,
                member_id,
                instance_id,
                options.get("type"),
                options.get("protocol"),
                parts,
            )
        elif verb == "heartbeat":
            request = Heartbeat(self._group_id, generation, member_id, instance_id)
        elif verb == "leave":
            request = LeaveGroup(self._group_id, (LeavingMember(member_id, instance_id),))
        elif verb == "remove":
            request = LeaveGroup(self._group_id, (LeavingMember(instance_id=name),))
        elif verb in ("describe", "delete"):
            request = [self._group_id]
        else:
            request = (self._group_id, generation, member_id, instance_id)
        self.side.send(name, _CALLS.get(verb, verb), version, request)

    def hear(self, name: str, answer: Any) -> Any:
        """An answer, without what differs by chance."""
        if isinstance(answer, tuple) and hasattr(answer[0], "state"):
            return self._hear_description(answer[0])
        if hasattr(answer, "group_state"):
            return self._hear_description(answer)
        if isinstance(answer, dict):
            (answer,) = answer.values()
        if hasattr(answer, "leader_id") or hasattr(answer, "leader"):
            return self._hear_join(name, answer)
        if hasattr(answer, "assignment"):
            return "synced", _error(answer).name, bytes(answer.assignment)
        if hasattr(answer, "members"):
            return "left", _error(answer).name, [_error(member).name for member in answer.members]
        return answer if isinstance(answer, str) else answer.name

    def _hear_description(self, group: Any) -> Any:
        state = group.state if hasattr(group, "state") else group.group_state
        protocol = group.protocol if hasattr(group, "protocol") else group.protocol_data
        members = sorted(
            (member.client_id, _instance(member) or "", *map(bytes, _said(member)))
            for member in group.members
        )
        return state, _error(group).name, group.protocol_type, protocol, members

    def _hear_join(self, name: str, answer: Any) -> Any:
        error = _error(answer)
        generation = answer.generation if hasattr(answer, "generation") else answer.generation_id
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._ids[name] = answer.member_id
        if error is not ErrorCode.NONE:
            return "join", error.name, generation, bool(answer.member_id)
        if answer.member_id != self._ids.get(name) or answer.member_id not in self._labels:
            known = sum(label.startswith(name) for label in self._labels.values())
            self._labels[answer.member_id] = f"{name}{known}"
        self._ids[name], self._generations[name] = answer.member_id, generation
        leader = answer.leader_id if hasattr(answer, "leader_id") else answer.leader
        protocol = answer.protocol if hasattr(answer, "protocol") else answer.protocol_name
        members = sorted(
            (_instance(member) or "", member.member_id == answer.member_id, bytes(member.metadata))
            for member in answer.members
        )
        is_leader = leader == answer.member_id
        skips = bool(getattr(answer, "skip_assignment", False))
        return "joined", generation, protocol, is_leader, skips, members, self._labels[answer.member_id]


def _error(answer: Any) -> ErrorCode:
    return answer.error if hasattr(answer, "error") else ErrorCode(answer.error_code)


def _said(member: Any) -> tuple[Any, Any]:
    if hasattr(member, "metadata"):
        return member.metadata, member.assignment
    return member.member_metadata, member.member_assignment


def _instance(member: Any) -> str | None:
    return member.instance_id if hasattr(member, "instance_id") else member.group_instance_id


class Match:
    """A script on both sides."""

    def __init__(self, port: int, title: str) -> None:
        self.title = title
        self.ours = Player(Ours(), title)
        self.theirs = Player(Theirs(port), title)

    def play(self, script: str) -> None:
        for step in script.strip().splitlines():
            self.ours.play(step)
            self.theirs.play(step)
            self.compare(step.strip())

    def compare(self, step: str) -> None:
        place = f"{self.title}: {step}"
        for name, answer in self.ours.side.answers():
            expected = self.theirs.hear(name, self.theirs.side.answer(name))
            assert self.ours.hear(name, answer) == expected, place
        assert not self.theirs.side.answered_early(), f"{place}: only Kafka answers"


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    require_kafka(OLD)
    config = {
        "group.min.session.timeout.ms": 100,
        "group.max.size": MOST_MEMBERS,
        "group.coordinator.new.enable": "false",
        "num.io.threads": 1,
    }
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), version=OLD, config=config) as broker:
        clients.create_topics(broker.bootstrap, {TOPIC: 1}, {})
        wait_for(lambda: _has_coordinator(broker.port), "the group coordinator")
        yield broker.port


def _has_coordinator(port: int) -> bool:
    theirs = Theirs(port)
    try:
        request = FindCoordinatorRequest(key="g", key_type=0, version=1)
        theirs.call("probe", request, FindCoordinatorResponse, 1, lambda answer: answer.error_code)
        if theirs.answer("probe"):
            return False
        return theirs._probe("probe") is ErrorCode.UNKNOWN_MEMBER_ID
    finally:
        theirs.close()


def test_the_answers_are_kafkas(port):
    """All scripts that do not depend on time."""
    for title, script in SCRIPTS.items():
        match = Match(port, title)
        try:
            match.play(script)
        finally:
            match.theirs.side.close()


def test_after_the_same_time_the_answers_are_kafkas(port):
    """All scripts with a timeout in them wait together."""
    matches = [Match(port, title) for title in TIMED]
    try:
        for match, (before, _) in zip(matches, TIMED.values(), strict=True):
            match.play(before)
        time.sleep(SHORT_MS / 1000 + 0.7)
        for match, (_, after) in zip(matches, TIMED.values(), strict=True):
            match.ours.side.wait(SHORT_MS + 500)
            match.compare("waits")
            match.play(after)
    finally:
        for match in matches:
            match.theirs.side.close()
