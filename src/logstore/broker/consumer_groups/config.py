"""The settings of the coordinator, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from logstore.errors import InvalidConfigError


@dataclass(frozen=True, kw_only=True)
class ConsumerGroupConfig:
    """Limits and times, with Kafka's defaults. Times are in milliseconds."""

    group_consumer_session_timeout_ms: int = 45_000
    """A member that was not heard of for so long is removed."""
    group_consumer_heartbeat_interval_ms: int = 5_000
    """How often members are told to send heartbeats."""
    group_consumer_max_size: int = 2**31 - 1
    """How many members a group may have."""

    def __post_init__(self) -> None:
        """
        Raises:
            InvalidConfigError: a value is no whole number above 0, or sessions are not longer than the
                interval of heartbeats.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise InvalidConfigError(f"{field.name} is {value!r}; it must be a whole number, 1 or above")
        session_ms = self.group_consumer_session_timeout_ms
        interval_ms = self.group_consumer_heartbeat_interval_ms
        if session_ms <= interval_ms:
            raise InvalidConfigError(
                f"group_consumer_session_timeout_ms is {session_ms}, not above "
                f"group_consumer_heartbeat_interval_ms, which is {interval_ms}: members would be removed "
                "before their next heartbeat"
            )
