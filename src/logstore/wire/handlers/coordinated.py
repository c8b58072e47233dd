"""What members of groups and transactional producers are told when their coordinator cannot write."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.wire.handlers.call import Call
from logstore.wire.messages.cluster.api_versions import SOFTWARE


def as_told(call: Call, code: ErrorCode) -> ErrorCode:
    """The code as this client knows it of a coordinator. ``KAFKA_STORAGE_ERROR`` is one of leaders: here most
    clients take it for the end of the transactional producer, or of the member. After ``NOT_COORDINATOR``,
    which Kafka tells them in its place, they ask again. Our own know what to say of a disk."""
    is_theirs = call.software != SOFTWARE
    return ErrorCode.NOT_COORDINATOR if is_theirs and code is ErrorCode.KAFKA_STORAGE_ERROR else code
