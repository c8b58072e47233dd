"""The settings of a group coordinator, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass


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
