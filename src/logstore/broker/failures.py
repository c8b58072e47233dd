"""Between the errors of this package and Kafka's codes, in both directions."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    ForkedError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionStateError,
    JobLostError,
    LeaderFencedError,
    LogstoreError,
    OffsetOutOfRangeError,
    OutOfOrderError,
    ProducerFencedError,
    RecordTooLargeError,
    RetriableError,
    StorageError,
    TopicExistsError,
    UnknownGroupError,
    UnknownLeaderEpochError,
    UnknownTopicError,
    UsageError,
)

_CODES: Final[tuple[tuple[type[LogstoreError], ErrorCode], ...]] = (
    (UnknownTopicError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (UnknownGroupError, ErrorCode.GROUP_ID_NOT_FOUND),
    (InvalidTopicError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (InvalidTimestampError, ErrorCode.INVALID_TIMESTAMP),
    (InvalidRecordError, ErrorCode.INVALID_RECORD),
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (OutOfOrderError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (InvalidTransactionStateError, ErrorCode.INVALID_TXN_STATE),
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ForkedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (CorruptionError, ErrorCode.CORRUPT_MESSAGE),
    (StorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (ProducerFencedError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (LeaderFencedError, ErrorCode.FENCED_LEADER_EPOCH),
    (UnknownLeaderEpochError, ErrorCode.UNKNOWN_LEADER_EPOCH),
    (JobLostError, ErrorCode.INVALID_RECORD_STATE),
    (FencedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (RetriableError, ErrorCode.REQUEST_TIMED_OUT),
    (UsageError, ErrorCode.INVALID_REQUEST),
)
"""The most particular first."""


def code_of(error: LogstoreError) -> ErrorCode:
    """The code that stands for an error."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


_E = ErrorCode

_KINDS: Final[dict[ErrorCode, type[LogstoreError]]] = {
    _E.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    _E.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    _E.UNKNOWN_TOPIC_ID: UnknownTopicError,
    _E.GROUP_ID_NOT_FOUND: UnknownGroupError,
    _E.NON_EMPTY_GROUP: RetriableError,  # by a person, when its members are gone
    _E.GROUP_SUBSCRIBED_TO_TOPIC: RetriableError,
    _E.INVALID_TOPIC_EXCEPTION: InvalidTopicError,
    _E.TOPIC_ALREADY_EXISTS: TopicExistsError,
    _E.INVALID_CONFIG: InvalidConfigError,
    _E.MESSAGE_TOO_LARGE: RecordTooLargeError,
    _E.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
    _E.INVALID_TIMESTAMP: InvalidTimestampError,
    _E.INVALID_RECORD: InvalidRecordError,
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderError,
    _E.INVALID_TXN_STATE: InvalidTransactionStateError,
    _E.INVALID_PRODUCER_ID_MAPPING: InvalidTransactionStateError,
    _E.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    _E.PRODUCER_FENCED: ProducerFencedError,
    _E.FENCED_LEADER_EPOCH: LeaderFencedError,
    _E.UNKNOWN_LEADER_EPOCH: UnknownLeaderEpochError,
    _E.INVALID_RECORD_STATE: JobLostError,
    _E.FENCED_INSTANCE_ID: FencedError,
    _E.FENCED_MEMBER_EPOCH: FencedError,
    _E.UNRELEASED_INSTANCE_ID: FencedError,
    _E.STALE_MEMBER_EPOCH: FencedError,
    _E.TRANSACTION_COORDINATOR_FENCED: FencedError,
}

_STORAGE: Final = frozenset({_E.KAFKA_STORAGE_ERROR})
_CORRUPTION: Final = frozenset({_E.CORRUPT_MESSAGE})
RETRIABLE: Final = frozenset(
    {
        _E.LEADER_NOT_AVAILABLE,
        _E.NOT_LEADER_OR_FOLLOWER,
        _E.REQUEST_TIMED_OUT,
        _E.BROKER_NOT_AVAILABLE,
        _E.NETWORK_EXCEPTION,
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
        _E.NOT_ENOUGH_REPLICAS,
        _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        _E.REBALANCE_IN_PROGRESS,
        _E.NOT_CONTROLLER,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.CONCURRENT_TRANSACTIONS,
        _E.UNSTABLE_OFFSET_COMMIT,
        _E.KAFKA_STORAGE_ERROR,
    }
)
"""After these the same request may succeed."""


def error_of(code: ErrorCode, message: str) -> LogstoreError:
    """The error that a caller gets for a code: of the family that says what to do."""
    if code in _CORRUPTION:
        return CorruptionError(message)
    if code in _STORAGE:
        return StorageError(None, message)
    kind = _KINDS.get(code)
    if kind is None:
        kind = RetriableError if code in RETRIABLE else UsageError
    return kind(message)
