"""Every error that logstore raises: five families, by what the caller can do about it.

::

    LogstoreError
    ├── UsageError                        fix the call
    │   ├── InvalidTopicError               a topic name that Kafka would refuse
    │   ├── UnknownTopicError               no such topic (also a KeyError)
    │   │   └── UnknownPartitionError         no partition of that number (also an IndexError)
    │   ├── UnknownGroupError               no such consumer group (also a KeyError)
    │   ├── TopicExistsError                create_topic of a topic that exists
    │   ├── InvalidConfigError              an unknown or contradictory setting
    │   ├── InvalidRecordError              a record or batch that the validator refuses
    │   │   ├── InvalidTimestampError         its timestamp is out of bounds
    │   │   └── RecordTooLargeError           larger than max_message_bytes or segment_bytes
    │   ├── OffsetOutOfRangeError           below the log start or above the log end
    │   ├── OutOfOrderError                 sequence or replicated offset that does not follow
    │   ├── InvalidTransactionStateError    plain data inside an open transaction
    │   ├── ReadOnlyError                   a change through a read-only store
    │   ├── ClosedError                     the store, log or file was closed
    │   ├── ForkedError                     a forked child uses its parent's store
    │   └── UnsupportedVersionError         written by a newer format; upgrade logstore
    ├── CorruptionError                   look at the disk: path, position, offsets
    ├── StorageError (also OSError)       the disk failed
    │   ├── DiskFullError                   make room, then go on
    │   ├── NotOpenedError                  flush again when there are descriptors
    │   └── ReopenRequiredError             reopen before writing again
    ├── FencedError                       stand down
    │   ├── ProducerFencedError             a newer epoch of this producer exists
    │   ├── LeaderFencedError               a newer leader epoch is known, of the log or a coordinator
    │   └── JobLostError                    a job's lock has run out; another worker may have it
    └── RetriableError                    try again
        ├── LockedError                     another process, or this one, has the directory open
        └── UnknownLeaderEpochError         the log has not heard of that leader epoch yet

This module knows nothing but Python's own exceptions.
"""

from __future__ import annotations

import errno
from typing import Self, TypeVar


class LogstoreError(Exception):
    """The root of every error of this package."""


class UsageError(LogstoreError):
    """The call is wrong; calling again with the same arguments will fail again."""

    _is_of_place = False


class InvalidTopicError(UsageError):
    """A topic or partition name that Kafka would refuse."""


class UnknownTopicError(UsageError, KeyError):
    """No such topic, or no such partition in it."""

    __str__ = Exception.__str__  # KeyError would show the quoted repr of the message


class UnknownPartitionError(UnknownTopicError, IndexError):
    """A topic has no partition of that number."""


class UnknownGroupError(UsageError, KeyError):
    """No such consumer group."""

    __str__ = Exception.__str__


class TopicExistsError(UsageError):
    """The topic to create already exists."""


class InvalidConfigError(UsageError):
    """A setting that is unknown, out of range, or contradicts another one."""


class InvalidRecordError(UsageError):
    """A record or batch that the validator refuses; nothing of the call was appended. Or a record that a
    deserializer cannot decode."""

    partition: tuple[str, int] | None = None
    """Where a record is that could not be decoded, or that a bridge cannot push: its topic and partition; and
    for which partition a broker refused a batch. None for other errors."""
    offset: int | None = None
    """The offset of that record: ``consumer.seek(error.partition, error.offset + 1)`` passes it. None for a
    batch that was refused."""
    records: tuple[int, ...] = ()
    """Which records of the batch are refused for their key or timestamp: the first ten, counted from 0. Empty
    for other errors."""


class InvalidTimestampError(InvalidRecordError):
    """A timestamp outside ``message_timestamp_before_max_ms`` / ``_after_max_ms``, or in another unit than
    milliseconds."""


class RecordTooLargeError(InvalidRecordError):
    """A batch larger than ``max_message_bytes``, a set of batches larger than ``segment_bytes``, or a
    compressed batch with more than 64 MiB of records."""


class OffsetOutOfRangeError(UsageError):
    """An offset below the log start offset or above the log end offset."""

    log_start_offset: int | None = None
    """Where the log begins; everything below was deleted. None if the error does not come from a log."""
    log_end_offset: int | None = None
    """The offset that the next record gets."""

    def of_log(self, log_start_offset: int, log_end_offset: int) -> Self:
        """The same error, with what the log holds."""
        self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset
        return self


class OutOfOrderError(UsageError):
    """A producer's sequence, or a replicated batch's offset, that does not follow the last one."""

    was_appended: bool = False
    """Whether the batch is one of the producer's that the log has had already, and no longer knows the place
    of. False for one in front of the first that the log has of the producer: it may never have been there."""


class InvalidTransactionStateError(UsageError):
    """Plain data from a producer that has an open transaction."""


class ReadOnlyError(UsageError):
    """The call would change a store or log that was opened read-only."""


class ClosedError(UsageError):
    """The store, log or file is closed."""


class ForkedError(UsageError):
    """A forked child used a store of its parent. Open the directory in the child instead."""


class UnsupportedVersionError(UsageError):
    """The bytes have a version that this release of logstore does not know."""


class CorruptionError(LogstoreError):
    """Bytes on disk are not what was written.

    ``reason`` says what is wrong. ``path`` and ``position`` (bytes into the file) name the place,
    ``base_offset`` and ``last_offset`` the affected records; each is None if it is not known. Decoders raise
    it with ``position`` relative to their buffer; the reader of the file adds the rest with :meth:`located`.
    """

    partition: tuple[str, int] | None = None
    """Set by a consumer: the topic and partition. ``consumer.seek(error.partition, error.last_offset + 1)``
    passes the damage, if ``last_offset`` is known."""

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        position: int | None = None,
        base_offset: int | None = None,
        last_offset: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.position = position
        self.base_offset = base_offset
        self.last_offset = last_offset

    def located(self, path: str, position: int = 0) -> Self:
        """Add the path, and move the position by where the decoded buffer begins in the file."""
        if self.path is None:
            self.path = path
            self.position = position + (self.position or 0)
        return self

    def __str__(self) -> str:
        where = []
        if self.path is not None:
            where.append(self.path)
        if self.position is not None:
            where.append(f"position {self.position}")
        if self.base_offset is not None:
            where.append(f"offset {self.base_offset}")
        if self.last_offset is not None and self.last_offset != self.base_offset:
            where.append(f"to {self.last_offset}")
        return f"{self.reason} ({', '.join(where)})" if where else self.reason


class StorageError(LogstoreError, OSError):
    """The operating system refused a file operation: ``errno``, ``strerror`` and ``filename`` say which.
    ``errno`` is None if a broker tells of it."""

    def __str__(self) -> str:
        if self.errno is not None or self.strerror is None:
            return super().__str__()
        return self.strerror if self.filename is None else f"{self.strerror}: {self.filename!r}"


class DiskFullError(StorageError):
    """No space, or a quota or file size limit was reached. A log that is open stays readable; appending works
    again as soon as there is room, and so does opening what a crash has left. Single appends that were still
    gathering keep their offsets and are written then. Until they are, they cannot be read, and are lost if
    the process dies."""


class NotOpenedError(StorageError):
    """A file could not be opened to be flushed, for lack of descriptors or permission. Nothing was done to
    it, so the next flush tries again. (After a failed fsync, trying again would prove nothing.)"""


class ReopenRequiredError(StorageError):
    """An fsync failed, or a change stopped half-way: what is in memory may differ from what is on disk.
    Reads go on; writes are refused until the partition is reopened, which checks the disk again."""


class FencedError(LogstoreError):
    """A newer holder of the same identity exists. Stop; do not retry."""


class ProducerFencedError(FencedError):
    """The producer's epoch is lower than the one the log has seen."""


class LeaderFencedError(FencedError):
    """The caller expects an older leader epoch than the log has: look up who leads the partition now
    (KIP-320; Kafka's FENCED_LEADER_EPOCH)."""


class JobLostError(FencedError):
    """The lock of a queue's job has run out, and another worker may have it (Kafka's INVALID_RECORD_STATE).
    What was said of it does not count; unless the node that gave it out has just gone or handed over: then it
    may count all the same."""


class RetriableError(LogstoreError):
    """Nothing is wrong with the call; the same call may succeed later."""


class LockedError(RetriableError):
    """The directory is open for writing elsewhere; there is one writer per directory.

    ``held`` is the message without advice: which lock it is, and which process holds it.
    """

    def __init__(self, held: str, advice: str = "") -> None:
        super().__init__(f"{held}: {advice}" if advice else held)
        self.held = held


class UnknownLeaderEpochError(RetriableError):
    """The caller expects a newer leader epoch than the log knows: try again when the log has heard of it
    (KIP-320; Kafka's UNKNOWN_LEADER_EPOCH)."""


def of_place(error: UsageError) -> UsageError:
    """The error, noted as one of what is at the place that a right call names: a directory that is no store,
    a coordinator that has no cluster, or another one, or that takes other logins."""
    error._is_of_place = True
    return error


def is_of_place(error: UsageError) -> bool:
    """Whether it was noted as one of those: see :func:`of_place`."""
    return error._is_of_place


ErrorT = TypeVar("ErrorT", bound=BaseException)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


_NEXT_STEPS = {
    errno.EACCES: " (this process's user needs the permission)",
    errno.EPERM: " (this process's user needs the permission)",
    errno.EROFS: " (the file system is read-only; read_only=True needs no more)",
    errno.EEXIST: " (what is there is a file, or a link that leads nowhere)",
    errno.ENOSPC: " (make room, then try again)",
    errno.EDQUOT: " (make room, then try again)",
    errno.EFBIG: " (allow this process larger files, as with ulimit -f, or set a smaller segment_bytes)",
    errno.EMFILE: " (allow this process more open files, as with ulimit -n)",
}


def storage_error(error: OSError, path: str, action: str) -> StorageError:
    """Turn an OSError of ``action`` on ``path`` into a StorageError that names both and the next step."""
    kind = DiskFullError if error.errno in _FULL else StorageError
    return kind(error.errno, _why(error, action), path)


def socket_error(error: OSError, action: str) -> StorageError:
    """Turn an OSError of ``action``, such as to listen, into one that names it and the next step."""
    return StorageError(error.errno, _why(error, action))


def _why(error: OSError, action: str) -> str:
    return f"{action}: {error.strerror}{_NEXT_STEPS.get(error.errno or 0, '')}"


def is_denied(error: BaseException) -> bool:
    """Whether a permission is missing: that says nothing about the files."""
    return isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM)


def without_frames(error: ErrorT) -> ErrorT:
    """An error without its frames, for keeping after it was handled. The frames would keep files open and
    memory in use."""
    error.__cause__ = error.__context__ = error.__traceback__ = None
    return error
