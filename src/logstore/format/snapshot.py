"""Producer snapshots (``.snapshot`` files): what a partition remembers of its producers, at one offset.

Knows the bytes. Does not know what the values mean for an append (see ``partition.state.producer_state``), or
which snapshot to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.checksum import crc32c
from logstore.format.layout import SNAPSHOT_ENTRY, SNAPSHOT_HEADER
from logstore.model import Bytes

SNAPSHOT_VERSION = 1

_COUNT_POSITION = SNAPSHOT_HEADER.position_of("entry_count")
"""The CRC covers everything from here on."""


class ProducerSnapshotEntry(NamedTuple):
    """One producer. ``last_sequence``, ``last_offset`` and ``offset_delta`` describe its last batch; they are
    -1, -1 and 0 if only a marker was seen. ``transaction_first_offset`` is -1 without an open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """The whole file. Always replace an older file as a whole. (Kafka writes over it without cutting it.)"""
    body = b"".join([SNAPSHOT_ENTRY.pack(*entry) for entry in entries])
    covered = len(entries).to_bytes(4, "big") + body
    return SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, crc32c(covered), len(entries)) + body


def decode_snapshot(buffer: Bytes) -> list[ProducerSnapshotEntry]:
    """The entries, in the order of the file. Compares the count with the size before building anything.

    Raises:
        CorruptionError: too short, a size that does not fit the count, or a wrong CRC.
        UnsupportedVersionError: a version above 1.
    """
    size_bytes = len(buffer)
    if size_bytes < SNAPSHOT_HEADER.size_bytes:
        raise CorruptionError(f"producer snapshot of {size_bytes} bytes has no whole header", position=0)
    version, crc, entry_count = SNAPSHOT_HEADER.unpack_from(buffer)
    if version > SNAPSHOT_VERSION:
        raise UnsupportedVersionError(
            f"producer snapshot has version {version}; only {SNAPSHOT_VERSION} is known"
        )
    if version != SNAPSHOT_VERSION:
        raise CorruptionError(f"producer snapshot has version {version}", position=0)
    wanted_bytes = SNAPSHOT_HEADER.size_bytes + entry_count * SNAPSHOT_ENTRY.size_bytes
    if entry_count < 0 or size_bytes != wanted_bytes:
        raise CorruptionError(
            f"producer snapshot of {size_bytes} bytes says it has {entry_count} entries",
            position=_COUNT_POSITION,
        )
    view = memoryview(buffer)
    if crc32c(view[_COUNT_POSITION:]) != crc:
        raise CorruptionError("producer snapshot fails its CRC", position=SNAPSHOT_HEADER.position_of("crc"))
    rows = SNAPSHOT_ENTRY.iter_unpack(view[SNAPSHOT_HEADER.size_bytes :])
    return [ProducerSnapshotEntry._make(row) for row in rows]
