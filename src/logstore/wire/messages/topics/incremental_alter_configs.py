"""Change single settings of resources (KIP-339)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Bool, Int8, Int16, Int32, String


class Config(NamedTuple):
    """A setting, and what to do with it."""

    name: String = ""
    config_operation: Int8 = 0
    """0: set. 1: delete. 2: append to a list. 3: subtract from a list."""
    value: String | None = None


class Resource(NamedTuple):
    """A topic, broker or group."""

    resource_type: Int8 = 0
    """2: topic. 4: broker. 8: a broker's loggers. 16: client metrics. 32: group."""
    resource_name: String = ""
    configs: tuple[Config, ...] = ()


class IncrementalAlterConfigsRequest(NamedTuple):
    """The resources, with the settings to change."""

    resources: tuple[Resource, ...] = ()
    validate_only: Bool = False


class ResourceResult(NamedTuple):
    """A resource that was changed, or why it was not."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(NamedTuple):
    """What became of the resources."""

    throttle_time_ms: Int32 = 0
    resources: tuple[ResourceResult, ...] = ()
