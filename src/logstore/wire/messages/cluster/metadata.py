"""Brokers, topics and partitions: where everything is."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    String,
    Uuid,
    needs,
    null_since,
    since,
    until,
)
from logstore.wire.messages.parts import NOT_ASKED


class TopicWanted(NamedTuple):
    """A topic, by name or by id."""

    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    name: Annotated[String | None, null_since(10)] = ""


class MetadataRequest(NamedTuple):
    """Ask for some topics, for all of them (null), or for none."""

    topics: Annotated[tuple[TopicWanted, ...] | None, null_since(1)] = ()
    allow_auto_topic_creation: Annotated[Bool, needs(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, needs(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, needs(8)] = False


class Broker(NamedTuple):
    """A broker, and where it listens."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, since(1)] = None


class Partition(NamedTuple):
    """A partition: its leader, and its replicas."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7)] = -1
    replicas: tuple[Int32, ...] = ()
    isr: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], since(5)] = ()


class Topic(NamedTuple):
    """A topic."""

    error_code: Int16 = 0
    name: Annotated[String | None, null_since(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: tuple[Partition, ...] = ()
    authorized_operations: Annotated[Int32, since(8)] = NOT_ASKED
    """A bit for each operation that the client may do; ``NOT_ASKED`` if it did not ask."""


class MetadataResponse(NamedTuple):
    """The brokers, and the topics that were asked for."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: tuple[Broker, ...] = ()
    cluster_id: Annotated[String | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: tuple[Topic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = NOT_ASKED
    """A bit for each operation that the client may do; ``NOT_ASKED`` if it did not ask."""
    error_code: Annotated[Int16, since(13)] = 0
