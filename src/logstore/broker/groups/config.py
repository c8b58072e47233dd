"""The settings of a group coordinator, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from logstore.errors import InvalidConfigError


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Limits and delays. Times are in milliseconds."""

    group_min_session_timeout_ms: int = 6_000
    """Members that ask for less are refused: Kafka's default. Tests of clients often ask for less."""
    group_max_session_timeout_ms: int = 1_800_000
    """Members that ask for more are refused: Kafka's default. A dead member holds its partitions so long."""
    group_max_size: int = 2**31 - 1
    """How many members a group may have."""
    group_initial_rebalance_delay_ms: int = 0
    """How long an empty group waits for more members after the first one has joined. Kafka waits 3 s, which
    saves rebalances where hundreds start together. An embedded broker has few members."""
    new_member_join_timeout_ms: int = 300_000
    """How long a new member waits in its first JoinGroup. Kafka's value, which cannot be set there."""

    def __post_init__(self) -> None:
        """
        Raises:
            InvalidConfigError: a value is no whole number or below 0, or the bounds contradict each other.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 0:
                raise InvalidConfigError(f"{field.name} is {value!r}; it must be a whole number, 0 or above")
        shortest_ms, longest_ms = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if shortest_ms > longest_ms:
            raise InvalidConfigError(
                f"group_min_session_timeout_ms is {shortest_ms}, above group_max_session_timeout_ms, "
                f"which is {longest_ms}: no member could join"
            )
