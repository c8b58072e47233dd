"""The share coordinator, as handlers ask it. Other nodes do, and no clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.kept import ShareStates
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call

R = TypeVar("R")


def ask(
    call: Call, asked: Callable[[ShareStates], Pending[R]], refusal: Callable[[ErrorCode], R]
) -> Pending[R]:
    """What the share coordinator of this node answers. A store that is alone has none for others."""
    if not call.allows_cluster(Operation.CLUSTER_ACTION):
        return Answered(refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    states = call.node.share_states
    return Answered(refusal(ErrorCode.NOT_COORDINATOR)) if states is None else asked(states)
