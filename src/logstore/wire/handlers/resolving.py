"""Which topic a request means, and whether its client may have it."""

from __future__ import annotations

import uuid

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call


def resolve(
    call: Call, operation: Operation, name: str, topic_id: uuid.UUID | None = None
) -> tuple[str, ErrorCode]:
    """The name of the topic, and why the client may not do this with it.

    Args:
        topic_id: of versions that name topics by their ids.
    """
    if topic_id is not None:
        found = call.node.topics.name_of(topic_id)
        if found is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = found
    if not call.allows_topic(operation, name):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, ErrorCode.NONE
