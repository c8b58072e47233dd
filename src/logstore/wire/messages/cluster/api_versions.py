"""Which requests a broker serves, and in which versions. A connection begins with it."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from logstore.format.messages.fields import Bool, Int16, Int32, Int64, String, since, tagged

SOFTWARE: Final = "logstore"
"""As our own clients introduce themselves."""


class ApiVersionsRequest(NamedTuple):
    """The first request of a client, which says what the client is (KIP-511)."""

    client_software_name: Annotated[String, since(3)] = ""
    client_software_version: Annotated[String, since(3)] = ""


class ServedApi(NamedTuple):
    """One request, and its versions."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeature(NamedTuple):
    """A feature of the cluster that the broker can run (KIP-584)."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeature(NamedTuple):
    """A feature that the cluster has switched on."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(NamedTuple):
    """What the broker serves."""

    error_code: Int16 = 0
    apis: tuple[ServedApi, ...] = ()
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeature, ...], since(3), tagged(0)] = ()
    finalized_features_epoch: Annotated[Int64, since(3), tagged(1)] = -1
    """Rises when they change; -1: not known."""
    finalized_features: Annotated[tuple[FinalizedFeature, ...], since(3), tagged(2)] = ()
    zk_migration_ready: Annotated[Bool, since(3), tagged(3)] = False
