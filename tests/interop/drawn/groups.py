"""Random requests of members of groups, of all three kinds."""

from __future__ import annotations

from typing import Any

from logstore.wire.apis import ApiKey
from logstore.wire.messages.groups import (
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from logstore.wire.messages.shares import acknowledged
from tests.interop import steps_of_shares
from tests.interop.drawn.choices import Choices
from tests.interop.request_steps import LOST, Party, Step


class Groups(Choices):
    """Members, offsets and shares."""

    def _join(self) -> Step:
        """Of the one member of a group: a second one would have to wait for it. In ``h`` it is static."""
        name = self._one("g", "h")
        group, instance = self._named(name), "i1" if name == "h" else None
        version = self._version(ApiKey.JOIN_GROUP, 5 if instance else 1)
        range_, other = join_group.Protocol("range", b"s"), join_group.Protocol("zzz", b"")
        protocols = self._mostly((range_,), (other,), (), (other, range_))
        kind, session_ms = self._mostly("consumer", "connect", ""), self._mostly(60_000, 1, 10**8)
        is_odd = self._seldom()

        def fields(side: Party) -> dict[str, Any]:
            return {
                "group_id": group,
                "session_timeout_ms": session_ms,
                "rebalance_timeout_ms": 60_000,
                "member_id": "x" if is_odd else side.known.get(f"member {group}", ""),
                "protocol_type": kind,
                "protocols": protocols,
                "group_instance_id": instance,
            }

        named = [each.name for each in protocols]
        return Step(f"{group} {kind} {named} {session_ms}", ApiKey.JOIN_GROUP, version, fields)

    def _in_group(self, key: ApiKey, assigned: Any = None, **more: Any) -> Step:
        version, group = self._version(key), self._group()
        its_id, generation = self._member_id(group), self._near(f"generation {group}", 1)
        if version >= 3:
            more["group_instance_id"] = self._mostly("i1" if group.startswith("h") else None, "i1", "i2")
        if version < 5:
            more = {name: value for name, value in more.items() if "protocol" not in name}

        def fields(side: Party) -> dict[str, Any]:
            by = {"group_id": group, "generation_id": generation(side), "member_id": its_id(side)}
            return {**by, **more, **({"assignments": assigned(side, group)} if assigned else {})}

        return Step(f"{group} {more}", key, version, fields)

    def _sync(self) -> Step:
        leads, kind = not self._seldom(), self._mostly("consumer", None, "zzz")
        more = {"protocol_type": kind, "protocol_name": self._mostly("range", None, "zzz")}

        def assigned(side: Party, group: str) -> tuple[sync_group.Assignment, ...]:
            return (sync_group.Assignment(side.known.get(f"member {group}", ""), b"its"),) if leads else ()

        return self._in_group(ApiKey.SYNC_GROUP, assigned, **more)

    def _beat(self) -> Step:
        return self._in_group(ApiKey.HEARTBEAT)

    def _leave(self) -> Step:
        version, group = self._version(ApiKey.LEAVE_GROUP), self._group()
        its_id, instance = self._member_id(group), self._one(None, "i1", "i2")

        def fields(side: Party) -> dict[str, Any]:
            if version < 3:
                return {"group_id": group, "member_id": its_id(side)}
            members = (leave_group.Member(its_id(side), instance), leave_group.Member("y", None))
            return {"group_id": group, "members": members}

        return Step(f"{group} {instance}", ApiKey.LEAVE_GROUP, version, fields)

    def _beat_newer(self) -> Step:
        version = self._version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        group = self._named("n")
        member = self._one("A", "A", "B", "C")
        joins = self._seldom(0.3)
        by = self._mostly(0, 1, 5)
        epoch = lambda side: side.known.get(f"epoch {group} {member}", 7) + by  # noqa: E731
        leaves = self._one(-1, -2) if self._seldom(0.1) else None
        instance = "i1" if member == "C" else None
        names = self._mostly(
            (self._named("t"),), (self._named("u"), self._named("t")), (self._named("nope"),), (), None
        )
        regex = None if member == "C" else self._mostly(None, "(", "")
        server = self._mostly(None, "uniform", "range", "nope")
        owns = self._mostly(True, False)
        own_time = 5000

        def fields(side: Party) -> dict[str, Any]:
            found: dict[str, Any] = {
                "group_id": group,
                "member_id": f"{member}{self.seed}",
                "instance_id": instance,
            }
            owned = side.known.get(f"owned {group} {member}", ())
            if joins:
                found |= {
                    "member_epoch": 0,
                    "rebalance_timeout_ms": own_time,
                    "subscribed_topic_names": names,
                    "topic_partitions": (),
                }
                found |= {"server_assignor": server} | (
                    {"subscribed_topic_regex": regex} if version >= 1 else {}
                )
            else:
                found["member_epoch"] = epoch(side) if leaves is None else leaves
                found["topic_partitions"] = owned if owns else None
            return found

        return Step(
            f"{group} {member} joins={joins} leaves={leaves} {names} {regex} {server} owns={owns}",
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            version,
            fields,
        )

    def _commit(self) -> Step:
        version, group = self._version(ApiKey.OFFSET_COMMIT), self._group()
        topic = self._topic()
        part = offset_commit.Partition(
            self._part(),
            self._mostly(3, 0, -1, 10**9),
            self._mostly(-1, 0, 5) if version >= 6 else -1,
            self._mostly("m", None, "x" * 5000, ""),
        )
        alone = self._seldom(0.4)
        newer = version >= 9 and self._seldom(0.5)  # older versions know no members of these groups
        its_id, generation = self._member_id(group), self._near(f"generation {group}", 1, -2)
        member = self._one("A", "B")
        epoch = self._near(f"epoch {self._named('n')} {member}", 0)

        def fields(side: Party) -> dict[str, Any]:
            named = {"name": topic} if version < 10 else {"topic_id": side.ids.get(topic, LOST)}
            found: dict[str, Any] = {
                "group_id": group,
                "topics": (offset_commit.Topic(**named, partitions=(part,)),),
            }
            if newer:
                return found | {
                    "group_id": self._named("n"),
                    "member_id": f"{member}{self.seed}",
                    "generation_id_or_member_epoch": epoch(side),
                }
            if not alone:
                found |= {"member_id": its_id(side), "generation_id_or_member_epoch": generation(side)}
            return found

        return Step(
            f"{group} alone={alone} newer={newer} {topic} {part.partition} {part.offset}",
            ApiKey.OFFSET_COMMIT,
            version,
            fields,
        )

    def _fetch_offsets(self) -> Step:
        version, group, topic = self._version(ApiKey.OFFSET_FETCH), self._group(), self._topic()
        numbers = self._one((0,), (0, 1), (0, 9, -1), ())
        everything = self._seldom(0.3) and version >= 2
        stable = not everything and self._seldom(0.5)
        member = self._one(None, None, "A", "zzz")
        epoch = self._near(f"epoch {self._named('n')} {member}", 0)
        group = self._named("n") if member and version >= 9 else group

        def fields(side: Party) -> dict[str, Any]:
            extra = {"require_stable": stable} if version >= 7 else {}
            if version < 8:
                wanted = None if everything else (offset_fetch.TopicWanted(topic, numbers),)
                return {"group_id": group, "topics": wanted, **extra}
            named = {"name": topic} if version < 10 else {"topic_id": side.ids.get(topic, LOST)}
            topics = None if everything else (offset_fetch.GroupTopic(**named, partitions=numbers),)
            own = (
                {"member_id": f"{member}{self.seed}", "member_epoch": epoch(side)}
                if member and version >= 9
                else {}
            )
            return {"groups": (offset_fetch.Group(group, topics=topics, **own),), **extra}

        return Step(
            f"{group} {topic} {numbers} all={everything} {stable} {member}",
            ApiKey.OFFSET_FETCH,
            version,
            fields,
        )

    def _forget_offsets(self) -> Step:
        group = self._group()
        if self._seldom(0.3):
            groups = (self._named("gone"), self._named("none"))
            return Step(f"{groups}", ApiKey.DELETE_GROUPS, None, lambda side: {"groups": groups})
        topics = (offset_delete.Topic(self._topic(), (offset_delete.Partition(self._part()),)),)
        return Step(
            f"{group} {topics}",
            ApiKey.OFFSET_DELETE,
            None,
            lambda side: {"group_id": group, "topics": topics},
        )

    def _look_at_groups(self) -> Step:
        group = self._group() if not self._seldom(0.3) else self._named("n")
        kind = self._one(ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.FIND_COORDINATOR)
        if kind is ApiKey.FIND_COORDINATOR:
            version = self._version(kind)
            of = self._one(0, 1, 3, -1)
            keys = self._one((group,), (group, "a"), ("",))
            found: dict[str, Any] = {"keys": keys} if version >= 4 else {"key": group}
            return Step(
                f"{of} {found}", kind, version, lambda side: found | ({"key_type": of} if version else {})
            )
        field = "groups" if kind is ApiKey.DESCRIBE_GROUPS else "group_ids"
        return Step(group, kind, self._version(kind), lambda side: {field: (group,)})

    def sharing(self) -> dict[str, str]:
        """A worker that shares records."""
        return {"group_id": self._named("s"), "member_id": steps_of_shares.ME["member_id"]}

    def _share(self) -> Step:
        key = self._one(ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
        epoch, closes = self._near("next epoch", 0, 5, -3), self._seldom(0.03)
        said, at = [], self._random.randrange(4)
        while key is ApiKey.SHARE_ACKNOWLEDGE and at < 16 and not self._seldom(0.4):
            last = at + self._random.randrange(3)
            kinds = [self._random.randrange(4) for _ in range(last - at + 1)]
            said.append(acknowledged.Acknowledgements(at, last, tuple(self._one(kinds, kinds[:1]))))
            at = last + self._mostly(1, 3, 9)
        wanted = {"max_wait_ms": 50, "min_bytes": 1, "max_records": self._one(0, 1, 16), "batch_size": 2}
        more = {**wanted, "share_acquire_mode": 1} if key is ApiKey.SHARE_FETCH else {}

        def fields(side: Party) -> dict[str, Any]:
            parts = (acknowledged.Partition(0, tuple(said)),)
            topics = (acknowledged.Topic(side.ids[self._named("shared")], parts),)
            session = -1 if closes else epoch(side)
            return {**self.sharing(), **more, "share_session_epoch": session, "topics": topics}

        return Step(f"{said} {more} closes={closes}", key, 2, fields)

    def _beat_sharing(self) -> Step:
        by = self._mostly(0, 5)
        names = self._one(None, (self._named("shared"),))

        def fields(side: Party) -> dict[str, Any]:
            epoch = max(side.known.get("member epoch of shares", 0) + by, 0)
            return {**self.sharing(), "member_epoch": epoch, "subscribed_topic_names": names}

        return Step(f"{names} {by}", ApiKey.SHARE_GROUP_HEARTBEAT, 1, fields)
