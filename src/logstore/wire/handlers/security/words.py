"""What clients are told."""

from __future__ import annotations

from typing import Final

from logstore.logdir.acls import Operation

NO_ACLS: Final = "this listener has no ACLs: everyone may do everything. Open it with authorize=True"
NO_USERS: Final = "this listener has no users: clients do not log in"


def may_not(operation: Operation) -> str:
    """To one that may not."""
    return f"it takes {operation.name} on the cluster"
