"""The features: what a client is told to do, and what the store must hold afterwards.

A client gets a :class:`Task` as JSON, or the same as an object in Python: the name of the feature, one of the
operations, and options. It answers with a mapping of what it has seen. The topics, the groups and the client
id of a feature are made of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import logstore
from logstore.format.compression import Codec
from logstore.security import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.wire.clients.rig import MECHANISMS, PASSWORD, USER, Rig

VALUES = [f"value {number:02} {'x' * 80}" for number in range(20)]
PARTITIONS = 4
TIME_MS = 1_700_000_000_000
AT_TIME = 7
TAKES_SECONDS = 30
"""What a client may take for a task."""

Said = dict[str, Any]


class Task(NamedTuple):
    """What a client is told. All names begin with that of the feature, which is the client's id too."""

    name: str
    operation: str
    bootstrap: str
    topic: str
    group: str
    values: list[str]
    options: dict[str, Any]


class Feature(NamedTuple):
    name: str
    title: str
    operation: str
    options: dict[str, Any]
    prepare: Callable[[Rig, Task], object]
    check: Callable[[Rig, Task, Said], object]

    def task(self, rig: Rig) -> Task:
        options = {name: value(rig) if callable(value) else value for name, value in self.options.items()}
        security = options.get("security", {"protocol": "PLAINTEXT"})
        bootstrap = rig.addresses[security["protocol"]]
        return Task(self.name, self.operation, bootstrap, self.name, self.name, VALUES, options)


# --- what there is to begin with, and what must be there at the end ---------------------------------


def one_partition(rig: Rig, task: Task) -> None:
    rig.store.create_topic(task.topic)


def filled(rig: Rig, task: Task) -> None:
    """The values in turn in four partitions, with a time each."""
    topic = rig.store.create_topic(task.topic, partitions=PARTITIONS)
    for number, value in enumerate(task.values):
        topic.append(value.encode(), partition=number % PARTITIONS, timestamp_ms=TIME_MS + number)


def source_and_target(rig: Rig, task: Task) -> None:
    filled(rig, task)
    rig.store.create_topic(task.options["target"])


def values_in(rig: Rig, topic: str, *, committed: bool = False) -> list[str]:
    options = {"isolation": logstore.Isolation.COMMITTED} if committed else {}
    return [each.value.decode() for each in rig.store[topic].read(**options)]


def offsets_of(rig: Rig, group: str) -> dict[tuple[str, int], int]:
    return {tuple(at): committed.offset for at, committed in rig.store.offsets(group).items()}


def check_all_offsets(rig: Rig, task: Task) -> None:
    each = len(task.values) // PARTITIONS
    assert offsets_of(rig, task.group) == {(task.topic, number): each for number in range(PARTITIONS)}


def produced(rig: Rig, task: Task, said: Said) -> None:
    assert values_in(rig, task.topic) == task.values
    header = rig.first_header(task.topic)
    assert header.codec is Codec[task.options.get("codec", "none").upper()]
    requests = rig.seen("Produce", task.name)
    acks = {"0": 0, "1": 1, "all": -1}[task.options["acks"]]
    assert {each.acks for each in requests} == {acks}
    if task.options.get("idempotent"):
        assert header.has_producer
        assert header.base_sequence == 0


def in_transactions(rig: Rig, task: Task, said: Said) -> None:
    """One was committed, and one was aborted after its records were stored."""
    half = len(task.values) // 2
    assert values_in(rig, task.topic, committed=True) == task.values[:half]
    assert values_in(rig, task.topic) == task.values
    assert rig.store[task.topic][0].open_transactions() == {}


def transformed(rig: Rig, task: Task, said: Said) -> None:
    assert sorted(values_in(rig, task.options["target"], committed=True)) == task.values
    assert rig.first_header(task.options["target"]).is_transactional
    check_all_offsets(rig, task)
    assert rig.seen("TxnOffsetCommit", task.name)


def read_all(rig: Rig, task: Task, said: Said) -> None:
    assert sorted(said["values"]) == task.values


def committed_and_not(rig: Rig, task: Task) -> None:
    """The even values are in transactions that were committed; the odd ones were aborted, but for the last,
    which is open."""
    rig.store.create_topic(task.topic)
    producers = [rig.store.producer(transactional_id=f"{task.name}-{number}") for number in range(2)]
    for number, value in enumerate(task.values):
        producer = producers[number % 2]
        transaction = producer.transaction().__enter__()
        producer.send(task.topic, value.encode()).result(TAKES_SECONDS)
        if number % 2 == 0:
            transaction.commit()
        elif number < len(task.values) - 1:
            transaction.abort()


def read_committed(rig: Rig, task: Task, said: Said) -> None:
    assert said["values"] == task.values[::2]


def shared(rig: Rig, task: Task, said: Said) -> None:
    """Two members had half of the partitions each, as this assignor divides them."""
    assert said["shares"] == [PARTITIONS // 2] * 2
    assert sorted(set(said["values"])) == task.values
    check_all_offsets(rig, task)
    joins = rig.seen("JoinGroup", task.name)
    names = {each.name.lower().removesuffix("assigner") for join in joins for each in join.protocols}
    assert names == {task.options["assignor"]}


def shared_by_the_broker(rig: Rig, task: Task, said: Said) -> None:
    assert said["shares"] == [PARTITIONS // 2] * 2
    assert sorted(set(said["values"])) == task.values
    check_all_offsets(rig, task)
    assert rig.seen("ConsumerGroupHeartbeat", task.name)
    assert not rig.seen("JoinGroup", task.name)


def came_back(rig: Rig, task: Task, said: Said) -> None:
    """The member that came back under its name has the partitions that it had, without a new generation."""
    assert sorted(said["values"]) == task.values
    assert said["assigned"] == PARTITIONS
    assert {each.group_instance_id for each in rig.seen("JoinGroup", task.name)} == {task.options["instance"]}
    syncs = rig.seen("SyncGroup", task.name)
    first, again = (
        [each.generation_id for each in syncs if (each.member_id == syncs[-1].member_id) is is_last]
        for is_last in (False, True)
    )
    assert first[-1] == again[0] == again[-1]
    assert not rig.seen("LeaveGroup", task.name)


def found_by_time(rig: Rig, task: Task, said: Said) -> None:
    """In partition 3, whose records are four milliseconds apart, the second is the first at or after the
    time."""
    assert said == {"offset": 1, "after_all": said["after_all"], "begin": 0, "end": 5}
    assert said["after_all"] in (None, -1, 5)  # clients say differently that there is none


def old_topic(rig: Rig, task: Task) -> None:
    rig.store.create_topic(task.options["old"])


def topics_changed(rig: Rig, task: Task, said: Said) -> None:
    assert len(rig.store[task.topic]) == said["partitions"] == 3
    assert rig.store[task.topic].config.retention_ms == 86_400_000
    assert task.options["old"] not in rig.store


def settings_changed(rig: Rig, task: Task, said: Said) -> None:
    config = rig.store[task.topic].config
    assert (config.retention_ms, config.cleanup_policy) == (12_345, "compact")
    assert said["retention.ms"] == "12345"


def grown(rig: Rig, task: Task, said: Said) -> None:
    assert len(rig.store[task.topic]) == 3


def beginning_deleted(rig: Rig, task: Task, said: Said) -> None:
    assert rig.store[task.topic][0].log_start_offset == 3
    assert said["low_watermark"] in (3, None)  # not every client says it


def group_committed(rig: Rig, task: Task) -> None:
    rig.store.create_topic(task.topic)[0].extend([b"v"] * 9)
    rig.store.offsets(task.group).commit({(task.topic, 0): 7})


def group_deleted(rig: Rig, task: Task, said: Said) -> None:
    assert said == {"is_listed": True, "state": "Empty", "offset": 7}
    assert task.group not in rig.store.groups()


def group_reset(rig: Rig, task: Task, said: Said) -> None:
    assert offsets_of(rig, task.group) == {(task.topic, 0): 3}


def rule(rig: Rig, task: Task, user: str) -> Acl:
    topic = ResourceType.TOPIC, task.topic, PatternType.LITERAL
    return Acl(*topic, f"User:{user}", "*", Operation.READ, Permission.ALLOW)


def old_rule(rig: Rig, task: Task) -> None:
    rig.store.acls.add([rule(rig, task, "old")])


def rules_changed(rig: Rig, task: Task, said: Said) -> None:
    assert said["users"] == ["User:new", "User:old"]
    found = rig.store.acls.matching(AclFilter(resource_name=task.topic))
    assert found == (rule(rig, task, "new"),)


def old_user(rig: Rig, task: Task) -> None:
    rig.store.users.set_password("old", PASSWORD)


def users_changed(rig: Rig, task: Task, said: Said) -> None:
    assert said["iterations"] == 5000
    assert rig.store.users.is_password("new", PASSWORD.encode())
    assert "old" not in rig.store.users.names()


def let_in(rig: Rig, task: Task, said: Said) -> None:
    """What was sent was stored and read again; with the wrong password, or another authority, nothing was."""
    assert values_in(rig, task.topic) == said["values"] == task.values
    assert said["is_refused"] is True


# --- the table --------------------------------------------------------------------------------------


def _producing() -> Iterator[Feature]:
    def produce(name: str, title: str, **options: Any) -> Feature:
        options = {"acks": "all"} | options
        return Feature(f"produce-{name}", title, "produce", options, one_partition, produced)

    for acks in ("0", "1", "all"):
        yield produce(f"acks-{acks}", f"Produce, `acks={acks}`", acks=acks)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        yield produce(codec, f"Produce, {codec}", codec=codec)
    yield produce("idempotent", "Produce, idempotent", idempotent=True)
    yield Feature(
        "transactions",
        "Transactions: commit and abort",
        "transact",
        {"transactional_id": "transactions"},
        one_partition,
        in_transactions,
    )
    yield Feature(
        "transform",
        "Transactions with a group's offsets",
        "transform",
        {"transactional_id": "transform", "target": "transform-target"},
        source_and_target,
        transformed,
    )


def _consuming() -> Iterator[Feature]:
    yield Feature(
        "assign", "Consume by partition", "assign", {"count": 20, "partitions": PARTITIONS}, filled, read_all
    )
    yield Feature(
        "read-committed",
        "Consume with `read_committed`",
        "assign",
        {"count": 10, "partitions": 1, "isolation": "read_committed"},
        committed_and_not,
        read_committed,
    )
    time_ms = {"time_ms": TIME_MS + AT_TIME - 1, "later_ms": TIME_MS + 1000}
    yield Feature("times", "Offsets by time", "times", time_ms, filled, found_by_time)
    for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        title = f"Group, `{assignor}`"
        yield Feature(f"group-{assignor}", title, "share", {"assignor": assignor}, filled, shared)
    title = "Group, `group.protocol=consumer`"
    yield Feature("group-consumer", title, "share_next", {}, filled, shared_by_the_broker)
    yield Feature(
        "static", "Group, static membership", "come_back", {"instance": "member-1"}, filled, came_back
    )


def _administering() -> Iterator[Feature]:
    yield Feature(
        "topics",
        "Topics: create, describe, delete",
        "topics",
        {"old": "topics-old"},
        old_topic,
        topics_changed,
    )
    yield Feature("configs", "Settings of topics", "configs", {}, one_partition, settings_changed)
    yield Feature("partitions", "More partitions", "partitions", {}, one_partition, grown)
    yield Feature("delete-records", "Delete records", "delete_records", {}, filled, beginning_deleted)
    yield Feature("groups", "Groups: list, describe, delete", "groups", {}, group_committed, group_deleted)
    yield Feature("reset", "Change a group's offsets", "reset", {}, group_committed, group_reset)
    yield Feature("acls", "ACLs", "acls", {}, old_rule, rules_changed)
    yield Feature(
        "users", "SCRAM users", "users", {"password": PASSWORD, "iterations": 5000}, old_user, users_changed
    )


def _securing() -> Iterator[Feature]:
    def secure(name: str, title: str, security: Any, wrong: Any) -> Feature:
        options = {"security": security, "wrong": wrong}
        return Feature(name, title, "secure", options, one_partition, let_in)

    yield secure(
        "tls",
        "TLS",
        lambda rig: {"protocol": "SSL", "ca": str(rig.authority)},
        lambda rig: {"protocol": "SSL", "ca": str(rig.other_authority)},
    )
    for mechanism in MECHANISMS:
        login = {"protocol": "SASL_PLAINTEXT", "mechanism": mechanism, "user": USER}
        yield secure(
            f"sasl-{mechanism.lower()}",
            f"SASL {mechanism}",
            login | {"password": PASSWORD},
            login | {"password": "wrong"},
        )


FEATURES = [*_producing(), *_consuming(), *_administering(), *_securing()]
