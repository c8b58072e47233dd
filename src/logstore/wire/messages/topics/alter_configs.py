"""Replace all settings of resources. Superseded by IncrementalAlterConfigs."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Bool, Int8, Int16, Int32, String


class Config(NamedTuple):
    """A setting."""

    name: String = ""
    value: String | None = None


class Resource(NamedTuple):
    """A topic, broker or group."""

    resource_type: Int8 = 0
    """2: topic. 4: broker. 8: a broker's loggers. 16: client metrics. 32: group."""
    resource_name: String = ""
    configs: tuple[Config, ...] = ()


class AlterConfigsRequest(NamedTuple):
    """The resources, with all settings that shall differ from their defaults."""

    resources: tuple[Resource, ...] = ()
    validate_only: Bool = False


class ResourceResult(NamedTuple):
    """A resource that was changed, or why it was not."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(NamedTuple):
    """What became of the resources."""

    throttle_time_ms: Int32 = 0
    resources: tuple[ResourceResult, ...] = ()
