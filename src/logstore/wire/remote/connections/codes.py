"""Error codes as they arrive: numbers, of which a newer broker may send some that are not known here."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode

_ALIKE: Final = {
    9: ErrorCode.LEADER_NOT_AVAILABLE,  # REPLICA_NOT_AVAILABLE
    72: ErrorCode.LEADER_NOT_AVAILABLE,  # LISTENER_NOT_FOUND
    78: ErrorCode.LEADER_NOT_AVAILABLE,  # OFFSET_NOT_AVAILABLE: the new leader does not know its end yet
    80: ErrorCode.LEADER_NOT_AVAILABLE,  # PREFERRED_LEADER_NOT_AVAILABLE
    100: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # UNKNOWN_TOPIC_ID
    103: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # INCONSISTENT_TOPIC_ID
}
"""Codes that mean to a client what another means. Clients of the seam know the other."""

_BY_NUMBER: Final = {int(code): code for code in ErrorCode} | _ALIKE

STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these the partition's leader is looked up again."""

ABOUT_EPOCHS: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH})
"""What a leader says of the epoch that a request expects. A caller that names one is told."""

LOST: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""The broker may have taken the request."""

NOT_HERE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these the broker that a request is for is looked up again."""

NOT_YET: Final = NOT_HERE | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""After these the same request may succeed soon, and was not carried out; or may be repeated."""


def code_of_number(number: int) -> ErrorCode:
    """The code; ``UNKNOWN_SERVER_ERROR`` for one that is not known here."""
    return _BY_NUMBER.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def why_of_number(number: int, message: str | None = None) -> str | None:
    """What to say of it, if the code alone does not."""
    if message:
        return message
    return None if number in _BY_NUMBER else f"the broker answers with error code {number}"
