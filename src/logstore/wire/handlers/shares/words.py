"""What administrators of share groups are told of what was refused."""

from __future__ import annotations

from logstore.broker.codes import NONE, ErrorCode


def of_group(group_id: str, code: ErrorCode, message: str | None = None) -> str:
    """Of a whole request about a group; ``message`` is what there is to say already."""
    if message is not None:
        return message
    if code is ErrorCode.NON_EMPTY_GROUP:
        return (
            f"share group {group_id!r} has members: stop them, or wait until their sessions are over, and "
            "try again"
        )
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        return f"there is no share group {group_id!r}"
    return code.name


def of_topic(name: str, code: ErrorCode, partition: int | None = None) -> str | None:
    """Of a topic, or of one of its partitions. None if nothing was refused."""
    if code is NONE:
        return None
    if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return code.name
    return f"there is no topic {name!r}" + ("" if partition is None else f" with a partition {partition}")
