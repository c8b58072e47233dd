"""The settings of topics, brokers and groups."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Int8, Int16, Int32, String, needs, since


class Resource(NamedTuple):
    """A topic, broker or group."""

    resource_type: Int8 = 0
    """2: topic. 4: broker. 8: a broker's loggers. 16: client metrics. 32: group."""
    resource_name: String = ""
    keys: tuple[String, ...] | None = ()


class DescribeConfigsRequest(NamedTuple):
    """Ask for some settings of each resource, or for all (null)."""

    resources: tuple[Resource, ...] = ()
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, needs(3)] = False


class Synonym(NamedTuple):
    """Where the value may come from besides, in the order in which they count."""

    name: String = ""
    value: String | None = None
    source: Int8 = 0


class Config(NamedTuple):
    """A setting: its value, its type, and where the value comes from."""

    name: String = ""
    value: String | None = None
    read_only: Bool = False
    config_source: Int8 = -1
    """1: the topic. 2: this broker. 3: all brokers. 4: the broker's file. 5: the default. 8: the group."""
    is_sensitive: Bool = False
    synonyms: tuple[Synonym, ...] = ()
    config_type: Annotated[Int8, since(3)] = 0
    """1: boolean. 2: string. 3: int. 4: short. 5: long. 6: double. 7: list. 8: class. 9: password."""
    documentation: Annotated[String | None, since(3)] = None


class ResourceResult(NamedTuple):
    """The settings of a resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[Config, ...] = ()


class DescribeConfigsResponse(NamedTuple):
    """The settings."""

    throttle_time_ms: Int32 = 0
    resources: tuple[ResourceResult, ...] = ()
