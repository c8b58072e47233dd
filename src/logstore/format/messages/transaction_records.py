"""The records of ``__transaction_state``: for each transactional id its producer, and its last transaction.

Key and value begin with their version. A null value is a tombstone: the transactional id has expired.

Source: Kafka's ``transaction-coordinator/src/main/resources/common/message``, 3.9 and 4.x.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Annotated, Final, NamedTuple

from logstore.errors import UsageError
from logstore.format.messages.fields import Int8, Int16, Int32, Int64, String, since, tagged
from logstore.format.messages.message import Message, version_of
from logstore.model import Bytes, TopicPartition


class TransactionLogKey(NamedTuple):
    """Whose transaction."""

    transactional_id: String = ""


class TransactionPartitions(NamedTuple):
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class TransactionLogValue(NamedTuple):
    """The producer of a transactional id, and how far its last transaction has come."""

    producer_id: Int64 = -1
    previous_producer_id: Annotated[Int64, since(1), tagged(0)] = -1
    """The id that ended the last transaction, if the producer has a new one since; else -1."""
    next_producer_id: Annotated[Int64, since(1), tagged(1)] = -1
    """The id that the producer gets when this transaction is complete, because its epochs are used up; else
    -1."""
    producer_epoch: Int16 = -1
    timeout_ms: Int32 = -1
    status: Int8 = 0
    """How far it has come, as a number."""
    partitions: tuple[TransactionPartitions, ...] | None = ()
    """Those that the transaction has written to; null after its end."""
    last_update_ms: Int64 = -1
    start_ms: Int64 = -1
    """When the transaction began, in milliseconds since the epoch; -1 before the first."""
    client_version: Annotated[Int16, since(1), tagged(2)] = 0
    """2 if the producer gets a new epoch with each transaction (KIP-890)."""


TRANSACTION_LOG_KEY: Final = Message(TransactionLogKey, 0, 0)
TRANSACTION_LOG_VALUE: Final = Message(TransactionLogValue, 0, 1, flexible=1)

VALUE_VERSION: Final = 1


@lru_cache(maxsize=1024)
def encode_transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id's records (version 0). Those of the last ids are kept.

    Raises:
        UsageError: it has more than 32,767 bytes, or is no text.
    """
    return TRANSACTION_LOG_KEY.encode_versioned(TransactionLogKey(transactional_id), 0)


def encode_transaction_value(value: TransactionLogValue) -> bytes:
    """The value, as Kafka 4.4 writes it (version 1); Kafka 3.8 and later read it.

    Raises:
        UsageError: a number does not fit.
    """
    return TRANSACTION_LOG_VALUE.encode_versioned(value, VALUE_VERSION)


_BEGIN: Final = struct.Struct(">hqhib")
"""The version, and the fields in front of the partitions."""
_TIMES: Final = struct.Struct(">qq")
"""The fields between the partitions and the tagged ones."""


def encode_transaction_state(
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    status: int,
    partitions: frozenset[TopicPartition] | None,
    last_update_ms: int,
    start_ms: int,
    tagged_fields: tuple[int, int, int],
) -> bytes:
    """The same as :func:`encode_transaction_value`, in a fifth of its time: each transaction is stored at
    least twice. ``tagged_fields`` are the previous and the next producer id, and the client's version. What
    comes again from transaction to transaction is kept; a test holds both to the same bytes.

    Raises:
        UsageError: a number does not fit.
    """
    try:
        return (
            _BEGIN.pack(VALUE_VERSION, producer_id, producer_epoch, timeout_ms, status)
            + (_kept_partitions if len(partitions or ()) <= _FEW else _encoded_partitions)(partitions)
            + _TIMES.pack(last_update_ms, start_ms)
            + _kept_tags(tagged_fields)
        )
    except struct.error as error:
        raise UsageError(f"the state of a transaction cannot be encoded: {error}") from None


def _encoded_partitions(partitions: frozenset[TopicPartition] | None) -> bytes:
    value = TransactionLogValue(partitions=None if partitions is None else by_topic(partitions))
    return encode_transaction_value(value)[_BEGIN.size : -_TIMES.size - 1]  # one byte says: nothing is tagged


def _encoded_tags(tagged_fields: tuple[int, int, int]) -> bytes:
    previous_id, next_id, client_version = tagged_fields
    value = TransactionLogValue(
        previous_producer_id=previous_id, next_producer_id=next_id, client_version=client_version
    )
    return encode_transaction_value(value)[len(encode_transaction_value(TransactionLogValue())) - 1 :]


_FEW: Final = 16
_kept_partitions: Final = lru_cache(maxsize=1024)(_encoded_partitions)
_kept_tags: Final = lru_cache(maxsize=1024)(_encoded_tags)


def decode_transaction_key(data: Bytes) -> str | None:
    """The transactional id; None if the record is of a kind that is not known here, and is to be left alone.

    Raises:
        CorruptionError: it is cut short, or has text that is not UTF-8.
    """
    if version_of(data) != 0:
        return None
    return TRANSACTION_LOG_KEY.decode_versioned(data).transactional_id


def decode_transaction_value(data: Bytes) -> TransactionLogValue:
    """The value, of any version that is known.

    Raises:
        UnsupportedVersionError: of a later version.
        CorruptionError: it is cut short.
    """
    return TRANSACTION_LOG_VALUE.decode_versioned(data)


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[TransactionPartitions, ...]:
    """Partitions as the value lists them."""
    return tuple(
        TransactionPartitions(topic, tuple(each.partition for each in group))
        for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
    )
