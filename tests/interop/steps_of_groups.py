"""Steps of members of groups, and of those who commit and look after offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from logstore.wire.apis import ApiKey
from logstore.wire.messages.groups import (
    consumer_group_heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tests.interop.request_steps import LOST, Party, Step, known, step

ME: Final = known("member 0", "nobody")
RANGE: Final = (join_group.Protocol("range", b"said"),)


def steps() -> Iterator[Step]:
    """All of them, in order."""
    yield from _joins()
    yield from _commits()
    yield from _static()
    yield from _looked_after()
    yield from _newer()


def _join(name: str, group: str = "g", **options: Any) -> Step:
    fields = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": RANGE,
        **options,
    }
    return step(name, ApiKey.JOIN_GROUP, fields.pop("version", 9), group_id=group, **fields)


def _sync(name: str, generation: int, member: Any, group: str = "g", **options: Any) -> Step:
    fields = {"group_id": group, "generation_id": generation, "member_id": member, **options}
    return step(name, ApiKey.SYNC_GROUP, 5, **fields)


def _beat(name: str, generation: int, member: Any, group: str = "g", **options: Any) -> Step:
    fields = {"group_id": group, "generation_id": generation, "member_id": member, **options}
    return step(name, ApiKey.HEARTBEAT, 4, **fields)


def _described(group: str) -> Step:
    return step("", ApiKey.DESCRIBE_GROUPS, 6, groups=(group,))


def _joins() -> Iterator[Step]:
    yield _join("no group", group="")
    yield _join("short", session_timeout_ms=1)
    yield _join("long", session_timeout_ms=10**8)
    yield _join("no protocols", protocols=())
    yield _join("no type", protocol_type="")
    yield _join("unknown", member_id="x")
    yield _join("the first")
    yield _join("with the id", member_id=ME)
    yield _described("g")
    yield _described("nope")
    yield _sync("later", 5, ME)
    yield _sync("unknown", 1, "x")
    yield _sync("another type", 1, ME, protocol_type="connect")
    yield _sync("another name", 1, ME, protocol_name="nope")
    yield _beat("before the sync", 1, ME)
    assigned = (sync_group.Assignment("x", b"its"),)
    yield _sync("as asked", 1, ME, protocol_type="consumer", protocol_name="range", assignments=assigned)
    for generation in (1, 2, -1):
        yield _beat("", generation, ME)
    yield _beat("unknown", 1, "x")
    yield _beat("no such group", 1, "x", group="nope")
    yield _beat("no group", 1, "x", group="")
    yield _beat("an instance", 1, ME, group_instance_id="i")
    yield _described("g")
    yield _join("of another type", protocol_type="connect")
    yield _join("of another protocol", protocols=(join_group.Protocol("zzz", b""),))
    yield _join("it, of another type", member_id=ME, protocol_type="connect")
    for version in range(5):
        yield _join("alone", group=f"of version {version}", version=version)


def _commits() -> Iterator[Step]:
    def commit(name: str, generation: int, member: Any, *parts: Any, **options: Any) -> Step:
        topic, version = options.pop("topic", "t"), options.pop("version", 9)

        def topics(side: Party) -> Any:
            by = {"name": topic} if version < 10 else {"topic_id": side.ids.get(topic, LOST)}
            return (
                offset_commit.Topic(**by, partitions=tuple(offset_commit.Partition(*each) for each in parts)),
            )

        fields = {
            "group_id": options.pop("group", "g"),
            "generation_id_or_member_epoch": generation,
            "member_id": member,
            "topics": topics,
            **options,
        }
        return step(f"{name} {topic} {parts}", ApiKey.OFFSET_COMMIT, version, **fields)

    for generation in (1, 2, 9, -1):
        yield commit("", generation, ME, (0, 3))
    yield commit("unknown", 1, "x", (0, 3))
    yield commit("nobody", -1, "", (0, 3))
    yield commit("nobody of 1", 1, "", (0, 3))
    yield commit("below zero", 1, ME, (0, -1))
    yield commit("beyond", 1, ME, (0, 10**9))
    yield commit("much", 1, ME, (0, 4, -1, "x" * 5000))
    yield commit("less", 1, ME, (0, 4, 7, "x" * 4000))
    yield commit("nothing said", 1, ME, (1, 4, -1, None))
    yield commit("twice", 1, ME, (0, 5), (0, 6))
    yield commit("by id", 1, ME, (0, 5), version=10)
    yield commit("by a lost id", 1, ME, (0, 5), topic="nope", version=10)
    yield commit("to no group", 1, "x", (0, 5), group="nope")
    for group, generation, member in (
        ("s", -1, ""),
        ("s", 0, ""),
        ("s", -1, "x"),
        ("", -1, ""),
        ("s", -5, ""),
    ):
        yield commit("alone", generation, member, (0, 7), group=group)
    yield commit("for a while", -1, "", (0, 8), group="s", version=4, retention_time_ms=1000)

    def wanted(name: str, version: int, *groups: Any, **options: Any) -> Step:
        def found(side: Party) -> Any:
            return tuple(_group(side, version, *each) for each in groups)

        return step(f"{name} {groups}", ApiKey.OFFSET_FETCH, version, groups=found, **options)

    for version in (8, 9, 10):
        yield wanted("all", version, ("g", None), ("s", None), ("nope", None))
        yield wanted("some", version, ("g", (("t", (0, 1, 9, -1)), ("nope", (0,)))))
        yield wanted("stable", version, ("g", None), require_stable=True)
        yield wanted("none", version, ("g", ()))
        yield wanted("of nobody", version, ("", None))
    for version in (1, 2, 5, 7):
        topics = (offset_fetch.TopicWanted("t", (0, 1, 9)), offset_fetch.TopicWanted("nope", (0,)))
        yield step("before groups", ApiKey.OFFSET_FETCH, version, group_id="g", topics=topics)


def _group(side: Party, version: int, group: str, topics: Any) -> offset_fetch.Group:
    if topics is None:
        return offset_fetch.Group(group, topics=None)
    by: Callable[[str], dict[str, Any]] = lambda name: (  # noqa: E731
        {"name": name} if version < 10 else {"topic_id": side.ids.get(name, LOST)}
    )
    parts = tuple(offset_fetch.GroupTopic(**by(name), partitions=numbers) for name, numbers in topics)
    return offset_fetch.Group(group, topics=parts)


def _static() -> Iterator[Step]:
    fields = {"group": "still", "group_instance_id": "i1"}
    me = known("member of i1", "nobody")

    def left(name: str, *members: tuple[Any, str | None], group: str = "g") -> Step:
        gone = tuple(leave_group.Member(*each) for each in members)
        return step(f"{name} {members}", ApiKey.LEAVE_GROUP, 5, group_id=group, members=gone)

    yield _join("static", **fields)
    yield _sync("static", 1, me, **fields)
    yield _join("again", **fields)
    yield _join("with another id", **fields, member_id="zzz")
    yield _beat("another instance", 1, "x", group="still", group_instance_id="i2")
    yield left("the instance, and another", ("", "i1"), ("", "i9"), group="still")
    yield left("unknown", ("x", None))
    yield left("no such group", ("x", None), group="nope")
    yield left("an instance with an id", ("x", "q"))
    yield left("nobody")
    yield step("as before", ApiKey.LEAVE_GROUP, 1, group_id="g", member_id="x")


def _forget(group: str, topic: str) -> Step:
    topics = (offset_delete.Topic(topic, (offset_delete.Partition(0), offset_delete.Partition(9))),)
    return step("", ApiKey.OFFSET_DELETE, group_id=group, topics=topics)


def _looked_after() -> Iterator[Step]:
    for group in ("g", "nope", "s", ""):
        yield _forget(group, "t")
    yield _forget("s", "nope")
    for group in ("g", "nope", "s", ""):
        yield step("", ApiKey.DELETE_GROUPS, groups=(group,))
    for states in ((), ("Stable", "bogus"), ("stable",)):
        yield step("", ApiKey.LIST_GROUPS, 5, states_filter=states)
    for types in (("classic",), ("Consumer", "bogus"), ("share",)):
        yield step("", ApiKey.LIST_GROUPS, 5, types_filter=types)
    for kind in (0, 1, 3, -1):
        yield step("", ApiKey.FIND_COORDINATOR, 2, key_type=kind, key="a")


def _newer() -> Iterator[Step]:
    """Of KIP-848."""

    def beat(name: str, group: str = "n", *, joins: bool = True, **options: Any) -> Step:
        full = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ("t",), "topic_partitions": ()}
        fields = {"group_id": group, "member_id": "mm", "version": 1, **(full if joins else {}), **options}
        return step(name, ApiKey.CONSUMER_GROUP_HEARTBEAT, fields.pop("version"), **fields)

    yield beat("no group", group="")
    yield beat("no member", member_id="")
    yield beat("no time", rebalance_timeout_ms=-1)
    yield beat("no topics", subscribed_topic_names=None)
    yield beat("nothing owned is not said", topic_partitions=None)
    yield beat("owns", topic_partitions=(consumer_group_heartbeat.TopicPartitions(LOST, (0,)),))
    yield beat("an assignor", server_assignor="nope")
    yield beat("an epoch below", member_epoch=-3)
    yield beat("leaves, static without an instance", joins=False, member_epoch=-2)
    yield beat("an empty instance", instance_id="")
    yield beat("an empty rack", rack_id="")
    yield beat("no pattern", subscribed_topic_names=None, subscribed_topic_regex="a(")
    yield beat("of no group", joins=False, member_epoch=5)
    yield beat("joins")
    yield beat("again")
    yield beat("far ahead", joins=False, member_epoch=9)
    yield beat("of an instance", member_id="mi", instance_id="i1")
    yield beat("of the same instance", member_id="mj", instance_id="i1")
    yield beat("leaves for a while", joins=False, member_id="mi", instance_id="i1", member_epoch=-2)
    yield beat("leaves", joins=False, member_epoch=-1)
    yield beat("after that", joins=False, member_epoch=1)
    yield _described("n")
    yield step("", ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=("nope",))
    yield _beat("of the other protocol", 1, "mj", group="n")
    yield _sync("of the other protocol", 1, "mj", group="n")
