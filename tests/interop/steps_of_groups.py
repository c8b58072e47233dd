"""Steps of members of groups, and of those who commit and look after offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from logstore.format.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
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
    yield from _mixed()


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


def _mixed() -> Iterator[Step]:
    """Members of both protocols in a group: it changes over with the first newer one, and back with the
    last."""
    me = known("member of c1", "nobody")
    by = {"group": "m", "group_instance_id": "c1"}
    as_told = {"protocol_type": "consumer", "protocol_name": "range"}

    def said(name: str, *owned: int) -> tuple[join_group.Protocol, ...]:
        parts = (TopicPartitions("t", owned),) if owned else ()
        return (
            join_group.Protocol(name, encode_subscription(ConsumerProtocolSubscription(("t",), None, parts))),
        )

    def beat(name: str, member_id: str, epoch: int = 0, owned: Any = None, **options: Any) -> Step:
        full = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ("t",), "topic_partitions": ()}
        given = full if epoch == 0 else {} if owned is None else {"topic_partitions": owned}
        fields = {"group_id": "m", "member_id": member_id, "member_epoch": epoch, **given, **options}
        return step(f"mixed, {name}", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **fields)

    def has(*numbers: int) -> Callable[[Party], Any]:
        return lambda side: (
            (consumer_group_heartbeat.TopicPartitions(side.ids["t"], numbers),) if numbers else ()
        )

    def shown() -> Iterator[Step]:
        yield _described("m")
        yield step("mixed", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("m",))

    def leads(generation: int) -> Step:
        assigned = encode_assignment(ConsumerProtocolAssignment((TopicPartitions("t", (0, 1)),)))
        parts = lambda side: (sync_group.Assignment(me(side), assigned),)  # noqa: E731
        return _sync("mixed, leads", generation, me, **by, **as_told, assignments=parts)

    yield _join("mixed, the first", **by, protocols=said("range"))
    yield leads(1)
    yield _beat("mixed, in the classic group", 1, me, **by)
    yield beat("the first newer one", "n1")
    yield from shown()
    yield _beat("mixed, is to join again", 1, me, **by)
    yield _sync("mixed, is to join again", 1, me, **by, **as_told)
    yield _beat("mixed, of the newer protocol", 2, "n1", group="m")
    yield _beat("mixed, another instance", 1, "x", **by)
    yield _beat("mixed, unknown", 1, "x", group="m")
    yield _join("mixed, of another type", **by, member_id=me, protocol_type="connect")
    yield _join("mixed, says nothing", **by, member_id=me, protocols=(join_group.Protocol("range", b""),))
    yield _join("mixed, with another protocol", group="m", protocols=said("zzz"))
    yield _join("mixed, dynamic without an id", group="m", protocols=said("range"))
    yield _join("mixed, a fenced instance", **by, member_id="zzz", protocols=said("range"))
    yield _join("mixed, an unknown instance with an id", group="m", group_instance_id="c9", member_id="zzz")
    yield _join("mixed, still has both", **by, member_id=me, protocols=said("range", 0, 1))
    yield _sync("mixed, another type", 1, me, **by, protocol_type="connect", protocol_name="range")
    yield _sync("mixed, another name", 1, me, **by, protocol_type="consumer", protocol_name="nope")
    yield _sync("mixed, of a wrong generation", 9, me, **by, **as_told)
    yield _sync("mixed, keeps one", 1, me, **by, **as_told)
    yield _beat("mixed, has to give one up", 1, me, **by)
    yield from shown()
    yield beat("waits for it", "n1", 2, has())
    yield _join("mixed, has given it up", **by, member_id=me, protocols=said("range", 0))
    yield _sync("mixed, has one", 2, me, **by, **as_told)
    yield _beat("mixed, is there", 2, me, **by)
    yield beat("gets it", "n1", 2, has())
    yield beat("has it", "n1", 2, has(1))
    yield from shown()
    for generation in (1, 2, 3):
        topics = (offset_commit.Topic("t", partitions=(offset_commit.Partition(0, 3),)),)
        yield step(
            f"mixed, {generation}",
            ApiKey.OFFSET_COMMIT,
            9,
            group_id="m",
            generation_id_or_member_epoch=generation,
            member_id=me,
            topics=topics,
        )
    yield beat("the last newer one leaves", "n1", -1)
    yield step("mixed", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("m",))
    yield _beat("mixed, is to join the classic group", 2, me, **by)
    yield _join("mixed, back in the classic group", **by, member_id=me, protocols=said("range", 0))
    yield leads(3)
    yield beat("its instance has changed over", "n2", instance_id="c1")
    yield _beat("mixed, its former self", 3, me, **by)
    yield from shown()
    yield beat("its instance under another id", "n3", instance_id="c1")
    yield _join("mixed, its instance has changed back", **by, protocols=said("range"))
    yield beat("its former self", "n2", 4, instance_id="c1")
    yield step("mixed", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("m",))
    yield step("mixed", ApiKey.LIST_GROUPS, 5)
