"""Create topics."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import NO_UUID, Bool, Int8, Int16, Int32, String, Uuid, since, tagged


class Assignment(NamedTuple):
    """The replicas of a partition."""

    partition: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


class Config(NamedTuple):
    """A setting that differs from its default."""

    name: String = ""
    value: String | None = None


class Topic(NamedTuple):
    """A topic: with counts, or with the replicas of each partition."""

    name: String = ""
    partition_count: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[Config, ...] = ()


class CreateTopicsRequest(NamedTuple):
    """The topics to create."""

    topics: tuple[Topic, ...] = ()
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class ConfigResult(NamedTuple):
    """A setting of the topic, and where it comes from (KIP-525)."""

    name: String = ""
    value: String | None = None
    read_only: Bool = False
    config_source: Int8 = -1
    """1: the topic. 2: this broker. 3: all brokers. 4: the broker's file. 5: the default. 8: the group."""
    is_sensitive: Bool = False


class TopicResult(NamedTuple):
    """A topic as it was created, or why it was not."""

    name: String = ""
    topic_id: Annotated[Uuid, since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: String | None = None
    config_error_code: Annotated[Int16, since(5), tagged(0)] = 0
    partition_count: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[tuple[ConfigResult, ...] | None, since(5)] = ()


class CreateTopicsResponse(NamedTuple):
    """What became of the topics."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
