"""Administrative requests as steps, for a broker of Kafka and for a store, and what of them is compared."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.cluster import describe_log_dirs, describe_topic_partitions, elect_leaders
from logstore.wire.messages.quotas import alter_client_quotas, describe_client_quotas
from logstore.wire.messages.records import delete_records, offset_for_leader_epoch
from logstore.wire.messages.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from tests.wire.drawn import Case
from tests.wire.handlers.rig_admin import codes_in
from tests.wire.raw_client import RawClient

TOPICS = {"t": 2, "u": 1, "gone": 1, "gone-too": 1, "__share_group_state": 1}
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
LOST = uuid.UUID(int=2**80 + 7)


class Side:
    """One of the two."""

    def __init__(self, bootstrap: str, node_id: int) -> None:
        self.bootstrap = bootstrap
        self.client = RawClient(bootstrap, timeout=30)
        self.node_id = node_id
        self.ids: dict[str, uuid.UUID] = {}

    def ask(self, key: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
        """The response."""
        return self.client.ask(key, APIS[key].request.kind(**fields), version)

    def reconnect(self) -> None:
        """After a hang-up."""
        self.close()
        self.client = RawClient(self.bootstrap, timeout=30)

    def close(self) -> None:
        self.client.close()

    def prepare(self) -> None:
        """The topics, once they have leaders."""
        wanted = tuple(
            create_topics.Topic(name, count, 1) for name, count in TOPICS.items() if not name.startswith("_")
        )
        compacted = create_topics.Topic("c", 1, 1, (), (create_topics.Config("cleanup.policy", "compact"),))
        internal = create_topics.Topic("__share_group_state", 1, 1)
        made = self.ask(ApiKey.CREATE_TOPICS, topics=(*wanted, compacted, internal)).topics
        assert {each.error_code for each in made} == {0}
        self.ids = {each.name: each.topic_id for each in made}
        for _ in range(100):
            found = self.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS).topics
            parts = [one for each in found for one in each.partitions]
            are_led = all(each.error_code == 0 and each.leader_id >= 0 for each in parts)
            (directory,) = self.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=None).directories
            stored = {(each.name, one.partition) for each in directory.topics for one in each.partitions}
            if len(parts) == 7 and are_led and len(stored) >= 7:  # a broker makes the logs later
                return
            time.sleep(0.05)
        raise AssertionError("the topics have no leaders, or no logs")


class Step(NamedTuple):
    """A request, and what of the answer is compared, besides the error codes."""

    name: str
    key: ApiKey
    fields: Callable[[Side], dict[str, Any]]
    view: Callable[[Side, Any], object] = lambda side, response: None
    version: int | None = None


def create(name: str, *topic: Any, **fields: Any) -> Step:
    def wanted(side: Side) -> dict[str, Any]:
        count, factor, assignments, configs = (*topic, (), ())[:4]
        places = tuple(
            create_topics.Assignment(number, tuple(side.node_id + each for each in nodes))
            for number, nodes in assignments
        )
        one = create_topics.Topic(
            name, count, factor, places, tuple(create_topics.Config(*each) for each in configs)
        )
        return {"topics": (one,), **fields}

    def view(side: Side, response: Any) -> object:
        return [
            (each.partition_count, each.replication_factor, bool(each.configs), bool(each.error_message))
            for each in response.topics
        ]

    return Step(f"create {name} {topic} {fields}", ApiKey.CREATE_TOPICS, wanted, view)


def delete(*topics: Any) -> Step:
    """Names; an id of a name; both."""

    def wanted(side: Side) -> dict[str, Any]:
        found = []
        for name, its_id in topics:
            found.append(delete_topics.Topic(name, side.ids.get(its_id, its_id)))
        return {"topics": tuple(found), "timeout_ms": 5000}

    def view(side: Side, response: Any) -> object:
        return {each.name for each in response.topics}

    return Step(f"delete {topics}", ApiKey.DELETE_TOPICS, wanted, view)


def grow(name: str, count: int, assignments: Any = None, **fields: Any) -> Step:
    def wanted(side: Side) -> dict[str, Any]:
        places = assignments and tuple(
            create_partitions.Assignment(tuple(side.node_id + each for each in nodes))
            for nodes in assignments
        )
        topics = (create_partitions.Topic(name, count, places),)
        return {"topics": topics, "timeout_ms": 5000, **fields}

    return Step(f"grow {name} {count} {assignments} {fields}", ApiKey.CREATE_PARTITIONS, wanted)


def change(kind: int, name: str, *changes: Any) -> Step:
    configs = tuple(incremental_alter_configs.Config(*each) for each in changes)
    resource = incremental_alter_configs.Resource(kind, name, configs)
    return Step(
        f"change {name} {changes}",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda side: {"resources": (resource,)},
    )


def replace(name: str, *settings: Any) -> Step:
    resource = alter_configs.Resource(TOPIC, name, tuple(alter_configs.Config(*each) for each in settings))
    return Step(f"replace {name} {settings}", ApiKey.ALTER_CONFIGS, lambda side: {"resources": (resource,)})


def settings_of(name: str) -> Step:
    """What is set."""
    wanted = {"resources": (describe_configs.Resource(TOPIC, name, None),), "include_synonyms": True}

    def view(side: Side, response: Any) -> object:
        (found,) = response.resources
        own = {(each.name, each.value) for each in found.configs if each.config_source == 1} - OURS
        return {(name, frozenset(value.split(","))) for name, value in own}  # lists have no order

    return Step(f"settings of {name}", ApiKey.DESCRIBE_CONFIGS, lambda side: wanted, view)


OURS = {("acks.all.durable", "false")}
"""What the store for tests sets for its topics."""


def described(kind: int, name: str | None) -> Step:
    def wanted(side: Side) -> dict[str, Any]:
        resource = describe_configs.Resource(kind, str(side.node_id) if name is None else name, None)
        return {"resources": (resource,)}

    return Step(f"describe {kind} {name}", ApiKey.DESCRIBE_CONFIGS, wanted)


def delete_before(topic: str, *offsets: tuple[int, int]) -> Step:
    parts = tuple(delete_records.Partition(*each) for each in offsets)
    return Step(
        f"delete records of {topic} {offsets}",
        ApiKey.DELETE_RECORDS,
        lambda side: {"topics": (delete_records.Topic(topic, parts),), "timeout_ms": 1000},
        lambda side, response: [(each.name, sorted(each.partitions)) for each in response.topics],
    )


def epoch_ends(*wanted: tuple[int, int, int]) -> Step:
    parts = tuple(offset_for_leader_epoch.Partition(*each) for each in wanted)
    return Step(
        f"epochs {wanted}",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        lambda side: {"topics": (offset_for_leader_epoch.Topic("t", parts),)},
        lambda side, response: response.topics,
    )


def elect(kind: int, topics: Any) -> Step:
    wanted = topics and tuple(elect_leaders.Topic(*each) for each in topics)
    return Step(
        f"elect {kind} {topics}",
        ApiKey.ELECT_LEADERS,
        lambda side: {"election_type": kind, "topics": wanted, "timeout_ms": 1000},
    )


def page(topics: tuple[str, ...], most: int, cursor: Any = None) -> Step:
    def fields(side: Side) -> dict[str, Any]:
        return {
            "topics": tuple(describe_topic_partitions.TopicWanted(each) for each in topics),
            "response_partition_limit": most,
            "cursor": cursor and describe_topic_partitions.Cursor(*cursor),
        }

    def view(side: Side, response: Any) -> object:
        return response.next_cursor, [
            (
                each.name,
                each.is_internal,
                each.authorized_operations,
                [one.partition for one in each.partitions],
            )
            for each in response.topics
        ]

    return Step(f"page {topics} {most} {cursor}", ApiKey.DESCRIBE_TOPIC_PARTITIONS, fields, view)


def sizes(topics: Any) -> Step:
    wanted = topics and tuple(describe_log_dirs.TopicWanted(*each) for each in topics)

    def view(side: Side, response: Any) -> object:
        if not response.directories:
            return None
        (directory,) = response.directories
        known = {(each.name, tuple(sorted(each.partitions))) for each in directory.topics}
        return directory.total_bytes > directory.usable_bytes > 0, known

    return Step(f"sizes {topics}", ApiKey.DESCRIBE_LOG_DIRS, lambda side: {"topics": wanted}, view)


def limit(entity: Any, *operations: Any) -> Step:
    entry = alter_client_quotas.Entry(
        tuple(alter_client_quotas.EntityPart(*each) for each in entity),
        tuple(alter_client_quotas.Operation(*each) for each in operations),
    )
    return Step(
        f"limit {entity} {operations}", ApiKey.ALTER_CLIENT_QUOTAS, lambda side: {"entries": (entry,)}
    )


def limits(*components: Any, strict: bool = False) -> Step:
    wanted = tuple(describe_client_quotas.Component(*each) for each in components)

    def view(side: Side, response: Any) -> object:
        if response.entries is None:
            return None
        return {(frozenset(each.entity), frozenset(each.values)) for each in response.entries}

    return Step(
        f"limits {components} {strict}",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        lambda side: {"components": wanted, "strict": strict},
        view,
    )


def cluster(endpoint_type: int) -> Step:
    return Step(
        f"cluster {endpoint_type}",
        ApiKey.DESCRIBE_CLUSTER,
        lambda side: {"endpoint_type": endpoint_type, "include_cluster_authorized_operations": True},
        lambda side, response: (
            [each.broker_id - side.node_id for each in response.brokers],
            response.cluster_authorized_operations,
        ),
    )


def seen(side: Side, step: Step) -> tuple[list[str], object]:
    """The errors, sorted, and what else is compared."""
    version = APIS[step.key].last if step.version is None else step.version
    response = side.ask(step.key, version, **step.fields(side))
    codes = codes_in(Case(step.key, APIS[step.key].request, version), response)
    return sorted(ErrorCode(each).name for each in codes), step.view(side, response)
