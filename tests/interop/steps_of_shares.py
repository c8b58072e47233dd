"""Steps of a worker that shares records (KIP-932): what it acquires, and what it says of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from logstore.wire.apis import ApiKey
from logstore.wire.messages.shares import acknowledged
from logstore.wire.messages.topics import incremental_alter_configs
from tests.broker.rig import batch_of
from tests.interop.request_steps import LOST, NOW_MS, Party, Step, fields_of_produce, step

ME: Final = {"group_id": "sharing", "member_id": "A" * 22}
SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
"""Of a broker."""
ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
_TRIES: Final = 300
_GROUP: Final = 32
_LIMITS: Final = {"max_wait_ms": 200, "min_bytes": 1, "max_records": 10, "batch_size": 10}

Said = tuple[int, int, tuple[int, ...]]
"""The first and last offset, and one type for all, or one for each."""


_OF_U: Final = ((1, 9), (10, 6))


def begin(
    side: Party,
    me: Mapping[str, str] = ME,
    topic: str = "u",
    batches: tuple[tuple[int, int], ...] = _OF_U,
) -> None:
    """Join, and acquire the first ten records of ``u``, which has 16. Brokers make states of partitions when
    they like. ``batches``: at which offsets they come, and how many records each has."""
    earliest = (incremental_alter_configs.Config("share.auto.offset.reset", 0, "earliest"),)
    resource = incremental_alter_configs.Resource(_GROUP, me["group_id"], earliest)
    side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=(resource,))
    for first, records in batches:
        more = fields_of_produce(batch_of([b"s"] * records, NOW_MS), topic)
        assert side.ask(ApiKey.PRODUCE, 12, **more).topics[0].partitions[0].base_offset == first
    epoch = 0
    for _ in range(_TRIES):
        names = (topic,) if epoch == 0 else None
        beat = {**me, "member_epoch": epoch, "subscribed_topic_names": names}
        found = side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **beat)
        epoch = side.known["member epoch of shares"] = 0 if found.error_code else found.member_epoch
        if found.assignment is not None and found.assignment.topic_partitions:
            break
        time.sleep(0.05)
    wanted = (acknowledged.Topic(side.ids[topic], (acknowledged.Partition(0),)),)
    for session in range(_TRIES):
        topics = () if session else wanted
        answer = side.ask(ApiKey.SHARE_FETCH, **me, **_LIMITS, share_session_epoch=session, topics=topics)
        if any(part.acquired_records for each in answer.topics for part in each.partitions):
            side.known["next epoch"] = session + 1
            return
        time.sleep(0.05)
    raise AssertionError("nothing is shared")


def steps() -> Iterator[Step]:
    """All of them, in order, after :func:`begin`."""
    numbers = count()

    def ask(
        name: str, key: ApiKey, *said: Said, topic: str = "u", epoch: int | None = None, **options: Any
    ) -> Step:
        part = options.pop("part", 0)
        number = next(numbers) if epoch is None else -1
        batches = tuple(acknowledged.Acknowledgements(*each) for each in said)

        def topics(side: Party) -> tuple[acknowledged.Topic, ...]:
            return (acknowledged.Topic(side.ids.get(topic, LOST), (acknowledged.Partition(part, batches),)),)

        wanted: Callable[[Party], int] = lambda side: (  # noqa: E731
            side.known["next epoch"] + number if epoch is None else epoch
        )
        limits = _LIMITS if key is ApiKey.SHARE_FETCH else {}
        fields = {**ME, **limits, **options, "share_session_epoch": wanted}
        return step(f"{name} {said} {epoch}", key, **fields, topics=topics if said or topic != "u" else ())

    fetch, say = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
    yield ask("far ahead", fetch, epoch=999)
    yield ask("below", fetch, epoch=-5)
    yield ask("far ahead", say, (1, 1, (ACCEPT,)), epoch=999)
    yield ask("a session", say, (1, 1, (ACCEPT,)), epoch=0)
    yield ask("two", say, (0, 1, (ACCEPT,)))
    yield ask("the same", say, (1, 1, (ACCEPT,)))
    for name, said in (
        ("unknown", (2, 2, (9,))),
        ("below", (2, 2, (-1,))),
        ("backwards", (3, 2, (ACCEPT,))),
        ("too few types", (2, 4, (ACCEPT, RELEASE))),
        ("each its own", (2, 4, (ACCEPT, RELEASE, REJECT))),
        ("no type", (5, 6, ())),
        ("a gap", (5, 5, (GAP,))),
        ("renewed", (6, 6, (RENEW,))),
    ):
        yield ask(name, say, said)
    yield ask("out of order", say, (7, 7, (ACCEPT,)), (6, 6, (ACCEPT,)))
    yield ask("another topic", say, (7, 7, (ACCEPT,)), topic="nope")
    yield ask("another partition", say, (7, 7, (ACCEPT,)), part=9)
    yield ask("more", fetch)
    yield ask("and what was done", fetch, (8, 8, (ACCEPT,)))
    yield ask("and what was done before", fetch, (8, 8, (ACCEPT,)))
    yield ask("none", fetch, max_records=0)
    yield ask("and another released", fetch, (9, 9, (RELEASE,)))
    yield ask("few", fetch, share_acquire_mode=1, max_records=1)
    yield ask("renewed, and more", fetch, (9, 9, (RENEW,)), is_renew_ack=True)
    yield step("", ApiKey.SHARE_GROUP_DESCRIBE, group_ids=(ME["group_id"],))
    yield step("leaves", ApiKey.SHARE_GROUP_HEARTBEAT, 1, **ME, member_epoch=-1)
    yield ask("its session goes on", say, (8, 8, (ACCEPT,)))
    yield ask("the last", fetch, (9, 9, (ACCEPT,)), epoch=-1)
    yield ask("after the last", fetch, epoch=77)
