"""The kinds of groups, as clients are told of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from logstore.logdir.acls import Operation


class GroupType(StrEnum):
    """The protocol that a group follows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


GROUP_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""What ACLs of groups speak of."""
