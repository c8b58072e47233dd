"""What is asked of the coordinator, and what it answers, in Kafka's terms and independent of versions.

Partitions are named by the id of their topic: a topic that is made again under its old name is another.
Times are in milliseconds.
"""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode

JOINING: Final = 0
"""The epoch with which a member joins, or joins again."""
LEAVING: Final = -1
"""The epoch with which a member leaves."""
PAUSING: Final = -2
"""The epoch with which a static member leaves for a while."""
NO_TIMEOUT: Final = -1


class TopicIdPartition(NamedTuple):
    """One partition."""

    topic_id: uuid.UUID
    partition: int


class ConsumerGroupHeartbeat(NamedTuple):
    """Join, stay and leave. What is None has not changed since the member's last heartbeat."""

    group_id: str
    member_id: str = ""
    """Chosen by the member; if it is empty in the first heartbeat, the coordinator chooses one."""
    member_epoch: int = JOINING
    """The one that the last answer had; ``JOINING``, ``LEAVING`` or ``PAUSING``."""
    instance_id: str | None = None
    """Makes the member static (KIP-345)."""
    rack_id: str | None = None
    """Where it runs. It is stored and described; no assignor uses it."""
    rebalance_timeout_ms: int = NO_TIMEOUT
    """How long it may take to give up partitions. Needed to join."""
    topics: tuple[str, ...] | None = None
    """What it subscribes to by name. Needed to join, unless there is a pattern."""
    pattern: str | None = None
    """What it subscribes to by a regular expression, which a whole name has to match; empty for none."""
    assignor: str | None = None
    """How the coordinator shall assign; what most members want counts."""
    owned: frozenset[TopicIdPartition] | None = None
    """What it has. Needed to join, and then empty."""
    client_id: str = ""
    client_host: str = ""


class ConsumerGroupHeartbeatResult(NamedTuple):
    """What the coordinator wants of the member, or an error."""

    error: ErrorCode
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicIdPartition, ...] | None = None
    """All that it shall have for now, in order; None: as before."""
    message: str | None = None


class AssignedPartition(NamedTuple):
    """A partition, as an administrator sees it."""

    topic_id: uuid.UUID
    topic: str
    partition: int


class DescribedConsumer(NamedTuple):
    """A member, as an administrator sees it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assignment: tuple[AssignedPartition, ...]
    """What it has, also what it is to give up. Without topics that are deleted, as is the target."""
    target: tuple[AssignedPartition, ...]
    """What it shall have."""
    is_classic: bool = False
    """Whether it has the classic protocol."""


class DescribedConsumerGroup(NamedTuple):
    """A group, as an administrator sees it."""

    error: ErrorCode
    group_id: str
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()
    message: str | None = None
