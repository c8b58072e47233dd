"""Control batches: the markers that end transactions, and other records that Kafka writes for itself.

Knows the key, which gives a control record's type, and the value of an end marker. Other types are named if
their number is known, and never interpreted.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from logstore.errors import CorruptionError, UsageError
from logstore.format import loops
from logstore.format.batch import seal_batch
from logstore.format.header import CONTROL_BIT, MAGIC, NO_EPOCH, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from logstore.format.layout import Field, Layout
from logstore.model import Record

CONTROL_KEY = Layout(
    "control record key",
    Field("version", "int16", "0"),
    Field("type", "int16", "what the record says: 0 abort, 1 commit, and others"),
)

END_MARKER_VALUE = Layout(
    "end marker value",
    Field("version", "int16", "0"),
    Field("coordinator_epoch", "int32", "of the coordinator that ended the transaction"),
)

CONTROL_VERSION: Final = 0
"""The version of both key and value. Later versions begin with the same fields, so they are read as this."""

END_MARKER_BYTES: Final = 78


class ControlType(IntEnum):
    """The types of control records. Readers skip those they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    __hash__ = int.__hash__  # that of an enum hashes its name, which takes three times as long


_ABORT: Final = ControlType.ABORT
_COMMIT: Final = ControlType.COMMIT


class ControlRecord(NamedTuple):
    """The contents of a control record. ``control_type`` is None if the code is unknown;
    ``coordinator_epoch`` is None for all types except the two end markers."""

    version: int
    type_code: int
    control_type: ControlType | None
    coordinator_epoch: int | None


def encode_end_marker(
    *,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    control_type: ControlType,
    coordinator_epoch: int,
    timestamp_ms: int,
    partition_leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """The batch (78 bytes) that ends a producer's transaction: ABORT or COMMIT."""
    if control_type is not _COMMIT and control_type is not _ABORT:
        raise UsageError(f"{control_type.name} does not end a transaction")
    key, value = _end_marker_record(control_type, coordinator_epoch)
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    batch = loops.encode_batch(
        [key],
        [value],
        timestamp_ms,
        None,
        base_offset,
        partition_leader_epoch,
        attributes,
        None,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
    )
    if batch is not None:
        return batch
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return seal_batch(header, loops.encode_records([key], [value], timestamp_ms, None, timestamp_ms))


@lru_cache(maxsize=16)
def _end_marker_record(control_type: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value. A coordinator asks for few."""
    try:
        value = END_MARKER_VALUE.pack(CONTROL_VERSION, coordinator_epoch)
    except struct.error as error:
        raise UsageError(f"coordinator epoch {coordinator_epoch} does not fit 32 bits") from error
    return CONTROL_KEY.pack(CONTROL_VERSION, control_type), value


def decode_control_record(record: Record) -> ControlRecord:
    """Decode a control batch's record; CorruptionError if its key, or a marker's value, is too short."""
    if record.key is None or len(record.key) < CONTROL_KEY.size_bytes:
        raise CorruptionError("a control record without a whole key", base_offset=record.offset)
    version, type_code = CONTROL_KEY.unpack_from(record.key)
    if version < CONTROL_VERSION:
        raise CorruptionError(f"control record version {version} is negative", base_offset=record.offset)
    try:
        control_type = ControlType(type_code)
    except ValueError:
        return ControlRecord(version, type_code, None, None)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(version, type_code, control_type, None)
    return ControlRecord(version, type_code, control_type, _decode_coordinator_epoch(record))


def _decode_coordinator_epoch(record: Record) -> int:
    if record.value is None or len(record.value) < END_MARKER_VALUE.size_bytes:
        raise CorruptionError("an end marker without a whole value", base_offset=record.offset)
    version, coordinator_epoch = END_MARKER_VALUE.unpack_from(record.value)
    if version < CONTROL_VERSION:
        raise CorruptionError(f"end marker version {version} is negative", base_offset=record.offset)
    return int(coordinator_epoch)
