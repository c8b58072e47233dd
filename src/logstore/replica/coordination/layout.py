"""The names and texts of what a coordinator keeps: Kafka's znodes, as a broker with ZooKeeper has them.

Where Kafka's texts have no room for what we need, there is one more key, ``logstore``, which Kafka passes
over. What Kafka has no znode for is below ``/logstore``. ``docs/coordination.md`` lists all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

from logstore.errors import CorruptionError
from logstore.format.metadata import decode_base64_uuid, encode_base64_uuid
from logstore.replica.coordination.interface import TEXTS, ControllerSeat, Endpoint, LivingNode
from logstore.replica.coordination.registering import NodeRecord
from logstore.replica.coordination.tree import Stored
from logstore.replica.rules.partition_state import Member, PartitionState, Registration

CLUSTER_ID = "/cluster/id"
IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIGS = "/config/topics"
GROUP_CONFIGS = "/config/groups"
NODES = "/logstore/nodes"
LIVES = "/logstore/lives"
TOPIC_IDS = "/logstore/topics"
DELETED = "/logstore/deleted"
LAST_LIFE = "/logstore/last_life"
LEADER_EPOCH = "/logstore/leader_epoch"
"""The least in which a new partition begins. Made when the first topic is deleted."""

ALWAYS_THERE = (
    "/cluster",
    "/brokers",
    IDS,
    TOPICS,
    "/config",
    CONFIGS,
    GROUP_CONFIGS,
    "/logstore",
    NODES,
    LIVES,
    TOPIC_IDS,
    DELETED,
)
"""From the top down."""

FOLDERS = frozenset({IDS, TOPIC_IDS, GROUP_CONFIGS})
"""Whose names are followed; the others are known from texts."""

_NO_LEADER = -1


def id_path(node_id: int) -> str:
    return f"{IDS}/{node_id}"


def node_path(node_id: int) -> str:
    return f"{NODES}/{node_id}"


def life_path(life: int) -> str:
    return f"{LIVES}/{life}"


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def config_path(name: str) -> str:
    return f"{CONFIGS}/{name}"


def group_config_path(group: str) -> str:
    """A group may have any name, and a znode may not."""
    return f"{GROUP_CONFIGS}/{quote(group, safe='').replace('.', '%2E')}"


def group_of(path: str) -> str | None:
    """Whose settings are at the path; None if it is something else."""
    folder, _, name = path.rpartition("/")
    return unquote(name) if folder == GROUP_CONFIGS else None


def text_path(name: str) -> str:
    return f"/logstore/{name}"


TEXT_PATHS = {text_path(name): name for name in TEXTS}
"""Where the texts are that nodes have in common."""


def topic_id_path(topic_id: UUID) -> str:
    return f"{TOPIC_IDS}/{encode_base64_uuid(topic_id)}"


def deleted_path(topic_id: UUID) -> str:
    return f"{DELETED}/{encode_base64_uuid(topic_id)}"


def partition_paths(name: str, partition: int) -> tuple[str, str]:
    """Of a partition's folder, and of its state in it."""
    folder = f"{TOPICS}/{name}/partitions/{partition}"
    return folder, f"{folder}/state"


def state_path(partition: tuple[str, int]) -> str:
    return partition_paths(*partition)[1]


def partition_of(path: str) -> tuple[str, int] | None:
    """Whose state is at the path; None if it is something else."""
    parts = path.split("/")
    if path.startswith(TOPICS) and len(parts) == 7 and parts[6] == "state" and parts[5].isdecimal():
        return parts[3], int(parts[5])
    return None


def wanted(names: Mapping[str, Collection[str]], texts: Mapping[str, Stored]) -> set[str]:
    """Which texts make up the view, as far as can be told from those that are known.

    Args:
        names: what is in each of ``FOLDERS``.
    """
    paths = {CONTROLLER, CONTROLLER_EPOCH, *TEXT_PATHS}
    paths.update(f"{folder}/{name}" for folder, found in names.items() for name in found)
    for each in names.get(TOPIC_IDS, ()):
        marker = texts.get(f"{TOPIC_IDS}/{each}")
        if marker is None:
            continue
        name = marker.data
        paths |= {topic_path(name), config_path(name)}
        described = texts.get(topic_path(name))
        if described is not None:
            with suppress(CorruptionError):  # who makes the view tells of it
                count = partition_count(topic_path(name), described.data)
                paths.update(state_path((name, at)) for at in range(count))
    return paths


# Texts ------------------------------------------------------------------------------------------------------

_T = TypeVar("_T")


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _decoded(path: str, data: str, decode: Callable[[Any], _T]) -> _T:
    """
    Raises:
        CorruptionError: the text is not what belongs there.
    """
    try:
        return decode(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CorruptionError(f"cannot be read ({error!r}): {data[:200]!r}", path=path) from None


def encode_cluster_id(cluster_id: str) -> str:
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: str) -> str:
    return _decoded(CLUSTER_ID, data, lambda found: str(found["id"]))


def encode_number(number: int) -> str:
    return str(number)


def decode_number(path: str, data: str) -> int:
    return _decoded(path, data, int)


def encode_record(record: NodeRecord) -> str:
    return _dump({"version": 1, **record._asdict()})


def decode_record(path: str, data: str) -> NodeRecord:
    return _decoded(
        path,
        data,
        lambda found: NodeRecord(
            int(found["life"]),
            int(found["whole_since"]),
            int(found["durable_since"]),
            found["disk_id"],
            int(found.get("disk_since", found["durable_since"])),
        ),
    )


class RegisteredNode(NamedTuple):
    """The text of a living node."""

    node: LivingNode
    process: str
    """Tells the node's processes apart."""


def encode_registration(registered: RegisteredNode, now_ms: int) -> str:
    """As Kafka's version 5."""
    (registration, endpoints), process = registered
    first = next((each for each in endpoints if each.protocol == "PLAINTEXT"), None)
    text: dict[str, Any] = {
        "version": 5,
        "host": None if first is None else first.host,
        "port": -1 if first is None else first.port,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [f"{each.listener}://{each.host}:{each.port}" for each in endpoints],
        "listener_security_protocol_map": {each.listener: each.protocol for each in endpoints},
        "features": {},
        "logstore": {
            "life": registration.life,
            "whole_since": registration.whole_since,
            "durable_since": registration.durable_since,
            "disk_since": registration.disk_since,
            "is_leaving": registration.is_leaving,
            "process": process,
        },
    }
    if registration.rack is not None:
        text["rack"] = registration.rack
    return _dump(text)


def decode_registration(path: str, data: str) -> RegisteredNode:
    def decode(found: Any) -> RegisteredNode:
        ours, protocols = found["logstore"], found["listener_security_protocol_map"]
        registration = Registration(
            int(path.rpartition("/")[2]),
            int(ours["life"]),
            int(ours["whole_since"]),
            int(ours["durable_since"]),
            bool(ours["is_leaving"]),
            found.get("rack"),
            int(ours.get("disk_since", ours["durable_since"])),
        )
        endpoints = tuple(_endpoint(text, protocols) for text in found["endpoints"])
        return RegisteredNode(LivingNode(registration, endpoints), str(ours["process"]))

    return _decoded(path, data, decode)


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _, place = text.partition("://")
    host, _, port = place.rpartition(":")
    return Endpoint(listener, host, int(port), protocols[listener])


def encode_controller(seat: ControllerSeat, now_ms: int) -> str:
    return _dump(
        {
            "version": 1,
            "brokerid": seat.member.node_id,
            "timestamp": str(now_ms),
            "logstore": {"life": seat.member.life, "epoch": seat.epoch},
        }
    )


def decode_controller(data: str) -> ControllerSeat:
    def decode(found: Any) -> ControllerSeat:
        ours = found["logstore"]
        return ControllerSeat(Member(int(found["brokerid"]), int(ours["life"])), int(ours["epoch"]))

    return _decoded(CONTROLLER, data, decode)


def encode_topic(topic_id: UUID, replicas: Mapping[int, Collection[int]]) -> str:
    """As Kafka's version 3."""
    return _dump(
        {
            "version": 3,
            "topic_id": encode_base64_uuid(topic_id),
            "partitions": {str(partition): list(nodes) for partition, nodes in replicas.items()},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


def partition_count(path: str, data: str) -> int:
    return _decoded(path, data, lambda found: len(found["partitions"]))


def decode_replicas(path: str, data: str) -> dict[int, tuple[int, ...]]:
    """Of each partition, as they were when it was created."""

    def replicas(found: Any) -> dict[int, tuple[int, ...]]:
        return {int(number): tuple(map(int, nodes)) for number, nodes in found["partitions"].items()}

    return _decoded(path, data, replicas)


def decode_topic_id(path: str, data: str) -> UUID:
    return _decoded(path, data, lambda found: decode_base64_uuid(found["topic_id"]))


def encode_config(config: Mapping[str, str]) -> str:
    return _dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: str) -> dict[str, str]:
    return _decoded(
        path, data, lambda found: {str(key): str(value) for key, value in found["config"].items()}
    )


def encode_state(state: PartitionState, controller_epoch: int) -> str:
    """As Kafka's version 1. The state's own version is that of the znode."""
    leader = state.leader
    return _dump(
        {
            "version": 1,
            "leader": _NO_LEADER if leader is None else leader.node_id,
            "leader_epoch": state.leader_epoch,
            "isr": [each.node_id for each in state.isr],
            "controller_epoch": controller_epoch,
            "logstore": {
                "replicas": state.replicas,
                "leader_life": None if leader is None else leader.life,
                "isr_lives": [each.life for each in state.isr],
                "eligible": state.eligible,
                "adding": state.adding,
                "removing": state.removing,
            },
        }
    )


def decode_state(path: str, stored: Stored) -> PartitionState:
    def decode(found: Any) -> PartitionState:
        ours = found["logstore"]
        leader = int(found["leader"])
        return PartitionState(
            tuple(map(int, ours["replicas"])),
            None if leader == _NO_LEADER else Member(leader, int(ours["leader_life"])),
            int(found["leader_epoch"]),
            tuple(
                Member(int(each), int(life))
                for each, life in zip(found["isr"], ours["isr_lives"], strict=True)
            ),
            tuple(Member(int(each), int(life)) for each, life in ours["eligible"]),
            stored.version,
            tuple(map(int, ours.get("adding", ()))),
            tuple(map(int, ours.get("removing", ()))),
        )

    return _decoded(path, stored.data, decode)
