"""What members of groups and transactional producers are told when their coordinator cannot write."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.warning import is_due, warn
from logstore.wire.handlers.call import Call
from logstore.wire.messages.cluster.api_versions import SOFTWARE

_told_at: Final[dict[str, float]] = {}
"""When the log last heard of a disk that refuses, by the path of the store: clients try again several times a
second."""


def as_told(call: Call, code: ErrorCode, why: str | None = None) -> ErrorCode:
    """The code as this client knows it of a coordinator. ``KAFKA_STORAGE_ERROR`` is one of leaders: here most
    clients take it for the end of the transactional producer, or of the member. After ``NOT_COORDINATOR``,
    which Kafka tells them in its place, they ask again. Our own know what to say of a disk.

    Args:
        why: what the disk has said. Not for strangers; the log hears of it.
    """
    if code is not ErrorCode.KAFKA_STORAGE_ERROR or call.software == SOFTWARE:
        return code
    if why is not None and is_due(_told_at, call.node.store_path):
        warn("members of groups are told to ask again: %s", why)
    return ErrorCode.NOT_COORDINATOR


def words_as_told(found: ErrorCode, told: ErrorCode, words: str | None) -> str | None:
    """The words that go with it: ``words``, unless another code is told than was found."""
    return words if told is found else told.name
