"""Byte layouts, declared once as data.

A :class:`Layout` names the fields of a fixed-size structure in order. Packing and unpacking (one ``struct``
call for the whole), the positions of the fields, and the table in the documentation all come from that one
declaration. All integers are big-endian, as everywhere in Kafka's files.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_CODES = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
}


class Field(NamedTuple):
    """One field of a layout."""

    name: str
    type: str
    """int8, int16, int32, uint32 or int64"""
    note: str = ""


class Layout:
    """A fixed-size big-endian structure.

    ``pack(*values) -> bytes``, ``pack_into(buffer, position, *values)``, ``unpack(bytes) -> tuple`` and
    ``unpack_from(buffer, position) -> tuple`` are the methods of one precompiled :class:`struct.Struct`.
    """

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self._struct = struct.Struct(">" + "".join(_CODES[field.type] for field in fields))
        self.size_bytes = self._struct.size
        self.pack = self._struct.pack
        self.pack_into = self._struct.pack_into
        self.unpack = self._struct.unpack
        self.unpack_from = self._struct.unpack_from
        self.iter_unpack = self._struct.iter_unpack

    def position_of(self, name: str) -> int:
        """Where a field begins, in bytes from the start of the structure."""
        position = 0
        for field in self.fields:
            if field.name == name:
                return position
            position += struct.calcsize(">" + _CODES[field.type])
        raise KeyError(name)

    def describe(self) -> str:
        """The layout as a Markdown table: position, type, field, note."""
        lines = ["| At | Type | Field | Notes |", "|---|---|---|---|"]
        position = 0
        for field in self.fields:
            lines.append(f"| {position} | {field.type} | {field.name.replace('_', ' ')} | {field.note} |")
            position += struct.calcsize(">" + _CODES[field.type])
        return "\n".join(lines)


OFFSET_INDEX_ENTRY = Layout(
    "offset index entry",
    Field("relative_offset", "int32", "offset minus the segment's base offset"),
    Field("position", "int32", "where the batch begins in the .log file"),
)

TIME_INDEX_ENTRY = Layout(
    "time index entry",
    Field("timestamp", "int64", "largest timestamp in the segment up to here, ms"),
    Field("relative_offset", "int32", "last offset of the batch that holds it, minus the base offset"),
)

TRANSACTION_INDEX_ENTRY = Layout(
    "transaction index entry",
    Field("version", "int16", "0"),
    Field("producer_id", "int64", "whose transaction was aborted"),
    Field("first_offset", "int64", "first offset of the transaction"),
    Field("last_offset", "int64", "offset of the abort marker"),
    Field("last_stable_offset", "int64", "last stable offset when the marker was written"),
)

SNAPSHOT_HEADER = Layout(
    "producer snapshot header",
    Field("version", "int16", "1"),
    Field("crc", "uint32", "CRC-32C of everything after this field"),
    Field("entry_count", "int32", "number of producers that follow"),
)

SNAPSHOT_ENTRY = Layout(
    "producer snapshot entry",
    Field("producer_id", "int64"),
    Field("producer_epoch", "int16"),
    Field("last_sequence", "int32", "-1 if no batch is remembered"),
    Field("last_offset", "int64", "-1 if no batch is remembered"),
    Field("offset_delta", "int32", "last offset minus first offset of the last batch"),
    Field("timestamp", "int64", "ms"),
    Field("coordinator_epoch", "int32", "-1 if no marker was seen"),
    Field("transaction_first_offset", "int64", "first offset of the open transaction, or -1"),
)

BATCH_HEADER = Layout(
    "batch header",
    Field("base_offset", "int64", "offset of the first record; not covered by the CRC"),
    Field("batch_length", "int32", "bytes after this field: the batch's size minus 12"),
    Field("partition_leader_epoch", "int32", "not covered by the CRC"),
    Field("magic", "int8", "2"),
    Field("crc", "uint32", "CRC-32C of everything after this field"),
    Field("attributes", "int16", "codec, timestamp type, flags"),
    Field("last_offset_delta", "int32", "last offset minus base offset; survives compaction"),
    Field("base_timestamp", "int64", "of the first record as written, ms; or the delete horizon"),
    Field("max_timestamp", "int64", "largest of the records, ms"),
    Field("producer_id", "int64", "-1 for none"),
    Field("producer_epoch", "int16", "-1 for none"),
    Field("base_sequence", "int32", "-1 for none"),
    Field("record_count", "int32", "0 only in a batch that compaction emptied"),
)

LEGACY_HEADER = Layout(
    "legacy entry header",
    Field("offset", "int64", "of the record; of the last inner record in a wrapper"),
    Field("size", "int32", "bytes after this field"),
    Field("crc", "uint32", "CRC-32 (zlib) of everything after this field"),
    Field("magic", "int8", "0 or 1"),
    Field("attributes", "int8", "bits 0-2 codec, bit 3 timestamp type (magic 1)"),
)

LAYOUTS = (
    BATCH_HEADER,
    LEGACY_HEADER,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    SNAPSHOT_HEADER,
    SNAPSHOT_ENTRY,
)
