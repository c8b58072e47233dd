"""List what has settings (KIP-1142). Version 0 was ListClientMetricsResources (KIP-1000)."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from logstore.format.messages.fields import Int8, Int16, Int32, String, since

CLIENT_METRICS: Final = 16


class ListConfigResourcesRequest(NamedTuple):
    """Of which types; none are all."""

    resource_types: Annotated[tuple[Int8, ...], since(1)] = ()


class ConfigResource(NamedTuple):
    """One that has settings."""

    resource_name: String = ""
    resource_type: Annotated[Int8, since(1)] = CLIENT_METRICS


class ListConfigResourcesResponse(NamedTuple):
    """What has settings."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: tuple[ConfigResource, ...] = ()
