"""Steps of clients that may not do all of what they ask for. The topic ``t`` is there, ``x`` is not. Nothing
changes by them but the records of ``t`` and the offsets of the group ``g``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import metadata
from logstore.wire.messages.groups import join_group, leave_group, offset_commit, offset_delete, offset_fetch
from logstore.wire.messages.records import fetch, list_offsets
from logstore.wire.messages.shares import acknowledged
from logstore.wire.messages.transactions import (
    add_partitions_to_txn,
    describe_producers,
    txn_offset_commit,
    write_txn_markers,
)
from tests.broker.rig import batch_of
from tests.interop.request_steps import LOST, NOW_MS, Step, read, step, write

ONE: Final = batch_of([b"v"], NOW_MS)
OF_TRANSACTION: Final = batch_of(
    [b"v"], NOW_MS, producer_id=99, producer_epoch=0, base_sequence=0, transactional=True
)
PART: Final = fetch.Partition(0, fetch_offset=0, max_bytes=100)
BOTH: Final = (("t",), ("x",), ("t", "x"))
_ME: Final = "A" * 22


def steps() -> Iterable[Step]:
    """All of them, in order."""
    return (*_groups(), *_offsets(), *_transactions(), *_shares(), *_topics(), *_records())


def _records() -> Iterable[Step]:
    for topic in ("t", "x"):
        for version in (12, 13):
            yield write("", ONE, topic, version=version)
            yield read("", PART, topic=topic, version=version)
        yield write("of a transaction", OF_TRANSACTION, topic, version=11, by="tx")
    for names in BOTH:
        topics = tuple(list_offsets.Topic(name, (list_offsets.Partition(0, -1, -2),)) for name in names)
        yield step("", ApiKey.LIST_OFFSETS, 8, replica_id=-1, topics=topics)


def _topics() -> Iterable[Step]:
    fields: dict[str, Any] = {"allow_auto_topic_creation": False}
    for name in ("t", "x"):
        wanted = (metadata.TopicWanted(name=name),)
        yield step("", ApiKey.METADATA, 12, topics=wanted, include_topic_authorized_operations=True, **fields)
        yield step(
            "", ApiKey.METADATA, 9, topics=wanted, include_cluster_authorized_operations=True, **fields
        )
        yield step(
            f"{name} by id",
            ApiKey.METADATA,
            12,
            topics=lambda side, name=name: (metadata.TopicWanted(side.ids.get(name, LOST), None),),
            **fields,
        )
    for name in ("t", "x"):
        wanted_parts = (describe_producers.Topic(name, (9,)),)
        yield step("", ApiKey.DESCRIBE_PRODUCERS, topics=wanted_parts)


def _groups() -> Iterable[Step]:
    for kind, key in ((0, "g"), (1, "tx")):
        yield step("", ApiKey.FIND_COORDINATOR, 2, key_type=kind, key=key)
    yield step("", ApiKey.FIND_COORDINATOR, 4, key_type=0, keys=("g", "h"))
    joining = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    protocols = (join_group.Protocol("range", b""),)
    yield step("", ApiKey.JOIN_GROUP, 9, group_id="g", member_id="x", protocols=protocols, **joining)
    yield step("", ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="x")
    yield step("", ApiKey.LEAVE_GROUP, 5, group_id="g", members=(leave_group.Member("x"),))
    yield step("", ApiKey.DESCRIBE_GROUPS, 6, groups=("g",), include_authorized_operations=True)
    yield step("", ApiKey.LIST_GROUPS, 5)
    yield step("", ApiKey.DELETE_GROUPS, 2, groups=("h",))
    beat = {"group_id": "n", "member_id": "x", "member_epoch": -3}
    for names in BOTH:
        yield step("", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **beat, subscribed_topic_names=names)
    yield step("", ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=("n",))


def _offsets() -> Iterable[Step]:
    alone = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    parts = (offset_commit.Partition(0, 1),)
    for names in BOTH:
        topics = tuple(offset_commit.Topic(name, partitions=parts) for name in names)
        yield step("", ApiKey.OFFSET_COMMIT, 9, **alone, topics=topics)
        yield step(
            f"{names} by id",
            ApiKey.OFFSET_COMMIT,
            10,
            **alone,
            topics=lambda side, names=names: tuple(
                offset_commit.Topic(topic_id=side.ids.get(name, LOST), partitions=parts) for name in names
            ),
        )
        wanted = tuple(offset_fetch.GroupTopic(name, partitions=(0,)) for name in names)
        yield step("", ApiKey.OFFSET_FETCH, 9, groups=(offset_fetch.Group("g", topics=wanted),))
    yield step("", ApiKey.OFFSET_FETCH, 9, groups=(offset_fetch.Group("g", topics=None),))
    for name in ("t", "x"):
        gone = (offset_delete.Topic(name, (offset_delete.Partition(9),)),)
        yield step("", ApiKey.OFFSET_DELETE, group_id="g", topics=gone)


def _transactions() -> Iterable[Step]:
    me = {"transactional_id": "tx", "producer_id": 99, "producer_epoch": 0}
    for name, timeout_ms in ((None, 1000), ("tx", -1)):
        yield step("", ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=timeout_ms)
    for names in BOTH:
        added = tuple(add_partitions_to_txn.Topic(name, (0,)) for name in names)
        yield step("", ApiKey.ADD_PARTITIONS_TO_TXN, 3, **me, topics=added)
    committed = (txn_offset_commit.Topic("t", (txn_offset_commit.Partition(0, 1),)),)
    yield step("", ApiKey.TXN_OFFSET_COMMIT, 3, **me, group_id="g", topics=committed)
    yield step("", ApiKey.ADD_OFFSETS_TO_TXN, 3, **me, group_id="g")
    yield step("", ApiKey.END_TXN, 3, **me, committed=True)
    yield step("", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=("tx",))
    yield step("", ApiKey.LIST_TRANSACTIONS, 1)
    asked = add_partitions_to_txn.Transaction("tx", 99, 0, True, (add_partitions_to_txn.Topic("t", (0,)),))
    yield step("between brokers", ApiKey.ADD_PARTITIONS_TO_TXN, 4, transactions=(asked,))
    marker = write_txn_markers.Marker(98, 0, True, (write_txn_markers.Topic("t", (9,)),))
    yield step("", ApiKey.WRITE_TXN_MARKERS, 1, markers=(marker,))


def _shares() -> Iterable[Step]:
    me = {"group_id": "sh", "member_id": _ME}
    for names in BOTH:
        fields = {**me, "member_epoch": -3, "subscribed_topic_names": names}
        yield step("", ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields)
    yield step("", ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=("h",))
    for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        most = {"max_records": 1} if key is ApiKey.SHARE_FETCH else {}
        yield step(
            "a session that is not there",
            key,
            **me,
            share_session_epoch=7,
            **most,
            topics=lambda side: (acknowledged.Topic(side.ids["t"], (acknowledged.Partition(0),)),),
        )
