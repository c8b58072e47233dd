"""Settings of Kafka's topics that logstore does not have, at the values that ask for nothing.

Tools that make a topic like another one, with all that is said of it, name them as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

T = TypeVar("T", str, str | None)

_KAFKAS_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.decompressed.message.bytes": "2147483639",
        "remote.copy.lag.bytes": "-1",
        "remote.copy.lag.ms": "0",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "remote.storage.enable": "false",
    }
)
"""Of tiered storage, of moving partitions slowly, and of what is as good as no limit."""


def without_idle(settings: Mapping[str, T]) -> dict[str, T]:
    """Those that ask for something; None deletes one. With another value such a setting is refused by its
    name, as one that there is not."""
    return {
        name: value
        for name, value in settings.items()
        if value is None or _KAFKAS_DEFAULTS.get(name) != value.strip().lower()
    }
